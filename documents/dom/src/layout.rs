//! The bytes of a document: see `docs/format.md`. One object of the heap, which is a root; inside
//! of it only offsets from its own first byte and numbers of records, so that it may lie anywhere.
//!
//! Invariants: all words are little-endian; a number of a record is its place in its table; node 0
//! does not exist, and stands for "none". A change of the format raises [`FORMAT_VERSION`] and
//! keeps the golden document of the old one.

use holdfast_heap::RootType;
use holdfast_heap::types::layout_start;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of the format.
pub const FORMAT_VERSION: u32 = 1;
/// First bytes of a document: "HFSTHTML".
pub const MAGIC: u64 = u64::from_le_bytes(*b"HFSTHTML");
/// Number of the document node.
pub const DOCUMENT: u32 = 1;
/// No node.
pub const NONE: u32 = 0;
/// In [`Header::flags`]: the nodes behind the one that does not exist are those of a walk over the
/// document, in its order, and no others.
pub const ORDERED: u64 = 1;
/// In [`AttributeRecord::length`]: the length is the word in front of the value.
pub const LONG: u16 = u16::MAX;
/// Number of the name `id` without a namespace, in every document.
pub const NAME_ID: u32 = 0;
/// Number of the name `class` without a namespace, in every document.
pub const NAME_CLASS: u32 = 1;

/// The type that the root of a document carries.
#[must_use]
pub const fn root_type() -> RootType {
    RootType {
        layout: layout_start("html document", size_of::<Header>(), 8),
        version: FORMAT_VERSION,
    }
}

/// A table in the document's object.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Table {
    /// Offset of its first byte; a multiple of 8.
    pub at: u64,
    /// Records (of the text: bytes) in use.
    pub used: u32,
    /// Records that there is room for.
    pub room: u32,
}

/// First bytes of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`FORMAT_VERSION`].
    pub version: u32,
    /// Quirks mode: 0 none, 1 limited, 2 full.
    pub quirks: u32,
    /// Records of [`NodeRecord`].
    pub nodes: Table,
    /// Records of [`AttributeRecord`].
    pub attributes: Table,
    /// Records of [`NameRecord`].
    pub names: Table,
    /// Bytes: texts, values, names.
    pub text: Table,
    /// [`ORDERED`], or nothing.
    pub flags: u64,
    /// 1 if it was parsed as by a browser that runs scripts, to which the content of `noscript` is
    /// text; else 0.
    pub scripting: u64,
    /// Zero.
    pub reserved: [u64; 3],
    /// xxh3-64 of the bytes before.
    pub sum: u64,
}

/// A node.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct NodeRecord {
    /// Parent, or [`NONE`].
    pub parent: u32,
    /// Next sibling, or [`NONE`].
    pub next: u32,
    /// Previous sibling; of a first child its last sibling (perhaps itself); [`NONE`] without a
    /// parent.
    pub previous: u32,
    /// Of a node that may have children: the first, or [`NONE`]; else bytes of its text.
    pub first: u32,
    /// Of an element: number of its first attribute; of a template's contents: the template; else
    /// where its text starts.
    pub data: u32,
    /// From the lowest bit: 3 bits of [`NodeKind`]; of an element whether the next record is its
    /// template's contents (1), whether it has an attribute [`NAME_ID`] (1), one [`NAME_CLASS`]
    /// (1), how many attributes it has (10), and the number of its name (16).
    pub tag: u32,
}

impl NodeRecord {
    /// [`NodeRecord::tag`] of an element with attributes of these names.
    pub fn element(
        name: u32,
        attributes: impl IntoIterator<Item = u32>,
        has_contents: bool,
    ) -> u32 {
        let tag = NodeKind::Element as u32 | u32::from(has_contents) << 3 | name << 16;
        attributes.into_iter().fold(tag, |tag, name| (tag | NodeRecord::mark(name)) + (1 << 6))
    }

    /// The bit of [`NodeRecord::tag`] that says that there is an attribute of this name; none for
    /// most.
    #[inline]
    #[must_use]
    pub const fn mark(name: u32) -> u32 {
        match name {
            NAME_ID => 1 << 4,
            NAME_CLASS => 1 << 5,
            _ => 0,
        }
    }

    /// The number of its kind.
    #[inline]
    #[must_use]
    pub const fn kind(&self) -> u8 {
        (self.tag & 7) as u8
    }

    /// Whether it is of this kind.
    #[inline]
    #[must_use]
    pub const fn is(&self, kind: NodeKind) -> bool {
        self.kind() == kind as u8
    }

    /// Its first child, if it may have one, or [`NONE`].
    #[inline]
    #[must_use]
    pub const fn first_child(&self) -> u32 {
        const PARENTS: u32 = 1 << NodeKind::Document as u32
            | 1 << NodeKind::Element as u32
            | 1 << NodeKind::Fragment as u32;
        if PARENTS >> self.kind() & 1 == 1 { self.first } else { NONE }
    }

    /// Of an element: number of its name.
    #[inline]
    #[must_use]
    pub const fn name(&self) -> u32 {
        self.tag >> 16
    }

