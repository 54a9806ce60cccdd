//! SQLite: a table of numbered records, with its rollback journal (`journal_mode=DELETE`, the
//! default) or its write-ahead log (`WAL`), each with `synchronous` at `FULL` (a commit survives a
//! power cut) and `NORMAL` (a power cut may take the last commits in WAL; with a rollback journal
//! it may, rarely, damage the database). Everything else is as it comes: pages of 4 KiB, a
//! checkpoint of the log when it has 1000 pages and when the database is closed.

use std::io::{self, Error};
use std::path::PathBuf;

use rusqlite::{Connection, TransactionBehavior, params};

use super::records::{Change, Record, RecordSet, initial};

/// `PRAGMA journal_mode`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Journal {
    Delete,
    Wal,
}

/// `PRAGMA synchronous`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Synchronous {
    Full,
    Normal,
}

/// An open database.
pub(crate) struct Sqlite {
    /// `None` when it was closed.
    connection: Option<Connection>,
}

impl Sqlite {
    pub(crate) fn new(
        directory: PathBuf,
        journal: Journal,
        synchronous: Synchronous,
    ) -> io::Result<Sqlite> {
        let mut connection = Connection::open(directory.join("records")).map_err(Error::other)?;
        let (mode, level) = match (journal, synchronous) {
            (Journal::Delete, Synchronous::Full) => ("delete", "FULL"),
            (Journal::Delete, Synchronous::Normal) => ("delete", "NORMAL"),
            (Journal::Wal, Synchronous::Full) => ("wal", "FULL"),
            (Journal::Wal, Synchronous::Normal) => ("wal", "NORMAL"),
        };
        let in_force = |row: &rusqlite::Row<'_>| row.get::<_, String>(0);
        let found = connection
            .pragma_update_and_check(None, "journal_mode", mode, in_force)
            .map_err(Error::other)?;
        if found != mode {
            return Err(Error::other(format!(
                "SQLite works with journal_mode={found} instead of {mode}"
            )));
        }
        connection.pragma_update(None, "synchronous", level).map_err(Error::other)?;
        fill(&mut connection).map_err(Error::other)?;
        // The log of the filling is not the commits'.
        if let Journal::Wal = journal {
            connection
                .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
                .map_err(Error::other)?;
        }
        Ok(Sqlite { connection: Some(connection) })
    }

    fn connection(&mut self) -> io::Result<&mut Connection> {
        self.connection.as_mut().ok_or_else(|| Error::other("the database was closed"))
    }
}

fn fill(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    transaction.execute_batch(
        "CREATE TABLE records (number INTEGER PRIMARY KEY, content BLOB NOT NULL)",
    )?;
    {
        let mut insert = transaction.prepare("INSERT INTO records VALUES (?1, ?2)")?;
        for (number, content) in initial().iter().enumerate() {
            insert.execute(params![number as i64, content])?;
        }
    }
    transaction.commit()
}

fn update(connection: &mut Connection, changes: &[Change]) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    {
        let mut update =
            transaction.prepare_cached("UPDATE records SET content = ?2 WHERE number = ?1")?;
        for (number, content) in changes {
            update.execute(params![*number as i64, content])?;
        }
    }
    transaction.commit()
}

impl RecordSet for Sqlite {
    fn commit(&mut self, changes: &[Change]) -> io::Result<()> {
        update(self.connection()?, changes).map_err(Error::other)
    }

    fn get(&mut self, number: usize) -> io::Result<Record> {
        let connection = self.connection()?;
        let mut select = connection
            .prepare_cached("SELECT content FROM records WHERE number = ?1")
            .map_err(Error::other)?;
        select.query_row([number as i64], |row| row.get(0)).map_err(Error::other)
    }

    fn finish(&mut self) -> io::Result<()> {
        match self.connection.take() {
            Some(connection) => connection.close().map_err(|(_, error)| Error::other(error)),
            None => Ok(()),
        }
    }
}
