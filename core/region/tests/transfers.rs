//! Export, import, copies and limits: the same bytes arrive, or nothing does.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::sync::Arc;

use common::faulty::{Fault, FaultyStorage};
use common::{Home, MIB, key, named, other_key, read, store};
use holdfast_region::{ErrorKind, LimitError, Medium, RegionError, StreamError};

const GIB: u64 = 1 << 30;

/// A region with data in its first, in a middle and in its last page, and its stream.
fn with_stream() -> (Home, Vec<u8>) {
    let home = Home::with_text("words", b"hello");
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    store(&mut region, 3 << 20, &[7; 9000]);
    store(&mut region, (4 << 20) - 1, b"x");
    region.close().unwrap();
    let mut stream = Vec::new();
    home.names().open_read(&named("words")).unwrap().export(&mut stream).unwrap();
    (home, stream)
}

fn data(home: &Home, name: &str) -> Vec<u8> {
    home.names().open_read(&named(name)).unwrap().bytes().to_vec()
}

fn import(home: &Home, name: &str, mut stream: &[u8]) -> Result<(), RegionError> {
    home.names().import(&named(name), &key(), &mut stream).map(drop)
}

fn assert_nothing_is_left(home: &Home, name: &str) {
    let names = [home.pool().to_owned(), home.path().join("store")];
    for entry in names.iter().flat_map(|directory| std::fs::read_dir(directory).unwrap()) {
        let file_name = entry.unwrap().file_name().into_string().unwrap();
        assert!(!file_name.contains(name), "{file_name} is left behind");
    }
}

/// An exported region arrives with its bytes in another home under another key.
///
/// Guarantee: heap/import
#[test]
fn exported_region_arrives_under_another_key() {
    let (home, stream) = with_stream();
    assert!(stream.len() < 32 << 10, "holes are not in the stream: {}", stream.len());
    let other = Home::new();
    other.names().import(&named("copy"), &other_key(), &mut &stream[..]).unwrap();
    assert!(data(&other, "copy") == data(&home, "words"));
    let (from, to) = (
        home.names().summary(&named("words")).unwrap(),
        other.names().summary(&named("copy")).unwrap(),
    );
    assert_eq!((from.address, from.limit_bytes), (to.address, to.limit_bytes));
    assert_ne!(from.uuid, to.uuid);
    let region = other.names().open(&named("copy"), &other_key()).unwrap();
    assert_eq!(read(&region, 0, 5), b"hello");
    assert!(other.names().open(&named("copy"), &key()).is_err());
}

/// Every flipped byte of a stream is found and leaves nothing behind.
///
/// Guarantee: heap/import
#[test]
fn flipped_stream_byte_is_found_and_leaves_nothing() {
    let (_, stream) = with_stream();
    let home = Home::new();
    for position in
        (0..stream.len()).step_by(61).chain(0..600).chain(stream.len() - 64..stream.len())
    {
        let mut flipped = stream.clone();
        flipped[position] ^= 0x10;
        let error = import(&home, "copy", &flipped).unwrap_err();
        assert!(matches!(error, RegionError::Stream(_)), "byte {position}: {error}");
        assert_eq!(error.kind(), ErrorKind::BadFile);
    }
    assert_nothing_is_left(&home, "copy");
    import(&home, "copy", &stream).unwrap();
}

/// A stream that is cut off anywhere is refused and leaves nothing behind.
///
/// Guarantee: heap/import
#[test]
fn truncated_stream_is_refused_and_leaves_nothing() {
    let (_, stream) = with_stream();
    let home = Home::new();
    for length in (0..stream.len()).step_by(97).chain([stream.len() - 1, stream.len() - 24]) {
        let error = import(&home, "copy", &stream[..length]).unwrap_err();
        let expected = match &error {
            RegionError::Stream(StreamError::Truncated { offset }) => *offset == length as u64,
            RegionError::Stream(StreamError::Foreign) => length < 8,
            _ => false,
        };
        assert!(expected, "{length}: {error}");
    }
    assert_nothing_is_left(&home, "copy");
}

#[test]
fn foreign_streams_and_longer_ones_are_refused() {
    let (_, stream) = with_stream();
    let home = Home::new();
    let foreign = import(&home, "copy", b"Dear diary, today").unwrap_err();
    assert!(matches!(foreign, RegionError::Stream(StreamError::Foreign)), "{foreign}");
    let longer = import(&home, "copy", &[&stream[..], b"x"].concat()).unwrap_err();
    assert!(matches!(longer, RegionError::Stream(StreamError::Damaged { .. })), "{longer}");
    assert_nothing_is_left(&home, "copy");
}

