//! Snapshots, restores, copies, streams, limits, salvage and removal beside a journal and a redo
//! log: what they hold is the last commit, and no log of an older state is ever applied to what
//! they make.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::path::PathBuf;
use std::sync::Arc;

use common::faulty::{Fault, FaultyStorage};
use common::noted::Notes;
use common::{Home, MIB, flip, key, named, read, store, truncate};
use holdfast_region::{
    Consistency, DamagedFile, Durability, HeaderState, NameSpace, Region, Written,
};

const EIO: i32 = 5;
/// More steps than any operation here has.
const STEPS_MAX: usize = 100;

/// Where the text is: in the second half of a page, as the write that dies has done its first half.
const AT: usize = 3000;

/// How a region was left whose last commit is "later". A snapshot `first` has "hello".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// Closed in order, with commits in its journal.
    Closed,
    /// As if its process had died after the commit.
    Crashed,
    /// The same, and then the machine lost its pool.
    WithoutImage,
    /// As if its process had died while it published; nothing of it is in the image, all is in the
    /// redo log.
    Publishing,
}

const ALL: [Left; 4] = [Left::Closed, Left::Crashed, Left::WithoutImage, Left::Publishing];

fn redo(home: &Home) -> PathBuf {
    home.pool().join("words.redo")
}

fn left(how: Left) -> Home {
    let home = Home::new();
    let mut region = unsynced(&home).create(&named("words"), &key(), 8 * MIB).unwrap();
    store(&mut region, AT, b"hello");
    region.close().unwrap();
    unsynced(&home).snapshot(&named("words"), &key(), &named("first")).unwrap();
    if how == Left::Publishing {
        publish_until_only_the_redo_log_has_it(&home);
        return home;
    }
    let region = commit_to_the_journal(&home);
    if how == Left::Closed {
        region.close().unwrap();
    } else {
        drop(region);
    }
    if how == Left::WithoutImage {
        std::fs::remove_file(home.image("words")).unwrap();
    }
    assert!(home.journal("words").exists());
    home
}

/// Two commits, the second one of "later".
fn commit_to_the_journal(home: &Home) -> Region {
    let mut region = unsynced(home).open(&named("words"), &key()).unwrap();
    let notes = Notes::of(&mut region);
    for text in [b"other", b"later"] {
        notes.store(&mut region, AT, text);
        assert_eq!(region.commit(Durability::Power).unwrap().written, Written::Journal);
    }
    region
}

/// Opened in the mode `atomic`, published, and dead in the first step after the redo log counts.
fn publish_until_only_the_redo_log_has_it(home: &Home) {
    let storage = Arc::new(FaultyStorage::new(Fault::Dead));
    let mut region = home.names_over(storage.clone()).open(&named("words"), &key()).unwrap();
    region.set_consistency(Consistency::Atomic).unwrap();
    store(&mut region, AT, b"later");
    storage.take_log();
    // Room, table and pages, header; then the image.
    storage.arm(3);
    region.publish().unwrap_err();
    assert_eq!(storage.take_log()[..4], ["allocate", "write_at", "write_at", "store"]);
    assert_eq!(read(&region, AT as u64, 5), b"hello");
}

/// Without syncs: no test here can tell whether they reach the disk.
fn unsynced(home: &Home) -> NameSpace {
    home.names_over(Arc::new(FaultyStorage::new(Fault::Dead)))
}

/// The text of the region, closed again in order.
fn content(home: &Home) -> Vec<u8> {
    let region = unsynced(home).open(&named("words"), &key()).unwrap();
    let found = read(&region, AT as u64, 5);
    region.close().unwrap();
    found
}

fn starts_with(home: &Home, name: &str, text: &[u8]) -> bool {
    unsynced(home).open_read(&named(name)).unwrap().bytes()[AT..].starts_with(text)
}

/// A snapshot a copy and a stream hold the last commit.
///
/// Guarantee: heap/snapshots
#[test]
fn snapshot_copy_and_stream_hold_the_last_commit() {
    for how in ALL {
        let home = left(how);
        let names = unsynced(&home);
        let mut stream = Vec::new();
        names.copy(&named("words"), &named("copy"), &key()).unwrap();
        names.open_read(&named("words")).unwrap().export(&mut stream).unwrap();
        names.import(&named("imported"), &key(), &mut &stream[..]).unwrap();
        names.snapshot(&named("words"), &key(), &named("second")).unwrap();
        let second = names.open_snapshot(&named("words"), &named("second")).unwrap();
        assert!(second.bytes()[AT..].starts_with(b"later"), "{how:?}");
        assert!(
            starts_with(&home, "copy", b"later") && starts_with(&home, "imported", b"later"),
            "{how:?}"
        );
        assert_eq!(home.image("words").exists(), how != Left::WithoutImage, "{how:?}");
        assert_eq!(content(&home), b"later", "{how:?}");
        // And without the image: the snapshot folded the journal into the base.
        std::fs::remove_file(home.image("words")).unwrap();
        assert_eq!(content(&home), b"later", "{how:?}");
    }
}

