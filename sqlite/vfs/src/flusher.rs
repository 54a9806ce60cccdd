//! The thread that flushes in the background: at once when a commit finds that a flush is due, and
//! when the flush interval is over since the first commit that is in the pool alone.
//! It exists from the first commit that asks for it to the last close.
//!
//! Invariants:
//! - It holds no lock of the process but the log's; all signals are blocked on it; in a child that
//!   a fork made there is none, and no caller waits for it.
//! - A commit that is not in the log finds `armed`, or sets it: the thread clears it before it
//!   looks what is committed.

#![forbid(unsafe_code)]

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use holdfast_sys::quiet_thread;

use crate::host;
use crate::pool::Pool;

#[derive(Debug, Default)]
struct Signal {
    wanted: AtomicBool,
    /// Something is to be flushed when the interval is over.
    armed: AtomicBool,
    stop: AtomicBool,
}

/// The handle of the background thread of one database.
#[derive(Debug, Default)]
pub(crate) struct Flusher {
    signal: Arc<Signal>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Flusher {
    /// Asks for a flush. The first time it starts the thread; where that fails the caller has to
    /// flush: false.
    #[inline]
    pub(crate) fn ask(&self, pool: &Arc<Pool>) -> bool {
        self.signal.wanted.load(Relaxed) || self.set(&self.signal.wanted, pool)
    }

    /// Asks for a flush when the interval is over, unless one is under way to it. As for
    /// [`Flusher::ask`].
    #[inline]
    pub(crate) fn arm(&self, pool: &Arc<Pool>) -> bool {
        self.signal.armed.load(Relaxed) || self.set(&self.signal.armed, pool)
    }

    /// Whether a flush was asked for that has not begun.
    pub(crate) fn has_work(&self) -> bool {
        self.signal.armed.load(Acquire) || self.signal.wanted.load(Acquire)
    }

    /// Has the thread look at the interval, which may be another one.
    pub(crate) fn look_again(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.as_ref() {
            thread.thread().unpark();
        }
    }

    #[cold]
    fn set(&self, flag: &AtomicBool, pool: &Arc<Pool>) -> bool {
        if flag.swap(true, AcqRel) {
            return true;
        }
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let (signal, pool) = (Arc::clone(&self.signal), Arc::clone(pool));
            *thread = quiet_thread::spawn("holdfast-flush", move || run(&signal, &pool)).ok();
        }
        match thread.as_ref() {
            Some(thread) => {
                thread.thread().unpark();
                true
            }
            None => {
                flag.store(false, Release);
                false
            }
        }
    }

    /// Ends the thread and waits for it.
    pub(crate) fn stop(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            self.signal.stop.store(true, Release);
            thread.thread().unpark();
            let _ = thread.join();
            self.signal.stop.store(false, Release);
        }
    }
}

fn run(signal: &Signal, pool: &Pool) {
    let mut failed = false;
    // Since when something waits for the end of the interval.
    let mut armed_at = None;
    while !signal.stop.load(Acquire) {
        // What was asked for may have been done since, with the flush that was under way.
        if !(signal.wanted.swap(false, AcqRel) && pool.is_flush_due()) {
            if armed_at.is_none() && signal.armed.load(Acquire) {
                armed_at = Some(Instant::now());
            }
            match (armed_at, pool.settings.flush_interval()) {
                (Some(armed_at), Some(interval)) => {
                    let left = interval.saturating_sub(armed_at.elapsed());
                    if !left.is_zero() {
                        std::thread::park_timeout(left);
                        continue;
                    }
                }
                _ => {
                    std::thread::park();
                    continue;
                }
            }
        }
        armed_at = None;
        signal.armed.store(false, Release);
        // Every commit takes this lock: one that is not seen by the flush sees that nothing is
        // armed.
        drop(pool.lock_commit());
        match pool.flush_and_tidy() {
            Ok(()) => failed = false,
            Err(error) => {
                // Told once; in a full pool the writing connection flushes, and tells its caller.
                if !failed {
                    host::log(error.code(), &error.to_string());
                }
                failed = true;
                // Again after the interval, also where no process commits any more.
                signal.armed.store(true, Release);
            }
        }
    }
}
