//! The qNVRAM paper's figure 5 in its own form: how many times faster than WAL transactions of three
//! kinds are, in random order and one after the other, with a flush after each commit (K = 0), after
//! more than five changed pages, and at the end only.
//!
//! On an ext4 with a journal, as the paper's, on the loop device of the suite `persistency`; without
//! the close, as in the paper.

use std::io;

use holdfast_command::output::aligned;

use crate::device::Device;
use crate::heap::ground::Ground;
use crate::report::Outcome;
use crate::stats::Series;

use super::engine::{Database, Mode};
use super::workload::{Order, Workload};

const KINDS: [&str; 3] = ["insert", "update", "delete"];
const ORDERS: [(Order, &str); 2] = [(Order::Random, "random"), (Order::Sequential, "sequential")];
const COLUMNS: usize = KINDS.len() * ORDERS.len();
/// Ours by how they are named in the figure and in keys, and what the paper has for them.
const OURS: [(Mode, &str, &str, [f64; COLUMNS]); 3] = [
    (Mode::OURS_K0, "K = 0", "k0", [1.98, 2.25, 1.80, 2.04, 2.17, 2.64]),
    (Mode::OURS_K5, "K = 5", "k5", [3.29, 4.56, 4.37, 8.80, 13.93, 9.24]),
    (Mode::OURS, "K infinite", "infinity", [16.33, 15.86, 14.13, 15.40, 15.09, 15.76]),
];

/// Seconds of each column.
type Taken = [Series; COLUMNS];

pub(super) fn five(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let device = match Device::new(&ground.on_disk("device")?)? {
        Ok(device) => device,
        Err(reason) => {
            outcome.missing.push(format!("figure 5: {reason}"));
            return Ok(());
        }
    };
    let modes = [Mode::WAL_FULL, OURS[0].0, OURS[1].0, OURS[2].0];
    let mut taken: [Taken; 4] = Default::default();
    for round in 0..runs.div_ceil(5) {
        for turn in 0..modes.len() {
            let index = (round + turn) % modes.len();
            for (number, (order, _)) in ORDERS.into_iter().enumerate() {
                let found = once(&device, modes[index], order)?;
                for (series, seconds) in taken[index][number * KINDS.len()..].iter_mut().zip(found)
                {
                    series.push(seconds);
                }
            }
        }
    }
    let [wal, ours @ ..] = &taken;
    let mut rows = Vec::new();
    for ((_, name, key, published), ours) in OURS.iter().zip(ours) {
        let ratios: Vec<Series> = wal.iter().zip(ours).map(|(wal, ours)| wal.over(ours)).collect();
        let row = |name: String, values: Vec<f64>| {
            [name].into_iter().chain(values.iter().map(|value| format!("{value:.2}"))).collect()
        };
        rows.push(row((*name).to_owned(), ratios.iter().map(Series::median).collect()));
        rows.push(row("  the paper".to_owned(), published.to_vec()));
        for (ratio, (order, kind)) in ratios.into_iter().zip(columns()) {
            outcome.add(format!("figure5_{key}_{order}_{kind}"), Some(ratio), "x", None);
        }
    }
    let heads: Vec<String> = columns().map(|(order, kind)| format!("{order} {kind}")).collect();
    let heads: Vec<&str> = [""].into_iter().chain(heads.iter().map(String::as_str)).collect();
    let figure = aligned(&heads, &[1, 2, 3, 4, 5, 6], &rows);
    outcome.note(format!("Figure 5: throughput for one of WAL\n{figure}"));
    Ok(())
}

fn columns() -> impl Iterator<Item = (&'static str, &'static str)> {
    ORDERS.into_iter().flat_map(|(_, order)| KINDS.map(|kind| (order, kind)))
}

/// Seconds for the transactions of each kind.
fn once(device: &Device, mode: Mode, order: Order) -> io::Result<[f64; KINDS.len()]> {
    let path = device.directory("database")?.join("figure.db");
    let mut database = Database::open(mode, &path)?;
    let mut taken = Vec::new();
    let workload = Workload::paper(order);
    workload.run_timed(&mut database, |each| taken.push(each.as_secs_f64()))?;
    database.close()?;
    let mut sums = [0.0; KINDS.len()];
    for (sum, kind) in sums.iter_mut().zip(taken.chunks(taken.len() / KINDS.len())) {
        *sum = kind.iter().sum();
    }
    Ok(sums)
}
