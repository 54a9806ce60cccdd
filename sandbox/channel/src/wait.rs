//! Waiting for the other side: spin for a while, then sleep.
//!
//! A side that finds nothing looks again and again for a bounded time, which follows what paid
//! lately, and then sleeps on a futex word of the ring. The word says that a side sleeps: the
//! sleeper sets it, looks once more, and sleeps only if the word is still set; the other side
//! stores its position, and if the word is set clears it and wakes. Each has a sequentially
//! consistent fence between its store and its load, so one of the two sees the other.
//!
//! Invariants: no wait goes past its deadline by more than the kernel's wake-up, whatever the peer
//! writes to the words; a peer that wakes again and again with nothing to show is `PeerBroke`.
//!
//! What it must not do: make system calls. Each side brings its own as a [`Wait`].

#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU32, Ordering, fence};
use core::time::Duration;

use crate::error::ChannelError;
use crate::ring::{AWAKE, SLEEPING};

/// The longest spin, in nanoseconds: longer than it takes to wake a sleeper on an idle processor of
/// a virtual machine (60 us), or no side that spins for a sleeper would ever see it answer.
pub const SPIN_NS_MAX: u64 = 100_000;
/// Below it spinning is given up.
const SPIN_NS_MIN: u64 = 2_000;
/// What spinning is allowed at least after it paid, so that one late answer is no reason to stop.
const SPIN_NS_PAID: u64 = 10_000;
/// What a fresh endpoint begins with.
const SPIN_NS_FIRST: u64 = 20_000;
/// Where spinning was given up, one wait of so many tries whether it pays again: soon at first,
/// because a processor that was taken away for a moment puts both sides to sleep, and then ever
/// more rarely.
const PROBE_EVERY_MAX: u32 = 64;
/// Looks between two looks at the clock, which costs as much as a few of them.
const LOOKS_PER_CLOCK: u32 = 16;
/// So many messages may be found without waiting before the deadline is looked at.
const UNWAITED_MAX: u32 = 64;
/// So many wake-ups for nothing are looked into ...
const IDLE_WAKES: u64 = 1024;
/// ... and are the peer's doing when they come faster than this one by one.
const IDLE_WAKE_NS: u64 = 100_000;

/// A moment on the clock of [`Wait::now_ns`], or never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(u64);

impl Deadline {
    /// It never comes.
    pub const NEVER: Deadline = Deadline(u64::MAX);
    /// It has passed: look once, do not wait.
    pub const NOW: Deadline = Deadline(0);

    /// That moment.
    #[must_use]
    pub const fn at_ns(ns: u64) -> Deadline {
        Deadline(ns)
    }

    /// So long after a moment.
    #[must_use]
    pub fn after(now_ns: u64, time: Duration) -> Deadline {
        Deadline(
            u64::try_from(time.as_nanos())
                .map_or(u64::MAX, |time_ns| now_ns.saturating_add(time_ns)),
        )
    }

    /// The moment in nanoseconds; `None` for never.
    #[must_use]
    pub const fn ns(self) -> Option<u64> {
        if self.0 == u64::MAX { None } else { Some(self.0) }
    }

    /// Whether it has passed on that clock, which is not asked when the answer is known.
    pub(crate) fn has_passed(self, wait: &impl Wait) -> bool {
        self == Deadline::NOW || self.ns().is_some_and(|ns| wait.now_ns() >= ns)
    }
}

/// What a side needs of its platform.
pub trait Wait {
    /// A clock that never goes back (`CLOCK_MONOTONIC`), in nanoseconds.
    fn now_ns(&self) -> u64;

    /// Sleeps if the word is `expected`, until a side wakes it, the deadline has passed, or for
    /// any other reason: the caller looks again. The word is shared between processes.
    fn sleep(&self, word: &AtomicU32, expected: u32, deadline: Deadline);

    /// Wakes a side that sleeps on the word.
    fn wake(&self, word: &AtomicU32);

    /// Whether the peer's process has ended, so that nothing can come any more.
    fn peer_is_gone(&self) -> bool {
        false
    }

    /// Whether a side wants the waiting side back; asking takes the wish back.
    fn take_interrupt(&self) -> bool {
        false
    }

    /// The longest spin; 0 where the peer has no processor of its own to run on meanwhile.
    fn spin_ns_max(&self) -> u64 {
        SPIN_NS_MAX
    }
}

/// How long to spin: longer when it paid, shorter when it did not.
#[derive(Debug)]
pub(crate) struct Spin {
    budget_ns: u64,
    /// Waits since spinning was given up or tried, and how many there are between two tries.
    given_up: u32,
    probe_every: u32,
    /// Messages that were there at once since the clock was looked at.
    unwaited: u32,
}

impl Spin {
    pub(crate) const fn new() -> Spin {
        Spin { budget_ns: SPIN_NS_FIRST, given_up: 0, probe_every: 1, unwaited: 0 }
    }

    fn budget_ns(&mut self, most_ns: u64) -> u64 {
        if self.budget_ns > 0 {
            return self.budget_ns.min(most_ns);
        }
        self.given_up += 1;
        if self.given_up < self.probe_every {
            return 0;
        }
        self.given_up = 0;
        most_ns
    }

    /// What was waited for came after that time.
    fn paid(&mut self, spun_ns: u64) {
        let wanted = spun_ns.saturating_mul(4).clamp(SPIN_NS_PAID, SPIN_NS_MAX);
        // Downwards slowly: one quick answer does not mean that all are.
        self.budget_ns = wanted.max(self.budget_ns - self.budget_ns / 8);
        self.probe_every = 1;
    }

