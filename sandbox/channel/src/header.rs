//! The header of a message: what is said besides its payload. Sides and imports of WebAssembly
//! exchange it as these 48 bytes; a ring packs it into a line.
//!
//! Invariants: little endian, explicit widths, asserted size. `payload_bytes` counts what is left
//! of the payload from this record on: in the first record of a message it is the length of the
//! whole, so a receiver knows it before it takes a byte; a record that does not carry all of it has
//! [`MORE`] set and carries exactly [`piece_bytes_max`] bytes, and the next record of the ring goes
//! on.

#![forbid(unsafe_code)]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::protocol::MessageKind;

/// Bytes of a header.
pub const HEADER_BYTES: u32 = 48;
/// Flag: the payload goes on in the next record, which has the same kind and call.
pub const MORE: u16 = 1;
/// Flag of a `Call`: what the applet has stored to a region of the mode `atomic` was published or
/// given up, so it is to drop its own copies of pages, and to forget what it remembers of the heap.
pub const FORGET: u16 = 1 << 1;

/// What stands before a payload. What the fields mean beyond the first three is up to the kind; see
/// [`protocol`](crate::protocol).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Header {
    /// Bytes of the payload, from this record on.
    pub payload_bytes: u32,
    /// A [`MessageKind`].
    pub kind: u16,
    /// [`MORE`], set by the endpoint, and [`FORGET`].
    pub flags: u16,
    /// Number of the call that it is about.
    pub call: u64,
    /// 0, or a code.
    pub status: i32,
    /// Number of an export, of a level, of a version.
    pub index: u32,
    /// By kind.
    pub a: u64,
    /// By kind.
    pub b: u64,
    /// By kind.
    pub c: u64,
}

const _: () = assert!(size_of::<Header>() == HEADER_BYTES as usize);

impl Header {
    /// A header of a kind, with nothing else in it.
    #[must_use]
    pub fn new(kind: MessageKind) -> Header {
        Header { kind: kind as u16, ..Header::default() }
    }

    /// The kind, if it is one.
    #[must_use]
    pub fn kind(&self) -> Option<MessageKind> {
        MessageKind::from_number(self.kind)
    }

    /// Whether the payload goes on in the next record.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.flags & MORE != 0
    }
}

/// The most that one record carries: while one piece of a long message is written, the other side
/// takes those before it.
#[must_use]
pub const fn piece_bytes_max(ring_bytes: u32) -> u32 {
    ring_bytes / PIECES_OF_RING
}

/// So many pieces of full length always fit in a ring.
pub const PIECES_OF_RING: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_where_the_format_says() {
        let header = Header {
            payload_bytes: 0x0403_0201,
            kind: 0x0605,
            flags: 0x0807,
            call: 9,
            status: -1,
            index: 10,
            a: 11,
            b: 12,
            c: 13,
        };
        let bytes = header.as_bytes();
        assert_eq!(bytes[..16], [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[16..24], [255, 255, 255, 255, 10, 0, 0, 0]);
        assert_eq!((bytes[24], bytes[32], bytes[40]), (11, 12, 13));
    }
}
