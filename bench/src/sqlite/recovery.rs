//! Measures the first connection after a crash: the writer was killed with committed pages in the
//! pool that were on no disk.

use std::io::{self, Error};
use std::path::Path;
use std::time::Instant;

use crate::heap::ground::Ground;
use crate::report::Outcome;
use crate::stats::Series;
use crate::timing::ms_since;

use super::child::{self, SideProcess};
use super::engine::{Database, Mode};

/// Pages that are left, about: 16 MiB.
const PAGES: usize = 4000;
const BLOB_BYTES: usize = 4000;

pub(super) fn run(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let mut per_thousand = Series::default();
    for _ in 0..runs.div_ceil(3) {
        let (path, text) = child::database(ground.on_disk("database")?)?;
        let mut writer = SideProcess::start(child::side(&["dirty", &text, &PAGES.to_string()])?)?;
        writer.ready()?;
        writer.kill()?;
        let started = Instant::now();
        let database = Database::open(Mode::OURS, &path)?;
        let query = "SELECT count(*) FROM blobs";
        let found: i64 = database.0.query_row(query, [], |row| row.get(0)).map_err(Error::other)?;
        let taken_ms = ms_since(started);
        if found != PAGES as i64 {
            return Err(Error::other(format!("{found} rows of {PAGES} are there after the crash")));
        }
        per_thousand.push(taken_ms / (PAGES as f64 / 1000.0));
        database.close()?;
    }
    outcome.add("recovery_ms_per_1000_pages", Some(per_thousand), "ms", None);
    Ok(())
}

/// From within: fills so many pages, commits, and waits for its end.
pub(super) fn leave_dirty(path: &Path, pages: usize) -> io::Result<()> {
    let database = Database::open(Mode::OURS, path)?;
    let fill = || -> rusqlite::Result<()> {
        database.0.execute_batch("CREATE TABLE blobs (content BLOB)")?;
        let mut insert = database.0.prepare("INSERT INTO blobs VALUES (zeroblob(?1))")?;
        for _ in 0..pages {
            insert.execute([BLOB_BYTES as i64])?;
        }
        Ok(())
    };
    fill().map_err(Error::other)?;
    child::say_ready_and_wait()
}
