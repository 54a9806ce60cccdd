//! The tree while it is parsed: the records of the format in plain memory, where they can grow.
//! `image` makes a document of it.
//!
//! Invariants: numbers come from here alone, so links are right; a text that was extended when
//! another text followed it in the blob lies in `extended` until the document is made (else a page
//! could have each text copied at each of its pieces).

use std::collections::HashMap;

use foldhash::fast::RandomState;
use html5ever::{Attribute, QualName};

use crate::document::Document;
use crate::layout::{AttributeRecord, DOCUMENT, NONE, NodeKind, NodeRecord};
use crate::limits::ATTRIBUTES_MAX;
use crate::namespace::Namespace;

/// In [`NodeRecord::tag`] of a text here, never in a document: the text is in `extended`, `data`
/// says where.
const EXTENDED: u32 = 1 << 31;

/// An attribute here.
#[derive(Clone, Copy)]
pub(crate) struct ArenaAttribute {
    /// Number of its name.
    pub(crate) name: u32,
    /// Where its value starts in the text.
    pub(crate) value: u32,
    /// Bytes of its value.
    pub(crate) length: u32,
}

/// The nodes, attributes and texts of a document that is being parsed.
pub(crate) struct Arena {
    pub(crate) nodes: Vec<NodeRecord>,
    pub(crate) attributes: Vec<ArenaAttribute>,
    pub(crate) names: NameTable,
    text: Vec<u8>,
    extended: Vec<Vec<u8>>,
    /// Of each node how deep it is, as far as it was put there at once.
    depths: Vec<u32>,
    /// The deepest so far.
    pub(crate) depth: u32,
    /// Bytes in `text` and `extended`.
    pub(crate) text_bytes: u64,
    /// Attributes of the element that has the most.
    pub(crate) attributes_most: u32,
    pub(crate) quirks: u32,
    /// As [`Header::scripting`](crate::layout::Header::scripting).
    pub(crate) scripting: u64,
}

/// The names that occur, each once.
#[derive(Default)]
pub(crate) struct NameTable {
    pub(crate) all: Vec<QualName>,
    numbers: HashMap<QualName, u32, RandomState>,
}

impl NameTable {
    pub(crate) fn number(&mut self, name: &QualName) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.all.len() as u32;
        self.all.push(name.clone());
        self.numbers.insert(name.clone(), number);
        number
    }
}

impl Arena {
    pub(crate) fn new() -> Arena {
        let mut names = NameTable::default();
        for local in ["id", "class"] {
            names.number(&QualName::new(None, Namespace::None.to_url(), local.into()));
        }
        let document = NodeRecord { tag: NodeKind::Document as u32, ..NodeRecord::default() };
        Arena {
            nodes: vec![NodeRecord::default(), document],
            attributes: Vec::new(),
            names,
            text: Vec::new(),
            extended: Vec::new(),
            depths: vec![0, 0],
            depth: 0,
            text_bytes: 0,
            attributes_most: 0,
            quirks: 0,
            scripting: 0,
        }
    }

    /// The tree of a document again. What is wrong in it must have been looked for before.
    pub(crate) fn of(document: &Document<'_>) -> Arena {
        let text = |start, length| document.str_at(start, length);
        let value = |attribute: &AttributeRecord| {
            let (value, length) = document.place_of(attribute);
            ArenaAttribute { name: attribute.name.into(), value, length }
        };
        let mut names = NameTable::default();
        for record in document.names() {
            let namespace = Namespace::parse(record.namespace).unwrap_or_default();
            let prefix = text(record.prefix, record.prefix_length.into());
            let prefix = (record.has_prefix != 0).then(|| prefix.into());
            let local = text(record.local, record.local_length).into();
            names.all.push(QualName::new(prefix, namespace.to_url(), local));
        }
        Arena {
            nodes: document.nodes().iter().map(Arena::node_of).collect(),
            attributes: document.attributes().iter().map(value).collect(),
            names,
            text: document.text().to_vec(),
            text_bytes: document.text().len() as u64,
            quirks: document.header().quirks,
            scripting: document.header().scripting,
            ..Arena::new()
        }
    }

    /// As it is in a document, where nothing has the mark.
    fn node_of(node: &NodeRecord) -> NodeRecord {
        if node.is(NodeKind::Element) {
            *node
        } else {
            NodeRecord { tag: node.kind().into(), ..*node }
        }
    }

    /// Of a template its contents: they are made with it.
    pub(crate) fn contents_of(template: u32) -> u32 {
        template + 1
    }

    pub(crate) fn node(&self, id: u32) -> &NodeRecord {
        &self.nodes[id as usize]
    }

