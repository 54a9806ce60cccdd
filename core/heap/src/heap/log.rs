//! The undo log of a transaction. Recovery from it is `recovery`'s work.
//!
//! Before a range changes, its old bytes go into the log; before an object is allocated, its place
//! does; a free is only noted and happens at the commit. A record counts when its sequence is the
//! lane's and its checksum holds, so the one store that raises the lane's sequence commits
//! everything and empties the log. A transaction with frees first stores a "committed" mark, frees,
//! and then raises the sequence.
//!
//! Invariants:
//! - Within an extent the valid records are a prefix; each tells the distance back to the one
//!   before it.
//! - Extents beyond the lane's own chunk are linked newest to oldest. While one is linked or
//!   unlinked, `LANE_PENDING` names it, so that a kill loses none.
//! - Where order is kept (see `order`), a record is in memory before what it is about changes, and
//!   all that a transaction has changed is before the store that commits it.
//! - A range is not logged again as long as only ranges were since: what is undone newest first
//!   ends with the oldest record of each byte.

use crate::backing::Backing;
use crate::error::HeapError;
use crate::heap::Heap;
use crate::layout::*;
use crate::memory::{Memory, publish_barrier};

/// What a record notes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecordKind {
    /// Old bytes of a range.
    Range = 1,
    /// An object that the transaction allocates.
    Alloc = 2,
    /// An object to free at the commit.
    Free = 3,
}

/// The volatile side of the lane. In this order, so that `records` and `epoch` are not side by side:
/// what is stored as two words and loaded as one pair waits for all stores before it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Log {
    /// Levels of the open transaction; 0 when none is open.
    pub(crate) depth: u32,
    /// An inner level was aborted: the whole cannot commit any more.
    aborted: bool,
    frees: bool,
    pub(crate) sequence: u64,
    /// Where the next record goes, and where its extent ends.
    next: u64,
    end: u64,
    /// Size of the record before, 0 at the start of an extent.
    back: u32,
    records: u64,
    /// Ranges logged lately, each at a place that its start chooses; those of another epoch count
    /// no longer.
    ranges: [LoggedRange; RANGES],
    epoch: u64,
}

/// How many ranges are remembered.
const RANGES: usize = 64;

#[derive(Clone, Copy, Debug)]
struct LoggedRange {
    start: u64,
    end: u64,
    epoch: u64,
}

impl LoggedRange {
    const NONE: LoggedRange = LoggedRange { start: 0, end: 0, epoch: 0 };

    #[inline]
    const fn place(start: u64) -> usize {
        (start.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - RANGES.trailing_zeros())) as usize
    }
}

impl Log {
    pub(crate) const fn new() -> Log {
        Log {
            depth: 0,
            aborted: false,
            frees: false,
            sequence: 0,
            next: 0,
            end: 0,
            back: 0,
            records: 0,
            ranges: [LoggedRange::NONE; RANGES],
            epoch: 1,
        }
    }

    /// A transaction of one level is open from now on, and has no records.
    #[inline]
    pub(crate) fn start(&mut self) {
        (self.depth, self.aborted, self.frees) = (1, false, false);
        (self.next, self.end) = (LANE_OFFSET + EXTENT_RECORDS, LANE_OFFSET + CHUNK_BYTES);
        (self.back, self.records) = (0, 0);
        self.epoch += 1;
    }

    /// Whether a record of so many bytes fits into the extent.
    #[inline]
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.next + bytes <= self.end
    }

    /// Whether a commit of what is open is one store: it has one level, of which nothing was
    /// aborted, and frees nothing.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.depth == 1 && !self.aborted && !self.frees
    }

    /// Whether a range was logged, and nothing but ranges since.
    #[inline]
    pub(crate) fn knows(&self, start: u64, end: u64) -> bool {
        let known = self.ranges[LoggedRange::place(start)];
        known.epoch == self.epoch && known.start == start && end <= known.end
    }

    #[inline]
    pub(crate) fn note_range(&mut self, start: u64, end: u64) {
        self.ranges[LoggedRange::place(start)] = LoggedRange { start, end, epoch: self.epoch };
    }

    /// Something else than a range is logged.
    #[inline]
    pub(crate) fn forget_ranges(&mut self) {
        self.epoch += 1;
    }

    /// Records of the open transaction so far.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// Notes that a part of the open transaction failed after it had changed something: the whole
    /// cannot commit any more.
    pub(crate) fn doom(&mut self) {
        self.aborted = true;
    }

    #[inline]
    pub(crate) fn open(&self) -> bool {
        self.depth > 0
    }
}

