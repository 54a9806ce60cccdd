//! The short way of allocations and frees: what was freed last is given again first, and nothing
//! that it remembers outlives a slab, a transaction or a claim.

#![allow(clippy::unwrap_used, reason = "a test ends where an expectation fails")]

mod common;

use std::collections::BTreeMap;
use std::ptr::NonNull;

use common::{TestMemory, assert_sound, fill, holds, open};
use holdfast_heap::layout::{CHUNK_BYTES, DESC_SLOTS, descriptor_of};
use holdfast_heap::{Heap, HeapError};

fn allocate(heap: &mut Heap<TestMemory>, count: usize, bytes: u64) -> Vec<NonNull<u8>> {
    (0..count).map(|_| heap.alloc(bytes).unwrap()).collect()
}

fn chunk_of(heap: &Heap<TestMemory>, object: NonNull<u8>) -> u64 {
    heap.offset_of(object).unwrap() / CHUNK_BYTES
}

/// Guarantee: heap/no-undefined-behaviour
#[test]
fn what_was_freed_last_is_given_first_and_never_twice() {
    let mut heap = open(TestMemory::new(8 << 20));
    // Fewer than are remembered, as many, and more.
    for count in [1, 2, 12, 13, 14, 100, 3000] {
        let objects = allocate(&mut heap, count, 64);
        for object in &objects {
            heap.free(*object).unwrap();
            assert_eq!(heap.free(*object), Err(HeapError::NotAllocated));
        }
        for object in &objects {
            assert_eq!(heap.free(*object), Err(HeapError::NotAllocated), "{count}");
        }
        let mut again = allocate(&mut heap, count, 64);
        if count <= 13 {
            assert!(again.iter().eq(objects.iter().rev()), "{count}");
        }
        again.sort();
        again.dedup();
        assert_eq!(again.len(), count, "an object was given twice");
        assert_eq!(assert_sound(heap.backing().bytes(), "allocated again").objects, count as u64);
        for object in again {
            heap.free(object).unwrap();
        }
    }
}

/// A free of what is not an object's start is refused in a known slab.
#[test]
fn inner_pointer_is_refused_in_known_slab() {
    let mut heap = open(TestMemory::new(8 << 20));
    // 48 bytes: a slab has a rest in which a slot more would start, and end outside.
    let objects = allocate(&mut heap, 1365, 48);
    let first = objects[0];
    heap.free(objects[1]).unwrap();
    for within in (1..48).chain([48, 1365 * 48, 65_535]) {
        let wrong = NonNull::new(first.as_ptr().wrapping_add(within)).unwrap();
        assert_eq!(heap.free(wrong), Err(HeapError::NotAllocated), "{within}");
    }
    let base = first.as_ptr().wrapping_sub(heap.offset_of(first).unwrap() as usize);
    for outside in [1, 64, 65_536, 1 << 30] {
        let before = NonNull::new(base.wrapping_sub(outside)).unwrap();
        assert_eq!(heap.free(before), Err(HeapError::NotAllocated), "{outside} before the heap");
        let behind = NonNull::new(base.wrapping_add((8 << 20) + outside)).unwrap();
        assert_eq!(heap.free(behind), Err(HeapError::NotAllocated), "{outside} behind the heap");
    }
    assert_eq!(assert_sound(heap.backing().bytes(), "refused").objects, 1364);
    // A damaged bitmap says that the slot behind the last one is allocated.
    let (first, second) = (heap.offset_of(first).unwrap(), heap.offset_of(objects[2]).unwrap());
    let mut memory = heap.close();
    let damaged = (descriptor_of(first) + DESC_SLOTS) as usize + 1365 / 8;
    memory.bytes_mut()[damaged] |= 1 << (1365 % 8);
    let mut heap = open(memory);
    heap.free(common::at(&heap, second)).unwrap();
    let behind = common::at(&heap, first + 1365 * 48);
    assert_eq!(
        heap.free(behind),
        Err(HeapError::NotAllocated),
        "an object that ends outside of its slab"
    );
}

/// A slab that was given back is forgotten with its slots.
///
/// Guarantee: heap/objects
#[test]
fn returned_slab_is_forgotten_with_its_slots() {
    let mut heap = open(TestMemory::new(2 << 20));
    let first = allocate(&mut heap, 4, 16_384);
    // The class goes on in another slab; the first one goes when it is empty.
    let second = heap.alloc(16_384).unwrap();
    assert_ne!(chunk_of(&heap, first[0]), chunk_of(&heap, second));
    for object in &first {
        heap.free(*object).unwrap();
    }
    let run = heap.alloc(65_536).unwrap();
    assert_eq!(chunk_of(&heap, run), chunk_of(&heap, first[0]), "the chunk was not given back");
    fill(run, 65_536, 7);
    for object in &first[1..] {
        assert_eq!(heap.free(*object), Err(HeapError::NotAllocated));
    }
    for object in allocate(&mut heap, 8, 16_384) {
        assert_ne!(
            chunk_of(&heap, object),
            chunk_of(&heap, run),
            "an object lies inside of another"
        );
    }
    assert_sound(heap.backing().bytes(), "reused");
}

