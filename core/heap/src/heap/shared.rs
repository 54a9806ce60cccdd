//! One heap for several threads of a host: [`SharedHeap`], and a [`Handle`] for each thread.
//!
//! A handle has slabs of its own ([`ThreadSlabs`]), where it allocates and frees without a lock;
//! everything else goes through the one lock of the heap: other slabs, large objects, roots,
//! transactions (one at a time, because the format has one lane).

use core::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backing::Backing;
use crate::error::HeapError;
use crate::heap::Heap;
use crate::heap::thread_slabs::{ThreadBarrier, ThreadSlabs};
use crate::heap::transaction::Transaction;

/// A heap that several threads use at once, each through a [`Handle`] of its own.
pub struct SharedHeap<B: Backing> {
    heap: Arc<Mutex<Heap<B>>>,
    barrier: Option<ThreadBarrier>,
}

/// One thread's access to a [`SharedHeap`]. Dropping it gives its slabs back to the others.
pub struct Handle<B: Backing> {
    heap: Arc<Mutex<Heap<B>>>,
    /// There until the handle is dropped.
    slabs: Option<ThreadSlabs>,
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
    pub unsafe fn new(heap: Heap<B>) -> SharedHeap<B> {
        // SAFETY: the same contract.
        unsafe { SharedHeap::with_barrier(heap, None) }
    }

    /// As [`SharedHeap::new`], with a barrier that makes the threads' own slabs cheaper.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn with_barrier(mut heap: Heap<B>, barrier: Option<ThreadBarrier>) -> SharedHeap<B> {
        heap.abort_all();
        heap.is_shared = true;
        SharedHeap { heap: Arc::new(Mutex::new(heap)), barrier }
    }

    /// A handle for one more thread.
    pub fn handle(&self) -> Handle<B> {
        // SAFETY: the handle keeps the heap, and by the contract of `with_barrier` it stays the
        // same.
        let slabs = unsafe { lock(&self.heap).thread_slabs(self.barrier) };
        Handle { heap: Arc::clone(&self.heap), slabs: Some(slabs) }
    }

    /// The heap for one thread again; the value itself when there are handles still.
    ///
    /// # Errors
    /// The value, unchanged.
    pub fn into_heap(self) -> Result<Heap<B>, SharedHeap<B>> {
        match Arc::try_unwrap(self.heap) {
            Ok(heap) => {
                let mut heap = heap.into_inner().unwrap_or_else(PoisonError::into_inner);
                heap.is_shared = false;
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
        match self.slabs.as_mut().and_then(|slabs| slabs.alloc(bytes)) {
            Some(object) => Ok(object),
            None => self.alloc_locked(bytes),
        }
    }

    #[cold]
    fn alloc_locked(&mut self, bytes: u64) -> Result<NonNull<u8>, HeapError> {
        let mut heap = lock(&self.heap);
        match &mut self.slabs {
            Some(slabs) => slabs.alloc_in(&mut heap, bytes),
            None => heap.alloc(bytes),
        }
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
        let freed = self.slabs.as_mut().is_some_and(|slabs| slabs.free(pointer));
        if freed { Ok(()) } else { self.free_locked(pointer) }
    }

    #[inline(never)]
    fn free_locked(&mut self, pointer: NonNull<u8>) -> Result<(), HeapError> {
        let mut heap = lock(&self.heap);
        match &mut self.slabs {
            Some(slabs) => slabs.free_in(&mut heap, pointer),
            None => heap.free(pointer),
        }
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
}

impl<B: Backing> Drop for Handle<B> {
    fn drop(&mut self) {
        if let Some(slabs) = self.slabs.take() {
            slabs.give_back(&mut lock(&self.heap));
        }
    }
}
