//! The same in the tree that the parser's own authors build for their tests.

use holdfast_dom::Namespace;
use html5ever::tendril::TendrilSink;
use html5ever::tree_builder::TreeBuilderOpts;
use html5ever::{ParseOpts, QualName, ns, parse_document, parse_fragment};
use markup5ever_rcdom::{Handle, NodeData, RcDom};

use crate::cases::Case;
use crate::dump::{doctype, line, prefixed};

pub fn dumped(case: &Case, scripting: bool) -> String {
    let options = ParseOpts {
        tree_builder: TreeBuilderOpts {
            scripting_enabled: scripting,
            ..TreeBuilderOpts::default()
        },
        ..ParseOpts::default()
    };
    let mut text = String::new();
    // A tree is taken apart when its document goes.
    let dom = match &case.fragment_of {
        None => parse_document(RcDom::default(), options).one(case.data.as_str()),
        Some((namespace, name)) => {
            let url = match namespace {
                Namespace::Svg => ns!(svg),
                Namespace::MathMl => ns!(mathml),
                _ => ns!(html),
            };
            let context = QualName::new(None, url, name.as_str().into());
            parse_fragment(RcDom::default(), options, context, Vec::new(), scripting)
                .one(case.data.as_str())
        }
    };
    let root = match case.fragment_of {
        None => dom.document.clone(),
        Some(_) => dom.document.children.borrow()[0].clone(),
    };
    root.children.borrow().iter().for_each(|child| node(child, 0, &mut text));
    text
}

fn namespace(url: &html5ever::Namespace) -> Namespace {
    match *url {
        ns!(svg) => Namespace::Svg,
        ns!(mathml) => Namespace::MathMl,
        ns!(xlink) => Namespace::XLink,
        ns!(xml) => Namespace::Xml,
        ns!(xmlns) => Namespace::Xmlns,
        _ => Namespace::None,
    }
}

fn node(handle: &Handle, depth: usize, text: &mut String) {
    match &handle.data {
        NodeData::Document => {}
        NodeData::Doctype { name, public_id, system_id } => {
            line(depth, &doctype(name, public_id, system_id), text);
        }
        NodeData::Text { contents } => line(depth, &format!("\"{}\"", contents.borrow()), text),
        NodeData::Comment { contents } => line(depth, &format!("<!-- {contents} -->"), text),
        NodeData::ProcessingInstruction { target, contents } => {
            line(depth, &format!("<?{target} {contents}>"), text);
        }
        NodeData::Element { name, attrs, template_contents, .. } => {
            line(depth, &format!("<{}>", prefixed(namespace(&name.ns), &name.local)), text);
            let mut attributes: Vec<String> = attrs
                .borrow()
                .iter()
                .map(|at| {
                    format!("{}=\"{}\"", prefixed(namespace(&at.name.ns), &at.name.local), at.value)
                })
                .collect();
            attributes.sort();
            attributes.iter().for_each(|attribute| line(depth + 1, attribute, text));
            if let Some(contents) = &*template_contents.borrow() {
                line(depth + 1, "content", text);
                contents.children.borrow().iter().for_each(|child| node(child, depth + 2, text));
            }
        }
    }
    handle.children.borrow().iter().for_each(|child| node(child, depth + 1, text));
}
