//! The engine's tree of a document, in the order in which a parser would build it.
//!
//! What it must not do: recurse on the depth of the page; hand on what would load another page (frames).

use std::collections::HashSet;

use blitz_dom::{Attribute, DocumentMutator, LocalName, Namespace as Url, NodeId, Prefix, QualName};
use holdfast_dom::{Damage, Document, DomError, Kind, Namespace, Node};

/// A node of the document, and what it is in the engine.
pub(crate) type Pair = (u32, NodeId);

/// Builds the tree below the engine's root. Of the elements in `without` the engine takes no style sheet.
///
/// # Errors
/// [`DomError::Damaged`] when the document is not what it was.
pub(crate) fn build(
    document: &Document<'_>,
    root: NodeId,
    without: &HashSet<u32>,
    tree: &mut DocumentMutator<'_>,
) -> Result<Vec<Pair>, DomError> {
    let mut pairs = Vec::with_capacity(document.size().nodes as usize);
    // The next node and its parent in the engine; what comes after it is behind it.
    let mut next: Vec<(Node<'_>, NodeId)> =
        document.root().first_child().map(|first| (first, root)).into_iter().collect();
    let mut steps_left = document.size().nodes;
    while let Some((node, parent)) = next.pop() {
        // A damaged document can lead in a circle.
        steps_left = match steps_left.checked_sub(1) {
            Some(left) => left,
            None => return Err(DomError::Damaged(Damage::Node { node: node.id() })),
        };
        if let Some(sibling) = node.next_sibling() {
            next.push((sibling, parent));
        }
        match node.kind() {
            Kind::Element => {
                let is_without = without.contains(&node.id());
                let made = tree.create_element(name_of(node), attributes_of(node, is_without));
                pairs.push((node.id(), made));
                tree.append_children(parent, &[made]);
                let is_empty = is_without && node.name() == Some("style");
                if let (Some(child), false) = (node.first_child(), is_empty) {
                    next.push((child, made));
                }
            }
            Kind::Text => {
                let made = tree.create_text_node(node.data().unwrap_or_default());
                tree.append_children(parent, &[made]);
            }
            _ => {}
        }
    }
    match document.damage() {
        Some(damage) => Err(DomError::Damaged(damage)),
        None => Ok(pairs),
    }
}

fn name_of(node: Node<'_>) -> QualName {
    let namespace = node.namespace().unwrap_or_default();
    QualName::new(None, Url::from(namespace.url()), LocalName::from(node.name().unwrap_or_default()))
}

fn attributes_of(node: Node<'_>, is_without: bool) -> Vec<Attribute> {
    let is_frame = matches!(node.name(), Some("iframe" | "frame" | "object" | "embed"));
    let is_link = node.name() == Some("link");
    let loads = |name: &str| {
        is_frame && matches!(name, "src" | "srcdoc" | "data") || is_link && is_without && name == "href"
    };
    // The engine knows relations in small letters only.
    let value = |name: &str, value: &str| {
        if is_link && name == "rel" { value.to_ascii_lowercase() } else { value.to_owned() }
    };
    node.attributes()
        .filter(|attribute| !loads(attribute.name))
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
