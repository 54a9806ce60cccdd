//! Measures opening a heap: warm, from an image of 1 GiB in memory, and cold, from a checkpoint of
//! 256 MiB, against `cp` of that checkpoint's file to the same directory.
//!
//! Both sides of the cold race read a file that the page cache holds and write new pages of the
//! same tmpfs.

use std::fs;
use std::io;
use std::process::Command;
use std::time::Instant;

use holdfast_region::Opened;

use super::ground::{Ground, Store, name};
use super::live::{LiveHeap, heap_error};
use super::raw::RawRegion;
use crate::race::{Side, Times, race};
use crate::stats::Series;
use crate::timing::ms_since;
use crate::warm_open;

const WARM_BYTES: u64 = 1 << 30;
const FILL_BYTES: u64 = 1 << 20;
const COLD_BYTES: u64 = 256 << 20;
/// The sides of the cold race.
pub(crate) const COLD: &str = "cold open";
pub(crate) const CP: &str = "cp";

/// Milliseconds from the name to a pointer, in a heap of 1 GiB that is backed and filled.
pub(crate) fn warm(ground: &Ground, count: usize) -> io::Result<Series> {
    let home = ground.home(Store::Memory)?;
    let mut live = LiveHeap::create(&home, WARM_BYTES)?;
    live.heap.create_root("root", 64).map_err(heap_error)?;
    // Until nothing fits any more; large objects first, then what is left between them.
    for bytes in [FILL_BYTES, FILL_BYTES / 16, 4096] {
        while let Ok(object) = live.heap.alloc(bytes) {
            // SAFETY: a new object of that size, of which nothing else knows.
            unsafe { object.write_bytes(0xA5, bytes as usize) };
        }
    }
    if live.backed_bytes() != WARM_BYTES {
        return Err(io::Error::other(format!("only {} bytes are backed", live.backed_bytes())));
    }
    let heap = live.close()?;
    warm_open::measure(&home.names, heap, "default", count)
}

/// Milliseconds of both ways from the store to the pool.
pub(crate) fn cold(ground: &Ground, rounds: usize) -> io::Result<Times> {
    const NAME: &str = "cold";
    let home = ground.home(Store::Disk)?;
    let region = RawRegion::create(&home, NAME, COLD_BYTES)?;
    region.close()?;
    let copies = ground.in_memory("copies")?;
    let copy = copies.join("copy");
    let region_name = name(NAME)?;
    let open = Side::new(COLD, || {
        fs::remove_file(home.image(NAME))?;
        let started = Instant::now();
        let region = home.names.open(&region_name, &home.key).map_err(io::Error::other)?;
        let taken_ms = ms_since(started);
        if region.opened() != Opened::Cold {
            return Err(io::Error::other(format!("the region was opened {:?}", region.opened())));
        }
        region.close().map_err(io::Error::other)?;
        Ok(taken_ms)
    });
    let cp = Side::new(CP, || {
        let started = Instant::now();
        let status = Command::new("cp").arg(home.base(NAME)).arg(&copy).status()?;
        let taken_ms = ms_since(started);
        if !status.success() || fs::metadata(&copy)?.len() != fs::metadata(home.base(NAME))?.len() {
            return Err(io::Error::other(
                "cp did not copy the whole file; is there room in /dev/shm?",
            ));
        }
        fs::remove_file(&copy)?;
        Ok(taken_ms)
    });
    race(rounds, vec![open, cp])
}
