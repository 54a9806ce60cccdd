//! The slabs that one thread has claimed: [`ThreadSlabs`], from which it allocates and in which it
//! frees without the lock of the heap.
//!
//! A claimed slab is private or common. In a private one its owner changes the bitmap with plain
//! stores. When somebody else has to clear a bit there, the slab becomes common for as long as it
//! is claimed, and from then on all sides use atomic operations, which cost several times as much.
//!
//! Invariants:
//! - Claims are volatile. On media a claimed slab is one like any other, and a slot that was not
//!   handed out is free: one bit per object stays the one truth, so a kill of all threads at any
//!   instruction leaves every object allocated or not, and nothing has to be rebuilt at the next
//!   open.
//! - Only the owner of a claimed slab sets bits in it, so what it once saw free is free until it
//!   takes it. Others clear bits there while they have the heap.
//! - The owner touches its slabs between [`Door::enter`] and [`Door::leave`]. Who has the heap
//!   closes the door before it makes a slab common or takes it back ([`Door::close`]): after that
//!   the owner is not inside, and does not come in again before it has had the heap and seen what
//!   changed. This is Dekker's algorithm, asymmetric: the owner pays plain stores, the one that
//!   closes the door has all threads of the process pass a memory barrier. Without such a barrier
//!   every claimed slab is common from the start, and none is taken back from a thread that goes
//!   on.
//! - In a common slab bits are cleared with `Release`, and free ones are looked for with `Acquire`,
//!   so that what the old owner of an object did with it happens before what the new one does.
//! - What a commit frees in a claimed slab is not taken before the commit has emptied its log: a
//!   recovery would free it again. Meanwhile `settling` is set; it is looked at after a word of a
//!   bitmap, and bits of that word that this thread has not cleared itself count only if it was
//!   clear. A private slab is made common before, so its owner waits for the heap instead.
//! - While it is claimed, no slab is entered, released or remembered by the heap itself.
//! - The slots on a thread's shelf of a class ([`Shelf`]) lie in private slabs of that class and are
//!   free, and so are the slots that [`Current`] counts as free; no slot is in both, since a bitmap
//!   is looked at only while the shelf is empty. A slot leaves the shelf when its slab becomes
//!   common or is given back.
//!
//! What it must not do: touch anything but bitmap words of its own slabs without the heap.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};
use std::sync::Arc;
use std::vec::Vec;

use crate::backing::Backing;
use crate::classes::{CLASS_BYTES, CLASSES, SMALL_BYTES_MAX, class_of, slot_mask, words_of};
use crate::error::HeapError;
use crate::heap::Heap;
use crate::heap::recent::KnownSlabs;
use crate::layout::*;
use crate::memory::Memory;

/// Has every other thread of the process pass a full memory barrier before it returns
/// (`MEMBARRIER_CMD_PRIVATE_EXPEDITED` on Linux). It always succeeds: who hands one over has made
/// sure that the kernel has it.
pub type ThreadBarrier = fn();

/// Slabs of one class that a thread keeps; beyond that it gives the first one back.
const SLABS_MAX: usize = 32;

/// A thread's slabs. Dropping the value does not give them back: [`ThreadSlabs::give_back`] does,
/// or the heap takes them when it is closed.
pub struct ThreadSlabs {
    /// Covers what was backed when the thread last claimed a slab; its own slabs lie inside.
    memory: Memory,
    door: Arc<Door>,
    /// What each class allocates next: slots that were freed lately, and some from `current`.
    shelves: [Shelf; CLASSES],
    /// Where each class fills its shelf from.
    current: [Current; CLASSES],
    /// Where each class has room besides: a hint, which is looked at again before it is used.
    spots: [Spots; CLASSES],
    /// All slabs of each class, the ones claimed first in front.
    slabs: [Vec<u64>; CLASSES],
    /// The same slabs by chunk, as far as there is a place for each; in the others the heap frees
    /// for us.
    own: KnownSlabs,
    threads: Arc<Threads>,
}

// SAFETY: the pointers in `memory` and `current` lead into the backing, which may be used from any
// thread and lives for as long as the contract of `Heap::thread_slabs` says; the value itself is
// used by one thread at a time.
unsafe impl Send for ThreadSlabs {}

/// What the threads of a heap share, and nothing of another one.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    /// Slots that a commit has freed in claimed slabs could be freed again.
    settling: AtomicBool,
    barrier: Option<ThreadBarrier>,
}

/// What the heap knows of a claimed slab.
#[derive(Debug)]
pub(crate) struct Claim {
    door: Arc<Door>,
    class: usize,
    is_private: bool,
}

/// Between a thread and those that have the heap. In a cache line of its own, because its thread
/// stores there at each operation.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Door {
    /// The thread is between two stores to one of its slabs.
    is_inside: AtomicBool,
    state: AtomicU32,
}