/// What a stream claims is refused where there is no room for it before more is read.
///
/// Guarantee: heap/import
#[test]
fn stream_without_room_is_refused_early() {
    let (_, stream) = with_stream();
    let mut header = stream[..256].to_vec();
    for field in [40, 48] {
        header[field..field + 8].copy_from_slice(&(64 * GIB).to_le_bytes());
    }
    let checksum = xxhash_rust::xxh3::xxh3_64(&header[..248]);
    header[248..].copy_from_slice(&checksum.to_le_bytes());
    let home = Home::new();
    for medium in [Medium::Memory, Medium::File] {
        let import = |room_bytes| {
            let storage = Arc::new(FaultyStorage::with_room(Fault::Dead, room_bytes));
            let names = home.names_over(storage).with_medium(medium);
            names.import(&named("copy"), &key(), &mut &header[..]).unwrap_err()
        };
        let error = import(64 * GIB - 1);
        assert_eq!(error.kind(), ErrorKind::NoRoom, "{error}");
        let is_typed = match &error {
            RegionError::NoRoom { needed_bytes, .. } => {
                (medium, *needed_bytes) == (Medium::Memory, 64 * GIB)
            }
            RegionError::NoRoomOnDisk { needed_bytes, .. } => {
                (medium, *needed_bytes) == (Medium::File, 64 * GIB)
            }
            _ => false,
        };
        assert!(is_typed, "{error}");
        let read_on = import(64 * GIB);
        assert!(
            matches!(read_on, RegionError::Stream(StreamError::Truncated { offset: 256 })),
            "{read_on}"
        );
    }
    assert_nothing_is_left(&home, "copy");
}

#[test]
fn an_import_never_replaces_a_region() {
    let (home, stream) = with_stream();
    let error = import(&home, "words", &stream).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
}

/// An import that dies in any step leaves no region or a whole one.
///
/// Guarantee: heap/import
#[test]
fn killed_import_leaves_no_region_or_a_whole_one() {
    let (origin, stream) = with_stream();
    let expected = data(&origin, "words");
    for step in 0..100 {
        let home = Home::new();
        let storage = Arc::new(FaultyStorage::new(Fault::Dead));
        storage.arm(step);
        let outcome =
            home.names_over(storage.clone()).import(&named("copy"), &key(), &mut &stream[..]);
        if !storage.struck() {
            outcome.unwrap();
            return;
        }
        match home.names().open_read(&named("copy")) {
            Ok(reader) => assert!(reader.bytes() == expected),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
                import(&home, "copy", &stream).unwrap();
            }
        }
        assert!(home.leftovers().is_empty());
    }
    panic!("the import never comes through");
}

#[test]
fn a_copy_has_the_bytes_of_now_and_goes_its_own_way() {
    let home = Home::with_text("words", b"hello");
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    store(&mut region, 0, b"later");
    assert_eq!(
        home.names().copy(&named("words"), &named("copy"), &key()).unwrap_err().kind(),
        ErrorKind::Held
    );
    drop(region);
    home.names().copy(&named("words"), &named("copy"), &key()).unwrap();
    let mut copy = home.names().open(&named("copy"), &key()).unwrap();
    assert_eq!(read(&copy, 0, 5), b"later");
    store(&mut copy, 0, b"third");
    copy.close().unwrap();
    assert!(data(&home, "words").starts_with(b"later"));
    let again = home.names().copy(&named("words"), &named("copy"), &key()).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    let missing = home.names().copy(&named("wurds"), &named("third"), &key()).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert_nothing_is_left(&home, "third");
}

/// A limit grows and shrinks and survives the loss of the pool.
#[test]
fn limit_changes_survive_the_loss_of_the_pool() {
    let home = Home::with_text("words", b"hello");
    let names = home.names();
    assert_eq!(names.set_limit(&named("words"), &key(), 100 * MIB).unwrap(), 100 * MIB);
    let mut region = names.open(&named("words"), &key()).unwrap();
    assert_eq!((region.limit_bytes(), read(&region, 0, 5)), (100 * MIB, b"hello".to_vec()));
    assert!(region.grow(50 * MIB).unwrap() >= 50 * MIB);
    region.close().unwrap();
    let below = names.set_limit(&named("words"), &key(), 8 * MIB).unwrap_err();
    assert!(matches!(below, RegionError::Limit(LimitError::BelowSize { .. })), "{below}");
    names.set_limit(&named("words"), &key(), 60 * MIB).unwrap();
    std::fs::remove_file(home.image("words")).unwrap();
    assert_eq!(names.open(&named("words"), &key()).unwrap().limit_bytes(), 60 * MIB);
    assert!(matches!(
        names.set_limit(&named("words"), &other_key(), GIB).unwrap_err(),
        RegionError::NotOwner { .. } | RegionError::Held { .. }
    ));
}

/// A limit does not grow over the addresses of the next region but over those of a copy.
///
/// Guarantee: heap/limits
#[test]
fn limit_never_grows_over_the_next_region() {
    let home = Home::with_text("words", b"hello");
    let names = home.names();
    names.copy(&named("words"), &named("copy"), &key()).unwrap();
    names.set_limit(&named("words"), &key(), GIB).unwrap();
    names.create(&named("next"), &key(), MIB).unwrap().close().unwrap();
    let error = names.set_limit(&named("words"), &key(), 2 * GIB).unwrap_err();
    let RegionError::Limit(LimitError::Blocked { possible_bytes, behind, .. }) = error else {
        panic!("{error}");
    };
    assert_eq!((possible_bytes, behind.contains("next")), (GIB, true), "{behind}");
}
