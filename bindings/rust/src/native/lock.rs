//! A lock for a program with threads: one atomic operation to take and to give back while no thread
//! else wants it, and the kernel's futex when one does.
//!
//! Invariants: not for the same thread twice; a thread that dies inside (it takes the process with
//! it) leaves it taken.

use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// And a thread sleeps.
const WANTED: u32 = 2;

/// Looks at a lock that is taken, before sleeping: most are held for less than a sleep takes.
const SPINS: u32 = 100;

/// A value that threads use one after the other. See the module.
pub struct Lock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time gets to the value.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// A lock around a value.
    pub const fn new(value: T) -> Lock<T> {
        Lock { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Runs `work` with the value, alone. Not from within another `work` on the same lock: that
    /// waits for ever.
    #[inline]
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        if self.state.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait();
        }
        // Also when `work` unwinds.
        let _taken = Taken(&self.state);
        // SAFETY: the state says that this thread alone is here.
        work(unsafe { &mut *self.value.get() })
    }

    /// As [`Lock::with`], unless another thread has it.
    pub(crate) fn try_with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.state.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let _taken = Taken(&self.state);
        // SAFETY: as there.
        Some(work(unsafe { &mut *self.value.get() }))
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..SPINS {
            if self
                .state
                .compare_exchange_weak(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
            {
                return;
            }
            spin_loop();
        }
        while self.state.swap(WANTED, Ordering::Acquire) != FREE {
            // It returns at once if the state is another one by now; why it returned does not
            // matter.
            let _ = futex::wait(&self.state, futex::Flags::PRIVATE, WANTED, None);
        }
    }
}

struct Taken<'a>(&'a AtomicU32);

impl Drop for Taken<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.swap(FREE, Ordering::Release) == WANTED {
            let _ = futex::wake(self.0, futex::Flags::PRIVATE, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_get_to_the_value_one_after_the_other() {
        static COUNT: Lock<u64> = Lock::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    (0..100_000).for_each(|_| {
                        COUNT.with(|count| *count = core::hint::black_box(*count) + 1)
                    })
                });
            }
        });
        assert_eq!(COUNT.with(|count| *count), 400_000);
    }
}
