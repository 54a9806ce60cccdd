//! The bytes of a journal, version 1, as `docs/format.md` draws them: its header, the head of a
//! record, the table of a record.
//!
//! This module turns bytes into checked values and back. It does no I/O and does not know what is
//! in a page.

#![forbid(unsafe_code)]

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::media::format::HeaderFault;

/// First bytes of a journal.
const MAGIC: [u8; 8] = *b"HOLDJRNL";
/// The version that this module writes, and the newest that it reads.
pub(crate) const JOURNAL_VERSION: u32 = 1;
/// Bytes of the header: one block of the disk, so that appending never writes it again.
pub(crate) const JOURNAL_HEADER_BYTES: usize = 4096;
/// First bytes of a record.
pub(crate) const RECORD_MAGIC: [u8; 4] = *b"HFrc";
/// Bytes of a record's head.
pub(crate) const RECORD_HEAD_BYTES: usize = 64;
/// Bytes of an entry of a record's table.
pub(crate) const ENTRY_BYTES: usize = 16;
/// Records start at multiples of this.
pub(crate) const RECORD_UNIT_BYTES: u64 = 16;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct HeaderBlock {
    magic: [u8; 8],
    version: U32,
    header_bytes: U32,
    uuid: [u8; 16],
    checkpoint_count: U64,
    base_checksum: U64,
    salt: U64,
    flags: U32,
    reserved: [u8; 4028],
    checksum: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RecordBlock {
    magic: [u8; 4],
    entries: U32,
    sequence: U64,
    backed_bytes: U64,
    body_bytes: U64,
    body_checksum: U64,
    reserved: [u8; 16],
    checksum: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct EntryBlock {
    first_page: U64,
    pages: U32,
    kind: U32,
}

const _: () = {
    assert!(size_of::<HeaderBlock>() == JOURNAL_HEADER_BYTES);
    assert!(std::mem::offset_of!(HeaderBlock, uuid) == 16);
    assert!(std::mem::offset_of!(HeaderBlock, salt) == 48);
    assert!(std::mem::offset_of!(HeaderBlock, checksum) == 4088);
    assert!(size_of::<RecordBlock>() == RECORD_HEAD_BYTES);
    assert!(std::mem::offset_of!(RecordBlock, body_checksum) == 32);
    assert!(std::mem::offset_of!(RecordBlock, checksum) == 56);
    assert!(size_of::<EntryBlock>() == ENTRY_BYTES);
};

/// What a journal continues, and the secret of its checksums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JournalHeader {
    pub(crate) uuid: [u8; 16],
    pub(crate) checkpoint_count: u64,
    pub(crate) base_checksum: u64,
    /// Random, so that no page of an applet passes for a record.
    pub(crate) salt: u64,
}

impl JournalHeader {
    pub(crate) fn encode(&self) -> [u8; JOURNAL_HEADER_BYTES] {
        let block = HeaderBlock {
            magic: MAGIC,
            version: JOURNAL_VERSION.into(),
            header_bytes: (JOURNAL_HEADER_BYTES as u32).into(),
            uuid: self.uuid,
            checkpoint_count: self.checkpoint_count.into(),
            base_checksum: self.base_checksum.into(),
            salt: self.salt.into(),
            flags: 0.into(),
            reserved: [0; 4028],
            checksum: 0.into(),
        };
        let mut bytes: [u8; JOURNAL_HEADER_BYTES] = zerocopy::transmute!(block);
        let checksum = xxh3_64(&bytes[..JOURNAL_HEADER_BYTES - 8]);
        bytes[JOURNAL_HEADER_BYTES - 8..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; JOURNAL_HEADER_BYTES]) -> Result<JournalHeader, HeaderFault> {
        let block: &HeaderBlock = zerocopy::transmute_ref!(bytes);
        if block.magic != MAGIC {
            return Err(HeaderFault::Foreign);
        }
        if block.checksum.get() != xxh3_64(&bytes[..JOURNAL_HEADER_BYTES - 8]) {
            return Err(HeaderFault::Damaged);
        }
        let (version, flags) = (block.version.get(), block.flags.get());
        if version > JOURNAL_VERSION || flags != 0 {
            return Err(HeaderFault::Newer { version, flags });
        }
        if version != JOURNAL_VERSION || block.header_bytes.get() as usize != JOURNAL_HEADER_BYTES {
            return Err(HeaderFault::Damaged);
        }
        Ok(JournalHeader {
            uuid: block.uuid,
            checkpoint_count: block.checkpoint_count.get(),
            base_checksum: block.base_checksum.get(),
            salt: block.salt.get(),
        })
    }

    /// The seed of both checksums of a record.
    pub(crate) fn seed(&self, sequence: u64) -> u64 {
        self.salt ^ sequence
    }
}

/// The head of a record whose own checksum is right. The body is not checked yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHead {
    pub(crate) entries: u32,
    pub(crate) sequence: u64,
    pub(crate) backed_bytes: u64,
    pub(crate) body_bytes: u64,
    pub(crate) body_checksum: u64,
}

