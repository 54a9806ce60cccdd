//! A writer with a reader beside it, another process that reads rows at keys by chance as fast as
//! it can: what a commit takes, and how much both get done. In WAL readers and writers do not wait
//! for one another; here, as in SQLite's mode DELETE, a commit waits for readers.

use std::io::{self, Error};
use std::path::Path;
use std::time::Instant;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rusqlite::params;

use crate::heap::ground::Ground;
use crate::report::Outcome;
use crate::stats::Series;

use super::child::{self, SideProcess};
use super::contest::{PERCENTILES, percentiles};
use super::engine::{Database, Mode};
use super::texts::Texts;
use super::workload::fill_with;

const ROWS: usize = 20_000;
const CHARACTERS: usize = 1000;
/// A reader looks so often whether the writer is done.
const READS_AT_ONCE: usize = 64;
/// What the reader does, and how many updates the writer makes beside it, a transaction each.
const KINDS: [(&str, usize); 2] = [("", 20_000), (SCANS, 1000)];
/// It reads all of the table in each transaction, instead of a row.
const SCANS: &str = "scans_";
const MODES: [Mode; 3] = [Mode::WAL_NORMAL, Mode::WAL_OFF, Mode::OURS_AS_IT_COMES];

#[derive(Debug, Default)]
struct Taken {
    seconds: Series,
    reads_a_second: Series,
    /// By [`PERCENTILES`].
    commit_us: [Series; 3],
}

pub(super) fn run(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    KINDS.iter().try_for_each(|kind| beside(kind, ground, runs, outcome))
}

fn beside(
    (kind, updates): &(&str, usize),
    ground: &Ground,
    runs: usize,
    outcome: &mut Outcome,
) -> io::Result<()> {
    let mut taken: [Taken; MODES.len()] = Default::default();
    for round in 0..runs.div_ceil(3) {
        for turn in 0..MODES.len() {
            let index = (round + turn) % MODES.len();
            let found = &mut taken[index];
            once(ground, MODES[index], (*kind, *updates), found)?;
        }
    }
    let [normal, off, ours] = &taken;
    for (theirs, mode) in [(normal, Mode::WAL_NORMAL), (off, Mode::WAL_OFF)] {
        let commits = theirs.seconds.over(&ours.seconds);
        outcome.add(format!("readers_{kind}commits_vs_{}", mode.name), Some(commits), "x", None);
        let reads = ours.reads_a_second.over(&theirs.reads_a_second);
        outcome.add(format!("readers_{kind}reads_vs_{}", mode.name), Some(reads), "x", None);
    }
    for (mode, taken) in MODES.iter().zip(&taken) {
        for ((percentile, _), series) in PERCENTILES.iter().zip(&taken.commit_us) {
            let key = format!("readers_{kind}commit_{percentile}_us_{}", mode.name);
            outcome.add(key, Some(series.clone()), "us", None);
        }
        let key = format!("readers_{kind}reads_per_s_{}", mode.name);
        outcome.add(key, Some(taken.reads_a_second.clone()), "1/s", None);
    }
    Ok(())
}

fn once(
    ground: &Ground,
    mode: Mode,
    (kind, updates): (&str, usize),
    taken: &mut Taken,
) -> io::Result<()> {
    let (path, text) = child::database(ground.on_disk("database")?)?;
    let database = Database::open(mode, &path)?;
    fill_with(&database.0, ROWS, CHARACTERS).map_err(Error::other)?;
    let mut reader = SideProcess::start(child::side(&["read", mode.name, &text, kind])?)?;
    reader.ready()?;
    reader.go();
    let (texts, mut random) = (Texts::new("uu", CHARACTERS), SmallRng::seed_from_u64(1));
    let mut commit_us = Vec::with_capacity(updates);
    {
        let update = "UPDATE paper SET content = ?2 WHERE number = ?1";
        let mut update = database.0.prepare(update).map_err(Error::other)?;
        for _ in 0..updates {
            let key = random.random_range(0..ROWS as i64);
            let began = Instant::now();
            let changed = update.execute(params![key, texts.of(key)]).map_err(Error::other)?;
            commit_us.push(began.elapsed().as_secs_f64() * 1e6);
            if changed != 1 {
                return Err(Error::other(format!("an update changed {changed} rows")));
            }
        }
    }
    std::fs::write(path.with_extension("stop"), "")?;
    reader.wait()?;
    let told = std::fs::read_to_string(path.with_extension("rate"))?;
    database.close()?;
    taken.seconds.push(commit_us.iter().sum::<f64>() / 1e6);
    taken.reads_a_second.push(told.parse().map_err(Error::other)?);
    for (series, found) in taken.commit_us.iter_mut().zip(percentiles(commit_us)) {
        series.push(found);
    }
    Ok(())
}

/// From within the other process: reads until the writer is done, and leaves in a file how many
/// rows, or tables, a second.
pub(super) fn read(mode: Mode, path: &Path, kind: &str) -> io::Result<()> {
    let database = Database::open(mode, path)?;
    let (stop, mut random) = (path.with_extension("stop"), SmallRng::seed_from_u64(2));
    let (mut reads, mut started) = (0, None);
    {
        let row = "SELECT length(content) FROM paper WHERE number = ?1";
        let table = "SELECT min(length(content)) FROM paper WHERE number >= ?1";
        let (select, at_once) = if kind == SCANS { (table, 1) } else { (row, READS_AT_ONCE) };
        let mut select = database.0.prepare(select).map_err(Error::other)?;
        while !stop.exists() {
            for _ in 0..at_once {
                let key = if kind == SCANS { 0 } else { random.random_range(0..ROWS as i64) };
                let length: u32 =
                    select.query_row([key], |row| row.get(0)).map_err(Error::other)?;
                if length as usize != CHARACTERS {
                    return Err(Error::other(format!("row {key} has {length} characters")));
                }
            }
            // What the first statements of a connection cost does not count.
            match started {
                None => {
                    child::say_ready_and_wait()?;
                    started = Some(Instant::now());
                }
                Some(_) => reads += at_once,
            }
        }
    }
    let seconds = started.map_or(f64::NAN, |started: Instant| started.elapsed().as_secs_f64());
    std::fs::write(path.with_extension("rate"), format!("{}", reads as f64 / seconds))?;
    database.close()
}
