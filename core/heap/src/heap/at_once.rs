//! The short way of small transactions: begin, note a range, allocate and commit where nothing has
//! to be looked for and nothing can fail.
//!
//! Invariants:
//! - The same stores in the same order as on the long way (`log`, `slabs`): a record before what it
//!   is about, the store of the lane's sequence after all.
//! - A function that returns `false` or `None` has changed nothing. Its caller then takes the long
//!   way, which does the work or says why it cannot.
//!
//! What it must not do: anything in an ordered heap, because it writes nothing back; add or give
//! back an extent of the log.

use core::ptr::NonNull;

use crate::backing::Backing;
use crate::classes::{SMALL_BYTES_MAX, class_of};
use crate::heap::Heap;
use crate::heap::log::{RecordKind, record_bytes};
use crate::layout::*;
use crate::memory::publish_barrier;

/// Longer ranges take longer than the way to them.
const RANGE_BYTES_MAX: u64 = 512;

impl<B: Backing> Heap<B> {
    /// As [`Heap::begin`] where no transaction is open; `false`, and nothing done, where that would
    /// do something else or fail.
    #[inline]
    pub fn begin_at_once(&mut self) -> bool {
        let begins = !self.log.open() && !self.read_only && self.backing.enter_transaction();
        if begins {
            self.log.start();
        }
        begins
    }

    /// As [`Heap::add_range`], of a short range; `false`, and nothing done, where that takes longer
    /// or would fail.
    #[inline]
    pub fn add_range_at_once(&mut self, pointer: *const u8, bytes: u64) -> bool {
        if !self.log.open() || self.memory.is_ordered() || bytes == 0 || bytes > RANGE_BYTES_MAX {
            return false;
        }
        // Of a pointer outside of the heap this is an offset that it does not hold.
        let offset = (pointer as usize as u64).wrapping_sub(self.memory.at(0) as usize as u64);
        if !self.memory.holds(offset, bytes) {
            return false;
        }
        if self.log.knows(offset, offset + bytes) {
            return true;
        }
        let done = self.log.has_room(record_bytes(bytes))
            && self.write_record(RecordKind::Range, offset, bytes);
        if done {
            self.log.note_range(offset, offset + bytes);
        }
        done
    }

    /// As [`Heap::alloc`] in a transaction, of a small object; `None`, and nothing done, where no
    /// transaction is open or no slot is at hand.
    #[inline(always)]
    pub fn alloc_at_once(&mut self, bytes: u64) -> Option<NonNull<u8>> {
        if bytes > SMALL_BYTES_MAX || !self.log.open() {
            return None;
        }
        self.take_logged(class_of(bytes))
    }

    /// As [`Heap::alloc_at_once`], with every byte zero.
    #[inline]
    pub fn alloc_zeroed_at_once(&mut self, bytes: u64) -> Option<NonNull<u8>> {
        let object = self.alloc_at_once(bytes)?;
        let offset = self.offset_of(object)?;
        // The heap is not an ordered one.
        self.memory.zero_cached(offset, bytes).then_some(object)
    }

    /// A slot of the class, if the slab that is looked at has a free one; a transaction is open.
    #[inline(always)]
    pub(super) fn take_logged(&mut self, class: usize) -> Option<NonNull<u8>> {
        if self.memory.is_ordered() || !self.log.has_room(RECORD_BYTES) {
            return None;
        }
        let slot = match self.peek_slot(class) {
            Some(slot) => slot,
            None => self.peek_slot_near(class)?,
        };
        let object = NonNull::new(slot.pointer)?;
        let offset = self.memory.offset_of(slot.pointer)?;
        if !self.write_record(RecordKind::Alloc, offset, 0) {
            return None;
        }
        self.log.forget_ranges();
        self.take_slot(slot);
        Some(object)
    }

