//! Sleeping on a word that two processes share, and waking who sleeps there (futex(2)).
//!
//! What it must not do: interpret the word, retry, or use the private form, which does not reach
//! other processes.

#![forbid(unsafe_code)]

use std::io;
use std::num::NonZeroU32;
use std::sync::atomic::AtomicU32;

use rustix::thread::futex::{self, Flags};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Sleeps if the word is `expected`, until it is woken or the moment has come on the clock of
/// [`now_ns`]; returns early for signals and, now and then, for no reason.
///
/// # Errors
/// `WouldBlock` when the word is something else, `TimedOut`, `Interrupted`, or what else `futex`
/// reports.
pub fn wait(word: &AtomicU32, expected: u32, until_ns: Option<u64>) -> io::Result<()> {
    // This form alone takes a moment instead of a time.
    let until = until_ns.map(|ns| Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as _,
    });
    Ok(futex::wait_bitset(word, Flags::empty(), expected, until.as_ref(), NonZeroU32::MAX)?)
}

/// Wakes up to `count` sleepers; returns how many.
///
/// # Errors
/// What `futex` reports; no thread was woken then.
pub fn wake(word: &AtomicU32, count: u32) -> io::Result<usize> {
    // The kernel takes a signed number.
    Ok(futex::wake(word, Flags::empty(), count.min(i32::MAX as u32))?)
}

/// `CLOCK_MONOTONIC` in nanoseconds.
#[must_use]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    /// A word with another value and a moment that has passed end the sleep at once.
    #[test]
    fn changed_word_or_past_deadline_ends_sleep() {
        let word = AtomicU32::new(1);
        assert_eq!(wait(&word, 0, None).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(wait(&word, 1, Some(0)).unwrap_err().raw_os_error(), Some(libc::ETIMEDOUT));
        let soon = now_ns() + 2_000_000;
        assert!(wait(&word, 1, Some(soon)).is_err() && now_ns() >= soon);
    }

    #[test]
    fn a_sleeper_is_woken() {
        let word = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let until = Some(now_ns() + 60_000_000_000);
                while word.load(Ordering::SeqCst) == 0 {
                    let _ = wait(&word, 0, until);
                }
            });
            std::thread::sleep(std::time::Duration::from_millis(20));
            word.store(1, Ordering::SeqCst);
            wake(&word, 1).unwrap();
        });
    }
}
