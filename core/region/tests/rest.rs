//! Small regions that are closed take next to nothing of the pool, and have all of it again before
//! they are mapped.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use common::{Home, MIB, key, load, named, read, store};
use holdfast_region::{ErrorKind, KernelStorage, NameSpace, Opened, Region, RegionError, Storage};

const WORDS: &str = "words";
const FAR: usize = 3 * MIB as usize;

/// The kernel's files, with so much room, and the k-th step of giving back or allocating as the
/// last; counts what was given back.
#[derive(Debug)]
struct Limited {
    room_bytes: AtomicU64,
    steps_left: AtomicI64,
    given_back: AtomicU64,
}

impl Limited {
    fn new() -> Arc<Limited> {
        let (room_bytes, steps_left) = (u64::MAX.into(), i64::MAX.into());
        Arc::new(Limited { room_bytes, steps_left, given_back: 0.into() })
    }

    fn step(&self) -> io::Result<()> {
        match self.steps_left.fetch_sub(1, Ordering::SeqCst) {
            left if left > 0 => Ok(()),
            _ => Err(io::ErrorKind::Other.into()),
        }
    }

    fn is_dead(&self) -> bool {
        self.steps_left.load(Ordering::SeqCst) <= 0
    }
}

impl Storage for Limited {
    fn create(&self, path: &Path) -> io::Result<File> {
        KernelStorage.create(path)
    }
    fn allocate(&self, file: &File, range: Range<u64>) -> io::Result<()> {
        self.step()?;
        match range.end - range.start <= self.room_bytes.load(Ordering::SeqCst) {
            true => KernelStorage.allocate(file, range),
            false => Err(io::ErrorKind::StorageFull.into()),
        }
    }
    fn can_give_back(&self) -> bool {
        true
    }
    fn give_back(&self, file: &File, range: Range<u64>) -> io::Result<()> {
        self.step()?;
        self.given_back.fetch_add(1, Ordering::SeqCst);
        KernelStorage.give_back(file, range)
    }
    fn set_len(&self, file: &File, len_bytes: u64) -> io::Result<()> {
        KernelStorage.set_len(file, len_bytes)
    }
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        KernelStorage.write_at(file, bytes, offset)
    }
    fn sync(&self, _file: &File) -> io::Result<()> {
        Ok(())
    }
    fn sync_directory(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        KernelStorage.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        KernelStorage.remove(path)
    }
    fn available_bytes(&self, _path: &Path) -> io::Result<u64> {
        Ok(self.room_bytes.load(Ordering::SeqCst))
    }
}

fn taken_kib(home: &Home) -> u64 {
    home.image(WORDS).metadata().unwrap().blocks() / 2
}

/// A region of 4 MiB with something at its start and far from it, open.
fn stored(names: &NameSpace) -> Region {
    let mut region = names.create(&named(WORDS), &key(), 8 * MIB).unwrap();
    store(&mut region, 0, b"near");
    store(&mut region, FAR, b"far");
    region
}

fn is_whole(region: &mut Region) {
    assert_eq!((load(region, 0, 4), load(region, FAR, 3)), (b"near".to_vec(), b"far".to_vec()));
    assert_eq!(load(region, MIB as usize, 4), [0; 4]);
}

/// A closed region keeps what was stored, gives the rest back, and has all of it when it is open.
///
/// Guarantee: heap/room
#[test]
fn closed_region_takes_only_what_was_stored() {
    let home = Home::new();
    stored(&home.names()).close().unwrap();
    for _ in 0..3 {
        assert!(taken_kib(&home) <= 64, "{} KiB", taken_kib(&home));
        let mut region = home.names().open(&named(WORDS), &key()).unwrap();
        assert_eq!(region.opened(), Opened::Warm);
        assert!(taken_kib(&home) >= 4096, "a store would find no memory");
        is_whole(&mut region);
        region.close().unwrap();
    }
    // One that is only read needs it as well: a load in a hole takes a page.
    let reader = home.names().open_read_only(&named(WORDS), &key()).unwrap();
    assert!(taken_kib(&home) >= 4096);
    assert_eq!(read(&reader, FAR as u64, 3), b"far");
    drop(reader);
    // A killed program leaves everything.
    let mut region = home.names().open(&named(WORDS), &key()).unwrap();
    store(&mut region, 0, b"near");
    drop(region);
    assert!(taken_kib(&home) >= 4096);
}

