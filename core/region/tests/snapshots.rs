//! Snapshots: what they hold, what restoring leaves behind wherever it is killed, and who may do
//! it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::path::PathBuf;
use std::sync::Arc;

use common::faulty::{Fault, FaultyStorage};
use common::noted::Notes;
use common::{DATA_OFFSET, Home, MIB, flip, key, make_newer, named, other_key, read, store};
use holdfast_region::{Durability, ErrorKind, NameSpace, RegionError, Written};

const EIO: i32 = 5;
/// More steps than any operation here has.
const STEPS_MAX: usize = 100;

/// The first bytes of the region, closed again in order.
fn content(home: &Home) -> Vec<u8> {
    let region = home.names().open(&named("words"), &key()).unwrap();
    let found = read(&region, 0, 5);
    region.close().unwrap();
    found
}

fn change_to(names: &NameSpace, text: &[u8]) {
    let mut region = names.open(&named("words"), &key()).unwrap();
    store(&mut region, 0, text);
    region.close().unwrap();
}

/// A region with a snapshot `first` of "hello", and "later" in it now.
fn with_snapshot() -> Home {
    let home = Home::with_text("words", b"hello");
    home.names().snapshot(&named("words"), &key(), &named("first")).unwrap();
    change_to(&home.names(), b"later");
    home
}

/// Commits a text to the journal, and closes in order.
fn commit(home: &Home, text: &[u8]) {
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    let notes = Notes::of(&mut region);
    notes.store(&mut region, 0, text);
    assert_eq!(region.commit(Durability::Power).unwrap().written, Written::Journal);
    region.close().unwrap();
}

/// A region with "hello" in its base and "later" in its journal, closed in order.
fn with_journal() -> Home {
    let home = Home::with_text("words", b"hello");
    commit(&home, b"later");
    home
}

fn snapshot_path(home: &Home, tag: &str) -> PathBuf {
    home.path().join("store/snapshots/words").join(format!("{tag}.base"))
}

fn damage_image(home: &Home) {
    for slot in [0, 4096] {
        flip(&home.image("words"), slot + 100);
    }
}

/// Puts the file of another region in its place.
fn replace_by_another(home: &Home, file: fn(&Home, &str) -> PathBuf) {
    home.names().create(&named("letters"), &key(), MIB).unwrap().close().unwrap();
    std::fs::rename(file(home, "letters"), file(home, "words")).unwrap();
}

/// A snapshot keeps what was there and restoring keeps what it replaces.
///
/// Guarantee: heap/snapshots
#[test]
fn restore_keeps_what_it_replaces() {
    let home = with_snapshot();
    let names = home.names();
    assert!(
        names
            .open_snapshot(&named("words"), &named("first"))
            .unwrap()
            .bytes()
            .starts_with(b"hello")
    );
    let report = names.restore(&named("words"), &key(), &named("first"), false).unwrap();
    assert_eq!(content(&home), b"hello");
    let kept = report.kept.unwrap();
    let tags: Vec<_> =
        names.snapshots(&named("words")).unwrap().into_iter().map(|found| found.tag).collect();
    assert_eq!(tags.len(), 2);
    assert!(tags.contains(&kept) && tags.contains(&named("first")));
    assert_eq!(names.restore(&named("words"), &key(), &kept, true).unwrap().kept, None);
    assert_eq!(content(&home), b"later");
    assert_eq!(names.snapshots(&named("words")).unwrap().len(), 2);
}

/// A snapshot holds stores that were never checkpointed.
#[test]
fn snapshot_holds_uncheckpointed_stores() {
    let home = Home::with_text("words", b"hello");
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    store(&mut region, 0, b"later");
    // As if its process had died.
    drop(region);
    home.names().snapshot(&named("words"), &key(), &named("first")).unwrap();
    let snapshot = home.names().open_snapshot(&named("words"), &named("first")).unwrap();
    assert!(snapshot.bytes().starts_with(b"later"));
}

/// A base whose journal is gone is not taken for the newest state.
///
/// Guarantee: heap/snapshots
#[test]
fn base_without_its_journal_is_not_the_newest_state() {
    let home = with_journal();
    let names = home.names();
    std::fs::remove_file(home.journal("words")).unwrap();
    names.snapshot(&named("words"), &key(), &named("now")).unwrap();
    assert!(
        names.open_snapshot(&named("words"), &named("now")).unwrap().bytes().starts_with(b"later")
    );
    // A restore keeps what it replaces: the newest state as well.
    let home = with_journal();
    let names = home.names();
    names.snapshot(&named("words"), &key(), &named("first")).unwrap();
    commit(&home, b"newer");
    std::fs::remove_file(home.journal("words")).unwrap();
    let kept =
        names.restore(&named("words"), &key(), &named("first"), false).unwrap().kept.unwrap();
    assert!(names.open_snapshot(&named("words"), &kept).unwrap().bytes().starts_with(b"newer"));
    assert_eq!(content(&home), b"later");
}

