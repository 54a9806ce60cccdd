//! Two processes that write to one database.
//!
//! Both insert rows of their own, a transaction each, as fast as they can; the time is that from the start of both to the
//! end of the later one. The same inserts by one process alone are what it is compared with, and the same race in WAL.

use std::io::{self, Error};
use std::path::Path;
use std::time::Instant;

use rusqlite::params;

use crate::heap::Outcome;
use crate::heap::ground::Ground;
use crate::race::{Side, race};

use super::child::{self, Beside};
use super::engine::{Database, Mode};
use super::workload::{CHARACTERS, fill};

/// Inserts of each process.
const INSERTS: usize = 1000;

pub(super) fn run(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let sides = vec![
        Side::new("ours", || together(ground, Mode::OURS)),
        Side::new("one", || alone(ground, Mode::OURS)),
        Side::new("wal_full", || together(ground, Mode::WAL_FULL)),
        Side::new("wal_normal", || together(ground, Mode::WAL_NORMAL)),
        Side::new("wal_off", || together(ground, Mode::WAL_OFF)),
    ];
    let times = race(runs.div_ceil(3), sides)?;
    outcome.add("contention_two_vs_one", times.ratio("one", "ours"), "x", None);
    for theirs in ["wal_full", "wal_normal", "wal_off"] {
        outcome.add(format!("contention_vs_{theirs}"), times.ratio(theirs, "ours"), "x", None);
    }
    let rate = times.of("ours").map(|seconds| seconds.map(|s| (2 * INSERTS) as f64 / s));
    outcome.add("contention_tps", rate, "1/s", None);
    Ok(())
}

/// Seconds for both.
fn together(ground: &Ground, mode: Mode) -> io::Result<f64> {
    let (path, text) = child::database(ground.on_disk("database")?)?;
    let database = Database::open(mode, &path)?;
    fill(&database.0, 0).map_err(Error::other)?;
    let mut others = Vec::new();
    for first in [0, INSERTS] {
        let (first, count) = (first.to_string(), INSERTS.to_string());
        others.push(Beside::start(child::side(&["compete", mode.name, &text, &first, &count])?)?);
    }
    others.iter_mut().try_for_each(Beside::ready)?;
    let started = Instant::now();
    others.iter_mut().for_each(Beside::go);
    others.into_iter().try_for_each(Beside::wait)?;
    let seconds = started.elapsed().as_secs_f64();
    let found: i64 =
        database.0.query_row("SELECT count(*) FROM paper", [], |row| row.get(0)).map_err(Error::other)?;
    if found != 2 * INSERTS as i64 {
        return Err(Error::other(format!("{found} rows of {} are there", 2 * INSERTS)));
    }
    database.close()?;
    Ok(seconds)
}

/// The inserts of both by this process.
fn alone(ground: &Ground, mode: Mode) -> io::Result<f64> {
    let (path, _) = child::database(ground.on_disk("database")?)?;
    insert(mode, &path, 2 * INSERTS)
}

/// Makes the table and inserts; seconds of the inserts.
pub(super) fn insert(mode: Mode, path: &Path, count: usize) -> io::Result<f64> {
    let database = Database::open(mode, path)?;
    fill(&database.0, 0).map_err(Error::other)?;
    let started = Instant::now();
    rows(&database, 0, count)?;
    let seconds = started.elapsed().as_secs_f64();
    database.close()?;
    Ok(seconds)
}

/// From within the other process.
pub(super) fn compete(mode: Mode, path: &Path, first: usize, count: usize) -> io::Result<()> {
    let database = Database::open(mode, path)?;
    // What the first statement of a connection costs is not contention.
    database.0.query_row("SELECT count(*) FROM paper", [], |_| Ok(())).map_err(Error::other)?;
    child::say_ready_and_wait()?;
    rows(&database, first, count)?;
    database.close()
}

pub(super) fn rows(database: &Database, first: usize, count: usize) -> io::Result<()> {
    let mut insert = database.0.prepare("INSERT INTO paper VALUES (?1, ?2)").map_err(Error::other)?;
    let content = "c".repeat(CHARACTERS);
    for key in first..first + count {
        insert.execute(params![key as i64, content]).map_err(Error::other)?;
    }
    Ok(())
}
