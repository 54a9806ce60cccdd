//! The states of an applet, serving and dead, and the ways between them. How it comes from one to
//! the other.
//!
//! Invariant: a dead applet has a cause, and still has its heaps, for the next start.
#![forbid(unsafe_code)]

use std::sync::Arc;

use holdfast_jail::End;
use holdfast_wasm::Heaps;

use crate::control::Control;
use crate::error::{AppletError, CallError, Failure, HeapAfterFailure, cannot_read, refused};
use crate::kind::SandboxKind;
use crate::metrics::Metrics;
use crate::native::Native;
use crate::plan::Plan;
use crate::sandbox::{Ended, NotStarted, Sandbox, not_started};
use crate::session::{Session, SessionEnded, Step};
use crate::wasm::Wasm;

/// Whether an applet serves or is dead.
#[allow(clippy::large_enum_variant, reason = "there is one for each applet")]
pub(crate) enum State {
    /// It serves.
    Serving(Box<Session>),
    /// It died of this; its heaps are held for the next start.
    Dead(Arc<AppletError>, Heaps),
}

impl State {
    /// Starts it, with what cancels its calls; or what it died of before it came to life.
    pub(crate) fn begin(plan: &Plan, heaps: Heaps) -> Result<(State, Arc<Control>), NotStarted> {
        if plan.start_wanted.as_ref().is_some_and(|is_wanted| !is_wanted()) {
            let kind = SandboxKind::of(&plan.path).unwrap_or(SandboxKind::Wasm);
            return Err(not_started(Failure::StartGivenUp, kind, heaps));
        }
        let sandbox = start(plan, heaps)?;
        let begun = Session::begin(sandbox, &plan.limits, plan.start_wanted.as_deref()).map_err(
            |(sandbox, SessionEnded(failure))| {
                let metrics = sandbox.metrics();
                let (mut error, heaps) = conclude(sandbox, failure, metrics);
                if let Failure::Ended { end: End::Exited { status } } = error.failure {
                    error.failure = Failure::NotServing { status };
                }
                (error, heaps)
            },
        );
        begun.map(|session| {
            let control = session.control.clone();
            (State::Serving(Box::new(session)), control)
        })
    }

    /// The next thing that the applet says in its call.
    pub(crate) fn step(&mut self) -> Result<Step, CallError> {
        match self {
            State::Serving(session) => match session.step() {
                Ok(step) => {
                    if session.is_spent {
                        // The call has what it has, and the next one finds the applet dead.
                        self.die(SessionEnded(None));
                    }
                    Ok(step)
                }
                Err(over) => Err(self.die(over)),
            },
            State::Dead(error, _) => Err(CallError::Died(error.clone())),
        }
    }

    /// Ends a call of which no caller wants to hear any more; without one there is nothing to do.
    pub(crate) fn abandon_call(&mut self) {
        if let State::Serving(session) = self
            && let Err(over) = session.abandon()
        {
            self.die(over);
        }
    }

    /// The thread that has a stream of its results.
    pub(crate) fn streamer(&self) -> Option<u64> {
        match self {
            State::Serving(session) => session.streamer,
            State::Dead(..) => None,
        }
    }

    /// Ends what serves, and says what the applet died of, now or before.
    pub(crate) fn die(&mut self, over: SessionEnded) -> CallError {
        let (error, heaps) = self.take().end(over);
        *self = State::Dead(error.clone(), heaps);
        CallError::Died(error)
    }

    /// Ends what serves: what it died of, now or before, and its heaps, each at its last consistent
    /// state.
    pub(crate) fn end(self, SessionEnded(failure): SessionEnded) -> (Arc<AppletError>, Heaps) {
        match self {
            State::Serving(session) => {
                session.control.end();
                let metrics = session.metrics();
                let (error, heaps) = conclude(session.sandbox, failure, metrics);
                (Arc::from(error), heaps)
            }
            State::Dead(error, heaps) => (error, heaps),
        }
    }

    /// As [`State::end`], but what serves is asked to end first.
    pub(crate) fn dismiss(mut self) -> (Arc<AppletError>, Heaps) {
        if let State::Serving(session) = &mut self {
            session.dismiss();
        }
        self.end(SessionEnded(None))
    }

    /// Takes it out. A caller that finds what is left here finds it after a panic of a caller that
    /// has taken it.
    pub(crate) fn take(&mut self) -> State {
        let failure = Failure::Host {
            step: "start or end the applet",
            source: std::io::Error::other(
                "this program panicked in the middle of it; start another one",
            ),
        };
        std::mem::replace(
            self,
            State::Dead(
                Arc::from(refused(failure, SandboxKind::Native, Heaps::none())),
                Heaps::none(),
            ),
        )
    }
}

/// `counted` has what the session counted.
fn conclude(sandbox: Box<dyn Sandbox>, failure: Option<Failure>, counted: Metrics) -> NotStarted {
    let Ended {
        failure: found,
        mut heaps,
        heap_error,
        stdout,
        stderr,
        is_output_truncated,
        mut metrics,
    } = sandbox.finish(failure.as_ref());
    metrics.take_calls(&counted);
    let after = HeapAfterFailure::open(&mut heaps);
    let failure = failure.unwrap_or(found);
    let error = AppletError {
        failure,
        metrics,
        heaps: after,
        heap_error,
        stdout,
        stderr,
        is_output_truncated,
    };
    (Box::new(error), heaps)
}

/// Starts the sandbox that an applet is for.
fn start(plan: &Plan, heaps: Heaps) -> Result<Box<dyn Sandbox>, NotStarted> {
    match SandboxKind::of(&plan.path) {
        Ok(SandboxKind::Native) => {
            Native::start(plan, heaps, true).map(|native| Box::new(native) as Box<dyn Sandbox>)
        }
        Ok(SandboxKind::Wasm) => {
            Wasm::start(plan, heaps).map(|wasm| Box::new(wasm) as Box<dyn Sandbox>)
        }
        Err(source) => Err(not_started(cannot_read(&plan.path, source), SandboxKind::Wasm, heaps)),
    }
}