/// A region in the store only is snapshotted without an image.
#[test]
fn stored_region_is_snapshotted_without_image() {
    let home = Home::with_text("words", b"hello");
    std::fs::remove_file(home.image("words")).unwrap();
    home.names().snapshot(&named("words"), &key(), &named("first")).unwrap();
    assert!(!home.image("words").exists());
    home.names().restore(&named("words"), &key(), &named("first"), true).unwrap();
    assert_eq!(content(&home), b"hello");
}

/// A restore that dies in any step leaves the old state or the restored one.
///
/// Guarantee: heap/snapshots
#[test]
fn killed_restore_leaves_old_or_restored_state() {
    for fault in [Fault::Once(EIO), Fault::Dead] {
        for discard in [false, true] {
            for crashed in [false, true] {
                for step in 0.. {
                    assert!(step < STEPS_MAX, "the restore never comes through");
                    let home = with_snapshot();
                    if crashed {
                        let mut region = home.names().open(&named("words"), &key()).unwrap();
                        store(&mut region, 0, b"newer");
                    }
                    let storage = Arc::new(FaultyStorage::new(fault));
                    storage.arm(step);
                    let names = home.names_over(storage.clone());
                    let outcome = names.restore(&named("words"), &key(), &named("first"), discard);
                    let old: &[u8] = if crashed { b"newer" } else { b"later" };
                    if !storage.struck() {
                        outcome.unwrap();
                        assert_eq!(content(&home), b"hello");
                        break;
                    }
                    outcome.unwrap_err();
                    let found = content(&home);
                    assert!(found == old || found == b"hello", "step {step}: {found:?}");
                    // What is there now is there without its image, too: nothing older comes back.
                    std::fs::remove_file(home.image("words")).unwrap();
                    assert_eq!(content(&home), found, "step {step}");
                    home.names().restore(&named("words"), &key(), &named("first"), true).unwrap();
                    assert_eq!(content(&home), b"hello");
                    assert!(home.leftovers().is_empty());
                }
            }
        }
    }
}

/// A snapshot that dies in any step leaves none or a whole one.
///
/// Guarantee: heap/snapshots
#[test]
fn killed_snapshot_leaves_none_or_a_whole_one() {
    for step in 0.. {
        assert!(step < STEPS_MAX, "the snapshot never comes through");
        let home = Home::with_text("words", b"hello");
        let storage = Arc::new(FaultyStorage::new(Fault::Dead));
        storage.arm(step);
        let outcome =
            home.names_over(storage.clone()).snapshot(&named("words"), &key(), &named("first"));
        if !storage.struck() {
            outcome.unwrap();
            break;
        }
        match home.names().open_snapshot(&named("words"), &named("first")) {
            Ok(whole) => assert!(whole.bytes().starts_with(b"hello")),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
                home.names().snapshot(&named("words"), &key(), &named("first")).unwrap();
            }
        }
        assert_eq!(content(&home), b"hello");
    }
}

#[test]
fn a_snapshot_is_durable_before_it_gets_its_name() {
    let home = Home::with_text("words", b"hello");
    let storage = Arc::new(FaultyStorage::new(Fault::Dead));
    home.names_over(storage.clone()).snapshot(&named("words"), &key(), &named("first")).unwrap();
    let log = storage.take_log();
    assert!(log.ends_with(&["write_at", "sync", "rename", "sync_directory"]), "{log:?}");
}

/// A flipped bit in a snapshot is found before it is used and the region stays.
///
/// Guarantee: heap/damaged-headers
#[test]
fn flipped_snapshot_bit_is_found_before_use() {
    let home = with_snapshot();
    flip(&snapshot_path(&home, "first"), DATA_OFFSET + 100);
    let names = home.names();
    let error = names.restore(&named("words"), &key(), &named("first"), true).unwrap_err();
    assert!(matches!(error, RegionError::DataDamaged { .. }), "{error}");
    assert!(matches!(
        names.open_snapshot(&named("words"), &named("first")).unwrap_err(),
        RegionError::DataDamaged { .. }
    ));
    assert_eq!(content(&home), b"later");
}

