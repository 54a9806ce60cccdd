//! Heaps whose limit is no multiple of their segments, and what a limit that is raised later makes
//! of them.

#![allow(clippy::unwrap_used, reason = "a test ends where an expectation fails")]

mod common;

use common::{TestMemory, assert_sound, open};
use holdfast_heap::classes::CLASS_BYTES;
use holdfast_heap::layout::*;
use holdfast_heap::{Backing, Heap, HeapError};

/// What takes one chunk.
const BYTES: u64 = 60_000;

/// The same heap in a region with another limit, which has grown so far.
fn raised(small: &TestMemory, limit: u64, backed: u64) -> TestMemory {
    let mut large = small.with_limit(limit);
    if backed > large.backed_bytes() {
        large.grow(backed).unwrap();
    }
    large
}

fn fill(heap: &mut Heap<TestMemory>) -> u64 {
    std::iter::from_fn(|| heap.alloc(BYTES).ok()).count() as u64
}

/// Chunks for objects in a heap of so many bytes.
fn room(bytes: u64) -> u64 {
    bytes / CHUNK_BYTES - bytes.div_ceil(SEGMENT_BYTES) - 1
}

/// What a raised limit adds to a short segment is used and no damage.
///
/// Guarantee: heap/limits
#[test]
fn raised_limit_completes_a_short_segment() {
    for small in [1 << 20, 5 << 20, 6 << 20, (8 << 20) - CHUNK_BYTES] {
        for large in [small + 2 * CHUNK_BYTES, 8 << 20, (17 << 20) + CHUNK_BYTES] {
            let context = format!("{small} bytes, then {large}");
            let mut heap = open(TestMemory::new(small));
            assert_eq!(fill(&mut heap), room(small), "{context}");
            let full = heap.close();
            for backed in [full.backed_bytes(), large] {
                let memory = raised(&full, large, backed);
                assert_sound(memory.bytes(), &context);
                let mut heap = open(memory);
                assert_eq!(fill(&mut heap), room(large) - room(small), "{context}");
                assert_sound(heap.backing().bytes(), &context);
            }
        }
    }
}

/// An empty heap of 1 MiB said that all of it was in use.
///
/// Guarantee: heap/survey
#[test]
fn absent_chunks_do_not_count_as_used() {
    for bytes in [1 << 20, 6 << 20, 8 << 20] {
        let mut heap = open(TestMemory::new(bytes));
        let objects: Vec<_> = std::iter::from_fn(|| heap.alloc(BYTES).ok()).collect();
        let full = heap.usage();
        assert_eq!((full.formatted_bytes, full.chunk_bytes), (bytes, bytes));
        objects.into_iter().for_each(|object| heap.free(object).unwrap());
        // The tables and the log.
        let chunks = bytes.div_ceil(SEGMENT_BYTES) + 1;
        assert_eq!(heap.usage().chunk_bytes, chunks * CHUNK_BYTES, "{bytes}");
    }
}

/// A heap without an object had no room for a large one: each class of small objects kept a slab,
/// also from session to session.
///
/// Guarantee: heap/objects
#[test]
fn empty_slabs_are_room_for_large_objects() {
    for is_reopened in [false, true] {
        let mut heap = open(TestMemory::new(SEGMENT_BYTES));
        let small = |bytes: &u32| heap.alloc(u64::from(*bytes)).unwrap();
        let objects: Vec<_> = CLASS_BYTES.iter().map(small).collect();
        objects.into_iter().for_each(|object| heap.free(object).unwrap());
        if is_reopened {
            heap = open(heap.close());
        }
        // All that a segment has beside its table and the log.
        let large = heap.alloc(SEGMENT_BYTES - 2 * CHUNK_BYTES).unwrap();
        assert_eq!(assert_sound(heap.backing().bytes(), "full").objects, 1);
        heap.free(large).unwrap();
        let objects: Vec<_> = std::iter::from_fn(|| heap.alloc(48).ok()).collect();
        assert_eq!(objects.len() as u64, 62 * (CHUNK_BYTES / 48));
    }
}

/// A log that has to grow does not grow into the slab of the object that it is about to note.
///
/// Guarantee: heap/objects
/// Guarantee: heap/transactions
#[test]
fn log_does_not_grow_into_a_picked_slab() {
    let mut heap = open(TestMemory::new(SEGMENT_BYTES));
    let chunks: Vec<_> = std::iter::from_fn(|| heap.alloc(CHUNK_BYTES).ok()).collect();
    heap.free(chunks[0]).unwrap();
    let small = heap.alloc(64).unwrap();
    heap.free(small).unwrap();
    // What is left is an empty slab; the log is full to its last byte.
    heap.begin().unwrap();
    for range in 0..(CHUNK_BYTES - EXTENT_RECORDS) / (RECORD_BYTES + 16) {
        let place = chunks[1].as_ptr().wrapping_add(16 * range as usize);
        heap.add_range(place, 16).unwrap();
    }
    assert!(matches!(heap.alloc(64), Err(HeapError::OutOfMemory { .. })));
    heap.commit().unwrap();
    let report = assert_sound(heap.backing().bytes(), "committed");
    assert_eq!(report.objects, chunks.len() as u64 - 1);
    heap.alloc(64).unwrap();
}

