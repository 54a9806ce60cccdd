//! Changing the size of an object.
//!
//! Invariants:
//! - Each resize is a transaction of its own, or part of the open one: after a kill the object has
//!   its old place and size, or the new one; never are both allocated, or neither.
//! - A run that grows first allocates the chunks behind it as a run of their own, then the head of
//!   the first spans both; one that shrinks splits the chunks off as a run of their own, which the
//!   commit frees. So the log needs no records beyond those of ranges, allocations and frees.
//! - An object of whole segments does the same with segments. What becomes a table, or was one and
//!   becomes content, is in the log: a rollback first makes the object as long as it was, then that
//!   part what it was.
//!
//! What it must not do: log the word of used chunks, whose other bits belong to others.

use core::ptr::NonNull;

use crate::backing::Backing;
use crate::classes::{NARROW_BYTES_MAX, class_of};
use crate::error::HeapError;
use crate::heap::chunks::Run;
use crate::heap::{Heap, Place};
use crate::layout::*;

/// Log records of a run that changes its length: an allocation or a free, and four words.
const RECORDS_BYTES: u64 = RECORD_BYTES + 4 * (RECORD_BYTES + 8);
/// The words of a descriptor that say what is there: head, used chunks, bytes.
const DESC_WORDS_BYTES: u64 = 24;
/// Log records of an object of whole segments that changes its length: an allocation or a free, the
/// words of two descriptors, and two words. The table of a single segment comes on top.
const SEGMENT_RECORDS_BYTES: u64 = RECORD_BYTES + 4 * (RECORD_BYTES + DESC_WORDS_BYTES);

impl<B: Backing> Heap<B> {
    /// Gives the object at `pointer` room for `bytes`; returns where it lies then. In place, if the
    /// slot has room or the chunks or segments behind it are free; else in a new place (aligned to
    /// 16, whatever it was before), with the content copied and the old place freed. The content of
    /// what is new is whatever was there before.
    ///
    /// In an open transaction all of it belongs to that: a rollback or a kill leaves the object in
    /// its old place, with its old size (its content as far as [`Heap::add_range`] was told), and
    /// the old place is not given to others before the commit. Outside of one, a kill leaves the
    /// object at the old place or at the new one. The links to it are the caller's own: if one is
    /// kept in the heap, resize and change it in one transaction.
    ///
    /// The object of a root must not be moved like this, as its name would lead to the old place:
    /// that is [`Heap::resize_root`].
    ///
    /// # Errors
    /// [`HeapError::NotAllocated`], [`HeapError::OutOfMemory`]; the object is then as it was.
    pub fn realloc(&mut self, pointer: NonNull<u8>, bytes: u64) -> Result<NonNull<u8>, HeapError> {
        self.check_writable()?;
        let offset = self.offset_of(pointer).ok_or(HeapError::NotAllocated)?;
        let place = self.place(offset).ok_or(HeapError::NotAllocated)?;
        let usable = place.usable_bytes();
        let in_place = match place {
            Place::Run(run) if bytes > NARROW_BYTES_MAX => self.resize_run(run, bytes)?,
            Place::Spanning { first, span, start } => {
                self.resize_spanning(first, span, start, bytes)?
            }
            Place::Run(_) | Place::Slot(_) | Place::Wide(_) => false,
        };
        if in_place {
            return Ok(pointer);
        }
        if bytes > usable {
            return self.move_object(pointer, usable, bytes);
        }
        let saves = match place {
            Place::Slot(_) => class_of(bytes) != class_of(usable) && bytes <= usable / 2,
            Place::Wide(_) | Place::Run(_) | Place::Spanning { .. } => bytes <= usable / 2,
        };
        if saves {
            // Without room to move to, the object keeps more than it needs.
            return self.move_object(pointer, bytes, bytes).or(Ok(pointer));
        }
        Ok(pointer)
    }

