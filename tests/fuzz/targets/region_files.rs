//! Any files as a region's image, base file, journal and redo log: listing, reading, opening,
//! storing, committing and closing never panics or hangs, and a region that was closed in order
//! opens again with the same bytes.
//!
//! The input edits files that were in order. Checksums can be made right again, as a process that
//! can write to the files can do; so every field behind them is reached.

#![no_main]

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use holdfast_region::{Consistency, Durability, NameSpace, OwnerKey, Places, Region, RegionName};
use holdfast_sys::mapping::Reservation;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const MIB: u64 = 1 << 20;
const PAGE: usize = 4096;
/// Where a packed base has its packed part.
const PACKED_OFFSET: u64 = 2 * PAGE as u64;
/// No file grows past this, whatever a header claims.
const FILE_BYTES_MAX: u64 = 32 * MIB;
/// Regions that claim more are not mapped.
const MAPPED_BYTES_MAX: u64 = 64 * MIB;

#[derive(Arbitrary, Debug)]
struct Input {
    /// Files that are there, by bits: image, base, journal, redo log.
    present: u8,
    /// The base is one that is packed.
    packed: bool,
    edits: Vec<Edit>,
    /// Files whose checksums are made right again, by bits.
    sealed: u8,
    /// Remove the image and open again, at the end.
    lose_image: bool,
    atomic: bool,
}

#[derive(Arbitrary, Debug)]
enum Edit {
    Bytes {
        file: u8,
        at: u32,
        bytes: Vec<u8>,
    },
    Word {
        file: u8,
        at: u32,
        value: u64,
    },
    /// A word of a header, or of the head of a record.
    Field {
        file: u8,
        slot: u8,
        field: u8,
        value: u64,
    },
    Bit {
        file: u8,
        at: u32,
        bit: u8,
    },
    Length {
        file: u8,
        bytes: u32,
    },
    Swap {
        file: u8,
        page: u8,
        other: u8,
    },
    /// The page of another file.
    Transplant {
        from: u8,
        to: u8,
        page: u8,
        other: u8,
    },
}

/// What is written of a file: its length, and the pages with something in them.
#[derive(Clone)]
struct Sketch {
    length: u64,
    pages: Vec<(u64, Vec<u8>)>,
}

impl Sketch {
    fn of(path: &PathBuf) -> Sketch {
        let bytes = std::fs::read(path).expect("a file of the seed");
        let pages =
            bytes.chunks(PAGE).enumerate().filter(|(_, page)| page.iter().any(|byte| *byte != 0));
        let pages = pages.map(|(index, page)| {
            let mut page = page.to_vec();
            page.resize(PAGE, 0);
            (index as u64, page)
        });
        Sketch { length: bytes.len() as u64, pages: pages.collect() }
    }

    fn page(&mut self, number: u64) -> &mut Vec<u8> {
        let found = self.pages.iter().position(|(index, _)| *index == number);
        let index = found.unwrap_or_else(|| {
            self.pages.push((number, vec![0; PAGE]));
            self.pages.len() - 1
        });
        &mut self.pages[index].1
    }

    fn store(&mut self, at: u64, bytes: &[u8]) {
        for (offset, byte) in (at..).zip(bytes) {
            self.page(offset / PAGE as u64)[offset as usize % PAGE] = *byte;
        }
    }

    /// Pages that have something, more often than not.
    fn pick(&self, number: u8) -> u64 {
        match self.pages.get(usize::from(number)) {
            Some((index, _)) => *index,
            None => u64::from(number),
        }
    }

    fn write(&self, path: &PathBuf) {
        let options =
            File::options().read(true).write(true).create(true).truncate(true).mode(0o600).clone();
        let file = options.open(path).expect("a file in the scratch home");
        for (index, page) in &self.pages {
            let at = index * PAGE as u64;
            let bytes = self.length.saturating_sub(at).min(PAGE as u64) as usize;
            file.write_all_at(&page[..bytes], at).expect("room");
        }
        file.set_len(self.length).expect("a length");
    }
}

struct Scene {
    _directory: TempDir,
    names: NameSpace,
    paths: [PathBuf; 4],
    /// Those of a region whose base is sparse, and of one whose base is packed.
    seeds: [[Sketch; 4]; 2],
}

fn name() -> RegionName {
    RegionName::parse("words").expect("a name")
}

fn key() -> OwnerKey {
    OwnerKey::from_bytes([1; 32])
}

