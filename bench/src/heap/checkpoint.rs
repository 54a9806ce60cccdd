//! Checkpoints: 64 MiB of dirty pages against a plain sequential write and `fdatasync` of the same
//! bytes to the same disk; the bytes that are written for 1 MiB of dirty pages; and sessions that
//! end with their first commit, in which no tracker noticed what changed, against a plain write of
//! the whole region.
//!
//! What is written is what the kernel counts for this process (`write_bytes` in `/proc/self/io`),
//! whatever the region does; writes to tmpfs are not counted.

use std::fs::{self, File};
use std::io::{self, Error, Write};
use std::time::Instant;

use procfs::process::Process;

use super::ground::{Ground, Home, Store};
use super::raw::RawRegion;
use crate::race::{Side, Times, race};
use crate::stats::Series;
use crate::timing::ms_since;

/// The region in which some pages are dirty.
const REGION_BYTES: u64 = 256 << 20;
/// Every so many pages one is dirty: 64 MiB of 256 MiB.
const FOURTH: usize = 4;
/// 1 MiB of 256 MiB.
const FEW: usize = 256;
/// The region in which all are.
const WHOLE_BYTES: u64 = 64 << 20;

/// The sides.
pub(crate) const CHECKPOINT: &str = "checkpoint";
pub(crate) const SEQUENTIAL: &str = "sequential write";
pub(crate) const SHORT_SESSION: &str = "close of a short session";
pub(crate) const KILLED_SESSION: &str = "commit after a kill";

/// What was measured.
pub(crate) struct Checkpoints {
    /// Milliseconds for 64 MiB of dirty pages all over 256 MiB.
    pub(crate) partial: Times,
    /// Milliseconds for a region of 64 MiB in which every page is dirty.
    pub(crate) whole: Times,
    /// Bytes written for each dirty byte, for 1 MiB all over 256 MiB.
    pub(crate) amplification: Series,
    /// Milliseconds to bring 1 MiB all over 256 MiB to the store that was stored in a session that
    /// closes then, or in one that was killed; and to write 256 MiB.
    pub(crate) unnoticed: Times,
}

pub(crate) fn run(ground: &Ground, rounds: usize) -> io::Result<Checkpoints> {
    let home = ground.home(Store::Disk)?;
    let mut region = RawRegion::create(&home, "partial", REGION_BYTES)?;
    region.checkpoint()?;
    let amplification =
        (0..rounds).map(|_| amplification(&mut region)).collect::<io::Result<_>>()?;
    let partial = against_sequential(ground, rounds, &mut region, FOURTH)?;
    region.close()?;
    let unnoticed = unnoticed(ground, rounds, &home)?;
    let mut region = RawRegion::create(&home, "whole", WHOLE_BYTES)?;
    region.checkpoint()?;
    let whole = against_sequential(ground, rounds, &mut region, 1)?;
    region.close()?;
    Ok(Checkpoints { partial, whole, amplification, unnoticed })
}

fn against_sequential(
    ground: &Ground,
    rounds: usize,
    region: &mut RawRegion,
    step: usize,
) -> io::Result<Times> {
    let bytes = region.dirty_pages(step);
    let path = ground.on_disk("sequential")?.join("file");
    let checkpoint = Side::new(CHECKPOINT, || {
        region.dirty(step);
        let started = Instant::now();
        region.checkpoint()?;
        Ok(ms_since(started))
    });
    // What is written stays for as long as the journal keeps it, or the page cache would be warm
    // for this side only.
    let mut file = File::create(&path)?;
    let sequential = Side::new(SEQUENTIAL, || {
        if file.metadata()?.len() > REGION_BYTES {
            fs::remove_file(&path)?;
            file = File::create(&path)?;
        }
        let started = Instant::now();
        for piece in bytes.chunks(1 << 20) {
            file.write_all(piece)?;
        }
        file.sync_data()?;
        Ok(ms_since(started))
    });
    race(rounds, vec![checkpoint, sequential])
}

fn unnoticed(ground: &Ground, rounds: usize, home: &Home) -> io::Result<Times> {
    let path = ground.on_disk("sequential")?.join("file");
    let short = Side::new(SHORT_SESSION, || {
        let mut region = RawRegion::open(home, "partial")?;
        region.dirty(FEW);
        let started = Instant::now();
        region.close()?;
        Ok(ms_since(started))
    });
    let killed = Side::new(KILLED_SESSION, || {
        let mut region = RawRegion::open(home, "partial")?;
        region.dirty(FEW);
        region.abandon();
        let mut region = RawRegion::open(home, "partial")?;
        let started = Instant::now();
        region.checkpoint()?;
        let taken_ms = ms_since(started);
        region.close()?;
        Ok(taken_ms)
    });
    let bytes = RawRegion::open(home, "partial")?.dirty_pages(1);
    let sequential = Side::new(SEQUENTIAL, || {
        let mut file = File::create(&path)?;
        let started = Instant::now();
        for piece in bytes.chunks(1 << 20) {
            file.write_all(piece)?;
        }
        file.sync_data()?;
        let taken_ms = ms_since(started);
        fs::remove_file(&path)?;
        Ok(taken_ms)
    });
    race(rounds, vec![short, killed, sequential])
}

fn amplification(region: &mut RawRegion) -> io::Result<f64> {
    let dirty_bytes = region.dirty(FEW);
    let before = written_bytes()?;
    region.checkpoint()?;
    Ok((written_bytes()? - before) as f64 / dirty_bytes as f64)
}

/// What this process has caused to be written to disks.
fn written_bytes() -> io::Result<u64> {
    let counts = Process::myself().and_then(|own| own.io()).map_err(Error::other)?;
    Ok(counts.write_bytes)
}
