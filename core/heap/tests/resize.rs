//! Aligned objects, resizing, and transactions inside transactions.

#![allow(clippy::unwrap_used, reason = "a test ends where an expectation fails")]

mod common;

use common::{OPTIONS, TestMemory, assert_sound, at, fill, holds, open};
use holdfast_heap::{Heap, HeapError, typed};

typed! {
    struct Counter: 1 {
        count: u64,
    }
}

/// Aligned objects are aligned freed and measured at every size.
///
/// Guarantee: heap/alignment
#[test]
fn aligned_objects_work_at_every_size() {
    let mut heap = open(TestMemory::new(128 << 20));
    let mut objects = Vec::new();
    for power in 0..=21 {
        for bytes in [0, 1, 24, 300, 5000, 40_000, 70_000, 1 << 20, (2 << 20) + 1, 5 << 20] {
            let object = match power % 2 {
                0 => heap.alloc_aligned(bytes, 1 << power).unwrap(),
                _ => heap.alloc_aligned_zeroed(bytes, 1 << power).unwrap(),
            };
            // SAFETY: just allocated with as many bytes.
            let content = unsafe { std::slice::from_raw_parts(object.as_ptr(), bytes as usize) };
            assert!(
                power % 2 == 0 || content.iter().all(|byte| *byte == 0),
                "{bytes} at 2^{power}"
            );
            assert!((object.as_ptr() as usize).is_multiple_of(1 << power), "{bytes} at 2^{power}");
            assert!(heap.usable_bytes(object).unwrap() >= bytes);
            fill(object, bytes, power);
            objects.push((heap.offset_of(object).unwrap(), bytes, power));
            if bytes > 1 << 20 {
                let (offset, ..) = objects.pop().unwrap();
                assert!(holds(&heap, offset, bytes, power));
                assert_sound(heap.backing().bytes(), "with a large aligned object");
                heap.free(at(&heap, offset)).unwrap();
            }
        }
    }
    let mut heap = open(heap.close());
    for (offset, bytes, power) in objects {
        assert!(holds(&heap, offset, bytes, power));
        heap.free(at(&heap, offset)).unwrap();
    }
    assert_eq!(assert_sound(heap.backing().bytes(), "all freed").objects, 0);
    for align_bytes in [0, 3, 48, 4 << 20, 1 << 63] {
        assert_eq!(heap.alloc_aligned(8, align_bytes), Err(HeapError::Alignment { align_bytes }));
    }
}

/// A heap at an odd address refuses what it cannot align.
#[test]
fn oddly_placed_heap_refuses_alignment() {
    let mut words = vec![0_u64; (1 << 20) / 8 + 2];
    // An address that is a multiple of 16 and not of 32.
    let skip = (0..4).find(|at| (words[*at..].as_ptr() as usize) % 32 == 16).unwrap();
    // SAFETY: the memory is this test's and outlives the heap.
    let fixed =
        unsafe { holdfast_heap::Fixed::new(words[skip..].as_mut_ptr().cast(), (1 << 20) - 65_536) };
    let mut heap = Heap::open(fixed, OPTIONS).unwrap();
    heap.alloc_aligned(100, 16).unwrap();
    assert_eq!(heap.alloc_aligned(100, 32), Err(HeapError::Alignment { align_bytes: 32 }));
}

/// A run grows in place gives chunks back and moves when it must.
#[test]
fn run_grows_shrinks_and_moves_when_it_must() {
    const CHUNK: u64 = 64 << 10;
    let mut heap = open(TestMemory::new(16 << 20));
    let run = heap.alloc(CHUNK).unwrap();
    fill(run, CHUNK, 7);
    let free_chunks = heap.usage().chunk_bytes;
    assert_eq!(heap.realloc(run, 5 * CHUNK).unwrap(), run);
    assert_eq!(heap.usable_bytes(run), Ok(5 * CHUNK));
    assert_sound(heap.backing().bytes(), "grown");
    assert_eq!(heap.realloc(run, 2 * CHUNK - 1).unwrap(), run);
    assert_eq!(heap.usable_bytes(run), Ok(2 * CHUNK));
    assert_eq!(heap.usage().chunk_bytes, free_chunks + CHUNK);
    let behind = heap.alloc(CHUNK).unwrap();
    let moved = heap.realloc(run, 3 * CHUNK).unwrap();
    assert_ne!(moved, run);
    assert_eq!(heap.free(run), Err(HeapError::NotAllocated));
    assert!(holds(&heap, heap.offset_of(moved).unwrap(), CHUNK, 7));
    let small = heap.realloc(moved, 100).unwrap();
    assert_eq!(heap.usable_bytes(small), Ok(112));
    heap.free(small).unwrap();
    heap.free(behind).unwrap();
    assert_eq!(assert_sound(heap.backing().bytes(), "all freed").objects, 0);
}

