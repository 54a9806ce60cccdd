//! From a parsed tree to the bytes of a document: nodes are numbered anew, in document order and
//! without those that cannot be reached, so that a walk over the document is one over memory; a
//! text that occurs again and again is stored once.
//!
//! Invariant: the size is known before anything is written, and every byte of it is written.

use xxhash_rust::xxh3::xxh3_64;
use zerocopy::IntoBytes;

use crate::arena::Arena;
use crate::error::{DomError, ParseLimit};
use crate::layout::{
    AttributeRecord, Header, LONG, NONE, NameRecord, NodeKind, NodeRecord, ORDERED, Table,
    TableCapacity, name_hash,
};
use crate::limits::{ParseLimits, SHARED_BYTES_MAX, TEXT_BYTES_MAX};
use crate::namespace::Namespace;

/// Places in which those are remembered.
const SHARED_PLACES: usize = 4096;

/// A tree that is ready to be written.
pub(crate) struct Image {
    header: Header,
    bytes: u64,
    nodes: Vec<NodeRecord>,
    attributes: Vec<AttributeRecord>,
    names: Vec<NameRecord>,
    text: Vec<u8>,
}

/// Text that is collected, with what was stored lately.
struct TextPool {
    text: Vec<u8>,
    lately: Vec<(u32, u32)>,
}

impl TextPool {
    fn add(&mut self, text: &[u8]) -> Result<(u32, u32), DomError> {
        let length = text.len() as u32;
        if text.is_empty() {
            return Ok((0, 0));
        }
        if text.len() > SHARED_BYTES_MAX {
            return Ok((self.push(text)?, length));
        }
        let place = xxh3_64(text) as usize % SHARED_PLACES;
        let (start, stored) = self.lately[place];
        if self.text.get(start as usize..start as usize + stored as usize) == Some(text) {
            return Ok((start, length));
        }
        let start = self.push(text)?;
        self.lately[place] = (start, length);
        Ok((start, length))
    }

    /// Where a value is, and [`AttributeRecord::length`] of it.
    fn add_value(&mut self, text: &[u8]) -> Result<(u32, u16), DomError> {
        match short_length(text) {
            LONG => {
                let start = self.push(&(text.len() as u32).to_le_bytes())?;
                self.push(text)?;
                Ok((start, LONG))
            }
            length => Ok((self.add(text)?.0, length)),
        }
    }

    fn push(&mut self, text: &[u8]) -> Result<u32, DomError> {
        let start = self.text.len();
        if (start + text.len()) as u64 > TEXT_BYTES_MAX {
            return Err(DomError::Limit { limit: ParseLimit::TextBytes, max: TEXT_BYTES_MAX });
        }
        self.text.extend_from_slice(text);
        Ok(start as u32)
    }
}

/// [`AttributeRecord::length`] of a value.
pub(crate) fn short_length(value: &[u8]) -> u16 {
    u16::try_from(value.len()).unwrap_or(LONG)
}

impl Image {
    /// # Errors
    /// [`DomError::Limit`] when the tree is deeper than allowed after all, or its texts are more
    /// than a document can have.
    pub(crate) fn of(arena: &Arena, limits: &ParseLimits) -> Result<Image, DomError> {
        let (order, depth) = arena.in_order();
        if depth > limits.depth {
            return Err(DomError::Limit { limit: ParseLimit::Depth, max: u64::from(limits.depth) });
        }
        let mut numbers = vec![NONE; arena.nodes.len()];
        for (number, id) in (1..).zip(&order) {
            numbers[*id as usize] = number;
        }
        let mut blob = TextPool {
            text: Vec::with_capacity(arena.text_bytes as usize),
            lately: vec![(0, 0); SHARED_PLACES],
        };
        let names = arena.names.all.iter().map(|name| -> Result<NameRecord, DomError> {
            let (local, local_length) = blob.add(name.local.as_bytes())?;
            let prefix = name.prefix.as_deref().unwrap_or_default();
            // Prefixes come from the tree builder's table, not from the page.
            let (prefix, prefix_length) = blob.add(prefix.as_bytes())?;
            Ok(NameRecord {
                local,
                local_length,
                prefix,
                prefix_length: prefix_length as u16,
                namespace: Namespace::of(&name.ns) as u8,
                has_prefix: u8::from(name.prefix.is_some()),
                hash: name_hash(&name.local),
            })
        });
        let names: Vec<NameRecord> = names.collect::<Result<_, _>>()?;
        let mut attributes = Vec::with_capacity(arena.attributes.len());
        let mut nodes = Vec::with_capacity(order.len() + 1);
        nodes.push(NodeRecord::default());
        // The contents of a template follow it, and are not in a walk over the document.
        let mut template = NONE;
        let mut flags = ORDERED;
        for id in order {
            let old = arena.node(id);
            let number = |id: u32| numbers.get(id as usize).copied().unwrap_or(NONE);
            let mut node = NodeRecord {
                parent: number(old.parent),
                next: number(old.next),
                previous: number(old.previous),
                first: number(old.first_child()),
                ..*old
            };
            if old.is(NodeKind::Element) {
                node.data = attributes.len() as u32;
                template = number(id);
                for attribute in arena.attributes_of(old) {
                    let (value, length) =
                        blob.add_value(arena.text_at(attribute.value, attribute.length))?;
                    attributes.push(AttributeRecord { name: attribute.name as u16, length, value });
                }
            } else if old.is(NodeKind::Fragment) {
                (node.data, flags) = (template, 0);
            } else if !old.is(NodeKind::Document) {
                node.tag = old.kind().into();
                (node.data, node.first) = blob.add(arena.text_of(old))?;
            }
            nodes.push(node);
        }
        let room = TableCapacity {
            nodes: nodes.len() as u32,
            attributes: attributes.len() as u32,
            names: names.len() as u32,
            text: blob.text.len() as u32,
        };
        let (mut header, bytes) = Header::with_room(room, arena.quirks);
        for table in
            [&mut header.nodes, &mut header.attributes, &mut header.names, &mut header.text]
        {
            table.used = table.room;
        }
        header.flags = flags;
        header.scripting = arena.scripting;
        Ok(Image { header: header.summed(), bytes, nodes, attributes, names, text: blob.text })
    }

    /// Bytes of the document.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Nodes of the document.
    pub(crate) fn nodes(&self) -> u32 {
        self.header.nodes.used - 1
    }

    /// Writes the document to as many bytes as it needs.
    pub(crate) fn write(&self, target: &mut [u8]) {
        let mut end = 0;
        let mut put = |at: u64, bytes: &[u8]| {
            let at = at as usize;
            target[end..at].fill(0);
            end = at + bytes.len();
            target[at..end].copy_from_slice(bytes);
        };
        let place = |table: Table| table.at;
        put(0, self.header.as_bytes());
        put(place(self.header.nodes), self.nodes.as_bytes());
        put(place(self.header.attributes), self.attributes.as_bytes());
        put(place(self.header.names), self.names.as_bytes());
        put(place(self.header.text), &self.text);
        target[end..].fill(0);
    }
}
