//! Bytes that the block device is asked to write for 100 inserts, a transaction each, which the
//! paper's figure 4 shows.
//!
//! The device is that of the suite `persistency`: a loop device of our own. What filling the table
//! wrote is not counted, and is in the file by then; what the close of the database writes is a
//! number of its own.

use std::io::{self, Error};
use std::time::Instant;

use holdfast_command::output::aligned;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rusqlite::params;

use crate::device::Device;
use crate::heap::ground::Ground;
use crate::report::{Goal, Outcome};
use crate::stats::Series;

use super::contention::rows;
use super::engine::{Database, Mode};
use super::texts::Texts;
use super::workload::{CHARACTERS, fill};

const INSERTS: usize = 100;
const ROWS: usize = 2000;
const SESSIONS: usize = 50;

pub(super) fn run(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let device = match Device::new(&ground.on_disk("device")?)? {
        Ok(device) => device,
        Err(reason) => {
            outcome.missing.push(format!("bytes to a block device: {reason}"));
            return Ok(());
        }
    };
    let (mut theirs, mut k0, mut k5) = (Sums::default(), Sums::default(), Sums::default());
    for (key, mode) in [
        ("wal", Mode::WAL_FULL),
        ("k0", Mode::OURS_K0),
        ("k5", Mode::OURS_K5),
        ("infinity", Mode::OURS),
        ("power", Mode::OURS_POWER),
        ("delete", Mode::DELETE_FULL),
    ] {
        let mut sums = Sums::default();
        for _ in 0..runs.div_ceil(5) {
            let (until_last_insert, until_closed) = once(&device, mode)?;
            sums.open.push(until_last_insert);
            sums.closed.push(until_closed);
        }
        let Sums { open, closed } = sums.clone();
        outcome.add(format!("bytes_per_100_inserts_{key}"), Some(open), "B", None);
        outcome.add(format!("bytes_per_100_inserts_{key}_and_close"), Some(closed), "B", None);
        match key {
            "wal" => theirs = sums,
            "k0" => k0 = sums,
            "k5" => {
                let megabytes = sums.closed.map(|bytes| bytes / 1e6);
                let goal = Some(Goal::AtMost(0.07));
                outcome.add("k5_sequential_mb", Some(megabytes), "MB", goal);
                k5 = sums;
            }
            _ => {}
        }
    }
    let figure = |name: &str, sums: &Sums, published: f64| {
        let megabytes = [sums.open.median() / 1e6, sums.closed.median() / 1e6];
        let numbers = megabytes.into_iter().chain([published]).map(|value| format!("{value:.2}"));
        [name.to_owned()].into_iter().chain(numbers).collect()
    };
    let rows = [
        figure("WAL", &theirs, 1.72),
        figure("pPCache: K = 0", &k0, 1.16),
        figure("LazyFlush: K = 5", &k5, 0.07),
    ];
    let figure = aligned(&["", "MB", "with the close", "the paper"], &[1, 2, 3], &rows);
    outcome.note(format!("Figure 4: bytes to the device for 100 inserts\n{figure}"));
    let mut random: [Series; 2] = Default::default();
    let mut seconds: [Series; 2] = Default::default();
    for _ in 0..runs.div_ceil(5) {
        for (series, mode) in random.iter_mut().zip([Mode::WAL_FULL, Mode::OURS_K5]) {
            series.push(updated(&device, mode)?);
        }
        for (series, mode) in seconds.iter_mut().zip([Mode::WAL_FULL, Mode::OURS_K0]) {
            series.push(timed(&device, mode)?);
        }
    }
    let [wal, ours] = random;
    let goal = Some(Goal::AtMost(0.5));
    outcome.add("k5_random_bytes_vs_wal", Some(ours.over(&wal)), "x", goal);
    let [wal, ours] = seconds;
    let goal = Some(Goal::AtLeast(1.8));
    outcome.add("k0_on_ext4_vs_wal_full", Some(wal.over(&ours)), "x", goal);
    sessions(&device, runs.div_ceil(5), outcome)?;
    let ratio = k0.closed.over(&theirs.closed);
    outcome.add("k0_bytes_vs_wal", Some(ratio), "x", Some(Goal::AtMost(0.67)));
    outcome.add("k0_bytes_without_close_vs_wal", Some(k0.open.over(&theirs.open)), "x", None);
    Ok(())
}

