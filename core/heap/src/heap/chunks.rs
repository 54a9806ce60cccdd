//! Segments, chunks and runs of chunks.
//!
//! Invariants:
//! - Bit i of a segment's used word is the one truth about chunk i; a descriptor means something
//!   only while its bit is set. So a run is published by one store (after its descriptors are
//!   written, those of the chunks inside it too: an old one there must not be mistaken for a
//!   slab's) and released by one.
//! - An object that outgrows a segment takes whole segments: the head of its first segment carries
//!   the span, and the words of the segments inside it belong to the object. One store of that head
//!   makes or unmakes it.
//! - `SUPER_SEGMENTS` counts formatted segments; what lies past them is not part of the heap yet.

use crate::backing::Backing;
use crate::error::{GrowError, HeapError};
use crate::heap::Heap;
use crate::layout::*;

/// A run of chunks inside one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) segment: u64,
    pub(crate) first: u64,
    pub(crate) chunks: u64,
}

impl Run {
    pub(crate) fn offset(self) -> u64 {
        self.segment * SEGMENT_BYTES + self.first * CHUNK_BYTES
    }

    pub(crate) fn descriptor(self) -> u64 {
        self.segment * SEGMENT_BYTES + self.first * DESCRIPTOR_BYTES
    }

    pub(crate) fn mask(self) -> u64 {
        (u64::MAX >> (64 - self.chunks)) << self.first
    }
}

impl<B: Backing> Heap<B> {
    pub(crate) fn segments(&self) -> u64 {
        // Never more than there are, whatever was stored there: so every walk ends.
        self.memory.load(SUPER_SEGMENTS).min(self.memory.len().div_ceil(SEGMENT_BYTES))
    }

    /// Segments that the one at this index takes (1, or the span of a large object); at least 1.
    pub(crate) fn span_of(&self, segment: u64) -> u64 {
        match Head::decode(self.memory.load(segment * SEGMENT_BYTES + DESC_HEAD)) {
            Some(Head { kind: HeadKind::Segment, span, .. }) => u64::from(span.max(1)),
            _ => 1,
        }
    }

    /// The used word of a segment. The table and what is not backed are never free, whatever is
    /// stored there.
    pub(crate) fn used_chunks(&self, segment: u64) -> u64 {
        let start = segment * SEGMENT_BYTES;
        let present = self.memory.len().saturating_sub(start) / CHUNK_BYTES;
        let absent = if present < SEGMENT_CHUNKS { u64::MAX << present } else { 0 };
        self.memory.load(start + DESC_USED_CHUNKS) | TABLE_CHUNK_BIT | absent
    }

    /// Whether the chunk at `offset` is in use, in a segment that is not spanned.
    pub(crate) fn chunk_in_use(&self, offset: u64) -> bool {
        let segment = offset / SEGMENT_BYTES;
        segment < self.segments()
            && self.used_chunks(segment) >> ((offset / CHUNK_BYTES) % SEGMENT_CHUNKS) & 1 == 1
    }

    /// Finds room for a run of `chunks` from a chunk on whose number is a multiple of `step`,
    /// growing the heap if there is none, or else taking back what threads keep and do not use. A
    /// run with its step fits into a segment; nothing is published yet.
    pub(crate) fn find_run(&mut self, chunks: u64, step: u64) -> Result<Run, HeapError> {
        match self.find_unclaimed_run(chunks, step) {
            Err(_) if self.take_back_slabs() => self.find_unclaimed_run(chunks, step),
            found => found,
        }
    }

    /// As [`Heap::find_run`], without what threads keep.
    pub(crate) fn find_unclaimed_run(&mut self, chunks: u64, step: u64) -> Result<Run, HeapError> {
        if let Some(run) = self.free_run(chunks, step) {
            return Ok(run);
        }
        if self.admit_absent()
            && let Some(run) = self.free_run(chunks, step)
        {
            return Ok(run);
        }
        let segment = self.add_segment(chunks, step)?;
        free_stretch(self.used_chunks(segment), chunks, step)
            .map(|first| Run { segment, first, chunks })
            .ok_or(HeapError::OutOfMemory {
                wanted_bytes: chunks * CHUNK_BYTES,
                cause: GrowError::Failed,
            })
    }

    /// As [`Heap::find_run`], in the segments that there are.
    fn free_run(&mut self, chunks: u64, step: u64) -> Option<Run> {
        let segments = self.segments();
        let mut segment = self.rover;
        let mut first_with_room = None;
        while segment < segments {
            let span = self.span_of(segment);
            if span == 1 {
                let used = self.used_chunks(segment);
                if used != u64::MAX {
                    first_with_room.get_or_insert(segment);
                    if let Some(first) = free_stretch(used, chunks, step) {
                        self.rover = first_with_room.unwrap_or(segment);
                        return Some(Run { segment, first, chunks });
                    }
                }
            }
            segment += span;
        }
        self.rover = first_with_room.unwrap_or(segments);
        None
    }

