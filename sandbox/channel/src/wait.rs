//! Waiting for the other side: spin for a while, then sleep.
//!
//! A side that finds nothing looks again and again for a bounded time, and then sleeps on a futex
//! word of the ring. The word says that a side sleeps: the sleeper sets it, looks once more, and
//! sleeps only if the word is still set; the other side stores what it has to say, and if the word
//! is set clears it and wakes. Each has a sequentially consistent fence between its store and its
//! load, so one of the two sees the other.
//!
//! Whether a side spins, it measures: what waits take that begin by spinning, and what those take
//! that sleep at once. It does what takes less, and tries the other now and then. Where both sides
//! have one processor, or the other one's is taken away, spinning takes more; where each has its
//! own, sleeping does.
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
/// The shortest, so that one late answer is no reason to sleep.
const SPIN_NS_MIN: u64 = 4_000;
/// What sleeping is taken to cost until it was measured.
const SLEEP_NS_FIRST: u64 = 20_000;
/// What it costs at least: two switches between processes. Where spinning takes less there is
/// nothing to try.
const SLEEP_NS_LEAST: u64 = 1_000;
/// No wait counts as longer: what takes this long mostly waits for something to do, not for an
/// answer.
const IDLE_NS: u64 = 2 * SPIN_NS_MAX;
/// A measured time changes the mean of its kind by one part in so many of the difference.
const MEAN_OF: u64 = 4;
/// A sleep that takes so many times as long as usual is a reason to try spinning again.
const CHANGED: u64 = 4;
/// One wait of so many is a try of spinning, where sleeping takes less: soon at first, because a
/// processor that was taken away for a moment puts both sides to sleep, and then ever more rarely.
const SPIN_TRIALS: TrialRate = TrialRate { first: 1, rarest: 64 };
/// The same for sleeping, which may cost a hundred times as much as the spins between.
const SLEEP_TRIALS: TrialRate = TrialRate { first: 64, rarest: 4096 };
/// Looks between two looks at the clock, which costs as much as a few of them.
const LOOKS_PER_CLOCK: u32 = 16;
/// So many messages may be found without a look at the clock before the deadline is looked at.
const UNTIMED_MAX: u32 = 64;
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

    /// The longest spin; 0 sleeps at once.
    fn spin_ns_max(&self) -> u64 {
        SPIN_NS_MAX
    }
}

/// How often the way is tried that is not the usual one.
#[derive(Debug)]
struct TrialRate {
    first: u32,
    rarest: u32,
}

/// How one wait goes about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Way {
    /// How long it spins; 0 sleeps at once.
    budget_ns: u64,
    is_trial: bool,
}

/// What waits took, and so how the next one goes about it.
#[derive(Debug)]
pub(crate) struct Spin {
    /// What a wait takes that begins by spinning: a running mean.
    spin_ns: u64,
    /// What a wait takes that sleeps at once.
    sleep_ns: u64,
    /// Waits until the next trial, and between the last one and that.
    until_trial: u32,
    trial_every: u32,
    /// The last wait was for something to do.
    was_idle: bool,
    /// Messages that were there without a look at the clock.
    untimed: u32,
}

impl Spin {
    pub(crate) const fn new() -> Spin {
        Spin {
            spin_ns: 0,
            sleep_ns: SLEEP_NS_FIRST,
            until_trial: SLEEP_TRIALS.first,
            trial_every: SLEEP_TRIALS.first,
            was_idle: false,
            untimed: 0,
        }
    }

    fn spins(&self) -> bool {
        self.spin_ns < self.sleep_ns
    }

    fn trials(&self) -> TrialRate {
        if self.spins() { SLEEP_TRIALS } else { SPIN_TRIALS }
    }

    fn way(&mut self, most_ns: u64) -> Way {
        if most_ns == 0 {
            return Way { budget_ns: 0, is_trial: false };
        }
        let is_worth_it = !self.spins() || self.spin_ns > SLEEP_NS_LEAST;
        let mut is_trial = false;
        if is_worth_it {
            self.until_trial = self.until_trial.saturating_sub(1);
            is_trial = self.until_trial == 0;
        }
        // Who has spun as long as a sleep takes has lost no more than that.
        let budget_ns = self.sleep_ns.clamp(SPIN_NS_MIN, SPIN_NS_MAX).min(most_ns);
        Way { budget_ns: if self.spins() == is_trial { 0 } else { budget_ns }, is_trial }
    }