/// An object of whole segments grows over free ones and gives its tail back.
///
/// Guarantee: heap/objects
/// Guarantee: heap/resize
#[test]
fn spanning_object_grows_over_free_segments() {
    const MIB: u64 = 1 << 20;
    let mut heap = open(TestMemory::new(64 << 20));
    // With the first segment full, the search for room begins behind it, in what the object may
    // have grown over.
    let full = heap.alloc(4 * MIB - 2 * 65_536).unwrap();
    let object = heap.alloc_aligned(6 * MIB, 2 * MIB).unwrap();
    fill(object, 6 * MIB, 7);
    let offset = heap.offset_of(object).unwrap();
    let mut kept = 6;
    // By one segment and by several, and back; 40 MiB of 64 could not be moved.
    for mib in [10, 40, 30, 26, 22, 58, 6, 57] {
        assert_eq!(heap.realloc(object, mib * MIB), Ok(object), "{mib}");
        assert!(holds(&heap, offset, kept.min(mib) * MIB, 7));
        fill(object, mib * MIB, 7);
        heap.alloc(100_000).map(|other| heap.free(other).unwrap()).ok();
        assert!(holds(&heap, offset, mib * MIB, 7), "given away");
        kept = mib;
        assert_sound(heap.backing().bytes(), "resized");
        let segments = (2 + mib).div_ceil(4);
        assert_eq!(heap.usable_bytes(object), Ok((segments * 4 - 2) * MIB));
        // What it does not take is there for others.
        let others: Vec<_> = std::iter::from_fn(|| heap.alloc(4 * MIB - 65_536).ok()).collect();
        assert_eq!(others.len() as u64, 15 - segments);
        if mib == 6 {
            // Something sits behind it: it moves.
            assert!(heap.realloc(object, 10 * MIB).is_err());
        }
        others.into_iter().for_each(|other| heap.free(other).unwrap());
        // It begins where the object ends now.
        heap.alloc(100_000).map(|other| heap.free(other).unwrap()).ok();
    }
    heap.free(object).unwrap();
    heap.free(full).unwrap();
    assert_eq!(assert_sound(heap.backing().bytes(), "all freed").objects, 0);
}

/// An aborted transaction undoes resizes of an object of whole segments.
///
/// Guarantee: heap/objects
/// Guarantee: heap/resize
#[test]
fn abort_undoes_resizes_of_spanning_objects() {
    const MIB: u64 = 1 << 20;
    let mut heap = open(TestMemory::new(64 << 20));
    let object = heap.alloc(14 * MIB).unwrap();
    let offset = heap.offset_of(object).unwrap();
    fill(object, 14 * MIB, 3);
    for sizes in [[18, 22, 30], [10, 6, 6], [6, 14, 30], [30, 22, 10], [18, 10, 18]] {
        heap.begin().unwrap();
        let mut resized = object;
        for mib in sizes {
            resized = heap.realloc(resized, mib * MIB).unwrap();
            heap.alloc(1000).unwrap();
            heap.alloc(200_000).unwrap();
            if resized != object || mib > 14 {
                let new = heap.offset_of(resized).unwrap() + 14.min(mib) * MIB;
                fill(at(&heap, new), mib.saturating_sub(14) * MIB, 0xA5);
            }
        }
        heap.abort().unwrap();
        assert!(holds(&heap, offset, 14 * MIB, 3), "{sizes:?}");
        assert_eq!(assert_sound(heap.backing().bytes(), "aborted").objects, 1);
    }
}

