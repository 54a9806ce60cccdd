//! Looks at every byte of a document that means something: for tools, and before a document of doubtful origin is trusted.

use crate::document::Document;
use crate::error::{Damage, DomError};
use crate::layout::{DOCUMENT, Kind, NONE};
use crate::namespace::Namespace;
use crate::node::Node;

/// What a check counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
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
    pub fn check(&self) -> Result<Checked, DomError> {
        for (number, name) in (0..).zip(self.names) {
            self.str_at(name.local, name.local_length);
            self.str_at(name.prefix, name.prefix_length.into());
            if Namespace::parse(name.namespace).is_none() || name.has_prefix > 1 {
                self.note(Damage::Name { name: number });
            }
        }
        for attribute in self.attributes {
            self.name(attribute.name.into());
            self.value_of(attribute);
        }
        let mut seen = vec![false; self.nodes.len()];
        let mut checked = Checked::default();
        let mut open = vec![DOCUMENT];
        while let Some(id) = open.pop() {
            if self.damage().is_some() {
                break;
            }
            checked.nodes += 1;
            self.check_node(id, &mut seen, &mut open);
        }
        checked.removed = (self.nodes.len() as u64).saturating_sub(1 + checked.nodes);
        self.unless_damaged(checked)
    }

    fn check_node(&self, id: u32, seen: &mut [bool], open: &mut Vec<u32>) {
        let node = Node { document: self, id };
        let (kind, record) = (node.kind(), node.record());
        match kind {
            Kind::Element => {
                let _ = (node.name(), node.namespace());
                self.attributes_of(&record);
            }
            Kind::Text | Kind::Comment => {
                let _ = node.data();
            }
            Kind::Doctype => {
                let _ = node.doctype();
            }
            Kind::ProcessingInstruction => {
                let _ = node.data();
            }
            Kind::Document | Kind::Fragment => {
                if [record.parent, record.next, record.previous] != [NONE; 3] {
                    self.note(Damage::Node { node: id });
                }
            }
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
            enter(contents.id, contents.kind() != Kind::Fragment || inner.data != id, open);
        }
        let mut last = NONE;
        for child in node.children() {
            let inner = child.record();
            let follows = last == NONE || inner.previous == last;
            enter(child.id, inner.parent != id || !follows || child.kind() == Kind::Document, open);
            last = child.id;
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
}
