//! The thread that flushes in the background. It exists from the first commit that asks for it to the last close.
//!
//! Invariants: it holds no lock of the process but the log's; all signals are blocked on it; in a child that a fork made there
//! is none, and nobody waits for it.

#![forbid(unsafe_code)]

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use holdfast_sys::quiet_thread;

use crate::ffi;
use crate::host;
use crate::pool::Pool;

#[derive(Debug, Default)]
struct Signal {
    wanted: AtomicBool,
    stop: AtomicBool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Flusher {
    signal: Arc<Signal>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Flusher {
    /// Asks for a flush. The first time it starts the thread; where that fails the caller has to flush: false.
    pub(crate) fn ask(&self, pool: &Arc<Pool>) -> bool {
        if self.signal.wanted.swap(true, AcqRel) {
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
                self.signal.wanted.store(false, Release);
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
    while !signal.stop.load(Acquire) {
        if !signal.wanted.swap(false, AcqRel) {
            std::thread::park();
            continue;
        }
        match pool.flush_and_tidy() {
            Ok(()) => failed = false,
            Err(error) => {
                // Told once; commits wait and flush themselves when too much is behind, and tell their caller.
                if !failed {
                    host::log(ffi::IOERR, &error.to_string());
                }
                failed = true;
            }
        }
    }
}
