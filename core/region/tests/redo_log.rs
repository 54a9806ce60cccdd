//! The redo log of the mode `atomic`: its place, the image that it reaches, and the readers and
//! writers that finish it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use common::faulty::{Fault, FaultyStorage};
use common::{Home, MIB, key, map, named, number, open_atomic, store_number};
use holdfast_region::{Medium, Opened, Region, RegionError};

const PAGE: usize = common::PAGE_BYTES;

#[test]
fn the_redo_log_of_another_image_is_left_alone() {
    let home = Home::with_text("words", b"hello");
    let storage = Arc::new(FaultyStorage::new(Fault::Dead));
    let mut region = open_atomic(&home.names_over(storage.clone()));
    store_number(&mut region, 2);
    // Dies when the log counts.
    storage.arm(2);
    region.publish().unwrap_err();
    drop(region);
    let log = std::fs::read(home.pool().join("words.redo")).unwrap();
    home.names().remove_image(&named("words"), &key()).unwrap();
    std::fs::write(home.pool().join("words.redo"), log).unwrap();
    // The image is built anew from the store: an older state, to which the log does not belong.
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    assert_eq!((region.opened(), number(&mut region)), (Opened::Cold, 0));
}

/// Kills at random found this: the image was removed by hand, twice, with nothing committed in
/// between. Both images that were built from the store had the same generation, so the second one
/// took the redo log of the first for its own.
///
/// Guarantee: heap/lost-redo-log
#[test]
fn old_redo_log_never_reaches_the_next_image() {
    let home = Home::with_text("words", b"hello");
    std::fs::remove_file(home.image("words")).unwrap();
    let storage = Arc::new(FaultyStorage::new(Fault::Dead));
    let mut region = open_atomic(&home.names_over(storage.clone()));
    store_number(&mut region, 1);
    region.publish().unwrap();
    store_number(&mut region, 2);
    storage.arm(7);
    region.publish().unwrap_err();
    drop(region);
    assert!(home.pool().join("words.redo").exists());
    std::fs::remove_file(home.image("words")).unwrap();
    // Built, and left by a process that dies; then found warm.
    drop(home.names().open(&named("words"), &key()).unwrap());
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    assert_eq!((region.opened(), number(&mut region)), (Opened::WarmAfterCrash, 0));
}

/// The same for an image that is built because the region moves.
///
/// Guarantee: heap/lost-redo-log
#[test]
fn old_redo_log_never_reaches_a_moved_region() {
    let home = Home::with_text("words", b"hello");
    std::fs::remove_file(home.image("words")).unwrap();
    let storage = Arc::new(FaultyStorage::new(Fault::Dead));
    let mut region = open_atomic(&home.names_over(storage.clone()));
    publish_until_the_log_counts(&mut region, &storage, 1);
    drop(region);
    assert!(home.pool().join("words.redo").exists());
    std::fs::remove_file(home.image("words")).unwrap();
    home.names().set_medium(&named("words"), &key(), Medium::File).unwrap();
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    assert_eq!((region.medium(), number(&mut region)), (Medium::File, 0));
}

/// The pool is emptied in the same boot: a logout with RemoveIPC does that. It must not take what
/// is left of a publication from an image that lies elsewhere.
///
/// Guarantee: heap/heap-on-disk
#[test]
fn disk_heap_is_whole_after_a_killed_publication() {
    let home = Home::new();
    let storage = Arc::new(FaultyStorage::new(Fault::Dead));
    let names = home.names_over(storage.clone()).with_medium(Medium::File);
    let mut region = names.create(&named("words"), &key(), 8 * MIB).unwrap();
    store_number(&mut region, 1);
    region.close().unwrap();
    let mut region = open_atomic(&names);
    publish_until_the_log_counts(&mut region, &storage, 2);
    drop(region);
    std::fs::remove_dir_all(home.pool()).unwrap();
    let reader = home.names().open_read(&named("words")).unwrap();
    let image = home.places().images(Medium::File).join("words.image");
    assert_eq!(reader.summary().image.as_ref().unwrap().path, image);
    drop(reader);
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    assert_eq!((region.opened(), number(&mut region)), (Opened::WarmAfterCrash, 2));
    region.close().unwrap();
    home.names().remove(&named("words"), &key()).unwrap();
    assert_eq!(std::fs::read_dir(image.parent().unwrap()).unwrap().count(), 0);
}

/// The reader has seen that there is nothing to finish, and waits for the lock of a writer who then
/// dies.
///
/// Guarantee: heap/atomic-kill
#[test]
fn waiting_reader_sees_a_dead_writers_publication() {
    for with_key in [false, true] {
        let home = Home::with_text("words", b"hello");
        let storage = Arc::new(FaultyStorage::new(Fault::Dead));
        let mut region = open_atomic(&home.names_over(storage.clone()));
        map(&mut region);
        // A process that finds no record of the holder waits for a while.
        common::truncate(&home.pool().join("words.lock"), 0);
        let names = home.names();
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                if with_key {
                    return number(&mut patiently(|| {
                        names.open_read_only(&named("words"), &key())
                    }));
                }
                let reader = patiently(|| names.open_read(&named("words")));
                let word = |page: usize| reader.bytes()[page * PAGE + 8];
                assert!([1, 2, 40, 300, 1000].iter().all(|page| word(*page) == word(0)), "torn");
                u64::from(word(0))
            });
            std::thread::sleep(std::time::Duration::from_millis(10));
            publish_until_the_log_counts(&mut region, &storage, 2);
            drop(region);
            assert_eq!(reader.join().unwrap(), 2);
        });
    }
}

