//! Room that is made before it is needed.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod common;

use common::{assert_sound, open};
use holdfast_heap::{Backing, GrowError, HeapError};
use holdfast_testkit::TestMemory;

const MIB: u64 = 1 << 20;

/// What was reserved is used without another growth, and not before it is needed.
///
/// Guarantee: heap/reserve
#[test]
fn reserved_room_needs_no_growth() {
    for bytes in [1, 100 << 10, 4 * MIB, 60 * MIB] {
        let mut heap = open(TestMemory::new(128 * MIB));
        let first = heap.alloc(1000).unwrap();
        let before = heap.usage();
        let backed = heap.reserve(bytes).unwrap();
        assert_eq!(backed, heap.backing().backed_bytes());
        assert_eq!(heap.usage().chunk_bytes, before.chunk_bytes);
        let mut taken = 0;
        while taken + 4096 <= bytes {
            heap.alloc(4096).unwrap();
            taken += 4096;
        }
        assert_eq!(heap.backing().backed_bytes(), backed, "{bytes}");
        heap.free(first).unwrap();
        assert_sound(heap.backing().bytes(), "after it");
        // The room is there already.
        assert!(heap.reserve(1).unwrap() >= backed);
    }
}

/// More than the limit is refused, and the heap goes on as if nothing had been asked.
///
/// Guarantee: heap/reserve
#[test]
fn reserving_too_much_changes_nothing() {
    let mut heap = open(TestMemory::new(16 * MIB));
    let backed = heap.backing().backed_bytes();
    for bytes in [17 * MIB, 1 << 40, u64::MAX] {
        let refused = heap.reserve(bytes);
        let cause = GrowError::LimitReached { limit_bytes: 16 * MIB };
        assert_eq!(refused, Err(HeapError::OutOfMemory { wanted_bytes: bytes, cause }));
        assert_eq!(heap.backing().backed_bytes(), backed);
    }
    heap.reserve(8 * MIB).unwrap();
    heap.alloc(7 * MIB).unwrap();
    assert_sound(heap.backing().bytes(), "after it");
}

/// Where the limit cuts the last segment off, room was promised that was not there.
///
/// Guarantee: heap/reserve
#[test]
fn short_last_segment_promises_what_it_has() {
    const CHUNK: u64 = 64 << 10;
    // Of the second segment there are 32 chunks, and the first of these holds its tables.
    const ROOM: u64 = 31 * CHUNK;
    let mut heap = open(TestMemory::new(6 * MIB));
    let backed = heap.backing().backed_bytes();
    for bytes in [ROOM + 1, 3 * MIB, 4 * MIB, 40 * MIB] {
        let refused = heap.reserve(bytes);
        let cause = GrowError::LimitReached { limit_bytes: 6 * MIB };
        assert_eq!(refused, Err(HeapError::OutOfMemory { wanted_bytes: bytes, cause }));
        assert_eq!(heap.backing().backed_bytes(), backed);
    }
    assert_eq!(heap.reserve(0), Ok(backed));
    assert_eq!(heap.reserve(ROOM), Ok(6 * MIB));
    heap.alloc(40 * CHUNK).unwrap();
    // The first segment has not so much left: the object lies in the second one.
    heap.alloc(ROOM).unwrap();
    assert_eq!(heap.reserve(0), Ok(6 * MIB));
    assert_sound(heap.backing().bytes(), "full");
}
