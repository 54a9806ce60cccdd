//! The end of an applet, or of a pool, on a thread of its own: who waits for it hears signals
//! meanwhile.
//!
//! An applet that is asked to end may still call functions of this program, and these may close
//! this applet, and others that end as well.
//!
//! Invariants:
//! - Once begun it goes on, whether a thread waits for it or not. What came of it is for the first
//!   that waits to the end.
//! - It is over before what it belongs to is gone ([`Closing::join`]), and before the interpreter
//!   ends ([`join_all`]), which an end needs for the functions that it calls: no process that ends in
//!   order leaves a heap half closed. It goes on without that where a function let go of the last of
//!   it.
//!
//! What it must not do: let a thread that is in a function wait for an end that another thread has
//! begun, because that end, or one that it waits for, may wait for this very function. Callers ask
//! [`is_in_one`](crate::functions::is_in_one).
#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};

use holdfast_applet::{CloseError, Closed};
use pyo3::prelude::*;

use crate::process::Maker;
use crate::turn::{NoTurn, wait_while};

/// Ends that have begun, and the process in which they have.
static UNDER_WAY: Mutex<Vec<(Maker, Weak<Closing>)>> = Mutex::new(Vec::new());

/// What came of it, or a panic.
pub(crate) type Ended = thread::Result<Result<Option<Closed>, CloseError>>;

/// How an applet ends.
#[derive(Default)]
pub(crate) struct Closing {
    stage: Mutex<Stage>,
    over: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
enum Stage {
    /// It has not begun, or is about to.
    #[default]
    Before,
    UnderWay,
    /// With what came of it, until a thread has that.
    Over(Option<Box<Ended>>),
}

impl Closing {
    /// Begins it, and returns at once; `end` ends the applet.
    pub(crate) fn begin(
        self: &Arc<Self>,
        end: impl FnOnce() -> Result<Option<Closed>, CloseError> + Send + 'static,
    ) {
        *lock(&self.stage) = Stage::UnderWay;
        note(self);
        // Where the thread finds it; and this one, if there is no other.
        let end = Arc::new(Mutex::new(Some(end)));
        let (closing, given) = (self.clone(), end.clone());
        let run = move || closing.run_given(&given);
        match thread::Builder::new().name("holdfast-close".to_owned()).spawn(run) {
            Ok(thread) => *lock(&self.thread) = Some(thread),
            Err(_) => self.run_given(&end),
        }
    }

    fn run_given(&self, end: &Mutex<Option<impl FnOnce() -> Result<Option<Closed>, CloseError>>>) {
        let Some(end) = lock(end).take() else { return };
        self.run(end);
    }

    /// Does it on this thread: for what takes a moment.
    pub(crate) fn run(&self, end: impl FnOnce() -> Result<Option<Closed>, CloseError>) {
        let ended = catch_unwind(AssertUnwindSafe(end));
        *lock(&self.stage) = Stage::Over(Some(Box::new(ended)));
        self.over.notify_all();
    }

    /// Waits until it is over, while `goes_on` says so; what came of it, if no other thread has
    /// that. For an applet of which the end has begun, or is about to.
    pub(crate) fn wait(&self, goes_on: impl Fn() -> bool) -> Result<Option<Ended>, NoTurn> {
        let is_going_on = |stage: &Stage| !matches!(stage, Stage::Over(_));
        let stage = lock(&self.stage);
        let mut stage = wait_while(&self.stage, &self.over, stage, None, is_going_on, goes_on)?;
        let ended = match &mut *stage {
            Stage::Over(ended) => ended.take(),
            Stage::Before | Stage::UnderWay => None,
        };
        drop(stage);
        self.join();
        Ok(ended.map(|ended| *ended))
    }

    /// Waits, whatever comes, until it is over, if it was begun.
    pub(crate) fn join(&self) {
        let thread = lock(&self.thread).take();
        // It does not panic: what it does is caught.
        let _ = thread.map(JoinHandle::join);
    }
}

fn note(closing: &Arc<Closing>) {
    let add = || {
        let mut under_way = lock(&UNDER_WAY);
        under_way.retain(|(_, known)| known.strong_count() > 0);
        under_way.push((Maker::new(), Arc::downgrade(closing)));
    };
    // With the interpreter, which a thread that forks has: so no child finds it locked for ever.
    if Python::try_attach(|_| add()).is_none() {
        add();
    }
}

/// Waits until all ends are over that have begun in this process.
#[pyfunction]
pub(crate) fn join_all(py: Python<'_>) {
    // In a forked child another thread may have had it, and the ends are the parent's.
    let Ok(mut under_way) = UNDER_WAY.try_lock() else { return };
    let begun = std::mem::take(&mut *under_way);
    drop(under_way);
    py.detach(|| {
        for (_, closing) in begun.into_iter().filter(|(maker, _)| maker.is_here()) {
            if let Some(closing) = closing.upgrade() {
                closing.join();
            }
        }
    });
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each holds one value, set at once.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
