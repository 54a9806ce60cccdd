//! A document where it lies: nothing is loaded, copied or built, so that opening costs the same
//! whatever the size.
//!
//! Invariants:
//! - Every number that is read is looked up in a table whose place was checked when the document
//!   was opened: a damaged document can say anything, and make no reader look elsewhere, hang or
//!   panic.
//! - What cannot be right reads as "nothing there", and is noted: [`Document::damage`] tells, and
//!   what gives a whole answer (a query, a text, a serialisation) is an error then.

use std::cell::Cell;

use zerocopy::FromBytes;

use crate::error::{Damage, DomError, ParseLimit};
use crate::layout::{
    AttributeRecord, DOCUMENT, FORMAT_VERSION, Header, LONG, MAGIC, NAME_CLASS, NONE, NameRecord,
    NodeKind, NodeRecord, Table,
};
use crate::node::Node;

/// Bytes of the word before a long value.
pub(crate) const LONG_BYTES: u32 = 4;

/// An open document; see the module.
#[derive(Clone)]
pub struct Document<'heap> {
    header: Header,
    nodes: &'heap [NodeRecord],
    attributes: &'heap [AttributeRecord],
    names: &'heap [NameRecord],
    text: &'heap [u8],
    bytes: u64,
    damage: Cell<Option<Damage>>,
    /// What the query that is asked would pass.
    limit: Cell<Option<(ParseLimit, u64)>>,
}

impl std::fmt::Debug for Document<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Document").field("header", &self.header).finish_non_exhaustive()
    }
}

/// How large a document is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentSize {
    /// Bytes in the heap.
    pub bytes: u64,
    /// Nodes, those included that were removed.
    pub nodes: u32,
    /// Attributes, those included that were replaced.
    pub attributes: u32,
    /// Names of elements and attributes.
    pub names: u32,
    /// Bytes of text and values.
    pub text_bytes: u32,
}

/// How far browsers of old are imitated, as the document type asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quirks {
    /// Not at all.
    None,
    /// In tables.
    Limited,
    /// Fully: selectors compare classes and identifiers without regard to case.
    Full,
}

