//! Base files of small regions are packed: they take few blocks, every reader of bases reads them,
//! and damage to them is found before anything is used.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;

use common::{
    DATA_OFFSET, FAR, Home, MIB, PACKED_OFFSET, flip, is_packed, key, named, read, store, truncate,
};
use holdfast_region::{Durability, FileRemedy, NameSpace, Opened, RegionError};

const SLOT_BYTES: u64 = 4096;

fn with_hello() -> Home {
    Home::with_packed_text("words", b"hello")
}

/// What a region holds at both places.
fn texts(names: &NameSpace, name: &str) -> [Vec<u8>; 2] {
    let reader = names.open_read(&named(name)).unwrap();
    [0, FAR].map(|at| reader.bytes()[at..at + 5].to_vec())
}

fn is_hello(names: &NameSpace, name: &str) -> bool {
    texts(names, name) == [b"hello", b"hello"]
}

/// A region with a few things in it takes three blocks of the store, its headers included.
///
/// Guarantee: heap/room
#[test]
fn small_base_takes_three_blocks() {
    let home = with_hello();
    let base = home.base("words").metadata().unwrap();
    assert!(base.len() <= 3 * 4096, "{}", base.len());
    assert!(base.blocks() * 512 <= 3 * 4096, "{}", base.blocks());
    // One with more than is packed lies as it did.
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    store(&mut region, 1 << 16, &vec![7; 2 << 20]);
    region.close().unwrap();
    assert!(!is_packed(&home.base("words")) || home.journal("words").exists());
    fs::remove_file(home.image("words")).unwrap();
    assert!(is_hello(&home.names(), "words"));
}

/// Opened for writing, for reading, lent to a reader, exported, copied, kept as a snapshot and
/// restored, and moved to the disk, a packed region is what it was.
///
/// Guarantee: heap/cold-open
#[test]
fn every_reader_of_bases_reads_packed_ones() {
    let home = with_hello();
    let names = home.names();
    fs::remove_file(home.image("words")).unwrap();
    assert!(is_hello(&names, "words"), "without an image");
    let region = names.open_read_only(&named("words"), &key()).unwrap();
    assert_eq!((region.opened(), read(&region, FAR as u64, 5)), (Opened::Cold, b"hello".to_vec()));
    drop(region);
    names.copy(&named("words"), &named("copy"), &key()).unwrap();
    assert!(is_packed(&home.base("copy")) && is_hello(&names, "copy"));
    let mut stream = Vec::new();
    names.open_read(&named("words")).unwrap().export(&mut stream).unwrap();
    names.import(&named("imported"), &key(), &mut &stream[..]).unwrap();
    assert!(is_packed(&home.base("imported")) && is_hello(&names, "imported"));
    let snapshot = names.snapshot(&named("words"), &key(), &named("first")).unwrap();
    assert!(is_packed(&snapshot.path) && snapshot.damaged.is_none());
    let reader = names.open_snapshot(&named("words"), &named("first")).unwrap();
    assert!(reader.bytes()[FAR..].starts_with(b"hello"));
    drop(reader);
    let mut region = names.open(&named("words"), &key()).unwrap();
    assert_eq!((region.opened(), read(&region, FAR as u64, 5)), (Opened::Cold, b"hello".to_vec()));
    store(&mut region, FAR, b"later");
    region.commit(Durability::Power).unwrap();
    region.close().unwrap();
    assert!(home.journal("words").exists(), "a journal continues a packed base");
    fs::remove_file(home.image("words")).unwrap();
    assert_eq!(texts(&names, "words"), [b"hello", b"later"]);
    names.restore(&named("words"), &key(), &named("first"), true).unwrap();
    assert!(is_hello(&names, "words"));
    names.remove(&named("words"), &key()).unwrap();
    names.restore(&named("words"), &key(), &named("first"), true).unwrap();
    assert!(is_packed(&home.base("words")) && is_hello(&names, "words"));
}

