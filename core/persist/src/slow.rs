//! Slow memory for experiments: a model that adds to the memory of this machine what another kind
//! would cost, so that results can be shown for media that are not at hand. Only with the feature
//! `slow-memory`; without it no byte of this is there.
//!
//! The model:
//! - every line that [`write_back`] starts on its way costs `write_ns_per_line` more, one after the
//!   other: a device that takes them side by side would be faster, so what is shown is a bound from
//!   above;
//! - every [`drain`] costs `drain_ns` more;
//! - every line that is read and is not in a modelled cache ([`ReadCache`]) costs
//!   `read_ns_per_line` more. Loads are instructions that no code can get between, so the program
//!   says what it reads ([`ReadCache::touch`]).
//!
//! Not modelled: bandwidth shared by threads, buffers inside the device, wear, and lines that a
//! cache writes back on its own.
//!
//! Invariants:
//! - A delay is never shorter than configured. How much longer it is, is measured by `cargo xtask
//!   bench slow`.
//! - What is in force counts for the whole process, from its next write-back on; at first it is
//!   [`SlowMemory::DRAM`].
//! - The bytes in memory are the same with any model.

#![allow(
    unsafe_code,
    reason = "stands in front of the functions that write lines back, under the same contracts"
)]

mod cache;
mod spin;

use core::sync::atomic::{AtomicU32, Ordering};

use crate::{LINE_BYTES, line};

pub use cache::ReadCache;
use spin::spin_ns;

/// What a kind of memory costs beyond this machine's, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowMemory {
    /// For each line that is read and is in no cache.
    pub read_ns_per_line: u32,
    /// For each line that is written back.
    pub write_ns_per_line: u32,
    /// For each drain.
    pub drain_ns: u32,
}

static WRITE_NS_PER_LINE: AtomicU32 = AtomicU32::new(0);
static DRAIN_NS: AtomicU32 = AtomicU32::new(0);

impl SlowMemory {
    /// This machine's memory as it is.
    pub const DRAM: SlowMemory =
        SlowMemory { read_ns_per_line: 0, write_ns_per_line: 0, drain_ns: 0 };

    /// Phase-change memory as the literature expects it. Setting a cell takes 150 ns and reading
    /// one 48 ns (Lee, Ipek, Mutlu, Burger: Architecting Phase Change Memory as a Scalable DRAM
    /// Alternative, ISCA 2009, table 1); Mnemosyne (Volos, Tack, Swift, ASPLOS 2011), from which
    /// the paper on sandboxed web applications takes its latencies, adds 150 ns to a write. The
    /// read is added in full, though DRAM has a part of it: a bound from above.
    pub const PCM: SlowMemory =
        SlowMemory { read_ns_per_line: 48, write_ns_per_line: 150, drain_ns: 0 };

    /// Optane DC, what it takes beyond DRAM (Yang, Kim, Hoseinzadeh, Izraelevitz, Swanson: An
    /// Empirical Guide to the Behavior and Use of Scalable Persistent Memory, FAST 2020): random
    /// reads of 305 ns beside 101 ns; a store with `clwb` and a fence of 62 ns beside 57 ns, as it
    /// is done when it is in the controller's queue; and 2.3 GB/s into one module, which are 28 ns
    /// for a line. Lines scattered over its blocks of 256 bytes take up to four times that.
    pub const OPTANE: SlowMemory =
        SlowMemory { read_ns_per_line: 204, write_ns_per_line: 28, drain_ns: 5 };

    /// Puts the costs of writing in force for this process. Those of reading are a [`ReadCache`]'s.
    pub fn emulate(self) {
        spin::prepare();
        WRITE_NS_PER_LINE.store(self.write_ns_per_line, Ordering::Relaxed);
        DRAIN_NS.store(self.drain_ns, Ordering::Relaxed);
    }
}

/// As [`crate::line::write_back`], and as slow as configured.
///
/// # Safety
/// The range must be mapped for reading.
#[inline]
pub unsafe fn write_back(start: *const u8, bytes: usize) {
    // SAFETY: per the contract.
    unsafe { line::write_back(start, bytes) };
    spin_ns(lines(start, bytes) * u64::from(WRITE_NS_PER_LINE.load(Ordering::Relaxed)));
}

/// As [`crate::line::drain`], and as slow as configured.
#[inline]
pub fn drain() {
    line::drain();
    spin_ns(u64::from(DRAIN_NS.load(Ordering::Relaxed)));
}

/// [`write_back`], then [`drain`].
///
/// # Safety
/// As [`write_back`].
#[inline]
pub unsafe fn persist(start: *const u8, bytes: usize) {
    // SAFETY: per the contract.
    unsafe { write_back(start, bytes) };
    drain();
}

/// How many lines have a byte of the range.
fn lines(start: *const u8, bytes: usize) -> u64 {
    if bytes == 0 {
        return 0;
    }
    let first = start.addr() / LINE_BYTES;
    ((start.addr() + bytes).div_ceil(LINE_BYTES) - first) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, MutexGuard, PoisonError};
    use std::time::{Duration, Instant};

    /// The model is the process's, and tests share one.
    fn alone() -> MutexGuard<'static, ()> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shortest of a thousand: whatever the machine does besides can only make one longer.
    fn shortest(mut work: impl FnMut()) -> Duration {
        let once = |_| {
            let started = Instant::now();
            work();
            started.elapsed()
        };
        (0..1000).map(once).min().unwrap()
    }

    #[test]
    fn lines_are_counted_wherever_a_range_begins_and_ends() {
        let at = |offset: usize| core::ptr::without_provenance::<u8>(4096 + offset);
        assert_eq!(
            [lines(at(0), 0), lines(at(0), 1), lines(at(0), 64), lines(at(0), 65)],
            [0, 1, 1, 2]
        );
        assert_eq!(
            [lines(at(63), 1), lines(at(63), 2), lines(at(1), 128), lines(at(70), 10)],
            [1, 2, 3, 1]
        );
    }

    /// A line and a drain take at least what is configured for them.
    ///
    /// Guarantee: project/slow-memory
    #[test]
    fn write_back_and_drain_take_the_configured_time() {
        let _alone = alone();
        let memory = [0_u8; 256];
        let start = memory.as_ptr().wrapping_add(memory.as_ptr().align_offset(64));
        SlowMemory { read_ns_per_line: 0, write_ns_per_line: 500, drain_ns: 2000 }.emulate();
        // SAFETY: two lines of the array.
        let (one, two) = (
            shortest(|| unsafe { write_back(start, 64) }),
            shortest(|| unsafe { write_back(start, 65) }),
        );
        let drained = shortest(drain);
        // SAFETY: as above.
        let both = shortest(|| unsafe { persist(start, 1) });
        SlowMemory::DRAM.emulate();
        assert!(one.as_nanos() >= 500, "{one:?}");
        assert!(two.as_nanos() >= 1000, "{two:?}");
        assert!(drained.as_nanos() >= 2000, "{drained:?}");
        assert!(both.as_nanos() >= 2500, "{both:?}");
    }

    #[test]
    fn memory_as_it_is_costs_nothing_more() {
        let _alone = alone();
        SlowMemory { read_ns_per_line: 0, write_ns_per_line: 1_000_000, drain_ns: 1_000_000 }
            .emulate();
        SlowMemory::DRAM.emulate();
        let memory = [0_u8; 64];
        // SAFETY: a byte of the array.
        assert!(shortest(|| unsafe { persist(memory.as_ptr(), 1) }).as_micros() < 1000);
    }
}
