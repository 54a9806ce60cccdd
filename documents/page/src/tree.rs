//! The engine's tree of a document, in the order in which a parser would build it.
//!
//! What it must not do: recurse on the depth of the page; hand on what would load another page
//! (frames).

use std::collections::HashSet;

use blitz_dom::{
    Attribute, DocumentMutator, LocalName, Namespace as Url, NodeId, Prefix, QualName,
};
use blitz_traits::net::Url as Address;
use holdfast_dom::{AttributeRef, Damage, Document, DomError, Namespace, Node, NodeKind};

use crate::forms::{self, FieldContent};
use crate::hints;
use crate::sheets;
use crate::spans::Spans;
use crate::srcset::{ImageSource, ImageSources};
use crate::svg::{Pictures, SvgSummary, is_plain, leads_out, xml_text};

/// A node of the document, and what it is in the engine.
pub(crate) type Pair = (u32, NodeId);

/// Builds the tree below the engine's root. Of the elements in `without` the engine takes no style
/// sheet; of the pictures it gets what [`svg`](crate::svg) lets through; what an `img` shows is as
/// `images` has it.
///
/// # Errors
/// [`DomError::Damaged`] when the document is not what it was.
pub(crate) fn build(
    document: &Document<'_>,
    root: NodeId,
    without: &HashSet<u32>,
    pictures: &Pictures,
    spans: &Spans,
    images: &ImageSources<'_>,
    tree: &mut DocumentMutator<'_>,
) -> Result<Vec<Pair>, DomError> {
    let base = tree.doc.base_url().clone();
    let mut pairs = Vec::with_capacity(document.size().nodes as usize);
    // The next node and its parent in the engine; what comes after it is behind it.
    let mut next: Vec<(Node<'_>, NodeId, Option<&SvgSummary>)> =
        document.root().first_child().map(|first| (first, root, None)).into_iter().collect();
    let mut steps_left = document.size().nodes;
    let mut without_texts: HashSet<u32> = HashSet::new();
    let mut captions: HashSet<u32> = HashSet::new();
    while let Some((node, parent, within)) = next.pop() {
        // A damaged document can lead in a circle.
        steps_left = match steps_left.checked_sub(1) {
            Some(left) => left,
            None => return Err(DomError::Damaged(Damage::Node { node: node.id() })),
        };
        if let Some(sibling) = node.next_sibling() {
            next.push((sibling, parent, within));
        }
        match node.kind() {
            // The engine writes a picture as XML, where what HTML has as text could be elements.
            NodeKind::Element if within.is_some() && !is_drawn(node) => {}
            NodeKind::Element if captions.contains(&node.id()) => {}
            NodeKind::Element => {
                let is_without = without.contains(&node.id());
                let is_outermost = within.is_none();
                let (within, is_refused) = match (within, pictures.get(&node.id())) {
                    (Some(within), _) => (Some(within), false),
                    (None, Some(Ok(vetted))) => (Some(vetted), false),
                    (None, Some(Err(_))) => (None, true),
                    (None, None) => (None, false),
                };
                let mut attributes = attributes_of(node, is_without, within, spans, &base);
                if let Some(source) = images.get(&node.id()) {
                    set_source(&mut attributes, source, &base);
                }
                if let (Some(vetted), true) = (within, is_outermost)
                    && let (Some(family), None) = (&vetted.family, node.attribute("font-family"))
                {
                    attributes.push(plain_attribute("font-family", family));
                }
                if let Some(caption) = caption_of(node) {
                    // The engine leaves it out of the table.
                    let made = tree.create_element(
                        name_of(caption),
                        attributes_of(caption, false, None, spans, &base),
                    );
                    pairs.push((caption.id(), made));
                    tree.append_children(parent, &[made]);
                    captions.insert(caption.id());
                    next.extend(caption.first_child().map(|child| (child, made, None)));
                }
                let shown = forms::shown(node);
                if let FieldContent::Placeholder(text) = &shown {
                    attributes.push(plain_attribute("value", text));
                }
                if let FieldContent::Placeholder(_) | FieldContent::PlaceholderText(_) = &shown {
                    attributes.push(plain_attribute(forms::MARK, "placeholder"));
                }
                let made = tree.create_element(name_of(node), attributes);
                pairs.push((node.id(), made));
                tree.append_children(parent, &[made]);
                let mut is_empty = is_without && node.name() == Some("style") || is_refused;
                match shown {
                    FieldContent::Text(text) | FieldContent::PlaceholderText(text) => {
                        let text = tree.create_text_node(&text);
                        tree.append_children(made, &[text]);
                        is_empty = true;
                    }
                    FieldContent::WithoutTexts => {
                        without_texts.insert(node.id());
                    }
                    FieldContent::Own | FieldContent::Placeholder(_) => {}
                }
                if let (Some(child), false) = (node.first_child(), is_empty) {
                    next.push((child, made, within));
                }
            }
            NodeKind::Text
                if node.parent().is_some_and(|parent| without_texts.contains(&parent.id())) => {}
            NodeKind::Text => {
                let text = node.data().unwrap_or_default();
                let made = match within {
                    Some(vetted) => {
                        tree.create_text_node(&xml_text(&vetted.without_patterns(text)))
                    }
                    // The engine takes it for HTML, in which a letter may have a name.
                    None if node.parent().is_some_and(is_style) => {
                        let text = sheets::without_lost_imports(text, &base);
                        tree.create_text_node(&text.replace('&', "&amp;"))
                    }
                    None => tree.create_text_node(text),
                };
                tree.append_children(parent, &[made]);
            }
            _ => {}
        }
    }
    pairs.sort_unstable_by_key(|(number, _)| *number);
    match document.damage() {
        Some(damage) => Err(DomError::Damaged(damage)),
        None => Ok(pairs),
    }
}

/// What stands above a table.
fn caption_of(table: Node<'_>) -> Option<Node<'_>> {
    let is = |node: Node<'_>, name: &str| {
        node.name() == Some(name) && node.namespace() == Some(Namespace::Html)
    };
    is(table, "table").then(|| table.children().find(|child| is(*child, "caption"))).flatten()
}

fn is_style(node: Node<'_>) -> bool {
    node.name() == Some("style") && node.namespace() == Some(Namespace::Html)
}

fn plain_attribute(name: &str, value: &str) -> Attribute {
    Attribute {
        name: QualName::new(None, Url::default(), LocalName::from(name)),
        value: value.to_owned(),
    }
}

/// Has the engine load the image that was chosen, which knows `src` alone.
fn set_source(attributes: &mut Vec<Attribute>, source: &ImageSource<'_>, base: &Address) {
    let [width, height] = source.dimensions;
    let has_dimensions = width.is_some() || height.is_some();
    attributes.retain(|attribute| match &*attribute.name.local {
        "src" => false,
        "width" | "height" => !has_dimensions,
        _ => true,
    });
    // The engine panics at what is no address.
    let address = if base.join(source.address).is_ok() { source.address } else { "" };
    attributes.push(plain_attribute("src", address));
    for (name, value) in [("width", width), ("height", height)] {
        attributes.extend(value.map(|value| plain_attribute(name, value)));
    }
}

/// Whether an element within a picture is part of it.
fn is_drawn(node: Node<'_>) -> bool {
    node.namespace() == Some(Namespace::Svg) && node.name().is_some_and(is_plain)
}

/// Whether an attribute within a picture can be written as XML. The engine declares what it needs
/// itself.
fn can_be_written(attribute: &AttributeRef<'_>) -> bool {
    is_plain(attribute.name)
        && match attribute.namespace {
            Namespace::None => attribute.name != "xmlns",
            Namespace::XLink | Namespace::Xml => true,
            _ => false,
        }
}

fn name_of(node: Node<'_>) -> QualName {
    let namespace = node.namespace().unwrap_or_default();
    QualName::new(
        None,
        Url::from(namespace.url()),
        LocalName::from(node.name().unwrap_or_default()),
    )
}

fn attributes_of(
    node: Node<'_>,
    is_without: bool,
    within: Option<&SvgSummary>,
    spans: &Spans,
    base: &Address,
) -> Vec<Attribute> {
    let is_frame = matches!(node.name(), Some("iframe" | "frame" | "object" | "embed"));
    let is_link = node.name() == Some("link");
    let element = node.name().unwrap_or_default();
    // The engine panics at it.
    let is_no_address = |value: &str| base.join(value).is_err();
    let loads = |name: &str| {
        is_frame && matches!(name, "src" | "srcdoc" | "data")
            || is_link && is_without && name == "href"
    };
    // The engine knows relations in small letters only.
    let value = |name: &str, value: &str| match within {
        Some(vetted) => {
            let value = xml_text(&vetted.without_patterns(value)).into_owned();
            match &vetted.family {
                Some(family) if name == "font-family" => format!("{value}, {family}"),
                _ => value,
            }
        }
        None if is_link && name == "rel" => value.to_ascii_lowercase(),
        None if element == "img" && name == "src" && is_no_address(value) => String::new(),
        // The engine knows numbers alone, and cuts them within letters.
        None if name == "bgcolor" => hints::color(value).unwrap_or_default(),
        None => spans.value(node, name).unwrap_or_else(|| value.to_owned()),
    };
    // A list from nought is one from before the first number to the engine, which has none.
    let is_nought = |name: &str, value: &str| {
        name == "start" && value.trim().trim_start_matches('0').is_empty()
    };
    // To the engine an empty one is that of the page.
    let is_no_style = |name: &str, value: &str| {
        is_link && name == "href" && (value.is_empty() || is_no_address(value))
    };
    node.attributes()
        .filter(|attribute| !loads(attribute.name) && !is_nought(attribute.name, attribute.value))
        .filter(|attribute| !is_no_style(attribute.name, attribute.value))
        .filter(|attribute| {
            within.is_none()
                || can_be_written(attribute) && !leads_out(element, attribute.name, attribute.value)
        })
        .map(|attribute| Attribute {
            name: QualName::new(
                attribute.prefix.map(Prefix::from),
                if attribute.namespace == Namespace::None {
                    Url::default()
                } else {
                    Url::from(attribute.namespace.url())
                },
                LocalName::from(attribute.name),
            ),
            value: value(attribute.name, attribute.value),
        })
        .collect()
}
