//! The paper's workload, on SQLite's own modes and on the VFS, interleaved: 2,000 rows, then 1,000
//! inserts, updates and deletes, one transaction each, at random and in order.
//!
//! `cargo run --release -p holdfast-sqlite --example paper -- DIRECTORY ROUNDS TRANSACTIONS` prints
//! transactions per second, the best of the rounds.

#![allow(unsafe_code, reason = "hands C functions to the library")]

mod host;

use std::path::Path;
use std::time::{Duration, Instant};

use holdfast_sqlite::register;
use rusqlite::{Connection, OpenFlags, ffi};

/// Name, what the URI asks for (with the VFS where it begins with it), and pragmas.
const MODES: [(&str, &str, &str); 9] = [
    ("WAL FULL", "vfs=unix", "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL"),
    ("WAL NORMAL", "vfs=unix", "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL"),
    ("WAL OFF", "vfs=unix", "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF"),
    (":memory:", "mode=memory", ""),
    ("K=infinity", "vfs=holdfast&threshold=infinity", ""),
    ("K=infinity exclusive", "vfs=holdfast&threshold=infinity", "PRAGMA locking_mode=EXCLUSIVE"),
    ("K=5", "vfs=holdfast&threshold=5", ""),
    ("K=0", "vfs=holdfast&threshold=0", ""),
    ("level=power", "vfs=holdfast&level=power", ""),
];

/// The keys of one phase: in order, or in an order that looks random and is the same in each round.
fn keys(count: i64, random: bool) -> impl Iterator<Item = i64> {
    (0..count).map(move |step| if random { step * 7919 % count } else { step })
}

fn run(
    directory: &Path,
    mode: (&str, &str, &str),
    count: i64,
    random: bool,
) -> rusqlite::Result<Duration> {
    let path = directory.join("paper.db");
    for ending in ["", "-wal", "-shm", "-journal"] {
        let _ = std::fs::remove_file(format!("{}{ending}", path.display()));
    }
    let connection = Connection::open_with_flags(
        format!("file:{}?{}", path.display(), mode.1),
        OpenFlags::default(),
    )?;
    connection.execute_batch(mode.2)?;
    connection.execute_batch("CREATE TABLE t (a INTEGER PRIMARY KEY, b); BEGIN")?;
    let value = "x".repeat(100);
    let mut insert = connection.prepare("INSERT INTO t VALUES (?, ?)")?;
    for key in 0..2000 {
        insert.execute((key * 2, &value))?;
    }
    connection.execute_batch("COMMIT")?;
    let mut update = connection.prepare("UPDATE t SET b = ? WHERE a = ?")?;
    let mut delete = connection.prepare("DELETE FROM t WHERE a = ?")?;
    let other = "y".repeat(100);
    let started = Instant::now();
    for key in keys(count, random) {
        insert.execute((if random { key * 2 + 1 } else { 4000 + key }, &value))?;
    }
    for key in keys(count, random) {
        update.execute((&other, key % 2000 * 2))?;
    }
    for key in keys(count, random) {
        delete.execute([key % 2000 * 2])?;
    }
    Ok(started.elapsed())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(directory), Some(rounds), Some(count)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("usage: paper DIRECTORY ROUNDS TRANSACTIONS".into());
    };
    let (rounds, count): (u32, i64) = (rounds.parse()?, count.parse()?);
    // SAFETY: nothing of SQLite runs yet.
    if unsafe { ffi::sqlite3_initialize() } != 0 || register(host::host(), false) != 0 {
        return Err("the VFS cannot be registered".into());
    }
    let mut best = [[0.0_f64; 2]; MODES.len()];
    for _ in 0..rounds {
        for (mode, best) in MODES.iter().zip(&mut best) {
            for random in [true, false] {
                let rate = 3.0 * count as f64
                    / run(Path::new(&directory), *mode, count, random)?.as_secs_f64();
                let best = &mut best[usize::from(!random)];
                *best = best.max(rate);
            }
        }
    }
    println!(
        "{:<22} {:>12} {:>12} {:>10} {:>10}",
        "mode", "random/s", "in order/s", "x WAL FULL", ""
    );
    for (mode, rates) in MODES.iter().zip(&best) {
        let [random, ordered] = [0, 1].map(|way| rates[way] / best[0][way]);
        println!(
            "{:<22} {:>12.0} {:>12.0} {random:>10.2} {ordered:>10.2}",
            mode.0, rates[0], rates[1]
        );
    }
    Ok(())
}
