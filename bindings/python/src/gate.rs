//! Many users of one value, and its end.
//!
//! Invariants:
//! - While a caller is inside, the value is there; the one that closes the gate waits for those
//!   inside, and lets no caller in meanwhile, but for what makes them leave.
//!
//! What it must not do: let a thread that is inside wait for itself. Who closes the gate asks
//! [`Gate::is_inside_here`].
#![forbid(unsafe_code)]

use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use crate::turn::{NoTurn, wait_while};

/// A value that many threads use until one of them closes it; that one waits for the others.
pub(crate) struct Gate<T> {
    inside: Mutex<Inside<T>>,
    left: Condvar,
}

struct Inside<T> {
    value: Option<Arc<T>>,
    /// The threads inside, each as often as it is.
    users: Vec<ThreadId>,
    /// How many threads wait for those inside, to close the gate.
    closers: usize,
}

/// The right to use the value.
pub(crate) struct Pass<'gate, T> {
    gate: &'gate Gate<T>,
    value: Option<Arc<T>>,
    user: ThreadId,
}

impl<T> Gate<T> {
    pub(crate) fn new(value: T) -> Gate<T> {
        let inside = Inside { value: Some(Arc::new(value)), users: Vec::new(), closers: 0 };
        Gate { inside: Mutex::new(inside), left: Condvar::new() }
    }

    /// The value, unless the gate is closed or about to be.
    pub(crate) fn enter(&self) -> Option<Pass<'_, T>> {
        let inside = self.lock();
        if inside.is_closing() { None } else { self.pass(inside) }
    }

    /// The value as long as it is there: for what is short, and makes others leave.
    pub(crate) fn enter_to_end(&self) -> Option<Pass<'_, T>> {
        self.pass(self.lock())
    }

    /// Whether no caller gets in any more, or not as long as another one waits to close the gate.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closing()
    }

    /// Whether this thread is inside.
    pub(crate) fn is_inside_here(&self) -> bool {
        self.lock().users.contains(&thread::current().id())
    }

    /// Takes the value out when no caller uses it any more; `None` for all but the first. Waits for
    /// that while `goes_on` says so; else the gate is open again.
    pub(crate) fn close(&self, goes_on: impl Fn() -> bool) -> Result<Option<T>, NoTurn> {
        let mut inside = self.lock();
        inside.closers += 1;
        let is_used = |inside: &Inside<T>| !inside.users.is_empty();
        match wait_while(&self.inside, &self.left, inside, None, is_used, goes_on) {
            Ok(mut inside) => {
                inside.closers -= 1;
                Ok(inside.value.take().and_then(Arc::into_inner))
            }
            Err(why) => {
                self.lock().closers -= 1;
                Err(why)
            }
        }
    }

    fn pass(&self, mut inside: MutexGuard<'_, Inside<T>>) -> Option<Pass<'_, T>> {
        let value = inside.value.clone()?;
        let user = thread::current().id();
        inside.users.push(user);
        Some(Pass { gate: self, value: Some(value), user })
    }

    fn lock(&self) -> MutexGuard<'_, Inside<T>> {
        // Nothing in here can be left half done.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Inside<T> {
    fn is_closing(&self) -> bool {
        self.closers > 0 || self.value.is_none()
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
        let mut inside = self.gate.lock();
        if let Some(at) = inside.users.iter().position(|user| *user == self.user) {
            inside.users.swap_remove(at);
        }
        let is_awaited = inside.closers > 0;
        drop(inside);
        if is_awaited {
            self.gate.left.notify_all();
        }
    }
}
