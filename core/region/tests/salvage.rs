//! Salvage reads all that is in a damaged file, at its old offsets, and leaves the file as it is.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::fs;

use common::{
    DATA_OFFSET, FAR, Home, MIB, PACKED_OFFSET, flip, is_packed, key, named, read, store, truncate,
};
use holdfast_region::{DamagedFile, ErrorKind, HeaderState, RegionError};

/// A region with "hello" at its start and "x" in its last byte, and too much between them to be
/// packed.
fn home() -> Home {
    let home = Home::new();
    let mut region = home.names().create(&named("words"), &key(), 8 * MIB).unwrap();
    store(&mut region, 0, b"hello");
    store(&mut region, 1 << 16, &[7; 70 << 10]);
    store(&mut region, (4 << 20) - 1, b"x");
    region.close().unwrap();
    assert!(!is_packed(&home.base("words")));
    home
}

fn salvaged(home: &Home, damaged: &DamagedFile) -> Vec<u8> {
    home.names().salvage(damaged, &named("saved"), &key()).unwrap();
    let region = home.names().open(&named("saved"), &key()).unwrap();
    read(&region, 0, 4 << 20)
}

/// An image without headers gives all its data and is left alone.
///
/// Guarantee: heap/salvage
#[test]
fn headerless_image_gives_all_its_data() {
    let home = home();
    let path = home.image("words");
    for slot in [0, 4096] {
        flip(&path, slot + 100);
    }
    let before = fs::read(&path).unwrap();
    let damaged = DamagedFile::read(&path).unwrap();
    let report = damaged.report();
    assert_eq!(
        (report.header, report.name.clone(), report.missing_bytes),
        (HeaderState::Lost, None, 0)
    );
    let data = salvaged(&home, &damaged);
    assert!(data.starts_with(b"hello") && data.ends_with(b"x"));
    assert!(fs::read(&path).unwrap() == before);
    // The address was given out anew, apart from the region whose file this was.
    assert!(home.names().summary(&named("saved")).unwrap().limit_bytes > 4 * MIB);
}

/// A base that was cut off and renamed gives what is left and says what is missing.
#[test]
fn truncated_base_gives_the_rest_and_names_the_gap() {
    let home = home();
    let path = home.path().join("somewhere-else");
    fs::copy(home.base("words"), &path).unwrap();
    truncate(&path, DATA_OFFSET + MIB + 5);
    let damaged = DamagedFile::read(&path).unwrap();
    let report = damaged.report();
    assert_eq!((report.header, report.name.clone()), (HeaderState::Whole, Some(named("words"))));
    assert_eq!((report.missing_offset, report.missing_bytes), (MIB + 5, 3 * MIB - 5));
    assert!(
        !report.lacks(0..MIB + 5) && report.lacks(MIB..MIB + 6) && !report.lacks(4 * MIB..5 * MIB)
    );
    assert_eq!((report.checksum_matches, report.is_whole()), (Some(false), false));
    let data = salvaged(&home, &damaged);
    assert!(data.starts_with(b"hello") && data[MIB as usize..].iter().all(|byte| *byte == 0));
}

/// A flipped bit in a base is told and a whole base is called whole.
#[test]
fn base_with_flipped_bit_is_told_from_a_whole_one() {
    let home = home();
    assert!(DamagedFile::read(&home.base("words")).unwrap().report().is_whole());
    assert!(DamagedFile::read(&home.image("words")).unwrap().report().is_whole());
    flip(&home.base("words"), DATA_OFFSET + 1);
    let damaged = DamagedFile::read(&home.base("words")).unwrap();
    assert_eq!(damaged.report().checksum_matches, Some(false));
}

