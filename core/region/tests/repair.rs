//! Repair: what another file makes up for is mended without loss, what would lose something is told
//! first, and wherever it dies it can be done again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::faulty::{Fault, FaultyStorage};
use common::noted::Notes;
use common::reset::names_in_boot;
use common::{DATA_OFFSET, Home, MIB, flip, key, load, named, other_key, read, store, truncate};
use holdfast_region::{Durability, ErrorKind, KernelStorage, NameSpace, RegionError, Written};

/// More steps than any operation here has.
const STEPS_MAX: usize = 100;

/// "hello" in the base, "later" in the journal and in the image.
fn home(closed: bool) -> Home {
    let home = Home::with_text("words", b"hello");
    let mut region = unsynced(&home).open(&named("words"), &key()).unwrap();
    let notes = Notes::of(&mut region);
    for text in [b"other", b"later"] {
        notes.store(&mut region, 0, text);
        assert_eq!(region.commit(Durability::Power).unwrap().written, Written::Journal);
    }
    if closed {
        region.close().unwrap();
    }
    home
}

/// Without syncs: no test here can tell whether they reach the disk.
fn unsynced(home: &Home) -> NameSpace {
    home.names_over(Arc::new(FaultyStorage::new(Fault::Dead)))
}

/// The text of the region, closed again in order.
fn content(home: &Home) -> Vec<u8> {
    let region = unsynced(home).open(&named("words"), &key()).unwrap();
    let found = read(&region, 0, 5);
    region.close().unwrap();
    found
}

/// All files of the region, with what is in them.
fn files(home: &Home) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = [home.image("words"), home.base("words"), home.journal("words")];
    let read = |path: PathBuf| fs::read(&path).ok().map(|bytes| (path, bytes));
    paths.into_iter().filter_map(read).collect()
}

fn flip_headers(path: &Path) {
    for slot in [0, 4096] {
        flip(path, slot + 100);
    }
}

