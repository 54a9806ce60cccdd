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

/// Where the search for room begins: a heap may have many segments with too few free chunks for what
/// is wanted, and none is looked at twice for that.
///
/// Invariants:
/// - Before the segment of a number of chunks there is none with as many free ones in a row; so
///   these segments ascend with that number.
/// - None of them is inside a large object: what is there is no table.
#[derive(Clone, Debug)]
pub(crate) struct Rovers {
    /// By chunks of the run. All of a segment are what a large object needs. A heap is moved on the
    /// small stacks of applets, so these are numbers of 32 bits, which is enough for 2^54 bytes.
    first: [u32; SEGMENT_CHUNKS as usize],
    /// No segment before this one has absent chunks.
    absent: u64,
}

impl Rovers {
    /// Every search begins at the first segment.
    pub(crate) const fn new() -> Rovers {
        Rovers { first: [0; SEGMENT_CHUNKS as usize], absent: 0 }
    }

    /// The segment from which absent chunks are looked for.
    pub(crate) fn absent(&self) -> u64 {
        self.absent
    }

    /// No segment before this one has absent chunks.
    pub(crate) fn set_absent(&mut self, segment: u64) {
        self.absent = segment;
    }

    fn of(&self, chunks: u64) -> u64 {
        self.first.get(chunks as usize).copied().unwrap_or(0).into()
    }

    /// No segment before this one has so many free chunks in a row, nor more.
    fn raise(&mut self, chunks: u64, segment: u64) {
        let segment = u32::try_from(segment).unwrap_or(u32::MAX);
        for first in self.first.iter_mut().skip(chunks as usize) {
            if *first >= segment {
                break;
            }
            *first = segment;
        }
    }

    /// Chunks of this segment have become free.
    pub(crate) fn lower(&mut self, segment: u64) {
        let segment = u32::try_from(segment).unwrap_or(u32::MAX);
        for first in self.first.iter_mut().rev() {
            if *first <= segment {
                break;
            }
            *first = segment;
        }
    }

