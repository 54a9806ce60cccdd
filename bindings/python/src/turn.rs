//! One call of an applet at a time: a call has the turn, and those of other threads wait for it.
//!
//! Invariants:
//! - A thread that waits asks its caller every [`SIGNALS_EVERY`] whether to wait on, with no lock
//!   held: the answer may run any code of Python.
//! - A thread that has the turn lends it only while it does not use the applet, and takes it back
//!   before it uses the applet again: a thread to which it was lent never meets a call under way.
//!
//! What it must not do: let a thread that has the turn wait for it. Callers ask [`Turns::is_here`].
#![forbid(unsafe_code)]

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// How often a thread that waits for an applet, or for another thread, looks for signals.
pub(crate) const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// How long a turn that is lent again and again is lent at least, while a thread waits for that.
const LENT_FOR: Duration = Duration::from_millis(5);

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
    /// How many threads have it for a moment.
    borrowers: usize,
    /// How many threads wait.
    waiting: usize,
    /// How many of these want it for a moment only.
    waiting_briefly: usize,
}

/// The turn, until it is dropped.
#[must_use]
pub(crate) struct Turn<'turns>(&'turns Turns);

/// The turn for what takes a moment, until it is dropped.
#[must_use]
pub(crate) struct Moment<'turns> {
    turns: &'turns Turns,
    /// Another thread has the turn, and lends it.
    is_lent: bool,
}

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
        self.wait(State::is_taken, false, patience, goes_on)?.begin();
        Ok(Turn(self))
    }

    /// As [`Turns::take`], for what takes a moment: that need not wait while the turn is lent.
    pub(crate) fn take_briefly(&self, goes_on: impl Fn() -> bool) -> Result<Moment<'_>, NoTurn> {
        let is_taken = |state: &State| state.is_taken() && !state.is_lent;
        let mut state = self.wait(is_taken, true, None, goes_on)?;
        let is_lent = state.is_taken();
        if is_lent {
            state.borrowers += 1;
        } else {
            state.begin();
        }
        Ok(Moment { turns: self, is_lent })
    }

    /// Whether this thread has the turn.
    pub(crate) fn is_here(&self) -> bool {
        lock(&self.state).holder == Some(thread::current().id())
    }

    /// Returns when the turn is not taken, in the sense of `is_taken`; `is_brief`: it is wanted for
    /// a moment only.
    fn wait(
        &self,
        is_taken: impl Fn(&State) -> bool,
        is_brief: bool,
        patience: Option<Duration>,
        goes_on: impl Fn() -> bool,
    ) -> Result<MutexGuard<'_, State>, NoTurn> {
        let mut state = lock(&self.state);
        if !is_taken(&state) {
            return Ok(state);
        }
        state.waiting += 1;
        state.waiting_briefly += usize::from(is_brief);
        let waited = wait_while(&self.state, &self.changed, state, patience, is_taken, goes_on);
        let (mut state, gave_up) = match waited {
            Ok(state) => (state, None),
            Err(why) => (lock(&self.state), Some(why)),
        };
        state.waiting -= 1;
        state.waiting_briefly -= usize::from(is_brief);
        gave_up.map_or(Ok(state), Err)
    }

    /// The turn of this thread is over.
    fn end(&self) {
        let mut state = lock(&self.state);
        state.holder = None;
        state.is_lent = false;
        let is_awaited = state.waiting > 0;
        drop(state);
        // A system call, which most calls can do without.
        if is_awaited {
            self.changed.notify_one();
        }
    }
}

impl State {
    fn is_taken(&self) -> bool {
        self.holder.is_some()
    }

    /// This thread has the turn.
    fn begin(&mut self) {
        self.holder = Some(thread::current().id());
    }
}

impl Turn<'_> {
    /// From here on lets others do what takes a moment: see [`Turns::take_briefly`].
    pub(crate) fn lend(&self) {
        let mut state = lock(&self.0.state);
        state.is_lent = true;
        let is_awaited = state.waiting_briefly > 0;
        drop(state);
        if is_awaited {
            self.0.changed.notify_all();
        }
    }

    /// Takes the turn back from those to which it is lent. Leaves it a little to those that wait
    /// for it: lent for an instant at a time, it would come to none of them.
    pub(crate) fn recall(&self) {
        let mut state = lock(&self.0.state);
        if state.waiting_briefly > 0 {
            let is_awaited = |state: &mut State| state.waiting_briefly > 0;
            let waited = self.0.changed.wait_timeout_while(state, LENT_FOR, is_awaited);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_lent = false;
        if state.borrowers > 0 {
            let is_used = |state: &mut State| state.borrowers > 0;
            drop(self.0.changed.wait_while(state, is_used));
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Drop for Moment<'_> {
    fn drop(&mut self) {
        if !self.is_lent {
            return self.turns.end();
        }
        lock(&self.turns.state).borrowers -= 1;
        // Its holder may wait to take the turn back.
        self.turns.changed.notify_all();
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
