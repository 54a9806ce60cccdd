//! Recovery of an undo log: its stores are undone, or its frees done; at a commit or an abort, and
//! when a heap is opened whose last session was killed.
//!
//! Invariant:
//! - Recovery can be killed and run again: what is undone is struck from the log, newest first, and
//!   freeing what is already free changes nothing.

use crate::backing::Backing;
use crate::error::OpenError;
use crate::heap::Heap;
use crate::heap::chunks::Run;
use crate::heap::log::RecordKind;
use crate::layout::*;

impl<B: Backing> Heap<B> {
    /// Undoes newest to oldest. What is undone no longer counts: an object that was given back may
    /// be a table by now, and must not be overwritten when this is killed and done again.
    pub(crate) fn roll_back(&mut self) {
        self.for_each_record(|heap, record| {
            match record.kind {
                RecordKind::Range => {
                    heap.memory.copy(record.at + RECORD_BYTES, record.target, record.payload);
                    heap.memory.write_back(record.target, record.payload);
                }
                RecordKind::Alloc => heap.free_if_allocated(record.target),
                RecordKind::Free => {}
            }
            heap.memory.drain();
            heap.memory.store(record.at + RECORD_SEQUENCE, 0);
        });
    }

    pub(crate) fn apply_frees(&mut self) {
        self.for_each_record(|heap, record| {
            if record.kind == RecordKind::Free {
                heap.free_if_allocated(record.target);
            }
        });
    }

    /// Whether there is nothing that [`Heap::recover_log`] would have to store. A heap that may
    /// only be read is opened only then.
    pub(crate) fn check_settled(&self) -> Result<(), OpenError> {
        let load = |at| self.memory.load(LANE_OFFSET + at);
        let state = load(LANE_STATE);
        let first =
            self.record(LANE_OFFSET + EXTENT_RECORDS, LANE_OFFSET + CHUNK_BYTES, state >> 1);
        let settled =
            state & 1 == 0 && load(LANE_PENDING) == 0 && load(LANE_EXTENT) == 0 && first.is_none();
        if settled { Ok(()) } else { Err(OpenError::Unfinished) }
    }

    /// Completes or undoes what the last session left; returns whether there was anything.
    pub(crate) fn recover_log(&mut self) -> Result<bool, OpenError> {
        let lane = Run { segment: 0, first: LANE_OFFSET / CHUNK_BYTES, chunks: 1 };
        if self.run_at(LANE_OFFSET, HeadKind::Log) != Some(lane) {
            return Err(OpenError::Damaged {
                offset: lane.descriptor(),
                what: "the transaction lane is not described",
            });
        }
        let state = self.memory.load(LANE_OFFSET + LANE_STATE);
        self.log.sequence = state >> 1;
        let mut found = false;
        let pending = self.memory.load(LANE_OFFSET + LANE_PENDING);
        if pending != 0 {
            found = true;
            if self.memory.load(LANE_OFFSET + LANE_EXTENT) != pending
                && pending != LANE_OFFSET
                && let Some(run) = self.run_at(pending, HeadKind::Log)
            {
                self.release_run(run);
            }
            self.memory.store(LANE_OFFSET + LANE_PENDING, 0);
        }
        let extent = self.memory.load(LANE_OFFSET + LANE_EXTENT);
        let first =
            self.record(LANE_OFFSET + EXTENT_RECORDS, LANE_OFFSET + CHUNK_BYTES, state >> 1);
        if state & 1 == 0 && extent == 0 && first.is_none() {
            return Ok(found);
        }
        if state & 1 == 1 {
            self.apply_frees();
        } else {
            self.roll_back();
        }
        self.finish();
        Ok(true)
    }
}
