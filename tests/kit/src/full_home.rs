//! A home that has everything that a home can have, and the commands that read or change it: for
//! tests and fuzzing that damage its files.
//!
//! Invariant: heaps are made through regions, as programs make them, so the files are of the format
//! that the code has.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use holdfast_heap::{Heap, OpenOptions, Pointers};
use holdfast_region::{
    Consistency, Durability, Grant, KeyFingerprint, NameSpace, OwnerKey, Places, Region,
    RegionName, Rights,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::TestMemory;
use crate::sealed::Home;

const MIB: u64 = 1 << 20;
const PAGE_BYTES: usize = 4096;
const POINTERS: OpenOptions =
    OpenOptions { pointers: Some(Pointers { base: 1 << 31, bytes: 4 }), format_if_empty: true };

/// Commands after `holdfast` that change nothing. Those in [`PLAIN_LOOKS`] have no `--json`.
pub const LOOKS: [&str; 19] = [
    "heap ls",
    "heap show words",
    "heap show spare",
    "heap show words+one",
    "heap check --all",
    "heap check words",
    "heap stats words",
    "heap leaks words",
    "heap map words",
    "heap diff words monday",
    "heap diff words monday tuesday",
    "heap snapshots words",
    "heap grants words",
    "heap keys",
    "heap tidy",
    "heap salvage IMAGE",
    "heap salvage BASE",
    "heap salvage SNAPSHOT",
    "keeper status",
];

/// Commands that change nothing, in their only form.
pub const PLAIN_LOOKS: [&str; 3] = [
    "heap export words FILES/out.holdfast",
    "heap map words --svg FILES/out.svg",
    "keeper metrics",
];

/// Commands that change something.
pub const CHANGES: [&str; 23] = [
    "heap repair words --json",
    "heap repair words --accept-loss",
    "heap repair spare --accept-loss --json",
    "heap checkpoint words --json",
    "heap checkpoint words+one spare",
    "heap snapshot words now --json",
    "heap restore words monday --json",
    "heap restore words tuesday --discard",
    "heap cp words copy --json",
    "heap cp spare copy",
    "heap import FILES/words.holdfast third --json",
    "heap salvage IMAGE --to saved --json",
    "heap salvage BASE --to saved",
    "heap salvage SNAPSHOT --to saved",
    "heap limit words 16MiB",
    "heap grant words --to other --rw",
    "heap revoke words --all",
    "heap backing words file",
    "heap rm --image words",
    "heap rm --damaged words",
    "heap rm words --compartments",
    "heap rm --snapshot monday words",
    "heap tidy --yes --keep 0s",
];

/// Such a home.
#[derive(Debug)]
pub struct FullHome {
    home: Home,
    places: Places,
    files: PathBuf,
}

impl FullHome {
    /// Its files, as they were.
    #[must_use]
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Makes it where `places` say, with an exported stream in `files`: a heap `words`, whose
    /// writer died after a commit, with two snapshots, a compartment and a grant; a heap `spare`,
    /// which is in the store only.
    ///
    /// # Errors
    /// What the file system or the regions say.
    pub fn make(places: &Places, files: &Path) -> io::Result<FullHome> {
        std::fs::create_dir_all(files)?;
        make_heaps(places, files).map_err(io::Error::other)?;
        let image = places.pool().join("words.image");
        std::fs::write(places.pool().join("words.redo"), redo_log(&std::fs::read(&image)?))?;
        std::fs::write(places.home().join("keeper-bandwidth"), "100000000 500\n")?;
        std::fs::write(places.pool().join(".stopped"), "1 1\n")?;
        std::fs::write(places.pool().join("spare.lock"), format!("{:<31}\n", "1 1"))?;
        let home = Home::record(&[places.home(), places.pool(), files])?;
        Ok(FullHome { home, places: places.clone(), files: files.to_owned() })
    }

    /// The image of `words`.
    #[must_use]
    pub fn image(&self) -> PathBuf {
        self.places.pool().join("words.image")
    }

    /// The words of a command above, the program's name first.
    #[must_use]
    pub fn arguments(&self, command: &str) -> Vec<std::ffi::OsString> {
        let word = |word: &str| match word {
            "IMAGE" => self.image().into_os_string(),
            "BASE" => self.places.store().join("words.base").into_os_string(),
            "SNAPSHOT" => self.places.store().join("snapshots/words/monday.base").into_os_string(),
            word => match word.strip_prefix("FILES/") {
                Some(file) => self.files.join(file).into_os_string(),
                None => word.into(),
            },
        };
        std::iter::once("holdfast".into()).chain(command.split(' ').map(word)).collect()
    }
}

fn make_heaps(
    places: &Places,
    files: &Path,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let names = NameSpace::new(places.clone());
    let key = OwnerKey::load_or_create(places, "default")?;
    let reader = OwnerKey::load_or_create(places, "reader")?;
    let (words, spare) = (RegionName::parse("words")?, RegionName::parse("spare")?);
    for name in [&words, &spare] {
        fill(&names, name, &key, 0)?.close()?;
    }
    names.remove_image(&spare, &key)?;
    names.open_compartment(&words, &RegionName::parse("one")?, &key, MIB)?.close()?;
    let other = KeyFingerprint::from_bytes(reader.fingerprint());
    names.grant(
        &words,
        &key,
        Grant::new(other, Some(RegionName::parse("reader")?), Rights::Read),
    )?;
    names.snapshot(&words, &key, &RegionName::parse("monday")?)?;
    fill(&names, &words, &key, 1)?.close()?;
    names.snapshot(&words, &key, &RegionName::parse("tuesday")?)?;
    let mut stream = File::create(files.join("words.holdfast"))?;
    names.open_read(&words)?.export(&mut stream)?;
    let mut region = fill(&names, &words, &key, 2)?;
    region.commit(Durability::Power)?;
    region.copy_in(800_000, b"stored since the last commit")?;
    region.publish()?;
    names.rescue_if_quiet(&words)?;
    // As if its process had been killed.
    drop(region);
    Ok(())
}

/// The region, opened or made, with a heap in it: which one, says `number`.
fn fill(
    names: &NameSpace,
    name: &RegionName,
    key: &OwnerKey,
    number: u64,
) -> Result<Region, Box<dyn std::error::Error + Send + Sync>> {
    let mut region = names.open_or_create(name, key, 8 * MIB)?;
    let mut heap = Heap::open(TestMemory::new(MIB), POINTERS)?;
    for index in 0..8 + number {
        heap.create_root(&format!("root {index}"), 24 + 100 * (index % 3))?;
    }
    heap.alloc(70_000)?;
    if number == 2 {
        heap.begin()?;
        heap.create_root("in flight", 500)?;
    }
    let bytes = heap.backing().bytes().to_vec();
    // Closing it would be refused in a transaction.
    std::mem::forget(heap);
    region.set_consistency(Consistency::Atomic)?;
    region.map_native()?;
    for (page, offset) in bytes.chunks(PAGE_BYTES).zip((0..).step_by(PAGE_BYTES)) {
        let mut old = vec![0; page.len()];
        region.read_at(offset, &mut old)?;
        if old != page {
            region.copy_in(offset, page)?;
        }
    }
    region.publish()?;
    Ok(region)
}

/// A publication of one page that was cut off after it counted, for the image with this header.
fn redo_log(image: &[u8]) -> Vec<u8> {
    let slot = |number: usize| &image[number * PAGE_BYTES..(number + 1) * PAGE_BYTES];
    let newest = if slot(1)[16..24] > slot(0)[16..24] { slot(1) } else { slot(0) };
    let mut log = vec![0; 3 * PAGE_BYTES];
    log[..12].copy_from_slice(b"HFSTREDO\x01\0\0\0");
    log[16..32].copy_from_slice(&newest[24..40]);
    log[32..40].copy_from_slice(&newest[88..96]);
    log[40..48].copy_from_slice(&1_u64.to_le_bytes());
    log[PAGE_BYTES..PAGE_BYTES + 8].copy_from_slice(&(900 * 1024_u64).to_le_bytes());
    log[PAGE_BYTES + 8..PAGE_BYTES + 16].copy_from_slice(&(PAGE_BYTES as u64).to_le_bytes());
    log[2 * PAGE_BYTES..].fill(7);
    let sum = xxh3_64(&[&log[..48], &log[PAGE_BYTES..PAGE_BYTES + 16]].concat());
    log[48..56].copy_from_slice(&sum.to_le_bytes());
    log
}