/// States of a [`Door`]; changed only by those that have the heap.
const OPEN: u32 = 0;
/// Slabs have become common.
const CLOSED: u32 = 1;
/// All slabs were taken back.
const GONE: u32 = 2;

/// Words of bitmaps in which slots were freed lately, as the offset of the slab + the number of the
/// word.
#[derive(Clone, Copy)]
struct Spots {
    count: usize,
    words: [u64; SPOTS],
}

const SPOTS: usize = 7;

impl Spots {
    const NONE: Spots = Spots { count: 0, words: [0; SPOTS] };

    #[inline(always)]
    fn push(&mut self, spot: u64) {
        // What finds no place is found by a look at all words.
        if let Some(place) = self.words.get_mut(self.count) {
            *place = spot;
            self.count += 1;
        }
    }

    fn pop(&mut self) -> Option<u64> {
        self.count = self.count.checked_sub(1)?;
        self.words.get(self.count).copied()
    }
}

/// Free slots of one class in private slabs: the one that was put there last is taken first, while
/// it is still in the processor's caches.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Shelf {
    count: usize,
    slots: [FreeSlot; SHELF],
}

/// Makes a shelf four cache lines long. Allocations and frees of one size in random order come to
/// its ends about once in so many.
const SHELF: usize = 15;
/// Slots that an empty shelf gets: allocations and frees both find room then.
const SHELF_FILL: usize = 8;

#[derive(Clone, Copy)]
#[repr(C)]
struct FreeSlot {
    slot: *mut u8,
    /// Offset of its word in the bitmap, and above [`BIT_SHIFT`] the number of its bit there.
    word: u64,
}

/// No heap reaches as far.
const BIT_SHIFT: u32 = 58;

impl FreeSlot {
    const NONE: FreeSlot = FreeSlot { slot: core::ptr::null_mut(), word: 0 };

    #[inline(always)]
    fn new(slot: *mut u8, word: u64, index: u64) -> FreeSlot {
        FreeSlot { slot, word: word | index << BIT_SHIFT }
    }

    /// Sets its bit: the allocation happens here.
    #[inline(always)]
    fn take(self, memory: &Memory) -> *mut u8 {
        let word_at: *mut u64 = memory.at(self.word & ((1 << BIT_SHIFT) - 1)).cast();
        let bit = 1 << (self.word >> BIT_SHIFT);
        // SAFETY: a word of the bitmap of a claimed slab, inside the heap and aligned.
        unsafe { Memory::store_word(word_at, Memory::load_word(word_at) | bit) };
        self.slot
    }
}

impl Shelf {
    const EMPTY: Shelf = Shelf { count: 0, slots: [FreeSlot::NONE; SHELF] };

    /// `false` when there is no place.
    #[inline(always)]
    fn put(&mut self, slot: FreeSlot) -> bool {
        let Some(place) = self.slots.get_mut(self.count) else { return false };
        *place = slot;
        self.count += 1;
        true
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<FreeSlot> {
        let count = self.count.checked_sub(1)?;
        let slot = self.slots.get(count).copied()?;
        self.count = count;
        Some(slot)
    }

    /// Moves slots from `current` to the shelf, which is empty; the lowest is taken first.
    fn fill(&mut self, current: &mut Current) {
        self.count = SHELF_FILL.min(current.free.count_ones() as usize);
        for place in self.slots.iter_mut().take(self.count).rev() {
            let index = current.pick();
            *place = FreeSlot::new(current.slot(index), current.word, index);
        }
    }

    /// Takes those from the shelf that lie in the slab.
    fn remove(&mut self, memory: &Memory, chunk: u64) {
        let all = *self;
        self.count = 0;
        for slot in all.slots.iter().take(all.count) {
            let is_there = memory
                .offset_of(slot.slot)
                .is_some_and(|offset| offset & !(CHUNK_BYTES - 1) == chunk);
            if !is_there {
                self.put(*slot);
            }
        }
    }
}

/// Where a class looks for free slots.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Current {
    /// Slots that are free in the word of the bitmap where the next one is taken.
    free: u64,
    /// Offset of that word, and its first slot.
    word: u64,
    slots_at: *mut u8,
    /// Bytes of a slot.
    bytes: usize,
    /// The slab's offset, or 0.
    chunk: u64,
    is_private: bool,
}

impl Door {
    /// The thread begins to work in its slabs; `false` when it has to have the heap for that.
    #[inline(always)]
    fn enter(&self) -> bool {
        self.is_inside.store(true, Ordering::Relaxed);
        // The processor may let the load overtake the store; the barrier in `close` is for that.
        compiler_fence(Ordering::SeqCst);
        if self.state.load(Ordering::Acquire) == OPEN {
            return true;
        }
        self.leave();
        false
    }

