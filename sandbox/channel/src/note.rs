//! The promises of a native program to its host before it runs: an ELF note in its file, put there
//! by the library that it links.
//!
//! It also says for which version of the channel the program was built, so that a host of another
//! release need not start it to find out.
//!
//! A note is the program's author's word about the program's own heap, and nothing more: a host
//! that acts on it must lose nothing of its own, or of another process's, where it is a lie.
//!
//! Invariants: the bytes never change their meaning; a reader that does not know a bit passes over
//! it.

#![forbid(unsafe_code)]

use crate::boot::VERSION;

/// The name of the note's owner.
pub const OWNER: &[u8; 8] = b"Holdfast";
/// The kind of the note, among those of this owner.
pub const KIND: u32 = 1;
/// Where the boot record says so, the program keeps the order of its heap's stores and maps the
/// heap as it is told to ([`REGION_ORDERED`](crate::boot::REGION_ORDERED),
/// [`REGION_SYNCHRONOUS`](crate::boot::REGION_SYNCHRONOUS)).
pub const KEEPS_ORDER: u32 = 1;

/// The version of a program whose note does not say it.
const VERSION_BEFORE_NOTES: u32 = 1;

/// The note as it lies in a program's section `.note.holdfast`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct ProgramNote {
    owner_bytes: u32,
    content_bytes: u32,
    kind: u32,
    /// With the NUL at its end, filled up to a multiple of 4.
    owner: [u8; 12],
    promises: u32,
    channel_version: u32,
}

impl ProgramNote {
    /// The note of a program that keeps to these.
    #[must_use]
    pub const fn new(promises: u32) -> ProgramNote {
        const OWNER_BYTES: u32 = OWNER.len() as u32 + 1;
        const CONTENT_BYTES: u32 = 2 * size_of::<u32>() as u32;
        ProgramNote {
            owner_bytes: OWNER_BYTES,
            content_bytes: CONTENT_BYTES,
            kind: KIND,
            owner: *b"Holdfast\0\0\0\0",
            promises,
            channel_version: VERSION,
        }
    }
}

const _: () = assert!(size_of::<ProgramNote>() == 32 && align_of::<ProgramNote>() == 4);

/// Whether a note with this owner, kind and content promises to keep the order.
#[must_use]
pub fn keeps_order(owner: &[u8], kind: u32, content: &[u8]) -> bool {
    let promises = content.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    owner == OWNER && kind == KIND && promises & KEEPS_ORDER != 0
}

/// The version of the channel for which a note with this owner, kind and content says that its
/// program was built; `None` if it is another one's note.
#[must_use]
pub fn channel_version(owner: &[u8], kind: u32, content: &[u8]) -> Option<u32> {
    let word = content.get(4..).and_then(<[u8]>::first_chunk);
    (owner == OWNER && kind == KIND)
        .then(|| word.map_or(VERSION_BEFORE_NOTES, |bytes| u32::from_le_bytes(*bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The note that promises ordered stores is distinguished from other notes; a longer note is
    /// accepted.
    ///
    /// Guarantee: heap/order-promises
    #[test]
    fn order_promise_note_is_recognized() {
        assert!(keeps_order(b"Holdfast", 1, &[1, 0, 0, 0]));
        assert!(keeps_order(b"Holdfast", 1, &[0xff, 0, 0, 0, 9, 9]));
        for (owner, kind, content) in [
            (&b"Holdfast"[..], 2, &[1, 0, 0, 0][..]),
            (b"GNU", 1, &[1, 0, 0, 0]),
            (b"Holdfast2", 1, &[1, 0, 0, 0]),
            (b"Holdfast", 1, &[0xfe, 0xff, 0xff, 0xff]),
            (b"Holdfast", 1, &[1]),
            (b"Holdfast", 1, &[]),
        ] {
            assert!(!keeps_order(owner, kind, content), "{owner:?} {kind} {content:?}");
        }
    }

    /// Notes of before, which end behind the promises, are those of version 1.
    ///
    /// Guarantee: applets/channel-version
    #[test]
    fn channel_version_is_read() {
        assert_eq!(channel_version(b"Holdfast", 1, &[1, 0, 0, 0]), Some(1));
        assert_eq!(channel_version(b"Holdfast", 1, &[1, 0, 0, 0, 2, 1, 0, 0, 9]), Some(258));
        assert_eq!(channel_version(b"Holdfast", 2, &[1, 0, 0, 0, 2, 0, 0, 0]), None);
        assert_eq!(channel_version(b"GNU", 1, &[1, 0, 0, 0, 2, 0, 0, 0]), None);
    }
}
