//! The suite `slow`: the model of slow memory against known delays, reads on media like it, and the
//! programs of the first paper with their heap there. `bench/README.md` says what each key means.
//!
//! Invariant: the model is that of memory as it is whenever a section begins and ends.
//!
//! What it must not do: claim to be a device. The sources of the latencies are in
//! `holdfast_persist::SlowMemory`.

#![allow(unsafe_code, reason = "writes lines back, and follows pointers")]

use std::hint::black_box;
use std::io;
use std::time::Instant;

use holdfast_persist::{LINE_BYTES, ReadCache, SlowMemory, drain, write_back};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::programs::slow_memory::{self, Medium};
use crate::report::{Goal, Outcome};
use crate::section;
use crate::stats::Series;

/// The known delay: what it is configured to, and the goal for the median, which leaves a fifth for
/// the clock and for the instruction itself.
const KNOWN_NS: u32 = 500;
const KNOWN_MOST_NS: f64 = 600.0;
/// Lines that are written back one by one, and the drains after them.
const FLUSHES: usize = 1000;
/// Lines of the chain that is followed: 64 MiB, far more than the modelled cache has.
const CHAIN_LINES: usize = 1 << 20;
const STEPS: usize = 100_000;

/// A part of the suite.
type Section = (&'static str, fn(usize, &mut Outcome) -> io::Result<()>);

const SECTIONS: [Section; 3] = [("delays", known_delays), ("reads", reads), ("programs", programs)];

/// Runs the suite, or the section with the name `only`; `progress` gets the name of each step.
///
/// # Errors
/// When there is no such section, or a program fails.
pub fn run(runs: usize, only: Option<&str>, progress: &mut dyn FnMut(&str)) -> io::Result<Outcome> {
    let chosen = section::chosen(&SECTIONS, only)?;
    section::run(chosen, progress, |section, outcome| section(runs, outcome))
}

fn known_delays(_runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let memory = vec![0_u8; (FLUSHES + 1) * LINE_BYTES];
    let first = memory.as_ptr().wrapping_add(memory.as_ptr().align_offset(LINE_BYTES));
    let flushes = || -> Series {
        // SAFETY: a line of the vector, which has one more than there are flushes.
        (0..FLUSHES)
            .map(|line| ns(|| unsafe { write_back(first.wrapping_add(line * LINE_BYTES), 1) }))
            .collect()
    };
    let drains = || -> Series { (0..FLUSHES).map(|_| ns(drain)).collect() };
    let model = |write_ns_per_line, drain_ns| SlowMemory {
        read_ns_per_line: 0,
        write_ns_per_line,
        drain_ns,
    };
    SlowMemory::DRAM.emulate();
    outcome.add("slow_flush_0_ns", Some(flushes()), "ns", None);
    outcome.add("slow_drain_0_ns", Some(drains()), "ns", None);
    model(KNOWN_NS, 0).emulate();
    outcome.add("slow_flush_500_ns", Some(flushes()), "ns", Some(Goal::AtMost(KNOWN_MOST_NS)));
    model(0, KNOWN_NS).emulate();
    outcome.add("slow_drain_500_ns", Some(drains()), "ns", Some(Goal::AtMost(KNOWN_MOST_NS)));
    SlowMemory::DRAM.emulate();
    Ok(())
}

fn ns(work: impl FnOnce()) -> f64 {
    let started = Instant::now();
    work();
    started.elapsed().as_nanos() as f64
}

fn programs(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let medium = |name, memory: SlowMemory| Medium {
        name,
        read_ns: memory.read_ns_per_line,
        write_ns: memory.write_ns_per_line,
    };
    let media = [medium("pcm", SlowMemory::PCM), medium("optane", SlowMemory::OPTANE)];
    slow_memory::run(runs, &media, outcome)
}

/// A line that leads to another one.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Link(usize);

/// Follows a chain through all of 64 MiB, in an order that no prefetcher finds, telling the
/// modelled cache of every step.
fn reads(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let chain = chain();
    let media = [
        ("slow_read_dram_ns", SlowMemory::DRAM),
        ("slow_read_pcm_ns", SlowMemory::PCM),
        ("slow_read_optane_ns", SlowMemory::OPTANE),
    ];
    let mut series: [Series; 3] = Default::default();
    let mut misses = Series::default();
    for _ in 0..runs {
        for ((_, memory), series) in media.iter().zip(&mut series) {
            let mut cache = ReadCache::of_the_paper(*memory);
            let (mut at, mut missed) = (0, 0);
            let taken = ns(|| {
                for _ in 0..STEPS {
                    missed += cache.touch(&raw const chain[at], size_of::<Link>());
                    at = black_box(chain[at]).0;
                }
            });
            series.push(taken / STEPS as f64);
            misses.push(missed as f64 / STEPS as f64 * 100.0);
        }
    }
    for ((key, _), series) in media.into_iter().zip(series) {
        outcome.add(key, Some(series), "ns", None);
    }
    outcome.add("slow_read_missed_pct", Some(misses), "%", None);
    Ok(())
}

/// One cycle through all lines (Sattolo's shuffle).
fn chain() -> Vec<Link> {
    let mut order: Vec<usize> = (0..CHAIN_LINES).collect();
    let mut random = SmallRng::seed_from_u64(7);
    for last in (1..CHAIN_LINES).rev() {
        order.swap(last, random.random_range(0..last));
    }
    order.into_iter().map(Link).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pointer chain visits every cache line before it returns to its start.
    #[test]
    fn pointer_chain_visits_every_line() {
        let chain = chain();
        let (mut at, mut steps) = (0, 0);
        loop {
            at = chain[at].0;
            steps += 1;
            if at == 0 {
                break;
            }
        }
        assert_eq!(steps, CHAIN_LINES);
    }
}