    /// Writes the run's descriptors; the run is not in use before [`Heap::publish_run`].
    pub(crate) fn describe_run(&self, run: Run, kind: HeadKind, class: u8, bytes: u64) {
        let inside = Head { kind: HeadKind::Inside, class: 0, span: 1 }.encode();
        for chunk in 1..run.chunks {
            self.memory.store(run.descriptor() + chunk * DESCRIPTOR_BYTES + DESC_HEAD, inside);
        }
        let descriptor = run.descriptor();
        self.memory.store(descriptor + DESC_RUN_BYTES, bytes);
        self.memory
            .store(descriptor + DESC_HEAD, Head { kind, class, span: run.chunks as u32 }.encode());
    }

    pub(crate) fn publish_run(&self, run: Run) {
        let at = run.segment * SEGMENT_BYTES + DESC_USED_CHUNKS;
        self.memory.store(at, self.memory.load(at) | run.mask());
    }

    pub(crate) fn release_run(&mut self, run: Run) {
        let at = run.segment * SEGMENT_BYTES + DESC_USED_CHUNKS;
        self.memory.store(at, self.memory.load(at) & !run.mask() | TABLE_CHUNK_BIT);
        self.rover = self.rover.min(run.segment);
    }

    /// The run that starts at `offset`, if one of this kind does.
    pub(crate) fn run_at(&self, offset: u64, kind: HeadKind) -> Option<Run> {
        if !offset.is_multiple_of(CHUNK_BYTES) || !self.chunk_in_use(offset) {
            return None;
        }
        let head = Head::decode(self.memory.load(descriptor_of(offset) + DESC_HEAD))?;
        let first = (offset / CHUNK_BYTES) % SEGMENT_CHUNKS;
        let chunks = u64::from(head.span);
        let whole = first != 0 && chunks >= 1 && first + chunks <= SEGMENT_CHUNKS;
        (head.kind == kind && whole && self.memory.holds(offset, chunks * CHUNK_BYTES))
            .then_some(Run { segment: offset / SEGMENT_BYTES, first, chunks })
    }

    /// Formats one more segment with room for a run of `chunks`; a last segment may be shorter than
    /// others.
    fn add_segment(&mut self, chunks: u64, step: u64) -> Result<u64, HeapError> {
        let segment = self.segments();
        let start = segment * SEGMENT_BYTES;
        let limit = self.limit_bytes() & !(CHUNK_BYTES - 1);
        let end = (start + SEGMENT_BYTES).min(limit);
        if end < start + (step + chunks) * CHUNK_BYTES {
            return Err(self.limit_reached(chunks * CHUNK_BYTES));
        }
        self.back(end, chunks * CHUNK_BYTES)?;
        self.format_segment(segment, (end - start) / CHUNK_BYTES);
        self.memory.store(SUPER_SEGMENTS, segment + 1);
        Ok(segment)
    }

    pub(crate) fn limit_reached(&self, wanted_bytes: u64) -> HeapError {
        HeapError::OutOfMemory { wanted_bytes, cause: self.limit_cause() }
    }

    /// Makes the backing reach `end`.
    pub(crate) fn back(&mut self, end: u64, wanted_bytes: u64) -> Result<(), HeapError> {
        if self.memory.len() < end {
            let grown = if self.backing.backed_bytes() < end {
                self.backing
                    .grow(end)
                    .map_err(|cause| HeapError::OutOfMemory { wanted_bytes, cause })?
            } else {
                self.backing.backed_bytes()
            };
            self.remap(grown);
        }
        if self.memory.len() < end {
            return Err(HeapError::OutOfMemory { wanted_bytes, cause: GrowError::Failed });
        }
        Ok(())
    }

    /// Writes the header of an ordinary segment whose chunks from `present` on are not there.
    pub(crate) fn format_segment(&self, segment: u64, present: u64) {
        let start = segment * SEGMENT_BYTES;
        let mut used = TABLE_CHUNK_BIT;
        for chunk in present..SEGMENT_CHUNKS {
            let absent = Head { kind: HeadKind::Absent, class: 0, span: 1 };
            self.memory.store(start + chunk * DESCRIPTOR_BYTES + DESC_HEAD, absent.encode());
            used |= 1 << chunk;
        }
        self.memory.store(start + DESC_USED_CHUNKS, used);
        self.memory
            .store(start + DESC_HEAD, Head { kind: HeadKind::Segment, class: 0, span: 1 }.encode());
    }

    /// Finds or makes `span` whole free segments in a row; returns the first and whether all are
    /// new (then they are counted only by [`Heap::publish_spanning`]).
    pub(crate) fn find_segments(
        &mut self,
        span: u64,
        wanted_bytes: u64,
    ) -> Result<(u64, bool), HeapError> {
        match self.find_unclaimed_segments(span, wanted_bytes) {
            Err(_) if self.take_back_slabs() => self.find_unclaimed_segments(span, wanted_bytes),
            found => found,
        }
    }

