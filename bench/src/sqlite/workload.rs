//! The workload of the qNVRAM paper (section 4.2): a table of 2,000 rows, a number and 100
//! characters; then rows are inserted, updated and deleted, each in a transaction of its own, in
//! random order or one after the other. Statements are prepared once. The same with other numbers
//! of rows, and longer ones.

use std::io::{self, Error};
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rusqlite::{Connection, params};

use super::engine::Database;
use super::texts::Texts;

const ROWS: usize = 2000;
pub(super) const CHARACTERS: usize = 100;

/// In which order rows are touched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Order {
    Random,
    Sequential,
}

/// What is done to a database.
#[derive(Debug, Clone)]
pub(super) struct Workload {
    order: Order,
    /// Before the first transaction.
    rows: usize,
    characters: usize,
    /// Of each kind.
    count: usize,
}

impl Workload {
    /// 1,000 transactions of each kind.
    pub(super) fn paper(order: Order) -> Workload {
        Workload { order, rows: ROWS, characters: CHARACTERS, count: 1000 }
    }

    /// 3,000 of each kind.
    pub(super) fn long(order: Order) -> Workload {
        Workload { order, rows: ROWS, characters: CHARACTERS, count: 3000 }
    }

    /// In random order, with so many transactions of each kind.
    pub(super) fn of_size(rows: usize, characters: usize, count: usize) -> Workload {
        Workload { order: Order::Random, rows, characters, count }
    }

    pub(super) fn transactions(&self) -> f64 {
        (3 * self.count) as f64
    }

    /// Fills the table and does the transactions, which alone count; seconds that they took.
    pub(super) fn run(&self, database: &mut Database) -> io::Result<f64> {
        let mut seconds = 0.0;
        self.run_timed(database, |taken| seconds += taken.as_secs_f64())?;
        Ok(seconds)
    }

    /// Only fills the table.
    pub(super) fn fill(&self, database: &Database) -> io::Result<()> {
        fill_with(&database.0, self.rows, self.characters).map_err(Error::other)
    }

    /// As [`Workload::run`]; `each` gets what every transaction took.
    pub(super) fn run_timed(
        &self,
        database: &mut Database,
        each: impl FnMut(Duration),
    ) -> io::Result<()> {
        self.fill(database)?;
        self.transact_in(database, each)?;
        let touched = self.keys(0, self.rows);
        self.verify(&database.0, &touched)
    }

    /// Does the transactions, in a table that was filled.
    pub(super) fn transact_in(
        &self,
        database: &Database,
        each: impl FnMut(Duration),
    ) -> io::Result<()> {
        let (inserted, touched) = (self.keys(self.rows, self.count), self.keys(0, self.rows));
        self.transact(&database.0, &inserted, &touched, each).map_err(Error::other)
    }

    /// Keys from `first` on in the workload's order.
    fn keys(&self, first: usize, count: usize) -> Vec<i64> {
        let mut keys: Vec<i64> = (first..first + count).map(|key| key as i64).collect();
        if self.order == Order::Random {
            keys.shuffle(&mut SmallRng::seed_from_u64(count as u64));
        }
        keys
    }

    fn transact(
        &self,
        connection: &Connection,
        inserted: &[i64],
        touched: &[i64],
        mut each: impl FnMut(Duration),
    ) -> rusqlite::Result<()> {
        let mut insert = connection.prepare("INSERT INTO paper VALUES (?1, ?2)")?;
        let mut update = connection.prepare("UPDATE paper SET content = ?2 WHERE number = ?1")?;
        let mut delete = connection.prepare("DELETE FROM paper WHERE number = ?1")?;
        let (new, newer) = (Texts::new("nn", self.characters), Texts::new("uu", self.characters));
        let mut last = Instant::now();
        let mut done = || {
            let now = Instant::now();
            each(now - last);
            last = now;
        };
        for key in inserted {
            insert.execute(params![key, new.of(*key)])?;
            done();
        }
        for key in touched.iter().cycle().take(self.count) {
            update.execute(params![key, newer.of(*key)])?;
            done();
        }
        for key in touched.iter().chain(inserted).take(self.count) {
            delete.execute(params![key])?;
            done();
        }
        Ok(())
    }

    /// The rows that are left are those that should be, with the content that they should have.
    fn verify(&self, connection: &Connection, touched: &[i64]) -> io::Result<()> {
        let deleted_new = self.count.saturating_sub(touched.len());
        let updated = self.count.min(touched.len());
        let deleted = self.count.min(touched.len());
        let expected =
            ((self.rows + self.count - deleted - deleted_new) as i64, (updated - deleted) as i64);
        let query = "SELECT count(*), count(*) FILTER (WHERE content LIKE 'uu%') FROM paper";
        let found = connection
            .query_row(query, [], |row| Ok((row.get(0)?, row.get(1)?)))
            .map_err(Error::other)?;
        if found != expected {
            return Err(Error::other(format!(
                "the table has {found:?} rows and updated rows instead of {expected:?}"
            )));
        }
        Ok(())
    }
}

/// Makes the table, with rows from 0 on, in one transaction.
pub(super) fn fill(connection: &Connection, rows: usize) -> rusqlite::Result<()> {
    fill_with(connection, rows, CHARACTERS)
}

pub(super) fn fill_with(
    connection: &Connection,
    rows: usize,
    characters: usize,
) -> rusqlite::Result<()> {
    let transaction = connection.unchecked_transaction()?;
    transaction
        .execute_batch("CREATE TABLE paper (number INTEGER PRIMARY KEY, content TEXT NOT NULL)")?;
    {
        let mut insert = transaction.prepare("INSERT INTO paper VALUES (?1, ?2)")?;
        let contents = Texts::new("aa", characters);
        for key in 0..rows as i64 {
            insert.execute(params![key, contents.of(key)])?;
        }
    }
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use super::super::engine::Mode;
    use super::*;

    /// The workload leaves the expected database in both orders and both lengths.
    #[test]
    fn workload_leaves_the_expected_database() {
        for workload in [
            Workload::paper(Order::Random),
            Workload::paper(Order::Sequential),
            Workload::long(Order::Random),
            Workload::long(Order::Sequential),
            Workload::of_size(500, 1024, 250),
        ] {
            let mut database = Database::open(Mode::MEMORY, std::path::Path::new("none")).unwrap();
            assert!(workload.run(&mut database).unwrap() > 0.0);
        }
    }

    #[test]
    fn random_keys_are_all_keys_in_another_order() {
        let mut keys = Workload::paper(Order::Random).keys(10, 500);
        assert_ne!(keys, Workload::paper(Order::Sequential).keys(10, 500));
        keys.sort_unstable();
        assert_eq!(keys, Workload::paper(Order::Sequential).keys(10, 500));
    }
}