    /// As [`Heap::realloc`]; of the new size, what lies past `old_bytes` is zero.
    ///
    /// # Errors
    /// As [`Heap::realloc`].
    pub fn realloc_zeroed(
        &mut self,
        pointer: NonNull<u8>,
        old_bytes: u64,
        bytes: u64,
    ) -> Result<NonNull<u8>, HeapError> {
        let usable = self.usable_bytes(pointer)?;
        let joins = self.in_transaction();
        self.all_or_nothing(|heap| {
            let place = heap.realloc(pointer, bytes)?;
            if bytes <= old_bytes {
                return Ok(place);
            }
            if joins && place == pointer {
                // It may have been content when the transaction began.
                let known = usable.min(bytes).saturating_sub(old_bytes);
                heap.add_range(place.as_ptr().wrapping_add(old_bytes as usize), known)?;
            }
            let offset = heap.offset_of(place).ok_or(HeapError::OutsideHeap)?;
            heap.memory.zero(offset + old_bytes, bytes - old_bytes);
            Ok(place)
        })
    }

    fn move_object(
        &mut self,
        from: NonNull<u8>,
        kept: u64,
        bytes: u64,
    ) -> Result<NonNull<u8>, HeapError> {
        self.all_or_nothing(|heap| {
            // Before anything is allocated: after that the log must not fail.
            heap.make_room(2 * RECORD_BYTES)?;
            let to = heap.alloc(bytes)?;
            let (source, target) = (heap.offset_of(from), heap.offset_of(to));
            let (Some(source), Some(target)) = (source, target) else {
                return Err(HeapError::OutsideHeap);
            };
            if !heap.memory.copy(source, target, kept.min(bytes)) {
                return Err(HeapError::OutsideHeap);
            }
            heap.free(from)?;
            Ok(to)
        })
    }

    /// Makes a run as long as `bytes` need, where it is; `false` when there is no room for that.
    fn resize_run(&mut self, run: Run, bytes: u64) -> Result<bool, HeapError> {
        let chunks = bytes.div_ceil(CHUNK_BYTES);
        if chunks == run.chunks {
            return Ok(true);
        }
        if run.first + chunks > SEGMENT_CHUNKS {
            return Ok(false);
        }
        self.all_or_nothing(|heap| {
            // Before a place is chosen: an extent of the log could take it. Without room for that
            // one that was to shrink keeps what it has.
            if heap.make_room(RECORDS_BYTES).is_err() {
                return Ok(false);
            }
            if chunks < run.chunks {
                heap.shrink_run(run, chunks, bytes)
            } else {
                heap.grow_run(run, chunks, bytes)
            }
        })
    }

    fn shrink_run(&mut self, run: Run, chunks: u64, bytes: u64) -> Result<bool, HeapError> {
        let rest = Run { first: run.first + chunks, chunks: run.chunks - chunks, ..run };
        self.store_run_logged(rest, rest.chunks, rest.chunks * CHUNK_BYTES)?;
        self.store_run_logged(run, chunks, bytes)?;
        self.log_free(rest.offset())?;
        Ok(true)
    }

    fn grow_run(&mut self, run: Run, chunks: u64, bytes: u64) -> Result<bool, HeapError> {
        let rest = Run { first: run.first + run.chunks, chunks: chunks - run.chunks, ..run };
        if self.used_chunks(run.segment) & rest.mask() != 0 {
            return Ok(false);
        }
        self.describe_run(rest, HeadKind::Run, 0, 0);
        self.log_alloc(self.memory.at(rest.offset()))?;
        self.publish_run(rest);
        let inside = Head { kind: HeadKind::Inside, class: 0, span: 1 };
        self.store_logged(rest.descriptor() + DESC_HEAD, inside.encode())?;
        self.store_run_logged(run, chunks, bytes)?;
        Ok(true)
    }

    fn store_run_logged(&mut self, run: Run, chunks: u64, bytes: u64) -> Result<(), HeapError> {
        let head = Head { kind: HeadKind::Run, class: 0, span: chunks as u32 };
        self.store_logged(run.descriptor() + DESC_RUN_BYTES, bytes)?;
        self.store_logged(run.descriptor() + DESC_HEAD, head.encode())
    }

