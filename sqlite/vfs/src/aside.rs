//! Freeing what is large and has no name any more, the log of a database or its image, by a thread of
//! its own: the kernel takes a millisecond for some 4 MiB of either, and a close need not wait for it.
//!
//! Invariants:
//! - Nobody else knows of what is freed: no lock, no name and no other thread leads to it.
//! - Nothing waits for the thread, and a process that ends meanwhile frees the same. The library that it
//!   runs in is never unloaded.

#![forbid(unsafe_code)]

use holdfast_sys::quiet_thread;

/// Of less a thread costs as much as it saves.
const LARGE_BYTES: u64 = 2 << 20;

/// Drops a value that frees so many bytes.
pub(crate) fn free<T: Send + 'static>(value: T, bytes: u64) {
    if bytes < LARGE_BYTES {
        return;
    }
    // Where there is no thread to be had, it is dropped with the work that was to do it, here.
    let _ = quiet_thread::spawn("holdfast-free", move || drop(value));
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::thread::{self, ThreadId};
    use std::time::Duration;

    use super::*;

    struct Dropped(Sender<ThreadId>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).unwrap();
        }
    }

    /// What is small is gone when the call returns; for what is large the caller does not work.
    #[test]
    fn only_what_is_large_is_freed_aside() {
        let (sender, receiver) = channel();
        free(Dropped(sender.clone()), LARGE_BYTES - 1);
        assert_eq!(receiver.try_recv().unwrap(), thread::current().id());
        free(Dropped(sender), LARGE_BYTES);
        let by = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_ne!(by, thread::current().id());
    }
}
