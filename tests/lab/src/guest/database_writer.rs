//! The writer of records in the databases of one pool, and their reader.
//!
//! Invariants: as those of the heaps' (`writer`): what is acknowledged was committed, unless it is
//! to be a lie, and the reader leaves without closing what it opened.

use std::io;
use std::time::{Duration, Instant};

use holdfast_sqlite::status;
use rusqlite::Connection;

use super::port::Port;
use super::{database, linked, pool_directory, system};
use crate::place::{Holder, Place, Pool, found};
use crate::words::Report;
use holdfast_types::Durability;

/// A database has room for them.
const RECORDS_MAX: u64 = 4000;
/// Records of the level `process` are cheap; one of another level comes after so many of them.
const CHEAP_IN_A_ROW: u64 = 2;
/// What lies in ordinary memory only is brought to the file after so many records.
const CHECKPOINT_EVERY: u64 = 24;
/// What the VFS tells of a pool that is gone, where a keeper saved it and where none did.
const NOTICES: [(&str, &str); 2] = [
    ("the database is as the keeper saved it", found::SAVED),
    ("the database is as of its last flush", found::LAST_FLUSH),
];
/// Between a false acknowledgement and the commit.
const EARLY_BY: Duration = Duration::from_millis(30);

struct Writer {
    place: Place,
    connection: Connection,
}

fn places(pool: Pool) -> impl Iterator<Item = Place> {
    Place::of(Holder::Database).filter(move |place| place.pool == pool)
}

/// Writes until it is killed, or all databases are full.
///
/// # Errors
/// In words, what failed.
pub fn write(pool: Pool, early: bool) -> Result<(), String> {
    let mut port = Port::open().map_err(|error| format!("no port to the host: {error}"))?;
    linked::set_up()?;
    std::fs::create_dir_all(database::directory()).map_err(|error| error.to_string())?;
    let mut writers = places(pool).map(open).collect::<Result<Vec<_>, _>>()?;
    if pool == Pool::Dax {
        system::check_mappings(&[std::process::id()], &pool_directory(pool))?;
    }
    loop {
        let mut idle = true;
        for writer in &mut writers {
            let in_a_row =
                if writer.place.level == Durability::Process { CHEAP_IN_A_ROW } else { 1 };
            for _ in 0..in_a_row {
                idle &= !writer.write_one(&mut port, early)?;
            }
        }
        if idle {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn open(place: Place) -> Result<Writer, String> {
    let said = |error| format!("{place}: {error}");
    let mut connection = database::open(place, &database::path(place)).map_err(said)?;
    database::prepare(&mut connection).map_err(said)?;
    Ok(Writer { place, connection })
}

impl Writer {
    /// Returns whether there was room for one.
    fn write_one(&mut self, port: &mut Port, early: bool) -> Result<bool, String> {
        let place = self.place;
        let said = |error: &dyn std::fmt::Display| format!("{place}: {error}");
        let number = database::count(&self.connection).map_err(|error| said(&error))? + 1;
        if number > RECORDS_MAX {
            return Ok(false);
        }
        let acknowledged = Report::Acknowledged { place, number };
        if early {
            port.say(&acknowledged)?;
            std::thread::sleep(EARLY_BY);
        }
        database::add(&mut self.connection, number).map_err(|error| said(&error))?;
        if !early {
            port.say(&acknowledged)?;
        }
        if place.level == Durability::Process && number.is_multiple_of(CHECKPOINT_EVERY) {
            database::checkpoint(&self.connection).map_err(|error| said(&error))?;
            port.say(&Report::Kept { place, number })?;
        }
        Ok(true)
    }
}

/// Opens every database of a pool, reports what is in it and how it was found, and leaves without
/// closing any.
///
/// # Errors
/// When the host cannot be reached.
pub fn verify(pool: Pool) -> Result<(), String> {
    let mut port = Port::open().map_err(|error| format!("no port to the host: {error}"))?;
    linked::set_up()?;
    for place in places(pool) {
        let report = look(place).unwrap_or_else(|what| Report::Broken { place, what });
        port.send_apart(&report).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn look(place: Place) -> Result<Report, String> {
    let path = database::path(place);
    let found = |number, opening, opened: &str| Report::Found {
        place,
        number,
        opening,
        opened: opened.to_owned(),
    };
    if !path.exists() {
        return Ok(found(0, Duration::ZERO, found::NEVER));
    }
    let was_marked = status(&path).map_err(|error| error.to_string())?.is_hot;
    let started = Instant::now();
    let connection = database::open(place, &path).map_err(|error| error.to_string())?;
    let opening = started.elapsed();
    let number = database::verify(&connection);
    // Neither closed nor dropped: see the module.
    std::mem::forget(connection);
    let told = linked::told();
    let number = number.map_err(|what| format!("{what}; the log says: {}", told.join("; ")))?;
    let notice = NOTICES.iter().find(|(notice, _)| told.iter().any(|text| text.contains(notice)));
    let opened = match notice {
        Some((_, opened)) => opened,
        None if was_marked => found::POOL,
        None => found::FILE,
    };
    Ok(found(number, opening, opened))
}

/// Removes every database, with what is beside it and in the pools.
///
/// # Errors
/// What the file system says.
pub fn forget() -> Result<(), String> {
    let missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    match std::fs::remove_dir_all(database::directory()) {
        Err(error) if !missing(&error) => return Err(format!("the databases: {error}")),
        _ => {}
    }
    for pool in Pool::ALL {
        let entries = match std::fs::read_dir(pool_directory(pool)) {
            Err(error) if missing(&error) => continue,
            other => other.map_err(|error| error.to_string())?,
        };
        let paths = entries.flatten().map(|entry| entry.path());
        for image in
            paths.filter(|path| path.extension().is_some_and(|extension| extension == "sqlite"))
        {
            std::fs::remove_file(&image)
                .map_err(|error| format!("{}: {error}", image.display()))?;
        }
    }
    Ok(())
}
