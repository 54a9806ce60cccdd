//! A region that another process maps: what it stores survives, is found by comparing, and in the
//! mode `atomic` counts only when it is published.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::os::unix::fs::FileExt;

use common::{Home, PAGE_BYTES, key, named, read};
use holdfast_region::{Consistency, Durability, Lent, Opened, Region, RegionError, Written};

fn open(home: &Home) -> Region {
    home.names().open(&named("words"), &key()).unwrap()
}

/// A store of the borrower's.
fn store(lent: &Lent, offset: u64, bytes: &[u8]) {
    lent.file.write_all_at(bytes, lent.data_offset + offset).unwrap();
}

/// What a borrower stores is found by each commit and survives a lost pool.
///
/// Guarantee: heap/lending
#[test]
fn borrowed_stores_are_committed_and_survive() {
    let home = Home::with_text("words", b"hello");
    let mut region = open(&home);
    let lent = region.lend().unwrap();
    assert_eq!((lent.address, lent.is_private, lent.is_new), (region.address(), false, false));
    for (page, text) in [(3, b"one"), (5, b"two")] {
        store(&lent, page * PAGE_BYTES as u64, text);
        let report = region.commit(Durability::Power).unwrap();
        assert_eq!((report.written, report.pages), (Written::Journal, 1));
    }
    assert_eq!(region.commit(Durability::Power).unwrap().written, Written::Nothing);
    assert!(matches!(region.map_native(), Err(RegionError::AlreadyMapped)));
    let grown = region.grow(lent.backed_bytes + 1).unwrap();
    store(&lent, grown - 3, b"end");
    region.end_lending().unwrap();
    assert!(region.is_dirty());
    region.map_native().unwrap();
    region.close().unwrap();
    std::fs::remove_file(home.image("words")).unwrap();
    let region = open(&home);
    assert_eq!(region.opened(), Opened::Cold);
    for (offset, text) in
        [(3 * PAGE_BYTES as u64, b"one"), (5 * PAGE_BYTES as u64, b"two"), (grown - 3, b"end")]
    {
        assert_eq!(read(&region, offset, 3), text);
    }
    region.close().unwrap();
}

/// A borrower that dies with its host leaves its stores to the next session.
///
/// Guarantee: heap/lending
#[test]
fn stores_of_a_borrower_that_dies_with_its_host_stay() {
    let home = Home::with_text("words", b"hello");
    let mut region = open(&home);
    let lent = region.lend().unwrap();
    region.commit(Durability::Power).unwrap();
    store(&lent, 0, b"HELLO");
    drop(region);
    let region = open(&home);
    assert_eq!((region.opened(), read(&region, 0, 5)), (Opened::WarmAfterCrash, b"HELLO".to_vec()));
    assert_eq!(region.close().unwrap().checkpoint.pages, 1);
}

/// In the mode atomic a borrower cannot write and what is copied in counts when it is published.
///
/// Guarantee: heap/lending
#[test]
fn atomic_borrower_cannot_write_directly() {
    let home = Home::with_text("words", b"hello");
    let mut region = open(&home);
    region.set_consistency(Consistency::Atomic).unwrap();
    let lent = region.lend().unwrap();
    assert!(lent.is_private);
    assert!(lent.file.write_at(b"x", lent.data_offset).is_err());
    region.copy_in(0, b"HELLO").unwrap();
    region.copy_in(9 * PAGE_BYTES as u64, b"nine").unwrap();
    assert_eq!(read(&region, 0, 5), b"hello");
    assert_eq!(region.publish().unwrap().bytes, 2 * PAGE_BYTES as u64);
    assert_eq!(read(&region, 0, 5), b"HELLO");
    region.copy_in(0, b"Jello").unwrap();
    let backed_bytes = region.backed_bytes();
    assert!(matches!(
        region.copy_in(backed_bytes - 1, b"ab"),
        Err(RegionError::OutOfBounds { .. })
    ));
    region.end_lending().unwrap();
    region.close().unwrap();
    let region = open(&home);
    assert_eq!(
        (read(&region, 0, 5), read(&region, 9 * PAGE_BYTES as u64, 4)),
        (b"HELLO".to_vec(), b"nine".to_vec())
    );
    region.close().unwrap();
}

/// Guarantee: heap/lending
#[test]
fn a_region_that_may_only_be_read_is_lent_for_reading() {
    let home = Home::with_text("words", b"hello");
    let mut region = home.names().open_read_only(&named("words"), &key()).unwrap();
    let lent = region.lend().unwrap();
    assert!(lent.is_read_only && lent.limit_bytes == lent.backed_bytes);
    assert!(lent.file.write_at(b"x", lent.data_offset).is_err());
    region.end_lending().unwrap();
    assert!(region.close().unwrap().checkpoint.skipped);
}