/// A short segment behind which a large object lies is sound and filled later.
#[test]
fn short_segment_before_a_large_object_is_filled() {
    let mut heap = open(TestMemory::new(6 << 20));
    fill(&mut heap);
    let mut heap = open(raised(&heap.close(), 36 << 20, 8 << 20));
    heap.alloc(20 << 20).unwrap();
    assert_sound(heap.backing().bytes(), "with the large object");
    // What is left: the rest of the short segment, and a segment at the end.
    assert_eq!(fill(&mut heap), (2 << 20) / CHUNK_BYTES + SEGMENT_CHUNKS - 1);
    assert_sound(heap.backing().bytes(), "full");
}

/// A repair and a survey find nothing to do in a heap that has outgrown its short segment.
#[cfg(feature = "std")]
#[test]
fn outgrown_short_segment_needs_no_repair() {
    let mut heap = open(TestMemory::new(6 << 20));
    let objects = fill(&mut heap);
    let memory = raised(&heap.close(), 16 << 20, 12 << 20);
    let mut words: Vec<u64> =
        memory.bytes().as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let report = holdfast_heap::mend(&mut words, false).unwrap();
    assert!(report.mended.is_empty() && report.left.is_empty(), "{report:?}");
    assert_eq!(
        holdfast_heap::Survey::new(memory.bytes()).unwrap().objects().count() as u64,
        objects
    );
}

/// A kill in any step of the growth over a short segment leaves a sound heap.
///
#[cfg(feature = "crash-points")]
/// Guarantee: heap/limits
#[test]
fn killed_growth_over_short_segment_is_sound() {
    use common::kill::{Left, killed_at};

    let mut heap = open(TestMemory::new(6 << 20));
    fill(&mut heap);
    let full = heap.close();
    let objects = assert_sound(full.bytes(), "full").objects;
    let mut steps = 0;
    loop {
        let mut heap = open(raised(&full, 7 << 20, 6 << 20));
        let died = killed_at(steps, Left::of(heap.backing()), || _ = fill(&mut heap));
        let left = heap.backing().copy();
        drop(heap);
        let report = assert_sound(open(left).close().bytes(), &format!("step {steps}"));
        assert!(report.objects >= objects);
        if !died {
            assert_eq!(report.objects, objects + (1 << 20) / CHUNK_BYTES);
            break;
        }
        steps += 1;
    }
    assert!(steps > 16, "{steps}");
}

/// More segments than the checker has marks; nothing but roots is stored to, so most of the memory
/// is not there.
#[cfg(not(target_family = "wasm"))]
#[test]
fn checker_finds_every_roots_object() {
    let mut words = vec![0_u64; (2 << 30) / 8];
    let size_bytes = size_of_val(words.as_slice()) as u64;
    // SAFETY: the memory is this test's, outlives the heap, and nothing else refers to it while
    // that is open.
    let fixed = unsafe { holdfast_heap::Fixed::new(words.as_mut_ptr().cast(), size_bytes) };
    let mut heap = Heap::open(fixed, common::OPTIONS).unwrap();
    for index in 0..30 {
        heap.alloc((20 + index) << 20).unwrap();
        heap.create_root(&format!("in a segment {index}"), 3 << 20).unwrap();
        heap.create_root(&format!("over segments {index}"), 5 << 20).unwrap();
    }
    let lost = heap.root("in a segment 29").and_then(|root| heap.offset_of(root.pointer)).unwrap();
    heap.close();
    let report = assert_sound(holdfast_heap::bytes_of(&words), "many segments");
    assert!(report.segments > 300 && report.roots == 60, "{report:?}");
    // One object that is gone is missed.
    let used = (lost / SEGMENT_BYTES * SEGMENT_BYTES + DESC_USED_CHUNKS) / 8;
    words[used as usize] &= !(1 << (lost % SEGMENT_BYTES / CHUNK_BYTES));
    let mut roots = 0;
    holdfast_heap::check(holdfast_heap::bytes_of(&words), &mut |finding| {
        roots += u32::from(finding.what == "a root's object is not allocated with its size");
    });
    assert_eq!(roots, 1);
}
