//! What another thread may do to a call that is under way: cancel it.
//!
//! Invariant: a cancellation meets the call that was under way when it was asked for, and no later one.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

/// See the module.
pub(crate) struct Control {
    /// The number of the call under way; 0 for none.
    current: AtomicU64,
    cancelled: AtomicU64,
    nudge: Box<dyn Fn() + Send + Sync>,
}

impl Control {
    /// `nudge` makes the thread that waits for the applet look at [`Control::is_cancelled`].
    pub(crate) fn new(nudge: impl Fn() + Send + Sync + 'static) -> Control {
        Control { current: AtomicU64::new(0), cancelled: AtomicU64::new(0), nudge: Box::new(nudge) }
    }

    pub(crate) fn begin(&self, call: u64) {
        self.current.store(call, Ordering::SeqCst);
    }

    pub(crate) fn end(&self) {
        self.current.store(0, Ordering::SeqCst);
    }

    pub(crate) fn is_cancelled(&self, call: u64) -> bool {
        self.cancelled.load(Ordering::SeqCst) == call
    }

    /// Whether there was a call to cancel.
    pub(crate) fn cancel(&self) -> bool {
        let call = self.current.load(Ordering::SeqCst);
        if call == 0 {
            return false;
        }
        self.cancelled.store(call, Ordering::SeqCst);
        (self.nudge)();
        true
    }
}