    fn node_mut(&mut self, id: u32) -> &mut NodeRecord {
        &mut self.nodes[id as usize]
    }

    fn push(&mut self, record: NodeRecord) -> u32 {
        let id = self.nodes.len() as u32;
        self.nodes.push(record);
        self.depths.push(0);
        id
    }

    fn add_text(&mut self, text: &[u8]) -> (u32, u32) {
        let start = self.text.len() as u32;
        self.text.extend_from_slice(text);
        self.text_bytes += text.len() as u64;
        (start, text.len() as u32)
    }

    /// A node that is nowhere, whose text consists of these parts.
    pub(crate) fn new_text(&mut self, kind: NodeKind, parts: &[&[u8]]) -> u32 {
        let start = self.text.len() as u32;
        let length = parts.iter().map(|part| self.add_text(part).1).sum();
        self.push(NodeRecord {
            tag: kind as u32,
            data: start,
            first: length,
            ..NodeRecord::default()
        })
    }

    /// An element that is nowhere.
    pub(crate) fn new_element(
        &mut self,
        name: &QualName,
        attributes: &[Attribute],
        is_template: bool,
    ) -> u32 {
        let name = self.name_number(name);
        let data = self.attributes.len() as u32;
        // Those beyond are counted, for which the page will be refused.
        let many = attributes.len().min(ATTRIBUTES_MAX as usize);
        attributes[..many].iter().for_each(|attribute| self.push_attribute(attribute));
        self.attributes_most = self.attributes_most.max(attributes.len() as u32);
        let names = self.attributes[data as usize..].iter().map(|attribute| attribute.name);
        let tag = NodeRecord::element(name, names, is_template);
        let id = self.push(NodeRecord { tag, data, ..NodeRecord::default() });
        if is_template {
            let fragment = NodeKind::Fragment as u32;
            self.push(NodeRecord { tag: fragment, data: id, ..NodeRecord::default() });
        }
        id
    }

    fn name_number(&mut self, name: &QualName) -> u32 {
        let known = self.names.all.len();
        let number = self.names.number(name);
        if self.names.all.len() > known {
            self.text_bytes += name.local.len() as u64;
        }
        number
    }

    fn push_attribute(&mut self, attribute: &Attribute) {
        let name = self.name_number(&attribute.name);
        let (value, length) = self.add_text(attribute.value.as_bytes());
        self.attributes.push(ArenaAttribute { name, value, length });
    }

    /// Gives an element those of the attributes that it does not have.
    pub(crate) fn add_attributes(&mut self, id: u32, attributes: &[Attribute]) {
        let node = *self.node(id);
        let old = self.attributes_of(&node).to_vec();
        self.attributes_most = self.attributes_most.max(attributes.len() as u32);
        let missing: Vec<&Attribute> = attributes
            .iter()
            .take(ATTRIBUTES_MAX as usize)
            .filter(|attribute| {
                let name = self.name_number(&attribute.name);
                old.iter().all(|there| there.name != name)
            })
            .collect();
        if missing.is_empty() {
            return;
        }
        // Behind all others, where there is room for more.
        if node.data as usize + old.len() != self.attributes.len() {
            self.node_mut(id).data = self.attributes.len() as u32;
            self.attributes.extend_from_slice(&old);
        }
        self.attributes_most = self.attributes_most.max((old.len() + missing.len()) as u32);
        // As for a new element.
        let fit = ATTRIBUTES_MAX as usize - old.len();
        missing.into_iter().take(fit).for_each(|attribute| self.push_attribute(attribute));
        let node = *self.node(id);
        let names = self.attributes[node.data as usize..].iter().map(|attribute| attribute.name);
        *self.node_mut(id) = node.with_attributes(names);
    }

    pub(crate) fn attributes_of(&self, node: &NodeRecord) -> &[ArenaAttribute] {
        // Of a document again, where the place of none was not looked at.
        if node.attributes() == 0 {
            return &[];
        }
        &self.attributes[node.data as usize..][..node.attributes() as usize]
    }

    pub(crate) fn text_of(&self, node: &NodeRecord) -> &[u8] {
        if node.tag & EXTENDED != 0 {
            return &self.extended[node.data as usize];
        }
        self.text_at(node.data, node.first)
    }

    pub(crate) fn text_at(&self, start: u32, length: u32) -> &[u8] {
        &self.text[start as usize..][..length as usize]
    }