/// Bytes until the last insert, and until the close, of several runs.
#[derive(Debug, Clone, Default)]
struct Sums {
    open: Series,
    closed: Series,
}

/// A filled database on the device, of which nothing is left to write.
fn filled(device: &Device, mode: Mode) -> io::Result<Database> {
    let database = Database::open(mode, &device.directory("database")?.join("bytes.db"))?;
    fill(&database.0, ROWS).map_err(Error::other)?;
    // What a mode keeps back of it would be counted with the inserts.
    database.write_back()?;
    device.settle()?;
    Ok(database)
}

/// Written bytes until nothing is left to write behind the last insert, and behind the close.
fn once(device: &Device, mode: Mode) -> io::Result<(f64, f64)> {
    let database = filled(device, mode)?;
    let before = device.written_bytes()?;
    rows(&database, ROWS, INSERTS)?;
    device.settle()?;
    let inserted = device.written_bytes()? - before;
    database.close()?;
    device.settle()?;
    Ok((inserted as f64, (device.written_bytes()? - before) as f64))
}

/// Written bytes for 100 updates of rows by chance, with the close.
fn updated(device: &Device, mode: Mode) -> io::Result<f64> {
    let database = filled(device, mode)?;
    let before = device.written_bytes()?;
    let (texts, mut random) = (Texts::new("uu", CHARACTERS), SmallRng::seed_from_u64(1));
    {
        let update = "UPDATE paper SET content = ?2 WHERE number = ?1";
        let mut update = database.0.prepare(update).map_err(Error::other)?;
        for _ in 0..INSERTS {
            let key = random.random_range(0..ROWS as i64);
            update.execute(params![key, texts.of(key)]).map_err(Error::other)?;
        }
    }
    database.close()?;
    device.settle()?;
    Ok((device.written_bytes()? - before) as f64)
}

/// Sessions that open the database, insert a row and close it, as of programs that keep nothing open:
/// time and bytes, against WAL with `synchronous=FULL` and the mode DELETE.
fn sessions(device: &Device, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let modes = [Mode::OURS_AS_IT_COMES, Mode::WAL_FULL, Mode::DELETE_FULL];
    let mut seconds: [Series; 3] = Default::default();
    let mut bytes: [Series; 3] = Default::default();
    for _ in 0..runs {
        for (number, mode) in modes.into_iter().enumerate() {
            let (session_seconds, session_bytes) = session(device, mode)?;
            seconds[number].push(session_seconds);
            bytes[number].push(session_bytes);
        }
    }
    let [ours, wal, delete] = seconds;
    outcome.add("session_vs_wal_full", Some(wal.over(&ours)), "x", None);
    outcome.add("session_vs_delete", Some(delete.over(&ours)), "x", None);
    outcome.add("session_ms", Some(ours.map(|seconds| seconds * 1e3)), "ms", None);
    let [ours, wal, delete] = bytes;
    outcome.add("session_bytes_vs_wal", Some(ours.over(&wal)), "x", None);
    outcome.add("session_bytes_vs_delete", Some(ours.over(&delete)), "x", None);
    outcome.add("session_bytes", Some(ours), "B", None);
    Ok(())
}

/// Seconds and written bytes of a session, each of several.
fn session(device: &Device, mode: Mode) -> io::Result<(f64, f64)> {
    let path = device.directory("database")?.join("bytes.db");
    let database = Database::open(mode, &path)?;
    fill(&database.0, ROWS).map_err(Error::other)?;
    database.close()?;
    device.settle()?;
    let before = device.written_bytes()?;
    let started = Instant::now();
    for number in 0..SESSIONS {
        let database = Database::open(mode, &path)?;
        rows(&database, ROWS + number, 1)?;
        database.close()?;
    }
    let seconds = started.elapsed().as_secs_f64() / SESSIONS as f64;
    device.settle()?;
    Ok((seconds, (device.written_bytes()? - before) as f64 / SESSIONS as f64))
}

/// Seconds of the inserts and the close.
fn timed(device: &Device, mode: Mode) -> io::Result<f64> {
    let database = filled(device, mode)?;
    let started = Instant::now();
    rows(&database, ROWS, INSERTS)?;
    database.close()?;
    Ok(started.elapsed().as_secs_f64())
}
