//! Bounds the wait for a lock that another process has: a moment within the lock; and SQLite's busy
//! handler, whose sleeps end when the lock is free.
//!
//! A transaction in the pool takes microseconds, and SQLite's shortest sleep is a millisecond, in
//! which the other one does hundreds of them; a writer that sleeps with PENDING holds up everybody.
//!
//! Invariants:
//! - Every wait has an end, whatever the others do: who waits within a lock may hold others up, or
//!   be held up by its own thread.
//! - A process that has SHARED does not wait for RESERVED: who has that may be waiting for it to
//!   leave.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::ffi::c_int;
use std::time::{Duration, Instant};

/// How often a lock is looked at before the processor is given away.
const SPINS: u32 = 100;
/// How long a lock waits.
pub(crate) const MOMENT: Duration = Duration::from_micros(200);
/// Longer sleeps are slept to their end: SQLite counts its sleeps, not the time, so what is taken
/// off is taken off the busy timeout as well. The first three are shorter, together 8 ms, and the
/// last one may be.
const SHORTENED_MAX: Duration = Duration::from_millis(5);
/// At least so long the others have the database for themselves.
const NAP: Duration = Duration::from_micros(50);
/// The busy handler sleeps at once, or it is not about this. A program that calls `sqlite3_sleep`
/// then is one, too.
const JUST_NOW: Duration = Duration::from_millis(1);

/// A connection that was refused longer ago than this may only read next, and claims nothing: what
/// it does not use others lack.
pub(crate) const TRIED_AGAIN_WITHIN: Duration = Duration::from_secs(1);

/// A lock that was not to be had.
#[derive(Debug, Clone, Copy)]
struct Refusal {
    pool: usize,
    wanted: c_int,
    at: Instant,
}

thread_local! {
    /// The last one of this thread. It names a pool that may be gone since.
    static REFUSAL: Cell<Option<Refusal>> = const { Cell::new(None) };
}

/// Waits a moment; true as soon as `is_over` says so.
#[cold]
pub(crate) fn wait_a_moment(mut is_over: impl FnMut() -> bool) -> bool {
    for _ in 0..SPINS {
        if is_over() {
            return true;
        }
        std::hint::spin_loop();
    }
    let started = Instant::now();
    while started.elapsed() < MOMENT {
        std::thread::yield_now();
        if is_over() {
            return true;
        }
    }
    false
}

/// A connection of this thread did not get a lock of the pool at this address.
#[cold]
pub(crate) fn note_refusal(pool: usize, wanted: c_int) {
    let refusal = Refusal { pool, wanted, at: Instant::now() };
    let _ = REFUSAL.try_with(|last| last.set(Some(refusal)));
}

/// Sleeps in place of SQLite's busy handler, until what was refused is to be had, and at most so
/// long; the time that it took. `None` where nothing was refused just now, or the sleep is to be
/// slept to its end.
pub(crate) fn sleep_until_free(
    asked: Duration,
    is_free: impl Fn(usize, c_int) -> bool,
) -> Option<Duration> {
    let refusal = REFUSAL.try_with(Cell::take).ok()??;
    if asked > SHORTENED_MAX || refusal.at.elapsed() > JUST_NOW {
        return None;
    }
    let started = Instant::now();
    loop {
        let left = asked.saturating_sub(started.elapsed());
        std::thread::sleep(left.min(NAP));
        if left <= NAP || is_free(refusal.pool, refusal.wanted) {
            return Some(started.elapsed());
        }
    }
}
