//! One heap for several threads of a host: [`SharedHeap`], and a [`Handle`] for each thread.
//!
//! A handle claims one slab for each size class that it uses. In its own slabs it allocates and
//! frees without a lock, with one atomic operation on a word of the slab's bitmap; everything else
//! goes through the one lock of the heap: other slabs, large objects, roots, transactions (one at a
//! time, because the format has one lane).
//!
//! Invariants:
//! - Claims are volatile. On media a claimed slab is one like any other, and a slot that was not
//!   handed out is free: one bit per object stays the one truth, so a kill of all threads at any
//!   instruction leaves every object allocated or not, and nothing has to be rebuilt at the next
//!   open.
//! - Only the owner of a claimed slab sets bits in it, so what it once saw free is free until it
//!   takes it. Others clear bits there while they hold the lock. All of these are atomic
//!   read-modify-writes: `Release` when a bit is cleared, `Acquire` when free bits are looked for,
//!   so that what the old owner of an object did with it happens before what the new one does.
//! - What a commit frees in a claimed slab is not taken before the commit has emptied its log: a
//!   recovery would free it again. Meanwhile `settling` is set; it is looked at after a word of a
//!   bitmap, and bits of that word that this handle has not cleared itself count only if it was
//!   clear.
//! - While it is claimed, no slab is entered, released or remembered by the heap behind the lock.
//!
//! What it must not do: touch anything but bitmap words of its own slabs without the lock.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backing::Backing;
use crate::classes::{CLASS_BYTES, CLASSES, SMALL_BYTES_MAX, class_of, slot_mask, words_of};
use crate::error::HeapError;
use crate::heap::Heap;
use crate::heap::recent::KnownSlabs;
use crate::heap::transaction::Transaction;
use crate::layout::*;
use crate::memory::Memory;

/// A heap that several threads use at once, each through a [`Handle`] of its own.
pub struct SharedHeap<B: Backing> {
    heap: Arc<Mutex<Heap<B>>>,
    settling: Arc<AtomicBool>,
}

/// One thread's access to a [`SharedHeap`]. Dropping it gives its slabs back to the others.
pub struct Handle<B: Backing> {
    heap: Arc<Mutex<Heap<B>>>,
    /// Covers what was backed when the handle last claimed a slab; its own slabs lie inside.
    memory: Memory,
    slabs: [Claimed; CLASSES],
    /// The same slabs by chunk, as far as there is a place for each; the heap frees in the others
    /// for us.
    own: KnownSlabs,
    /// Set by the heap while slots that a commit has freed could be freed again.
    settling: Arc<AtomicBool>,
}

// SAFETY: the pointer in `memory` leads into the backing, which lives as long as `heap` and may be
// used from any thread; the handle itself is used by one at a time.
unsafe impl<B: Backing + Send> Send for Handle<B> {}

/// The slab of a class that a handle has claimed.
#[derive(Clone, Copy, Default)]
struct Claimed {
    /// Its offset, or 0.
    chunk: u64,
    /// The word of its bitmap where the next slot is taken, and the slots that are free there.
    word: u64,
    free: u64,
}

fn lock<B: Backing>(heap: &Mutex<Heap<B>>) -> MutexGuard<'_, Heap<B>> {
    // A panic under the lock leaves a heap in order: an open transaction is rolled back when it
    // unwinds.
    heap.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<B: Backing + Send> SharedHeap<B> {
    /// Shares a heap. A transaction that is open is rolled back.
    ///
    /// # Safety
    /// No closure that gets the heap from a handle puts another heap in its place
    /// (`core::mem::swap` and the like): the handles rely on the bytes that they know for as long
    /// as there is one.
    pub unsafe fn new(mut heap: Heap<B>) -> SharedHeap<B> {
        heap.abort_all();
        let settling = Arc::new(AtomicBool::new(false));
        heap.settling = Some(Arc::clone(&settling));
        SharedHeap { heap: Arc::new(Mutex::new(heap)), settling }
    }

    /// A handle for one more thread.
    pub fn handle(&self) -> Handle<B> {
        let memory = lock(&self.heap).memory;
        Handle {
            heap: Arc::clone(&self.heap),
            memory,
            slabs: [Claimed::default(); CLASSES],
            own: KnownSlabs::new(),
            settling: Arc::clone(&self.settling),
        }
    }

    /// The heap for one thread again; the value itself when there are handles still.
    ///
    /// # Errors
    /// The value, unchanged.
    pub fn into_heap(self) -> Result<Heap<B>, SharedHeap<B>> {
        match Arc::try_unwrap(self.heap) {
            Ok(heap) => {
                let mut heap = heap.into_inner().unwrap_or_else(PoisonError::into_inner);
                heap.settling = None;
                Ok(heap)
            }
            Err(heap) => Err(SharedHeap { heap, ..self }),
        }
    }
}

impl<B: Backing + Send> Handle<B> {
    /// As [`Heap::alloc`], outside of any transaction.
    ///
    /// # Errors
    /// As [`Heap::alloc`].
    #[inline]
    pub fn alloc(&mut self, bytes: u64) -> Result<NonNull<u8>, HeapError> {
        if bytes > SMALL_BYTES_MAX {
            return lock(&self.heap).alloc(bytes);
        }
        let class = class_of(bytes);
        if self.slabs[class].free == 0 {
            self.refill(class)?;
        }
        let slab = &mut self.slabs[class];
        let bit = slab.free & slab.free.wrapping_neg();
        slab.free &= !bit;
        let slot = slab.word * 64 + u64::from(bit.trailing_zeros());
        let offset = slab.chunk + slot * u64::from(CLASS_BYTES[class]);
        self.memory.set_bits(word_offset(slab.chunk, slab.word), bit);
        NonNull::new(self.memory.at(offset)).ok_or(HeapError::OutsideHeap)
    }