    /// Makes an object of whole segments as long as `bytes` need, where it is; `false` when there
    /// is no room for that, or when one segment would do.
    fn resize_spanning(
        &mut self,
        first: u64,
        span: u64,
        start: u64,
        bytes: u64,
    ) -> Result<bool, HeapError> {
        let wanted = start.saturating_add(bytes).div_ceil(SEGMENT_BYTES);
        let head = Head::decode(self.memory.load(first * SEGMENT_BYTES + DESC_HEAD));
        let (Some(head), Ok(wanted_span)) = (head, u32::try_from(wanted)) else { return Ok(false) };
        if wanted < 2 || wanted == span {
            return Ok(wanted == span);
        }
        self.all_or_nothing(|heap| {
            // Before a place is chosen: an extent of the log could take it.
            let table_bytes = if wanted + 1 == span { CHUNK_BYTES } else { 0 };
            let room = heap.make_room(SEGMENT_RECORDS_BYTES + table_bytes).is_ok();
            let rest = if wanted < span { first + wanted } else { first + span };
            if !room || wanted > span && !heap.free_segments(rest, wanted - span, bytes) {
                return Ok(false);
            }
            if wanted < span {
                heap.split_segments(rest, span - wanted)?;
            } else {
                heap.join_segments(first, rest, wanted - span)?;
            }
            heap.store_logged(first * SEGMENT_BYTES + DESC_RUN_BYTES, bytes)?;
            let head = Head { span: wanted_span, ..head };
            heap.store_logged(first * SEGMENT_BYTES + DESC_HEAD, head.encode())?;
            if wanted < span {
                heap.log_free(rest * SEGMENT_BYTES + CHUNK_BYTES)?;
            }
            Ok(true)
        })
    }

    /// Whether `count` segments from `first` on are free; at the heap's end new ones are made.
    fn free_segments(&mut self, first: u64, count: u64, wanted_bytes: u64) -> bool {
        let behind = self.segments().saturating_sub(first).min(count);
        let free =
            |segment| self.span_of(segment) == 1 && self.used_chunks(segment) == TABLE_CHUNK_BIT;
        (first..first + behind).all(free)
            && (behind == count || self.add_free_segments(count - behind, wanted_bytes).is_ok())
    }

    /// Makes the last segments of an object an object of their own: in the log, what of their
    /// content becomes a table.
    fn split_segments(&mut self, first: u64, count: u64) -> Result<(), HeapError> {
        let table = first * SEGMENT_BYTES;
        // Of a single segment, all of its descriptors mean something.
        let table_bytes = if count == 1 { CHUNK_BYTES } else { DESC_WORDS_BYTES };
        self.add_range(self.memory.at(table), table_bytes)?;
        self.describe_segments(first, count);
        self.memory.store(table + DESC_HEAD, segments_head(count));
        Ok(())
    }

    /// Makes free segments an object, which the one that begins with the segment `object` grows
    /// over: its beginning is in the log, and so is its table, which becomes content.
    fn join_segments(&mut self, object: u64, first: u64, count: u64) -> Result<(), HeapError> {
        // Their tables will mean nothing: nothing volatile may still point there.
        self.rovers.leave_object(object);
        self.forget_slabs_in(object, first + count);
        let table = first * SEGMENT_BYTES;
        self.log_alloc(self.memory.at(table + CHUNK_BYTES))?;
        self.describe_segments(first, count);
        self.memory.store(table + DESC_HEAD, segments_head(count));
        self.add_range(self.memory.at(table), DESC_WORDS_BYTES)?;
        self.add_range(self.memory.at(table + DESCRIPTOR_BYTES), DESC_WORDS_BYTES)
    }

    /// Writes the tables of an object of `count` segments but for the head of the first. One
    /// segment is a run of all its chunks.
    fn describe_segments(&self, first: u64, count: u64) {
        let table = first * SEGMENT_BYTES;
        self.memory.store(table + DESC_RUN_BYTES, count * SEGMENT_BYTES - CHUNK_BYTES);
        if count == 1 {
            let run = Run { segment: first, first: 1, chunks: RUN_CHUNKS_MAX };
            self.describe_run(run, HeadKind::Run, 0, RUN_CHUNKS_MAX * CHUNK_BYTES);
        }
        let used = if count == 1 { u64::MAX } else { TABLE_CHUNK_BIT };
        self.memory.store(table + DESC_USED_CHUNKS, used);
    }
}

fn segments_head(count: u64) -> u64 {
    Head { kind: HeadKind::Segment, class: 0, span: count as u32 }.encode()
}
