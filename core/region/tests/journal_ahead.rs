//! Zeros that are written ahead of a journal's end: when there are some, that they are never more
//! than zeros, and that a commit without room for them is as good.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use common::faulty::{Fault, FaultyStorage};
use common::noted::Notes;
use common::{Home, MIB, key, named, read};
use holdfast_region::{Durability, NameSpace, Region, Written};

const PAGE: usize = 4096;
const ENOSPC: i32 = 28;
const HEADER_BYTES: u64 = 4096;
/// A record of one page: head, page, entry.
const RECORD_BYTES: u64 = 64 + 4096 + 16;
/// What closing writes behind the last record.
const MARK_BYTES: u64 = 64;
/// Commits of a session after which the next one has zeros behind it: the one that makes the
/// journal, and three appends.
const EXACT: u64 = 4;
const AHEAD_BYTES: u64 = 256 << 10;

fn home_with_base() -> Home {
    let home = Home::new();
    let mut region = home.names().create(&named("words"), &key(), MIB).unwrap();
    common::store(&mut region, 0, b"base");
    region.close().unwrap();
    home
}

/// Opens, and commits one page for each number.
fn committed(names: &NameSpace, numbers: std::ops::Range<u64>) -> Region {
    let mut region = names.open(&named("words"), &key()).unwrap();
    let notes = Notes::of(&mut region);
    for number in numbers {
        commit(&mut region, &notes, number);
    }
    region
}

fn commit(region: &mut Region, notes: &Notes, number: u64) {
    notes.store(region, number as usize * PAGE, &number.to_le_bytes());
    let report = region.commit(Durability::Power).unwrap();
    assert_eq!((report.written, report.bytes), (Written::Journal, RECORD_BYTES));
}

fn journal_bytes(home: &Home) -> u64 {
    home.journal("words").metadata().unwrap().len()
}

fn end_of(records: u64) -> u64 {
    HEADER_BYTES + records * RECORD_BYTES
}

/// The image is gone: what is there then is in the store. Page numbers are the first word of their
/// pages.
fn assert_stored(home: &Home, numbers: std::ops::Range<u64>) {
    let _ = std::fs::remove_file(home.image("words"));
    let region = home.names().open_read(&named("words")).unwrap();
    for number in 1..250 {
        let word =
            u64::from_le_bytes(region.bytes()[number as usize * PAGE..][..8].try_into().unwrap());
        assert_eq!(word, if numbers.contains(&number) { number } else { 0 });
    }
}

/// A session that commits often writes over zeros and a close gives back what is left.
///
/// Guarantee: heap/commit-cost
/// Guarantee: heap/journal-written-ahead
#[test]
fn frequent_commits_write_over_zeros_until_close() {
    let home = home_with_base();
    let storage = Arc::new(FaultyStorage::new(Fault::Dead));
    let mut region = committed(&home.names_over(storage.clone()), 1..EXACT + 1);
    let notes = Notes::of(&mut region);
    assert_eq!(journal_bytes(&home), end_of(EXACT), "few commits pay for no zeros");
    storage.take_log();
    commit(&mut region, &notes, EXACT + 1);
    assert_eq!(storage.take_log(), ["write_at", "write_at", "sync_data"]);
    let ahead = end_of(EXACT + 1) + AHEAD_BYTES;
    assert_eq!(journal_bytes(&home), ahead);
    // As many as fit, and the next one of the same size would.
    let fit = AHEAD_BYTES / RECORD_BYTES - 1;
    let last = EXACT + 1 + fit;
    for number in EXACT + 2..=last {
        commit(&mut region, &notes, number);
        assert_eq!(storage.take_log(), ["write_at", "sync_data"], "{number}");
    }
    assert_eq!(journal_bytes(&home), ahead);
    commit(&mut region, &notes, last + 1);
    assert_eq!(storage.take_log(), ["write_at", "write_at", "sync_data"]);
    assert_eq!(journal_bytes(&home), end_of(last + 1) + AHEAD_BYTES);
    region.close().unwrap();
    assert_eq!(journal_bytes(&home), end_of(last + 1) + MARK_BYTES);
    assert_stored(&home, 1..last + 2);
}

