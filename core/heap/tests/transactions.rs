//! Transactions with ranges that are added many times, and with nested parts that fail.

#![allow(clippy::unwrap_used, reason = "a test ends where an expectation fails")]

mod common;

use common::{Dice, TestMemory, assert_sound, at, fill, holds, open};
use holdfast_heap::HeapError;

/// A range that is noted a million times takes its room once.
///
/// Guarantee: heap/transactions
#[test]
fn range_noted_a_million_times_is_logged_once() {
    let mut heap = open(TestMemory::new(1 << 20));
    let counters = heap.create_root("counters", 16 * 8).unwrap();
    let used = heap.usage();
    heap.begin().unwrap();
    for turn in 0..1_000_000 {
        let counter = counters.as_ptr().wrapping_add(turn % 16 * 8);
        heap.add_range(counter, 8).unwrap();
        // SAFETY: inside the object.
        unsafe { counter.write(turn as u8) };
    }
    assert_eq!(heap.usage(), used, "the log has outgrown its chunk");
    heap.abort().unwrap();
    assert!(holds(&heap, heap.offset_of(counters).unwrap(), 16 * 8, 0));
}

/// Whatever is noted again an abort brings back what was there at the begin.
///
/// Guarantee: heap/transactions
#[test]
fn abort_restores_ranges_noted_again() {
    const BYTES: u64 = 4096;
    let mut dice = Dice(3);
    let mut heap = open(TestMemory::new(4 << 20));
    let root = heap.create_root("data", BYTES).unwrap();
    let offset = heap.offset_of(root).unwrap() as usize;
    for round in 0..300 {
        let before = heap.backing().bytes()[offset..][..BYTES as usize].to_vec();
        let mut object = heap.alloc(100).unwrap();
        heap.begin().unwrap();
        for _ in 0..dice.below(100) {
            match dice.below(10) {
                0 => object = heap.alloc(dice.bytes()).unwrap(),
                1 => heap.free(object).unwrap(),
                _ => {
                    // Few starts, so that ranges meet again, longer or shorter.
                    let start = dice.below(20) * 100;
                    let bytes = dice.below(300);
                    let place = at(&heap, offset as u64 + start);
                    heap.add_range(place.as_ptr(), bytes).unwrap();
                    fill(place, bytes, round as u8);
                }
            }
        }
        let commits = dice.below(2) == 0;
        let after = heap.backing().bytes()[offset..][..BYTES as usize].to_vec();
        if commits { heap.commit() } else { heap.abort() }.unwrap();
        let expected = if commits { &after } else { &before };
        assert!(heap.backing().bytes()[offset..][..BYTES as usize] == **expected, "round {round}");
    }
}

/// A root whose object was freed by mistake can still be removed.
///
/// Guarantee: heap/roots
#[test]
fn root_of_a_freed_object_can_be_removed() {
    let mut heap = open(TestMemory::new(4 << 20));
    for inside in [false, true] {
        let object = heap.create_root("root", 64).unwrap();
        heap.free(object).unwrap();
        if inside {
            heap.transaction(|tx| tx.remove_root("root")).unwrap();
        } else {
            heap.remove_root("root").unwrap();
        }
        assert!(heap.root("root").is_none());
        // The table is left.
        assert_eq!(assert_sound(heap.backing().bytes(), "removed").objects, 1);
    }
}

/// What fails half way in a transaction takes the whole of it along.
///
/// Guarantee: heap/transactions
#[test]
fn failure_inside_a_transaction_undoes_all_of_it() {
    let mut heap = open(TestMemory::new(1 << 20));
    heap.create_root("first", 8).unwrap();
    let done: Result<(), HeapError> = heap.transaction(|tx| {
        tx.create_root("second", 8)?;
        // The object finds room, the name none.
        while tx.alloc(40_000).is_ok() {}
        while tx.alloc(300).is_ok() {}
        let name = "n".repeat(200);
        assert!(matches!(tx.create_root(&name, 16), Err(HeapError::OutOfMemory { .. })));
        Ok(())
    });
    assert_eq!(done, Err(HeapError::TransactionAborted));
    assert!(heap.root("second").is_none());
    // A table, an entry and an object.
    assert_eq!(assert_sound(heap.backing().bytes(), "rolled back").objects, 3);
    // What fails before it has changed anything leaves the rest alone.
    let done: Result<(), HeapError> = heap.transaction(|tx| {
        let small = tx.alloc(100)?;
        assert!(matches!(tx.realloc(small, 1 << 30), Err(HeapError::OutOfMemory { .. })));
        assert_eq!(tx.create_root("first", 8), Err(HeapError::NameTaken));
        tx.create_root("third", 8).map(drop)
    });
    assert_eq!(done, Ok(()));
    assert!(heap.root("third").is_some());
}
