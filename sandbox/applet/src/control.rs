//! Cancels a call that is under way, from another thread.
//!
//! Invariant: a cancellation meets the call that was under way when it was asked for, and no later
//! one.
#![forbid(unsafe_code)]

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The handle by which another thread cancels a call.
pub(crate) struct Control {
    calls: Mutex<Calls>,
    nudge: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Calls {
    /// The number of the call under way; 0 for none.
    current: u64,
    cancelled: u64,
}

impl Control {
    /// `nudge` makes the thread that waits for the applet look at [`Control::is_cancelled`], or
    /// ends the applet.
    pub(crate) fn new(nudge: impl Fn() + Send + Sync + 'static) -> Control {
        Control { calls: Mutex::default(), nudge: Box::new(nudge) }
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        // Two numbers, each valid by itself.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self, call: u64) {
        self.lock().current = call;
    }

    /// Whether the call that ends had been cancelled.
    pub(crate) fn end(&self) -> bool {
        let mut calls = self.lock();
        let call = std::mem::take(&mut calls.current);
        call != 0 && calls.cancelled == call
    }

    pub(crate) fn is_cancelled(&self, call: u64) -> bool {
        self.lock().cancelled == call
    }

    /// Whether there was a call to cancel.
    pub(crate) fn cancel(&self) -> bool {
        let mut calls = self.lock();
        if calls.current == 0 {
            return false;
        }
        calls.cancelled = calls.current;
        // Under the lock, so that the call cannot end before.
        (self.nudge)();
        true
    }
}