/// What is free at the end is the beginning of a larger object.
///
/// Guarantee: heap/limits
#[test]
fn free_end_becomes_part_of_a_larger_object() {
    let mut heap = open(TestMemory::new(64 << 20));
    // With half of it, free segments at the end and as many new ones would not fit below the limit
    // together.
    for mib in [40, 50, 59] {
        let object = heap.alloc(mib << 20).unwrap();
        fill(object, mib << 20, 9);
        assert_sound(heap.backing().bytes(), "over old and new segments");
        heap.free(object).unwrap();
        assert_sound(heap.backing().bytes(), "freed");
    }
    assert!(matches!(heap.alloc(60 << 20), Err(HeapError::OutOfMemory { .. })));
}

/// Guarantee: heap/resize
/// Guarantee: heap/transactions
#[test]
fn an_aborted_transaction_undoes_any_chain_of_resizes() {
    const CHUNK: u64 = 64 << 10;
    let mut heap = open(TestMemory::new(32 << 20));
    let run = heap.alloc(4 * CHUNK).unwrap();
    let slot = heap.alloc(1000).unwrap();
    fill(run, 4 * CHUNK, 3);
    fill(slot, 1000, 4);
    heap.begin().unwrap();
    let mut resized = run;
    for chunks in [6, 2, 3, 1, 20, 80, 10] {
        resized = heap.realloc(resized, chunks * CHUNK).unwrap();
    }
    let other = heap.realloc(slot, 50_000).unwrap();
    heap.realloc(other, 10).unwrap();
    heap.abort().unwrap();
    assert_eq!(heap.usable_bytes(run), Ok(4 * CHUNK));
    assert!(holds(&heap, heap.offset_of(run).unwrap(), 4 * CHUNK, 3));
    assert!(holds(&heap, heap.offset_of(slot).unwrap(), 1000, 4));
    assert_eq!(assert_sound(heap.backing().bytes(), "aborted").objects, 2);
}

/// Guarantee: heap/transactions
#[test]
fn nested_transactions_count_as_one() {
    let mut heap = open(TestMemory::new(16 << 20));
    let done: Result<(), HeapError> = heap.transaction(|outer| {
        outer.create_root("outer", 8)?;
        outer.transaction(|inner| inner.create_root("inner", 8).map(drop))?;
        assert_eq!(outer.transaction_depth(), 1);
        Ok(())
    });
    done.unwrap();
    assert_eq!(heap.roots().count(), 2);

    let failed: Result<(), HeapError> = heap.transaction(|outer| {
        outer.remove_root("outer")?;
        let inner: Result<(), HeapError> = outer.transaction(|inner| {
            inner.create_root("lost", 8)?;
            Err(HeapError::NotAllocated)
        });
        assert_eq!(inner, Err(HeapError::NotAllocated));
        // Still one transaction: what follows goes the same way.
        outer.create_root("lost, too", 8)?;
        Ok(())
    });
    assert_eq!(failed, Err(HeapError::TransactionAborted));
    assert!(!heap.in_transaction());
    let mut names: Vec<_> = heap.roots().map(|(name, _)| name.to_owned()).collect();
    names.sort();
    assert_eq!(names, ["inner", "outer"]);
    assert_sound(heap.backing().bytes(), "after the abort");

    heap.begin().unwrap();
    heap.begin().unwrap();
    heap.create_root("open", 8).unwrap();
    heap.commit().unwrap();
    let heap = open(heap.close());
    assert!(heap.root("open").is_none(), "an outer level that never ended counted");
}

/// An aborted transaction brings back what a resize has zeroed.
///
/// Guarantee: heap/resize
/// Guarantee: heap/transactions
#[test]
fn abort_restores_bytes_that_a_resize_zeroed() {
    for bytes in [100, 300_000] {
        let mut heap = open(TestMemory::new(16 << 20));
        let object = heap.alloc(bytes).unwrap();
        fill(object, bytes, 5);
        heap.begin().unwrap();
        assert_eq!(heap.realloc_zeroed(object, bytes, bytes - 10).unwrap(), object);
        assert_eq!(heap.realloc_zeroed(object, bytes - 10, bytes).unwrap(), object);
        assert!(holds(&heap, heap.offset_of(object).unwrap() + bytes - 10, 10, 0));
        heap.abort().unwrap();
        assert!(holds(&heap, heap.offset_of(object).unwrap(), bytes, 5));
    }
}

