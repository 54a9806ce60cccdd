//! Two processes that write to one database.
//!
//! Both insert rows of their own, a transaction each: as fast as they can, or with a pause for work
//! of their own. The time is that from the start of both to the last insert of the later one. The
//! same inserts by one process alone, by turns to where either of both would insert, are what it is
//! compared with, and the same race in WAL.

use std::io::{self, Error};
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rusqlite::params;

use crate::heap::ground::Ground;
use crate::race::{Side, race};
use crate::report::Outcome;

use super::child::{self, SideProcess};
use super::engine::{Database, Mode};
use super::texts::Texts;
use super::workload::{CHARACTERS, fill};

/// Inserts of each process: so many that its start and end do not count.
const INSERTS: usize = 10_000;
/// One process alone goes on at the other place after so many, as two do that take turns.
const TURN: usize = 500;
/// A workload that waits for the disk does fewer rounds, and is scaled up.
const SLOWER: usize = 10;
/// With a pause: of each process.
const SPACED_INSERTS: usize = 2000;
const PAUSE_US: usize = 20;
/// Made once: one side inserts in many goes.
static CONTENTS: LazyLock<Texts> = LazyLock::new(|| Texts::new("cc", CHARACTERS));

pub(super) fn run(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let spaced = |mode| move || together(ground, mode, SPACED_INSERTS, PAUSE_US);
    let sides = vec![
        Side::new("ours", || together(ground, Mode::OURS, INSERTS, 0)),
        Side::new("one", || alone(ground, Mode::OURS, INSERTS, 0)),
        Side::new("wal_full", || {
            let seconds = together(ground, Mode::WAL_FULL, INSERTS / SLOWER, 0)?;
            Ok(seconds * SLOWER as f64)
        }),
        Side::new("wal_normal", || together(ground, Mode::WAL_NORMAL, INSERTS, 0)),
        Side::new("wal_off", || together(ground, Mode::WAL_OFF, INSERTS, 0)),
        Side::new("spaced_ours", spaced(Mode::OURS)),
        Side::new("spaced_one", || alone(ground, Mode::OURS, SPACED_INSERTS, PAUSE_US)),
        Side::new("spaced_wal_off", spaced(Mode::WAL_OFF)),
    ];
    let times = race(runs.div_ceil(3), sides)?;
    outcome.add("contention_two_vs_one", times.ratio("one", "ours"), "x", None);
    for theirs in ["wal_full", "wal_normal", "wal_off"] {
        outcome.add(format!("contention_vs_{theirs}"), times.ratio(theirs, "ours"), "x", None);
    }
    let rate = times.of("ours").map(|seconds| seconds.map(|s| (2 * INSERTS) as f64 / s));
    outcome.add("contention_tps", rate, "1/s", None);
    outcome.add(
        "contention_spaced_two_vs_one",
        times.ratio("spaced_one", "spaced_ours"),
        "x",
        None,
    );
    outcome.add(
        "contention_spaced_vs_wal_off",
        times.ratio("spaced_wal_off", "spaced_ours"),
        "x",
        None,
    );
    Ok(())
}

/// Seconds for both, of so many inserts each.
fn together(ground: &Ground, mode: Mode, count: usize, pause_us: usize) -> io::Result<f64> {
    let (path, text) = child::database(ground.on_disk("database")?)?;
    let database = Database::open(mode, &path)?;
    fill(&database.0, 0).map_err(Error::other)?;
    let mut others = Vec::new();
    for first in [0, count] {
        let numbers = [first, count, pause_us].map(|number| number.to_string());
        let [first, count, pause_us] = numbers.each_ref().map(String::as_str);
        let side = child::side(&["compete", mode.name, &text, first, count, pause_us])?;
        others.push(SideProcess::start(side)?);
    }
    others.iter_mut().try_for_each(SideProcess::ready)?;
    let started = Instant::now();
    others.iter_mut().for_each(SideProcess::go);
    others.iter_mut().try_for_each(SideProcess::ready)?;
    let seconds = started.elapsed().as_secs_f64();
    others.into_iter().try_for_each(SideProcess::wait)?;
    expect(&database, 2 * count)?;
    database.close()?;
    Ok(seconds)
}

/// The inserts of both by this process.
fn alone(ground: &Ground, mode: Mode, count: usize, pause_us: usize) -> io::Result<f64> {
    let (path, _) = child::database(ground.on_disk("database")?)?;
    let database = Database::open(mode, &path)?;
    fill(&database.0, 0).map_err(Error::other)?;
    let started = Instant::now();
    for turn in (0..count).step_by(TURN) {
        for first in [0, count] {
            spaced_rows(&database, first + turn, TURN.min(count - turn), pause_us)?;
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    expect(&database, 2 * count)?;
    database.close()?;
    Ok(seconds)
}

fn expect(database: &Database, count: usize) -> io::Result<()> {
    let found: i64 = database
        .0
        .query_row("SELECT count(*) FROM paper", [], |row| row.get(0))
        .map_err(Error::other)?;
    match found == count as i64 {
        true => Ok(()),
        false => Err(Error::other(format!("{found} rows of {count} are there"))),
    }
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
pub(super) fn compete(
    mode: Mode,
    path: &Path,
    [first, count, pause_us]: [usize; 3],
) -> io::Result<()> {
    let database = Database::open(mode, path)?;
    // What the first statement of a connection costs is not contention.
    database.0.query_row("SELECT count(*) FROM paper", [], |_| Ok(())).map_err(Error::other)?;
    child::say_ready_and_wait()?;
    spaced_rows(&database, first, count, pause_us)?;
    child::say_ready_and_wait()?;
    database.close()
}

pub(super) fn rows(database: &Database, first: usize, count: usize) -> io::Result<()> {
    spaced_rows(database, first, count, 0)
}

/// Inserts with so much of other work behind each.
fn spaced_rows(database: &Database, first: usize, count: usize, pause_us: usize) -> io::Result<()> {
    let mut insert =
        database.0.prepare_cached("INSERT INTO paper VALUES (?1, ?2)").map_err(Error::other)?;
    let pause = Duration::from_micros(pause_us as u64);
    for key in first..first + count {
        insert.execute(params![key as i64, CONTENTS.of(key as i64)]).map_err(Error::other)?;
        let paused = Instant::now();
        while pause_us > 0 && paused.elapsed() < pause {
            std::hint::spin_loop();
        }
    }
    Ok(())
}
