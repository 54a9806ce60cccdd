//! Small anonymous objects without the lock of the library: `nvmalloc` and `nvfree` in slabs that
//! the calling thread has claimed in the heap of the functions without a handle.
//!
//! Invariants:
//! - Nothing is quick in a transaction, or after a call that panicked. The caller sees to forked
//!   children.
//! - The slabs of a thread that ends go back to the heap, and all of them when it is closed: what a
//!   thread still has of a closed heap it finds to be of no use, and forgets at its next call.
//! - A kernel that cannot have all threads of a process pass a memory barrier (before Linux 4.14,
//!   or a filter) leaves everything to the lock.

#![allow(unsafe_code, reason = "a heap's slabs outlive no heap by this module's rules")]

use std::cell::Cell;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_c_core::{Calls, Content, HeapCallError};
use holdfast_heap::{Backing, Heap, ThreadSlabs};
use holdfast_sys::thread_barrier::thread_barrier;

/// Larger objects are so few in a slab that a thread of its own would keep much for little.
const QUICK_BYTES_MAX: u64 = 1024;

/// Whether a heap is open and no transaction in it.
static ALLOWED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The calling thread's slabs; they belong to `OWNER`. A bare pointer, which needs no look at
    /// whether the thread is ending.
    static SLABS: Cell<*mut ThreadSlabs> = const { Cell::new(null_mut()) };
    static OWNER: Owner = const { Owner(Cell::new(None)) };
}

/// How a thread that ends gives its slabs back.
pub(crate) type GiveBack = fn(Box<ThreadSlabs>);

/// Gives the thread's slabs back when it ends.
struct Owner(Cell<Option<GiveBack>>);

impl Drop for Owner {
    fn drop(&mut self) {
        if let (Some(slabs), Some(give_back)) = (take(), self.0.get()) {
            give_back(slabs);
        }
    }
}

/// The thread's slabs, which are not its own any more.
fn take() -> Option<Box<ThreadSlabs>> {
    let slabs = SLABS.replace(null_mut());
    // SAFETY: not null, so it is of a box, which is handed over by being replaced.
    (!slabs.is_null()).then(|| unsafe { Box::from_raw(slabs) })
}

/// The thread's slabs go back to the heap now, as at its end.
pub(crate) fn give_back_now() {
    let give_back = OWNER.try_with(|owner| owner.0.get()).ok().flatten();
    if let (Some(slabs), Some(give_back)) = (take(), give_back) {
        give_back(slabs);
    }
}

/// Whether threads may use their slabs without the lock.
#[inline]
pub(crate) fn is_allowed() -> bool {
    ALLOWED.load(Ordering::Relaxed)
}

/// What the holder of the lock found after each call.
#[inline]
pub(crate) fn allow(allowed: bool) {
    if is_allowed() != allowed {
        ALLOWED.store(allowed, Ordering::Relaxed);
    }
}

/// Runs `work` with the slabs that this thread has, if it may use them without the lock.
#[inline(always)]
fn quickly<R>(work: impl FnOnce(&mut ThreadSlabs) -> Option<R>) -> Option<R> {
    if !is_allowed() {
        return None;
    }
    // SAFETY: null, or the box of this thread; `work` is a function of it that calls nothing of
    // this module, so there is no other reference.
    unsafe { SLABS.get().as_mut() }.and_then(work)
}

/// An object from a slab of this thread.
#[inline]
pub(crate) fn allocate(bytes: u64, content: Content) -> Option<NonNull<u8>> {
    if bytes > QUICK_BYTES_MAX {
        return None;
    }
    quickly(|slabs| match content {
        Content::Zeroes => slabs.alloc_zeroed(bytes),
        Content::Any => slabs.alloc(bytes),
    })
}

/// Frees an object in a slab of this thread; `false` when it is not, or is none.
#[inline]
pub(crate) fn free(object: NonNull<u8>) -> bool {
    quickly(|slabs| slabs.free(object).then_some(())).is_some()
}

/// An object; what this thread claims for it makes its next ones quick.
pub(crate) fn allocate_in<B: Backing>(
    calls: &mut Calls<B>,
    bytes: u64,
    content: Content,
    give_back: GiveBack,
) -> Result<NonNull<u8>, HeapCallError> {
    if bytes > QUICK_BYTES_MAX || calls.heap().in_transaction() {
        return calls.allocate_anonymous(bytes, content);
    }
    calls.allocate_by(bytes, |heap| {
        with_slabs(heap, give_back, |slabs, heap| match (slabs, content) {
            (Some(slabs), Content::Zeroes) => slabs.alloc_zeroed_in(heap, bytes),
            (Some(slabs), Content::Any) => slabs.alloc_in(heap, bytes),
            (None, Content::Zeroes) => heap.alloc_zeroed(bytes),
            (None, Content::Any) => heap.alloc(bytes),
        })
    })
}

/// Frees an object; the slab of one that no thread claims becomes this thread's.
pub(crate) fn free_in<B: Backing>(
    calls: &mut Calls<B>,
    object: NonNull<u8>,
    give_back: GiveBack,
) -> Result<(), HeapCallError> {
    if calls.heap().in_transaction() {
        return calls.free(object);
    }
    calls.free_by(object, |heap| {
        let is_quick = heap.usable_bytes(object).is_ok_and(|bytes| bytes <= QUICK_BYTES_MAX);
        if !is_quick {
            return heap.free(object);
        }
        with_slabs(heap, give_back, |slabs, heap| match slabs {
            Some(slabs) => slabs.free_in(heap, object),
            None => heap.free(object),
        })
    })
}

/// Runs `work` with this thread's slabs of a heap, which it has from now on, and with the heap.
fn with_slabs<B: Backing, R>(
    heap: &mut Heap<B>,
    give_back: GiveBack,
    work: impl FnOnce(Option<&mut ThreadSlabs>, &mut Heap<B>) -> R,
) -> R {
    let Some(barrier) = thread_barrier() else { return work(None, heap) };
    if OWNER.try_with(|owner| owner.0.set(Some(give_back))).is_err() {
        // The thread is ending.
        return work(None, heap);
    }
    let mut own = take().filter(|slabs| slabs.are_of(heap)).unwrap_or_else(|| {
        // SAFETY: the session closes its heap by `Heap::close` in all its ways but one, that of a
        // process that is ending, where it stays; and slabs get the heap that they are of.
        Box::new(unsafe { heap.thread_slabs(Some(barrier)) })
    });
    let done = work(Some(&mut *own), heap);
    SLABS.set(Box::into_raw(own));
    done
}