/// Zeros behind the last record are the journal's end, and the next writer goes on in them.
///
/// Guarantee: heap/journal-written-ahead
#[test]
fn next_writer_goes_on_in_the_zeros() {
    let home = home_with_base();
    drop(committed(&home.names(), 1..8));
    let ahead = journal_bytes(&home);
    assert!(ahead > end_of(7) + AHEAD_BYTES / 2);
    assert_stored(&home, 1..8);
    let examination = home.names().examine(&named("words"), &key()).unwrap();
    assert!(examination.findings().is_empty(), "{:?}", examination.findings());
    drop(examination);
    let mut region = committed(&home.names(), 8..10);
    assert_eq!(journal_bytes(&home), ahead, "what was there was given back, to be written again");
    assert_eq!(read(&region, 7 * PAGE as u64, 1), [7]);
    let notes = Notes::of(&mut region);
    commit(&mut region, &notes, 10);
    drop(region);
    assert_stored(&home, 1..11);
}

/// What is not zeros behind the last record counts for nothing and is cut off.
///
/// Guarantee: heap/journal-written-ahead
#[test]
fn nonzero_tail_counts_for_nothing_and_is_cut() {
    for at in [0, 1, RECORD_BYTES, AHEAD_BYTES / 2] {
        let home = home_with_base();
        drop(committed(&home.names(), 1..8));
        let file = std::fs::OpenOptions::new().write(true).open(home.journal("words")).unwrap();
        file.write_all_at(&[0xA5], end_of(7) + at).unwrap();
        assert_stored(&home, 1..8);
        let examination = home.names().examine(&named("words"), &key()).unwrap();
        assert_eq!(examination.findings().len(), 1, "byte {at}");
        drop(examination);
        drop(committed(&home.names(), 8..9));
        assert_eq!(journal_bytes(&home), end_of(8), "byte {at}");
        assert_stored(&home, 1..9);
    }
}

/// A flipped bit in a record that others follow is damage also where zeros follow those.
///
/// Guarantee: heap/journal-written-ahead
#[test]
fn flipped_bit_before_zeros_is_damage_too() {
    let home = home_with_base();
    drop(committed(&home.names(), 1..8));
    std::fs::remove_file(home.image("words")).unwrap();
    for record in 0..6 {
        common::flip(&home.journal("words"), end_of(record) + 100);
        assert!(home.names().open_read(&named("words")).is_err(), "record {record}");
        common::flip(&home.journal("words"), end_of(record) + 100);
    }
    assert_stored(&home, 1..8);
}

/// Without room for zeros appends are exact and every commit counts.
///
/// Guarantee: heap/commit-cost
/// Guarantee: heap/journal-written-ahead
#[test]
fn full_store_appends_exactly_and_commits_count() {
    let nearly_full = || FaultyStorage::with_room(Fault::Dead, MIB);
    let home = home_with_base();
    drop(committed(&home.names_over(Arc::new(nearly_full())), 1..21));
    assert_eq!(journal_bytes(&home), end_of(20));
    assert_stored(&home, 1..21);
    // The file system has room, and does not give it: a quota.
    let home = home_with_base();
    let storage = Arc::new(FaultyStorage::new(Fault::Once(ENOSPC)));
    let mut region = committed(&home.names_over(storage.clone()), 1..EXACT + 1);
    let notes = Notes::of(&mut region);
    storage.take_log();
    storage.arm(1);
    commit(&mut region, &notes, EXACT + 1);
    assert!(storage.struck());
    assert_eq!(storage.take_log(), ["write_at", "write_at", "set_len", "sync_data"]);
    assert_eq!(journal_bytes(&home), end_of(EXACT + 1));
    commit(&mut region, &notes, EXACT + 2);
    assert_eq!(storage.take_log(), ["write_at", "sync_data"], "it is not tried again");
    drop(region);
    assert_stored(&home, 1..EXACT + 3);
}

/// Guarantee: heap/commit-cost
/// Guarantee: heap/journal-written-ahead
#[test]
fn large_records_have_no_zeros_behind_them() {
    let home = home_with_base();
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    let notes = Notes::of(&mut region);
    let mut expected = 0;
    for number in 1..8 {
        notes.store(&mut region, PAGE, &[number; 20 * PAGE]);
        expected += region.commit(Durability::Power).unwrap().bytes;
        assert_eq!(journal_bytes(&home), HEADER_BYTES + expected);
    }
}
