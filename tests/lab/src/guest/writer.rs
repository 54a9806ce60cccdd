//! The writer of records in heaps, and their reader: each a process of its own, since both may be
//! opened after any failure.
//!
//! Invariants: the writer acknowledges a record after the commit at its level has returned (before
//! it, if it is to lie). The reader leaves without closing what it opened, so that the next failure
//! does not begin with heaps in order.

use std::time::{Duration, Instant};

use holdfast_heap::Heap;
use holdfast_native_heap::{HeapRegion, RegionBacking, open_heap};
use holdfast_region::RegionError;

use super::port::Port;
use super::{key, names, pool_directory, records, region_name, system};
use crate::place::{Holder, Place, Pool, found};
use crate::words::Report;
use holdfast_types::Durability;

const LIMIT_BYTES: u64 = 16 << 20;
/// A heap has room for them.
const RECORDS_MAX: u64 = 15_000;
/// Records of the level `process` are cheap; one of another level comes after so many of them.
const CHEAP_IN_A_ROW: u64 = 4;
/// Between a false acknowledgement and the commit.
const EARLY_BY: Duration = Duration::from_millis(30);

struct Writer {
    place: Place,
    heap: Heap<RegionBacking>,
    region: HeapRegion,
}

/// Writes until it is killed, or all heaps are full.
///
/// # Errors
/// In words, what failed.
pub fn write(early: bool) -> Result<(), String> {
    let mut port = Port::open().map_err(|error| format!("no port to the host: {error}"))?;
    let mut writers = Place::of(Holder::Heap).map(open).collect::<Result<Vec<_>, _>>()?;
    system::check_mappings(&[std::process::id()], &pool_directory(Pool::Dax))?;
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

impl Writer {
    /// Returns whether there was room for one.
    fn write_one(&mut self, port: &mut Port, early: bool) -> Result<bool, String> {
        let said = |error: &dyn std::fmt::Display| format!("{}: {error}", self.place);
        let number = records::count(&mut self.heap).map_err(|error| said(&error))? + 1;
        if number > RECORDS_MAX {
            return Ok(false);
        }
        let acknowledged = Report::Acknowledged { place: self.place, number };
        if early {
            port.say(&acknowledged)?;
            std::thread::sleep(EARLY_BY);
        }
        records::add(&mut self.heap).map_err(|error| said(&error))?;
        self.region.commit(self.place.level).map_err(|error| said(&error))?;
        if !early {
            port.say(&acknowledged)?;
        }
        Ok(true)
    }
}

/// `None` when this pool has no such level.
fn open(place: Place) -> Result<Writer, String> {
    let said = |error: &dyn std::fmt::Display| format!("{place}: {error}");
    let (names, name) = (names(place.pool)?, region_name(place)?);
    let region = names.open_or_create(&name, &key(), LIMIT_BYTES).map_err(|error| said(&error))?;
    let (heap, region) = open_heap(region).map_err(|error| said(&error))?;
    region.commit(place.level).map_err(|error| said(&error))?;
    Ok(Writer { place, heap, region })
}

/// Opens every heap that there is, reports what is in it, and leaves without closing any.
///
/// # Errors
/// When the host cannot be reached.
pub fn verify() -> Result<(), String> {
    let mut port = Port::open().map_err(|error| format!("no port to the host: {error}"))?;
    for place in Place::of(Holder::Heap) {
        let report = look(place).unwrap_or_else(|what| Report::Broken { place, what });
        port.send_apart(&report).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn look(place: Place) -> Result<Report, String> {
    let (names, name) = (names(place.pool)?, region_name(place)?);
    let started = Instant::now();
    let region = match names.open(&name, &key()) {
        Ok(region) => region,
        Err(RegionError::NotFound { .. }) => {
            return Ok(Report::Found {
                place,
                number: 0,
                opening: started.elapsed(),
                opened: found::NEVER.to_owned(),
            });
        }
        Err(error) => return Err(error.to_string()),
    };
    let opened = format!("{:?}", region.opened());
    let (mut heap, region) = open_heap(region).map_err(|error| error.to_string())?;
    let opening = started.elapsed();
    let number = records::verify(&mut heap)?;
    drop(heap.close());
    let findings = region.with(|region| records::findings(region))?;
    // Neither closed nor dropped: see the module.
    std::mem::forget(region);
    match findings.first() {
        None => Ok(Report::Found { place, number, opening, opened }),
        Some(finding) => {
            Err(format!("the checker has {} findings, such as {finding}", findings.len()))
        }
    }
}

/// Removes every heap, those of applets, too.
///
/// # Errors
/// What the file system says.
pub fn forget() -> Result<(), String> {
    for place in Place::of(Holder::Heap).chain(Place::of(Holder::Applet)) {
        let (names, name) = (names(place.pool)?, region_name(place)?);
        match names.remove(&name, &key()) {
            Ok(()) | Err(RegionError::NotFound { .. }) => {}
            Err(error) => return Err(format!("{place}: {error}")),
        }
    }
    Ok(())
}
