//! One workload in each mode of committing, in turns, at default settings: with the close, without
//! it, and what single transactions take.
//!
//! Invariants:
//! - Each transaction is timed in every mode, so that all pay alike for it.
//! - A mode that waits for the disk does fewer transactions; their time is scaled up, that of the
//!   close is not.

use std::io::{self, Error};
use std::time::{Duration, Instant};

use crate::heap::ground::Ground;
use crate::report::{Goal, Outcome};
use crate::stats::Series;

use super::engine::{Database, Mode};

/// With nothing chosen.
pub(super) const OURS: Mode = Mode::OURS_AS_IT_COMES;
const THEIRS: [Mode; 5] =
    [Mode::DELETE_FULL, Mode::WAL_FULL, Mode::WAL_NORMAL, Mode::WAL_OFF, Mode::MEMORY];

pub(super) const PERCENTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)];

/// A workload's work.
pub(super) type Run<'a> =
    &'a dyn Fn(&mut Database, usize, &mut dyn FnMut(Duration)) -> io::Result<()>;

/// A workload: how much of it is done and what it should come to.
pub(super) struct Contest<'a> {
    /// What keys of ratios begin with.
    pub(super) key: &'a str,
    /// What keys of single times have for it.
    pub(super) name: &'a str,
    /// Steps of the workload in a mode that does not wait for the disk, and in one that does.
    pub(super) steps: [usize; 2],
    /// Of the time of WAL OFF for ours, with the close and without.
    pub(super) goals: [Option<f64>; 2],
    /// Does so many steps in an empty database, and tells what each transaction took.
    pub(super) run: Run<'a>,
}

/// What a run came to, in seconds and microseconds.
#[derive(Debug, Clone, Copy)]
struct Taken {
    transactions_s: f64,
    close_s: f64,
    /// By [`PERCENTILES`].
    commit_us: [f64; 3],
}

/// What the runs of each mode came to; ours is the last.
#[derive(Debug)]
pub(super) struct Results {
    modes: Vec<Mode>,
    taken: Vec<Vec<Taken>>,
}

/// What is smaller than each share of some values.
pub(super) fn percentiles(mut taken_us: Vec<f64>) -> [f64; 3] {
    taken_us.sort_by(f64::total_cmp);
    let last = taken_us.len().saturating_sub(1);
    PERCENTILES
        .map(|(_, share)| taken_us.get((last as f64 * share) as usize).copied().unwrap_or(f64::NAN))
}

impl Contest<'_> {
    /// Runs it in all modes, adds the keys that all workloads have, and returns the rest.
    pub(super) fn run(
        &self,
        ground: &Ground,
        runs: usize,
        outcome: &mut Outcome,
    ) -> io::Result<Results> {
        let modes: Vec<Mode> = THEIRS.into_iter().chain([OURS]).collect();
        let mut taken: Vec<Vec<Taken>> = vec![Vec::new(); modes.len()];
        for round in 0..=runs {
            for turn in 0..modes.len() {
                let index = (round + turn) % modes.len();
                let found = self
                    .once(ground, modes[index])
                    .map_err(|error| Error::other(format!("{}: {error}", modes[index].name)))?;
                if round > 0 {
                    taken[index].push(found);
                }
            }
        }
        let results = Results { modes, taken };
        self.add(&results, outcome);
        Ok(results)
    }

    fn once(&self, ground: &Ground, mode: Mode) -> io::Result<Taken> {
        let [all, fewer] = self.steps;
        let steps = if mode.waits_for_the_disk() { all.min(fewer) } else { all };
        let folder = ground.on_disk("database")?;
        let mut database = Database::open(mode, &folder.join("contest.db"))?;
        let mut commit_us = Vec::new();
        (self.run)(&mut database, steps, &mut |taken| commit_us.push(taken.as_secs_f64() * 1e6))?;
        let closing = Instant::now();
        database.close()?;
        let close_s = closing.elapsed().as_secs_f64();
        let transactions_s = commit_us.iter().sum::<f64>() / 1e6 * (all as f64 / steps as f64);
        Ok(Taken { transactions_s, close_s, commit_us: percentiles(commit_us) })
    }

    fn add(&self, results: &Results, outcome: &mut Outcome) {
        for mode in THEIRS {
            let goal =
                |bound: Option<f64>| bound.filter(|_| mode == Mode::WAL_OFF).map(Goal::AtLeast);
            let [with_close, without] = [results.ratio(mode, true), results.ratio(mode, false)];
            let key = format!("{}_vs_{}", self.key, mode.name);
            outcome.add(key, Some(with_close), "x", goal(self.goals[0]));
            let key = format!("{}_without_close_vs_{}", self.key, mode.name);
            outcome.add(key, Some(without), "x", goal(self.goals[1]));
        }
        for (mode, taken) in results.modes.iter().zip(&results.taken) {
            for (number, (percentile, _)) in PERCENTILES.iter().enumerate() {
                let found: Series = taken.iter().map(|taken| taken.commit_us[number]).collect();
                let key = format!("commit_us_{percentile}_{}_{}", self.name, mode.name);
                outcome.add(key, Some(found), "us", None);
            }
            let close: Series = taken.iter().map(|taken| taken.close_s * 1e3).collect();
            outcome.add(format!("close_ms_{}_{}", self.name, mode.name), Some(close), "ms", None);
        }
    }
}

impl Results {
    /// Time of that mode for one of ours.
    pub(super) fn ratio(&self, mode: Mode, with_close: bool) -> Series {
        let time = move |taken: &Taken| {
            taken.transactions_s + if with_close { taken.close_s } else { 0.0 }
        };
        self.of(mode, time).over(&self.of(OURS, time))
    }

    /// The slowest of a hundred of our transactions for the median one.
    pub(super) fn p99_vs_p50(&self) -> Series {
        self.of(OURS, |taken| taken.commit_us[1] / taken.commit_us[0])
    }

    fn of(&self, mode: Mode, value: impl Fn(&Taken) -> f64) -> Series {
        let index = self.modes.iter().position(|other| *other == mode);
        index.map(|index| self.taken[index].iter().map(value).collect()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_values() {
        let values = (0..=1000).rev().map(f64::from).collect();
        assert_eq!(percentiles(values), [500.0, 990.0, 999.0]);
        assert!(percentiles(Vec::new())[0].is_nan());
    }

    #[test]
    fn ratios_are_of_the_mode_that_is_asked_for() {
        let taken =
            |s: f64| Taken { transactions_s: s, close_s: 1.0, commit_us: [s, 2.0 * s, 9.0] };
        let results = Results {
            modes: vec![Mode::WAL_OFF, OURS],
            taken: vec![vec![taken(3.0), taken(7.0)], vec![taken(1.0), taken(1.0)]],
        };
        assert_eq!(results.ratio(Mode::WAL_OFF, false), Series::from_iter([3.0, 7.0]));
        assert_eq!(results.ratio(Mode::WAL_OFF, true), Series::from_iter([2.0, 4.0]));
        assert_eq!(results.p99_vs_p50(), Series::from_iter([2.0, 2.0]));
    }
}