    /// As [`Heap::alloc_zeroed`], outside of any transaction.
    ///
    /// # Errors
    /// As [`Heap::alloc`].
    pub fn alloc_zeroed(&mut self, bytes: u64) -> Result<NonNull<u8>, HeapError> {
        let pointer = self.alloc(bytes)?;
        // SAFETY: just allocated with that many bytes, and no other code knows it.
        unsafe { pointer.as_ptr().write_bytes(0, bytes as usize) };
        Ok(pointer)
    }

    /// As [`Heap::free`], outside of any transaction; whichever handle allocated the object.
    ///
    /// # Errors
    /// As [`Heap::free`].
    #[inline]
    pub fn free(&mut self, pointer: NonNull<u8>) -> Result<(), HeapError> {
        // Of a pointer outside of the heap this is an offset that no known slab has.
        let offset =
            (pointer.as_ptr() as usize as u64).wrapping_sub(self.memory.at(0) as usize as u64);
        let Some((class, slot)) = self.own.slot_at(offset) else {
            return self.free_elsewhere(pointer);
        };
        let (word, bit) = (slot / 64, 1 << (slot % 64));
        let slab = &mut self.slabs[class];
        let before = self.memory.clear_bits(word_offset(slab.chunk, word), bit);
        if before & bit == 0 {
            return Err(HeapError::NotAllocated);
        }
        // What was freed last is taken first; what is free in the word before is found again by a
        // look at it.
        let free = match self.settling.load(Ordering::Acquire) {
            false => !(before & !bit) & slot_mask(class, word),
            true if slab.word == word => slab.free | bit,
            true => bit,
        };
        (slab.word, slab.free) = (word, free);
        Ok(())
    }

    /// As [`Handle::free`], of what is not known to lie in a slab of this handle.
    #[inline(never)]
    fn free_elsewhere(&mut self, pointer: NonNull<u8>) -> Result<(), HeapError> {
        lock(&self.heap).free(pointer)
    }

    /// As [`Heap::realloc`], outside of any transaction.
    ///
    /// # Errors
    /// As [`Heap::realloc`].
    pub fn realloc(&mut self, pointer: NonNull<u8>, bytes: u64) -> Result<NonNull<u8>, HeapError> {
        lock(&self.heap).realloc(pointer, bytes)
    }

    /// As [`Heap::usable_bytes`].
    ///
    /// # Errors
    /// As [`Heap::usable_bytes`].
    pub fn usable_bytes(&self, pointer: NonNull<u8>) -> Result<u64, HeapError> {
        lock(&self.heap).usable_bytes(pointer)
    }

    /// As [`Heap::transaction`]. Other threads' transactions wait; allocating and freeing in their
    /// own slabs does not. Inside, `work` uses what it is given and no other handle, which would
    /// wait for ever.
    ///
    /// # Errors
    /// As [`Heap::transaction`].
    pub fn transaction<R, E: From<HeapError>>(
        &mut self,
        work: impl FnOnce(&mut Transaction<'_, B>) -> Result<R, E>,
    ) -> Result<R, E> {
        lock(&self.heap).transaction(work)
    }

    /// Lets `work` use the heap alone: roots, usage, aligned objects. A transaction that it leaves
    /// open is rolled back. Inside, `work` uses no other handle, which would wait for ever.
    pub fn with_heap<R>(&mut self, work: impl FnOnce(&mut Heap<B>) -> R) -> R {
        let mut heap = lock(&self.heap);
        // Also when `work` panics.
        struct Settle<'a, B: Backing>(&'a mut Heap<B>);
        impl<B: Backing> Drop for Settle<'_, B> {
            fn drop(&mut self) {
                self.0.abort_all();
            }
        }
        work(Settle(&mut heap).0)
    }

    /// Finds free slots: in the slab that is claimed, else in another one.
    #[cold]
    fn refill(&mut self, class: usize) -> Result<(), HeapError> {
        let slab = &mut self.slabs[class];
        if slab.find_free(&self.memory, class) && !self.settling.load(Ordering::Acquire) {
            return Ok(());
        }
        // As long as it is held, no commit is under way.
        let mut heap = lock(&self.heap);
        if slab.find_free(&self.memory, class) {
            return Ok(());
        }
        let full = core::mem::take(slab).chunk;
        if full != 0 {
            self.own.remove(full);
            heap.give_back_slab(class, full);
        }
        let chunk = heap.claim_slab(class)?;
        self.memory = heap.memory;
        slab.chunk = chunk;
        self.own.insert(chunk, class);
        // The heap claims only slabs with room, and only their owner takes from them.
        slab.find_free(&self.memory, class).then_some(()).ok_or(HeapError::OutsideHeap)
    }
}

impl Claimed {
    /// Finds slots of a claimed slab that look free: what a commit is about to free may be among
    /// them.
    fn find_free(&mut self, memory: &Memory, class: usize) -> bool {
        if self.chunk == 0 {
            return false;
        }
        for word in 0..words_of(class) {
            let taken = memory.load_acquire(word_offset(self.chunk, word));
            let free = !taken & slot_mask(class, word);
            if free != 0 {
                (self.word, self.free) = (word, free);
                return true;
            }
        }
        false
    }
}

impl<B: Backing> Drop for Handle<B> {
    fn drop(&mut self) {
        let mut heap = lock(&self.heap);
        for (class, slab) in self.slabs.iter().enumerate().filter(|(_, slab)| slab.chunk != 0) {
            heap.give_back_slab(class, slab.chunk);
        }
    }
}

fn word_offset(chunk: u64, word: u64) -> u64 {
    descriptor_of(chunk) + DESC_SLOTS + word * 8
}
