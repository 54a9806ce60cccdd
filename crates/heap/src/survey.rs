//! What every chunk of a heap is used for: for statistics and pictures. Safe code over a slice that nobody trusts.
//!
//! It reports what the tables say and skips what they cannot mean; whether they are sound is the checker's
//! business ([`crate::check`]). It never panics and ends after at most one step for each chunk.

use crate::classes::{CLASS_BYTES, CLASS_SLOTS, CLASSES};
use crate::layout::*;
use crate::slabs::slot_mask;
use xxhash_rust::xxh3::xxh3_64;

/// What chunks are used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChunkUse {
    /// The table of a segment: descriptors.
    Table,
    /// The undo log.
    Log,
    /// Small objects of one size.
    Slab {
        /// Bytes of a slot.
        slot_bytes: u32,
        /// Slots that there are.
        slots: u32,
        /// Slots that hold an object.
        used_slots: u32,
    },
    /// One large object.
    Run {
        /// Bytes asked for.
        object_bytes: u64,
    },
    /// Nothing.
    Free,
    /// The tables do not say anything that could be.
    Unknown,
}

/// Neighbouring chunks that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkSpan {
    /// Where the first one starts, in bytes from the start of the heap.
    pub offset: u64,
    /// How many there are.
    pub chunks: u64,
    /// What they are used for.
    pub used_for: ChunkUse,
}

impl ChunkSpan {
    /// Bytes of these chunks.
    pub fn bytes(&self) -> u64 {
        self.chunks * CHUNK_BYTES
    }
}

/// A root, as its entry tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootSpan<'a> {
    /// Its name, which matches its hash.
    pub name: &'a str,
    /// Where its object starts, in bytes from the start of the heap. It may lie anywhere.
    pub offset: u64,
    /// Bytes that were asked for.
    pub bytes: u64,
}

fn load(bytes: &[u8], offset: u64) -> u64 {
    let word = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)?.first_chunk::<8>());
    word.map_or(0, |word| u64::from_le_bytes(*word))
}

/// Calls `each` for every root whose entry can be read, in no particular order, whatever else is damaged, and
/// returns how many entries cannot be read.
pub fn survey_roots<'a>(bytes: &'a [u8], each: &mut dyn FnMut(RootSpan<'a>)) -> u64 {
    let load = |offset| load(bytes, offset);
    let (table, slots) = (load(SUPER_ROOTS), load(SUPER_ROOTS + 8));
    // No table is larger than the heap, so a hostile one does not make this take for ever.
    let slots = slots.min(bytes.len() as u64 / 8);
    let mut unreadable = 0;
    for index in 0..slots {
        let word = load(table.saturating_add(index * 8));
        if word == 0 || word == SLOT_TOMBSTONE {
            continue;
        }
        let entry = word & ((1 << 48) - 1);
        let hash = load(entry + ENTRY_HASH);
        let length = load(entry + ENTRY_NAME_LENGTH).min(ROOT_NAME_BYTES_MAX as u64);
        let name = bytes.get((entry + ENTRY_NAME) as usize..(entry + ENTRY_NAME + length) as usize);
        let name = name.filter(|name| !name.is_empty() && xxh3_64(name) == hash && hash >> 48 == word >> 48);
        match name.and_then(|name| core::str::from_utf8(name).ok()) {
            Some(name) => {
                each(RootSpan { name, offset: load(entry + ENTRY_OBJECT), bytes: load(entry + ENTRY_SIZE) })
            }
            None => unreadable += 1,
        }
    }
    unreadable
}

/// Calls `each` for all chunks of the formatted segments, in order and without gaps. Free chunks come one by
/// one. Nothing is called when the bytes are no heap.
pub fn survey(bytes: &[u8], each: &mut dyn FnMut(ChunkSpan)) {
    let load = |offset| load(bytes, offset);
    if load(SUPER_MAGIC) != MAGIC {
        return;
    }
    let present = bytes.len() as u64 / CHUNK_BYTES;
    let formatted = load(SUPER_SEGMENTS).saturating_mul(SEGMENT_CHUNKS).min(present);
    let mut chunk = 0;
    while chunk < formatted {
        let (segment, within) = (chunk / SEGMENT_CHUNKS * SEGMENT_BYTES, chunk % SEGMENT_CHUNKS);
        let left_in_segment = (SEGMENT_CHUNKS - within).min(formatted - chunk);
        let head = Head::decode(load(segment + within * DESCRIPTOR_BYTES + DESC_HEAD));
        let descriptor = segment + within * DESCRIPTOR_BYTES;
        let (chunks, used_for) = if within == 0 {
            let span = match head {
                Some(Head { kind: Kind::Segment, span, .. }) => u64::from(span),
                _ => 0,
            };
            each(ChunkSpan { offset: chunk * CHUNK_BYTES, chunks: 1, used_for: ChunkUse::Table });
            chunk += 1;
            if span < 2 {
                continue;
            }
            let object_bytes = load(segment + DESC_RUN_BYTES);
            let chunks = span.saturating_mul(SEGMENT_CHUNKS) - 1;
            (chunks.min(formatted.saturating_sub(chunk)), ChunkUse::Run { object_bytes })
        } else if load(segment + DESC_USED_CHUNKS) >> within & 1 == 0 {
            (1, ChunkUse::Free)
        } else {
            match head {
                Some(Head { kind: Kind::Slab, class, .. }) if usize::from(class) < CLASSES => {
                    (1, slab(usize::from(class), descriptor, &load))
                }
                Some(Head { kind: Kind::Run, span, .. }) => {
                    let object_bytes = load(descriptor + DESC_RUN_BYTES);
                    (u64::from(span).clamp(1, left_in_segment), ChunkUse::Run { object_bytes })
                }
                Some(Head { kind: Kind::Log, span, .. }) => {
                    (u64::from(span).clamp(1, left_in_segment), ChunkUse::Log)
                }
                _ => (1, ChunkUse::Unknown),
            }
        };
        if chunks > 0 {
            each(ChunkSpan { offset: chunk * CHUNK_BYTES, chunks, used_for });
        }
        chunk += chunks;
    }
}

fn slab(class: usize, descriptor: u64, load: &dyn Fn(u64) -> u64) -> ChunkUse {
    let words = u64::from(CLASS_SLOTS[class]).div_ceil(64);
    let used = |word| (load(descriptor + DESC_SLOTS + word * 8) & slot_mask(class, word)).count_ones();
    ChunkUse::Slab {
        slot_bytes: CLASS_BYTES[class],
        slots: CLASS_SLOTS[class],
        used_slots: (0..words).map(used).sum(),
    }
}
