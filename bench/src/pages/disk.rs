//! Opening a page from a disk of which nothing is in memory, as after a restart: from its source,
//! or from what was kept on the same disk; on disks of several speeds. And what a kept page takes
//! there.
//!
//! Invariants: source, cache and pool are on a device of our own that is taken away and put back
//! before each opening, so each byte of them comes from it; the program itself stays in memory. The
//! pictures of all openings of a page are the same.

use std::fs;
use std::io::{self, Error};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::list::{self, Page};
use super::ours::{COLD, Opened, PageProgram, WARM, fresh};
use crate::device::{Device, Rates};
use crate::heap::ground::Ground;
use crate::report::Outcome;
use crate::stats::Series;

/// A kind of disk, and what it reads in a second: bytes, and pieces that do not follow each other.
struct Profile {
    name: &'static str,
    read_bytes: u64,
    reads: u64,
}

/// Data sheets of the cheaper ones.
const PROFILES: [Profile; 3] = [
    Profile { name: "emmc", read_bytes: 150_000_000, reads: 5_000 },
    Profile { name: "sata_ssd", read_bytes: 500_000_000, reads: 50_000 },
    Profile { name: "hdd", read_bytes: 120_000_000, reads: 120 },
];
/// Every so many pages of the collection.
const COLLECTION_STEP: usize = 8;

/// What openings of one page on one disk came to.
#[derive(Debug, Default)]
struct Found {
    source_ms: Series,
    kept_ms: Series,
    source_bytes: Series,
    kept_bytes: Series,
}

impl Found {
    fn saving(&self) -> Series {
        self.kept_ms.over(&self.source_ms).map(|ratio| (1.0 - ratio) * 100.0)
    }
}

/// Runs the section.
pub(super) fn run(
    ground: &Ground,
    pages: &[Page],
    runs: usize,
    outcome: &mut Outcome,
) -> io::Result<()> {
    let mut device = match Device::new(&ground.on_disk("device")?)? {
        Ok(device) => device,
        Err(reason) => {
            outcome.missing.push(format!("a disk of one's own: {reason}"));
            return Ok(());
        }
    };
    if let Err(reason) = device.slow_down(&PROFILES[0].rates()).map(drop) {
        outcome.missing.push(format!("disks of other speeds: {reason}"));
        return Ok(());
    }
    // Without the collection there are the others.
    let articles = list::collection().map_or_else(|_| Vec::new(), |(articles, _)| articles);
    let articles = articles.iter().step_by(COLLECTION_STEP);
    let ours = PageProgram::find()?;
    let picture = ground.in_memory("pictures")?.join("page.png");
    let mut bench = Bench { ours: &ours, device: &mut device, picture };
    let site = bench.device.directory("site")?;
    let (mut all, mut sizes) = (PROFILES.map(|_| Vec::new()), Vec::new());
    let mut told = [0_usize; 2];
    for (kind, page) in
        pages.iter().map(|page| (0, page)).chain(articles.map(|article| (1, article)))
    {
        match bench.page(&site, page, super::fewer(runs)) {
            Ok((found, kept_bytes)) => {
                all.iter_mut().zip(found).for_each(|(all, found)| all.push(found));
                sizes.push((page.name, kept_bytes as f64 / page.source.len() as f64));
                told[kind] += 1;
            }
            Err(error) => {
                outcome.missing.push(format!("the page {} on a disk: {error}", page.name))
            }
        }
    }
    let [documentation, articles] = told;
    outcome.note(format!("disks: {documentation} pages of documentation, {articles} articles"));
    tell(&all, &sizes, outcome);
    Ok(())
}

impl Profile {
    fn rates(&self) -> Rates {
        Rates { read_bytes: Some(self.read_bytes), reads: Some(self.reads), ..Rates::default() }
    }
}

struct Bench<'a> {
    ours: &'a PageProgram,
    device: &'a mut Device,
    picture: PathBuf,
}

