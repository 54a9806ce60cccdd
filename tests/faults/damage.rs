//! Row H9: flipped bits, zeroed, stale and swapped pages in an image, a base file, a journal, a
//! redo log. Damage to what describes the data is found or harmless; no damage makes anything
//! panic.
//!
//! Each case starts from the same files: three commits, closed in order or not. What may be found
//! is one of the states that were committed; which ones, says `State`.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use holdfast_heap::survey::Survey;
use holdfast_heap::{Heap, Pointers, inspect};
use holdfast_region::{Durability, ErrorKind, NameSpace, Region, RegionError};
use holdfast_sys::mapping::Reservation;
use holdfast_testkit::{TestMemory, Trials};
use rand::RngExt;
use rand::rngs::StdRng;

use crate::home::{Home, MIB, key, name};

const MUTATIONS: u64 = 10_000;
const PAGE: usize = 4096;
const SLOT: u64 = 4096;
/// Bytes of a header slot, and of a journal's header, that have a meaning; then zeros, and the
/// checksum.
const FIELDS: std::ops::Range<u64> = 0..288;
const CHECKSUM: std::ops::Range<u64> = 4088..4096;
const COMMITS: u8 = 3;

/// A file as it was: its length and its pages that are not zero.
#[derive(Clone)]
struct Sketch {
    length: u64,
    pages: HashMap<u64, Vec<u8>>,
}

impl Sketch {
    fn of(path: &Path) -> Sketch {
        let bytes = std::fs::read(path).unwrap();
        let pages =
            bytes.chunks(PAGE).enumerate().filter(|(_, page)| page.iter().any(|byte| *byte != 0));
        let whole = |page: &[u8]| [page, &vec![0; PAGE - page.len()]].concat();
        Sketch {
            length: bytes.len() as u64,
            pages: pages.map(|(index, page)| (index as u64, whole(page))).collect(),
        }
    }

    fn page(&self, number: u64) -> Vec<u8> {
        self.pages.get(&number).cloned().unwrap_or_else(|| vec![0; PAGE])
    }

    fn flip(&mut self, at: u64, bit: u8) {
        let mut page = self.page(at / PAGE as u64);
        page[at as usize % PAGE] ^= 1 << bit;
        self.pages.insert(at / PAGE as u64, page);
    }

    fn write(&self, path: &Path) {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(path).unwrap();
        for (number, page) in &self.pages {
            let at = number * PAGE as u64;
            let bytes = self.length.saturating_sub(at).min(PAGE as u64) as usize;
            file.write_all_at(&page[..bytes], at).unwrap();
        }
        file.set_len(self.length).unwrap();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Image,
    Base,
    Journal,
    Redo,
}

const KINDS: [Kind; 4] = [Kind::Image, Kind::Base, Kind::Journal, Kind::Redo];

/// The files of a region, what they may say, and older versions of them.
struct Scene {
    home: Home,
    files: Vec<(Kind, Sketch)>,
    /// Each file after each commit before the last.
    stale: Vec<(Kind, Sketch)>,
    /// The first bytes of the region after each commit, the last one last.
    states: Vec<Vec<u8>>,
}

impl Scene {
    fn path(&self, kind: Kind) -> PathBuf {
        path(&self.home, kind)
    }

    /// A region with a heap in it, changed and committed a few times.
    fn new(in_order: bool) -> Scene {
        let home = Home::new();
        let mut region = home.names().create(&name(), &key(), MIB).unwrap();
        let heap = heap_bytes(0);
        store(&mut region, 0, &heap);
        region.commit(Durability::Power).unwrap();
        let (mut states, mut stale) = (vec![content(&region)], Vec::new());
        for number in 1..=COMMITS {
            stale.extend(present(&home));
            store(&mut region, 0, &heap_bytes(number));
            region.commit(Durability::Power).unwrap();
            states.push(content(&region));
        }
        let mut scene = Scene { home, files: Vec::new(), stale, states };
        if in_order {
            region.close().unwrap();
        } else {
            drop(region);
        }
        scene.files = present(&scene.home);
        assert!(
            scene.files.iter().any(|(kind, _)| *kind == Kind::Journal),
            "the commits made no journal"
        );
        scene
    }

    fn sketch(&self, kind: Kind) -> &Sketch {
        &self.files.iter().find(|(found, _)| *found == kind).unwrap().1
    }