/// A base that is packed keeps its limit, and the form, when the limit changes in place.
///
/// Guarantee: heap/limits
#[test]
fn limit_of_a_packed_base_changes_in_place() {
    let home = with_hello();
    let names = home.names();
    let before = fs::read(home.base("words")).unwrap();
    names.set_limit(&named("words"), &key(), 32 * MIB).unwrap();
    let after = fs::read(home.base("words")).unwrap();
    assert!(after[PACKED_OFFSET as usize..] == before[PACKED_OFFSET as usize..]);
    fs::remove_file(home.image("words")).unwrap();
    assert_eq!(names.open(&named("words"), &key()).unwrap().limit_bytes(), 32 * MIB);
    assert!(is_hello(&names, "words"));
}

/// A flipped bit anywhere in the packed part is found before it is used, makes no image, and costs
/// nothing while the image is there.
///
/// Guarantee: heap/damaged-headers
#[test]
fn flipped_packed_bit_is_found_before_use() {
    let home = with_hello();
    let names = home.names();
    let (image, end) = (home.image("words"), home.base("words").metadata().unwrap().len());
    let aside = home.pool().join("aside");
    for position in PACKED_OFFSET..end {
        flip(&home.base("words"), position);
        assert!(is_hello(&names, "words"), "byte {position}: the image has it");
        fs::rename(&image, &aside).unwrap();
        let refused = [
            names.open(&named("words"), &key()).map(drop).unwrap_err(),
            names.open_read(&named("words")).map(drop).unwrap_err(),
            names.snapshot(&named("words"), &key(), &named("first")).map(drop).unwrap_err(),
        ];
        for error in refused {
            let RegionError::DataDamaged { expected, found, remedy, .. } = &error else {
                panic!("byte {position}: {error}")
            };
            assert!(expected != found, "byte {position}");
            let base = home.base("words");
            assert!(matches!(remedy, FileRemedy::RestoreFile { path } if *path == base));
        }
        assert!(!image.exists(), "a bad base made an image");
        fs::rename(&aside, &image).unwrap();
        flip(&home.base("words"), position);
    }
    // What is damaged is mended from the image.
    flip(&home.base("words"), PACKED_OFFSET + 40);
    let examination = names.examine(&named("words"), &key()).unwrap();
    assert_eq!(examination.findings().len(), 1);
    examination.mend(&[]).unwrap();
    fs::remove_file(&image).unwrap();
    assert!(is_packed(&home.base("words")) && is_hello(&names, "words"));
}

/// A packed base that was cut off anywhere is refused for what it is.
///
/// Guarantee: heap/damaged-headers
#[test]
fn truncated_packed_base_is_refused() {
    let home = with_hello();
    fs::remove_file(home.image("words")).unwrap();
    let whole = fs::read(home.base("words")).unwrap();
    for len_bytes in (0..whole.len() as u64).rev().take(200).chain([SLOT_BYTES, 100, 8, 0]) {
        truncate(&home.base("words"), len_bytes);
        let error = home.names().open(&named("words"), &key()).unwrap_err();
        let RegionError::Truncated { found_bytes, needed_bytes, .. } = error else {
            panic!("{len_bytes}: {error}")
        };
        assert_eq!(found_bytes, len_bytes);
        assert!(needed_bytes > len_bytes);
    }
    fs::write(home.base("words"), whole).unwrap();
    assert!(is_hello(&home.names(), "words"));
}

/// One lost header of a packed base costs nothing; only base files are packed, so an image that
/// claims to be is damaged.
///
/// Guarantee: heap/damaged-headers
#[test]
fn header_of_a_packed_base_may_be_lost() {
    for slot in 0..2 {
        let home = with_hello();
        fs::remove_file(home.image("words")).unwrap();
        flip(&home.base("words"), slot * SLOT_BYTES + 100);
        assert!(is_hello(&home.names(), "words"));
        let mut image = fs::read(home.base("words")).unwrap();
        image.resize((DATA_OFFSET + 4 * MIB) as usize, 0);
        fs::write(home.image("words"), image).unwrap();
        let error = home.names().open(&named("words"), &key()).unwrap_err();
        assert!(matches!(error, RegionError::HeaderDamaged { .. }), "{error}");
    }
}
