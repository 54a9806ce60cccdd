//! Measures emergency work: rescue copies of dirty images, against a plain sequential write and
//! `fdatasync` of as many bytes to the same disk.
//!
//! Every image was stored to on every page by a program that was killed, so nothing can be left
//! out. Both sides write new files: those of the round before are removed outside the measured
//! time, ours after it, as the keeper does.

use std::fs::{self, File};
use std::io::{self, Error, Write};
use std::time::Instant;

use holdfast_keeper::{Cause, Config, Keeper};
use holdfast_region::{RegionName, Replaced, Rescue};

use crate::heap::ground::{Ground, Home, Store, name};
use crate::heap::raw::RawRegion;
use crate::race::{Side, Times, race};
use crate::stats::Series;
use crate::timing::ms_since;

/// The sides.
pub(super) const RESCUE: &str = "rescue copies";
pub(super) const SEQUENTIAL: &str = "sequential write";

/// Milliseconds for `images` of `image_bytes` each.
pub(super) fn run(
    ground: &Ground,
    rounds: usize,
    images: usize,
    image_bytes: u64,
) -> io::Result<Times> {
    let home = ground.home(Store::Disk)?;
    let (regions, bytes) = fill(&home, images, image_bytes)?;
    let path = ground.on_disk("sequential")?.join("file");
    let rescue = Side::new(RESCUE, || {
        for (_, text) in &regions {
            make_dirty(&home, text)?;
        }
        let mut replaced = Replaced::default();
        let started = Instant::now();
        copy_all(&home, regions.iter().map(|(region, _)| region), image_bytes, &mut replaced)?;
        Ok(ms_since(started))
    });
    let sequential = Side::new(SEQUENTIAL, || {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let started = Instant::now();
        let mut file = File::create(&path)?;
        for piece in bytes.chunks(1 << 20) {
            file.write_all(piece)?;
        }
        file.sync_data()?;
        Ok(ms_since(started))
    });
    race(rounds, vec![rescue, sequential])
}

/// By how much, in percent of what they took, the keeper was wrong about the time of the same
/// copies. It has measured the disk, and learns from each flush, as it does at work.
pub(super) fn budget_error(
    ground: &Ground,
    rounds: usize,
    images: usize,
    image_bytes: u64,
) -> io::Result<Series> {
    let home = ground.home(Store::Disk)?;
    let (regions, _) = fill(&home, images, image_bytes)?;
    let mut keeper =
        Keeper::new(home.names.places().clone(), Config::default()).map_err(Error::other)?;
    let mut errors = Series::default();
    for round in 0..=rounds {
        for (_, text) in &regions {
            make_dirty(&home, text)?;
        }
        let started = Instant::now();
        let report = keeper.flush(Cause::Asked);
        let taken_ms = ms_since(started);
        if report.saved.len() != images {
            return Err(Error::other(format!("a flush left heaps: {:?}", report.left)));
        }
        let planned = report.budget.time_for(images as u32, report.saved_bytes());
        if round > 0 {
            errors.push((planned.as_secs_f64() * 1e3 - taken_ms).abs() / taken_ms * 100.0);
        }
    }
    Ok(errors)
}

/// A heap, by its name and by the text of that.
type Filled = (RegionName, String);

/// Heaps with something on every page, and what that is.
fn fill(home: &Home, images: usize, image_bytes: u64) -> io::Result<(Vec<Filled>, Vec<u8>)> {
    let (mut regions, mut bytes) = (Vec::new(), Vec::new());
    for number in 0..images {
        let text = format!("image-{number}");
        let mut region = RawRegion::create(home, &text, image_bytes)?;
        region.checkpoint()?;
        bytes.extend(region.dirty_pages(1));
        region.close()?;
        regions.push((name(&text)?, text));
    }
    Ok((regions, bytes))
}

/// Stores to every page and goes like a killed program.
fn make_dirty(home: &Home, text: &str) -> io::Result<()> {
    let mut region = RawRegion::open(home, text)?;
    region.dirty(1);
    region.abandon();
    Ok(())
}

fn copy_all<'a>(
    home: &Home,
    regions: impl Iterator<Item = &'a RegionName>,
    image_bytes: u64,
    replaced: &mut Replaced,
) -> io::Result<()> {
    for rescued in home.names.rescue_each(regions.map(|region| (region, None)), |_| true, replaced)
    {
        match rescued.map_err(Error::other)? {
            Rescue::Written { bytes } if bytes == image_bytes => {}
            other => {
                return Err(Error::other(format!(
                    "instead of {image_bytes} bytes a copy did: {other:?}"
                )));
            }
        }
    }
    Ok(())
}