/// A region that grew beyond its first part keeps its memory.
///
/// Guarantee: heap/room
#[test]
fn larger_region_keeps_its_memory() {
    let home = Home::new();
    let mut region = stored(&home.names());
    region.grow(5 * MIB).unwrap();
    region.close().unwrap();
    assert!(taken_kib(&home) >= 8192);
}

/// A closed region that finds no room to be opened in is an error, and whole when there is some.
///
/// Guarantee: heap/room
#[test]
fn closed_region_without_room_is_an_error_and_whole_later() {
    let home = Home::new();
    let storage = Limited::new();
    let names = home.names_over(storage.clone());
    stored(&names).close().unwrap();
    storage.room_bytes.store(MIB, Ordering::SeqCst);
    for _ in 0..2 {
        let refused = names.open(&named(WORDS), &key()).map(drop).unwrap_err();
        assert!(matches!(refused, RegionError::NoRoom { .. }), "{refused}");
        let refused = names.open_read_only(&named(WORDS), &key()).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NoRoom, "{refused}");
        assert!(taken_kib(&home) <= 64);
    }
    storage.room_bytes.store(u64::MAX, Ordering::SeqCst);
    is_whole(&mut names.open(&named(WORDS), &key()).unwrap());
}

/// A death at any step of giving back, and of allocating again, leaves a region whose every page is
/// there when it is mapped.
///
/// Guarantee: heap/room
#[test]
fn death_at_any_step_leaves_no_hole_under_a_mapping() {
    let mut deaths = [0; 2];
    for (turn, steps) in (0..2).flat_map(|turn| (0..8).map(move |steps| (turn, steps))) {
        let home = Home::in_memory();
        let storage = Limited::new();
        let names = home.names_over(storage.clone());
        let region = stored(&names);
        if turn == 0 {
            storage.steps_left.store(steps, Ordering::SeqCst);
            // What is given back is no part of what closing promises.
            region.close().unwrap();
        } else {
            region.close().unwrap();
            storage.steps_left.store(steps, Ordering::SeqCst);
            // With an error, or with success: the process is gone in both cases.
            drop(names.open(&named(WORDS), &key()));
        }
        deaths[turn] += usize::from(storage.is_dead());
        let mut region = home.names().open(&named(WORDS), &key()).unwrap();
        assert!(taken_kib(&home) >= 4096, "turn {turn}, step {steps}");
        is_whole(&mut region);
    }
    assert!(deaths[0] >= 2 && deaths[1] >= 1, "no step was hit: {deaths:?}");
}

/// What a killed program left is given back when the region is only brought to the store, and not
/// when the image is removed anyway.
///
/// Guarantee: heap/room
#[test]
fn eviction_gives_nothing_back_before_it_removes() {
    let home = Home::new();
    let storage = Limited::new();
    let names = home.names_over(storage.clone());
    drop(stored(&names));
    names.checkpoint_unheld(&named(WORDS)).unwrap();
    assert!(taken_kib(&home) <= 64, "{} KiB", taken_kib(&home));
    drop(names.open(&named(WORDS), &key()).unwrap());
    storage.given_back.store(0, Ordering::SeqCst);
    names.evict(&named(WORDS)).unwrap();
    assert_eq!(storage.given_back.load(Ordering::SeqCst), 0);
    is_whole(&mut names.open(&named(WORDS), &key()).unwrap());
}
