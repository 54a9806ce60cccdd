//! The heap's bytes: where everything lies, as constants that `docs/format.md` repeats in words.
//!
//! All offsets count from the start of the region's data area; all integers are little-endian;
//! nothing stored here is an address, so any tool can open any heap anywhere. Changing a number in
//! this file changes the format: raise [`FORMAT_VERSION`] and keep a golden image of the old one.
//!
//! ```text
//! heap     = segment 0, segment 1, ...                      4 MiB each, as many as `SUPER_SEGMENTS` says
//! segment  = table chunk, 63 chunks                         64 KiB each
//! table    = 64 descriptors of 1 KiB; number 0 describes the segment itself (in segment 0 it also holds
//!            the superblock), number i describes chunk i
//! chunk    = a slab of equal slots | part of a run (large object or log) | free
//! ```

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Format version of the heap's bytes. 2 adds types of roots and objects of whole segments that
/// start at an alignment, 4 adds slabs of several chunks; a heap of an older version stays one
/// until it needs what that does not have. No heap has version 3, which one flipped bit would make
/// one of the versions before.
pub const FORMAT_VERSION: u32 = 4;

/// The unit of slabs and runs, and the page size of WebAssembly: 64 KiB.
pub const CHUNK_BYTES: u64 = 1 << 16;
/// The unit of growth: 4 MiB.
pub const SEGMENT_BYTES: u64 = 1 << 22;
/// Chunks in a segment, its table chunk included.
pub const SEGMENT_CHUNKS: u64 = SEGMENT_BYTES / CHUNK_BYTES;
/// Descriptor of a chunk, or of the segment itself (number 0).
pub const DESCRIPTOR_BYTES: u64 = 1024;
/// Longest run that fits into one segment; larger objects take whole segments.
pub const RUN_CHUNKS_MAX: u64 = SEGMENT_CHUNKS - 1;
/// Heaps smaller than this cannot be formatted: a table chunk, a log chunk and two chunks for data.
pub const HEAP_BYTES_MIN: u64 = 4 * CHUNK_BYTES;
/// Largest alignment of an object.
pub const ALIGN_BYTES_MAX: u64 = SEGMENT_BYTES / 2;
/// Largest heap: what fits under the 16-bit tag of a root slot.
pub const HEAP_BYTES_MAX: u64 = 1 << 47;

// --- descriptor
// -------------------------------------------------------------------------------------
/// `u64`: kind, size class, span and a check value, see [`Head`].
pub const DESC_HEAD: u64 = 0;
/// Segment descriptor, `u64`: bit i set when chunk i is in use. The one truth about chunks.
pub const DESC_USED_CHUNKS: u64 = 8;
/// Run or spanning segment, `u64`: bytes asked for.
pub const DESC_RUN_BYTES: u64 = 16;
/// Slab, 64 words of `u64`: bit i set when slot i is allocated.
pub const DESC_SLOTS: u64 = 64;
/// Words in the slot bitmap (enough for 4,096 slots of 16 bytes).
pub const SLOT_WORDS_MAX: u64 = 64;

/// Bit of the table chunk in [`DESC_USED_CHUNKS`]: always set.
pub const TABLE_CHUNK_BIT: u64 = 1;

// --- superblock, in descriptor 0 of segment 0
// -------------------------------------------------------
/// `u64`: [`MAGIC`] once formatting is complete, [`MAGIC_FORMATTING`] while it is under way.
pub const SUPER_MAGIC: u64 = 64;
/// `u32`: [`FORMAT_VERSION`].
pub const SUPER_VERSION: u64 = 72;
/// `u32`: bytes of a pointer in the applet's data (4 in WebAssembly, 8 natively; 0 in a portable
/// heap, which holds references).
pub const SUPER_POINTER_BYTES: u64 = 76;
/// `u64`: the address of offset 0 in the applet's pointers.
pub const SUPER_POINTER_BASE: u64 = 80;
/// `u64`: offset of the transaction lane.
pub const SUPER_LANE: u64 = 88;
/// `u64`: xxh3-64 of bytes 64..96.
pub const SUPER_SUM: u64 = 96;
/// `u64`: number of formatted segments.
pub const SUPER_SEGMENTS: u64 = 104;
/// Four `u64`, changed only in transactions: offset of the root table, its slots, slots ever used,
/// roots.
pub const SUPER_ROOTS: u64 = 128;