    #[inline(always)]
    fn leave(&self) {
        self.is_inside.store(false, Ordering::Release);
    }

    /// Keeps the thread out until it has had the heap. The caller has it.
    fn close(&self, state: u32, barrier: ThreadBarrier) {
        if self.state.load(Ordering::Relaxed) == OPEN {
            self.state.store(state, Ordering::SeqCst);
            barrier();
            // From here on the thread sees the door closed, or is seen inside.
            let mut turns = 0_u32;
            while self.is_inside.load(Ordering::Acquire) {
                turns = turns.saturating_add(1);
                // It may have been interrupted there, by this thread even, whose priority may be
                // higher.
                if turns > LONG_TURNS {
                    std::thread::sleep(LONG_PAUSE);
                } else if turns.is_multiple_of(100) {
                    std::thread::yield_now()
                } else {
                    core::hint::spin_loop()
                }
            }
        } else {
            self.state.store(state, Ordering::Relaxed);
        }
    }
}

/// After so many looks the thread inside is waited for asleep.
const LONG_TURNS: u32 = 10_000;
const LONG_PAUSE: std::time::Duration = std::time::Duration::from_micros(50);

impl ThreadSlabs {
    /// Allocates as [`Heap::alloc`] does outside of a transaction, if one of the slabs has room;
    /// else [`ThreadSlabs::alloc_in`] finds some.
    #[inline]
    pub fn alloc(&mut self, bytes: u64) -> Option<NonNull<u8>> {
        self.alloc_prepared(bytes, |_, _| ())
    }

    /// Allocates, and prepares the bytes before the heap can be closed.
    #[inline(always)]
    fn alloc_prepared(
        &mut self,
        bytes: u64,
        prepare: impl FnOnce(&Memory, *mut u8),
    ) -> Option<NonNull<u8>> {
        if bytes > SMALL_BYTES_MAX {
            return None;
        }
        let class = class_of(bytes);
        if self.shelves[class].count == 0 {
            return self.alloc_found(class, prepare);
        }
        if !self.door.enter() {
            return None;
        }
        let Some(slot) = self.shelves[class].pop() else {
            self.door.leave();
            return None;
        };
        let pointer = slot.take(&self.memory);
        prepare(&self.memory, pointer);
        self.door.leave();
        NonNull::new(pointer)
    }

    /// As [`ThreadSlabs::alloc`], where the shelf is empty. Apart, so that it takes no registers
    /// from what is done most.
    #[inline(never)]
    fn alloc_found(
        &mut self,
        class: usize,
        prepare: impl FnOnce(&Memory, *mut u8),
    ) -> Option<NonNull<u8>> {
        if !self.door.enter() {
            return None;
        }
        // While a commit is under way, what looks free in a common slab may be what it frees.
        let found = self.find_room(class, |threads| !threads.settling.load(Ordering::Acquire));
        let pointer = found.then(|| {
            let pointer = self.take(class);
            prepare(&self.memory, pointer);
            pointer
        });
        self.door.leave();
        NonNull::new(pointer?)
    }

    /// As [`ThreadSlabs::alloc`], with every byte zero.
    #[inline]
    pub fn alloc_zeroed(&mut self, bytes: u64) -> Option<NonNull<u8>> {
        self.alloc_prepared(bytes, |memory, pointer| {
            if memory.is_ordered() {
                if let Some(offset) = memory.offset_of(pointer) {
                    memory.zero(offset, bytes);
                }
            } else {
                // SAFETY: just allocated with that many bytes, and no other code knows it.
                unsafe { pointer.write_bytes(0, bytes as usize) };
            }
        })
    }

    /// Takes a slot that [`ThreadSlabs::find_room`] has found; inside, or with the heap.
    fn take(&mut self, class: usize) -> *mut u8 {
        if let Some(slot) = self.shelves[class].pop() {
            return slot.take(&self.memory);
        }
        let current = &mut self.current[class];
        let index = current.pick();
        self.memory.set_bits(current.word, 1 << index);
        current.slot(index)
    }

    /// Allocates as [`Heap::alloc`] does, in a transaction if one is open.
    ///
    /// # Errors
    /// As [`Heap::alloc`].
    pub fn alloc_in<B: Backing>(
        &mut self,
        heap: &mut Heap<B>,
        bytes: u64,
    ) -> Result<NonNull<u8>, HeapError> {
        if bytes > SMALL_BYTES_MAX || heap.in_transaction() {
            return heap.alloc(bytes);
        }
        self.catch_up(heap);
        let class = class_of(bytes);
        // No commit is under way.
        if !self.find_room(class, |_| true) {
            self.claim(heap, class)?;
        }
        NonNull::new(self.take(class)).ok_or(HeapError::OutsideHeap)
    }