/// A record that was found valid.
#[derive(Clone, Copy)]
pub(crate) struct Record {
    pub(crate) at: u64,
    pub(crate) kind: RecordKind,
    pub(crate) target: u64,
    pub(crate) payload: u64,
    pub(crate) back: u64,
}

impl Record {
    fn bytes(&self) -> u64 {
        record_bytes(self.payload)
    }
}

/// Bytes of a record with so many of payload, which are far from the largest number.
#[inline]
pub(crate) const fn record_bytes(payload: u64) -> u64 {
    RECORD_BYTES + ((payload + 7) & !7)
}

impl<B: Backing> Heap<B> {
    /// Begins a transaction, or joins the one that is open: the levels count as one, which ends
    /// with the outermost. Nothing is stored yet.
    ///
    /// # Errors
    /// [`HeapError::TransactionState`] after 2^32 - 1 levels; [`HeapError::ReadOnly`];
    /// [`HeapError::OtherHeap`] while the caller has a transaction open in another heap.
    #[inline]
    pub fn begin(&mut self) -> Result<(), HeapError> {
        if self.begin_at_once() { Ok(()) } else { self.begin_any() }
    }

    #[inline(never)]
    pub(super) fn begin_any(&mut self) -> Result<(), HeapError> {
        if self.log.open() {
            let deeper = self.log.depth.checked_add(1);
            self.log.depth = deeper.ok_or(HeapError::TransactionState { expected_open: false })?;
            return Ok(());
        }
        self.check_writable()?;
        if !self.backing.enter_transaction() {
            return Err(HeapError::OtherHeap);
        }
        self.log.start();
        Ok(())
    }

    /// Whether a transaction is open.
    pub fn in_transaction(&self) -> bool {
        self.log.open()
    }

    /// How many levels the open transaction has; 0 when none is open.
    pub fn transaction_depth(&self) -> u32 {
        self.log.depth
    }

    /// Ends a level; the outermost commits: everything since the first [`Heap::begin`] counts from
    /// one 8-byte store on.
    ///
    /// # Errors
    /// [`HeapError::TransactionState`] when none is open. [`HeapError::TransactionAborted`] at the
    /// outermost level when an inner one was aborted: everything has been rolled back then.
    #[inline]
    pub fn commit(&mut self) -> Result<(), HeapError> {
        if self.commit_at_once() { Ok(()) } else { self.commit_any() }
    }

    #[inline(never)]
    pub(super) fn commit_any(&mut self) -> Result<(), HeapError> {
        if !self.log.open() {
            return Err(HeapError::TransactionState { expected_open: true });
        }
        if self.log.depth > 1 {
            self.log.depth -= 1;
            return Ok(());
        }
        if self.log.aborted {
            self.abort()?;
            return Err(HeapError::TransactionAborted);
        }
        publish_barrier();
        self.log.depth = 0;
        self.backing.leave_transaction();
        if self.log.records == 0 {
            return Ok(());
        }
        if self.memory.is_ordered() {
            self.write_back_changes();
        }
        if self.log.frees {
            self.memory.store(LANE_OFFSET + LANE_STATE, self.log.sequence << 1 | 1);
            self.set_settling(true);
            self.apply_frees();
        }
        self.finish();
        Ok(())
    }

    /// Ends a level in such a way that nothing of the whole transaction remains: bytes and
    /// allocations go back to the first [`Heap::begin`] when the outermost level ends. Until then
    /// they stay as they are, and what the outer levels still do is rolled back, too.
    ///
    /// # Errors
    /// [`HeapError::TransactionState`] when none is open.
    pub fn abort(&mut self) -> Result<(), HeapError> {
        if !self.log.open() {
            return Err(HeapError::TransactionState { expected_open: true });
        }
        if self.log.depth > 1 {
            self.log.depth -= 1;
            self.log.aborted = true;
            return Ok(());
        }
        publish_barrier();
        self.log.depth = 0;
        self.backing.leave_transaction();
        if self.log.records > 0 {
            self.roll_back();
            self.finish();
        }
        Ok(())
    }

    /// Rolls back whatever is open.
    pub(crate) fn abort_all(&mut self) {
        self.log.depth = self.log.depth.min(1);
        let _ = self.abort();
    }