/// First bytes of the superblock: "HFSTHEAP".
pub const MAGIC: u64 = u64::from_le_bytes(*b"HFSTHEAP");
/// In place of [`MAGIC`] while formatting: a kill then means formatting again, not damage.
pub const MAGIC_FORMATTING: u64 = u64::from_le_bytes(*b"HFSTINIT");

// --- lane: the undo log of a transaction, chunk 1 of segment 0
// --------------------------------------
/// `u64`: sequence number << 1 | committed.
pub const LANE_STATE: u64 = 0;
/// `u64`: offset of the newest extra extent, or 0.
pub const LANE_EXTENT: u64 = 8;
/// `u64`: offset of a run that is being linked or unlinked as an extent, or 0.
pub const LANE_PENDING: u64 = 16;
/// Where an extent's records start; its first words are (older extent: `u64`, length: `u64`).
pub const EXTENT_RECORDS: u64 = 64;
/// Extra extent, `u64`: offset of the extent before it, or 0 for the lane's own chunk.
pub const EXTENT_OLDER: u64 = 32;
/// Extra extent, `u64`: its length in bytes.
pub const EXTENT_LENGTH: u64 = 40;

/// Record: target offset `u64`.
pub const RECORD_TARGET: u64 = 0;
/// Record: payload bytes `u32`, then distance back to the record before it `u32` (0: first of its
/// extent).
pub const RECORD_LENGTHS: u64 = 8;
/// Record: sequence << 8 | kind, `u64`.
pub const RECORD_SEQUENCE: u64 = 16;
/// Record: xxh3-64 of the 24 bytes before and the payload, `u64`.
pub const RECORD_SUM: u64 = 24;
/// Bytes of a record before its payload; the payload is padded to 8.
pub const RECORD_BYTES: u64 = 32;
/// Longer ranges are logged as several records.
pub const RECORD_PAYLOAD_MAX: u64 = 32 << 10;

// --- root entry
// -------------------------------------------------------------------------------------
/// `u64`: offset of the root's object.
pub const ENTRY_OBJECT: u64 = 0;
/// `u64`: size that was asked for.
pub const ENTRY_SIZE: u64 = 8;
/// `u64`: xxh3-64 of the name.
pub const ENTRY_HASH: u64 = 16;
/// `u64`: bytes of the name, which follows; with [`ENTRY_TYPED`] when a type follows that.
pub const ENTRY_NAME_LENGTH: u64 = 24;
/// Bit of the word at [`ENTRY_NAME_LENGTH`], from version 2 on: the root has a type.
pub const ENTRY_TYPED: u64 = 1 << 16;
/// Bytes of a type: layout `u64`, version `u64`.
pub const ENTRY_TYPE_BYTES: u64 = 16;
/// Where the name's bytes start.
pub const ENTRY_NAME: u64 = 32;
/// Where the type of a root starts whose entry has a name of `length` bytes.
pub const fn entry_type_at(entry: u64, length: u64) -> u64 {
    entry.saturating_add(ENTRY_NAME).saturating_add(length.saturating_add(7) & !7)
}
/// Longest root name in bytes.
pub const ROOT_NAME_BYTES_MAX: usize = 255;
/// Slot of a root that was removed.
pub const SLOT_TOMBSTONE: u64 = 1;
/// Slots of the first root table.
pub const ROOT_SLOTS_FIRST: u64 = 64;

/// What a descriptor describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HeadKind {
    /// Equal slots of one size class.
    Slab = 1,
    /// The first chunk of a run of chunks that holds one object.
    Run = 2,
    /// The first chunk of a run that extends the undo log.
    Log = 3,
    /// Past the end of a region that does not fill its last segment.
    Absent = 4,
    /// A segment; with a span of more than one, an object of that many segments.
    Segment = 5,
    /// A chunk of a run that is not its first: what a stale descriptor would be mistaken for.
    Inside = 6,
}

/// The first word of a descriptor, stored whole: kind, size class, span, and a check value that a
/// flipped bit or foreign bytes do not satisfy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What is described.
    pub kind: HeadKind,
    /// Size class of a slab, those of several chunks after the others; of an object of whole
    /// segments that starts at more than one chunk, the binary logarithm of where it starts; else
    /// 0.
    pub class: u8,
    /// Chunks of a run or of a slab, segments of a segment, else 1.
    pub span: u32,
}

impl Head {
    /// The stored word.
    pub const fn encode(self) -> u64 {
        let low = (self.kind as u64) | ((self.class as u64) << 8) | ((self.span as u64) << 32);
        low | (Self::check(low) << 16)
    }

