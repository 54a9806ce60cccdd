//! Evidence of objects in a place of a damaged heap, for [`mend`](fn@crate::mend): a chunk is
//! counted as free, and a segment as absent, only where there is none.
//!
//! Invariants:
//! - Where there is doubt, the answer is that there may be objects: what is kept in vain costs
//!   memory, what is given up in vain costs data.
//! - Safe code over untrusted words; the work for a chunk is bounded by its size.

use crate::layout::*;

fn load(words: &[u64], offset: u64) -> u64 {
    usize::try_from(offset / 8).ok().and_then(|at| words.get(at)).copied().unwrap_or(0)
}

fn is_zero(words: &[u64], offset: u64, bytes: u64) -> bool {
    (offset..offset + bytes).step_by(8).all(|at| load(words, at) == 0)
}

/// Whether nothing was ever put into the chunk with this descriptor: neither its description nor
/// its bytes say anything.
pub(crate) fn chunk_was_never_used(words: &[u64], descriptor: u64) -> bool {
    let segment = descriptor & !(SEGMENT_BYTES - 1);
    let chunk = segment + (descriptor - segment) / DESCRIPTOR_BYTES * CHUNK_BYTES;
    is_zero(words, descriptor, DESCRIPTOR_BYTES) && is_zero(words, chunk, CHUNK_BYTES)
}

/// Whether a chunk that is counted as in use may be counted as free, because it can only be counted
/// wrongly.
pub(crate) fn chunk_may_be_free(words: &[u64], descriptor: u64) -> bool {
    let segment = descriptor & !(SEGMENT_BYTES - 1);
    let chunk = (descriptor - segment) / DESCRIPTOR_BYTES;
    let kind_at = |chunk| {
        Head::decode(load(words, segment + chunk * DESCRIPTOR_BYTES + DESC_HEAD))
            .map(|head| head.kind)
    };
    let Some(head) = Head::decode(load(words, descriptor + DESC_HEAD)) else {
        return chunk_was_never_used(words, descriptor);
    };
    match head.kind {
        HeadKind::Slab => false,
        // An old description, if what it claims is described as something else by now.
        HeadKind::Run | HeadKind::Log => {
            let end = (chunk + u64::from(head.span)).min(SEGMENT_CHUNKS);
            (chunk + 1..end)
                .any(|inside| kind_at(inside).is_some_and(|kind| kind != HeadKind::Inside))
        }
        // An old description, if no slot is taken: an empty slab leaves none, and what is no slab
        // has none.
        HeadKind::Inside | HeadKind::Absent | HeadKind::Segment => {
            is_zero(words, descriptor + DESC_SLOTS, SLOT_WORDS_MAX * 8)
        }
    }
}

/// Whether there can be nothing in the segment at this number, nor past it: it is not described, or
/// empty.
pub(crate) fn nothing_from_segment(words: &[u64], segment: u64) -> bool {
    let Some(start) = segment.checked_mul(SEGMENT_BYTES) else { return true };
    let used = load(words, start + DESC_USED_CHUNKS);
    match Head::decode(load(words, start + DESC_HEAD)) {
        Some(Head { kind: HeadKind::Segment, span, .. }) => {
            let absent = |chunk: u64| {
                let head = Head::decode(load(words, start + chunk * DESCRIPTOR_BYTES + DESC_HEAD));
                head.is_some_and(|head| head.kind == HeadKind::Absent)
            };
            span <= 1 && (1..SEGMENT_CHUNKS).all(|chunk| used >> chunk & 1 == 0 || absent(chunk))
        }
        _ => true,
    }
}
