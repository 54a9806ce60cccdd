//! A disk that takes 5 MB a second, and a writer that does not pause: rows of 1 KiB at keys by
//! chance, a transaction each, in a pool of 8 MiB. What counts is the time until all of it is on the
//! disk, the longest commit, and how much of the pool is taken.
//!
//! The device is that of the suite `persistency`, slowed down by the kernel, and a write of some MiB
//! shows first that it is. What is on it when the time begins is nothing, for each mode.

use std::fs;
use std::io::{self, Error};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rusqlite::params;

use crate::device::{Device, Rates};
use crate::heap::ground::Ground;
use crate::report::{Goal, Outcome};
use crate::stats::Series;

use super::contest::percentiles;
use super::engine::{Database, Mode};
use super::texts::Texts;

const BYTES_A_SECOND: u64 = 5 << 20;
/// What is written to see whether the device is slow, and what that takes at least: half of what it
/// should, as the kernel lets some pass at once.
const SAMPLE_BYTES: usize = 4 << 20;
const SAMPLE_SECONDS_MIN: f64 = SAMPLE_BYTES as f64 / BYTES_A_SECOND as f64 / 2.0;
const ROWS: usize = 10_000;
const CHARACTERS: usize = 1000;
/// The pool is looked at after so many rows.
const LOOK: usize = 250;
const POOL_MIB: f64 = 8.0;
/// Headers, locks and the table of slots.
const POOL_MIB_BESIDES: f64 = 0.5;
const OURS: Mode = Mode::OURS_8_MIB;
const MODES: [Mode; 3] = [Mode::WAL_FULL, Mode::WAL_NORMAL, OURS];

/// What runs of one mode came to.
#[derive(Debug, Default)]
struct Taken {
    seconds: Series,
    p50_us: Series,
    p99_us: Series,
    longest_ms: Series,
    pool_mib: Series,
}

pub(super) fn run(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let device = match Device::new(&ground.on_disk("device")?)? {
        Ok(device) => device,
        Err(reason) => {
            outcome.missing.push(format!("a slow disk: {reason}"));
            return Ok(());
        }
    };
    let rates = Rates { written_bytes: Some(BYTES_A_SECOND), ..Rates::default() };
    let _limit = match device.slow_down(&rates) {
        Ok(limit) => limit,
        Err(reason) => {
            outcome.missing.push(format!("a slow disk: {reason}"));
            return Ok(());
        }
    };
    let seconds = seconds_of_sample(&device)?;
    if seconds < SAMPLE_SECONDS_MIN {
        let reason =
            format!("the kernel took {SAMPLE_BYTES} bytes in {seconds:.3} s for all its limit");
        outcome.missing.push(format!("a slow disk: {reason}"));
        return Ok(());
    }
    let mut taken: [Taken; MODES.len()] = Default::default();
    for round in 0..runs.div_ceil(5) {
        for turn in 0..MODES.len() {
            let index = (round + turn) % MODES.len();
            once(&device, MODES[index], &mut taken[index])?;
        }
    }
    let [full, normal, ours] = &taken;
    for (theirs, mode) in [(full, Mode::WAL_FULL), (normal, Mode::WAL_NORMAL)] {
        let ratio = theirs.seconds.over(&ours.seconds);
        outcome.add(format!("slow_disk_vs_{}", mode.name), Some(ratio), "x", None);
    }
    for (mode, taken) in MODES.iter().zip(&taken) {
        let mut add = |what: &str, series: &Series, unit| {
            let key = format!("slow_disk_{what}_{}", mode.name);
            outcome.add(key, Some(series.clone()), unit, None);
        };
        add("commit_p50_us", &taken.p50_us, "us");
        add("commit_p99_us", &taken.p99_us, "us");
        add("longest_commit_ms", &taken.longest_ms, "ms");
    }
    let goal = Some(Goal::AtMost(POOL_MIB + POOL_MIB_BESIDES));
    outcome.add("slow_disk_pool_mib", Some(ours.pool_mib.clone()), "MiB", goal);
    Ok(())
}

/// Seconds of a write that waits for the device, which tell whether the limit is in force.
fn seconds_of_sample(device: &Device) -> io::Result<f64> {
    let file = fs::File::create(device.directory("sample")?.join("sample"))?;
    let started = Instant::now();
    file.write_all_at(&vec![1; SAMPLE_BYTES], 0)?;
    file.sync_data()?;
    Ok(started.elapsed().as_secs_f64())
}

fn once(device: &Device, mode: Mode, taken: &mut Taken) -> io::Result<()> {
    let path = device.directory("database")?.join("slow.db");
    let database = Database::open(mode, &path)?;
    let table = "CREATE TABLE rows (number INTEGER PRIMARY KEY, content TEXT)";
    database.0.execute_batch(table).map_err(Error::other)?;
    device.settle()?;
    let (texts, mut random) = (Texts::new("ss", CHARACTERS), SmallRng::seed_from_u64(1));
    let started = Instant::now();
    let mut commit_us = Vec::with_capacity(ROWS);
    let mut pool_bytes = 0;
    {
        let insert = "INSERT OR REPLACE INTO rows VALUES (?1, ?2)";
        let mut insert = database.0.prepare(insert).map_err(Error::other)?;
        for row in 0..ROWS {
            let key = random.random_range(0..1_i64 << 40);
            let began = Instant::now();
            insert.execute(params![key, texts.of(key)]).map_err(Error::other)?;
            commit_us.push(began.elapsed().as_secs_f64() * 1e6);
            if row % LOOK == 0 {
                pool_bytes = pool_bytes.max(in_pool()?);
            }
        }
    }
    database.close()?;
    device.settle()?;
    taken.seconds.push(started.elapsed().as_secs_f64());
    taken.longest_ms.push(commit_us.iter().copied().fold(0.0, f64::max) / 1e3);
    let [p50, p99, _] = percentiles(commit_us);
    taken.p50_us.push(p50);
    taken.p99_us.push(p99);
    taken.pool_mib.push(pool_bytes as f64 / f64::from(1 << 20));
    verify(&path)
}

/// What the files of this run's pool take of the memory.
fn in_pool() -> io::Result<u64> {
    let pool = std::env::var_os("HOLDFAST_POOL").map(PathBuf::from);
    let pool = pool.ok_or_else(|| Error::other("HOLDFAST_POOL is not set"))?;
    allocated(&pool)
}

fn allocated(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let found = entry.metadata()?;
        bytes += match found.is_dir() {
            true => allocated(&entry.path())?,
            false => found.blocks() * 512,
        };
    }
    Ok(bytes)
}

fn verify(path: &Path) -> io::Result<()> {
    let database = rusqlite::Connection::open(path).map_err(Error::other)?;
    let count = "SELECT count(*) FROM rows WHERE content LIKE 'ss%'";
    let found: i64 = database.query_row(count, [], |row| row.get(0)).map_err(Error::other)?;
    match found == ROWS as i64 {
        true => Ok(()),
        false => Err(Error::other(format!("{found} rows of {ROWS} are there"))),
    }
}