    /// Allocates as [`Heap::alloc_zeroed`] does, in a transaction if one is open.
    ///
    /// # Errors
    /// As [`Heap::alloc_zeroed`].
    pub fn alloc_zeroed_in<B: Backing>(
        &mut self,
        heap: &mut Heap<B>,
        bytes: u64,
    ) -> Result<NonNull<u8>, HeapError> {
        if bytes > SMALL_BYTES_MAX || heap.in_transaction() {
            return heap.alloc_zeroed(bytes);
        }
        let pointer = self.alloc_in(heap, bytes)?;
        let offset = heap.offset_of(pointer).ok_or(HeapError::OutsideHeap)?;
        self.memory.zero(offset, bytes);
        Ok(pointer)
    }

    /// Bytes that the object at `pointer` may use, if it lies in one of the slabs and is allocated.
    /// Any pointer may be asked for. None where the heap has taken the slabs back: it knows then.
    #[inline]
    pub fn usable_bytes(&self, pointer: NonNull<u8>) -> Option<u64> {
        let offset =
            (pointer.as_ptr() as usize as u64).wrapping_sub(self.memory.at(0) as usize as u64);
        let (class, slot, _) = self.own.claimed_slot_at(offset)?;
        // A slab that was taken back may be one of another class by now.
        if !self.door.enter() {
            return None;
        }
        let word = self.memory.load(word_offset(offset & !(CHUNK_BYTES - 1), slot / 64));
        self.door.leave();
        // Whatever others do, the caller's own object is not freed meanwhile.
        (word >> (slot % 64) & 1 == 1).then(|| u64::from(CLASS_BYTES[class]))
    }

    /// Frees as [`Heap::free`] does outside of a transaction, if the object lies in one of the
    /// slabs. `false`, and nothing done, when it does not, or is no object, or leaves a slab empty
    /// that is not needed: [`ThreadSlabs::free_in`] does it then. Any pointer may be asked for.
    #[inline]
    pub fn free(&mut self, pointer: NonNull<u8>) -> bool {
        // Of a pointer outside of the heap this is an offset that no known slab has.
        let offset =
            (pointer.as_ptr() as usize as u64).wrapping_sub(self.memory.at(0) as usize as u64);
        let Some((class, slot, is_private)) = self.own.claimed_slot_at(offset) else {
            return false;
        };
        let chunk = offset & !(CHUNK_BYTES - 1);
        if !is_private {
            return self.free_common(class, chunk, slot);
        }
        if !self.door.enter() {
            return false;
        }
        let freed = self.clear_private(class, chunk, slot, false);
        self.door.leave();
        freed
    }

    /// As [`ThreadSlabs::free`], in a slab that has become common. Apart, so that it takes no
    /// registers from what is done most.
    #[inline(never)]
    fn free_common(&mut self, class: usize, chunk: u64, slot: u64) -> bool {
        if !self.door.enter() {
            return false;
        }
        let freed = self.clear(class, chunk, slot, false, false);
        self.door.leave();
        freed
    }

    /// As [`ThreadSlabs::clear`], in a private slab.
    #[inline(always)]
    fn clear_private(&mut self, class: usize, chunk: u64, slot: u64, last: bool) -> bool {
        let (word, bit) = (slot / 64, 1 << (slot % 64));
        let word_at: *mut u64 = self.memory.at(word_offset(chunk, word)).cast();
        // SAFETY: a claimed slab lies inside the heap, and so does its descriptor.
        let before = unsafe { Memory::load_word(word_at) };
        let left = before & !bit;
        if before & bit == 0 || (left == 0 && !last && self.slabs[class].len() > 1) {
            return false;
        }
        // SAFETY: as above.
        unsafe { Memory::store_word(word_at, left) };
        let slot_at =
            self.memory.at(chunk).wrapping_add(slot as usize * CLASS_BYTES[class] as usize);
        let free = FreeSlot::new(slot_at, word_offset(chunk, word), slot % 64);
        if !self.shelves[class].put(free) {
            self.spots[class].push(chunk + word);
        }
        true
    }

    /// Clears a slot's bit and makes its word the one where the class allocates next; inside, or
    /// with the heap. `false`, and nothing done, if the bit is clear, or is the last one of its
    /// word in a slab that may be given back, unless `last` is allowed.
    fn clear(&mut self, class: usize, chunk: u64, slot: u64, is_private: bool, last: bool) -> bool {
        if is_private {
            return self.clear_private(class, chunk, slot, last);
        }
        let (word, bit) = (slot / 64, 1 << (slot % 64));
        let memory = self.memory;
        let current = &mut self.current[class];
        let at = word_offset(chunk, word);
        let mask = slot_mask(class, word);
        let may_leave_empty = last || self.slabs[class].len() < 2;
        if memory.load(at) & !bit & mask == 0 && !may_leave_empty {
            return false;
        }
        let before = memory.clear_bits(at, bit);
        if before & bit == 0 {
            return false;
        }
        // What was freed last is taken first; what is free in the word before is found again by a
        // look at it.
        let free = match self.threads.settling.load(Ordering::Acquire) {
            false => !(before & !bit) & mask,
            true if current.word == at => current.free | bit,
            true => bit,
        };
        (current.chunk, current.is_private) = (chunk, false);
        current.point_at(&memory, word, free);
        true
    }