    /// Notes the bytes of a range, before the caller changes them; costs no room when it was noted
    /// a short while before.
    ///
    /// # Errors
    /// No open transaction, a range outside the heap, or no room for the log; nothing has changed
    /// then.
    #[inline]
    pub fn add_range(&mut self, pointer: *const u8, bytes: u64) -> Result<(), HeapError> {
        if self.add_range_at_once(pointer, bytes) {
            return Ok(());
        }
        self.add_any_range(pointer, bytes)
    }

    #[inline(never)]
    pub(super) fn add_any_range(
        &mut self,
        pointer: *const u8,
        bytes: u64,
    ) -> Result<(), HeapError> {
        if !self.log.open() {
            return Err(HeapError::TransactionState { expected_open: true });
        }
        let offset = self.memory.offset_of(pointer).ok_or(HeapError::OutsideHeap)?;
        if !self.memory.holds(offset, bytes) {
            return Err(HeapError::OutsideHeap);
        }
        if self.log.knows(offset, offset + bytes) {
            return Ok(());
        }
        let mut done = 0;
        while done < bytes {
            let piece = (bytes - done).min(RECORD_PAYLOAD_MAX);
            self.append(RecordKind::Range, offset + done, piece)?;
            done += piece;
        }
        self.log.note_range(offset, offset + bytes);
        Ok(())
    }

    pub(crate) fn log_alloc(&mut self, pointer: *const u8) -> Result<(), HeapError> {
        let offset = self.memory.offset_of(pointer).ok_or(HeapError::OutsideHeap)?;
        // An undone allocation looks at tables: what they were like must not be undone before.
        self.log.forget_ranges();
        self.append(RecordKind::Alloc, offset, 0)
    }

    pub(crate) fn log_free(&mut self, offset: u64) -> Result<(), HeapError> {
        self.log.forget_ranges();
        self.append(RecordKind::Free, offset, 0)?;
        self.log.frees = true;
        Ok(())
    }

    /// Makes sure that the next records, of `bytes` in all, need no new extent.
    pub(crate) fn make_room(&mut self, bytes: u64) -> Result<(), HeapError> {
        if self.log.has_room(bytes) { Ok(()) } else { self.add_extent(bytes) }
    }

    fn append(&mut self, kind: RecordKind, target: u64, payload: u64) -> Result<(), HeapError> {
        let bytes = record_bytes(payload);
        self.make_room(bytes)?;
        let at = self.log.next;
        if !self.write_record(kind, target, payload) {
            return Err(HeapError::OutsideHeap);
        }
        // Lines that arrive one by one are no record before all have: its sum says so.
        self.memory.persist(at, bytes);
        Ok(())
    }

    /// Writes the next record, for which there is room in the extent; `false`, and the log is what
    /// it was, for a target outside the heap.
    #[inline(always)]
    pub(crate) fn write_record(&mut self, kind: RecordKind, target: u64, payload: u64) -> bool {
        let bytes = record_bytes(payload);
        let at = self.log.next;
        debug_assert!(at.is_multiple_of(8), "extents and records are");
        if at + bytes > self.memory.len() || !self.memory.holds(target, payload) {
            return false;
        }
        // SAFETY: both ranges are inside the heap (checked: the payload is a part of the record).
        if payload > 0 && !unsafe { self.memory.copy_inside(target, at + RECORD_BYTES, payload) } {
            return false;
        }
        let lengths = payload | u64::from(self.log.back) << 32;
        let sequence = self.log.sequence << 8 | kind as u64;
        let payload_at = self.memory.at(at + RECORD_BYTES);
        // SAFETY: inside the heap (checked); the log belongs to this heap and no thread writes to
        // it while the sum is taken.
        let copy = unsafe { core::slice::from_raw_parts(payload_at, payload as usize) };
        // Each of these is a few instructions of its own.
        let sum = match payload {
            0 => sum_of_short_record(target, lengths, sequence, &[]),
            8..=16 => sum_of_short_record(target, lengths, sequence, copy),
            17..=32 => sum_of_short_record(target, lengths, sequence, copy),
            _ => sum_of_record(target, lengths, sequence, copy),
        };
        let word = |place| self.memory.at(at + place).cast::<u64>();
        // SAFETY: the record lies inside the heap (checked) and is aligned (extents and records are
        // multiples of 8), and so are its words.
        unsafe {
            Memory::store_word(word(RECORD_TARGET), target);
            Memory::store_word(word(RECORD_LENGTHS), lengths);
            Memory::store_word(word(RECORD_SUM), sum);
            // Last, because it makes the record count; and before whatever the caller does next.
            Memory::store_word(word(RECORD_SEQUENCE), sequence);
        }
        self.log.next += bytes;
        self.log.back = bytes as u32;
        self.log.records += 1;
        true
    }

