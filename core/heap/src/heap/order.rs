//! Heaps in memory that survives a reset of the machine: what reaches memory before what.
//!
//! A reset loses what is in caches, and until then the processor writes lines back in any order. So
//! an ordered heap ([`Backing::is_ordered`]) writes lines back itself, as PMDK does (Rudoff,
//! "Persistent Memory Programming").
//!
//! Invariants:
//! - A store to metadata is in memory before the next one happens. Those of a log record count as
//!   one, and so do the bits of slots that a transaction takes or frees: recovery gives each of
//!   them the same value whatever it finds.
//! - So a reset leaves what a kill between two stores leaves, but for the program's own bytes. What
//!   a transaction noted of these is undone, or is in memory before the transaction counts; so is
//!   every object that it allocated.
//! - The order is that of one thread. What a thread hands on to another one has been drained.
//!
//! What it must not do: promise anything about bytes that were stored outside of transactions and
//! not persisted.

use crate::backing::Backing;
use crate::error::HeapError;
use crate::heap::Heap;
use crate::heap::chunks::Run;
use crate::heap::log::RecordKind;
use crate::layout::*;

impl<B: Backing> Heap<B> {
    /// Whether the heap keeps an order of stores that a reset of the machine does not destroy: then
    /// each committed transaction, and each allocation and free outside of one, is in memory when
    /// its call returns.
    pub fn is_ordered(&self) -> bool {
        self.memory.is_ordered()
    }

    /// Brings bytes to memory that were stored without a transaction: those of an object that was
    /// allocated and filled outside of one, before a transaction links it. Costs nothing in a heap
    /// that is not ordered, where stores are safe from a crash of the program at once and from more
    /// by a commit only.
    ///
    /// # Errors
    /// [`HeapError::OutsideHeap`].
    pub fn persist(&self, pointer: *const u8, bytes: u64) -> Result<(), HeapError> {
        let offset = self.memory.offset_of(pointer).ok_or(HeapError::OutsideHeap)?;
        if !self.memory.holds(offset, bytes) {
            return Err(HeapError::OutsideHeap);
        }
        self.memory.persist(offset, bytes);
        Ok(())
    }

    /// Brings to memory what the open transaction noted and what it allocated.
    pub(crate) fn write_back_changes(&mut self) {
        self.for_each_record(|heap, record| match record.kind {
            RecordKind::Range => heap.memory.write_back(record.target, record.payload),
            RecordKind::Alloc => {
                let (start, bytes) = heap.allocated_at(record.target);
                heap.memory.write_back(start, bytes);
            }
            RecordKind::Free => {}
        });
        self.memory.drain();
    }

    /// The bytes that came with what was allocated at `offset`: an object, or what one that began
    /// before has grown over.
    fn allocated_at(&self, offset: u64) -> (u64, u64) {
        let segment = offset / SEGMENT_BYTES;
        if offset % SEGMENT_BYTES == CHUNK_BYTES {
            // Segments inside an object have no tables, but its bytes, whatever these look like.
            let (first, span) = self.segments_around(segment);
            let start = if first == segment { offset } else { segment * SEGMENT_BYTES };
            if span > 1 {
                return (
                    start,
                    ((first + span) * SEGMENT_BYTES).min(self.memory.len()).saturating_sub(start),
                );
            }
        }
        let end = match self.place(offset) {
            Some(place) => offset + place.usable_bytes(),
            None => self
                .run_around(offset)
                .map_or(offset, |run| run.offset() + run.chunks * CHUNK_BYTES),
        };
        (offset, end - offset)
    }

    /// The segments of the object that has this one, or this one alone.
    fn segments_around(&self, segment: u64) -> (u64, u64) {
        let (mut first, segments) = (0, self.segments());
        while first < segments {
            let span = self.span_of(first);
            if segment < first + span {
                return (first, span);
            }
            first += span;
        }
        (segment, 1)
    }

    /// The run of an object that has the chunk at `offset`, in a segment that is not spanned.
    fn run_around(&self, offset: u64) -> Option<Run> {
        let (segment, chunk) = (offset / SEGMENT_BYTES, offset / CHUNK_BYTES % SEGMENT_CHUNKS);
        let starts = (1..=chunk).rev().map(|chunk| segment * SEGMENT_BYTES + chunk * CHUNK_BYTES);
        starts
            .filter_map(|start| self.run_at(start, HeadKind::Run))
            .find(|run| run.first + run.chunks > chunk)
    }
}
