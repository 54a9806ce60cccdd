//! Bytes that the block device is asked to write for 100 inserts, a transaction each, which the
//! paper's figure 4 shows.
//!
//! The device is that of the suite `persistency`: a loop device of our own. What filling the table
//! wrote is not counted; what the close of the database writes is a number of its own.

use std::io::{self, Error};

use crate::heap::ground::Ground;
use crate::persistency::device::Device;
use crate::report::Outcome;
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
    for (key, mode) in [
        ("k5", Mode::OURS_K5),
        ("infinity", Mode::OURS),
        ("power", Mode::OURS_POWER),
        ("wal", Mode::WAL_FULL),
        ("delete", Mode::DELETE_FULL),
    ] {
        let (mut open, mut closed) = (Series::default(), Series::default());
        for _ in 0..runs.div_ceil(5) {
            let (until_last_insert, until_closed) = once(&device, mode)?;
            open.push(until_last_insert);
            closed.push(until_closed);
        }
        outcome.add(format!("bytes_per_100_inserts_{key}"), Some(open), "B", None);
        outcome.add(format!("bytes_per_100_inserts_{key}_and_close"), Some(closed), "B", None);
    }
    Ok(())
}

/// Written bytes until nothing is left to write behind the last insert, and behind the close.
fn once(device: &Device, mode: Mode) -> io::Result<(f64, f64)> {
    let database = Database::open(mode, &device.directory("database")?.join("bytes.db"))?;
    fill(&database.0, ROWS).map_err(Error::other)?;
    device.settle()?;
    let before = device.written_bytes()?;
    rows(&database, ROWS, INSERTS)?;
    device.settle()?;
    let inserted = device.written_bytes()? - before;
    database.close()?;
    device.settle()?;
    Ok((inserted as f64, (device.written_bytes()? - before) as f64))
}
