//! Mixed workloads at default settings in each mode of committing: orders in the manner of TPC-C,
//! the mixes A, B and F of YCSB, and inserts one behind the other.
//!
//! Invariant: the same seed does the same work in every mode, and what it left is checked.

use std::io::{self, Error};
use std::iter::once;
use std::time::{Duration, Instant};

use rand::distr::Distribution;
use rand::distr::weighted::WeightedIndex;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rusqlite::types::Value;
use rusqlite::{Connection, params, params_from_iter};

use crate::heap::ground::Ground;
use crate::report::Outcome;

use super::contest::{Contest, Run};
use super::engine::Database;
use super::orders;
use super::texts::Texts;
use super::workload::{CHARACTERS, fill};

/// Transactions of a mix in a mode in which each waits for the disk.
const FEWER: usize = 750;
const ORDERS: usize = 20_000;
const OPERATIONS: usize = 60_000;
const INSERTS: usize = 30_000;
/// Rows there are before the first of the inserts.
const ROWS: usize = 2000;

/// YCSB's: records of ten fields of 100 characters, Zipf's distribution with this exponent.
const RECORDS: usize = 20_000;
const FIELD_CHARACTERS: usize = 100;
const ZIPF_EXPONENT: f64 = 0.99;
const FIELDS: [&str; 10] = ["f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8", "f9"];

/// What a mix of YCSB does beside reading.
#[derive(Debug, Clone, Copy)]
enum Change {
    /// Writes a field.
    Update,
    /// Reads the record and writes a field of it, in one transaction.
    ReadModifyWrite,
}

pub(super) fn run(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let runs = runs.div_ceil(3);
    let mut contest = |name: &str, steps: usize, goal: Option<f64>, run: Run<'_>| {
        let contest = Contest { key: name, name, steps: [steps, FEWER], goals: [goal, None], run };
        contest.run(ground, runs, outcome).map(drop)
    };
    contest("tpcc", ORDERS, Some(1.5), &|database, count, each| {
        orders::run(&database.0, count, each)
    })?;
    for (name, reads_pct, change) in [
        ("ycsb_a", 50, Change::Update),
        ("ycsb_b", 95, Change::Update),
        ("ycsb_f", 50, Change::ReadModifyWrite),
    ] {
        contest(name, OPERATIONS, None, &|database, count, each| {
            ycsb(&database.0, reads_pct, change, count, each)
        })?;
    }
    contest("inserts", INSERTS, None, &inserts)
}

/// Rows of a hundred characters, one transaction each, behind those that are there.
fn inserts(
    database: &mut Database,
    count: usize,
    each: &mut dyn FnMut(Duration),
) -> io::Result<()> {
    let connection = &database.0;
    fill(connection, ROWS).map_err(Error::other)?;
    let mut work = || -> rusqlite::Result<i64> {
        let mut insert = connection.prepare("INSERT INTO paper VALUES (?1, ?2)")?;
        let contents = Texts::new("ii", CHARACTERS);
        for key in ROWS..ROWS + count {
            let started = Instant::now();
            insert.execute(params![key as i64, contents.of(key as i64)])?;
            each(started.elapsed());
        }
        connection.query_row("SELECT count(*) FROM paper", [], |row| row.get(0))
    };
    match work().map_err(Error::other)? {
        found if found == (ROWS + count) as i64 => Ok(()),
        found => Err(Error::other(format!("the table has {found} rows"))),
    }
}

fn ycsb(
    connection: &Connection,
    reads_pct: u32,
    change: Change,
    count: usize,
    each: &mut dyn FnMut(Duration),
) -> io::Result<()> {
    let mut random = SmallRng::seed_from_u64(count as u64);
    let mut keys: Vec<i64> = (0..RECORDS as i64).collect();
    // So that records that are in demand lie apart.
    keys.shuffle(&mut random);
    let shares = (1..=RECORDS).map(|rank| (rank as f64).powf(-ZIPF_EXPONENT));
    let ranks = WeightedIndex::new(shares).map_err(Error::other)?;
    let mut work = || -> rusqlite::Result<(i64, i64)> {
        fill_records(connection)?;
        let mut read = connection.prepare("SELECT * FROM records WHERE id = ?1")?;
        let updates = FIELDS.map(|field| {
            connection.prepare(&format!("UPDATE records SET {field} = ?2 WHERE id = ?1"))
        });
        let mut updates = updates.into_iter().collect::<rusqlite::Result<Vec<_>>>()?;
        let values = Texts::new("uu", FIELD_CHARACTERS);
        for number in 0..count {
            let value = values.of(number as i64);
            let key = keys[ranks.sample(&mut random)];
            let is_read = random.random_range(0..100) < reads_pct;
            let field = random.random_range(0..FIELDS.len());
            let mut read =
                || read.query_row([key], |row| row.get::<_, String>(FIELDS.len())).map(drop);
            let started = Instant::now();
            match change {
                _ if is_read => read()?,
                Change::Update => drop(updates[field].execute(params![key, value])?),
                Change::ReadModifyWrite => {
                    let transaction = connection.unchecked_transaction()?;
                    read()?;
                    updates[field].execute(params![key, value])?;
                    transaction.commit()?;
                }
            }
            each(started.elapsed());
        }
        connection.query_row(
            "SELECT count(*), count(*) FILTER (WHERE length(f0 || f1 || f2 || f3 || f4 || f5 || f6
                || f7 || f8 || f9) = ?1) FROM records",
            [(FIELDS.len() * FIELD_CHARACTERS) as i64],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
    };
    match work().map_err(Error::other)? {
        found if found == (RECORDS as i64, RECORDS as i64) => Ok(()),
        found => Err(Error::other(format!("the table has {found:?} records and whole ones"))),
    }
}

fn fill_records(connection: &Connection) -> rusqlite::Result<()> {
    let transaction = connection.unchecked_transaction()?;
    let columns = FIELDS.map(|field| format!("{field} TEXT NOT NULL")).join(", ");
    transaction
        .execute_batch(&format!("CREATE TABLE records (id INTEGER PRIMARY KEY, {columns})"))?;
    let places = FIELDS.map(|_| "?").join(", ");
    {
        let mut insert =
            transaction.prepare(&format!("INSERT INTO records VALUES (?, {places})"))?;
        let values = Texts::new("rr", FIELD_CHARACTERS);
        for key in 0..RECORDS as i64 {
            let all = (0..FIELDS.len() as i64).map(|field| values.of(7 * key + field));
            insert.execute(params_from_iter(
                once(Value::from(key)).chain(all.map(|text| Value::from(text.to_owned()))),
            ))?;
        }
    }
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::engine::Mode;
    use super::*;

    fn in_memory() -> Database {
        Database::open(Mode::MEMORY, Path::new("none")).unwrap()
    }

    #[test]
    fn mixes_do_as_many_operations_as_asked() {
        for (reads_pct, change) in [(50, Change::Update), (0, Change::ReadModifyWrite)] {
            let mut done = 0;
            ycsb(&in_memory().0, reads_pct, change, 500, &mut |_| done += 1).unwrap();
            assert_eq!(done, 500);
        }
        let mut done = 0;
        inserts(&mut in_memory(), 300, &mut |_| done += 1).unwrap();
        assert_eq!(done, 300);
    }
}