/// Guarantee: heap/snapshots
#[test]
fn a_snapshot_that_dies_in_any_step_loses_no_commit() {
    for how in ALL {
        for fault in [Fault::Once(EIO), Fault::Dead] {
            for step in 0.. {
                assert!(step < STEPS_MAX, "the snapshot never comes through");
                let home = left(how);
                let storage = Arc::new(FaultyStorage::new(fault));
                storage.arm(step);
                let names = home.names_over(storage.clone());
                let outcome = names.snapshot(&named("words"), &key(), &named("second"));
                let struck = storage.struck();
                assert!(outcome.is_ok() || struck, "{how:?}, step {step}: {outcome:?}");
                if let Ok(whole) = unsynced(&home).open_snapshot(&named("words"), &named("second"))
                {
                    assert!(whole.bytes()[AT..].starts_with(b"later"), "{how:?}, step {step}");
                }
                // What is in the store alone, where the store must have it.
                if how != Left::Publishing {
                    let _ = std::fs::remove_file(home.image("words"));
                }
                assert_eq!(content(&home), b"later", "{how:?}, step {step}");
                if !struck {
                    break;
                }
            }
        }
    }
}

/// A restore that dies in any step brings back nothing of a journal or a redo log.
///
/// Guarantee: heap/restore
#[test]
fn killed_restore_brings_back_no_old_logs() {
    for how in ALL {
        for discard in [false, true] {
            for step in 0.. {
                assert!(step < STEPS_MAX, "the restore never comes through");
                let home = left(how);
                let storage = Arc::new(FaultyStorage::new(Fault::Dead));
                storage.arm(step);
                let names = home.names_over(storage.clone());
                let outcome = names.restore(&named("words"), &key(), &named("first"), discard);
                let context = format!("{how:?}, discard {discard}, step {step}");
                if !storage.struck() {
                    outcome.unwrap();
                    assert!(!home.journal("words").exists() && !redo(&home).exists());
                    assert_eq!(content(&home), b"hello");
                    break;
                }
                let found = content(&home);
                assert!(found == b"later" || found == b"hello", "{context}: {found:?}");
                std::fs::remove_file(home.image("words")).unwrap();
                assert_eq!(content(&home), found, "{context}");
                unsynced(&home).restore(&named("words"), &key(), &named("first"), true).unwrap();
                assert_eq!(content(&home), b"hello", "{context}");
                assert!(home.leftovers().is_empty());
            }
        }
    }
}

/// A restore over a damaged region is not overwritten by its redo log wherever it dies.
#[test]
fn restore_is_never_overwritten_by_an_old_redo_log() {
    for step in 0.. {
        assert!(step < STEPS_MAX, "the restore never comes through");
        let home = left(Left::Publishing);
        for slot in [0, 4096] {
            flip(&home.image("words"), slot + 100);
        }
        let storage = Arc::new(FaultyStorage::new(Fault::Dead));
        storage.arm(step);
        let names = home.names_over(storage.clone());
        let outcome = names.restore(&named("words"), &key(), &named("first"), true);
        if !storage.struck() {
            outcome.unwrap();
            assert_eq!(content(&home), b"hello");
            return;
        }
        // Damaged as before, or restored.
        if let Ok(region) = unsynced(&home).open(&named("words"), &key()) {
            assert_eq!(read(&region, AT as u64, 5), b"hello", "step {step}");
            region.close().unwrap();
        }
        unsynced(&home).restore(&named("words"), &key(), &named("first"), true).unwrap();
        assert_eq!(content(&home), b"hello", "step {step}");
    }
}

