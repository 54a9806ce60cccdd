//! A lock for a program with one thread: it keeps nothing out, and has the form of the native one.

use core::cell::UnsafeCell;

/// A value that is used by one at a time. See the module.
pub struct Lock<T>(UnsafeCell<T>);

// SAFETY: a WebAssembly applet has one thread.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// A lock around a value.
    pub const fn new(value: T) -> Lock<T> {
        Lock(UnsafeCell::new(value))
    }

    /// Runs `work` with the value. Not from within another `work` on the same lock.
    #[inline]
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: one thread, and not entered twice by the contract, so this is the only reference.
        work(unsafe { &mut *self.0.get() })
    }
}