impl<'heap> Document<'heap> {
    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    pub(crate) fn nodes(&self) -> &'heap [NodeRecord] {
        self.nodes
    }

    pub(crate) fn attributes(&self) -> &'heap [AttributeRecord] {
        self.attributes
    }

    pub(crate) fn names(&self) -> &'heap [NameRecord] {
        self.names
    }

    pub(crate) fn text(&self) -> &'heap [u8] {
        self.text
    }

    /// Opens a document in its bytes, which are those of a root of a heap; aligned to 8.
    ///
    /// # Errors
    /// [`DomError::Damaged`], [`DomError::NewerFormat`].
    pub fn from_bytes(bytes: &'heap [u8]) -> Result<Document<'heap>, DomError> {
        let damaged = DomError::Damaged;
        let (header, _) = Header::read_from_prefix(bytes).map_err(|_| damaged(Damage::NoHeader))?;
        if header.magic != MAGIC {
            return Err(damaged(Damage::NoHeader));
        }
        if header.version > FORMAT_VERSION {
            return Err(DomError::NewerFormat { version: header.version });
        }
        if header.version == 0 || header.sum != header.computed_sum() {
            return Err(damaged(Damage::HeaderSum));
        }
        Document::with_header(header, bytes)
    }

    /// With a header that is not yet that of the bytes.
    pub(crate) fn with_header(
        header: Header,
        bytes: &'heap [u8],
    ) -> Result<Document<'heap>, DomError> {
        let damaged = DomError::Damaged;
        let part = |table: Table, record: usize, name| {
            let used = table.used.min(table.room) as usize;
            let start =
                usize::try_from(table.at).ok().filter(|at| table.used <= table.room && at % 8 == 0);
            start
                .and_then(|start| bytes.get(start..start.checked_add(used.checked_mul(record)?)?))
                .ok_or(damaged(Damage::Table { table: name }))
        };
        let nodes = part(header.nodes, size_of::<NodeRecord>(), "nodes")?;
        let attributes = part(header.attributes, size_of::<AttributeRecord>(), "attributes")?;
        let names = part(header.names, size_of::<NameRecord>(), "names")?;
        let document = Document {
            header,
            nodes: records(nodes, "nodes")?,
            attributes: records(attributes, "attributes")?,
            names: records(names, "names")?,
            text: part(header.text, 1, "text")?,
            bytes: bytes.len() as u64,
            damage: Cell::new(None),
            limit: Cell::new(None),
        };
        match document.record(DOCUMENT) {
            Some(node) if node.is(NodeKind::Document) => {}
            _ => return Err(damaged(Damage::Node { node: DOCUMENT })),
        }
        // A number of a name has 16 bits.
        if document.names.len() > usize::from(u16::MAX) + 1 {
            return Err(damaged(Damage::Table { table: "names" }));
        }
        if document.names.len() <= NAME_CLASS as usize {
            return Err(damaged(Damage::Name { name: NAME_CLASS }));
        }
        Ok(document)
    }

    /// The document node, which holds all others.
    #[must_use]
    pub fn root(&self) -> Node<'_> {
        Node::new(self, DOCUMENT)
    }

    /// The node of this number, if there is one; what [`Node::id`] gave.
    #[must_use]
    pub fn node(&self, id: u32) -> Option<Node<'_>> {
        let record = self.nodes.get(id as usize).filter(|_| id != NONE)?;
        if NodeKind::parse(record.kind()).is_none() {
            self.note(Damage::Node { node: id });
            return None;
        }
        Some(Node::new(self, id))
    }

    /// The element `html`, or what a document without one has instead.
    #[must_use]
    pub fn root_element(&self) -> Option<Node<'_>> {
        self.root().children().find(|node| node.kind() == NodeKind::Element)
    }

    /// How far browsers of old are imitated.
    #[must_use]
    pub fn quirks(&self) -> Quirks {
        match self.header.quirks {
            1 => Quirks::Limited,
            2 => Quirks::Full,
            _ => Quirks::None,
        }
    }

    /// Whether it was parsed as by a browser that runs scripts
    /// ([`ParseOptions::scripting`](crate::ParseOptions::scripting)).
    #[must_use]
    pub fn scripting(&self) -> bool {
        self.header.scripting != 0
    }

    /// How large it is.
    #[must_use]
    pub fn size(&self) -> DocumentSize {
        DocumentSize {
            bytes: self.bytes,
            nodes: self.nodes.len().saturating_sub(1) as u32,
            attributes: self.attributes.len() as u32,
            names: self.names.len() as u32,
            text_bytes: self.text.len() as u32,
        }
    }

    /// The first damage that was met since the document was opened. [`Document::check`] looks for
    /// all.
    #[must_use]
    pub fn damage(&self) -> Option<Damage> {
        self.damage.get()
    }

    pub(crate) fn note(&self, damage: Damage) {
        if self.damage.get().is_none() {
            self.damage.set(Some(damage));
        }
    }

    pub(crate) fn limit(&self) -> Option<(ParseLimit, u64)> {
        self.limit.get()
    }

    /// Unlike damage this is of one answer alone.
    pub(crate) fn note_limit(&self, limit: ParseLimit, max: u64) {
        self.limit.set(Some((limit, max)));
    }

    /// An answer, unless damage was met or a limit passed: then it may not be the whole one.
    pub(crate) fn unless_damaged<T>(&self, answer: T) -> Result<T, DomError> {
        let limit = self.limit.take();
        match (self.damage.get(), limit) {
            (Some(damage), _) => Err(DomError::Damaged(damage)),
            (None, Some((limit, max))) => Err(DomError::Limit { limit, max }),
            (None, None) => Ok(answer),
        }
    }

    #[inline]
    pub(crate) fn record(&self, id: u32) -> Option<&NodeRecord> {
        self.nodes.get(id as usize)
    }

    /// The node that a link leads to, if it leads to one.
    #[inline]
    pub(crate) fn follow(&self, from: u32, to: u32) -> Option<(u32, &NodeRecord)> {
        if to == NONE {
            return None;
        }
        match self.nodes.get(to as usize) {
            Some(record) if record.kind() != 0 => Some((to, record)),
            _ => {
                self.note(Damage::Node { node: from });
                None
            }
        }
    }

    /// A part of the text; empty, if there is none.
    #[inline]
    pub(crate) fn str_at(&self, start: u32, length: u32) -> &str {
        std::str::from_utf8(self.bytes_at(start, length)).unwrap_or_else(|_| {
            self.note(Damage::Text { start });
            ""
        })
    }

    /// A part of the text, as bytes; empty, if there is none.
    #[inline]
    pub(crate) fn bytes_at(&self, start: u32, length: u32) -> &[u8] {
        let start_at = start as usize;
        self.text.get(start_at..start_at.saturating_add(length as usize)).unwrap_or_else(|| {
            self.note(Damage::Text { start });
            &[]
        })
    }

    /// Where the value of an attribute starts, and its bytes.
    #[inline]
    pub(crate) fn place_of(&self, attribute: &AttributeRecord) -> (u32, u32) {
        if attribute.length != LONG {
            return (attribute.value, attribute.length.into());
        }
        match self.bytes_at(attribute.value, LONG_BYTES).try_into() {
            // A start that is too large is no text.
            Ok(length) => (attribute.value.saturating_add(LONG_BYTES), u32::from_le_bytes(length)),
            Err(_) => (0, 0),
        }
    }

    /// The value of an attribute.
    #[inline]
    pub(crate) fn value_of(&self, attribute: &AttributeRecord) -> &str {
        let (start, length) = self.place_of(attribute);
        self.str_at(start, length)
    }

    /// The value of an attribute, as bytes.
    #[inline]
    pub(crate) fn value_bytes_of(&self, attribute: &AttributeRecord) -> &[u8] {
        let (start, length) = self.place_of(attribute);
        self.bytes_at(start, length)
    }

    /// An element's attributes; none, if they are not there.
    #[inline]
    pub(crate) fn attributes_of(&self, record: &NodeRecord) -> &[AttributeRecord] {
        if !record.is(NodeKind::Element) || record.attributes() == 0 {
            return &[];
        }
        let start = record.data as usize;
        self.attributes
            .get(start..start.saturating_add(record.attributes() as usize))
            .unwrap_or_else(|| {
                self.note(Damage::Attribute { attribute: record.data });
                &[]
            })
    }

    #[inline]
    pub(crate) fn name(&self, name: u32) -> Option<&NameRecord> {
        let record = self.names.get(name as usize);
        if record.is_none() {
            self.note(Damage::Name { name });
        }
        record
    }
}

fn records<'heap, T>(bytes: &'heap [u8], table: &'static str) -> Result<&'heap [T], DomError>
where
    T: FromBytes + zerocopy::Immutable + zerocopy::KnownLayout,
{
    <[T]>::ref_from_bytes(bytes).map_err(|_| DomError::Damaged(Damage::Table { table }))
}