    /// A wait took that long, of which it span so long for nothing.
    fn took(&mut self, way: Way, took_ns: u64, lost_ns: u64) {
        let spun = self.spins();
        let is_idle = took_ns.saturating_sub(lost_ns) >= IDLE_NS;
        // There is something to do again.
        let is_back = core::mem::replace(&mut self.was_idle, is_idle) && !is_idle;
        // Its own processor had something better to do meanwhile.
        let cost_ns = took_ns.min(IDLE_NS) + lost_ns;
        let usual_ns = if spun { self.spin_ns } else { self.sleep_ns };
        let mean_ns = if way.budget_ns > 0 { &mut self.spin_ns } else { &mut self.sleep_ns };
        let pays = way.is_trial && cost_ns < usual_ns;
        // The peer may have a processor of its own by now.
        let has_changed = !way.is_trial && !is_idle && cost_ns / CHANGED > *mean_ns;
        *mean_ns = if pays { cost_ns } else { *mean_ns - *mean_ns / MEAN_OF + cost_ns / MEAN_OF };
        let (spins, trials) = (self.spins(), self.trials());
        if spins != spun || (!spins && (is_back || has_changed)) {
            self.trial_every = trials.first;
        } else if way.is_trial {
            self.trial_every = (2 * self.trial_every).min(trials.rarest);
        } else {
            return;
        }
        self.until_trial = self.trial_every;
    }

    /// A message was there without a look at the clock. Who always finds one must notice the
    /// deadline, too.
    fn untimed(&mut self, wait: &impl Wait, deadline: Deadline) -> Result<(), ChannelError> {
        self.untimed += 1;
        if self.untimed < UNTIMED_MAX || deadline == Deadline::NOW {
            return Ok(());
        }
        self.untimed = 0;
        if deadline.has_passed(wait) { Err(ChannelError::TimedOut) } else { Ok(()) }
    }
}

/// What can be waited for.
pub(crate) trait Awaited {
    /// Where the other side wakes who waits.
    fn futex(&self) -> Result<&AtomicU32, ChannelError>;
    /// Whether it is there now. Asked with every wake-up, and often while spinning.
    fn look(&mut self) -> Result<bool, ChannelError>;
}