    /// Parses a stored word; `None` when it is not one.
    pub fn decode(word: u64) -> Option<Head> {
        let low = word & 0xFFFF_FFFF_0000_FFFF;
        if (word >> 16) & 0xFFFF != Self::check(low) {
            return None;
        }
        let kind = match word & 0xFF {
            1 => HeadKind::Slab,
            2 => HeadKind::Run,
            3 => HeadKind::Log,
            4 => HeadKind::Absent,
            5 => HeadKind::Segment,
            6 => HeadKind::Inside,
            _ => return None,
        };
        Some(Head { kind, class: (word >> 8) as u8, span: (word >> 32) as u32 })
    }

    /// Where an object of whole segments starts in the first of them.
    pub fn object_start(self) -> Option<u64> {
        match self.class {
            0 => Some(CHUNK_BYTES),
            class
                if self.kind == HeadKind::Segment
                    && (CHUNK_BYTES.trailing_zeros() + 1..=ALIGN_BYTES_MAX.trailing_zeros())
                        .contains(&u32::from(class)) =>
            {
                Some(1 << class)
            }
            _ => None,
        }
    }

    const fn check(low: u64) -> u64 {
        // Multiplying by an odd constant carries every input bit into the top 16.
        (low ^ 0x9E37_79B9_7F4A_7C15).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 48
    }
}

/// Offset of the descriptor of the chunk that holds `offset`, in a segment that is not spanned
/// over.
#[inline]
pub const fn descriptor_of(offset: u64) -> u64 {
    (offset & !(SEGMENT_BYTES - 1)) + ((offset / CHUNK_BYTES) % SEGMENT_CHUNKS) * DESCRIPTOR_BYTES
}

/// Offset of the lane: chunk 1 of segment 0.
pub const LANE_OFFSET: u64 = CHUNK_BYTES;

/// The checksum of a record.
pub(crate) fn sum_of_record(target: u64, lengths: u64, sequence: u64, payload: &[u8]) -> u64 {
    let seed = seed_of_record(target, lengths, sequence);
    match payload.len() {
        // The same sum by another crate, whose code for this length takes two thirds of the time.
        129..=240 => twox_hash::XxHash3_64::oneshot_with_seed(seed, payload),
        _ => xxh3_64_with_seed(payload, seed),
    }
}

/// As [`sum_of_record`], without a call where the compiler knows that the payload is short.
#[inline(always)]
pub(crate) fn sum_of_short_record(target: u64, lengths: u64, sequence: u64, payload: &[u8]) -> u64 {
    xxh3_64_with_seed(payload, seed_of_record(target, lengths, sequence))
}

#[inline]
const fn seed_of_record(target: u64, lengths: u64, sequence: u64) -> u64 {
    (target ^ lengths.rotate_left(23) ^ sequence.rotate_left(41))
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

const _: () = {
    assert!(SEGMENT_CHUNKS * DESCRIPTOR_BYTES == CHUNK_BYTES);
    assert!(DESC_SLOTS + SLOT_WORDS_MAX * 8 <= DESCRIPTOR_BYTES);
    assert!(SUPER_ROOTS + 32 <= DESCRIPTOR_BYTES);
    assert!(RECORD_BYTES + RECORD_PAYLOAD_MAX + EXTENT_RECORDS <= CHUNK_BYTES);
    assert!(cfg!(target_endian = "little"));
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Records have one sum, whichever code takes it.
    #[test]
    fn all_lengths_have_the_same_sum() {
        let payload: [u8; 300] = core::array::from_fn(|index| index as u8);
        for bytes in 0..=payload.len() {
            let of = |sum: fn(u64, u64, u64, &[u8]) -> u64| sum(7, 8, 9, &payload[..bytes]);
            assert_eq!(of(sum_of_record), of(sum_of_short_record), "{bytes}");
        }
    }

    /// A head survives encoding and a flipped bit does not.
    #[test]
    fn head_survives_encoding_and_detects_flipped_bits() {
        for kind in [
            HeadKind::Slab,
            HeadKind::Run,
            HeadKind::Log,
            HeadKind::Absent,
            HeadKind::Segment,
            HeadKind::Inside,
        ] {
            for (class, span) in [(0, 1), (17, 1), (0, 63), (0, u32::MAX)] {
                let head = Head { kind, class, span };
                let word = head.encode();
                assert_eq!(Head::decode(word), Some(head));
                for bit in 0..64 {
                    assert_eq!(Head::decode(word ^ (1 << bit)), None, "bit {bit} of {head:?}");
                }
            }
        }
        assert_eq!(Head::decode(0), None);
    }
}