    /// All files but those that are left out, as they were.
    fn lay_out(&self, without: &[Kind]) {
        for kind in KINDS {
            let _ = std::fs::remove_file(self.path(kind));
        }
        for (kind, sketch) in self.files.iter().filter(|(kind, _)| !without.contains(kind)) {
            sketch.write(&self.path(*kind));
        }
    }
}

fn path(home: &Home, kind: Kind) -> PathBuf {
    match kind {
        Kind::Image => home.image(),
        Kind::Base => home.base(),
        Kind::Journal => home.journal(),
        Kind::Redo => home.redo(),
    }
}

fn present(home: &Home) -> Vec<(Kind, Sketch)> {
    let there = KINDS.into_iter().filter(|kind| path(home, *kind).exists());
    there.map(|kind| (kind, Sketch::of(&path(home, kind)))).collect()
}

/// A heap with a few roots; a number of them depends on `number`.
fn heap_bytes(number: u8) -> Vec<u8> {
    let mut heap = Heap::open(TestMemory::new(MIB), options()).unwrap();
    for index in 0..8 + u64::from(number) {
        heap.create_root(&format!("root {index}"), 24 + 100 * (index % 3)).unwrap();
    }
    heap.alloc(70_000).unwrap();
    heap.close().bytes().to_vec()
}

fn options() -> holdfast_heap::OpenOptions {
    holdfast_heap::OpenOptions {
        pointers: Some(Pointers { base: 1 << 31, bytes: 4 }),
        format_if_empty: true,
    }
}

/// Stores what differs, through a mapping that stays: so the region knows which pages changed.
pub(crate) fn store(region: &mut Region, offset: usize, bytes: &[u8]) {
    if region.mapping().is_none() {
        let range = Reservation::anywhere(region.limit_bytes() as usize, 64 << 10).unwrap();
        // SAFETY: the reservation covers the limit, and is never given back.
        unsafe { region.map_into(range.base()).unwrap() };
        std::mem::forget(range);
    }
    let base = region.mapping().unwrap().as_ptr();
    for (index, page) in bytes.chunks(PAGE).enumerate() {
        let mut old = vec![0; page.len()];
        region.read_at((offset + index * PAGE) as u64, &mut old).unwrap();
        if old != page {
            // SAFETY: inside the backed part of the mapping.
            unsafe {
                let to = base.add(offset + index * PAGE);
                std::ptr::copy_nonoverlapping(page.as_ptr(), to, page.len());
            }
        }
    }
}

fn content(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; region.backed_bytes() as usize];
    region.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Reads and opens; errors of a type are fine. What is found must be one of the states.
fn found(names: &NameSpace) -> Option<Vec<u8>> {
    let _ = names.list();
    let read = names.open_read(&name()).map(|reader| reader.bytes().to_vec());
    let opened = names.open(&name(), &key());
    match (&read, &opened) {
        (Ok(read), Ok(opened)) => assert!(*read == content(opened), "a reader sees something else"),
        (Ok(_), Err(error)) | (Err(error), _) => assert!(is_typed(error), "{error}"),
    }
    opened.as_ref().ok().map(content)
}

/// Every message says what to do; a file that is bad is no failure of the system.
fn is_typed(error: &RegionError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BadFile
            | ErrorKind::NoRoom
            | ErrorKind::NotFound
            | ErrorKind::Io
            | ErrorKind::Held
    ) && !error.to_string().is_empty()
}

fn header_bits() -> impl Iterator<Item = (u64, u8)> {
    // Where there is nothing but zeros, a bit here and there will do.
    let bits = |bytes: std::ops::Range<u64>| bytes.flat_map(|at| (0..8).map(move |bit| (at, bit)));
    bits(FIELDS)
        .chain((FIELDS.end..CHECKSUM.start).step_by(61).map(|at| (at, at as u8 % 8)))
        .chain(bits(CHECKSUM))
}

