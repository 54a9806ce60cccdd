//! A fixed sequence of transactions, of which every state is known: after step N the database is as
//! [`expected`] says. Whatever happens to a process that goes through it, what is found afterwards
//! must be one of these states.

use std::path::Path;

use rusqlite::{Connection, params};

use crate::engine;
use crate::sides::say;

/// Steps of the sequence.
pub(crate) const STEPS: i64 = 14;
/// A row that takes two pages.
const BYTES: usize = 5000;

/// Makes the tables, which is step 0.
pub(crate) fn begin(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(
        "BEGIN IMMEDIATE; CREATE TABLE IF NOT EXISTS step (done INTEGER); DELETE FROM step; INSERT INTO step VALUES (0);
         CREATE TABLE IF NOT EXISTS rows (number INTEGER PRIMARY KEY, content BLOB); COMMIT;",
    )
}

/// One step: a row more, every third time another one less, and their number; all in one
/// transaction.
pub(crate) fn step(connection: &Connection, number: i64) -> rusqlite::Result<()> {
    let work = || -> rusqlite::Result<()> {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let content = vec![number as u8; BYTES];
        connection.execute("INSERT INTO rows VALUES (?1, ?2)", params![number, content])?;
        if number % 3 == 0 {
            connection.execute("DELETE FROM rows WHERE number = ?1", [number - 1])?;
        }
        connection.execute("UPDATE step SET done = ?1", [number])?;
        connection.execute_batch("COMMIT")
    };
    work().inspect_err(|_| {
        // An error that ended the transaction already leaves nothing to roll back.
        let _ = connection.execute_batch("ROLLBACK");
    })
}

/// The numbers of the rows after a step.
fn expected(done: i64) -> Vec<i64> {
    (1..=done).filter(|number| !(number % 3 == 2 && number < &done)).collect()
}

/// Which step the database is at; `None` before the tables are there.
///
/// # Panics
/// When it is at none: damaged, or with something of two states.
pub(crate) fn state(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    assert_eq!(engine::integrity(connection)?, "ok");
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables == 0 {
        return Ok(None);
    }
    let done: i64 = connection.query_row("SELECT done FROM step", [], |row| row.get(0))?;
    let mut rows = connection.prepare("SELECT number, content FROM rows ORDER BY number")?;
    let found: Vec<(i64, Vec<u8>)> =
        rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    assert_eq!(
        found.iter().map(|(number, _)| *number).collect::<Vec<_>>(),
        expected(done),
        "at step {done}"
    );
    for (number, content) in found {
        assert!(content == vec![number as u8; BYTES], "row {number} holds something else");
    }
    Ok(Some(done))
}

/// The role: says which step a database is at, or that it is at none yet.
pub(crate) fn check(path: &Path) {
    engine::load();
    let connection = engine::open(path, "vfs=holdfast").unwrap();
    let done = state(&connection).unwrap();
    say(&format!("state {}", done.unwrap_or(-1)));
    connection.close().unwrap();
    // The file itself is whole without the VFS, too.
    let plain = engine::open(path, "vfs=unix").unwrap();
    assert_eq!(state(&plain).unwrap(), done);
}

/// Guarantee: sqlite/killed-writer
#[test]
fn every_state_of_the_sequence_is_known() {
    let connection = Connection::open_in_memory().unwrap();
    assert_eq!(state(&connection).unwrap(), None);
    begin(&connection).unwrap();
    for number in 1..=STEPS {
        assert_eq!(state(&connection).unwrap(), Some(number - 1));
        step(&connection, number).unwrap();
    }
    assert_eq!(state(&connection).unwrap(), Some(STEPS));
    connection.execute("DELETE FROM rows WHERE number = 4", []).unwrap();
    let torn = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| state(&connection)));
    assert!(torn.is_err(), "a state that is none was taken for one");
}
