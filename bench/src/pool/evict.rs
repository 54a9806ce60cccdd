//! Making room: an image that no process holds goes out of the pool, and comes back when it is
//! opened again.
//!
//! The image was closed in order, or its program was killed after it had stored to every page: then
//! everything is written before. What is in the store is read and verified each time, from the page
//! cache.

use std::io::{self, Error};
use std::time::Instant;

use holdfast_region::Opened;

use crate::heap::ground::{Ground, Store, name};
use crate::heap::raw::RawRegion;
use crate::stats::Series;
use crate::timing::ms_since;

const IMAGE_BYTES: u64 = 32 << 20;
const NAME: &str = "evicted";

/// Milliseconds for each MiB of the image.
#[derive(Default)]
pub(super) struct Evictions {
    /// Out of the pool, clean.
    pub(super) clean: Series,
    /// Out of the pool, all dirty.
    pub(super) dirty: Series,
    /// Back into it.
    pub(super) reopen: Series,
    /// Out, clean, and back.
    pub(super) both: Series,
}

pub(super) fn run(ground: &Ground, rounds: usize) -> io::Result<Evictions> {
    let home = ground.home(Store::Disk)?;
    let mut region = RawRegion::create(&home, NAME, IMAGE_BYTES)?;
    region.checkpoint()?;
    region.close()?;
    let name = name(NAME)?;
    let per_mib = |started| ms_since(started) / (IMAGE_BYTES >> 20) as f64;
    let mut found = Evictions::default();
    for round in 0..=rounds {
        let out = || {
            let started = Instant::now();
            let report = home.names.evict(&name).map_err(Error::other)?;
            let taken = per_mib(started);
            if report.freed_bytes < IMAGE_BYTES {
                return Err(Error::other(format!(
                    "an eviction freed {} bytes only",
                    report.freed_bytes
                )));
            }
            Ok(taken)
        };
        let clean = out()?;
        let started = Instant::now();
        let region = home.names.open(&name, &home.key).map_err(Error::other)?;
        let reopen = per_mib(started);
        if region.opened() != Opened::Cold {
            return Err(Error::other(format!(
                "an evicted region was opened {:?}",
                region.opened()
            )));
        }
        region.close().map_err(Error::other)?;
        let mut region = RawRegion::open(&home, NAME)?;
        region.dirty(1);
        region.abandon();
        let dirty = out()?;
        home.names
            .open(&name, &home.key)
            .and_then(|region| region.close())
            .map_err(Error::other)?;
        // The first round warms caches.
        if round > 0 {
            found.clean.push(clean);
            found.dirty.push(dirty);
            found.reopen.push(reopen);
            found.both.push(clean + reopen);
        }
    }
    Ok(found)
}
