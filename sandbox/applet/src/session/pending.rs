//! A call that is under way: until when it may go on, and what of its result is wanted. A session
//! has at most one, and asks it after each message and each wake-up what is due.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use holdfast_crossings::Interval;

use crate::metrics::CallMetrics;

/// The call under way: its deadline, its result so far, its cancellation.
pub(super) struct Pending {
    pub(super) call: u64,
    pub(super) started: Instant,
    pub(super) time_limit: Option<Duration>,
    /// When the grace of a cancelled call ends.
    pub(super) patience: Option<Instant>,
    pub(super) is_streamed: bool,
    /// How often a caller wants to look in, and when that was the last time.
    pub(super) look_every: Option<Duration>,
    pub(super) looked: Instant,
    /// Something came since then.
    pub(super) has_heard: bool,
    /// What of the result there is room for.
    pub(super) room_bytes: usize,
    /// Why no caller wants the rest of the result.
    pub(super) unwanted: Option<Unwanted>,
    /// The applet's processor time before it, if it is counted.
    pub(super) cpu_time: Option<Duration>,
    pub(super) metrics: CallMetrics,
    /// For the tracer, if there is one.
    pub(super) _crossings: Interval,
}

/// Why no caller wants the rest of a result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unwanted {
    TooLarge,
    Dropped,
}

impl Pending {
    /// When it must have ended.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let limit = self.time_limit.and_then(|limit| self.started.checked_add(limit));
        [limit, self.patience].into_iter().flatten().min()
    }

    /// Whether it is time for a look, which is counted then. What keeps coming does not put it off.
    pub(super) fn is_time_for_a_look(&mut self) -> bool {
        // Where nothing comes, the wait for it ends in time by itself.
        let Some(every) = self.look_every.filter(|_| self.has_heard) else { return false };
        let now = Instant::now();
        if now.saturating_duration_since(self.looked) < every {
            return false;
        }
        (self.looked, self.has_heard) = (now, false);
        true
    }

    /// Whether a part of the result is wanted: it `came`, has room, and so had all before it.
    pub(super) fn wants(&mut self, came: bool, bytes: usize) -> bool {
        if self.unwanted.is_some() {
            return false;
        }
        if !came || bytes > self.room_bytes {
            self.unwanted = Some(Unwanted::TooLarge);
            return false;
        }
        if !self.is_streamed {
            self.room_bytes -= bytes;
        }
        true
    }

    /// Whether a caller wants the rest of the result.
    pub(super) fn is_wanted(&self) -> bool {
        self.unwanted.is_none()
    }

    /// Whether there was no room for the result.
    pub(super) fn is_refused(&self) -> bool {
        self.unwanted == Some(Unwanted::TooLarge)
    }

    /// No caller wants the rest of the result.
    pub(super) fn drop_result(&mut self) {
        self.unwanted.get_or_insert(Unwanted::Dropped);
    }
}