    fn extend_text(&mut self, id: u32, text: &[u8]) {
        let node = *self.node(id);
        self.text_bytes += text.len() as u64;
        if node.tag & EXTENDED != 0 {
            self.extended[node.data as usize].extend_from_slice(text);
        } else if node.data as usize + node.first as usize == self.text.len() {
            self.text.extend_from_slice(text);
            self.node_mut(id).first += text.len() as u32;
        } else {
            let mut extended = self.text_of(&node).to_vec();
            extended.extend_from_slice(text);
            let record = self.extended.len() as u32;
            self.extended.push(extended);
            let node = self.node_mut(id);
            (node.tag, node.data) = (node.tag | EXTENDED, record);
        }
    }

    /// The last child, or [`NONE`].
    fn last_child(&self, parent: u32) -> u32 {
        match self.node(parent).first {
            NONE => NONE,
            first => self.node(first).previous,
        }
    }

    /// Puts a node that is nowhere behind all children.
    pub(crate) fn append(&mut self, parent: u32, child: u32) {
        let last = self.last_child(parent);
        if last == NONE {
            self.node_mut(parent).first = child;
            self.node_mut(child).previous = child;
        } else {
            let first = self.node(parent).first;
            self.node_mut(last).next = child;
            self.node_mut(child).previous = last;
            self.node_mut(first).previous = child;
        }
        let child_record = self.node_mut(child);
        (child_record.parent, child_record.next) = (parent, NONE);
        self.note_depth(parent, child);
    }

    /// Puts a node that is nowhere before another, which has a parent.
    pub(crate) fn insert_before(&mut self, sibling: u32, child: u32) {
        let (parent, previous) = (self.node(sibling).parent, self.node(sibling).previous);
        let is_first = self.node(parent).first == sibling;
        let record = self.node_mut(child);
        (record.parent, record.next, record.previous) = (parent, sibling, previous);
        self.node_mut(sibling).previous = child;
        if is_first {
            self.node_mut(parent).first = child;
        } else {
            self.node_mut(previous).next = child;
        }
        self.note_depth(parent, child);
    }

    fn note_depth(&mut self, parent: u32, child: u32) {
        let depth = self.depths[parent as usize].saturating_add(1);
        self.depths[child as usize] = depth;
        self.depth = self.depth.max(depth);
        // What a template holds is below it, too.
        let node = self.node(child);
        if node.is(NodeKind::Element) && node.has_contents() {
            self.depths[Arena::contents_of(child) as usize] = depth.saturating_add(1);
        }
    }

    pub(crate) fn append_text(&mut self, parent: u32, text: &[u8]) {
        let last = self.last_child(parent);
        if last != NONE && self.node(last).is(NodeKind::Text) {
            return self.extend_text(last, text);
        }
        let node = self.new_text(NodeKind::Text, &[text]);
        self.append(parent, node);
    }

    pub(crate) fn insert_text_before(&mut self, sibling: u32, text: &[u8]) {
        let record = *self.node(sibling);
        let is_first = self.node(record.parent).first == sibling;
        if !is_first && self.node(record.previous).is(NodeKind::Text) {
            return self.extend_text(record.previous, text);
        }
        let node = self.new_text(NodeKind::Text, &[text]);
        self.insert_before(sibling, node);
    }

    pub(crate) fn detach(&mut self, id: u32) {
        let NodeRecord { parent, next, previous, .. } = *self.node(id);
        if parent == NONE {
            return;
        }
        let first = self.node(parent).first;
        if first == id {
            self.node_mut(parent).first = next;
        } else {
            self.node_mut(previous).next = next;
        }
        // Whose previous one this was: the next sibling, or the first child, for which this was the
        // last one.
        if next != NONE {
            self.node_mut(next).previous = previous;
        } else if first != id {
            self.node_mut(first).previous = previous;
        }
        let record = self.node_mut(id);
        (record.parent, record.next, record.previous) = (NONE, NONE, NONE);
    }

    pub(crate) fn move_children(&mut self, from: u32, to: u32) {
        while self.node(from).first != NONE {
            let child = self.node(from).first;
            self.detach(child);
            self.append(to, child);
        }
    }

    /// The document's nodes and those of templates' contents, each before what is below it, and how
    /// deep the deepest is.
    pub(crate) fn in_order(&self) -> (Vec<u32>, u32) {
        let mut order = Vec::with_capacity(self.nodes.len());
        let mut deepest = 0;
        // Next node to visit, and its depth; siblings follow when what is below has been visited.
        let mut open = vec![(DOCUMENT, 0u32)];
        while let Some((id, depth)) = open.pop() {
            let node = self.node(id);
            order.push(id);
            deepest = deepest.max(depth);
            if node.next != NONE {
                open.push((node.next, depth));
            }
            if node.first_child() != NONE {
                open.push((node.first, depth + 1));
            }
            if node.is(NodeKind::Element) && node.has_contents() {
                open.push((Arena::contents_of(id), depth + 1));
            }
        }
        (order, deepest)
    }
}