    /// As [`Heap::commit`] where that is one store; `false`, and nothing done, where it is more or
    /// would fail.
    #[inline]
    pub fn commit_at_once(&mut self) -> bool {
        if !self.log.is_plain()
            || self.memory.is_ordered()
            || self.memory.load(LANE_OFFSET + LANE_EXTENT) != 0
        {
            return false;
        }
        publish_barrier();
        self.log.depth = 0;
        self.backing.leave_transaction();
        if self.log.records() > 0 {
            self.log.sequence += 1;
            self.memory.store_cached(LANE_OFFSET + LANE_STATE, self.log.sequence << 1);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backing::Fixed;
    use crate::error::HeapError;
    use crate::heap::OpenOptions;
    use std::vec::Vec;

    const HEAP_BYTES: usize = 4 << 20;

    fn with_heap<R>(test: impl FnOnce(&mut Heap<Fixed>) -> R) -> (R, Vec<u64>) {
        let mut words: Vec<u64> = std::vec![0; HEAP_BYTES / 8];
        // SAFETY: the memory is this function's, aligned to 8, and outlives the heap.
        let backing = unsafe { Fixed::new(words.as_mut_ptr().cast(), HEAP_BYTES as u64) };
        let options = OpenOptions { pointers: None, format_if_empty: true };
        let tested = test(&mut Heap::open(backing, options).unwrap());
        (tested, words)
    }

    /// Offsets of an old object, and of one that an open transaction has allocated after it noted a
    /// part of the old one; by the short way, or by the long one.
    fn change(heap: &mut Heap<Fixed>, at_once: bool, bytes: u64) -> [u64; 2] {
        let old = heap.alloc_zeroed(600).unwrap();
        let new = if at_once {
            assert!(heap.begin_at_once());
            assert!(heap.add_range_at_once(old.as_ptr(), bytes));
            heap.alloc_at_once(56).unwrap()
        } else {
            heap.begin_any().unwrap();
            heap.add_any_range(old.as_ptr(), bytes).unwrap();
            let slot = heap.pick_slot(class_of(56)).unwrap();
            heap.log_alloc(slot.pointer).unwrap();
            heap.take_slot(slot);
            NonNull::new(slot.pointer).unwrap()
        };
        // SAFETY: an object of this heap, announced.
        unsafe { old.as_ptr().write_bytes(7, bytes as usize) };
        [old, new].map(|object| heap.offset_of(object).unwrap())
    }

    /// The short way leaves the bytes that the long way leaves: while the transaction is open, after
    /// its commit and after its abort.
    #[test]
    fn short_way_stores_what_the_long_way_does() {
        for (bytes, commits) in [(1, true), (24, true), (512, true), (24, false)] {
            let [short, long] = [true, false].map(|at_once| {
                with_heap(|heap| {
                    // The class has a slab then.
                    heap.alloc(56).unwrap();
                    let objects = change(heap, at_once, bytes);
                    // SAFETY: the heap's own bytes, which nothing changes meanwhile.
                    let open = unsafe { heap.memory.bytes(0, HEAP_BYTES as u64) }.unwrap().to_vec();
                    match (commits, at_once) {
                        (true, true) => assert!(heap.commit_at_once()),
                        (true, false) => heap.commit_any().unwrap(),
                        (false, _) => heap.abort().unwrap(),
                    }
                    (objects, open)
                })
            });
            assert!(short == long, "{bytes} bytes, commits: {commits}");
        }
    }

    /// What is more than the short way does is refused there, and nothing is done.
    #[test]
    fn short_way_refuses_what_it_does_not_do() {
        with_heap(|heap| {
            let object = heap.alloc_zeroed(2000).unwrap();
            assert!(!heap.add_range_at_once(object.as_ptr(), 8), "none is open");
            assert!(heap.alloc_at_once(8).is_none() && !heap.commit_at_once());
            heap.begin().unwrap();
            assert!(!heap.begin_at_once(), "a level inside is counted by the long way");
            let inside = [0, RANGE_BYTES_MAX + 1, u64::MAX];
            assert!(inside.iter().all(|bytes| !heap.add_range_at_once(object.as_ptr(), *bytes)));
            let end = heap.memory.at(heap.memory.len());
            let before = heap.memory.at(0).wrapping_sub(8);
            let outside = [before, end, end.wrapping_sub(4), core::ptr::null_mut()];
            assert!(outside.iter().all(|start| !heap.add_range_at_once(*start, 8)));
            assert_eq!(heap.log.records(), 0);
            // A level that was aborted, a free, and an extent of the log keep it from one store.
            heap.begin().unwrap();
            heap.abort().unwrap();
            assert!(!heap.commit_at_once());
            assert_eq!(heap.commit(), Err(HeapError::TransactionAborted));
            heap.begin().unwrap();
            heap.free(object).unwrap();
            assert!(!heap.commit_at_once());
            heap.commit().unwrap();
            assert_eq!(heap.free(object), Err(HeapError::NotAllocated));
            let large = heap.alloc(100_000).unwrap();
            let used = heap.usage();
            heap.begin().unwrap();
            heap.add_range(large.as_ptr(), 100_000).unwrap();
            assert!(!heap.commit_at_once());
            heap.commit().unwrap();
            assert_eq!(heap.usage(), used, "the extent was given back");
        });
    }

    /// A range is noted once, until something else than a range is.
    #[test]
    fn range_is_noted_again_after_an_allocation() {
        with_heap(|heap| {
            let object = heap.alloc_zeroed(56).unwrap();
            heap.begin().unwrap();
            for records in [1, 3] {
                assert!(heap.add_range_at_once(object.as_ptr(), 8));
                assert!(heap.add_range_at_once(object.as_ptr(), 8));
                assert_eq!(heap.log.records(), records);
                heap.alloc_at_once(56).unwrap();
            }
        });
    }

    /// Ranges of every short length, wherever they start, are what they were after an abort.
    #[test]
    fn short_ranges_are_rolled_back() {
        with_heap(|heap| {
            let object = heap.alloc(128).unwrap().as_ptr();
            let before: Vec<u8> = (1..=128).collect();
            for (start, bytes) in (0..9).flat_map(|start| (1..=72).map(move |bytes| (start, bytes)))
            {
                // SAFETY: an object of this length, which nothing else uses.
                unsafe { object.copy_from_nonoverlapping(before.as_ptr(), 128) };
                assert!(heap.begin_at_once());
                assert!(heap.add_range_at_once(object.wrapping_add(start), bytes as u64));
                // SAFETY: inside of the object, and announced.
                unsafe { object.add(start).write_bytes(0, bytes) };
                heap.abort().unwrap();
                // SAFETY: as above.
                let after = unsafe { core::slice::from_raw_parts(object, 128) };
                assert!(after == before, "{bytes} bytes from {start}");
            }
        });
    }

    /// The short way goes on in all words of a slab, and hands each slot out once.
    #[test]
    fn short_way_uses_a_whole_slab() {
        with_heap(|heap| {
            let first = heap.alloc(512).unwrap();
            heap.begin().unwrap();
            let mut objects: Vec<_> = core::iter::from_fn(|| heap.alloc_at_once(512)).collect();
            objects.push(first);
            objects.sort();
            objects.dedup();
            assert_eq!(objects.len() as u64, CHUNK_BYTES / 512);
        });
    }

    /// In a full extent the short way adds no record.
    #[test]
    fn short_way_ends_where_the_extent_does() {
        with_heap(|heap| {
            // The class has a slab then, which lies behind the extent.
            heap.alloc(16).unwrap();
            let object = heap.alloc_zeroed(2000).unwrap();
            heap.begin().unwrap();
            let mut noted = 0;
            while heap.add_range_at_once(object.as_ptr(), RANGE_BYTES_MAX) {
                noted += 1;
                // It would be known.
                heap.log.forget_ranges();
            }
            let room = CHUNK_BYTES - EXTENT_RECORDS;
            assert_eq!(noted, room / record_bytes(RANGE_BYTES_MAX));
            while heap.alloc_at_once(16).is_some() {}
            assert_eq!(heap.memory.load(LANE_OFFSET + LANE_EXTENT), 0);
            heap.alloc(16).unwrap();
            assert_ne!(heap.memory.load(LANE_OFFSET + LANE_EXTENT), 0);
            heap.abort().unwrap();
        });
    }
}