    fn record_sum(&self, at: u64, target: u64, lengths: u64, sequence: u64) -> u64 {
        // SAFETY: the log belongs to this heap and no thread writes to it while the sum is taken.
        let payload = unsafe { self.memory.bytes(at + RECORD_BYTES, lengths & 0xFFFF_FFFF) };
        sum_of_record(target, lengths, sequence, payload.unwrap_or(&[]))
    }

    /// Adds an extent that has room for `bytes`; each is larger than the last.
    #[cold]
    fn add_extent(&mut self, bytes: u64) -> Result<(), HeapError> {
        let before = self.memory.load(LANE_OFFSET + LANE_EXTENT);
        let length = if before == 0 { 0 } else { self.memory.load(before + EXTENT_LENGTH) };
        let chunks = (length / CHUNK_BYTES * 4).clamp(4, RUN_CHUNKS_MAX);
        debug_assert!(EXTENT_RECORDS + bytes <= chunks * CHUNK_BYTES);
        let run = match self.find_run(chunks, 1) {
            Ok(run) => run,
            // Where a large one does not fit, the smallest that has the room may.
            Err(_) => self.find_run((EXTENT_RECORDS + bytes).div_ceil(CHUNK_BYTES), 1)?,
        };
        let at = run.offset();
        self.memory.store(LANE_OFFSET + LANE_PENDING, at);
        self.describe_run(run, HeadKind::Log, 0, run.chunks * CHUNK_BYTES);
        self.memory.zero(at, EXTENT_RECORDS + RECORD_BYTES);
        self.memory.store(at + EXTENT_OLDER, before);
        self.memory.store(at + EXTENT_LENGTH, run.chunks * CHUNK_BYTES);
        self.publish_run(run);
        self.memory.store(LANE_OFFSET + LANE_EXTENT, at);
        self.memory.store(LANE_OFFSET + LANE_PENDING, 0);
        self.log.next = at + EXTENT_RECORDS;
        self.log.end = at + run.chunks * CHUNK_BYTES;
        self.log.back = 0;
        Ok(())
    }

    /// Empties the log with one store, then gives the extra extents back.
    pub(crate) fn finish(&mut self) {
        self.log.sequence += 1;
        // What was freed is free before the log that would free it again is gone.
        self.memory.drain();
        self.memory.store(LANE_OFFSET + LANE_STATE, self.log.sequence << 1);
        if self.log.frees {
            self.set_settling(false);
        }
        for _ in 0..self.extents_max() {
            let extent = self.memory.load(LANE_OFFSET + LANE_EXTENT);
            if extent == 0 {
                break;
            }
            let run = self.run_at(extent, HeadKind::Log);
            self.memory.store(LANE_OFFSET + LANE_PENDING, extent);
            let older = run.map_or(0, |_| self.memory.load(extent + EXTENT_OLDER));
            self.memory.store(LANE_OFFSET + LANE_EXTENT, older);
            if let Some(run) = run {
                self.release_run(run);
            }
            self.memory.store(LANE_OFFSET + LANE_PENDING, 0);
        }
    }

    /// More extents than the heap has chunks there cannot be: bounds the walk over damaged links.
    fn extents_max(&self) -> u64 {
        self.memory.len() / CHUNK_BYTES
    }

    // --- reading
    // ------------------------------------------------------------------------------------

    /// The record at `at`, if it is valid in an extent that ends at `end`.
    pub(crate) fn record(&self, at: u64, end: u64, sequence: u64) -> Option<Record> {
        if at + RECORD_BYTES > end {
            return None;
        }
        let word = self.memory.load(at + RECORD_SEQUENCE);
        let kind = match word & 0xFF {
            1 => RecordKind::Range,
            2 => RecordKind::Alloc,
            3 => RecordKind::Free,
            _ => return None,
        };
        let (target, lengths) =
            (self.memory.load(at + RECORD_TARGET), self.memory.load(at + RECORD_LENGTHS));
        let payload = lengths & 0xFFFF_FFFF;
        let payload_max = if kind == RecordKind::Range { RECORD_PAYLOAD_MAX } else { 0 };
        let valid = payload <= payload_max
            && word >> 8 == sequence & (u64::MAX >> 8)
            && payload <= end - at - RECORD_BYTES
            && self.memory.holds(target, payload.max(1))
            && self.memory.load(at + RECORD_SUM) == self.record_sum(at, target, lengths, word);
        valid.then_some(Record { at, kind, target, payload, back: lengths >> 32 })
    }