    /// Frees as [`Heap::free`] does, in a transaction if one is open.
    ///
    /// # Errors
    /// As [`Heap::free`].
    pub fn free_in<B: Backing>(
        &mut self,
        heap: &mut Heap<B>,
        pointer: NonNull<u8>,
    ) -> Result<(), HeapError> {
        heap.check_writable()?;
        if heap.in_transaction() {
            return heap.free(pointer);
        }
        self.catch_up(heap);
        let offset = heap.offset_of(pointer).ok_or(HeapError::NotAllocated)?;
        let chunk = offset & !(CHUNK_BYTES - 1);
        let own = match self.own.claimed_slot_at(offset) {
            Some(own) => Some(own),
            None if self.adopt(heap, offset, chunk) => self.own.claimed_slot_at(offset),
            None => None,
        };
        let Some((class, slot, is_private)) = own else { return heap.free(pointer) };
        if !self.clear(class, chunk, slot, is_private, true) {
            return Err(HeapError::NotAllocated);
        }
        // One empty slab may be needed again soon.
        if self.slabs[class].len() > 1 && heap.slab_is_empty(class, chunk) {
            self.give_back_slab(heap, class, chunk);
        }
        Ok(())
    }

    /// Claims the slab of an object that is about to be freed, if no thread has it: the one that
    /// works with objects of one that has ended takes its slabs over.
    fn adopt<B: Backing>(&mut self, heap: &mut Heap<B>, offset: u64, chunk: u64) -> bool {
        let Some(class) = heap.slot_class(offset) else { return false };
        // Threads allocate nothing larger from their slabs: no thread could use the free slots.
        if u64::from(CLASS_BYTES[class]) > SMALL_BYTES_MAX
            || self.slabs[class].len() >= SLABS_MAX
            || !self.own.has_place(chunk)
            || !heap.may_be_claimed(class, chunk)
        {
            return false;
        }
        self.take_over(heap, class, chunk);
        true
    }

    /// Learns what those did that had the heap.
    fn catch_up<B: Backing>(&mut self, heap: &mut Heap<B>) {
        let is_of_this_heap =
            heap.threads.as_ref().is_some_and(|of| Arc::ptr_eq(of, &self.threads));
        debug_assert!(is_of_this_heap, "the contract of `Heap::thread_slabs`");
        match self.door.state.load(Ordering::Relaxed) {
            OPEN => {}
            CLOSED => {
                for (class, slabs) in self.slabs.iter().enumerate() {
                    for chunk in slabs {
                        if !heap.is_private(*chunk) {
                            self.own.set_common(*chunk);
                            self.shelves[class].remove(&heap.memory, *chunk);
                            let current = &mut self.current[class];
                            if current.chunk == *chunk {
                                // Bits that others have cleared are not among these, nor are they
                                // taken.
                                current.is_private = false;
                            }
                        }
                    }
                }
                self.door.state.store(OPEN, Ordering::Relaxed);
            }
            _ => self.forget_all(),
        }
        self.memory = heap.memory;
    }

    /// The heap has taken everything back.
    fn forget_all(&mut self) {
        self.door = Arc::new(Door::default());
        self.shelves = [Shelf::EMPTY; CLASSES];
        self.current = NOWHERE;
        self.spots = [Spots::NONE; CLASSES];
        self.slabs.iter_mut().for_each(Vec::clear);
        self.own = KnownSlabs::new();
    }

    /// Whether [`ThreadSlabs::take`] has something to take; inside, or with the heap. See
    /// [`ThreadSlabs::look_for_free`].
    fn find_room(&mut self, class: usize, is_settled: impl Fn(&Threads) -> bool) -> bool {
        if self.shelves[class].count != 0 {
            return true;
        }
        if self.current[class].free == 0 && !self.look_for_free(class, is_settled) {
            return false;
        }
        let current = &mut self.current[class];
        if current.is_private {
            self.shelves[class].fill(current);
        }
        true
    }