/// A file without data a newer one and a name that is taken are refused.
#[test]
fn unusable_sources_and_taken_names_are_refused() {
    let home = home();
    let path = home.path().join("short");
    fs::write(&path, b"Dear diary, today").unwrap();
    assert!(matches!(DamagedFile::read(&path), Err(RegionError::Foreign { .. })));
    fs::write(&path, &fs::read(home.base("words")).unwrap()[..8192]).unwrap();
    assert!(matches!(DamagedFile::read(&path), Err(RegionError::Truncated { .. })));
    let damaged = DamagedFile::read(&home.base("words")).unwrap();
    let taken = home.names().salvage(&damaged, &named("words"), &key()).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
    for slot in [0, 4096] {
        use std::os::unix::fs::FileExt;
        let file = fs::OpenOptions::new().write(true).open(home.image("words")).unwrap();
        file.write_all_at(&9_u32.to_le_bytes(), slot + 8).unwrap();
    }
    let newer = DamagedFile::read(&home.image("words")).unwrap_err();
    assert!(matches!(newer, RegionError::NewerFormat { found: 9, .. }), "{newer}");
}

/// Of a packed base file everything is found, also without its headers, and the file stays.
///
/// Guarantee: heap/salvage
#[test]
fn packed_base_gives_all_its_data_without_headers() {
    let home = Home::with_packed_text("words", b"hello");
    let path = home.base("words");
    assert!(DamagedFile::read(&path).unwrap().report().is_whole());
    for slot in [0, 4096] {
        flip(&path, slot + 100);
    }
    let before = fs::read(&path).unwrap();
    let damaged = DamagedFile::read(&path).unwrap();
    let report = damaged.report();
    assert_eq!(
        (report.header, report.name.clone(), report.data_bytes, report.missing_bytes),
        (HeaderState::Lost, None, 4 * MIB, 0)
    );
    let data = salvaged(&home, &damaged);
    assert!(data.starts_with(b"hello") && data[FAR..].starts_with(b"hello"));
    assert!(fs::read(&path).unwrap() == before);
}

/// Without headers, a damaged size in the packed part became that of a region that could not be
/// opened.
///
/// Guarantee: heap/salvage
#[test]
fn damaged_size_of_a_packed_base_gives_a_region() {
    let home = Home::with_packed_text("words", b"hello");
    let path = home.base("words");
    // A byte of each header, and the lowest one of the size.
    for offset in [100, 4096 + 100, PACKED_OFFSET + 8] {
        flip(&path, offset);
    }
    let damaged = DamagedFile::read(&path).unwrap();
    assert_eq!(damaged.report().data_bytes, 4 * MIB + (64 << 10));
    let data = salvaged(&home, &damaged);
    assert!(data.starts_with(b"hello") && data[FAR..].starts_with(b"hello"));
}

/// Of a packed base file that is damaged or cut off, what is left comes back, and the report says
/// that something is missing and where.
///
/// Guarantee: heap/salvage
#[test]
fn damaged_packed_base_gives_what_is_left() {
    let home = Home::with_packed_text("words", b"hello");
    let path = home.base("words");
    let whole = fs::read(&path).unwrap();
    for position in PACKED_OFFSET..whole.len() as u64 {
        flip(&path, position);
        let damaged = DamagedFile::read(&path).unwrap();
        assert!(!damaged.report().is_whole(), "byte {position}");
        assert_eq!(damaged.bytes().len() as u64, 4 * MIB);
        flip(&path, position);
    }
    // The head alone is what salvage can do without.
    flip(&path, PACKED_OFFSET);
    assert!(DamagedFile::read(&path).unwrap().bytes()[FAR..].starts_with(b"hello"));
    flip(&path, PACKED_OFFSET);
    truncate(&path, whole.len() as u64 - 6);
    let damaged = DamagedFile::read(&path).unwrap();
    let report = damaged.report();
    assert_eq!((report.missing_offset, report.checksum_matches), (FAR as u64 + 2, Some(false)));
    assert!(report.lacks(FAR as u64..FAR as u64 + 5) && !report.lacks(0..8));
    let data = salvaged(&home, &damaged);
    assert!(data.starts_with(b"hello") && data[FAR..].starts_with(b"he\0\0"));
    truncate(&path, PACKED_OFFSET);
    let report = DamagedFile::read(&path).unwrap().report().clone();
    assert_eq!((report.missing_offset, report.missing_bytes), (0, 4 * MIB));
}
