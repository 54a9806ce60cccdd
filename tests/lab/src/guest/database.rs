//! The records in a database: rows with a number, bytes that follow from it and a checksum, which
//! an index sorts anew; and a few slots of which every record replaces one.
//!
//! Invariants: a record comes in one transaction with everything that belongs to it. So a database
//! has the records 1 to n, for some n, and slots as of record n, or something was lost or torn.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Transaction, TransactionBehavior};

use super::FLASH;
use super::records::{checksum, content};
use crate::place::{Place, Pool};
use holdfast_types::Durability;

const SLOTS: u64 = 16;
/// So few that the pool has to be emptied now and then, whatever the threshold.
const POOL_LIMIT_BYTES: u64 = 2 << 20;
/// Changed pages, of the database that is flushed in the background.
const THRESHOLD: &str = "12";
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS records (number INTEGER PRIMARY KEY, bytes BLOB NOT NULL, checksum INTEGER NOT NULL);
    CREATE INDEX IF NOT EXISTS by_checksum ON records (checksum);
    CREATE TABLE IF NOT EXISTS slots (slot INTEGER PRIMARY KEY, number INTEGER NOT NULL, bytes BLOB NOT NULL);
";

/// Where databases are.
#[must_use]
pub fn directory() -> PathBuf {
    Path::new(FLASH).join("databases")
}

/// The database of a place.
#[must_use]
pub fn path(place: Place) -> PathBuf {
    directory().join(format!("{place}.db"))
}

/// Opens it over the VFS, which must be registered. Only at level `process` on a tmpfs nothing is
/// flushed but by checkpoints: that one shows what a failure takes.
///
/// # Errors
/// What SQLite answers.
pub fn open(place: Place, path: &Path) -> rusqlite::Result<Connection> {
    let level = place.level.name();
    let threshold = match (place.pool, place.level) {
        (Pool::Dax, Durability::Process) => THRESHOLD,
        _ => "infinity",
    };
    let uri = format!(
        "file:{}?vfs=holdfast&level={level}&threshold={threshold}&pool_limit={POOL_LIMIT_BYTES}",
        path.display()
    );
    Connection::open_with_flags(uri, OpenFlags::default())
}

/// Makes the tables, where they are not there.
///
/// # Errors
/// What SQLite answers.
pub fn prepare(connection: &mut Connection) -> rusqlite::Result<()> {
    // One transaction: tables without their index would be a state that no writer knows.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(SCHEMA)?;
    transaction.commit()
}

/// How many records the database says that it has.
///
/// # Errors
/// What SQLite answers.
pub fn count(connection: &Connection) -> rusqlite::Result<u64> {
    let newest: Option<i64> =
        connection.query_row("SELECT max(number) FROM records", [], |row| row.get(0))?;
    Ok(newest.map_or(0, i64::cast_unsigned))
}

/// Adds the record of this number, in a transaction of its own.
///
/// # Errors
/// What SQLite answers; nothing has changed then.
pub fn add(connection: &mut Connection, number: u64) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    put(&transaction, number)?;
    transaction.commit()
}

fn put(transaction: &Transaction<'_>, number: u64) -> rusqlite::Result<()> {
    let (row, bytes) = (number.cast_signed(), content(number));
    let mut insert = transaction.prepare_cached("INSERT INTO records VALUES (?, ?, ?)")?;
    insert.execute((row, &bytes, checksum(number, &bytes).cast_signed()))?;
    let mut replace = transaction.prepare_cached("REPLACE INTO slots VALUES (?, ?, ?)")?;
    replace.execute(((number % SLOTS).cast_signed(), row, &bytes))?;
    Ok(())
}

/// Brings everything to the database file.
///
/// # Errors
/// What SQLite answers.
pub fn checkpoint(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA holdfast_checkpoint", [], |_| Ok(()))
}

/// Looks at every row, and returns how many records there are.
///
/// # Errors
/// What is wrong with the first thing that is not as it was written.
pub fn verify(connection: &Connection) -> Result<u64, String> {
    let said = |error: rusqlite::Error| error.to_string();
    let sound: String =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).map_err(said)?;
    if sound != "ok" {
        return Err(format!("the integrity check finds: {sound}"));
    }
    let tables = "SELECT count(*) FROM sqlite_schema";
    match connection.query_row(tables, [], |row| row.get::<_, i64>(0)).map_err(said)? {
        0 => return Ok(0),
        3 => {}
        tables => return Err(format!("it has {tables} tables and indexes of 3")),
    }
    let count = count(connection).map_err(said)?;
    for number in 1..=count {
        let record =
            row(connection, "SELECT bytes, checksum FROM records WHERE number = ?", number);
        let (bytes, sum) = record
            .map_err(said)?
            .ok_or_else(|| format!("record {number} of {count} is missing"))?;
        if bytes != content(number) || sum.cast_unsigned() != checksum(number, &bytes) {
            return Err(format!("record {number} of {count} has other bytes than were written"));
        }
    }
    for number in count.saturating_sub(SLOTS - 1).max(1)..=count {
        let slot =
            row(connection, "SELECT bytes, number FROM slots WHERE slot = ?", number % SLOTS);
        if slot.map_err(said)? != Some((content(number), number.cast_signed())) {
            return Err(format!("the slot of record {number} of {count} is of another one"));
        }
    }
    Ok(count)
}

fn row(connection: &Connection, sql: &str, key: u64) -> rusqlite::Result<Option<(Vec<u8>, i64)>> {
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_row([key.cast_signed()], |row| Ok((row.get(0)?, row.get(1)?))).optional()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Rows are counted, and a changed byte, a missing row and an old slot are found.
    #[test]
    fn changed_or_missing_rows_are_found() {
        let mut connection = Connection::open_in_memory().unwrap();
        assert_eq!(verify(&connection), Ok(0));
        prepare(&mut connection).unwrap();
        assert_eq!(verify(&connection), Ok(0));
        for number in 1..=40 {
            add(&mut connection, number).unwrap();
        }
        assert_eq!((count(&connection), verify(&connection)), (Ok(40), Ok(40)));
        let finds = |sql: &str, what: &str| {
            let transaction = connection.unchecked_transaction().unwrap();
            transaction.execute(sql, []).unwrap();
            let found = verify(&transaction);
            assert!(found.as_ref().is_err_and(|found| found.contains(what)), "{sql}: {found:?}");
        };
        finds(
            "UPDATE records SET bytes = x'00' WHERE number = 7",
            "record 7 of 40 has other bytes",
        );
        finds("DELETE FROM records WHERE number = 9", "record 9 of 40 is missing");
        finds("UPDATE slots SET number = 23 WHERE slot = 7", "slot of record 39");
        finds("DROP INDEX by_checksum", "2 tables and indexes");
    }
}