    /// Looks for room in all slabs of the class, whose shelf is empty; inside, or with the heap. In
    /// a common slab it counts only if `is_settled` says so afterwards.
    fn look_for_free(&mut self, class: usize, is_settled: impl Fn(&Threads) -> bool) -> bool {
        let mut current = self.current[class];
        let counts = |current: &Current| current.is_private || is_settled(&self.threads);
        while current.free == 0
            && let Some(spot) = self.spots[class].pop()
        {
            // It may be another's by now, or have become common.
            let chunk = spot & !(CHUNK_BYTES - 1);
            if self.own.is_private(chunk) && self.slabs[class].contains(&chunk) {
                (current.chunk, current.is_private) = (chunk, true);
                current.look_at(&self.memory, class, spot - chunk);
            }
        }
        if current.free != 0 || current.find_free(&self.memory, class) && counts(&current) {
            self.current[class] = current;
            return true;
        }
        // What was claimed last is most likely in the caches.
        for chunk in self.slabs[class].iter().rev() {
            let is_private = self.own.is_private(*chunk);
            (current.chunk, current.is_private) = (*chunk, is_private);
            if current.find_free(&self.memory, class) && counts(&current) {
                self.current[class] = current;
                return true;
            }
        }
        self.current[class].free = 0;
        false
    }

    /// Claims a slab with room.
    fn claim<B: Backing>(&mut self, heap: &mut Heap<B>, class: usize) -> Result<(), HeapError> {
        let chunk = heap.pick_slab(class)?;
        // To make room for it the heap may have taken the others back.
        self.catch_up(heap);
        if let (true, Some(first)) =
            (self.slabs[class].len() >= SLABS_MAX, self.slabs[class].first())
        {
            self.give_back_slab(heap, class, *first);
        }
        self.take_over(heap, class, chunk);
        // The heap picks only slabs with room, and only their owner takes from them.
        self.find_room(class, |_| true).then_some(()).ok_or(HeapError::OutsideHeap)
    }

    fn take_over<B: Backing>(&mut self, heap: &mut Heap<B>, class: usize, chunk: u64) {
        // Plain stores are not written back.
        let is_private = self.threads.barrier.is_some()
            && !self.memory.is_ordered()
            && self.own.has_place(chunk);
        heap.claim_slab(class, chunk, Claim { door: Arc::clone(&self.door), class, is_private });
        self.memory = heap.memory;
        self.slabs[class].push(chunk);
        self.own.insert_claimed(chunk, class, is_private);
        let current = &mut self.current[class];
        (current.chunk, current.is_private, current.free) = (chunk, is_private, 0);
    }

    fn give_back_slab<B: Backing>(&mut self, heap: &mut Heap<B>, class: usize, chunk: u64) {
        self.slabs[class].retain(|own| *own != chunk);
        self.own.remove(chunk);
        self.shelves[class].remove(&self.memory, chunk);
        if self.current[class].chunk == chunk {
            self.current[class] = NOWHERE[class];
        }
        heap.give_back_slab(class, chunk);
    }

    /// Gives all slabs back, when the thread ends.
    pub fn give_back<B: Backing>(mut self, heap: &mut Heap<B>) {
        self.catch_up(heap);
        for (class, slabs) in self.slabs.iter().enumerate() {
            for chunk in slabs {
                heap.give_back_slab(class, *chunk);
            }
        }
    }

    /// Whether these are slabs of this heap.
    pub fn are_of<B: Backing>(&self, heap: &Heap<B>) -> bool {
        heap.threads.as_ref().is_some_and(|threads| Arc::ptr_eq(threads, &self.threads))
    }
}

/// Where the classes allocate of a thread that has no slabs.
const NOWHERE: [Current; CLASSES] = {
    let slots_at = core::ptr::null_mut();
    let new = Current { free: 0, word: 0, slots_at, bytes: 0, chunk: 0, is_private: false };
    let mut all = [new; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        all[class].bytes = CLASS_BYTES[class] as usize;
        class += 1;
    }
    all
};

impl Current {
    /// The lowest free slot of the word, by number; it does not count as free any more.
    #[inline(always)]
    fn pick(&mut self) -> u64 {
        let index = self.free.trailing_zeros();
        self.free &= self.free.wrapping_sub(1);
        u64::from(index)
    }

    #[inline(always)]
    fn slot(&self, index: u64) -> *mut u8 {
        self.slots_at.wrapping_add(index as usize * self.bytes)
    }

    /// The next slots are taken from this word of the slab.
    #[inline(always)]
    fn point_at(&mut self, memory: &Memory, word: u64, free: u64) {
        self.free = free;
        self.word = word_offset(self.chunk, word);
        self.slots_at = memory.at(self.chunk).wrapping_add(word as usize * 64 * self.bytes);
    }

    /// Finds slots that look free: in a common slab, what a commit is about to free may be among
    /// them.
    fn find_free(&mut self, memory: &Memory, class: usize) -> bool {
        if self.chunk == 0 {
            return false;
        }
        (0..words_of(class)).any(|word| self.look_at(memory, class, word))
    }