    /// Calls `visit` for every valid record of every extent, newest extent first, in an extent
    /// newest record first. Bounded by the heap's size, whatever the bytes are.
    pub(crate) fn for_each_record(&mut self, mut visit: impl FnMut(&mut Self, Record)) {
        let sequence = self.memory.load(LANE_OFFSET + LANE_STATE) >> 1;
        let mut extent = self.memory.load(LANE_OFFSET + LANE_EXTENT);
        // Extents that do not overlap fit into the heap together: this ends the walk over links in
        // a circle.
        let mut left = self.memory.len();
        loop {
            let run = self.run_at(extent, HeadKind::Log).filter(|_| extent != 0);
            let (start, length) = match run {
                Some(run) => (extent, run.chunks * CHUNK_BYTES),
                None => (LANE_OFFSET, CHUNK_BYTES),
            };
            let end = start + length;
            let mut newest = None;
            let mut at = start + EXTENT_RECORDS;
            while let Some(record) = self.record(at, end, sequence) {
                at += record.bytes();
                newest = Some(record);
            }
            while let Some(record) = newest {
                visit(self, record);
                // The way back must be the way forth: a record that claims another one would be
                // visited with bytes that the walk forth has not accepted.
                newest = (record.back != 0)
                    .then(|| record.at.checked_sub(record.back))
                    .flatten()
                    .and_then(|at| self.record(at, end, sequence))
                    .filter(|before| before.at + before.bytes() == record.at);
            }
            left = left.saturating_sub(length);
            if run.is_none() || left == 0 {
                break;
            }
            extent = self.memory.load(extent + EXTENT_OLDER);
        }
    }

    /// Tells the threads whether what is being freed in their slabs may be taken: not before
    /// [`Heap::finish`] has emptied the log, because until then a recovery frees it again.
    fn set_settling(&self, settling: bool) {
        #[cfg(feature = "std")]
        if let Some(threads) = &self.threads {
            threads.set_settling(settling);
        }
        #[cfg(not(feature = "std"))]
        let _ = settling;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backing::Fixed;
    use crate::heap::{Heap, OpenOptions};
    use std::vec::Vec;

    const HEAP_BYTES: usize = 8 << 20;

    fn with_heap(test: impl FnOnce(&mut Heap<Fixed>)) {
        let mut words: Vec<u64> = std::vec![0; HEAP_BYTES / 8];
        // SAFETY: the memory is this function's, aligned to 8, and outlives the heap.
        let backing = unsafe { Fixed::new(words.as_mut_ptr().cast(), HEAP_BYTES as u64) };
        let mut heap =
            Heap::open(backing, OpenOptions { pointers: None, format_if_empty: true }).unwrap();
        test(&mut heap);
    }

    /// A record that claims more than any writer logs does not count.
    #[test]
    fn impossible_record_does_not_count() {
        with_heap(|heap| {
            let object = heap.alloc_zeroed(100_000).unwrap();
            let offset = heap.offset_of(object).unwrap();
            heap.begin().unwrap();
            heap.append(RecordKind::Range, offset, RECORD_PAYLOAD_MAX + 8).unwrap();
            let sequence = heap.log.sequence;
            let at = LANE_OFFSET + EXTENT_RECORDS;
            assert!(heap.record(at, LANE_OFFSET + CHUNK_BYTES, sequence).is_none());
            heap.abort().unwrap();
            heap.begin().unwrap();
            heap.append(RecordKind::Alloc, offset, 8).unwrap();
            assert!(heap.record(at, LANE_OFFSET + CHUNK_BYTES, heap.log.sequence).is_none());
        });
    }

    /// Extents linked in a circle are walked no further than the heap is large.
    #[test]
    fn circular_extents_are_walked_to_a_bound() {
        with_heap(|heap| {
            let object = heap.alloc(100_000).unwrap();
            heap.begin().unwrap();
            heap.add_range(object.as_ptr(), 100_000).unwrap();
            let extent = heap.memory.load(LANE_OFFSET + LANE_EXTENT);
            assert_ne!(extent, 0, "the log did not outgrow its chunk");
            heap.memory.store(extent + EXTENT_OLDER, extent);
            let mut payload = 0;
            heap.for_each_record(|_, record| payload += record.payload);
            assert!(
                payload <= HEAP_BYTES as u64,
                "{payload} bytes of records in a heap of {HEAP_BYTES}"
            );
        });
    }
}
