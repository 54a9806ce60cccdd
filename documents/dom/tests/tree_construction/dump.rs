//! A document in the form in which the cases have it.

use holdfast_dom::{Document, Namespace, Node, NodeKind};

pub fn dumped(document: &Document<'_>, is_fragment: bool) -> String {
    let mut text = String::new();
    let root = if is_fragment { document.root_element().unwrap() } else { document.root() };
    for child in root.children() {
        node(child, 0, &mut text);
    }
    text
}

pub fn line(depth: usize, what: &str, text: &mut String) {
    text.push_str("| ");
    text.push_str(&"  ".repeat(depth));
    text.push_str(what);
    text.push('\n');
}

pub fn prefixed(namespace: Namespace, name: &str) -> String {
    let prefix = match namespace {
        Namespace::Svg => "svg ",
        Namespace::MathMl => "math ",
        Namespace::XLink => "xlink ",
        Namespace::Xml => "xml ",
        Namespace::Xmlns => "xmlns ",
        Namespace::Html | Namespace::None => "",
    };
    format!("{prefix}{name}")
}

pub fn doctype(name: &str, public: &str, system: &str) -> String {
    match (public, system) {
        ("", "") => format!("<!DOCTYPE {name}>"),
        _ => format!("<!DOCTYPE {name} \"{public}\" \"{system}\">"),
    }
}

fn node(node: Node<'_>, depth: usize, text: &mut String) {
    match node.kind() {
        NodeKind::Doctype => {
            let said = node.doctype().unwrap();
            line(depth, &doctype(said.name, said.public_id, said.system_id), text);
        }
        NodeKind::Text => line(depth, &format!("\"{}\"", node.data().unwrap()), text),
        NodeKind::Comment => line(depth, &format!("<!-- {} -->", node.data().unwrap()), text),
        NodeKind::ProcessingInstruction => {
            let said = format!("<?{} {}>", node.target().unwrap(), node.data().unwrap());
            line(depth, &said, text);
        }
        NodeKind::Element => {
            let name = prefixed(node.namespace().unwrap(), node.name().unwrap());
            line(depth, &format!("<{name}>"), text);
            let mut attributes: Vec<String> = node
                .attributes()
                .map(|at| format!("{}=\"{}\"", prefixed(at.namespace, at.name), at.value))
                .collect();
            attributes.sort();
            attributes.iter().for_each(|attribute| line(depth + 1, attribute, text));
            if let Some(contents) = node.template_contents() {
                line(depth + 1, "content", text);
                contents.children().for_each(|child| self::node(child, depth + 2, text));
            }
        }
        kind => panic!("{kind:?} inside of a document"),
    }
    node.children().for_each(|child| self::node(child, depth + 1, text));
}