    /// Finds what looks free in a word of its slab.
    #[inline]
    fn look_at(&mut self, memory: &Memory, class: usize, word: u64) -> bool {
        let taken = memory.load_acquire(word_offset(self.chunk, word));
        let free = !taken & slot_mask(class, word);
        if free != 0 {
            self.point_at(memory, word, free);
        }
        free != 0
    }
}

impl Threads {
    pub(crate) fn set_settling(&self, settling: bool) {
        self.settling.store(settling, Ordering::Release);
    }
}

impl<B: Backing> Heap<B> {
    /// The slabs of one more thread: none yet. With a barrier they are changed with plain stores,
    /// and the heap can take them back; the first caller says whether there is one.
    ///
    /// # Safety
    /// The value is not used after the heap was dropped in another way than by [`Heap::close`], and
    /// its functions that take a heap get this one.
    pub unsafe fn thread_slabs(&mut self, barrier: Option<ThreadBarrier>) -> ThreadSlabs {
        let new = || Arc::new(Threads { settling: AtomicBool::new(false), barrier });
        let threads = Arc::clone(self.threads.get_or_insert_with(new));
        ThreadSlabs {
            memory: self.memory,
            door: Arc::new(Door::default()),
            shelves: [Shelf::EMPTY; CLASSES],
            current: NOWHERE,
            spots: [Spots::NONE; CLASSES],
            slabs: [const { Vec::new() }; CLASSES],
            own: KnownSlabs::new(),
            threads,
        }
    }

    /// Takes all slabs back that threads have claimed; `false` when there is nothing to take. A
    /// thread that goes on claims new ones.
    pub fn take_back_slabs(&mut self) -> bool {
        let Some(barrier) = self.threads.as_ref().and_then(|threads| threads.barrier) else {
            return false;
        };
        let taken = core::mem::take(&mut self.claims);
        for (chunk, claim) in &taken {
            claim.door.close(GONE, barrier);
            self.return_slab(claim.class, *chunk);
        }
        !taken.is_empty()
    }

    /// Whether a thread allocates from this slab on its own.
    #[inline]
    pub(crate) fn is_claimed(&self, chunk: u64) -> bool {
        self.claims.contains_key(&chunk)
    }

    /// Before somebody else than its owner clears a bit in a claimed slab.
    pub(crate) fn make_common(&mut self, chunk: u64) {
        let barrier = self.threads.as_ref().and_then(|threads| threads.barrier);
        if let (Some(claim), Some(barrier)) = (self.claims.get_mut(&chunk), barrier)
            && core::mem::take(&mut claim.is_private)
        {
            claim.door.close(CLOSED, barrier);
        }
    }

    fn is_private(&self, chunk: u64) -> bool {
        self.claims.get(&chunk).is_some_and(|claim| claim.is_private)
    }

    /// Takes a slab that is picked, or unused, out of the heap's own use.
    fn claim_slab(&mut self, class: usize, chunk: u64, claim: Claim) {
        self.forget_slab(class, chunk);
        self.claims.insert(chunk, claim);
    }

    /// Takes a slab back that was claimed.
    fn give_back_slab(&mut self, class: usize, chunk: u64) {
        if self.claims.remove(&chunk).is_some() {
            self.return_slab(class, chunk);
        }
    }
}

#[inline]
fn word_offset(chunk: u64, word: u64) -> u64 {
    descriptor_of(chunk) + DESC_SLOTS + word * 8
}

