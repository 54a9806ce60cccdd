//! The suite `persistency`: how many bytes each way to keep a set of records writes to the block
//! device for the same updates, which is what the qNVRAM paper measures in its figure 1.
//! `bench/README.md` says what each key means.
//!
//! Invariants:
//! - One side works at a time, in a fresh directory of a device that no other process writes to
//!   ([`crate::device`]); what counts is everything that the device was asked to write from the first
//!   commit until nothing is left to write, the side's end included.
//! - All sides make the same commits, and are compared with what should have come of them.
//!
//! What it must not do: count what filling the records wrote.

mod files;
mod heaps;
mod records;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use holdfast_region::Durability;

use crate::device::Device;
use crate::heap::ground::{Ground, Home};
use crate::report::Outcome;
use crate::stats::Series;

use files::{DoubleWrite, InPlace};
use heaps::{End, Entries, Fixed};
use records::{Change, RECORD_BYTES, RecordSet, commits, compare};

/// Commits that are counted together, so that what is put off has its share in them.
const COMMITS: usize = 200;
/// Changed records in a commit.
const CHANGES: [usize; 2] = [1, 10];
/// What an update costs that need not be atomic.
const IN_PLACE: &str = "in_place";
/// Those that do not write each commit to the device: commits that overwrite one another save more
/// than atomicity costs.
const GATHERING: &str = "heap_process";
/// What the others are compared with.
const WAL: &str = "sqlite_wal";

/// How a side is made: in this directory on the device.
type Make<'a> = Box<dyn Fn(PathBuf) -> io::Result<Box<dyn RecordSet>> + 'a>;

/// A side and what it took.
struct Side<'a> {
    name: &'static str,
    make: Make<'a>,
    /// Written bytes for a commit.
    bytes: Series,
    /// Microseconds for a commit.
    us: Series,
}

/// Runs the suite; `progress` gets the name of each step.
///
/// # Errors
/// When a side fails, or does not hold what was committed. A machine that allows no device of our
/// own is none: the outcome says so.
pub fn run(runs: usize, progress: &mut dyn FnMut(&str)) -> io::Result<Outcome> {
    let ground = Ground::new()?;
    let mut outcome = Outcome::default();
    #[cfg(not(feature = "sqlite"))]
    outcome.missing.push(
        "SQLite: this program was built without it; run `cargo xtask bench persistency`".into(),
    );
    let device = match Device::new(&ground.on_disk("device")?)? {
        Ok(device) => device,
        Err(reason) => {
            outcome.missing.push(format!("the suite persistency was not run: {reason}"));
            return Ok(outcome);
        }
    };
    for changes in CHANGES {
        progress(&format!("{changes} of a commit"));
        let sides = measure(&device, sides(&ground), runs.div_ceil(3), changes)?;
        report(&sides, changes, &mut outcome);
    }
    Ok(outcome)
}

fn sides(ground: &Ground) -> Vec<Side<'_>> {
    let side = |name, make| Side { name, make, bytes: Series::default(), us: Series::default() };
    let map = |level, end| -> Make<'_> {
        Box::new(move |directory| Ok(Box::new(Entries::new(home(ground, directory)?, level, end)?)))
    };
    let mut sides = vec![
        side(IN_PLACE, Box::new(|directory| Ok(Box::new(InPlace::new(directory)?)))),
        side("double_write", Box::new(|directory| Ok(Box::new(DoubleWrite::new(directory)?)))),
    ];
    sides.extend(databases().into_iter().map(|(name, make)| side(name, make)));
    sides.extend([
        side("heap_power", map(Durability::Power, End::Closes)),
        side(
            "heap_power_fixed",
            Box::new(|directory| {
                Ok(Box::new(Fixed::new(home(ground, directory)?, Durability::Power, End::Closes)?))
            }),
        ),
        side("heap_process", map(Durability::Process, End::StaysOpen)),
        side("heap_process_and_close", map(Durability::Process, End::Closes)),
    ]);
    sides
}

#[cfg(feature = "sqlite")]
fn databases() -> Vec<(&'static str, Make<'static>)> {
    use sqlite::{Journal, Sqlite, Synchronous};
    let database = |journal, synchronous| -> Make<'static> {
        Box::new(move |directory| Ok(Box::new(Sqlite::new(directory, journal, synchronous)?)))
    };
    vec![
        ("sqlite_delete", database(Journal::Delete, Synchronous::Full)),
        ("sqlite_delete_normal", database(Journal::Delete, Synchronous::Normal)),
        (WAL, database(Journal::Wal, Synchronous::Full)),
        ("sqlite_wal_normal", database(Journal::Wal, Synchronous::Normal)),
    ]
}