    fn find_unclaimed_segments(
        &mut self,
        span: u64,
        wanted_bytes: u64,
    ) -> Result<(u64, bool), HeapError> {
        let segments = self.segments();
        let (mut segment, mut stretch) = (0, 0);
        while segment < segments {
            let own = self.span_of(segment);
            if own == 1 && self.used_chunks(segment) == TABLE_CHUNK_BIT {
                stretch += 1;
                if stretch == span {
                    return Ok((segment + 1 - span, false));
                }
            } else {
                stretch = 0;
            }
            segment += own;
        }
        // What is free at the end is its beginning.
        let first = segments - stretch;
        if stretch > 0 {
            self.add_free_segments(span - stretch, wanted_bytes)?;
            return Ok((first, false));
        }
        self.back_segments(span, wanted_bytes)?;
        Ok((first, true))
    }

    /// Makes the backing reach over `more` whole segments that are not counted yet.
    fn back_segments(&mut self, more: u64, wanted_bytes: u64) -> Result<(), HeapError> {
        let end = more.checked_add(self.segments()).and_then(|all| all.checked_mul(SEGMENT_BYTES));
        match end {
            Some(end) if end <= self.limit_bytes() => self.back(end, wanted_bytes),
            _ => Err(self.limit_reached(wanted_bytes)),
        }
    }

    /// Formats `more` whole segments at the end: an object that begins before them is published by
    /// one store then.
    pub(crate) fn add_free_segments(
        &mut self,
        more: u64,
        wanted_bytes: u64,
    ) -> Result<(), HeapError> {
        self.back_segments(more, wanted_bytes)?;
        let segments = self.segments();
        for segment in segments..segments + more {
            self.format_segment(segment, SEGMENT_CHUNKS);
        }
        self.memory.store(SUPER_SEGMENTS, segments + more);
        Ok(())
    }

    /// Publishes an object over whole segments with one store.
    pub(crate) fn publish_spanning(&mut self, first: u64, new: bool, head: Head, bytes: u64) {
        // From now on these segments' tables belong to the object: nothing volatile may still point
        // there.
        self.rover = 0;
        self.forget_slabs_elsewhere();
        let start = first * SEGMENT_BYTES;
        self.memory.store(start + DESC_RUN_BYTES, bytes);
        if new {
            self.memory.store(start + DESC_USED_CHUNKS, TABLE_CHUNK_BIT);
            self.memory.store(start + DESC_HEAD, head.encode());
            self.memory.store(SUPER_SEGMENTS, first + u64::from(head.span));
        } else {
            self.memory.store(start + DESC_HEAD, head.encode());
        }
    }

    /// Turns an object over whole segments back into free segments. Restartable: the object is
    /// whole in the metadata until the last store, though its content is not.
    pub(crate) fn release_spanning(&mut self, first: u64, span: u64) {
        for segment in first + 1..first + span {
            self.format_segment(segment, SEGMENT_CHUNKS);
        }
        self.memory.store(first * SEGMENT_BYTES + DESC_USED_CHUNKS, TABLE_CHUNK_BIT);
        let head = Head { kind: HeadKind::Segment, class: 0, span: 1 }.encode();
        self.memory.store(first * SEGMENT_BYTES + DESC_HEAD, head);
        self.rover = self.rover.min(first);
    }
}

/// First bit of the lowest stretch of `chunks` clear bits that starts at a multiple of `step`,
/// which is a power of two below 64.
fn free_stretch(used: u64, chunks: u64, step: u64) -> Option<u64> {
    // After the loop bit i of `free` says that bits i .. i + chunks are all clear in `used`.
    let mut free = !used;
    let (mut have, mut want) = (1, chunks);
    while want > 1 && free != 0 {
        let by = have.min(want - 1);
        free &= free >> by;
        have += by;
        want -= by;
    }
    free &= u64::MAX / ((1 << step) - 1);
    (free != 0).then(|| u64::from(free.trailing_zeros()))
}

#[cfg(test)]
mod tests {
    use super::free_stretch;

    #[test]
    fn the_lowest_stretch_of_free_chunks_is_found() {
        let mut state = 0x1234_5678_9ABC_DEF1_u64;
        for _ in 0..20_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let used = state & state.rotate_left(7) | 1;
            for chunks in [1, 2, 3, 5, 8, 13, 31, 63] {
                for step in [1, 2, 4, 8, 16, 32] {
                    let plain = (0..=64 - chunks)
                        .step_by(step as usize)
                        .find(|first| (*first..first + chunks).all(|i| used >> i & 1 == 0));
                    assert_eq!(free_stretch(used, chunks, step), plain, "{used:b} {chunks} {step}");
                }
            }
        }
        assert_eq!(free_stretch(1, 63, 1), Some(1));
        assert_eq!(free_stretch(u64::MAX, 1, 1), None);
    }
}
