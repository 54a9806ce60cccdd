//! The caller of a native applet: has it note records in its heap, in memory that survives a reset,
//! and lists them afterwards. What the applet stores is its own; nothing commits for it.
//!
//! Invariants: as those of the other writers. A record is the text that follows from its number, so
//! the list tells whether all are there, and whole.

use std::path::Path;
use std::time::{Duration, Instant};

use holdfast_applet::{Applet, Call, Grants, Limits};
use holdfast_region::{Region, RegionError};

use super::port::Port;
use super::records::content;
use super::{key, names, pool_directory, region_name, system};
use crate::initramfs::APPLET;
use crate::place::{Holder, Place, found};
use crate::words::Report;

const LIMIT_BYTES: u64 = 16 << 20;
const RECORDS_MAX: u64 = 10_000;
/// A call is a message; there is time for the other writers.
const PAUSE: Duration = Duration::from_millis(8);
/// Between a false acknowledgement and the call.
const EARLY_BY: Duration = Duration::from_millis(30);
/// On a host that does other things, too.
const START_TIMEOUT: Duration = Duration::from_secs(90);
/// An applet ends some time after its host was killed.
const END_PATIENCE: Duration = Duration::from_secs(90);

/// Writes until it is killed.
///
/// # Errors
/// In words, what failed.
pub fn write(early: bool) -> Result<(), String> {
    let mut port = Port::open().map_err(|error| format!("no port to the host: {error}"))?;
    for place in Place::of(Holder::Applet) {
        let region = open(place, true)?.ok_or("a region that was to be made is not there")?;
        write_to(place, region, &mut port, early)?;
    }
    Ok(())
}

fn write_to(place: Place, region: Region, port: &mut Port, early: bool) -> Result<(), String> {
    let applet = spawn(region)?;
    let mut count = list(&applet)?.len() as u64;
    let applets = system::descendants(std::process::id()).map_err(|error| error.to_string())?;
    system::check_mappings(&applets, &pool_directory(place.pool))?;
    while count < RECORDS_MAX {
        let acknowledged = Report::Acknowledged { place, number: count + 1 };
        if early {
            port.say(&acknowledged)?;
            std::thread::sleep(EARLY_BY);
        }
        let answer = applet.call("add", &content(count + 1)).map_err(|error| error.to_string())?;
        count =
            String::from_utf8_lossy(&answer).parse().map_err(|_| "the applet answers no number")?;
        if !early {
            port.say(&acknowledged)?;
        }
        std::thread::sleep(PAUSE);
    }
    loop {
        std::thread::sleep(PAUSE);
    }
}

/// Opens every applet's heap, reports what is in it, and leaves without closing any.
///
/// # Errors
/// When the host cannot be reached.
pub fn verify() -> Result<(), String> {
    let mut port = Port::open().map_err(|error| format!("no port to the host: {error}"))?;
    for place in Place::of(Holder::Applet) {
        let report = look(place).unwrap_or_else(|what| Report::Broken { place, what });
        port.send_apart(&report).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn look(place: Place) -> Result<Report, String> {
    let started = Instant::now();
    let Some(region) = open(place, false)? else {
        let opened = found::NEVER.to_owned();
        return Ok(Report::Found { place, number: 0, opening: Duration::ZERO, opened });
    };
    let opened = format!("{:?}", region.opened());
    let applet = spawn(region)?;
    let opening = started.elapsed();
    let notes = list(&applet)?;
    // Neither closed nor dropped: see the module. It ends with this process.
    std::mem::forget(applet);
    for (note, number) in notes.iter().zip(1..) {
        if *note != content(number) {
            return Err(format!(
                "record {number} of {} has other bytes than were written",
                notes.len()
            ));
        }
    }
    Ok(Report::Found { place, number: notes.len() as u64, opening, opened })
}

/// `None` when there is none, and none is to be made.
fn open(place: Place, make: bool) -> Result<Option<Region>, String> {
    let (names, name) = (names(place.pool)?, region_name(place)?);
    let until = Instant::now() + END_PATIENCE;
    loop {
        let region = match make {
            true => names.open_or_create(&name, &key(), LIMIT_BYTES),
            false => names.open(&name, &key()),
        };
        match region {
            Ok(region) => return Ok(Some(region)),
            Err(RegionError::NotFound { .. }) => return Ok(None),
            Err(RegionError::Held { .. }) if Instant::now() < until => std::thread::sleep(PAUSE),
            Err(error) => return Err(format!("{place}: {error}")),
        }
    }
}

fn spawn(region: Region) -> Result<Applet, String> {
    let program = Path::new("/").join(APPLET);
    let mut limits = Limits::default();
    limits.start_timeout = START_TIMEOUT;
    let applet = Applet::spawn(program, limits, Grants::none().heap(region));
    applet.map_err(|error| {
        format!(
            "the applet does not start: {error}; it says: {}",
            String::from_utf8_lossy(&error.stderr)
        )
    })
}

/// Every note, the oldest first.
fn list(applet: &Applet) -> Result<Vec<Vec<u8>>, String> {
    let said =
        |error: &dyn std::fmt::Display| format!("the applet does not list its notes: {error}");
    let stream = applet.stream(Call::new("list", b"")).map_err(|error| said(&error))?;
    let parts = stream.map(|part| part.map(|part| part.bytes)).collect::<Result<Vec<_>, _>>();
    parts.map_err(|error| said(&error))
}
