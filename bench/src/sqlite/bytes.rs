//! Bytes that the block device is asked to write for 100 inserts, a transaction each, which the
//! paper's figure 4 shows.
//!
//! The device is that of the suite `persistency`: a loop device of our own. What filling the table
//! wrote is not counted, and is in the file by then; what the close of the database writes is a
//! number of its own.

use std::io::{self, Error};

use crate::heap::ground::Ground;
use crate::persistency::device::Device;
use crate::report::{Goal, Outcome};
use crate::stats::Series;

use super::contention::rows;
use super::engine::{Database, Mode};
use super::workload::fill;

const INSERTS: usize = 100;
const ROWS: usize = 2000;

pub(super) fn run(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let device = match Device::new(&ground.on_disk("device")?)? {
        Ok(device) => device,
        Err(reason) => {
            outcome.missing.push(format!("bytes to a block device: {reason}"));
            return Ok(());
        }
    };
    let (mut theirs, mut k0) = (Sums::default(), Sums::default());
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
            }
            _ => {}
        }
    }
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

/// Written bytes until nothing is left to write behind the last insert, and behind the close.
fn once(device: &Device, mode: Mode) -> io::Result<(f64, f64)> {
    let database = Database::open(mode, &device.directory("database")?.join("bytes.db"))?;
    fill(&database.0, ROWS).map_err(Error::other)?;
    // What a mode keeps back of it would be counted with the inserts.
    for pragma in ["PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA holdfast_checkpoint"] {
        // One of them is none of this mode's; what they answer says nothing here.
        database.0.execute_batch(pragma).map_err(Error::other)?;
    }
    device.settle()?;
    let before = device.written_bytes()?;
    rows(&database, ROWS, INSERTS)?;
    device.settle()?;
    let inserted = device.written_bytes()? - before;
    database.close()?;
    device.settle()?;
    Ok((inserted as f64, (device.written_bytes()? - before) as f64))
}
