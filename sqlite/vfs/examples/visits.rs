//! Counts its runs in a database, each in a commit that needs no journal; with the SQLite that
//! `rusqlite` compiles in, and no library to load.
//!
//! `cargo run -p holdfast-sqlite --example visits -- visits.db`

#![allow(unsafe_code, reason = "hands C functions to the library")]

mod host;

use rusqlite::{Connection, OpenFlags, ffi};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(database) = std::env::args().nth(1) else {
        return Err("usage: visits DATABASE".into());
    };
    // SAFETY: nothing of SQLite runs yet.
    if unsafe { ffi::sqlite3_initialize() } != 0
        || holdfast_sqlite::register(host::host(), false) != 0
    {
        return Err("the VFS cannot be registered".into());
    }
    let connection =
        Connection::open_with_flags_and_vfs(database, OpenFlags::default(), holdfast_sqlite::NAME)?;
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS visits (number INTEGER PRIMARY KEY, program TEXT);
         INSERT INTO visits (program) VALUES ('rust')",
    )?;
    let count: i64 = connection.query_row("SELECT count(*) FROM visits", [], |row| row.get(0))?;
    println!("{count}");
    Ok(())
}
