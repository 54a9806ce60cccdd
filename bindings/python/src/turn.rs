//! One call of an applet at a time: a call has the turn, and those of other threads wait for it.
//!
//! Invariants:
//! - A thread that waits asks its caller every [`SIGNALS_EVERY`] whether to wait on, with no lock
//!   held: the answer may run any code of Python.
//!
//! What it must not do: let a thread that has the turn wait for it. Callers ask [`Turns::is_here`].
#![forbid(unsafe_code)]

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// How often a thread that waits for an applet, or for another thread, looks for signals.
pub(crate) const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// The turns of an applet's calls.
#[derive(Default)]
pub(crate) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The thread that has the turn.
    holder: Option<ThreadId>,
    /// Whether it leaves the applet to others for a moment at a time.
    is_lent: bool,
    /// How many threads wait.
    waiting: usize,
}

/// The turn, until it is dropped.
#[must_use]
pub(crate) struct Turn<'turns>(&'turns Turns);

/// Why a thread did not get the turn. It changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoTurn {
    /// Others had it for as long as this one wanted to wait.
    TimeLimit(Duration),
    /// It was told not to wait on.
    GivenUp,
}

impl Turns {
    /// Waits for the turn: no longer than `patience`, and while `goes_on` says so.
    pub(crate) fn take(
        &self,
        patience: Option<Duration>,
        goes_on: impl Fn() -> bool,
    ) -> Result<Turn<'_>, NoTurn> {
        let state = self.wait(State::is_taken, patience, goes_on)?;
        Ok(self.begin(state))
    }

    /// As [`Turns::take`], for what takes a moment. While the turn is lent that need not wait, and
    /// is done without it.
    pub(crate) fn take_briefly(
        &self,
        goes_on: impl Fn() -> bool,
    ) -> Result<Option<Turn<'_>>, NoTurn> {
        let state = self.wait(|state| state.is_taken() && !state.is_lent, None, goes_on)?;
        if state.is_taken() { Ok(None) } else { Ok(Some(self.begin(state))) }
    }

    /// Whether this thread has the turn.
    pub(crate) fn is_here(&self) -> bool {
        lock(&self.state).holder == Some(thread::current().id())
    }

    /// Returns when the turn is not taken, in the sense of `is_taken`.
    fn wait(
        &self,
        is_taken: impl Fn(&State) -> bool,
        patience: Option<Duration>,
        goes_on: impl Fn() -> bool,
    ) -> Result<MutexGuard<'_, State>, NoTurn> {
        let mut state = lock(&self.state);
        if !is_taken(&state) {
            return Ok(state);
        }
        state.waiting += 1;
        match wait_while(&self.state, &self.changed, state, patience, is_taken, goes_on) {
            Ok(mut state) => {
                state.waiting -= 1;
                Ok(state)
            }
            Err(why) => {
                lock(&self.state).waiting -= 1;
                Err(why)
            }
        }
    }

    fn begin(&self, mut state: MutexGuard<'_, State>) -> Turn<'_> {
        state.holder = Some(thread::current().id());
        Turn(self)
    }
}

impl State {
    fn is_taken(&self) -> bool {
        self.holder.is_some()
    }
}

impl Turn<'_> {
    /// From here on lets others do what takes a moment: see [`Turns::take_briefly`].
    pub(crate) fn lend(&self) {
        let mut state = lock(&self.0.state);
        state.is_lent = true;
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.0.changed.notify_all();
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.holder = None;
        state.is_lent = false;
        let is_awaited = state.waiting > 0;
        drop(state);
        // A system call, which most calls can do without.
        if is_awaited {
            self.0.changed.notify_one();
        }
    }
}

/// Waits while `is_taken` says so of what `mutex` holds, which `changed` tells: no longer than
/// `patience`, and while `goes_on` says so. That is asked every [`SIGNALS_EVERY`], unlocked.
pub(crate) fn wait_while<'a, T>(
    mutex: &'a Mutex<T>,
    changed: &Condvar,
    mut guard: MutexGuard<'a, T>,
    patience: Option<Duration>,
    is_taken: impl Fn(&T) -> bool,
    goes_on: impl Fn() -> bool,
) -> Result<MutexGuard<'a, T>, NoTurn> {
    let began = Instant::now();
    let mut asked = began;
    while is_taken(&guard) {
        let mut pause = SIGNALS_EVERY.saturating_sub(asked.elapsed());
        if let Some(patience) = patience {
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(NoTurn::TimeLimit(patience));
            }
            pause = pause.min(left);
        }
        let waited = changed.wait_timeout(guard, pause);
        (guard, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if is_taken(&guard) && asked.elapsed() >= SIGNALS_EVERY {
            drop(guard);
            if !goes_on() {
                return Err(NoTurn::GivenUp);
            }
            asked = Instant::now();
            guard = lock(mutex);
        }
    }
    Ok(guard)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that is waited for here can be left half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
