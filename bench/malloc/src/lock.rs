//! The lock around the heap: one thread at a time, and a thread that comes back in while it has the
//! lock gets an error instead of waiting for itself.
//!
//! Invariants: no allocation, ever; `OWNER` is this thread's number only while this thread has the
//! lock.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Mutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a POSIX mutex is made to be shared between threads; it is only handed to the functions
// for it.
unsafe impl Sync for Mutex {}

static MUTEX: Mutex = Mutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
static OWNER: AtomicUsize = AtomicUsize::new(0);

/// Held until it is dropped.
pub(crate) struct Guard(());

fn this_thread() -> usize {
    // SAFETY: no preconditions; never 0 (it is the address of the thread's control block).
    unsafe { libc::pthread_self() as usize }
}

/// Takes the lock; `None` when this thread has it already.
pub(crate) fn lock() -> Option<Guard> {
    let us = this_thread();
    if OWNER.load(Ordering::Relaxed) == us {
        return None;
    }
    // SAFETY: initialised statically; not ours, so it does not wait for itself.
    unsafe { libc::pthread_mutex_lock(MUTEX.0.get()) };
    OWNER.store(us, Ordering::Relaxed);
    Some(Guard(()))
}

impl Guard {
    /// Keeps the lock beyond the value's life; see [`Guard::take_back`].
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }

    /// The lock that this thread kept.
    pub(crate) fn take_back() -> Option<Guard> {
        (OWNER.load(Ordering::Relaxed) == this_thread()).then_some(Guard(()))
    }

    /// In a child that was just forked: the other threads, which may be waiting here, do not exist.
    pub(crate) fn start_anew(self) {
        self.keep();
        OWNER.store(0, Ordering::Relaxed);
        // SAFETY: the child has one thread, this one.
        unsafe { *MUTEX.0.get() = libc::PTHREAD_MUTEX_INITIALIZER };
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        OWNER.store(0, Ordering::Relaxed);
        // SAFETY: a guard exists only while this thread has the lock.
        unsafe { libc::pthread_mutex_unlock(MUTEX.0.get()) };
    }
}
