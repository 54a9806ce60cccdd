//! The survey of a heap's chunks counts what the checker counts, and bears any bytes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use holdfast_heap::layout::CHUNK_BYTES;
use holdfast_heap::{ChunkUse, Heap, OpenOptions, check, survey, survey_roots};
use holdfast_testkit::TestMemory;

fn heap() -> TestMemory {
    let options = OpenOptions { format_if_empty: true, ..OpenOptions::default() };
    let mut heap = Heap::open(TestMemory::new(64 << 20), options).unwrap();
    for index in 0..3000_u64 {
        heap.alloc(16 + index % 900).unwrap();
    }
    heap.create_root("large", 300 << 10).unwrap();
    heap.create_root("spanning", 9 << 20).unwrap();
    heap.close()
}

#[test]
fn the_survey_covers_every_chunk_once_and_counts_what_the_checker_counts() {
    let memory = heap();
    let (mut next, mut objects, mut chunks, mut free) = (0, 0, 0, 0);
    survey(memory.bytes(), &mut |span| {
        assert_eq!(span.offset, next);
        next += span.chunks * CHUNK_BYTES;
        match span.used_for {
            ChunkUse::Slab { used_slots, .. } => objects += u64::from(used_slots),
            ChunkUse::Run { .. } => objects += 1,
            ChunkUse::Unknown => panic!("{span:?}"),
            _ => {}
        }
        match span.used_for {
            ChunkUse::Free => free += span.chunks,
            _ => chunks += span.chunks,
        }
    });
    let report = check(memory.bytes(), &mut |finding| panic!("{finding:?}"));
    assert_eq!((objects, chunks), (report.objects, report.chunks));
    assert_eq!(next, memory.bytes().len() as u64);
    assert!(free > 0);
}

#[test]
fn no_bytes_make_the_survey_panic_or_leave_the_heap() {
    let memory = heap();
    // Every byte of the first segment's tables, each with two other values.
    for position in (0..64 << 10).step_by(61) {
        for value in [0x00, 0xFF] {
            let mut copy = memory.bytes()[..4 << 20].to_vec();
            copy[position] = value;
            let mut next = 0;
            survey_roots(&copy, &mut |_| {});
            survey(&copy, &mut |span| {
                assert_eq!(span.offset, next);
                next += span.bytes();
            });
            assert!(next <= copy.len() as u64);
        }
    }
    survey(&[], &mut |span| panic!("{span:?}"));
    survey(&[0xFF; 4096], &mut |span| panic!("{span:?}"));
}

#[test]
fn roots_are_listed_with_their_places_and_a_damaged_entry_is_counted() {
    let mut memory = heap();
    let mut found = Vec::new();
    let unreadable = survey_roots(memory.bytes(), &mut |root| {
        found.push((root.name.to_owned(), root.offset, root.bytes));
    });
    found.sort();
    let sizes: Vec<_> = found.iter().map(|(name, _, bytes)| (name.as_str(), *bytes)).collect();
    assert_eq!((sizes, unreadable), (vec![("large", 300 << 10), ("spanning", 9 << 20)], 0));
    assert!(found.iter().all(|(_, offset, _)| offset % CHUNK_BYTES == 0));
    let name = memory.bytes().windows(5).position(|bytes| bytes == b"large").unwrap();
    memory.bytes_mut()[name] ^= 1;
    let mut left = 0;
    assert_eq!(survey_roots(memory.bytes(), &mut |_| left += 1), 1);
    assert_eq!(left, 1);
}