#[test]
fn a_damaged_checkpoint_becomes_no_snapshot() {
    let home = Home::with_text("words", b"hello");
    flip(&home.base("words"), DATA_OFFSET + 100);
    let error = home.names().snapshot(&named("words"), &key(), &named("first")).unwrap_err();
    assert!(matches!(error, RegionError::DataDamaged { .. }), "{error}");
    assert!(home.names().snapshots(&named("words")).unwrap().is_empty());
}

/// A damaged region is restored only when its state may be discarded.
#[test]
fn damaged_region_is_restored_only_on_discard() {
    let home = with_snapshot();
    damage_image(&home);
    let names = home.names();
    let error = names.restore(&named("words"), &key(), &named("first"), false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadFile, "{error}");
    assert!(names.restore(&named("words"), &other_key(), &named("first"), true).is_err());
    names.restore(&named("words"), &key(), &named("first"), true).unwrap();
    assert_eq!(content(&home), b"hello");
}

/// What is newer, or another region's, is no damage that a restore may discard.
///
/// Guarantee: heap/old-formats
#[test]
fn restore_discards_nothing_newer_or_renamed() {
    let cases: [fn(&Home); 6] = [
        |home| make_newer(&home.image("words")),
        |home| replace_by_another(home, Home::image),
        |home| {
            damage_image(home);
            make_newer(&home.base("words"));
        },
        |home| {
            damage_image(home);
            make_newer(&home.journal("words"));
        },
        |home| {
            replace_by_another(home, Home::base);
            damage_image(home);
        },
        |home| {
            home.names().rescue(&named("words"), None).unwrap();
            make_newer(&home.path().join("store/words.rescue"));
            damage_image(home);
        },
    ];
    for (case, prepare) in cases.into_iter().enumerate() {
        let home = with_snapshot();
        commit(&home, b"newer");
        prepare(&home);
        let files = [home.image("words"), home.base("words"), home.journal("words")];
        let content = || files.each_ref().map(|path| std::fs::read(path).unwrap());
        let before = content();
        let restored = home.names().restore(&named("words"), &key(), &named("first"), true);
        let error = restored.unwrap_err();
        assert!(
            matches!(error, RegionError::NewerFormat { .. } | RegionError::Renamed { .. }),
            "case {case}: {error}"
        );
        assert!(content() == before, "case {case}: a file was changed");
    }
}

#[test]
fn snapshots_outlive_their_region_and_bring_it_back() {
    let home = with_snapshot();
    let names = home.names();
    names.remove(&named("words"), &key()).unwrap();
    assert_eq!(names.snapshots(&named("words")).unwrap().len(), 1);
    names.restore(&named("words"), &key(), &named("first"), false).unwrap();
    assert_eq!(content(&home), b"hello");
}

/// Only the owner takes restores and removes snapshots.
///
/// Guarantee: heap/keys
#[test]
fn only_the_owner_manages_snapshots() {
    let home = with_snapshot();
    let names = home.names();
    let (name, first) = (named("words"), named("first"));
    for refused in [
        names.snapshot(&name, &other_key(), &named("second")).map(drop),
        names.restore(&name, &other_key(), &first, true).map(drop),
        names.remove_snapshot(&name, &other_key(), &first),
    ] {
        assert!(matches!(refused.unwrap_err(), RegionError::NotOwner { .. }));
    }
    assert_eq!(content(&home), b"later");
    names.remove_snapshot(&name, &key(), &first).unwrap();
    assert!(!snapshot_path(&home, "first").exists());
}

/// A tag is taken once and a missing one is answered with those that exist.
#[test]
fn tag_is_unique_and_missing_one_lists_the_rest() {
    let home = with_snapshot();
    let names = home.names();
    let taken = names.snapshot(&named("words"), &key(), &named("first")).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
    let missing = names.restore(&named("words"), &key(), &named("frist"), false).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(missing.to_string().contains("first"), "{missing}");
    let nothing = names.snapshots(&named("wurds")).unwrap_err();
    assert!(matches!(nothing, RegionError::NotFound { .. }), "{nothing}");
}

#[test]
fn a_region_in_use_is_not_snapshotted_or_restored() {
    let home = with_snapshot();
    let names = home.names();
    let _held = names.open(&named("words"), &key()).unwrap();
    for refused in [
        names.snapshot(&named("words"), &key(), &named("second")).map(drop),
        names.restore(&named("words"), &key(), &named("first"), true).map(drop),
        names.set_limit(&named("words"), &key(), 16 * MIB).map(drop),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Held);
    }
}