    /// It did not come in the time allowed.
    fn failed(&mut self) {
        if self.budget_ns == 0 {
            self.probe_every = (2 * self.probe_every).min(PROBE_EVERY_MAX);
        }
        self.budget_ns /= 2;
        if self.budget_ns < SPIN_NS_MIN {
            self.budget_ns = 0;
        }
    }
}

/// What can be waited for.
pub(crate) trait Awaited {
    /// Where the other side wakes who waits.
    fn futex(&self) -> Result<&AtomicU32, ChannelError>;
    /// Whether it is there now. Asked with every wake-up, and often while spinning.
    fn look(&mut self) -> Result<bool, ChannelError>;
}

/// Waits until it is there.
pub(crate) fn wait_for<W: Wait>(
    wait: &W,
    spin: &mut Spin,
    deadline: Deadline,
    awaited: &mut impl Awaited,
) -> Result<(), ChannelError> {
    if awaited.look()? {
        // A waiter that always finds something must notice its deadline, too.
        spin.unwaited += 1;
        if spin.unwaited < UNWAITED_MAX || deadline == Deadline::NOW {
            return Ok(());
        }
        spin.unwaited = 0;
        return if deadline.has_passed(wait) { Err(ChannelError::TimedOut) } else { Ok(()) };
    }
    spin.unwaited = 0;
    let budget_ns = if deadline == Deadline::NOW { 0 } else { spin.budget_ns(wait.spin_ns_max()) };
    if budget_ns > 0 {
        let started_ns = wait.now_ns();
        let mut spun_ns = 0;
        while spun_ns < budget_ns {
            for _ in 0..LOOKS_PER_CLOCK {
                core::hint::spin_loop();
                if awaited.look()? {
                    spin.paid(spun_ns);
                    return Ok(());
                }
            }
            let now_ns = wait.now_ns();
            spun_ns = now_ns.saturating_sub(started_ns);
            if deadline.ns().is_some_and(|ns| now_ns >= ns) {
                break;
            }
        }
        spin.failed();
    }
    sleep_for(wait, deadline, awaited)
}

fn sleep_for<W: Wait>(
    wait: &W,
    deadline: Deadline,
    awaited: &mut impl Awaited,
) -> Result<(), ChannelError> {
    let mut wakes = 0;
    let mut counted_from_ns = None;
    loop {
        if wait.peer_is_gone() {
            // What it sent before it ended counts.
            return if awaited.look()? { Ok(()) } else { Err(ChannelError::PeerGone) };
        }
        if wait.take_interrupt() {
            return Err(ChannelError::Interrupted);
        }
        if deadline.has_passed(wait) {
            return if awaited.look()? { Ok(()) } else { Err(ChannelError::TimedOut) };
        }
        awaited.futex()?.store(SLEEPING, Ordering::Relaxed);
        // Between this store and the load of the position; the other half is in `ring`.
        fence(Ordering::SeqCst);
        let mut is_there = awaited.look();
        if is_there == Ok(false) {
            wait.sleep(awaited.futex()?, SLEEPING, deadline);
            is_there = awaited.look();
        }
        awaited.futex()?.store(AWAKE, Ordering::Relaxed);
        if is_there? {
            return Ok(());
        }
        wakes += 1;
        if wakes % IDLE_WAKES == 0 {
            let now_ns = wait.now_ns();
            if counted_from_ns
                .is_some_and(|from| now_ns.saturating_sub(from) < IDLE_WAKES * IDLE_WAKE_NS)
            {
                return Err(ChannelError::PeerBroke {
                    what: "wakes the other side again and again for nothing",
                });
            }
            counted_from_ns = Some(now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spinning lasts longer while it succeeds, stops when it fails, and is tried again later.
    #[test]
    fn spinning_adapts_to_its_success() {
        let mut spin = Spin::new();
        spin.paid(11_000);
        assert_eq!(spin.budget_ns(SPIN_NS_MAX), 44_000);
        assert_eq!(spin.budget_ns(5_000), 5_000);
        (0..100).for_each(|_| spin.paid(100));
        assert_eq!(spin.budget_ns(SPIN_NS_MAX), SPIN_NS_PAID);
        (0..3).for_each(|_| spin.failed());
        // Soon, and then ever more rarely.
        let mut waits_until_a_try = || {
            let waits = (0..200).take_while(|_| spin.budget_ns(SPIN_NS_MAX) == 0).count();
            spin.failed();
            waits
        };
        assert_eq!(
            [0, 1, 3, 7, 15, 31, 63, 63].map(|_| waits_until_a_try()),
            [0, 1, 3, 7, 15, 31, 63, 63]
        );
        spin.paid(100);
        assert_eq!(spin.budget_ns(SPIN_NS_MAX), SPIN_NS_PAID);
        // One processor: never.
        assert_eq!(spin.budget_ns(0), 0);
    }

    #[test]
    fn deadlines_are_moments_or_never() {
        assert_eq!(Deadline::after(5, Duration::from_nanos(7)), Deadline::at_ns(12));
        assert_eq!(Deadline::after(5, Duration::MAX), Deadline::NEVER);
        assert_eq!(Deadline::after(u64::MAX - 1, Duration::from_secs(1)).ns(), None);
        assert!(Deadline::NOW < Deadline::at_ns(1) && Deadline::at_ns(1) < Deadline::NEVER);
    }
}
