//! The table by size of the data: the paper's workload in random order on larger and larger tables,
//! at default settings, with the close and without it, in each mode of committing.
//!
//! Invariant: half as many transactions of each kind as there are rows, as in the paper; but fewer
//! in a mode that waits for the disk.

use std::io::{self, Error};
use std::path::Path;

use crate::device::Device;
use crate::heap::ground::Ground;
use crate::report::{Goal, Outcome};
use crate::stats::Series;

use super::calls;
use super::contest::{Contest, OURS};
use super::engine::{Database, Mode};
use super::workload::Workload;

/// A set of data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Size {
    /// As keys name it.
    pub(super) name: &'static str,
    rows: usize,
    characters: usize,
}

const LARGEST: Size = Size { name: "1k_100k", rows: 100_000, characters: 1024 };
const LARGE: Size = Size { name: "1k_20k", rows: 20_000, characters: 1024 };
const PAPER: Size = Size { name: "paper_set", rows: 2000, characters: 100 };
pub(super) const SIZES: [Size; 6] = [
    PAPER,
    Size { name: "1k_500", rows: 500, characters: 1024 },
    Size { name: "1k_2k", rows: 2000, characters: 1024 },
    Size { name: "1k_4k", rows: 4000, characters: 1024 },
    LARGE,
    LARGEST,
];

/// Transactions of each kind in a mode in which each waits for the disk.
pub(super) const SLOW_COUNT: usize = 250;

impl Size {
    pub(super) fn count(self) -> usize {
        self.rows / 2
    }

    pub(super) fn workload(self, count: usize) -> Workload {
        Workload::of_size(self.rows, self.characters, count)
    }

    /// The large ones take long enough to be measured less often.
    pub(super) fn runs(self, runs: usize) -> usize {
        if self.rows > 10_000 { runs.div_ceil(3) } else { runs }
    }

    /// What keys of ratios begin with; the name of the paper's set is that of its key.
    fn key(self) -> String {
        match self == PAPER {
            true => self.name.to_owned(),
            false => format!("random_{}", self.name),
        }
    }
}

pub(super) fn run(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    for size in SIZES {
        let runs = size.runs(runs);
        let goals = match size {
            PAPER => [Some(4.3), None],
            LARGE => [Some(2.0), None],
            LARGEST => [Some(1.5), Some(3.0)],
            _ => [None, None],
        };
        let contest = Contest {
            key: &size.key(),
            name: size.name,
            steps: [size.count(), SLOW_COUNT],
            goals,
            run: &|database, count, each| size.workload(count).run_timed(database, each),
        };
        let results = contest.run(ground, runs, outcome)?;
        let is_largest = size == LARGEST;
        let (key, goal) = match is_largest {
            true => ("share_of_memory_100k".to_owned(), Some(Goal::AtLeast(0.5))),
            false => (format!("share_of_memory_{}", size.name), None),
        };
        outcome.add(key, Some(results.ratio(Mode::MEMORY, true)), "x", goal);
        if is_largest {
            let goal = Some(Goal::AtMost(20.0));
            outcome.add("commit_p99_vs_p50_100k", Some(results.p99_vs_p50()), "x", goal);
        }
    }
    count_calls(ground, runs.div_ceil(5), outcome)?;
    count_bytes(ground, runs.div_ceil(5), outcome)
}

/// System calls of a transaction and its part of the close.
fn count_calls(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    if !calls::is_there(outcome) {
        return Ok(());
    }
    for size in SIZES {
        for mode in [OURS, Mode::WAL_OFF] {
            let count = |transactions: usize| {
                let words = |path: &str| {
                    ["transact", mode.name, path, size.name, &transactions.to_string()]
                        .map(str::to_owned)
                        .to_vec()
                };
                calls::count_side(ground, words)
            };
            let mut series = Series::default();
            for _ in 0..runs {
                let (without, with) = (count(0)?, count(size.count())?);
                series.push((with - without) / (3 * size.count()) as f64);
            }
            let (key, goal) = match (size == LARGEST, mode == OURS) {
                (true, true) => ("syscalls_per_commit_100k".to_owned(), Some(Goal::AtMost(0.5))),
                (true, false) => ("syscalls_per_commit_100k_wal_off".to_owned(), None),
                (false, true) => (format!("syscalls_per_commit_{}", size.name), None),
                (false, false) => (format!("syscalls_per_commit_{}_wal_off", size.name), None),
            };
            outcome.add(key, Some(series), "", goal);
        }
    }
    Ok(())
}

/// Bytes that a device with a journalled ext4 is asked to write for a transaction and its part of
/// the close, until nothing is left to write; what filled the table is on the device before.
fn count_bytes(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let device = match Device::new(&ground.on_disk("device")?)? {
        Ok(device) => device,
        Err(reason) => {
            outcome.missing.push(format!("bytes to a block device by size: {reason}"));
            return Ok(());
        }
    };
    for size in SIZES {
        for mode in [OURS, Mode::WAL_OFF, Mode::WAL_NORMAL, Mode::WAL_FULL, Mode::DELETE_FULL] {
            let count = match mode.waits_for_the_disk() {
                true => size.count().min(SLOW_COUNT),
                false => size.count(),
            };
            let mut series = Series::default();
            for _ in 0..runs {
                let folder = device.directory("database")?;
                let database = Database::open(mode, &folder.join("sizes.db"))?;
                let workload = size.workload(count);
                workload.fill(&database)?;
                database.write_back()?;
                device.settle()?;
                let before = device.written_bytes()?;
                workload.transact_in(&database, |_| ())?;
                database.close()?;
                device.settle()?;
                let written = (device.written_bytes()? - before) as f64;
                series.push(written / workload.transactions());
            }
            let key = format!("bytes_per_commit_{}_{}", size.name, mode.name);
            outcome.add(key, Some(series), "B", None);
        }
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
    fn keys_are_those_of_the_goals() {
        assert_eq!(LARGEST.key(), "random_1k_100k");
        assert_eq!(PAPER.key(), "paper_set");
    }
}