type Damage = (&'static str, fn(&Home));

/// What the image, or the base, makes up for.
const WITHOUT_LOSS: [Damage; 8] = [
    ("one header of the image", |home| flip(&home.image("words"), 4096 + 100)),
    ("both headers of the image", |home| flip_headers(&home.image("words"))),
    ("one header of the base", |home| flip(&home.base("words"), 100)),
    ("both headers of the base", |home| flip_headers(&home.base("words"))),
    ("the data of the base", |home| flip(&home.base("words"), DATA_OFFSET + 1)),
    ("a base that is cut off", |home| truncate(&home.base("words"), DATA_OFFSET + 5)),
    ("the first record of the journal", |home| flip(&home.journal("words"), 4096 + 100)),
    ("the header of the journal", |home| flip(&home.journal("words"), 100)),
];

/// Files that another file makes up for are mended without loss.
///
/// Guarantee: heap/repair
#[test]
fn replaceable_damage_is_mended_without_loss() {
    for closed in [true, false] {
        for (what, damage) in WITHOUT_LOSS {
            let home = home(closed);
            damage(&home);
            let before = files(&home);
            let examination = unsynced(&home).examine(&named("words"), &key()).unwrap();
            assert!(!examination.findings().is_empty(), "{what}");
            assert!(examination.findings().iter().all(|finding| finding.lost.is_none()), "{what}");
            assert!(examination.bytes().starts_with(b"later"), "{what}");
            assert!(files(&home) == before, "{what}: looking changed a file");
            let copies = examination.mend(&[]).unwrap();
            for (path, bytes) in before {
                assert!(
                    fs::read(copies.join(path.file_name().unwrap())).unwrap() == bytes,
                    "{what}"
                );
            }
            let again = unsynced(&home).examine(&named("words"), &key()).unwrap();
            assert_eq!(again.findings(), [], "{what}");
            drop(again);
            assert_eq!(content(&home), b"later", "{what}");
            fs::remove_file(home.image("words")).unwrap();
            assert_eq!(content(&home), b"later", "{what}");
        }
    }
}

#[test]
fn a_torn_end_of_the_journal_is_cut_off() {
    for lost_image in [false, true] {
        let home = home(false);
        let mut journal = fs::OpenOptions::new().append(true).open(home.journal("words")).unwrap();
        std::io::Write::write_all(&mut journal, &[7; 100]).unwrap();
        if lost_image {
            fs::remove_file(home.image("words")).unwrap();
        }
        let examination = unsynced(&home).examine(&named("words"), &key()).unwrap();
        assert_eq!(examination.findings().len(), 1);
        assert_eq!(examination.findings()[0].lost, None);
        examination.mend(&[]).unwrap();
        assert_eq!(content(&home), b"later");
        fs::remove_file(home.image("words")).unwrap();
        assert_eq!(content(&home), b"later");
    }
}

/// What would lose something is told and changes nothing until it is done.
///
/// Guarantee: heap/repair
#[test]
fn lossy_repair_is_told_and_waits_for_consent() {
    let cut: Damage =
        ("an image that is cut off", |home| truncate(&home.image("words"), DATA_OFFSET + MIB));
    let foreign: Damage =
        ("a foreign image", |home| fs::write(home.image("words"), b"Dear diary, today").unwrap());
    let journal: Damage = ("a journal without its image", |home| {
        fs::remove_file(home.image("words")).unwrap();
        flip(&home.journal("words"), 4096 + 100);
    });
    for ((what, damage), left) in [(cut, b"later"), (foreign, b"later"), (journal, b"hello")] {
        let home = home(true);
        damage(&home);
        let before = files(&home);
        let examination = unsynced(&home).examine(&named("words"), &key()).unwrap();
        assert!(examination.findings().iter().any(|finding| finding.lost.is_some()), "{what}");
        assert!(examination.bytes().starts_with(left), "{what}");
        drop(examination);
        assert!(files(&home) == before, "{what}");
        unsynced(&home).examine(&named("words"), &key()).unwrap().mend(&[]).unwrap();
        assert_eq!(content(&home), left, "{what}");
    }
}

/// A region of which nothing can be read and that of another key are refused.
#[test]
fn unreadable_and_foreign_regions_are_refused() {
    let home = home(true);
    let stranger = unsynced(&home).examine(&named("words"), &other_key()).unwrap_err();
    assert!(matches!(stranger, RegionError::NotOwner { .. }), "{stranger}");
    for path in [home.image("words"), home.base("words")] {
        flip_headers(&path);
    }
    let before = files(&home);
    let error = unsynced(&home).examine(&named("words"), &key()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadFile, "{error}");
    assert!(files(&home) == before);
}

#[test]
fn pieces_of_the_data_are_replaced_together() {
    let home = home(true);
    let examination = unsynced(&home).examine(&named("words"), &key()).unwrap();
    let (first, second) = ([1; 4096], [2; 8192]);
    examination.mend(&[(4096, &first), (2 << 20, &second)]).unwrap();
    for image in [true, false] {
        if !image {
            fs::remove_file(home.image("words")).unwrap();
        }
        let region = unsynced(&home).open(&named("words"), &key()).unwrap();
        assert_eq!(read(&region, 0, 5), b"later");
        assert_eq!(
            (read(&region, 4096, 4096), read(&region, 2 << 20, 8192)),
            (first.to_vec(), second.to_vec())
        );
        assert_eq!(read(&region, (2 << 20) + 8192, 1), [0]);
        region.close().unwrap();
    }
}

/// A repair that dies in any step leaves a region that can be repaired.
///
/// Guarantee: heap/repair
#[test]
fn killed_repair_leaves_a_repairable_region() {
    let cut: Damage =
        ("an image that is cut off", |home| truncate(&home.image("words"), DATA_OFFSET + MIB));
    let whole: Damage = ("nothing", |_| {});
    let old = [9; 4096];
    for (what, damage) in [WITHOUT_LOSS[1], WITHOUT_LOSS[4], WITHOUT_LOSS[6], cut, whole] {
        for step in 0.. {
            assert!(step < STEPS_MAX, "the repair never comes through");
            let home = home(false);
            damage(&home);
            let storage = Arc::new(FaultyStorage::new(Fault::Dead));
            let examination =
                home.names_over(storage.clone()).examine(&named("words"), &key()).unwrap();
            storage.arm(step);
            let outcome = examination.mend(&[(4096, &old), (1 << 20, &old)]);
            let context = format!("{what}, step {step}");
            if !storage.struck() {
                outcome.unwrap();
                assert_eq!(content(&home), b"later", "{context}");
                break;
            }
            let examination = unsynced(&home).examine(&named("words"), &key()).unwrap();
            let bytes = examination.bytes();
            assert!(bytes.starts_with(b"later"), "{context}");
            assert_eq!(
                bytes[4096..8192],
                bytes[1 << 20..][..4096],
                "{context}: one piece without the other"
            );
            examination.mend(&[(4096, &old)]).unwrap();
            assert_eq!(content(&home), b"later", "{context}");
            fs::remove_file(home.image("words")).unwrap();
            assert_eq!(content(&home), b"later", "{context}");
            assert!(home.leftovers().is_empty(), "{context}");
        }
    }
}

/// "hello" in the store; "newer" in an image of a pool that outlives the boot, in boot 2.
fn before_a_reset(closed: bool) -> Home {
    let home = Home::new();
    let names = names_in_boot(&home, 2, Arc::new(KernelStorage));
    let mut region = names.create(&named("words"), &key(), MIB).unwrap();
    store(&mut region, 0, b"hello");
    region.commit(Durability::Power).unwrap();
    store(&mut region, 0, b"newer");
    if closed {
        region.close().unwrap();
    }
    home
}

/// What was found wrong in an image that a reset tore says nothing about the store.
///
/// Guarantee: heap/repair
#[test]
fn an_image_that_a_reset_may_have_torn_mends_nothing() {
    for lost_headers in [false, true] {
        let home = before_a_reset(lost_headers);
        if lost_headers {
            flip_headers(&home.image("words"));
        }
        let image = fs::read(home.image("words")).unwrap();
        let names = names_in_boot(&home, 3, Arc::new(KernelStorage));
        let expected = if lost_headers { b"newer" } else { b"hello" };
        let examination = names.examine(&named("words"), &key()).unwrap();
        assert!(examination.bytes().starts_with(expected), "headers lost: {lost_headers}");
        assert_eq!(
            examination.findings().len(),
            usize::from(lost_headers),
            "{:?}",
            examination.findings()
        );
        let copies = examination.mend(&[(8192, b"mended")]).unwrap();
        assert!(fs::read(copies.join("words.image")).unwrap() == image, "it was not set aside");
        let mut region = names.open(&named("words"), &key()).unwrap();
        assert_eq!(
            (&load(&mut region, 0, 5)[..], &load(&mut region, 8192, 6)[..]),
            (&expected[..], &b"mended"[..])
        );
    }
}

/// An image without headers that is shorter than the store is passed over or refused with a remedy.
///
/// Guarantee: heap/repair
#[test]
fn short_headerless_image_is_passed_over_or_refused() {
    for closed in [true, false] {
        let home = home(closed);
        flip_headers(&home.image("words"));
        truncate(&home.image("words"), DATA_OFFSET + MIB / 2);
        let examination = unsynced(&home).examine(&named("words"), &key()).unwrap();
        assert!(examination.bytes().starts_with(b"later"));
        assert!(examination.findings().iter().any(|finding| finding.lost.is_some()));
        examination.mend(&[]).unwrap();
        assert_eq!(content(&home), b"later");
        // Without a whole base nothing replaces it.
        flip_headers(&home.image("words"));
        truncate(&home.image("words"), DATA_OFFSET + MIB / 2);
        flip(&home.base("words"), DATA_OFFSET + 1);
        let refused = unsynced(&home).examine(&named("words"), &key()).unwrap_err();
        assert!(matches!(refused, RegionError::Truncated { .. }), "{refused}");
        assert!(refused.to_string().contains("put a copy back"), "{refused}");
    }
}

/// The image is lost, and the rescue copy is newer than the store.
///
/// Guarantee: heap/repair
/// Guarantee: keeper/no-undo
#[test]
fn damaged_image_is_replaced_by_its_rescue_copy() {
    let home = home(false);
    for (text, is_rescued) in [(b"saved", true), (b"newer", false)] {
        let mut region = home.names().open(&named("words"), &key()).unwrap();
        store(&mut region, 0, text);
        drop(region);
        if is_rescued {
            home.names().rescue(&named("words"), None).unwrap();
        }
    }
    truncate(&home.image("words"), DATA_OFFSET + MIB);
    let copy = fs::read(home.path().join("store/words.rescue")).unwrap();
    let examination = home.names().examine(&named("words"), &key()).unwrap();
    assert!(examination.bytes().starts_with(b"saved"));
    assert!(examination.findings().iter().any(|finding| finding.lost.is_some()));
    let copies = examination.mend(&[(8192, b"mended")]).unwrap();
    assert!(fs::read(copies.join("words.rescue")).unwrap() == copy, "it was not set aside");
    assert_eq!(content(&home), b"saved");
    fs::remove_file(home.image("words")).unwrap();
    assert_eq!(content(&home), b"saved");
}

/// The rescue copy is newer than the store, and a new checkpoint would make it stale.
///
/// Guarantee: heap/repair
#[test]
fn a_region_that_was_rescued_is_mended_from_its_copy() {
    let home = home(false);
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    store(&mut region, 0, b"saved");
    drop(region);
    home.names().rescue(&named("words"), None).unwrap();
    fs::remove_file(home.image("words")).unwrap();
    flip(&home.base("words"), 100);
    let examination = home.names().examine(&named("words"), &key()).unwrap();
    assert!(examination.bytes().starts_with(b"saved"));
    assert!(!examination.findings().is_empty());
    examination.mend(&[(8192, b"mended")]).unwrap();
    assert_eq!(content(&home), b"saved");
    fs::remove_file(home.image("words")).unwrap();
    assert_eq!(content(&home), b"saved");
}
