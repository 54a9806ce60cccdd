//! SQLite in the suite `pool`: a table of numbered pages, with its write-ahead log. `synchronous`
//! is `FULL` where a commit has to survive a power cut, else `OFF`; the rest is as it comes.

use std::io::{self, Error};
use std::path::Path;

use rusqlite::{Connection, params};

use super::pages::{PAGE_BYTES, PAGES, Pages};

/// An open database.
pub(super) struct SqlitePages(Connection);

impl SqlitePages {
    pub(super) fn new(directory: &Path, is_synced: bool) -> io::Result<SqlitePages> {
        made(directory, is_synced).map(SqlitePages).map_err(Error::other)
    }
}

fn made(directory: &Path, is_synced: bool) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open(directory.join("pages"))?;
    let _: String =
        connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    connection.pragma_update(None, "synchronous", if is_synced { "FULL" } else { "OFF" })?;
    let transaction = connection.transaction()?;
    transaction
        .execute_batch("CREATE TABLE pages (number INTEGER PRIMARY KEY, content BLOB NOT NULL)")?;
    for number in 0..PAGES {
        let mut insert = transaction.prepare_cached("INSERT INTO pages VALUES (?1, ?2)")?;
        insert.execute(params![number as i64, &[1_u8; PAGE_BYTES][..]])?;
    }
    transaction.commit()?;
    // The log of the filling is not the commits'; its file stays, and they write over it.
    connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()))?;
    Ok(connection)
}

impl Pages for SqlitePages {
    fn replace(&mut self, page: usize, content: &[u8; PAGE_BYTES]) -> io::Result<()> {
        let update = self.0.prepare_cached("UPDATE pages SET content = ?2 WHERE number = ?1");
        let changed =
            update.and_then(|mut update| update.execute(params![page as i64, &content[..]]));
        match changed.map_err(Error::other)? {
            1 => Ok(()),
            _ => Err(Error::other("a page is gone")),
        }
    }

    fn first_word(&mut self, page: usize) -> io::Result<u64> {
        let select = self.0.prepare_cached("SELECT content FROM pages WHERE number = ?1");
        let content =
            select.and_then(|mut select| select.query_row([page as i64], |row| row.get(0)));
        let content: Vec<u8> = content.map_err(Error::other)?;
        let word =
            content.first_chunk().ok_or_else(|| Error::other("a page is shorter than a word"))?;
        Ok(u64::from_le_bytes(*word))
    }
}