    /// Of an element: how many attributes.
    #[inline]
    #[must_use]
    pub const fn attributes(&self) -> u32 {
        self.tag >> 6 & 0x3FF
    }

    /// Of an element: whether the next record is that of its template's contents.
    #[inline]
    #[must_use]
    pub const fn has_contents(&self) -> bool {
        self.tag & 8 != 0
    }

    /// The same element with other attributes.
    #[must_use]
    pub fn with_attributes(self, names: impl IntoIterator<Item = u32>) -> NodeRecord {
        NodeRecord { tag: NodeRecord::element(self.name(), names, self.has_contents()), ..self }
    }
}

/// An attribute.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct AttributeRecord {
    /// Number of its name.
    pub name: u16,
    /// Bytes of its value, or [`LONG`].
    pub length: u16,
    /// Where its value starts in the text.
    pub value: u32,
}

/// A name of elements or attributes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct NameRecord {
    /// Where the local name starts in the text.
    pub local: u32,
    /// Bytes of the local name.
    pub local_length: u32,
    /// Where the prefix starts in the text.
    pub prefix: u32,
    /// Bytes of the prefix.
    pub prefix_length: u16,
    /// One of the numbers of [`Namespace`](crate::Namespace).
    pub namespace: u8,
    /// Whether there is a prefix.
    pub has_prefix: u8,
    /// The low half of xxh3-64 of the local name.
    pub hash: u32,
}

/// What a node is; stored as its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum NodeKind {
    /// The document itself.
    Document = 1,
    /// A document type: its text is the lengths of name and public identifier as two words, then
    /// both, then the system identifier.
    Doctype = 2,
    /// An element.
    Element = 3,
    /// Text.
    Text = 4,
    /// A comment.
    Comment = 5,
    /// A processing instruction: its text is the length of the target as a word, then the target,
    /// then the data.
    ProcessingInstruction = 6,
    /// The contents of a template, which has no parent.
    Fragment = 7,
}

impl NodeKind {
    /// Parses a stored number.
    #[must_use]
    pub fn parse(number: u8) -> Option<NodeKind> {
        Some(match number {
            1 => NodeKind::Document,
            2 => NodeKind::Doctype,
            3 => NodeKind::Element,
            4 => NodeKind::Text,
            5 => NodeKind::Comment,
            6 => NodeKind::ProcessingInstruction,
            7 => NodeKind::Fragment,
            _ => return None,
        })
    }

    /// Whether such a node may have children.
    #[must_use]
    pub fn is_parent(self) -> bool {
        matches!(self, NodeKind::Document | NodeKind::Element | NodeKind::Fragment)
    }
}

/// How much room the tables of a document have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCapacity {
    /// Nodes, the one that does not exist included.
    pub nodes: u32,
    /// Attributes.
    pub attributes: u32,
    /// Names.
    pub names: u32,
    /// Bytes of text.
    pub text: u32,
}

impl Header {
    /// A header whose tables follow each other with this much room, and the bytes of all.
    #[must_use]
    pub fn with_room(room: TableCapacity, quirks: u32) -> (Header, u64) {
        let mut end = size_of::<Header>() as u64;
        let mut table = |room: u32, record: usize| {
            let table = Table { at: end, used: 0, room };
            end = (end + u64::from(room) * record as u64).next_multiple_of(8);
            table
        };
        let header = Header {
            magic: MAGIC,
            version: FORMAT_VERSION,
            quirks,
            nodes: table(room.nodes, size_of::<NodeRecord>()),
            attributes: table(room.attributes, size_of::<AttributeRecord>()),
            names: table(room.names, size_of::<NameRecord>()),
            text: table(room.text, 1),
            flags: 0,
            scripting: 0,
            reserved: [0; 3],
            sum: 0,
        };
        (header, end)
    }

    /// The room of the tables.
    #[must_use]
    pub fn room(&self) -> TableCapacity {
        TableCapacity {
            nodes: self.nodes.room,
            attributes: self.attributes.room,
            names: self.names.room,
            text: self.text.room,
        }
    }

    /// What [`Header::sum`] must be.
    #[must_use]
    pub fn computed_sum(&self) -> u64 {
        let bytes = self.as_bytes();
        xxhash_rust::xxh3::xxh3_64(&bytes[..bytes.len() - size_of::<u64>()])
    }

    /// The same header with its sum.
    #[must_use]
    pub fn summed(mut self) -> Header {
        self.sum = self.computed_sum();
        self
    }
}

/// What [`NameRecord::hash`] is of a local name.
#[must_use]
pub fn name_hash(local: &str) -> u32 {
    xxhash_rust::xxh3::xxh3_64(local.as_bytes()) as u32
}

const _: () = {
    assert!(size_of::<Header>() == 128);
    assert!(size_of::<NodeRecord>() == 24 && align_of::<NodeRecord>() == 4);
    assert!(size_of::<AttributeRecord>() == 8);
    assert!(size_of::<NameRecord>() == 20);
    assert!(cfg!(target_endian = "little"));
};
