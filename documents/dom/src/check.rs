//! Looks at every byte of a document that means something: for tools, and before a document of
//! doubtful origin is trusted.

use crate::document::{Document, LONG_BYTES};
use crate::error::{Damage, DomError};
use crate::layout::{
    DOCUMENT, LONG, NAME_CLASS, NAME_ID, NONE, NodeKind, NodeRecord, ORDERED, name_hash,
};
use crate::limits::SHARED_BYTES_MAX;
use crate::namespace::Namespace;
use crate::node::Node;

/// What a check counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Nodes that a walk over the document and its templates reaches.
    pub nodes: u64,
    /// Nodes that were removed, and parts of those.
    pub removed: u64,
}

impl<'heap> Document<'heap> {
    /// Checks all links, names and texts. Costs a walk over the document.
    ///
    /// # Errors
    /// [`DomError::Damaged`] with the first damage.
    pub fn check(&self) -> Result<CheckReport, DomError> {
        if self.header().quirks > 2 {
            self.note(Damage::HeaderWord { word: "quirks" });
        }
        if self.header().scripting > 1 {
            self.note(Damage::HeaderWord { word: "scripting" });
        }
        if self.header().flags & !ORDERED != 0 {
            self.note(Damage::HeaderWord { word: "flags" });
        }
        let mut left =
            CheckBudget { attributes: self.attributes().len(), text_bytes: self.text().len() };
        for (number, name) in (0..).zip(self.names()) {
            left.take_text(self, name.local, name.local_length);
            left.take_text(self, name.prefix, name.prefix_length.into());
            if self.damage().is_some() {
                break;
            }
            let local = self.str_at(name.local, name.local_length);
            self.str_at(name.prefix, name.prefix_length.into());
            let known = match number {
                NAME_ID => Some("id"),
                NAME_CLASS => Some("class"),
                _ => None,
            };
            let is_known = |known| {
                local == known && name.namespace == Namespace::None as u8 && name.has_prefix == 0
            };
            if Namespace::parse(name.namespace).is_none()
                || name.has_prefix > 1
                || name.hash != name_hash(local)
                || !known.is_none_or(is_known)
            {
                self.note(Damage::Name { name: number });
            }
        }
        let mut seen = vec![false; self.nodes().len()];
        let mut checked = CheckReport::default();
        let mut open = vec![DOCUMENT];
        while let Some(id) = open.pop() {
            if self.damage().is_some() {
                break;
            }
            checked.nodes += 1;
            self.check_node(id, &mut left, &mut seen, &mut open);
        }
        if self.damage().is_none() && self.header().flags & ORDERED != 0 {
            self.check_order();
        }
        checked.removed = (self.nodes().len() as u64).saturating_sub(1 + checked.nodes);
        self.unless_damaged(checked)
    }

    /// Whether a walk over the document is one over the table of nodes, as the header says.
    fn check_order(&self) {
        let mut at = DOCUMENT;
        for (id, _) in self.walk(DOCUMENT) {
            at += 1;
            if id != at {
                return self.note(Damage::Node { node: id });
            }
        }
        if at as usize + 1 != self.nodes().len() {
            self.note(Damage::Node { node: at + 1 });
        }
    }

    fn check_node(&self, id: u32, left: &mut CheckBudget, seen: &mut [bool], open: &mut Vec<u32>) {
        let node = Node::new(self, id);
        let (kind, record) = (node.kind(), node.record());
        match kind {
            NodeKind::Element => {
                let _ = (node.name(), node.namespace());
                self.check_attributes(&record, left);
            }
            NodeKind::Text
            | NodeKind::Comment
            | NodeKind::Doctype
            | NodeKind::ProcessingInstruction => {
                left.take_text(self, record.data, record.first);
                if self.damage().is_some() {
                    return;
                }
                let _ = (node.data(), node.doctype());
            }
            NodeKind::Document | NodeKind::Fragment => {
                let has_text = kind == NodeKind::Document && record.data != 0;
                if [record.parent, record.next, record.previous] != [NONE; 3] || has_text {
                    self.note(Damage::Node { node: id });
                }
            }
        }
        if kind != NodeKind::Element && record.tag != kind as u32 {
            self.note(Damage::Node { node: id });
        }
        let mut enter = |child: u32, wrong: bool, open: &mut Vec<u32>| {
            match seen.get_mut(child as usize) {
                Some(seen) if !*seen && !wrong => *seen = true,
                Some(_) if !wrong => return self.note(Damage::Circle { node: child }),
                _ => return self.note(Damage::Node { node: id }),
            }
            open.push(child);
        };
        if let Some(contents) = node.template_contents() {
            let inner = contents.record();
            enter(contents.id(), contents.kind() != NodeKind::Fragment || inner.data != id, open);
        }
        let mut last = NONE;
        for child in node.children() {
            let inner = child.record();
            let follows = last == NONE || inner.previous == last;
            enter(
                child.id(),
                inner.parent != id || !follows || child.kind() == NodeKind::Document,
                open,
            );
            last = child.id();
            if self.damage().is_some() {
                return;
            }
        }
        if let Some(first) = node.first_child()
            && first.record().previous != last
        {
            self.note(Damage::Node { node: id });
        }
    }

    fn check_attributes(&self, record: &NodeRecord, left: &mut CheckBudget) {
        let attributes = self.attributes_of(record);
        match left.attributes.checked_sub(attributes.len()) {
            Some(rest) => left.attributes = rest,
            None => return self.note(Damage::Attribute { attribute: record.data }),
        }
        // The numbers come second: there may be none that is one more.
        for (attribute, number) in attributes.iter().zip(record.data..) {
            let (start, length) = self.place_of(attribute);
            // A word before it is for what has no room for its length.
            let is_long = attribute.length == LONG;
            if is_long && length < LONG.into() {
                self.note(Damage::Attribute { attribute: number });
            }
            left.take_text(
                self,
                start,
                length.saturating_add(if is_long { LONG_BYTES } else { 0 }),
            );
            if self.damage().is_some() {
                return;
            }
            self.name(attribute.name.into());
            self.str_at(start, length);
        }
        // Queries pass over elements by what this says of their attributes.
        let names = attributes.iter().map(|attribute| attribute.name.into());
        if record.with_attributes(names).tag != record.tag {
            self.note(Damage::Attribute { attribute: record.data });
        }
    }
}

/// What the nodes that are still to come can have: no two elements of a sound document share
/// attributes, and only short texts are shared. So a copy of a document that was checked is no
/// larger than the document.
struct CheckBudget {
    attributes: usize,
    text_bytes: usize,
}

impl CheckBudget {
    fn take_text(&mut self, document: &Document<'_>, start: u32, length: u32) {
        let length = length as usize;
        if length <= SHARED_BYTES_MAX {
            return;
        }
        match self.text_bytes.checked_sub(length) {
            Some(rest) => self.text_bytes = rest,
            None => document.note(Damage::Text { start }),
        }
    }
}