impl Scene {
    fn new() -> Scene {
        // SAFETY: plain system calls with valid arguments. A file that would be too large is then
        // an error.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let limit = libc::rlimit { rlim_cur: FILE_BYTES_MAX, rlim_max: FILE_BYTES_MAX };
            libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
        }
        let directory = tempfile::Builder::new()
            .prefix("holdfast-fuzz-")
            .tempdir_in("/dev/shm")
            .expect("tmpfs");
        let (home, pool) = (directory.path().join("home"), directory.path().join("pool"));
        let names = NameSpace::new(Places::at(&home, &pool).expect("places"));
        let paths = [
            pool.join("words.image"),
            home.join("store/words.base"),
            home.join("store/words.journal"),
            pool.join("words.redo"),
        ];
        let seeds = [PAGE - 1, 100].map(|bytes| seeds(&names, &paths, bytes));
        assert!(seeds[0][1].length > 2 * MIB && seeds[1][1].length < MIB, "sparse and packed");
        Scene { _directory: directory, names, paths, seeds }
    }
}

/// The files of a region with so many bytes in each of some pages.
fn seeds(names: &NameSpace, paths: &[PathBuf; 4], bytes: usize) -> [Sketch; 4] {
    let mut region = names.create(&name(), &key(), MIB).expect("a region");
    let range = Reservation::anywhere(MIB as usize, 64 << 10).expect("address space");
    fill(&mut region, &range, 1, bytes);
    region.commit(Durability::Power).expect("a base");
    for value in 2..5 {
        fill(&mut region, &range, value, 100);
        region.commit(Durability::Power).expect("a commit");
    }
    let mut seeds = [&paths[0], &paths[1], &paths[0], &paths[0]].map(Sketch::of);
    region.close().expect("closed");
    seeds[1] = Sketch::of(&paths[1]);
    seeds[2] = Sketch::of(&paths[2]);
    seeds[3] = redo_log(&seeds[0]);
    names.remove(&name(), &key()).expect("removed");
    seeds
}

/// A publication of two ranges that was cut off after it counted.
fn redo_log(image: &Sketch) -> Sketch {
    let mut log = Sketch { length: 5 * PAGE as u64, pages: Vec::new() };
    log.store(0, b"HFSTREDO\x01");
    let header = image.pages.iter().find(|(index, _)| *index == 1).map(|(_, page)| page.clone());
    if let Some(header) = header {
        log.store(16, &header[24..40]);
        log.store(32, &header[88..96]);
    }
    log.store(40, &2_u64.to_le_bytes());
    for (index, word) in [0_u64, 4096, 8192, 8192].into_iter().enumerate() {
        log.store((PAGE + index * 8) as u64, &word.to_le_bytes());
    }
    log.store(2 * PAGE as u64, &[7; 3 * PAGE]);
    seal(&mut log, 3);
    log
}

/// Makes the checksums of a file right.
fn seal(sketch: &mut Sketch, file: usize) {
    match file {
        0 | 1 => {
            // Head and table of a packed base.
            if file == 1 && bytes_at(sketch, PACKED_OFFSET, 8) == b"HFPACKED" {
                let count = word(&bytes_at(sketch, PACKED_OFFSET + 16, 8)) as u32;
                let table_bytes = count.min(1 << 12) as usize * 8;
                let mut summed = bytes_at(sketch, PACKED_OFFSET, 24);
                summed.extend(bytes_at(sketch, PACKED_OFFSET + 32, table_bytes));
                let sum = xxh3_64(&summed);
                sketch.store(PACKED_OFFSET + 24, &sum.to_le_bytes());
            }
            for slot in 0..2 {
                let sum = xxh3_64(&sketch.page(slot)[..4088]);
                sketch.page(slot)[4088..].copy_from_slice(&sum.to_le_bytes());
            }
        }
        2 => {
            let sum = xxh3_64(&sketch.page(0)[..4088]);
            sketch.page(0)[4088..].copy_from_slice(&sum.to_le_bytes());
            let salt = word(&sketch.page(0)[48..]);
            let mut at = PAGE as u64;
            // As far as the bodies' lengths lead.
            for _ in 0..8 {
                let head = bytes_at(sketch, at, 64);
                let body_bytes = word(&head[24..]);
                if at >= sketch.length || body_bytes > 64 * PAGE as u64 {
                    break;
                }
                let seed = salt ^ word(&head[8..]);
                let body = bytes_at(sketch, at + 64, body_bytes as usize);
                sketch.store(at + 32, &xxh3_64_with_seed(&body, seed).to_le_bytes());
                let head = bytes_at(sketch, at, 56);
                sketch.store(at + 56, &xxh3_64_with_seed(&head, seed).to_le_bytes());
                at += 64 + body_bytes;
            }
        }
        _ => {
            let count = word(&sketch.page(0)[40..]).min(200) as usize;
            let mut summed = bytes_at(sketch, 0, 48);
            summed.extend(bytes_at(sketch, PAGE as u64, count * 16));
            let sum = xxh3_64(&summed);
            sketch.store(48, &sum.to_le_bytes());
        }
    }
}

fn bytes_at(sketch: &mut Sketch, at: u64, count: usize) -> Vec<u8> {
    (at..at + count as u64).map(|at| sketch.page(at / PAGE as u64)[at as usize % PAGE]).collect()
}

fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

fn apply(files: &mut [Sketch; 4], edit: &Edit) {
    // Inside of the file, and often where something is.
    let place = |sketch: &Sketch, at: u32| {
        let page = sketch.pick((at >> 12) as u8);
        page * PAGE as u64 + u64::from(at) % PAGE as u64
    };
    match edit {
        Edit::Bytes { file, at, bytes } => {
            let sketch = &mut files[usize::from(file % 4)];
            let at = place(sketch, *at);
            sketch.store(at, bytes);
        }
        Edit::Word { file, at, value } => {
            let sketch = &mut files[usize::from(file % 4)];
            let at = place(sketch, *at) & !7;
            sketch.store(at, &value.to_le_bytes());
        }
        Edit::Field { file, slot, field, value } => {
            let at = u64::from(slot % 3) * PAGE as u64 + u64::from(field % 40) * 8;
            files[usize::from(file % 4)].store(at, &value.to_le_bytes());
        }
        Edit::Bit { file, at, bit } => {
            let sketch = &mut files[usize::from(file % 4)];
            let at = place(sketch, *at);
            sketch.page(at / PAGE as u64)[at as usize % PAGE] ^= 1 << (bit % 8);
        }
        Edit::Length { file, bytes } => {
            files[usize::from(file % 4)].length = u64::from(*bytes) % (8 * MIB);
        }
        Edit::Swap { file, page, other } => {
            let sketch = &mut files[usize::from(file % 4)];
            let (page, other) = (sketch.pick(*page), sketch.pick(*other));
            let (one, two) = (sketch.page(page).clone(), sketch.page(other).clone());
            *sketch.page(page) = two;
            *sketch.page(other) = one;
        }
        Edit::Transplant { from, to, page, other } => {
            let source = &mut files[usize::from(from % 4)];
            let page = source.pick(*page);
            let bytes = source.page(page).clone();
            let target = &mut files[usize::from(to % 4)];
            let other = target.pick(*other);
            *target.page(other) = bytes;
        }
    }
}

/// Stores to a few pages of a region that may be mapped already; its range must then outlive it.
fn fill(region: &mut Region, range: &Reservation, value: u8, bytes: usize) {
    // SAFETY: the reservation covers the limit and outlives the mapping.
    if region.mapping().is_none() && unsafe { region.map_into(range.base()) }.is_err() {
        return;
    }
    for page in [0, 3, 4, 7] {
        // SAFETY: a region has 64 KiB or more.
        unsafe { range.base().add(page * PAGE + usize::from(value)).write_bytes(value, bytes) };
    }
}

fn read_all(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; region.backed_bytes().min(MAPPED_BYTES_MAX) as usize];
    region.read_at(0, &mut bytes).expect("inside of the region");
    bytes
}

fn use_it(scene: &Scene, input: &Input) {
    let _ = scene.names.list();
    let _ = scene.names.summary(&name()).map(|summary| format!("{summary:?}"));
    if let Ok(reader) = scene.names.open_read(&name()) {
        assert!(xxh3_64(reader.bytes()) != 1);
    }
    let Ok(mut region) = scene.names.open(&name(), &key()) else { return };
    if region.limit_bytes() > MAPPED_BYTES_MAX {
        let _ = region.close();
        return;
    }
    let Ok(range) = Reservation::anywhere(region.limit_bytes() as usize, 64 << 10) else { return };
    if input.atomic && region.set_consistency(Consistency::Atomic).is_ok() {
        fill(&mut region, &range, 8, 100);
        let _ = region.publish();
        region.unmap().expect("unmapped");
        let _ = region.set_consistency(Consistency::Direct);
    }
    fill(&mut region, &range, 9, 100);
    let _ = region.commit(Durability::Power);
    fill(&mut region, &range, 10, 100);
    let bytes = read_all(&region);
    if region.close().is_err() {
        return;
    }
    if input.lose_image {
        std::fs::remove_file(&scene.paths[0]).expect("the image");
    }
    let region = scene.names.open(&name(), &key()).expect("closed in order, so it opens");
    assert!(read_all(&region) == bytes, "closed in order, and something is lost");
}

thread_local! {
    static SCENE: RefCell<Scene> = RefCell::new(Scene::new());
}

fuzz_target!(|input: Input| {
    SCENE.with_borrow(|scene| {
        let mut files = scene.seeds[usize::from(input.packed)].clone();
        input.edits.iter().take(20).for_each(|edit| apply(&mut files, edit));
        for (index, sketch) in files.iter_mut().enumerate() {
            if input.present & 1 << index == 0 {
                let _ = std::fs::remove_file(&scene.paths[index]);
                continue;
            }
            if input.sealed & 1 << index != 0 {
                seal(sketch, index);
            }
            sketch.write(&scene.paths[index]);
        }
        use_it(scene, &input);
    });
});
