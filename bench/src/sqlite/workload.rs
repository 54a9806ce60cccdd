//! The workload of the qNVRAM paper (section 5): a table of 2,000 rows, a number and 100
//! characters; then rows are inserted, updated and deleted, each in a transaction of its own, in
//! random order or one after the other. Statements are prepared once.

use std::io::{self, Error};
use std::time::Instant;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rusqlite::{Connection, params};

use super::engine::Database;

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
    /// Of each kind.
    count: usize,
}

impl Workload {
    /// 1,000 transactions of each kind.
    pub(super) fn paper(order: Order) -> Workload {
        Workload { order, count: 1000 }
    }

    /// 3,000 of each kind.
    pub(super) fn long(order: Order) -> Workload {
        Workload { order, count: 3000 }
    }

    pub(super) fn transactions(&self) -> f64 {
        (3 * self.count) as f64
    }

    /// Fills the table and does the transactions, which alone count; seconds that they took.
    pub(super) fn run(&self, database: &mut Database) -> io::Result<f64> {
        fill(&database.0, ROWS).map_err(Error::other)?;
        let (inserted, touched) = (self.keys(ROWS, self.count), self.keys(0, ROWS));
        let seconds = self.transact(&database.0, &inserted, &touched).map_err(Error::other)?;
        self.verify(&database.0, &touched)?;
        Ok(seconds)
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
    ) -> rusqlite::Result<f64> {
        let mut insert = connection.prepare("INSERT INTO paper VALUES (?1, ?2)")?;
        let mut update = connection.prepare("UPDATE paper SET content = ?2 WHERE number = ?1")?;
        let mut delete = connection.prepare("DELETE FROM paper WHERE number = ?1")?;
        let (new, newer) = ("n".repeat(CHARACTERS), "u".repeat(CHARACTERS));
        let started = Instant::now();
        for key in inserted {
            insert.execute(params![key, new])?;
        }
        for key in touched.iter().cycle().take(self.count) {
            update.execute(params![key, newer])?;
        }
        for key in touched.iter().chain(inserted).take(self.count) {
            delete.execute(params![key])?;
        }
        Ok(started.elapsed().as_secs_f64())
    }

    /// The rows that are left are those that should be, with the content that they should have.
    fn verify(&self, connection: &Connection, touched: &[i64]) -> io::Result<()> {
        let deleted_new = self.count.saturating_sub(touched.len());
        let updated = self.count.min(touched.len());
        let deleted = self.count.min(touched.len());
        let expected =
            ((ROWS + self.count - deleted - deleted_new) as i64, (updated - deleted) as i64);
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
    let transaction = connection.unchecked_transaction()?;
    transaction
        .execute_batch("CREATE TABLE paper (number INTEGER PRIMARY KEY, content TEXT NOT NULL)")?;
    {
        let mut insert = transaction.prepare("INSERT INTO paper VALUES (?1, ?2)")?;
        let content = "a".repeat(CHARACTERS);
        for key in 0..rows {
            insert.execute(params![key as i64, content])?;
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
