//! The table by size of the data: the paper's workload in random order on larger and larger tables,
//! at default settings, with the close and without it, in each mode of committing.
//!
//! Invariants:
//! - Half as many transactions of each kind as there are rows, as in the paper; but fewer in a mode
//!   that waits for the disk, whose time is scaled up, without the close.
//! - Each transaction is timed in every mode, so that all pay alike for it.

use std::io::{self, Error};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use crate::heap::ground::Ground;
use crate::report::{Goal, Outcome};
use crate::stats::Series;

use super::calls;
use super::engine::{Database, Mode};
use super::workload::Workload;

/// A set of data.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Size {
    /// As keys name it.
    name: &'static str,
    rows: usize,
    characters: usize,
}

const LARGEST: Size = Size { name: "1k_100k", rows: 100_000, characters: 1024 };
const LARGE: Size = Size { name: "1k_20k", rows: 20_000, characters: 1024 };
const PAPER: Size = Size { name: "paper_set", rows: 2000, characters: 100 };
const SIZES: [Size; 6] = [
    PAPER,
    Size { name: "1k_500", rows: 500, characters: 1024 },
    Size { name: "1k_2k", rows: 2000, characters: 1024 },
    Size { name: "1k_4k", rows: 4000, characters: 1024 },
    LARGE,
    LARGEST,
];

const OURS: Mode = Mode::OURS_AS_IT_COMES;
const THEIRS: [Mode; 5] =
    [Mode::DELETE_FULL, Mode::WAL_FULL, Mode::WAL_NORMAL, Mode::WAL_OFF, Mode::MEMORY];
/// Transactions of each kind in a mode in which each waits for the disk.
const SLOW_COUNT: usize = 250;

impl Size {
    fn count(self) -> usize {
        self.rows / 2
    }

    fn workload(self, count: usize) -> Workload {
        Workload::of_size(self.rows, self.characters, count)
    }

    /// The key of a ratio; the name of the paper's set is that of its key.
    fn key(self, what: &str) -> String {
        match self == PAPER {
            true => format!("{}_{what}", self.name),
            false => format!("random_{}_{what}", self.name),
        }
    }
}

/// What a run came to, in seconds and microseconds.
#[derive(Debug, Clone, Copy)]
struct Taken {
    transactions_s: f64,
    close_s: f64,
    /// The median transaction, that of 100, and that of 1,000, which took longest.
    commit_us: [f64; 3],
}

const PERCENTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)];

/// What is smaller than this share of some values.
fn percentiles(mut taken_us: Vec<f64>) -> [f64; 3] {
    taken_us.sort_by(f64::total_cmp);
    let last = taken_us.len().saturating_sub(1);
    PERCENTILES
        .map(|(_, share)| taken_us.get((last as f64 * share) as usize).copied().unwrap_or(f64::NAN))
}

fn once(ground: &Ground, mode: Mode, size: Size) -> io::Result<Taken> {
    let count = match mode {
        Mode::DELETE_FULL | Mode::WAL_FULL => size.count().min(SLOW_COUNT),
        _ => size.count(),
    };
    let folder = ground.on_disk("database")?;
    let mut database = Database::open(mode, &folder.join("size.db"))?;
    let mut commit_us = Vec::with_capacity(3 * count);
    size.workload(count)
        .run_timed(&mut database, |taken| commit_us.push(taken.as_secs_f64() * 1e6))?;
    let closing = Instant::now();
    database.close()?;
    let close_s = closing.elapsed().as_secs_f64();
    let scale = size.count() as f64 / count as f64;
    let transactions_s = commit_us.iter().sum::<f64>() / 1e6 * scale;
    Ok(Taken { transactions_s, close_s, commit_us: percentiles(commit_us) })
}

pub(super) fn run(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    for size in SIZES {
        // The large ones take long enough to be measured less often.
        let runs = if size.rows > 10_000 { runs.div_ceil(3) } else { runs };
        let modes: Vec<Mode> = THEIRS.into_iter().chain([OURS]).collect();
        let mut taken: Vec<Vec<Taken>> = vec![Vec::new(); modes.len()];
        for round in 0..=runs {
            for turn in 0..modes.len() {
                let index = (round + turn) % modes.len();
                let found = once(ground, modes[index], size)
                    .map_err(|error| Error::other(format!("{}: {error}", modes[index].name)))?;
                if round > 0 {
                    taken[index].push(found);
                }
            }
        }
        add(size, &modes, &taken, outcome);
    }
    beside_reader(ground, runs.div_ceil(3), outcome)?;
    count_calls(ground, runs.div_ceil(5), outcome)
}