/// On a machine that has much to do the writer may take longer to die than one attempt waits.
fn patiently<R>(open: impl Fn() -> Result<R, RegionError>) -> R {
    let mut attempts = (0..200).map(|_| open());
    attempts.find(|opened| !matches!(opened, Err(RegionError::Held { .. }))).unwrap().unwrap()
}

/// An earlier version kept the redo log of every image in the pool.
///
/// Guarantee: heap/heap-on-disk
#[test]
fn publication_logged_by_an_old_version_is_finished() {
    let home = Home::new();
    let storage = Arc::new(FaultyStorage::new(Fault::Dead));
    let names = home.names_over(storage.clone()).with_medium(Medium::File);
    names.create(&named("words"), &key(), 8 * MIB).unwrap().close().unwrap();
    let mut region = open_atomic(&names);
    publish_until_the_log_counts(&mut region, &storage, 2);
    drop(region);
    let log = home.places().images(Medium::File).join("words.redo");
    std::fs::copy(&log, home.pool().join("words.redo")).unwrap();
    std::fs::remove_file(&log).unwrap();
    assert_eq!(number(&mut home.names().open(&named("words"), &key()).unwrap()), 2);
}

/// A region whose image and redo log were removed in use is closed with everything.
///
/// Guarantee: heap/lost-redo-log
#[test]
fn region_closes_whole_after_its_files_were_removed() {
    let home = Home::with_text("words", b"hello");
    let mut region = open_atomic(&home.names());
    store_number(&mut region, 1);
    region.publish().unwrap();
    std::fs::remove_file(home.image("words")).unwrap();
    std::fs::remove_file(home.pool().join("words.redo")).unwrap();
    region.close().unwrap();
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    assert_eq!((region.opened(), number(&mut region)), (Opened::Cold, 1));
}

/// Makes a log that counts say another version.
fn set_version(log: &Path, version: u32) {
    let mut bytes = std::fs::read(log).unwrap();
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    let ranges = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    let summed = [&bytes[..48], &bytes[PAGE..PAGE + 16 * ranges]].concat();
    let sum = xxhash_rust::xxh3::xxh3_64(&summed);
    bytes[48..56].copy_from_slice(&sum.to_le_bytes());
    let file = OpenOptions::new().write(true).open(log).unwrap();
    file.write_all_at(&bytes[..56], 0).unwrap();
}

/// A newer program died in a publication. Without what it logged the image is half of that.
///
/// Guarantee: heap/old-formats
/// Guarantee: keeper/atomic-copy
#[test]
fn publication_of_a_newer_program_is_refused() {
    let home = Home::with_text("words", b"hello");
    let storage = Arc::new(FaultyStorage::new(Fault::Dead));
    let mut region = open_atomic(&home.names_over(storage.clone()));
    publish_until_the_log_counts(&mut region, &storage, 2);
    drop(region);
    let (names, words) = (home.names(), named("words"));
    let log = home.pool().join("words.redo");
    set_version(&log, 2);
    let files = [log.clone(), home.image("words")];
    let content = || files.each_ref().map(|path| std::fs::read(path).unwrap());
    let before = content();
    for refused in [
        names.open(&words, &key()).map(drop),
        names.open_read(&words).map(drop),
        names.rescue(&words, None).map(drop),
        names.evict(&words).map(drop),
        names.examine(&words, &key()).map(drop),
    ] {
        let error = refused.unwrap_err();
        assert!(
            matches!(&error, RegionError::NewerFormat { path, found: 2, .. } if *path == log),
            "{error}"
        );
    }
    assert!(content() == before, "a newer program's file was changed");
    set_version(&log, 1);
    let mut region = names.open(&words, &key()).unwrap();
    assert_eq!((region.opened(), number(&mut region)), (Opened::WarmAfterCrash, 2));
}

/// A log that cannot be read may be a publication of which the image has a half.
///
/// Guarantee: heap/atomic-errors
#[test]
fn reader_is_refused_beside_an_unreadable_log() {
    let home = Home::with_text("words", b"hello");
    let names = home.names();
    let log = home.pool().join("words.redo");
    // It can be opened, and not be read.
    std::fs::create_dir(&log).unwrap();
    for refused in [
        names.open_read(&named("words")).map(drop),
        names.open_read_only(&named("words"), &key()).map(drop),
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(&error, RegionError::Io { path, .. } if *path == log), "{error}");
    }
    std::fs::remove_dir(&log).unwrap();
    names.open_read(&named("words")).unwrap();
}

/// Publishes a number, and dies when the redo log counts and half of the first change is in the
/// image.
fn publish_until_the_log_counts(region: &mut Region, storage: &FaultyStorage, value: u64) {
    store_number(region, value);
    storage.arm(2 + 1);
    region.publish().unwrap_err();
}