/// Logs that a removed region left are not applied to what is restored or imported.
///
/// Guarantee: heap/restore
#[test]
fn logs_of_a_removed_region_are_never_applied() {
    for how in [Left::WithoutImage, Left::Publishing] {
        let home = left(how);
        let mut stream = Vec::new();
        let names = unsynced(&home);
        if how == Left::WithoutImage {
            // A later base, so that the journal is not stale beside the snapshot's number.
            names.snapshot(&named("words"), &key(), &named("second")).unwrap();
            drop(commit_to_the_journal(&home));
            std::fs::remove_file(home.image("words")).unwrap();
        }
        let logs = [home.journal("words"), redo(&home)];
        let saved = logs.each_ref().map(|path| std::fs::read(path).ok());
        let put_back = || {
            for (path, bytes) in logs.iter().zip(&saved) {
                bytes.iter().for_each(|bytes| write_private(path, bytes));
            }
        };
        names.open_read(&named("words")).unwrap().export(&mut stream).unwrap();
        names.remove(&named("words"), &key()).unwrap();
        assert!(logs.iter().all(|path| !path.exists()), "{how:?}: logs outlive their region");
        put_back();
        names.restore(&named("words"), &key(), &named("first"), false).unwrap();
        put_back();
        assert_eq!(content(&home), b"hello", "{how:?}");
        names.remove(&named("words"), &key()).unwrap();
        put_back();
        if home.journal("words").exists() {
            flip(&home.journal("words"), 20);
        }
        names.import(&named("words"), &key(), &mut &stream[..]).unwrap();
        assert_eq!(content(&home), b"later", "{how:?}");
    }
}

fn write_private(path: &std::path::Path, bytes: &[u8]) {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let _ = std::fs::remove_file(path);
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path).unwrap();
    file.write_all(bytes).unwrap();
}

#[test]
fn a_new_limit_keeps_the_last_commit() {
    for how in ALL {
        let home = left(how);
        unsynced(&home).set_limit(&named("words"), &key(), 64 * MIB).unwrap();
        let _ = std::fs::remove_file(home.image("words"));
        let region = unsynced(&home).open(&named("words"), &key()).unwrap();
        assert_eq!(
            (region.limit_bytes(), read(&region, AT as u64, 5)),
            (64 * MIB, b"later".to_vec()),
            "{how:?}"
        );
    }
}

/// What is salvaged from a file has what the log beside it adds.
///
/// Guarantee: heap/salvage
#[test]
fn salvage_includes_the_log_beside_the_file() {
    let home = left(Left::WithoutImage);
    let damaged = DamagedFile::read(&home.base("words")).unwrap();
    let found = damaged.report().continuation.clone().unwrap();
    assert_eq!((found.commits, found.damaged), (2, None));
    assert!(damaged.bytes()[AT..].starts_with(b"later"));
    // Of a journal that is damaged in its second record, the first one still counts.
    let first_record = 4096 + 64 + 4096 + 16;
    flip(&home.journal("words"), first_record + 70);
    store_one_more_record(&home);
    let damaged = DamagedFile::read(&home.base("words")).unwrap();
    let report = damaged.report();
    let found = report.continuation.clone().unwrap();
    assert_eq!((found.commits, report.is_whole()), (1, false));
    assert!(found.damaged.unwrap().contains("words.journal"));
    assert!(damaged.bytes()[AT..].starts_with(b"other"));

    let home = left(Left::Publishing);
    let damaged = DamagedFile::read(&home.image("words")).unwrap();
    assert_eq!(damaged.report().header, HeaderState::Whole);
    assert_eq!(damaged.report().continuation.as_ref().map(|found| found.commits), Some(1));
    assert!(damaged.bytes()[AT..].starts_with(b"later"));
    truncate(&redo(&home), 4096 + 16);
    assert!(DamagedFile::read(&home.image("words")).unwrap().bytes()[AT..].starts_with(b"hello"));
}

/// Appends the second record again as a third one would be, so that the damaged one is not the torn
/// end.
fn store_one_more_record(home: &Home) {
    use std::os::unix::fs::FileExt;
    let file =
        std::fs::OpenOptions::new().read(true).write(true).open(home.journal("words")).unwrap();
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 4096 + 64 + 4096 + 16).unwrap();
    let mut salt = [0; 8];
    file.read_exact_at(&mut salt, 48).unwrap();
    head[8..16].copy_from_slice(&3_u64.to_le_bytes());
    let seed = u64::from_le_bytes(salt) ^ 3;
    let sum = xxhash_rust::xxh3::xxh3_64_with_seed(&head[..56], seed);
    head[56..].copy_from_slice(&sum.to_le_bytes());
    file.write_all_at(&head, file.metadata().unwrap().len()).unwrap();
}
