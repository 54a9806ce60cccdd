//! Tells a computing applet that its time is over: one thread per limited run, asleep until then.
//!
//! The applet itself is stopped by the engine's epoch, which compiled code looks at in every loop and call;
//! one that waits in a host call is stopped by the timer of the asynchronous runtime instead.
#![forbid(unsafe_code)]

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use wasmtime::Engine;

pub(crate) struct Alarm {
    cancelled: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Alarm {
    pub(crate) fn set(engine: &Engine, deadline: Instant) -> io::Result<Self> {
        let cancelled = Arc::new((Mutex::new(false), Condvar::new()));
        let (flag, engine) = (cancelled.clone(), engine.clone());
        let thread = std::thread::Builder::new().name("holdfast-alarm".to_owned()).spawn(move || {
            let (lock, changed) = &*flag;
            let mut cancelled = lock.lock().unwrap_or_else(PoisonError::into_inner);
            while !*cancelled {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    engine.increment_epoch();
                    return;
                }
                cancelled = changed.wait_timeout(cancelled, left).unwrap_or_else(PoisonError::into_inner).0;
            }
        })?;
        Ok(Alarm { cancelled, thread: Some(thread) })
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        let (lock, changed) = &*self.cancelled;
        *lock.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // The thread cannot panic; were it to, the run's result would still be right.
            let _ = thread.join();
        }
    }
}