impl Bench<'_> {
    /// What was found on each disk, and the bytes of the kept page on it.
    fn page(
        &mut self,
        site: &Path,
        page: &Page,
        rounds: usize,
    ) -> io::Result<([Found; PROFILES.len()], u64)> {
        copy_with_resources(page, site)?;
        let path = site.join(page.path);
        let address = path.to_str().ok_or_else(|| Error::other("its path is no text"))?;
        let cache = self.device.directory("cache")?;
        let empty_bytes = {
            fresh(&cache)?;
            stored_bytes(&cache)?
        };
        let picture = self.ours.open(address, &[], &cache, &self.picture)?.served(COLD)?.picture;
        let kept_bytes = stored_bytes(&cache)?.saturating_sub(empty_bytes);
        let mut found: [Found; PROFILES.len()] = Default::default();
        for round in 0..rounds {
            for (profile, found) in PROFILES.iter().zip(&mut found) {
                for turn in 0..2 {
                    let is_kept = (round + turn) % 2 == 1;
                    let (opened, bytes) = self.once(profile, address, &cache, is_kept)?;
                    if opened.picture != picture {
                        return Err(Error::other("its pictures differ"));
                    }
                    let (ms, read) = match is_kept {
                        true => (&mut found.kept_ms, &mut found.kept_bytes),
                        false => (&mut found.source_ms, &mut found.source_bytes),
                    };
                    ms.push(opened.pixels_ms);
                    read.push(bytes as f64);
                }
            }
        }
        Ok((found, kept_bytes))
    }

    fn once(
        &mut self,
        profile: &Profile,
        address: &str,
        cache: &Path,
        is_kept: bool,
    ) -> io::Result<(Opened, u64)> {
        self.device.forget()?;
        let _limit = self.device.slow_down(&profile.rates()).map_err(Error::other)?;
        let before = self.device.read_bytes()?;
        let (options, tier): (&[&str], &str) =
            if is_kept { (&[], WARM) } else { (&["--no-cache"], COLD) };
        let opened = self.ours.open(address, options, cache, &self.picture)?.served(tier)?;
        Ok((opened, self.device.read_bytes()? - before))
    }
}

/// Copies a page, and what else its package has and is no page, unless it is there.
fn copy_with_resources(page: &Page, site: &Path) -> io::Result<()> {
    let path = Path::new(page.path);
    // `usr/share/doc/NAME`, or `usr/share/NAME`, is a package; an article has nothing beside it.
    let package: PathBuf = path.parent().unwrap_or(path).components().take(4).collect();
    if path.starts_with("usr") && !site.join(&package).exists() {
        copy(&list::site().join(&package), &site.join(&package))?;
    }
    let place = site.join(path);
    fs::create_dir_all(place.parent().unwrap_or(site))?;
    fs::write(place, &page.source)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        // What links lead to counts, as for the page; some lead nowhere.
        let Ok(kind) = fs::metadata(&from) else { continue };
        if kind.is_dir() {
            copy(&from, &to)?;
        } else if from.extension().is_none_or(|extension| extension != "html") {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

/// Bytes that the files below a directory take on the disk.
fn stored_bytes(directory: &Path) -> io::Result<u64> {
    const BLOCK_BYTES: u64 = 512;
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() {
            stored_bytes(&entry.path())?
        } else {
            metadata.blocks() * BLOCK_BYTES
        };
    }
    Ok(bytes)
}

fn tell(all: &[Vec<Found>; PROFILES.len()], sizes: &[(&str, f64)], outcome: &mut Outcome) {
    if sizes.is_empty() {
        return;
    }
    for (profile, all) in PROFILES.iter().zip(all) {
        let mut medians = |key: &str, unit, value: &dyn Fn(&Found) -> Series| {
            let medians = all.iter().map(|found| value(found).median()).collect();
            outcome.add(format!("{key}/{}", profile.name), Some(medians), unit, None);
        };
        medians("disk_saving_pct", "%", &Found::saving);
        medians("disk_start_to_pixels_ms/source", "ms", &|found| found.source_ms.clone());
        medians("disk_start_to_pixels_ms/kept", "ms", &|found| found.kept_ms.clone());
        medians("disk_read_kb/source", "KB", &|found| found.source_bytes.map(|bytes| bytes / 1e3));
        medians("disk_read_kb/kept", "KB", &|found| found.kept_bytes.map(|bytes| bytes / 1e3));
    }
    let key = "kept_bytes_per_source_byte";
    outcome.add(key, Some(sizes.iter().map(|(_, ratio)| *ratio).collect()), "x", None);
    for (name, ratio) in sizes {
        outcome.add(format!("{key}/{name}"), Some(Series::from_iter([*ratio])), "x", None);
    }
}
