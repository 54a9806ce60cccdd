//! Delays of nanoseconds: the thread looks at a clock until the time is over.
//!
//! The clock is the processor's time-stamp counter where that runs at one rate whatever the
//! processor does ("invariant TSC", Intel SDM volume 3, 18.17), because it is read in a few
//! nanoseconds; its rate is measured once against the system's clock. Elsewhere it is the system's
//! clock itself.
//!
//! Invariant: a delay is not shorter than asked for: what the measured rate may be wrong by is
//! added.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Ticks of the counter for 1024 nanoseconds; 0 where the system's clock is used.
static RATE: OnceLock<u64> = OnceLock::new();

/// The part of a delay by which it is made longer, as the rate is measured no better.
const RATE_ERROR: u64 = 1000;

/// Measures the rate, so that the first delay is no longer than the others.
pub(super) fn prepare() {
    RATE.get_or_init(rate);
}

/// Returns after this time.
#[inline]
pub(super) fn spin_ns(ns: u64) {
    if ns > 0 {
        spin(ns);
    }
}

fn spin(ns: u64) {
    match *RATE.get_or_init(rate) {
        0 => {
            let started = Instant::now();
            while started.elapsed() < Duration::from_nanos(ns) {
                core::hint::spin_loop();
            }
        }
        rate => {
            let started = ticks();
            let wanted = (ns + ns / RATE_ERROR + 1) * rate / 1024 + 1;
            while ticks().wrapping_sub(started) < wanted {
                core::hint::spin_loop();
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn ticks() -> u64 {
    // SAFETY: every x86-64 has the counter, and Linux lets programs read it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    0
}

#[cfg(target_arch = "x86_64")]
fn has_steady_counter() -> bool {
    use core::arch::x86_64::__cpuid;
    const ADVANCED_POWER: u32 = 0x8000_0007;
    __cpuid(0x8000_0000).eax >= ADVANCED_POWER && __cpuid(ADVANCED_POWER).edx & 1 << 8 != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn has_steady_counter() -> bool {
    false
}

fn rate() -> u64 {
    const MEASURED: Duration = Duration::from_millis(20);
    if !has_steady_counter() {
        return 0;
    }
    let (first_ticks, first) = both_clocks();
    while first.elapsed() < MEASURED {
        core::hint::spin_loop();
    }
    let (last_ticks, last) = both_clocks();
    let elapsed_ns = last.duration_since(first).as_nanos();
    let elapsed_ticks = u128::from(last_ticks.wrapping_sub(first_ticks));
    u64::try_from(elapsed_ticks * 1024 / elapsed_ns).map_or(0, |rate| rate + 1)
}

/// Both clocks at one moment: of many pairs the one that was read fastest, as the thread may lose
/// its processor in between.
fn both_clocks() -> (u64, Instant) {
    const PAIRS: usize = 100;
    let pair = |_| {
        let before = ticks();
        let now = Instant::now();
        let after = ticks();
        (after.wrapping_sub(before), before.wrapping_add(after.wrapping_sub(before) / 2), now)
    };
    let fastest =
        (1..PAIRS).map(pair).fold(pair(0), |best, next| if next.0 < best.0 { next } else { best });
    (fastest.1, fastest.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: project/slow-memory
    #[test]
    fn no_delay_is_shorter_than_asked_for() {
        prepare();
        for ns in [1, 50, 500, 10_000, 2_000_000] {
            for _ in 0..20 {
                let started = Instant::now();
                spin_ns(ns);
                let taken_ns = started.elapsed().as_nanos();
                assert!(taken_ns >= u128::from(ns), "{taken_ns} ns instead of {ns}");
            }
        }
    }
}
