//! Applets that are started before they are needed.
//!
//! Invariants:
//! - What [`Pool::take`] gives has served no one else, unless the pool was configured to take
//!   applets back.
//! - An applet in the middle of whose call its user panicked goes back to no pool.
//! - The pool's thread ends with the pool, and every applet in it; one that is just being started
//!   ends as soon as it has.
//! - Whatever the source does in the background, a panic included, later starts are tried.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use holdfast_sys::own_pid;

use holdfast_wasm::Heaps;

use crate::applet::Applet;
use crate::command::Command;
use crate::error::{AppletError, Failure, refused};
use crate::kind::SandboxKind;

/// How long the pool waits after a start that failed, before it tries again.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(200);

/// How long the end of a pool waits for a start that is under way.
const START_PATIENCE: Duration = Duration::from_secs(1);

/// Makes the command for one more applet: each its own compartment, say.
type Source = Box<dyn Fn() -> Result<Command, Box<AppletError>> + Send + Sync>;

/// A pool of warm applets. See the module.
pub struct Pool {
    shared: Arc<PoolShared>,
    filler: Option<JoinHandle<()>>,
}

struct PoolShared {
    /// The process that has it: a forked copy of the host has neither the thread nor the applets.
    owner: u32,
    source: Source,
    size: usize,
    reuses: bool,
    inner: Mutex<PoolState>,
    changed: Condvar,
}

#[derive(Default)]
struct PoolState {
    ready: VecDeque<Applet>,
    is_closed: bool,
    /// The last start in the background failed.
    has_failed: bool,
    /// The pool's thread is starting an applet.
    is_starting: bool,
}

/// An applet out of a pool. When it is dropped it is ended, or goes back if the pool takes applets
/// back and it lives.
pub struct Pooled {
    applet: Option<Applet>,
    shared: Arc<PoolShared>,
}

impl Pool {
    /// A pool that keeps `size` applets ready, each made with a command from `source`. With
    /// `reuses`, an applet that is given back serves the next one, with whatever it remembers;
    /// without, everybody gets a fresh one.
    ///
    /// # Errors
    /// Of the first start, which is tried here, so that a mistake shows at once.
    pub fn new(
        size: usize,
        reuses: bool,
        source: impl Fn() -> Result<Command, Box<AppletError>> + Send + Sync + 'static,
    ) -> Result<Pool, Box<AppletError>> {
        let first = source()?.spawn()?;
        let shared = Arc::new(PoolShared {
            owner: own_pid::get(),
            source: Box::new(source),
            size: size.max(1),
            reuses,
            inner: Mutex::new(PoolState { ready: VecDeque::from([first]), ..PoolState::default() }),
            changed: Condvar::new(),
        });
        let filled = shared.clone();
        // Without a thread the pool works, cold.
        let filler =
            thread::Builder::new().name("holdfast-pool".into()).spawn(move || filled.fill()).ok();
        Ok(Pool { shared, filler })
    }

    /// An applet that serves: a warm one, or, when there is none, one that is started now.
    ///
    /// # Errors
    /// Of that start; `Forked`.
    pub fn take(&self) -> Result<Pooled, Box<AppletError>> {
        if !self.shared.is_ours() {
            let failure = Failure::Forked { owner: self.shared.owner };
            return Err(refused(failure, SandboxKind::Native, Heaps::none()));
        }
        let applet = loop {
            let warm = self.shared.lock().ready.pop_front();
            self.shared.changed.notify_all();
            match warm {
                // It died while it waited.
                Some(applet) if applet.cause_of_death().is_some() => {}
                Some(applet) => break applet,
                None => break (self.shared.source)()?.spawn()?,
            }
        };
        Ok(Pooled { applet: Some(applet), shared: self.shared.clone() })
    }

    /// How many are ready now; none in a forked copy of the host.
    #[must_use]
    pub fn ready(&self) -> usize {
        if self.shared.is_ours() { self.shared.lock().ready.len() } else { 0 }
    }

    /// Ends the applets that are ready, and has no more started in the background, also while other
    /// threads use the pool. Those that were taken serve on, and end when they are dropped; one that
    /// is taken from here on is started then. Closing twice does nothing, nor does closing a forked
    /// copy.
    pub fn close(&self) {
        if !self.shared.is_ours() {
            return;
        }
        let ready = {
            let mut inner = self.shared.lock();
            inner.is_closed = true;
            std::mem::take(&mut inner.ready)
        };
        self.shared.changed.notify_all();
        // They may take a while to end.
        drop(ready);
    }
}

impl PoolShared {
    fn is_ours(&self) -> bool {
        self.owner == own_pid::get()
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        // Whatever a panic left is a list of applets.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fill(&self) {
        loop {
            let mut inner = self.lock();
            while !inner.is_closed && inner.ready.len() >= self.size {
                inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
            }
            if std::mem::take(&mut inner.has_failed) && !inner.is_closed {
                let waited = self.changed.wait_timeout(inner, PAUSE_AFTER_FAILURE);
                inner = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            if inner.is_closed {
                return;
            }
            inner.is_starting = true;
            drop(inner);
            // The source is the user's; nothing of it is used again but by the next start.
            let started =
                catch_unwind(AssertUnwindSafe(|| (self.source)().and_then(Command::spawn)));
            let mut inner = self.lock();
            inner.is_starting = false;
            // The caller that takes one gets the error.
            inner.has_failed = !matches!(started, Ok(Ok(_)));
            drop(inner);
            self.changed.notify_all();
            if let Ok(Ok(applet)) = started {
                self.keep(applet);
            }
        }
    }

    /// Keeps an applet for the next who wants one, if there is room; else it ends.
    fn keep(&self, applet: Applet) {
        let mut inner = self.lock();
        if !inner.is_closed && inner.ready.len() < self.size {
            inner.ready.push_back(applet);
            return;
        }
        // It may take a while to end.
        drop(inner);
        drop(applet);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.shared.is_ours() {
            std::mem::forget(self.filler.take());
            return;
        }
        self.close();
        let is_starting = |inner: &mut PoolState| inner.is_starting;
        let waited =
            self.shared.changed.wait_timeout_while(self.shared.lock(), START_PATIENCE, is_starting);
        let is_stuck = waited.unwrap_or_else(PoisonError::into_inner).1.timed_out();
        if let Some(filler) = self.filler.take()
            && !is_stuck
        {
            // Its panic would be ours; there is nothing left to do.
            let _ = filler.join();
        }
    }
}

impl Deref for Pooled {
    type Target = Applet;

    fn deref(&self) -> &Applet {
        match &self.applet {
            Some(applet) => applet,
            // It is taken out in `drop` only.
            None => unreachable!("a pooled applet lives as long as its handle"),
        }
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let Some(applet) = self.applet.take() else { return };
        let is_fit = || applet.cause_of_death().is_none() && !applet.was_abandoned();
        if self.shared.reuses && self.shared.is_ours() && is_fit() {
            self.shared.keep(applet);
        }
    }
}