fn add(size: Size, modes: &[Mode], taken: &[Vec<Taken>], outcome: &mut Outcome) {
    let series = |index: usize, value: fn(&Taken) -> f64| -> Series {
        taken[index].iter().map(value).collect()
    };
    let all = |taken: &Taken| taken.transactions_s + taken.close_s;
    let ours = modes.len() - 1;
    for (index, mode) in modes.iter().enumerate().filter(|(index, _)| *index != ours) {
        let goal = |goals: &[(Size, f64)]| {
            let found = goals.iter().find(|(of, _)| *mode == Mode::WAL_OFF && *of == size);
            found.map(|(_, bound)| Goal::AtLeast(*bound))
        };
        let with_close = series(index, all).over(&series(ours, all));
        let without = series(index, |taken| taken.transactions_s)
            .over(&series(ours, |taken| taken.transactions_s));
        outcome.add(
            size.key(&format!("vs_{}", mode.name)),
            Some(with_close),
            "x",
            goal(&[(PAPER, 4.3), (LARGE, 2.0), (LARGEST, 1.5)]),
        );
        outcome.add(
            size.key(&format!("without_close_vs_{}", mode.name)),
            Some(without),
            "x",
            goal(&[(LARGEST, 3.0)]),
        );
    }
    let memory = modes.iter().position(|mode| *mode == Mode::MEMORY).unwrap_or(ours);
    let share = series(memory, all).over(&series(ours, all));
    let is_largest = size == LARGEST;
    let (key, goal) = match is_largest {
        true => ("share_of_memory_100k".to_owned(), Some(Goal::AtLeast(0.5))),
        false => (format!("share_of_memory_{}", size.name), None),
    };
    outcome.add(key, Some(share), "x", goal);
    for (index, mode) in modes.iter().enumerate() {
        for (number, (percentile, _)) in PERCENTILES.iter().enumerate() {
            let found: Series = taken[index].iter().map(|taken| taken.commit_us[number]).collect();
            let key = format!("commit_us_{percentile}_{}_{}", size.name, mode.name);
            outcome.add(key, Some(found), "us", None);
        }
        let close = series(index, |taken| taken.close_s * 1e3);
        outcome.add(format!("close_ms_{}_{}", size.name, mode.name), Some(close), "ms", None);
    }
    if is_largest {
        let ratio = |taken: &Taken| taken.commit_us[1] / taken.commit_us[0];
        let goal = Some(Goal::AtMost(20.0));
        outcome.add("commit_p99_vs_p50_100k", Some(series(ours, ratio)), "x", goal);
    }
}

/// A connection that reads rows one by one while another one does the transactions.
fn beside_reader(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    for mode in [OURS, Mode::WAL_OFF] {
        let mut found: [Series; 6] = Default::default();
        for _ in 0..runs {
            let (commits, reads) = beside(ground, mode)?;
            for (series, value) in found.iter_mut().zip(commits.into_iter().chain(reads)) {
                series.push(value);
            }
        }
        let names = ["commit", "read"].into_iter().flat_map(|what| {
            PERCENTILES.map(|(percentile, _)| format!("beside_reader_{what}_us_{percentile}"))
        });
        for (name, series) in names.zip(found) {
            outcome.add(format!("{name}_{}", mode.name), Some(series), "us", None);
        }
    }
    Ok(())
}

/// Percentiles of commits and of reads, in microseconds.
fn beside(ground: &Ground, mode: Mode) -> io::Result<([f64; 3], [f64; 3])> {
    let path = ground.on_disk("database")?.join("size.db");
    let writer = Database::open(mode, &path)?;
    let workload = LARGE.workload(LARGE.count());
    workload.fill(&writer)?;
    let stop = AtomicBool::new(false);
    let (commits, reads) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_on(mode, &path, &stop));
        let mut commits = Vec::new();
        let done = workload.transact_in(&writer, |taken| commits.push(taken.as_secs_f64() * 1e6));
        stop.store(true, Relaxed);
        let reads = reader.join().map_err(|_| Error::other("the reader panicked"))?;
        done.and(reads.map(|reads| (commits, reads)))
    })?;
    writer.close()?;
    Ok((percentiles(commits), percentiles(reads)))
}

fn read_on(mode: Mode, path: &Path, stop: &AtomicBool) -> io::Result<Vec<f64>> {
    let database = Database::open(mode, path)?;
    let mut taken_us = Vec::new();
    {
        let query = "SELECT length(content) FROM paper WHERE number >= ?1 LIMIT 1";
        let mut select = database.0.prepare(query).map_err(Error::other)?;
        let mut key = 0;
        while !stop.load(Relaxed) {
            key = (key + 7919) % LARGE.rows as i64;
            let started = Instant::now();
            select.query_row([key], |_| Ok(())).map_err(Error::other)?;
            taken_us.push(started.elapsed().as_secs_f64() * 1e6);
        }
    }
    database.close()?;
    Ok(taken_us)
}

/// System calls of a transaction and its part of the close, on the largest set.
fn count_calls(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    if !calls::is_there(outcome) {
        return Ok(());
    }
    for (key, mode, goal) in [
        ("syscalls_per_commit_100k", OURS, Some(Goal::AtMost(0.5))),
        ("syscalls_per_commit_100k_wal_off", Mode::WAL_OFF, None),
    ] {
        let count = |transactions: usize| {
            let words = |path: &str| {
                ["transact", mode.name, path, LARGEST.name, &transactions.to_string()]
                    .map(str::to_owned)
                    .to_vec()
            };
            calls::count_side(ground, words)
        };
        let mut series = Series::default();
        for _ in 0..runs {
            let (without, with) = (count(0)?, count(LARGEST.count())?);
            series.push((with - without) / (3 * LARGEST.count()) as f64);
        }
        outcome.add(key, Some(series), "", goal);
    }
    Ok(())
}

/// From within the process whose calls are counted: fills a table and does so many transactions of
/// each kind.
pub(super) fn transact(mode: Mode, path: &Path, size: &str, count: usize) -> io::Result<()> {
    let size = SIZES.into_iter().find(|known| known.name == size);
    let size = size.ok_or_else(|| Error::other("there is no such size"))?;
    let database = Database::open(mode, path)?;
    let workload = size.workload(count);
    workload.fill(&database)?;
    workload.transact_in(&database, |_| ())?;
    database.close()
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
    fn keys_are_those_of_the_goals() {
        assert_eq!(LARGEST.key("vs_wal_off"), "random_1k_100k_vs_wal_off");
        assert_eq!(PAPER.key("vs_wal_off"), "paper_set_vs_wal_off");
    }
}