    /// A large object begins with this segment and has some of those behind it: no search begins
    /// inside.
    pub(crate) fn leave_object(&mut self, segment: u64) {
        self.lower(segment);
        self.absent = self.absent.min(segment);
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
    /// growing the heap if there is none, or else giving back what small objects keep and do not
    /// use. A run with its step fits into a segment; nothing is published yet.
    pub(crate) fn find_run(&mut self, chunks: u64, step: u64) -> Result<Run, HeapError> {
        match self.find_unclaimed_run(chunks, step) {
            Err(_) if self.give_back_unused() => self.find_unclaimed_run(chunks, step),
            found => found,
        }
    }

    /// As [`Heap::find_run`], without what small objects keep.
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
        let mut segment = self.rovers.of(chunks);
        let mut first_with_room = None;
        while segment < segments {
            let span = self.span_of(segment);
            if span == 1 {
                let used = self.used_chunks(segment);
                if free_stretch(used, chunks, 1).is_some() {
                    let with_room = *first_with_room.get_or_insert(segment);
                    if let Some(first) = free_stretch(used, chunks, step) {
                        self.rovers.raise(chunks, with_room);
                        return Some(Run { segment, first, chunks });
                    }
                }
            }
            segment += span;
        }
        self.rovers.raise(chunks, first_with_room.unwrap_or(segments));
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
        self.rovers.lower(run.segment);
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
            Err(_) if self.give_back_unused() => self.find_unclaimed_segments(span, wanted_bytes),
            found => found,
        }
    }

    fn find_unclaimed_segments(
        &mut self,
        span: u64,
        wanted_bytes: u64,
    ) -> Result<(u64, bool), HeapError> {
        let segments = self.segments();
        let (mut segment, mut stretch) = (self.rovers.of(RUN_CHUNKS_MAX), 0);
        let mut first_free = None;
        while segment < segments {
            let own = self.span_of(segment);
            if own == 1 && self.used_chunks(segment) == TABLE_CHUNK_BIT {
                let free = *first_free.get_or_insert(segment);
                stretch += 1;
                if stretch == span {
                    self.rovers.raise(RUN_CHUNKS_MAX, free);
                    return Ok((segment + 1 - span, false));
                }
            } else {
                stretch = 0;
            }
            segment += own;
        }
        self.rovers.raise(RUN_CHUNKS_MAX, first_free.unwrap_or(segments));
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
        self.rovers.leave_object(first);
        self.forget_slabs_in(first, first + u64::from(head.span));
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
        self.rovers.lower(first);
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
    use super::*;
    use crate::backing::Fixed;
    use crate::heap::OpenOptions;
    use core::ptr::NonNull;
    use std::vec::Vec;

    fn with_heap(segments: u64, test: impl FnOnce(&mut Heap<Fixed>)) {
        let mut words: Vec<u64> = std::vec![0; (segments * SEGMENT_BYTES / 8) as usize];
        let bytes = size_of_val(words.as_slice()) as u64;
        // SAFETY: the memory is this function's, aligned to 8, and outlives the heap.
        let backing = unsafe { Fixed::new(words.as_mut_ptr().cast(), bytes) };
        let options = OpenOptions { pointers: None, format_if_empty: true };
        test(&mut Heap::open(backing, options).unwrap());
    }

    fn segment_of(heap: &Heap<Fixed>, object: NonNull<u8>) -> u64 {
        heap.offset_of(object).unwrap() / SEGMENT_BYTES
    }

    /// Each object of two chunks was looked for in every segment that had one free chunk: with many
    /// segments that took longer than to use the object.
    #[test]
    fn crowded_segments_are_not_searched_again() {
        const SEGMENTS: u64 = 8;
        with_heap(SEGMENTS, |heap| {
            let objects: Vec<_> =
                core::iter::from_fn(|| heap.alloc(2 * CHUNK_BYTES).ok()).collect();
            assert_eq!(objects.len() as u64, SEGMENTS * 31);
            // All but the first segment, which has the log, have a chunk left.
            assert_eq!((heap.rovers.of(1), heap.rovers.of(2)), (0, SEGMENTS));
            let small = heap.alloc(CHUNK_BYTES).unwrap();
            assert_eq!(segment_of(heap, small), 1);
            assert_eq!((heap.rovers.of(1), heap.rovers.of(2)), (1, SEGMENTS));
            assert_eq!(heap.rovers.absent(), SEGMENTS);
            // What is freed is found again, and a larger hole than one that was looked for.
            for freed in [&objects[100..101], &objects[40..42]] {
                freed.iter().for_each(|object| heap.free(*object).unwrap());
                assert_eq!(heap.rovers.of(RUN_CHUNKS_MAX), segment_of(heap, freed[0]));
                let found = heap.alloc(freed.len() as u64 * 2 * CHUNK_BYTES).unwrap();
                assert_eq!(found, freed[0]);
            }
            assert!(heap.alloc(2 * CHUNK_BYTES).is_err());
        });
    }

    /// A search for whole segments goes on where the last one ended, and none begins inside of what
    /// an object has grown over: its bytes are no tables.
    #[test]
    fn search_for_segments_begins_inside_no_object() {
        const LARGE: u64 = 6 << 20;
        const WHOLE: u64 = RUN_CHUNKS_MAX * CHUNK_BYTES;
        with_heap(10, |heap| {
            // Behind the first segment, which has the log, two segments each.
            let large: Vec<_> = (0..3).map(|_| heap.alloc(LARGE).unwrap()).collect();
            assert_eq!(heap.rovers.of(RUN_CHUNKS_MAX), 5);
            heap.free(large[1]).unwrap();
            assert_eq!(heap.rovers.of(RUN_CHUNKS_MAX), 3);
            let whole = heap.alloc(WHOLE).unwrap();
            let last = heap.alloc(LARGE).unwrap();
            assert_eq!((segment_of(heap, whole), segment_of(heap, last)), (3, 7));
            assert_eq!(heap.rovers.of(RUN_CHUNKS_MAX), 4);
            heap.free(whole).unwrap();
            heap.free(last).unwrap();
            assert_eq!(heap.alloc(LARGE), Ok(large[1]));
            let whole = heap.alloc(WHOLE).unwrap();
            heap.free(whole).unwrap();
            assert_eq!(heap.rovers.of(RUN_CHUNKS_MAX), 7);
            assert_eq!(heap.realloc(large[2], 14 << 20), Ok(large[2]));
            let whole = heap.alloc(WHOLE).unwrap();
            assert_eq!(segment_of(heap, whole), 9);
        });
    }

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
