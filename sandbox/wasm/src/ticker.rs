//! One thread for the deadlines of all applets of this process: it sleeps until the earliest one.
//!
//! Most calls end long before their deadline, and the next one then has a later one. So the thread
//! is woken only for a deadline before the one that it sleeps for; arming any other is a store and
//! a load.
//!
//! Invariant: while `next_ns` is not [`NEVER`], the thread will look at all deadlines by then. It
//! is set to `NEVER` before the thread looks and to the earliest deadline after, so the thread that
//! arms meanwhile sees `NEVER` and takes the lock, and the thread looks once more.
#![forbid(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::control::{NEVER, RunControl, clock_ns};

static NEXT_NS: AtomicU64 = AtomicU64::new(NEVER);
static WATCHED: Mutex<Watched> = Mutex::new(Watched {
    controls: Vec::new(),
    prune_at: PRUNE_MIN,
    runs_in: None,
    look_again: false,
});
static CHANGED: Condvar = Condvar::new();

/// The list is cleared of applets that are gone when it has twice as many entries as after the last
/// time.
const PRUNE_MIN: usize = 64;

struct Watched {
    controls: Vec<Weak<RunControl>>,
    prune_at: usize,
    /// The process that has the thread: a fork takes this memory along, and the thread not.
    runs_in: Option<u32>,
    look_again: bool,
}

fn lock() -> MutexGuard<'static, Watched> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Alerts `control` once `deadline_ns` is over, unless it is armed anew before.
pub(crate) fn watch(control: &Arc<RunControl>, deadline_ns: u64) -> io::Result<()> {
    if !control.is_registered.load(Ordering::Relaxed) {
        register(control)?;
    }
    control.armed_ns.store(deadline_ns, Ordering::SeqCst);
    if deadline_ns < NEXT_NS.load(Ordering::SeqCst) {
        lock().look_again = true;
        CHANGED.notify_one();
    }
    Ok(())
}

fn register(control: &Arc<RunControl>) -> io::Result<()> {
    let mut watched = lock();
    let process = std::process::id();
    if watched.runs_in != Some(process) {
        std::thread::Builder::new().name("holdfast-ticker".to_owned()).spawn(tick)?;
        watched.runs_in = Some(process);
    }
    if watched.controls.len() >= watched.prune_at {
        watched.controls.retain(|control| control.strong_count() > 0);
        watched.prune_at = PRUNE_MIN.max(2 * watched.controls.len());
    }
    watched.controls.push(Arc::downgrade(control));
    control.is_registered.store(true, Ordering::Relaxed);
    Ok(())
}

/// What the thread does, for as long as the process lives.
fn tick() {
    let mut watched = lock();
    loop {
        watched.look_again = false;
        NEXT_NS.store(NEVER, Ordering::SeqCst);
        let next_ns = fire(&mut watched.controls, clock_ns(Instant::now()));
        NEXT_NS.store(next_ns, Ordering::SeqCst);
        while !watched.look_again {
            let left_ns = match NEXT_NS.load(Ordering::SeqCst) {
                NEVER => NEVER,
                next_ns => next_ns.saturating_sub(clock_ns(Instant::now())),
            };
            if left_ns == 0 {
                break;
            }
            watched = if left_ns == NEVER {
                CHANGED.wait(watched).unwrap_or_else(PoisonError::into_inner)
            } else {
                let left = Duration::from_nanos(left_ns);
                CHANGED.wait_timeout(watched, left).unwrap_or_else(PoisonError::into_inner).0
            };
        }
    }
}

/// Alerts everybody whose deadline is over; returns the earliest of the others.
fn fire(controls: &mut Vec<Weak<RunControl>>, now_ns: u64) -> u64 {
    let mut next_ns = NEVER;
    controls.retain(|control| {
        let Some(control) = control.upgrade() else { return false };
        let armed_ns = control.armed_ns.load(Ordering::SeqCst);
        if armed_ns <= now_ns {
            // Armed anew meanwhile: its owner saw that this thread was looking, and has it look
            // again.
            let _ = control.armed_ns.compare_exchange(
                armed_ns,
                NEVER,
                Ordering::SeqCst,
                Ordering::SeqCst,
            );
            control.alert();
        } else {
            next_ns = next_ns.min(armed_ns);
        }
        true
    });
    next_ns
}
