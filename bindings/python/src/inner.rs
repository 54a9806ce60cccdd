//! The state that an applet's object shares with its streams.
//!
//! Invariants:
//! - One call at a time has the turn, and settles in it what it did to the applet; so a death or a
//!   cancellation reaches the call that it belongs to; the others see it as past.
#![forbid(unsafe_code)]

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use holdfast_applet::{
    AppletError, CallError, CallMetrics, CloseError, Closed, Pooled, SandboxKind,
};
use pyo3::prelude::*;

use crate::closing::Closing;
use crate::error::{call_error, cancelled};
use crate::functions;
use crate::gate::Gate;
use crate::process::Maker;
use crate::stream::Shared;
use crate::turn::{Moment, NoTurn, Turn, Turns};

/// The applet behind a Python object, shared with the streams of its calls.
pub(crate) struct Inner {
    pub(crate) gate: Gate<Held>,
    /// How it ends, once the gate is closed.
    pub(crate) closing: Arc<Closing>,
    pub(crate) maker: Maker,
    pub(crate) path: PathBuf,
    pub(crate) functions: Mutex<Vec<String>>,
    pub(crate) weaker: Vec<String>,
    /// Whether it can serve on after a cancellation.
    pub(crate) outlives_cancel: bool,
    /// How long an applet may go on with what is not wanted.
    pub(crate) grace: Duration,
    pub(crate) last_call: Mutex<Option<CallMetrics>>,
    pub(crate) death: Mutex<Option<Arc<AppletError>>>,
    /// A call was cancelled, and it is not known since whether the applet outlived that.
    was_cancelled: AtomicBool,
    /// One call at a time, with what is remembered of it.
    turns: Turns,
    pub(crate) stream: Mutex<Weak<Shared>>,
}

/// An applet of one's own, or one out of a pool.
pub(crate) enum Held {
    Own(holdfast_applet::Applet),
    Pooled(Pooled),
}

impl Deref for Held {
    type Target = holdfast_applet::Applet;

    fn deref(&self) -> &holdfast_applet::Applet {
        match self {
            Held::Own(applet) => applet,
            Held::Pooled(applet) => applet,
        }
    }
}

impl Held {
    /// Ends an applet of its own in order, and says how that ended. A pooled one goes back to its
    /// pool, which says nothing.
    pub(crate) fn close(self) -> Result<Option<Closed>, CloseError> {
        match self {
            Held::Own(applet) => applet.close().map(Some),
            // Dropping it gives it back.
            Held::Pooled(_) => Ok(None),
        }
    }
}

impl Inner {
    pub(crate) fn new(path: PathBuf, grace: Duration, held: Held) -> Inner {
        let outlives_cancel = held.metrics().kind == SandboxKind::Native;
        let (functions, weaker) = (held.functions(), held.weaker());
        Inner {
            gate: Gate::new(held),
            closing: Arc::default(),
            maker: Maker::new(),
            path,
            functions: Mutex::new(functions),
            weaker,
            outlives_cancel,
            grace,
            last_call: Mutex::default(),
            death: Mutex::default(),
            was_cancelled: AtomicBool::new(false),
            turns: Turns::default(),
            stream: Mutex::default(),
        }
    }

    /// Remembers what a call came to.
    pub(crate) fn note(&self, metrics: Option<CallMetrics>) {
        if metrics.is_some() {
            *lock(&self.last_call) = metrics;
        }
    }

    /// The exception for a failed call; `known`: what the applet had died of before it.
    pub(crate) fn failure(
        &self,
        py: Python<'_>,
        error: &CallError,
        known: Option<&Arc<AppletError>>,
    ) -> PyErr {
        // One that came in a host function.
        if let Err(raised) = py.check_signals() {
            return raised;
        }
        match error {
            CallError::Cancelled => cancelled(py, error, lock(&self.death).is_none()),
            error => call_error(py, error, known),
        }
    }

    /// The turn for a call: from here on no other thread's can be confused with it. With what the
    /// applet died of before. Waits for other calls no longer than `patience`, and while `goes_on`
    /// says so.
    pub(crate) fn turn(
        &self,
        patience: Option<Duration>,
        goes_on: impl Fn() -> bool,
    ) -> Result<(Turn<'_>, Option<Arc<AppletError>>), NoTurn> {
        let turn = self.turns.take(patience, goes_on)?;
        let known = lock(&self.death).clone();
        Ok((turn, known))
    }

    /// The turn for what takes a moment. A stream leaves the applet to others between its parts.
    /// Waits for that, or for a call, while `goes_on` says so.
    pub(crate) fn brief_turn(&self, goes_on: impl Fn() -> bool) -> Result<Moment<'_>, NoTurn> {
        self.turns.take_briefly(goes_on)
    }

    /// Whether this thread is in a function that the applet called, or works for one, so that it
    /// would wait for itself.
    pub(crate) fn is_in_host_function(&self) -> bool {
        self.gate.enter_to_end().is_some_and(|applet| applet.is_in_host_function())
    }

    /// Begins the end of what was taken out of the gate. Does it at once in a host function, as what
    /// the end calls belongs to the same chain of calls and must not wait for what that chain is in.
    /// Whether a pool takes an applet back or ends it, which may take long, is known afterwards only.
    pub(crate) fn end(&self, held: Held) {
        match functions::is_in_one() {
            true => self.closing.run(move || held.close()),
            false => self.closing.begin(move || held.close()),
        }
    }

    /// Whether this thread is in a call of the applet, so that it would wait for itself.
    pub(crate) fn is_calling_here(&self) -> bool {
        self.turns.is_here()
    }

    /// After a call, in its turn: remembers whether it was the applet's last.
    pub(crate) fn settle(&self, applet: &Held, error: Option<&CallError>) {
        let was_cancelled = self.was_cancelled.swap(false, Ordering::SeqCst);
        match error {
            Some(CallError::Died(cause)) => self.note_death(Some(cause.clone())),
            _ if was_cancelled => self.note_death(applet.cause_of_death()),
            _ => {}
        }
    }

    /// Cancels the call under way, if there is one.
    pub(crate) fn cancel(&self) -> bool {
        let Some(applet) = self.gate.enter_to_end() else { return false };
        // Before, so that the call cannot end in between without looking.
        self.was_cancelled.store(true, Ordering::SeqCst);
        applet.cancel()
    }

    /// Remembers that it is gone, and that no caller knows yet.
    pub(crate) fn note_death(&self, cause: Option<Arc<AppletError>>) {
        if cause.is_some() {
            *lock(&self.death) = cause;
        }
    }
}

impl Drop for Inner {
    /// Waits for an end that no caller waited for; but not in a host function, for which that end may
    /// wait.
    fn drop(&mut self) {
        if !functions::is_in_one() {
            self.closing.join();
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each holds one value, set at once.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
