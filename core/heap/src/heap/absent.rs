//! Chunks that are absent: the region did not fill its last segment when that was formatted.
//!
//! Invariants:
//! - They are the last chunks of their segment, count as in use, and are described as absent.
//! - Once the region reaches over them they are as good as free, and become it when the heap finds
//!   no other room: one store for each segment. Until then they are memory that is not used, and no
//!   damage.

use crate::backing::Backing;
use crate::heap::Heap;
use crate::layout::*;

impl<B: Backing> Heap<B> {
    /// Frees the absent chunks that the region reaches over, after it has grown to the end of its
    /// last segment, as far as its limit lets it. Whether there are any.
    pub(crate) fn admit_absent(&mut self) -> bool {
        let segments = self.segments();
        let (mut segment, mut admitted) = (self.rovers.absent(), false);
        let mut first_left = None;
        while segment < segments {
            let span = self.span_of(segment);
            if span == 1 {
                let absent = self.absent_chunks(segment);
                if absent != 0 && segment + 1 == segments {
                    self.fill_segment(segment);
                }
                let start = segment * SEGMENT_BYTES;
                let present =
                    (self.memory.len().saturating_sub(start) / CHUNK_BYTES).min(SEGMENT_CHUNKS);
                let there = absent & (u64::MAX >> (SEGMENT_CHUNKS - present.max(1)));
                if absent != there {
                    first_left.get_or_insert(segment);
                }
                if there != 0 {
                    let at = start + DESC_USED_CHUNKS;
                    self.memory.store(at, self.memory.load(at) & !there);
                    self.rovers.lower(segment);
                    admitted = true;
                }
            }
            segment += span;
        }
        self.rovers.set_absent(first_left.unwrap_or(segments));
        admitted
    }

    /// The chunks of a segment that are described as absent, as bits.
    pub(crate) fn absent_chunks(&self, segment: u64) -> u64 {
        let start = segment * SEGMENT_BYTES;
        let used = self.memory.load(start + DESC_USED_CHUNKS);
        let is_absent = |chunk: &u64| {
            let head = Head::decode(self.memory.load(start + chunk * DESCRIPTOR_BYTES + DESC_HEAD));
            used >> chunk & 1 == 1 && head.is_some_and(|head| head.kind == HeadKind::Absent)
        };
        (1..SEGMENT_CHUNKS).rev().take_while(is_absent).fold(0, |absent, chunk| absent | 1 << chunk)
    }

    /// Makes the region reach over the last segment. If it does not, there is no more room, as a
    /// caller that wants some is told.
    fn fill_segment(&mut self, segment: u64) {
        let limit_bytes = self.backing.limit_bytes() & !(CHUNK_BYTES - 1);
        let end = ((segment + 1) * SEGMENT_BYTES).min(limit_bytes);
        let _ = self.back(end, CHUNK_BYTES);
    }
}
