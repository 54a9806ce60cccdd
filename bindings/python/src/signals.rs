//! Signals of Python (Ctrl-C) while a thread waits without the interpreter, which would run their
//! handlers.
//!
//! Invariant: a handler runs with no lock held, and what it raises ends the wait. (`respawn`
//! holds the applet's lock; its thread has the turn, so the applet's methods refuse a handler there.)
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;

use crate::error::no_turn;
use crate::turn::NoTurn;

/// Does work that waits for other threads, without the interpreter. The work asks its argument
/// whether to wait on. Once the handler of a signal has raised, the answer is no, and that is
/// raised here.
pub(crate) fn wait<R: Send>(
    py: Python<'_>,
    work: impl FnOnce(&(dyn Fn() -> bool + Sync)) -> Result<R, NoTurn> + Send,
) -> PyResult<R> {
    let raised = Mutex::new(None);
    let done = py.detach(|| work(&|| handle(&raised)));
    if let Some(error) = raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    done.map_err(|why| no_turn(py, why))
}

thread_local! {
    /// Where this thread keeps what the handler of a signal raises while it starts applets.
    static STARTING: RefCell<Option<Raised>> = const { RefCell::new(None) };
}

/// What the handler of a signal has raised while an applet was started.
#[derive(Clone, Default)]
pub(crate) struct Raised(Arc<Mutex<Option<PyErr>>>);

impl Raised {
    /// Has this thread hear signals while it waits for an applet to serve, until what is returned
    /// is dropped.
    pub(crate) fn listen(&self) -> Listening {
        Listening(STARTING.replace(Some(self.clone())))
    }

    /// Takes it out.
    pub(crate) fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A thread hears signals while it waits for an applet to serve. Holds where it kept them before: a
/// handler may start applets, too.
#[must_use]
pub(crate) struct Listening(Option<Raised>);

impl Drop for Listening {
    fn drop(&mut self) {
        STARTING.set(self.0.take());
    }
}

/// Whether the applet that this thread starts is still wanted. Always on a thread that does not
/// listen: a pool's own, for one.
pub(crate) fn start_goes_on() -> bool {
    let listening = STARTING.with_borrow(Clone::clone);
    listening.is_none_or(|raised| handle(&raised.0))
}

/// Has the interpreter run the handlers of signals on this thread, which it does only when it is
/// asked to. What one raises is kept; says whether none did.
pub(crate) fn handle(raised: &Mutex<Option<PyErr>>) -> bool {
    let checked = Python::try_attach(|py| py.check_signals());
    let Some(Err(error)) = checked else { return true };
    raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    false
}
