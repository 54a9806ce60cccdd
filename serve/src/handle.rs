//! What a connection and the thread of one of its applets share: which call is under way, which are
//! cancelled, how many parts the page takes, and whether it is over.
//!
//! Invariant: a cancellation meets its call, whether that waits, runs or is between two parts.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_applet::Applet;

use crate::message::PARTS_AHEAD;

/// A page that has died asks for nothing more; it is looked for so often.
const LOOK: Duration = Duration::from_millis(200);
/// Between two attempts to cancel a call that is just beginning.
const AGAIN: Duration = Duration::from_millis(2);

/// The state of an applet's calls.
#[derive(Default)]
pub(crate) struct Handle {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    applet: Option<Arc<Applet>>,
    running: Option<u32>,
    /// Calls that are not done, by number.
    pending: HashMap<u32, Pending>,
    is_closing: bool,
    /// The page closes the applet, and reads no stream any more.
    is_last: bool,
    is_over: bool,
}

struct Pending {
    is_cancelled: bool,
    /// How many more the page takes. They are made one by one, as the connection takes them, so any
    /// number costs no memory.
    parts: u64,
}

impl Handle {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The applet serves; `false` when its page has gone meanwhile.
    pub(crate) fn serves(&self, applet: &Arc<Applet>) -> bool {
        let mut state = self.lock();
        state.applet = Some(Arc::clone(applet));
        !state.is_closing
    }

    /// The applet is gone, or about to be closed by its thread, which has it alone from now on.
    pub(crate) fn let_go(&self) {
        self.lock().applet = None;
    }

    /// The thread has nothing more to say.
    pub(crate) fn end(&self) {
        self.lock().is_over = true;
    }

    pub(crate) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.lock().is_closing
    }

    /// Notes a call; `false` when there is one of this number.
    pub(crate) fn add(&self, call: u32) -> bool {
        let pending = Pending { is_cancelled: false, parts: PARTS_AHEAD.into() };
        self.lock().pending.insert(call, pending).is_none()
    }

    /// Begins a call; `false` when it was cancelled while it waited.
    pub(crate) fn begin(&self, call: u32) -> bool {
        let mut state = self.lock();
        state.running = Some(call);
        !state.is_given_up(call)
    }

    /// The call is done.
    pub(crate) fn done(&self, call: u32) {
        let mut state = self.lock();
        state.running = None;
        state.pending.remove(&call);
    }

    pub(crate) fn is_given_up(&self, call: u32) -> bool {
        self.lock().is_given_up(call)
    }

    /// Waits until the page takes another part of a call; `false` when the call was given up, also
    /// because the page closes the applet instead of taking more.
    pub(crate) fn take_part(&self, call: u32) -> bool {
        let mut state = self.lock();
        loop {
            if state.is_given_up(call) {
                return false;
            }
            if let Some(pending) = state.pending.get_mut(&call)
                && pending.parts > 0
            {
                pending.parts -= 1;
                return true;
            }
            if state.is_last {
                return false;
            }
            let waited = self.changed.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The page takes more parts of a call.
    pub(crate) fn more(&self, call: u32, parts: u32) {
        if let Some(pending) = self.lock().pending.get_mut(&call) {
            pending.parts = pending.parts.saturating_add(parts.into());
        }
        self.changed.notify_all();
    }

    /// Cancels a call, if it is not done.
    pub(crate) fn cancel(self: &Arc<Self>, call: u32) {
        match self.lock().pending.get_mut(&call) {
            Some(pending) => pending.is_cancelled = true,
            None => return,
        }
        self.stop_running();
    }

    /// The page closes the applet: no stream waits for it any more. `false` when it did so before.
    pub(crate) fn wait_no_more(&self) -> bool {
        let was_last = std::mem::replace(&mut self.lock().is_last, true);
        self.changed.notify_all();
        !was_last
    }

    /// Cancels all calls: the page is gone.
    pub(crate) fn close(self: &Arc<Self>) {
        self.lock().is_closing = true;
        self.stop_running();
    }

    /// Stops the call that is under way, if it was given up. One that is just beginning cannot be
    /// stopped yet, so this is tried until it is done.
    fn stop_running(self: &Arc<Self>) {
        self.changed.notify_all();
        if self.try_stop() {
            return;
        }
        let this = Arc::clone(self);
        tokio::spawn(async move {
            while !this.try_stop() {
                tokio::time::sleep(AGAIN).await;
            }
        });
    }

    /// Whether there is nothing to stop any more.
    fn try_stop(&self) -> bool {
        let state = self.lock();
        match (state.running, &state.applet) {
            // Under the lock, so that it is no other call that is cancelled.
            (Some(call), Some(applet)) if state.is_given_up(call) => applet.cancel(),
            _ => true,
        }
    }
}

impl State {
    fn is_given_up(&self, call: u32) -> bool {
        self.is_closing || self.pending.get(&call).is_none_or(|pending| pending.is_cancelled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However often a page closes an applet, one close is passed on.
    ///
    /// Guarantee: serve/flood
    #[test]
    fn only_the_first_close_counts() {
        let handle = Handle::default();
        assert!(handle.wait_no_more());
        assert!(!handle.wait_no_more());
    }

    /// A page gets as many parts as it asks for.
    ///
    /// Guarantee: serve/calls
    #[test]
    fn all_parts_asked_for_are_sent() {
        let handle = Handle::default();
        assert!(handle.add(1));
        (0..2).for_each(|_| handle.more(1, 5000));
        // The part beyond is refused then, not waited for.
        handle.wait_no_more();
        let asked = 10_000 + PARTS_AHEAD as usize;
        assert_eq!((0..2 * asked).take_while(|_| handle.take_part(1)).count(), asked);
    }
}
