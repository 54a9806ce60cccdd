//! A model of the last cache before memory, which decides which reads reach memory: it has as many
//! lines and ways as the caller says, and drops what was not used for longest.
//!
//! It gets reads ([`ReadCache::touch`]) and delays the thread for those that miss.
//! Prefetching, other threads, and write-backs that drop lines are not modelled; a real cache picks
//! its sets by more than the address.

use std::vec::Vec;

use super::spin::{prepare, spin_ns};
use super::{SlowMemory, lines};
use crate::LINE_BYTES;

/// A line that no address has.
const EMPTY: usize = usize::MAX;

/// A modelled cache in front of slow memory.
#[derive(Debug, Clone)]
pub struct ReadCache {
    read_ns_per_line: u32,
    ways: usize,
    /// Set by set, in each the line that was used last first.
    lines: Vec<usize>,
}

impl ReadCache {
    /// An empty cache of about `bytes` (a multiple of what the ways take; at least one set) with
    /// `ways` lines in a set.
    #[must_use]
    pub fn new(memory: SlowMemory, bytes: usize, ways: usize) -> ReadCache {
        prepare();
        let ways = ways.max(1);
        let sets = (bytes / LINE_BYTES / ways).max(1);
        let lines = std::vec![EMPTY; sets * ways];
        ReadCache { read_ns_per_line: memory.read_ns_per_line, ways, lines }
    }

    /// The 1 MiB in front of memory on the paper's machine (an Atom D510, 8 ways).
    #[must_use]
    pub fn of_the_paper(memory: SlowMemory) -> ReadCache {
        ReadCache::new(memory, 1 << 20, 8)
    }

    /// Says that the range is read, and takes the time that its missing lines cost. Returns how
    /// many these were.
    pub fn touch<T>(&mut self, start: *const T, bytes: usize) -> u64 {
        let first = start.addr() / LINE_BYTES;
        let count = lines(start.cast(), bytes);
        let missed = (0..count).filter(|line| !self.has_had(first + *line as usize)).count() as u64;
        spin_ns(missed * u64::from(self.read_ns_per_line));
        missed
    }

    /// Whether the line was there; it is now, and the one used last.
    fn has_had(&mut self, line: usize) -> bool {
        let sets = self.lines.len() / self.ways;
        let start = line % sets * self.ways;
        let set = &mut self.lines[start..start + self.ways];
        let found = set.iter().position(|known| *known == line);
        // Those used since then move one place back, over the line itself or the last one.
        set[..=found.unwrap_or(self.ways - 1)].rotate_right(1);
        set[0] = line;
        found.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// The line with this number; it is not read.
    fn line(number: usize) -> *const u8 {
        core::ptr::without_provenance(number * LINE_BYTES)
    }

    /// A line is missed once and again after its set was used up.
    ///
    /// Guarantee: project/slow-memory
    #[test]
    fn line_misses_again_only_after_eviction() {
        let mut cache = ReadCache::new(SlowMemory::DRAM, 4 * 2 * LINE_BYTES, 2);
        assert_eq!(
            [cache.touch(line(0), 1), cache.touch(line(0), 64), cache.touch(line(0), 65)],
            [1, 0, 1]
        );
        // 4 sets: lines 0, 4 and 8 share one, of two ways. 0 was used after 4, so 4 goes.
        assert_eq!(
            [cache.touch(line(4), 1), cache.touch(line(0), 1), cache.touch(line(8), 1)],
            [1, 0, 1]
        );
        assert_eq!(
            [cache.touch(line(0), 1), cache.touch(line(8), 1), cache.touch(line(4), 1)],
            [0, 0, 1]
        );
        // Another set has kept its line.
        assert_eq!(cache.touch(line(1), 1), 0);
    }

    /// What fits is missed once and what is twice as large each time.
    ///
    /// Guarantee: project/slow-memory
    #[test]
    fn fitting_set_misses_once_and_a_double_one_always() {
        let mut cache = ReadCache::of_the_paper(SlowMemory::DRAM);
        let lines = (1 << 20) / LINE_BYTES;
        let mut pass =
            |count: usize| (0..count).map(|number| cache.touch(line(number), 8)).sum::<u64>();
        assert_eq!([pass(lines), pass(lines)], [lines as u64, 0]);
        assert_eq!([pass(2 * lines), pass(2 * lines)], [lines as u64, lines as u64 * 2]);
    }

    /// Guarantee: project/slow-memory
    #[test]
    fn missed_lines_take_at_least_what_is_configured() {
        let memory = SlowMemory { read_ns_per_line: 10_000, ..SlowMemory::DRAM };
        let mut cache = ReadCache::of_the_paper(memory);
        let started = Instant::now();
        assert_eq!(cache.touch(line(0), 10 * LINE_BYTES), 10);
        assert!(started.elapsed().as_micros() >= 100);
    }
}