/// An object that was to become smaller in a full heap, which has no room to log that, failed.
///
/// Guarantee: heap/resize
#[test]
fn shrinking_in_a_full_heap_keeps_the_object() {
    const CHUNK: u64 = 64 << 10;
    const MIB: u64 = 1 << 20;
    let mut heap = open(TestMemory::new(4 * MIB));
    let run = heap.alloc(4 * CHUNK).unwrap();
    while heap.alloc(CHUNK).is_ok() {}
    heap.begin().unwrap();
    let mut words = (0..4 * CHUNK as usize).step_by(8);
    let refused = words.find_map(|at| heap.add_range(run.as_ptr().wrapping_add(at), 8).err());
    assert!(matches!(refused, Some(HeapError::OutOfMemory { .. })), "{refused:?}");
    assert_eq!(heap.realloc(run, CHUNK), Ok(run));
    assert_eq!(heap.usable_bytes(run), Ok(4 * CHUNK));
    assert_eq!(heap.commit(), Ok(()));
    assert_eq!(heap.realloc(run, CHUNK), Ok(run));
    assert_eq!(heap.usable_bytes(run), Ok(CHUNK));

    // What becomes a table takes more of the log than a chunk has.
    let mut heap = open(TestMemory::new(16 * MIB));
    let object = heap.alloc(11 * MIB).unwrap();
    fill(object, 11 * MIB, 7);
    let chunks: Vec<_> = std::iter::from_fn(|| heap.alloc(CHUNK).ok()).collect();
    for (freed, usable_bytes) in chunks[10..12].iter().zip([12 * MIB - CHUNK, 8 * MIB - CHUNK]) {
        heap.free(*freed).unwrap();
        assert_eq!(heap.realloc(object, 7 * MIB), Ok(object));
        assert_eq!(heap.usable_bytes(object), Ok(usable_bytes));
        assert!(holds(&heap, heap.offset_of(object).unwrap(), 7 * MIB, 7));
        assert_sound(heap.backing().bytes(), "resized");
    }
}

/// A root that is resized is found at its place with its size, whether it moved or not.
///
/// Guarantee: heap/resize
#[test]
fn resized_root_is_found_where_it_lies() {
    let mut heap = open(TestMemory::new(64 << 20));
    let mut kept = 100;
    let first = heap.create_root("grows", kept).unwrap();
    fill(first, kept, 3);
    for bytes in [110, 3_000, 70_000, 400_000, 5 << 20, 9 << 20, 300_000, 65_000, 40, 0, 17] {
        // What lies behind it keeps it from growing where it is.
        heap.alloc(bytes).unwrap();
        heap.resize_root("grows", bytes).unwrap();
        kept = kept.min(bytes);
        heap = open(heap.close());
        let root = heap.root("grows").unwrap();
        assert_eq!(root.bytes, bytes);
        assert!(heap.usable_bytes(root.pointer).unwrap() >= bytes);
        assert!(holds(&heap, heap.offset_of(root.pointer).unwrap(), kept, 3), "{bytes}");
        assert_sound(heap.backing().bytes(), "a root was resized");
    }
    assert_eq!(heap.roots().count(), 1);
    assert_eq!(heap.resize_root("other", 5), Err(HeapError::NoSuchRoot));
    heap.create_root_typed::<Counter>("typed").unwrap();
    assert_eq!(heap.resize_root("typed", 80), Err(HeapError::TypedRoot));
}

/// One that is rolled back has its old place, size and content; one in a full heap, too.
///
/// Guarantee: heap/resize
#[test]
fn resized_root_is_rolled_back() {
    let mut heap = open(TestMemory::new(16 << 20));
    let object = heap.create_root("object", 5_000).unwrap();
    fill(object, 5_000, 8);
    let before = heap.root("object").unwrap();
    for bytes in [10, 5_010, 1 << 20] {
        heap.begin().unwrap();
        heap.resize_root("object", bytes).unwrap();
        heap.abort().unwrap();
        assert_eq!(heap.root("object"), Some(before));
        assert!(holds(&heap, heap.offset_of(before.pointer).unwrap(), 5_000, 8), "{bytes}");
    }
    let refused = heap.resize_root("object", 1 << 30);
    assert!(matches!(refused, Err(HeapError::OutOfMemory { .. })), "{refused:?}");
    assert_eq!(heap.root("object"), Some(before));
    assert_sound(heap.backing().bytes(), "nothing was resized");
}