#[cfg(all(test, not(target_family = "wasm")))]
#[allow(clippy::unwrap_used, reason = "a test ends where an expectation fails")]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU64;
    use std::collections::HashSet;
    use std::sync::Mutex;
    use std::thread;
    use std::vec;

    use rustix::thread::{MembarrierCommand, membarrier};

    use crate::backing::Fixed;
    use crate::check::check;
    use crate::heap::OpenOptions;

    /// A thread that is inside and one that has closed the door never change a word at the same
    /// time: with plain loads and stores, no change of either is lost.
    ///
    /// Guarantee: heap/threads
    #[test]
    fn closed_door_keeps_its_thread_out() {
        const VISITS: u64 = 50_000;
        let barrier = thread_barrier();
        let (door, heap, word) = (Door::default(), Mutex::new(()), AtomicU64::new(0));
        let is_over = AtomicBool::new(false);
        let change = || word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let entered = thread::scope(|scope| {
            let owner = scope.spawn(|| {
                let mut entered = 0;
                while !is_over.load(Ordering::Relaxed) {
                    if door.enter() {
                        change();
                        door.leave();
                        entered += 1;
                    } else {
                        let _heap = heap.lock().unwrap();
                        door.state.store(OPEN, Ordering::Relaxed);
                    }
                }
                entered
            });
            for _ in 0..VISITS {
                // The thread has been let in again.
                while door.state.load(Ordering::Relaxed) != OPEN {
                    thread::yield_now();
                }
                let _heap = heap.lock().unwrap();
                door.close(CLOSED, barrier);
                (0..10).for_each(|_| change());
            }
            is_over.store(true, Ordering::Relaxed);
            owner.join().unwrap()
        });
        assert!(entered > 0);
        assert_eq!(word.load(Ordering::Relaxed), entered + 10 * VISITS);
    }

    fn thread_barrier() -> ThreadBarrier {
        membarrier(MembarrierCommand::RegisterPrivateExpedited).unwrap();
        || membarrier(MembarrierCommand::PrivateExpedited).unwrap()
    }

    /// What a thread takes without a look at a bitmap is free, lies in a slab of its own, is counted
    /// once, and was not freed by others meanwhile.
    fn assert_ready_slots_are_free(thread: &ThreadSlabs) {
        let memory = &thread.memory;
        for class in 0..CLASSES {
            let mut seen = HashSet::new();
            let mut check = |slot: *mut u8, word: u64, bit: u64| {
                let chunk = memory.offset_of(slot).unwrap() & !(CHUNK_BYTES - 1);
                assert!(thread.slabs[class].contains(&chunk), "a slot of another one's slab");
                assert_eq!(memory.load(word) & 1 << bit, 0, "an allocated slot is ready");
                assert!(seen.insert(slot), "a slot is ready twice");
                chunk
            };
            let shelf = &thread.shelves[class];
            for free in &shelf.slots[..shelf.count] {
                let (word, bit) = (free.word & ((1 << BIT_SHIFT) - 1), free.word >> BIT_SHIFT);
                let chunk = check(free.slot, word, bit);
                assert!(thread.own.is_private(chunk), "a common slot is on the shelf");
            }
            let current = &thread.current[class];
            for bit in (0..64).filter(|bit| current.free >> bit & 1 == 1) {
                check(current.slot(bit), current.word, bit);
            }
        }
    }

    /// Two threads that allocate, free each other's objects, end and begin again, on a heap that
    /// takes slabs back: no object is handed out twice.
    ///
    /// Guarantee: heap/threads
    #[test]
    fn slots_that_are_ready_are_free() {
        const STEPS: usize = 20_000;
        const HEAP_BYTES: usize = 8 << 20;
        let mut bytes = vec![0_u128; HEAP_BYTES / 16];
        // SAFETY: used by this heap only, and dropped after it.
        let backing = unsafe { Fixed::new(bytes.as_mut_ptr().cast(), HEAP_BYTES as u64) };
        let mut heap =
            Heap::open(backing, OpenOptions { pointers: None, format_if_empty: true }).unwrap();
        let barrier = Some(thread_barrier());
        // SAFETY: the heap outlives them, and they get no other one.
        let mut threads = [(); 2].map(|()| unsafe { heap.thread_slabs(barrier) });
        let mut live: Vec<NonNull<u8>> = Vec::new();
        let mut known = HashSet::new();
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut below = |bound: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % bound
        };
        for step in 0..STEPS {
            // It grows and shrinks, so that shelves are full and empty.
            let most = if step / 2_000 % 2 == 0 { 1_500 } else { 150 };
            let thread = &mut threads[below(2)];
            if live.len() < most && below(5) < 3 {
                let bytes = [1, 20, 300, 1000, 1024][below(5)];
                let object = match thread.alloc(bytes) {
                    Some(object) => object,
                    None => thread.alloc_in(&mut heap, bytes).unwrap(),
                };
                assert!(known.insert(object), "one object twice");
                live.push(object);
            } else if !live.is_empty() {
                let object = live.swap_remove(below(live.len()));
                known.remove(&object);
                // Mostly a thread frees what is its own.
                let other = if below(10) == 0 { below(2) } else { 2 };
                let owner = threads
                    .iter_mut()
                    .enumerate()
                    .any(|(index, thread)| index != other && thread.free(object));
                if !owner {
                    threads[below(2)].free_in(&mut heap, object).unwrap();
                }
            }
            if below(500) == 0 {
                // SAFETY: as above.
                let next = unsafe { heap.thread_slabs(barrier) };
                core::mem::replace(&mut threads[below(2)], next).give_back(&mut heap);
            }
            if below(1_000) == 0 {
                heap.take_back_slabs();
            }
            for thread in &mut threads {
                // One that others have shut out knows it once it has had the heap.
                thread.catch_up(&mut heap);
                assert_ready_slots_are_free(thread);
            }
        }
        for object in live {
            heap.free(object).unwrap();
        }
        for thread in threads {
            thread.give_back(&mut heap);
        }
        drop(heap);
        // SAFETY: plain numbers, and the heap that used them is gone.
        let bytes = unsafe { core::slice::from_raw_parts(bytes.as_ptr().cast(), HEAP_BYTES) };
        let report = check(bytes, &mut |finding| panic!("{finding:?}"));
        assert_eq!(report.objects, 0);
    }
}
