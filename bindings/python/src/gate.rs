//! Many users of one value, and its end.
//!
//! Invariants:
//! - While a caller is inside, the value is there; the one that closes the gate waits for those
//!   inside, and lets no caller in meanwhile, but for what makes them leave.
#![forbid(unsafe_code)]

use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A value that many threads use until one of them closes it; that one waits for the others.
pub(crate) struct Gate<T> {
    inside: Mutex<Inside<T>>,
    left: Condvar,
}

struct Inside<T> {
    value: Option<Arc<T>>,
    users: usize,
    is_closing: bool,
}

/// The right to use the value.
pub(crate) struct Pass<'gate, T> {
    gate: &'gate Gate<T>,
    value: Option<Arc<T>>,
}

impl<T> Gate<T> {
    pub(crate) fn new(value: T) -> Gate<T> {
        let inside = Inside { value: Some(Arc::new(value)), users: 0, is_closing: false };
        Gate { inside: Mutex::new(inside), left: Condvar::new() }
    }

    /// The value, unless the gate is closed or about to be.
    pub(crate) fn enter(&self) -> Option<Pass<'_, T>> {
        let inside = self.lock();
        if inside.is_closing { None } else { self.pass(inside) }
    }

    /// The value as long as it is there: for what is short, and makes others leave.
    pub(crate) fn enter_to_end(&self) -> Option<Pass<'_, T>> {
        self.pass(self.lock())
    }

    /// Whether no caller gets in any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closing
    }

    /// Takes the value out when no caller uses it any more; `None` for all but the first.
    pub(crate) fn close(&self) -> Option<T> {
        let mut inside = self.lock();
        inside.is_closing = true;
        while inside.users > 0 {
            inside = self.left.wait(inside).unwrap_or_else(PoisonError::into_inner);
        }
        inside.value.take().and_then(Arc::into_inner)
    }

    fn pass(&self, mut inside: MutexGuard<'_, Inside<T>>) -> Option<Pass<'_, T>> {
        let value = inside.value.clone()?;
        inside.users += 1;
        Some(Pass { gate: self, value: Some(value) })
    }

    fn lock(&self) -> MutexGuard<'_, Inside<T>> {
        // Nothing in here can be left half done.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Deref for Pass<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.value {
            Some(value) => value,
            // It is taken out in `drop` only.
            None => unreachable!("a pass has its value as long as it lives"),
        }
    }
}

impl<T> Drop for Pass<'_, T> {
    fn drop(&mut self) {
        // Before it is said to be free.
        drop(self.value.take());
        self.gate.lock().users -= 1;
        self.gate.left.notify_all();
    }
}