/// A transaction and the slots freed last do not disturb each other.
///
/// Guarantee: heap/objects
#[test]
fn transactions_and_recent_slots_do_not_interfere() {
    let mut heap = open(TestMemory::new(8 << 20));
    let objects = allocate(&mut heap, 200, 64);
    for object in &objects[..100] {
        heap.free(*object).unwrap();
    }
    heap.begin().unwrap();
    let inside = allocate(&mut heap, 100, 64);
    for object in &objects[100..] {
        heap.free(*object).unwrap();
    }
    for object in allocate(&mut heap, 100, 64) {
        assert!(!objects[100..].contains(&object), "given away before the commit");
        assert!(!inside.contains(&object), "given twice");
    }
    heap.abort().unwrap();
    let mut all = allocate(&mut heap, 500, 64);
    all.extend_from_slice(&objects[100..]);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 600, "an object was given twice");
    assert_eq!(assert_sound(heap.backing().bytes(), "rolled back").objects, 600);
}

/// Room that is not remembered slot by slot is found again.
///
/// Guarantee: heap/objects
#[test]
fn unremembered_room_is_found_again() {
    let mut heap = open(TestMemory::new(32 << 20));
    // More slabs than a class remembers, and than fit among the known ones.
    let objects = allocate(&mut heap, 300 * 1024, 64);
    let full = heap.usage().chunk_bytes;
    for step in [2, 3, 7, 500] {
        let freed = objects.iter().step_by(step);
        // The last ones are freed by a commit.
        if step == 500 {
            heap.begin().unwrap();
        }
        freed.clone().for_each(|object| heap.free(*object).unwrap());
        if step == 500 {
            heap.commit().unwrap();
        }
        allocate(&mut heap, freed.len(), 64);
        assert_eq!(heap.usage().chunk_bytes, full, "every {step}th was freed, and the heap grew");
    }
    assert_eq!(
        assert_sound(heap.backing().bytes(), "as full as before").objects,
        objects.len() as u64
    );
}

/// Many small objects keep their bytes through frees transactions and reopening.
///
/// Guarantee: heap/objects
#[test]
fn small_objects_keep_their_bytes_through_churn() {
    let mut heap = open(TestMemory::new(16 << 20));
    let mut objects: BTreeMap<u64, (u64, u8)> = BTreeMap::new();
    let mut state = 7_u64;
    let mut below = |bound: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    for step in 0..60_000_u64 {
        // Waves, so that slabs fill and empty.
        let grow = if step / 6000 % 2 == 0 { 60 } else { 35 };
        if step % 5000 == 4999 {
            assert_eq!(
                assert_sound(heap.backing().bytes(), "on the way").objects,
                objects.len() as u64
            );
            heap = open(heap.close());
        }
        let in_transaction = below(50) == 0;
        let saved = in_transaction.then(|| objects.clone());
        if in_transaction {
            heap.begin().unwrap();
        }
        for _ in 0..if in_transaction { 5 } else { 1 } {
            if below(100) < grow {
                let bytes = [16, 48, 64, 200, 4000, 16_384][below(6) as usize];
                let Ok(object) = heap.alloc(bytes) else { continue };
                fill(object, bytes, step as u8);
                let at = heap.offset_of(object).unwrap();
                assert!(
                    objects.insert(at, (bytes, step as u8)).is_none(),
                    "step {step}: given twice"
                );
            } else if !in_transaction
                && let Some((at, (bytes, mark))) = objects
                    .range(below(16 << 20)..)
                    .next()
                    .or_else(|| objects.first_key_value())
                    .map(|(at, object)| (*at, *object))
            {
                assert!(holds(&heap, at, bytes, mark), "step {step}: content lost");
                objects.remove(&at);
                let object = common::at(&heap, at);
                heap.free(object).unwrap();
                assert_eq!(heap.free(object), Err(HeapError::NotAllocated));
            }
        }
        if let Some(saved) = saved {
            if below(2) == 0 {
                heap.commit().unwrap();
            } else {
                heap.abort().unwrap();
                objects = saved;
            }
        }
    }
    for (at, (bytes, mark)) in &objects {
        assert!(holds(&heap, *at, *bytes, *mark), "content lost");
        heap.free(common::at(&heap, *at)).unwrap();
    }
    assert_eq!(assert_sound(heap.backing().bytes(), "all freed").objects, 0);
}