#[cfg(not(feature = "sqlite"))]
fn databases() -> Vec<(&'static str, Make<'static>)> {
    Vec::new()
}

/// A home on the device, with its pool in memory.
fn home(ground: &Ground, directory: PathBuf) -> io::Result<Home> {
    Home::at(directory, ground.in_memory("pool")?)
}

/// All sides in turns, each first every other time; a round before the first is not counted.
fn measure<'a>(
    device: &Device,
    mut sides: Vec<Side<'a>>,
    rounds: usize,
    changes: usize,
) -> io::Result<Vec<Side<'a>>> {
    let commits = commits(COMMITS, changes);
    for round in 0..=rounds {
        for turn in 0..sides.len() {
            let index = (round + turn) % sides.len();
            let side = &mut sides[index];
            let (bytes, us) = once(device, side, &commits)
                .map_err(|error| io::Error::other(format!("{}: {error}", side.name)))?;
            if round > 0 {
                side.bytes.push(bytes);
                side.us.push(us);
            }
        }
    }
    Ok(sides)
}

/// Written bytes and microseconds for a commit.
fn once(device: &Device, side: &Side<'_>, commits: &[Vec<Change>]) -> io::Result<(f64, f64)> {
    let mut records = (side.make)(device.directory("side")?)?;
    device.settle()?;
    let before = device.written_bytes()?;
    let started = Instant::now();
    for changes in commits {
        records.commit(changes)?;
    }
    let taken_us = started.elapsed().as_secs_f64() * 1e6;
    compare(&mut *records, commits)?;
    records.finish()?;
    device.settle()?;
    let written = device.written_bytes()? - before;
    Ok((written as f64 / commits.len() as f64, taken_us / commits.len() as f64))
}

fn report(sides: &[Side<'_>], changes: usize, outcome: &mut Outcome) {
    let bytes_of = |name: &str| sides.iter().find(|side| side.name == name).map(|side| &side.bytes);
    let updated_bytes = (changes * RECORD_BYTES) as f64;
    for Side { name, bytes, us, .. } in sides {
        let update: Series = std::iter::repeat_n(updated_bytes, bytes.count()).collect();
        outcome.add(format!("{name}_bytes_{changes}"), Some(bytes.clone()), "B", None);
        outcome.add(format!("{name}_vs_update_{changes}"), Some(bytes.over(&update)), "x", None);
        if let Some(wal) = bytes_of(WAL).filter(|_| *name != WAL) {
            outcome.add(format!("{name}_vs_wal_{changes}"), Some(bytes.over(wal)), "x", None);
        }
        let writes_each = *name != IN_PLACE && !name.starts_with(GATHERING);
        if let Some(in_place) = bytes_of(IN_PLACE).filter(|_| writes_each) {
            outcome.add(
                format!("{name}_atomicity_pct_{changes}"),
                Some(share(in_place, bytes)),
                "%",
                None,
            );
        }
        outcome.add(format!("{name}_us_{changes}"), Some(us.clone()), "us", None);
    }
}

/// Percent of the written bytes that an update in place does without.
fn share(in_place: &Series, bytes: &Series) -> Series {
    in_place.over(bytes).map(|kept| (1.0 - kept) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of atomicity is the part of the cost that an update in place does not have.
    #[test]
    fn atomicity_share_is_the_cost_over_in_place_update() {
        let series = share(&Series::from_iter([25.0, 10.0]), &Series::from_iter([100.0, 10.0]));
        assert_eq!(series, Series::from_iter([75.0, 0.0]));
    }

    /// Every side keeps what was committed, and only a commit to the store writes to the device.
    #[test]
    fn only_store_commits_write_to_the_device() {
        let Ok(ground) = Ground::new() else { return println!("not run: no tmpfs") };
        let device = match Device::new(&ground.on_disk("device").unwrap()).unwrap() {
            Ok(device) => device,
            Err(reason) => return println!("not run: {reason}"),
        };
        let commits = commits(5, 3);
        for side in sides(&ground) {
            let (bytes, _) = once(&device, &side, &commits).unwrap();
            assert_eq!(bytes == 0.0, side.name == "heap_process", "{}: {bytes}", side.name);
            let mut records = (side.make)(device.directory("side").unwrap()).unwrap();
            records.commit(&commits[0]).unwrap();
            assert!(compare(&mut *records, &commits).is_err(), "{}", side.name);
        }
    }
}