impl RecordHead {
    pub(crate) fn encode(&self, journal: &JournalHeader) -> [u8; RECORD_HEAD_BYTES] {
        let block = RecordBlock {
            magic: RECORD_MAGIC,
            entries: self.entries.into(),
            sequence: self.sequence.into(),
            backed_bytes: self.backed_bytes.into(),
            body_bytes: self.body_bytes.into(),
            body_checksum: self.body_checksum.into(),
            reserved: [0; 16],
            checksum: 0.into(),
        };
        let mut bytes: [u8; RECORD_HEAD_BYTES] = zerocopy::transmute!(block);
        let checksum =
            xxh3_64_with_seed(&bytes[..RECORD_HEAD_BYTES - 8], journal.seed(self.sequence));
        bytes[RECORD_HEAD_BYTES - 8..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// `None` when these bytes are no head of a record of this journal.
    pub(crate) fn decode(
        bytes: &[u8; RECORD_HEAD_BYTES],
        journal: &JournalHeader,
    ) -> Option<RecordHead> {
        let block: &RecordBlock = zerocopy::transmute_ref!(bytes);
        if block.magic != RECORD_MAGIC {
            return None;
        }
        let sequence = block.sequence.get();
        let checksum = xxh3_64_with_seed(&bytes[..RECORD_HEAD_BYTES - 8], journal.seed(sequence));
        (checksum == block.checksum.get()).then_some(RecordHead {
            entries: block.entries.get(),
            sequence,
            backed_bytes: block.backed_bytes.get(),
            body_bytes: block.body_bytes.get(),
            body_checksum: block.body_checksum.get(),
        })
    }

    /// Bytes of the table at the end of the body.
    pub(crate) fn table_bytes(&self) -> u64 {
        u64::from(self.entries) * ENTRY_BYTES as u64
    }
}

/// A run of pages in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) first_page: u64,
    pub(crate) pages: u32,
    /// All zero: the record has no bytes of them.
    pub(crate) zero: bool,
}

impl Entry {
    pub(crate) fn encode(&self) -> [u8; ENTRY_BYTES] {
        zerocopy::transmute!(EntryBlock {
            first_page: self.first_page.into(),
            pages: self.pages.into(),
            kind: u32::from(self.zero).into(),
        })
    }

    /// `None` when the kind is unknown.
    pub(crate) fn decode(bytes: &[u8; ENTRY_BYTES]) -> Option<Entry> {
        let block: &EntryBlock = zerocopy::transmute_ref!(bytes);
        let zero = match block.kind.get() {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Entry { first_page: block.first_page.get(), pages: block.pages.get(), zero })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal() -> JournalHeader {
        JournalHeader {
            uuid: [3; 16],
            checkpoint_count: 7,
            base_checksum: 0x1234,
            salt: 0xabcd_ef01,
        }
    }

    fn head() -> RecordHead {
        RecordHead {
            entries: 2,
            sequence: 9,
            backed_bytes: 4 << 20,
            body_bytes: 8224,
            body_checksum: 77,
        }
    }

    #[test]
    fn every_flipped_bit_of_a_journals_header_is_noticed() {
        let good = journal().encode();
        assert_eq!(JournalHeader::decode(&good), Ok(journal()));
        for position in 0..JOURNAL_HEADER_BYTES {
            let mut bytes = good;
            bytes[position] ^= 1 << (position % 8);
            assert!(JournalHeader::decode(&bytes).is_err(), "byte {position}");
        }
    }

    /// Every flipped bit of a record's head, and every other salt, is noticed.
    #[test]
    fn record_head_detects_flipped_bits_and_salts() {
        let good = head().encode(&journal());
        assert_eq!(RecordHead::decode(&good, &journal()), Some(head()));
        for bit in 0..RECORD_HEAD_BYTES * 8 {
            let mut bytes = good;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RecordHead::decode(&bytes, &journal()), None, "bit {bit}");
        }
        assert_eq!(RecordHead::decode(&good, &JournalHeader { salt: 1, ..journal() }), None);
    }

    #[test]
    fn the_bytes_of_journal_version_1_never_change() {
        // Offsets and values as docs/format.md gives them; a change here is a new format version.
        let bytes = journal().encode();
        assert_eq!(&bytes[..16], b"HOLDJRNL\x01\0\0\0\0\x10\0\0");
        assert_eq!(bytes[32..40], 7u64.to_le_bytes());
        let bytes = head().encode(&journal());
        assert_eq!(&bytes[..8], b"HFrc\x02\0\0\0");
        assert_eq!(bytes[24..32], 8224u64.to_le_bytes());
        let entry = Entry { first_page: 5, pages: 3, zero: true };
        assert_eq!(entry.encode(), *b"\x05\0\0\0\0\0\0\0\x03\0\0\0\x01\0\0\0");
        assert_eq!(Entry::decode(&entry.encode()), Some(entry));
    }

    #[test]
    fn a_newer_journal_is_called_newer_and_not_damaged() {
        let mut bytes = journal().encode();
        bytes[8] = 2;
        let checksum = xxh3_64(&bytes[..JOURNAL_HEADER_BYTES - 8]);
        bytes[JOURNAL_HEADER_BYTES - 8..].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(JournalHeader::decode(&bytes), Err(HeaderFault::Newer { version: 2, flags: 0 }));
    }
}
