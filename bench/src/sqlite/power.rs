//! Level `power` against WAL with `synchronous=FULL`, which both wait for the disk in each commit,
//! on each of the sets of `sizes`, the close included.

use std::io;
use std::time::Instant;

use crate::heap::ground::Ground;
use crate::race::{Side, race};
use crate::report::{Goal, Outcome};
use crate::stats::Series;

use super::engine::{Database, Mode};
use super::sizes::{SIZES, SLOW_COUNT, Size};

pub(super) fn run(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let mut least: Option<Series> = None;
    for size in SIZES {
        let sides = vec![
            Side::new("wal_full", || once(ground, Mode::WAL_FULL, size)),
            Side::new("power", || once(ground, Mode::OURS_POWER, size)),
        ];
        let times = race(size.runs(runs), sides)?;
        let ratio = times.ratio("wal_full", "power");
        outcome.add(format!("power_vs_wal_full_{}", size.name), ratio.clone(), "x", None);
        least = ratio
            .into_iter()
            .chain(least)
            .min_by(|one, other| one.median().total_cmp(&other.median()));
    }
    outcome.add("power_vs_wal_full_every_size", least, "x", Some(Goal::AtLeast(1.0)));
    Ok(())
}

/// Seconds of the transactions and the close.
fn once(ground: &Ground, mode: Mode, size: Size) -> io::Result<f64> {
    let path = ground.on_disk("database")?.join("power.db");
    let mut database = Database::open(mode, &path)?;
    let mut seconds = 0.0;
    let workload = size.workload(SLOW_COUNT.min(size.count()));
    workload.run_timed(&mut database, |taken| seconds += taken.as_secs_f64())?;
    let closing = Instant::now();
    database.close()?;
    Ok(seconds + closing.elapsed().as_secs_f64())
}