/// Looks as often as one looks without a clock.
fn look_often(awaited: &mut impl Awaited) -> Result<bool, ChannelError> {
    for _ in 0..LOOKS_PER_CLOCK {
        core::hint::spin_loop();
        if awaited.look()? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Waits until it is there.
pub(crate) fn wait_for<W: Wait>(
    wait: &W,
    spin: &mut Spin,
    deadline: Deadline,
    awaited: &mut impl Awaited,
) -> Result<(), ChannelError> {
    if awaited.look()? {
        return spin.untimed(wait, deadline);
    }
    if deadline == Deadline::NOW {
        return sleep_for(wait, deadline, awaited);
    }
    let way = spin.way(wait.spin_ns_max());
    if way.budget_ns > 0 && look_often(awaited)? {
        spin.took(way, 0, 0);
        return spin.untimed(wait, deadline);
    }
    spin.untimed = 0;
    let started_ns = wait.now_ns();
    let mut spun_ns = 0;
    while spun_ns < way.budget_ns {
        if look_often(awaited)? {
            spin.took(way, spun_ns, 0);
            return Ok(());
        }
        let now_ns = wait.now_ns();
        spun_ns = now_ns.saturating_sub(started_ns);
        if deadline.ns().is_some_and(|ns| now_ns >= ns) {
            break;
        }
    }
    let slept = sleep_for(wait, deadline, awaited);
    spin.took(way, wait.now_ns().saturating_sub(started_ns), spun_ns);
    slept
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

    /// What a wait takes on some machine: one that spins until the answer is there, if there is
    /// one before it sleeps, and one that sleeps at once.
    #[derive(Clone, Copy)]
    struct Machine {
        spun_ns: u64,
        slept_ns: u64,
    }

    impl Machine {
        /// What one wait takes, and whether it slept.
        fn wait(self, spin: &mut Spin) -> (u64, bool) {
            let way = spin.way(SPIN_NS_MAX);
            if self.spun_ns <= way.budget_ns {
                spin.took(way, self.spun_ns, 0);
                return (self.spun_ns, false);
            }
            let took_ns = way.budget_ns + self.slept_ns;
            spin.took(way, took_ns, way.budget_ns);
            (took_ns, true)
        }

        /// Many waits: their mean time is about as expected, and nearly all or none of them sleep.
        fn waits(self, spin: &mut Spin, mean_ns: u64, sleeps: bool) {
            let waits = 2_000;
            let all = (0..waits).map(|_| self.wait(spin));
            let (sum_ns, slept) = all.fold((0, 0), |(sum_ns, slept), (took_ns, has_slept)| {
                (sum_ns + took_ns, slept + u64::from(has_slept))
            });
            let found_ns = sum_ns / waits;
            assert!(found_ns <= mean_ns + mean_ns / 10 + 200, "{found_ns} for {mean_ns}");
            let usual = if sleeps { slept } else { waits - slept };
            assert!(usual >= waits * 95 / 100, "{usual}, {mean_ns}");
        }
    }

    const APART: Machine = Machine { spun_ns: 300, slept_ns: 50_000 };
    /// With one processor the peer answers only when the other side sleeps.
    const TOGETHER: Machine = Machine { spun_ns: u64::MAX, slept_ns: 2_000 };

    /// A side does what takes less time on its machine, and notices when that changes.
    ///
    /// Guarantee: applets/spinning
    #[test]
    fn a_side_does_what_takes_less_time() {
        let mut spin = Spin::new();
        for _ in 0..3 {
            APART.waits(&mut spin, 300, false);
            TOGETHER.waits(&mut spin, 2_000, true);
        }
        // An answer that takes a while, yet less than a sleep.
        let slow = Machine { spun_ns: 15_000, slept_ns: 65_000 };
        slow.waits(&mut spin, 15_000, false);
        // Spinning ends in time, always, and takes more than sleeping.
        let far = Machine { spun_ns: 5_000, slept_ns: 2_000 };
        far.waits(&mut Spin::new(), 2_000, true);
        // Spinning takes as long, and a processor besides.
        let late = Machine { spun_ns: 150_000, slept_ns: 150_000 };
        late.waits(&mut spin, 150_000, true);
    }

    /// A side that waits for something to do sleeps, and spins soon after it has some.
    ///
    /// Guarantee: applets/spinning
    #[test]
    fn an_idle_side_sleeps_and_is_back_soon() {
        let mut spin = Spin::new();
        let idle = Machine { spun_ns: 2_000_000, slept_ns: 2_000_000 };
        for _ in 0..100 {
            idle.wait(&mut spin);
        }
        let spins = (0..1000).filter(|_| idle.wait(&mut spin).0 > idle.slept_ns).count();
        assert!(spins <= 1000 / SPIN_TRIALS.rarest as usize + 1, "{spins}");
        let sleeps = (0..10).filter(|_| APART.wait(&mut spin).1).count();
        assert!(sleeps <= 2, "{sleeps}");
    }

    /// One late answer among quick ones costs no sleep afterwards, and a side that may not spin
    /// never does.
    #[test]
    fn one_late_answer_changes_nothing() {
        let mut spin = Spin::new();
        APART.waits(&mut spin, 300, false);
        Machine { spun_ns: 5_000_000, slept_ns: 5_000_000 }.wait(&mut spin);
        let sleeps = (0..100).filter(|_| APART.wait(&mut spin).1).count();
        assert!(sleeps <= 1, "{sleeps}");
        assert_eq!(spin.way(0).budget_ns, 0);
        assert_eq!(spin.way(5_000).budget_ns, 5_000);
    }

    /// A platform on which a sleep would last for ever.
    struct Sleepless;

    impl Wait for Sleepless {
        fn now_ns(&self) -> u64 {
            1
        }

        fn sleep(&self, _: &AtomicU32, _: u32, _: Deadline) {
            panic!("sleeps although it has come");
        }

        fn wake(&self, _: &AtomicU32) {}

        fn spin_ns_max(&self) -> u64 {
            0
        }
    }

    /// What comes when a side has looked and not said yet that it sleeps: nobody wakes it.
    struct Late(AtomicU32);

    impl Awaited for Late {
        fn futex(&self) -> Result<&AtomicU32, ChannelError> {
            Ok(&self.0)
        }

        fn look(&mut self) -> Result<bool, ChannelError> {
            Ok(self.0.load(Ordering::Relaxed) == SLEEPING)
        }
    }

    /// A side looks once more when it has said that it sleeps, and then says that it does not.
    ///
    /// Guarantee: applets/bounded-waits
    #[test]
    fn what_comes_before_a_side_sleeps_is_seen() {
        let mut late = Late(AtomicU32::new(AWAKE));
        wait_for(&Sleepless, &mut Spin::new(), Deadline::NEVER, &mut late).unwrap();
        assert_eq!(late.0.load(Ordering::Relaxed), AWAKE);
    }

    #[test]
    fn deadlines_are_moments_or_never() {
        assert_eq!(Deadline::after(5, Duration::from_nanos(7)), Deadline::at_ns(12));
        assert_eq!(Deadline::after(5, Duration::MAX), Deadline::NEVER);
        assert_eq!(Deadline::after(u64::MAX - 1, Duration::from_secs(1)).ns(), None);
        assert!(Deadline::NOW < Deadline::at_ns(1) && Deadline::at_ns(1) < Deadline::NEVER);
    }
}
