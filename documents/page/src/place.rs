//! A place in a page (`#name`): how far down it is.

use std::collections::HashMap;

use holdfast_dom::{Document, Node, NodeKind};
use percent_encoding::percent_decode_str;

use crate::places::NodeBox;

/// How far down the page its element is; none, if there is none of this name. An element that takes
/// no room is where the next one is.
pub(crate) fn of(document: &Document<'_>, boxes: &[NodeBox], fragment: &str) -> Option<u32> {
    let decoded = percent_decode_str(fragment).decode_utf8_lossy();
    let Some(node) = named(document, fragment).or_else(|| named(document, &decoded)) else {
        // A word that browsers know.
        return decoded.eq_ignore_ascii_case("top").then_some(0);
    };
    let tops: HashMap<u32, f32> = boxes.iter().map(|one| (one.node, one.place[1])).collect();
    let mut next = Some(node);
    let mut steps_left = document.size().nodes;
    while let Some(node) = next {
        if let Some(top) = tops.get(&node.id()) {
            return Some(top.max(0.0) as u32);
        }
        // A damaged document can lead in a circle.
        steps_left = steps_left.checked_sub(1)?;
        next = following(node, &mut steps_left);
    }
    None
}

/// The element with this `id`, or else the link with this `name`.
fn named<'a>(document: &'a Document<'_>, name: &str) -> Option<Node<'a>> {
    let mut elements =
        document.root().descendants().filter(|node| node.kind() == NodeKind::Element);
    let has = |node: &Node<'_>, attribute: &str| node.attribute(attribute) == Some(name);
    elements.find(|node| has(node, "id")).or_else(|| {
        let mut elements =
            document.root().descendants().filter(|node| node.kind() == NodeKind::Element);
        elements.find(|node| node.name() == Some("a") && has(node, "name"))
    })
}

/// The next node in the order of the page.
fn following<'a>(node: Node<'a>, steps_left: &mut u32) -> Option<Node<'a>> {
    if let Some(child) = node.first_child() {
        return Some(child);
    }
    let mut node = node;
    loop {
        if let Some(sibling) = node.next_sibling() {
            return Some(sibling);
        }
        node = node.parent()?;
        *steps_left = steps_left.checked_sub(1)?;
    }
}