/// Guarantee: heap/damaged-headers
/// Guarantee: heap/damaged-journal
/// Guarantee: heap/hostile-content
#[test]
fn every_flipped_bit_of_a_header_is_found_or_harmless() {
    let mut trials = Trials::of_all("H9", "every bit of every header");
    let scene = Scene::new(true);
    let names = scene.home.names();
    let last = scene.states.last().unwrap();
    for (kind, slots, without) in [
        (Kind::Image, 2, &[][..]),
        (Kind::Base, 2, &[Kind::Image][..]),
        (Kind::Journal, 1, &[Kind::Image][..]),
    ] {
        scene.lay_out(without);
        for slot in 0..slots {
            for (at, bit) in header_bits() {
                trials.next();
                let mut file = scene.sketch(kind).clone();
                file.flip(slot * SLOT + at, bit);
                for (other, sketch) in &scene.files {
                    let changes = *other == Kind::Image && kind == Kind::Image;
                    if without.contains(other) {
                        let _ = std::fs::remove_file(scene.path(*other));
                    } else if changes || *other == kind {
                        let sketch = if *other == kind { &file } else { sketch };
                        let page = sketch.page(slot);
                        let handle = File::options().write(true).open(scene.path(*other)).unwrap();
                        handle
                            .write_all_at(&sketch.page(1 - slot.min(1)), (1 - slot.min(1)) * SLOT)
                            .unwrap();
                        handle.write_all_at(&page, slot * SLOT).unwrap();
                    }
                }
                let read = names.open_read(&name()).map(|reader| reader.bytes().to_vec());
                match read {
                    Ok(bytes) => {
                        assert!(bytes == *last, "{kind:?}, slot {slot}, byte {at}, bit {bit}")
                    }
                    Err(error) => {
                        let context =
                            format!("{kind:?}, slot {slot}, byte {at}, bit {bit}: {error}");
                        assert_eq!(error.kind(), ErrorKind::BadFile, "{context}");
                        // A base has two slots, of which one is enough; a journal's header is
                        // alone.
                        assert_eq!(kind, Kind::Journal, "{context}");
                    }
                }
                if kind == Kind::Image && at % 16 == 0 {
                    let region = names.open(&name(), &key()).unwrap();
                    assert!(
                        content(&region) == *last,
                        "{kind:?}, slot {slot}, byte {at}, bit {bit}"
                    );
                }
            }
        }
    }
}

/// One mutation of a file; whether it was a flipped bit.
fn mutate(scene: &Scene, kind: Kind, file: &mut Sketch, random: &mut StdRng) -> bool {
    let mut numbers: Vec<u64> = file.pages.keys().copied().collect();
    numbers.sort_unstable();
    let pick = |random: &mut StdRng| numbers[random.random_range(0..numbers.len())];
    let number = pick(random);
    let choice = random.random_range(0..6);
    match choice {
        0 | 1 => file.flip(
            number * PAGE as u64 + random.random_range(0..PAGE as u64),
            random.random_range(0..8),
        ),
        2 => _ = file.pages.remove(&number),
        3 => {
            let older: Vec<_> = scene.stale.iter().filter(|(found, _)| *found == kind).collect();
            if let Some((_, older)) = older.get(random.random_range(0..older.len().max(1))) {
                file.pages.insert(number, older.page(number));
            }
        }
        4 => {
            let (number, other) = (number, pick(random));
            let (one, two) = (file.page(number), file.page(other));
            file.pages.insert(number, two);
            file.pages.insert(other, one);
        }
        _ => {
            // A sector of rubbish.
            let mut page = file.page(number);
            let sector = random.random_range(0..8) * 512;
            page[sector..sector + 512].iter_mut().for_each(|byte| *byte = random.random());
            file.pages.insert(number, page);
        }
    }
    choice < 2
}

/// Flipped, zeroed, stale and swapped pages are found or harmless and never cause a panic.
///
/// Guarantee: heap/damaged-headers
/// Guarantee: heap/damaged-journal
/// Guarantee: heap/hostile-content
#[test]
fn damaged_pages_are_found_or_harmless() {
    let mut trials = Trials::of("H9", "random damage", MUTATIONS);
    let scenes = [Scene::new(true), Scene::new(false)];
    let (mut refused, mut opened) = (0_u64, 0_u64);
    while let Some(mut trial) = trials.next() {
        let context = format!("trial {}, seed {:#x}", trial.number, trial.seed);
        let in_order = trial.number % 2 == 0;
        let scene = &scenes[usize::from(!in_order)];
        let random = &mut trial.random;
        let kind = [Kind::Image, Kind::Base, Kind::Journal][random.random_range(0..3)];
        let without: &[Kind] = if kind == Kind::Image { &[] } else { &[Kind::Image] };
        scene.lay_out(without);
        let mut file = scene.sketch(kind).clone();
        let one_bit = mutate(scene, kind, &mut file, random);
        let one_bit = if random.random_ratio(1, 3) {
            mutate(scene, kind, &mut file, random);
            false
        } else {
            one_bit
        };
        file.write(&scene.path(kind));
        let Some(bytes) = found(&scene.home.names()) else {
            refused += 1;
            continue;
        };
        opened += 1;
        let state = scene.states.iter().rposition(|state| *state == bytes);
        match kind {
            // Its data has no checksum, because it changes with every store; the heap in it is
            // looked at.
            Kind::Image => look_at_heap(&bytes),
            // Everything that was synced, or nothing at all.
            Kind::Base => assert_eq!(state, Some(usize::from(COMMITS)), "{context}"),
            // Closed in order, the end of the journal is marked. Without the mark, or with damage
            // that takes a whole page with the mark in it, the end looks like what a writer leaves
            // that died while it wrote: what is found is then an earlier commit, and whole.
            Kind::Journal if in_order && one_bit => {
                assert_eq!(state, Some(usize::from(COMMITS)), "{context}")
            }
            Kind::Journal => assert!(state.is_some(), "{context}: not the state of any commit"),
            Kind::Redo => {}
        }
    }
    assert!(
        trials.count() < 1000 || refused > 100 && opened > 100,
        "{refused} refused, {opened} opened"
    );
}

