//! Stops an applet: by a deadline, or by a caller that holds its [`Interrupt`].
//!
//! Compiled code looks at the engine's epoch in every loop and call; a caller that stops an applet
//! makes a note here and then bumps the epoch. Applets of the same program share an engine: each
//! looks at its own notes, and goes on if there are none. An applet that waits in a host call is
//! woken instead.
#![forbid(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Instant;

use wasmtime::Engine;

use crate::state::StopCause;
use crate::ticker;

/// No deadline.
pub(crate) const NEVER: u64 = u64::MAX;

/// Nanoseconds from the first use of this clock to `instant`; 0 for anything before.
pub(crate) fn clock_ns(instant: Instant) -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    u64::try_from(instant.saturating_duration_since(start).as_nanos()).unwrap_or(NEVER - 1)
}

/// What stops one applet.
pub(crate) struct RunControl {
    engine: Engine,
    deadline_ns: AtomicU64,
    /// When the host wants to look in.
    look_ns: AtomicU64,
    /// The same for the ticker, which clears it when it has fired.
    pub(crate) armed_ns: AtomicU64,
    pub(crate) is_registered: AtomicBool,
    is_interrupted: AtomicBool,
    reason: Mutex<Option<String>>,
    waker: Mutex<Option<Waker>>,
}

impl RunControl {
    pub(crate) fn new(engine: &Engine) -> Arc<RunControl> {
        // The clock starts no later than anything that has a deadline.
        clock_ns(Instant::now());
        Arc::new(RunControl {
            engine: engine.clone(),
            deadline_ns: AtomicU64::new(NEVER),
            look_ns: AtomicU64::new(NEVER),
            armed_ns: AtomicU64::new(NEVER),
            is_registered: AtomicBool::new(false),
            is_interrupted: AtomicBool::new(false),
            reason: Mutex::new(None),
            waker: Mutex::new(None),
        })
    }

    /// Has the applet stopped at `deadline`, and suspended at `look`, until the next call of this.
    pub(crate) fn arm(
        self: &Arc<Self>,
        deadline: Option<Instant>,
        look: Option<Instant>,
    ) -> io::Result<()> {
        let deadline_ns = deadline.map_or(NEVER, clock_ns);
        let look_ns = look.map_or(NEVER, clock_ns);
        self.deadline_ns.store(deadline_ns, Ordering::Release);
        self.look_ns.store(look_ns, Ordering::Release);
        match deadline_ns.min(look_ns) {
            next_ns if next_ns != NEVER => ticker::watch(self, next_ns),
            _ => {
                self.armed_ns.store(NEVER, Ordering::Release);
                Ok(())
            }
        }
    }

    /// Why the applet must stop now, if it must.
    pub(crate) fn stop(&self) -> Option<StopCause> {
        if self.is_interrupted.load(Ordering::Acquire) {
            return Some(StopCause::Interrupted);
        }
        let deadline_ns = self.deadline_ns.load(Ordering::Acquire);
        (deadline_ns != NEVER && clock_ns(Instant::now()) >= deadline_ns)
            .then_some(StopCause::TimeLimit)
    }

    /// Whether the host wants to look in now.
    pub(crate) fn wants_a_look(&self) -> bool {
        let look_ns = self.look_ns.load(Ordering::Acquire);
        look_ns != NEVER && clock_ns(Instant::now()) >= look_ns
    }

    /// Has the applet look at [`RunControl::stop`], whether it computes or waits.
    pub(crate) fn alert(&self) {
        self.engine.increment_epoch();
        if let Some(waker) = lock(&self.waker).take() {
            waker.wake();
        }
    }

    /// Whom to wake when the applet is to be stopped while it waits.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        *lock(&self.waker) = Some(waker.clone());
    }

    pub(crate) fn interrupt(&self, reason: String) {
        lock(&self.reason).get_or_insert(reason);
        self.is_interrupted.store(true, Ordering::Release);
        self.alert();
    }

    /// Why it was interrupted.
    pub(crate) fn reason(&self) -> String {
        lock(&self.reason).clone().unwrap_or_default()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stops an applet from any thread.
#[derive(Clone)]
pub struct Interrupt(Arc<RunControl>);

impl Interrupt {
    pub(crate) fn of(control: Arc<RunControl>) -> Interrupt {
        Interrupt(control)
    }

    /// Stops the applet, now or as soon as it runs again: it ends with
    /// [`WasmError::Interrupted`](crate::WasmError::Interrupted) and `reason`. The first reason
    /// counts; an applet that has ended is not changed.
    pub fn stop(&self, reason: impl Into<String>) {
        self.0.interrupt(reason.into());
    }
}

impl std::fmt::Debug for Interrupt {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Interrupt").finish_non_exhaustive()
    }
}