/// A damaged heap is refused, found damaged, or as good as before; asking never panics.
fn look_at_heap(bytes: &[u8]) {
    if let Some(survey) = Survey::new(bytes) {
        survey.classes();
        survey.objects().for_each(|_| {});
        survey.roots().for_each(|_| {});
        survey.leaks(&mut |_| {});
    }
    let words = bytes.chunks_exact(8);
    let mut copy: Vec<u64> =
        words.map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    let _ = inspect(&mut copy, &mut |_| {}, &mut |_, _| {});
    let mut memory = TestMemory::new(MIB);
    memory.bytes_mut().copy_from_slice(bytes);
    if let Ok(mut heap) = Heap::open(memory, options()) {
        let made = heap.alloc(5000).and_then(|pointer| heap.realloc(pointer, 100_000));
        let _ = made.map(|pointer| heap.free(pointer));
        let _ = heap.create_root("new", 100);
        let _ = heap.remove_root("root 1");
    }
}

/// Damage to a redo log is found, and a damaged log changes nothing.
///
/// Guarantee: heap/damaged-headers
/// Guarantee: heap/damaged-journal
/// Guarantee: heap/hostile-content
#[test]
fn damaged_redo_log_changes_nothing() {
    let mut trials = Trials::of_all("H9", "every bit of what describes a publication");
    let scene = Scene::new(false);
    let names = scene.home.names();
    let before = scene.states.last().unwrap();
    // The image that the log belongs to.
    let image = scene.sketch(Kind::Image);
    let newest = (0..2).max_by_key(|slot| image.page(*slot)[16..24].to_vec()).unwrap();
    let log = redo_log(&image.page(newest), 0, &[7; PAGE]);
    let apply = |log: &[u8]| {
        scene.lay_out(&[]);
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(scene.home.redo())
            .unwrap();
        file.write_all_at(log, 0).unwrap();
        let region = names.open(&name(), &key()).unwrap();
        content(&region)
    };
    let mut after = before.clone();
    after[..PAGE].fill(7);
    assert!(apply(&log) == after, "the log that this test makes is none");
    for at in (0..56).chain(PAGE..PAGE + 16) {
        for bit in 0..8 {
            trials.next();
            let mut damaged = log.clone();
            damaged[at] ^= 1 << bit;
            assert!(apply(&damaged) == *before, "byte {at}, bit {bit}: a damaged log was applied");
        }
    }
    for length in [0, 8, 55, 56, PAGE, PAGE + 15, PAGE + 16, 2 * PAGE, 3 * PAGE - 1] {
        trials.next();
        assert!(apply(&log[..length]) == *before, "a log of {length} bytes was applied");
    }
}

/// A publication of one page, for the image with this header, that was cut off after it counted.
pub(crate) fn redo_log(header: &[u8], offset: u64, content: &[u8]) -> Vec<u8> {
    let mut log = vec![0; 3 * PAGE];
    log[..12].copy_from_slice(b"HFSTREDO\x01\0\0\0");
    log[16..32].copy_from_slice(&header[24..40]);
    log[32..40].copy_from_slice(&header[88..96]);
    log[40..48].copy_from_slice(&1_u64.to_le_bytes());
    log[PAGE..PAGE + 8].copy_from_slice(&offset.to_le_bytes());
    log[PAGE + 8..PAGE + 16].copy_from_slice(&(PAGE as u64).to_le_bytes());
    log[2 * PAGE..][..content.len()].copy_from_slice(content);
    let sum = xxhash_rust::xxh3::xxh3_64(&[&log[..48], &log[PAGE..PAGE + 16]].concat());
    log[48..56].copy_from_slice(&sum.to_le_bytes());
    log
}
