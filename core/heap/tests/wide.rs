//! Objects between small and large ones: they share chunks, keep their bytes, give their room back,
//! and damage to their slabs is found and mended.

#![allow(clippy::unwrap_used, reason = "a test ends where an expectation fails")]

mod common;

use std::ptr::NonNull;

use common::{Dice, TestMemory, assert_sound, at, fill, holds, open, version_2};
use holdfast_heap::layout::*;
use holdfast_heap::survey::{ChunkKind, Survey};
use holdfast_heap::wide::WIDE_CLASSES;
use holdfast_heap::{Finding, Heap, HeapError, Opened, bytes_of, check, mend};

/// Takes a whole segment and more.
const HUGE: u64 = SEGMENT_BYTES + 1;
/// Has wide slabs.
const LIMIT: u64 = 64 << 20;

/// A heap of several segments, which has wide slabs.
fn large_heap() -> Heap<TestMemory> {
    let mut heap = open(TestMemory::new(LIMIT));
    heap.alloc(HUGE).unwrap();
    heap
}

fn chunks_in_use(heap: &Heap<TestMemory>) -> u64 {
    heap.usage().chunk_bytes / CHUNK_BYTES
}

fn medium(dice: &mut Dice) -> u64 {
    8193 + dice.below(CHUNK_BYTES - 8192)
}

/// Objects of random sizes are allocated, resized and freed, in transactions and outside, and the
/// heap is opened anew: all keep their bytes, and when all are freed, all of their room is free.
///
/// Guarantee: heap/objects
#[test]
fn medium_objects_keep_their_bytes_and_give_room_back() {
    for seed in 1..=8 {
        let mut heap = large_heap();
        let mut dice = Dice(seed);
        let mut objects: Vec<(u64, u64, u8)> = Vec::new();
        for round in 0..4000_u64 {
            let tag = round as u8 | 1;
            match dice.below(10) {
                0..4 => {
                    let bytes = medium(&mut dice);
                    match heap.alloc(bytes) {
                        Ok(object) => {
                            fill(object, bytes, tag);
                            objects.push((heap.offset_of(object).unwrap(), bytes, tag));
                        }
                        Err(error) => assert!(matches!(error, HeapError::OutOfMemory { .. })),
                    }
                }
                4..7 if !objects.is_empty() => {
                    let pick = dice.below(objects.len() as u64) as usize;
                    let (offset, bytes, tag) = objects.swap_remove(pick);
                    assert!(holds(&heap, offset, bytes, tag), "{offset:#x}");
                    heap.free(at(&heap, offset)).unwrap();
                    let twice = heap.free(at(&heap, offset));
                    assert!(matches!(twice, Err(HeapError::NotAllocated)), "{twice:?}");
                }
                7 if !objects.is_empty() => {
                    let pick = dice.below(objects.len() as u64) as usize;
                    let (offset, bytes, tag) = objects[pick];
                    let wanted = medium(&mut dice);
                    let Ok(moved) = heap.realloc(at(&heap, offset), wanted) else { continue };
                    let moved = heap.offset_of(moved).unwrap();
                    assert!(holds(&heap, moved, bytes.min(wanted), tag), "{moved:#x}");
                    fill(at(&heap, moved), wanted, tag);
                    objects[pick] = (moved, wanted, tag);
                }
                8 => {
                    // What is undone leaves nothing.
                    heap.begin().unwrap();
                    let _ = heap.alloc(medium(&mut dice));
                    if let Some((offset, ..)) = objects.first() {
                        heap.free(at(&heap, *offset)).unwrap();
                    }
                    heap.abort().unwrap();
                }
                _ if round % 97 == 0 => heap = open(heap.close()),
                _ => {}
            }
        }
        let report = assert_sound(heap.backing().bytes(), "in use");
        assert_eq!(report.objects, 1 + objects.len() as u64);
        let mut places: Vec<_> =
            objects.iter().map(|(offset, bytes, _)| (*offset, offset + bytes)).collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[0].1 <= pair[1].0), "two overlap");
        for (offset, bytes, tag) in objects {
            assert!(holds(&heap, offset, bytes, tag));
            heap.free(at(&heap, offset)).unwrap();
        }
        assert_sound(heap.backing().bytes(), "freed");
        // Of other slabs one may stay that was the current one of its class.
        let survey = Survey::new(heap.backing().bytes()).unwrap();
        let is_wide = |bytes| WIDE_CLASSES.iter().any(|class| class.slot_bytes == bytes);
        assert!(survey.chunks().all(|chunk| !is_wide(chunk.class_bytes)));
    }
}

/// Slots of a wide slab are told apart from its inside, and the survey and the checker see the same
/// objects.
///
/// Guarantee: heap/survey
/// Guarantee: heap/check
#[test]
fn wide_slabs_are_surveyed() {
    let mut heap = large_heap();
    let mut expected = Vec::new();
    for class in WIDE_CLASSES {
        for _ in 0..3 {
            let object = heap.alloc(class.slot_bytes.into()).unwrap();
            assert_eq!(heap.usable_bytes(object), Ok(class.slot_bytes.into()));
            let inside = NonNull::new(object.as_ptr().wrapping_add(16)).unwrap();
            assert_eq!(heap.usable_bytes(inside), Err(HeapError::NotAllocated));
            expected.push((heap.offset_of(object).unwrap(), u64::from(class.slot_bytes)));
        }
    }
    let bytes = heap.backing().bytes();
    let survey = Survey::new(bytes).unwrap();
    let report = assert_sound(bytes, "surveyed");
    let objects: Vec<_> = survey.objects().map(|object| (object.offset, object.bytes)).collect();
    assert!(objects.is_sorted() && expected.iter().all(|object| objects.contains(object)));
    assert_eq!(objects.len() as u64, report.objects);
    for (offset, bytes) in expected {
        let found = survey.object_at(offset + bytes - 1).unwrap();
        assert_eq!((found.offset, found.bytes), (offset, bytes));
    }
    let classes = survey.classes();
    assert!(classes.is_sorted_by_key(|class| class.class_bytes));
    let (mut slabs, mut used) = (0, 0);
    for class in WIDE_CLASSES {
        let found = classes.iter().find(|found| found.class_bytes == class.slot_bytes).unwrap();
        assert_eq!((found.used, found.slots), (3, class.slots.into()));
        slabs += found.slabs;
        used += 3 * u64::from(class.slot_bytes);
    }
    let of_slabs = survey.chunks().filter(|chunk| chunk.kind == ChunkKind::Slab);
    let (chunks, of_chunks) = of_slabs
        .fold((0, 0), |(chunks, bytes), chunk| (chunks + 1, bytes + u64::from(chunk.used_bytes)));
    assert_eq!((chunks, of_chunks), (slabs, used));
}

/// A heap of one segment has no slab of several chunks, and a full one gives the last chunk to
/// whoever wants it.
#[test]
fn small_and_full_heaps_use_single_chunks() {
    let mut heap = open(TestMemory::new(SEGMENT_BYTES));
    let before = chunks_in_use(&heap);
    heap.alloc(50_000).unwrap();
    assert_eq!(chunks_in_use(&heap), before + 1);

    let mut heap = open(TestMemory::new(2 * SEGMENT_BYTES));
    let mut large = Vec::new();
    while let Ok(object) = heap.alloc(CHUNK_BYTES) {
        large.push(object);
    }
    // Every other chunk is free: there is no room for two in a row.
    let free = large.iter().step_by(2).map(|object| heap.free(*object).unwrap()).count();
    let medium = std::iter::from_fn(|| heap.alloc(50_000).ok()).count();
    assert_eq!(medium, free, "{}", large.len());
    assert_sound(heap.backing().bytes(), "full");
}

fn findings(words: &[u64]) -> Vec<Finding> {
    let mut found = Vec::new();
    check(bytes_of(words), &mut |finding| found.push(finding));
    found
}

/// Every flipped bit of the tables of wide slabs that matters is found, and mended without a loss.
///
/// Guarantee: heap/check
/// Guarantee: heap/repair
#[test]
fn flipped_bits_of_wide_slabs_are_found_and_mended() {
    let mut heap = open(TestMemory::new(16 << 20));
    heap.alloc(HUGE).unwrap();
    let mut slabs = Vec::new();
    for (index, bytes) in [40_000, 45_000, 50_000].into_iter().enumerate() {
        let object = heap.create_root(&format!("root {index}"), bytes).unwrap();
        slabs.push(heap.offset_of(object).unwrap() & !(CHUNK_BYTES - 1));
    }
    let memory = heap.close();
    let good: Vec<u64> = memory
        .bytes()
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect();
    let objects = |words: &[u64]| Survey::new(bytes_of(words)).unwrap().objects().count();
    let (mut found, mut mended) = (0, 0);
    for slab in slabs {
        let descriptor = descriptor_of(slab);
        for place in [descriptor, descriptor + DESC_SLOTS, descriptor + DESCRIPTOR_BYTES] {
            for bit in 0..64 {
                let mut copy = good.clone();
                copy[(place / 8) as usize] ^= 1 << bit;
                if findings(&copy).is_empty() {
                    // Another slot counts as allocated: nothing says that it is not.
                    assert_eq!(
                        (place - descriptor, objects(&copy)),
                        (DESC_SLOTS, objects(&good) + 1)
                    );
                    continue;
                }
                found += 1;
                if mend(&mut copy, false).is_ok_and(|report| report.left.is_empty()) {
                    mended += 1;
                    assert_eq!(copy, good, "{place:#x}, bit {bit}");
                }
            }
        }
    }
    assert!(found > 3 * 150 && mended == found, "{mended} of {found}");
}

/// A heap of version 2 is opened, recovered and used, and raised when it gets a wide slab.
///
/// Guarantee: heap/old-formats
#[test]
fn version_2_heap_is_raised_by_a_wide_slab() {
    let mut heap = open(version_2());
    assert_eq!((heap.opened(), heap.format_version()), (Opened::Recovered, 2));
    let counter = heap.root("counter").unwrap().pointer;
    // SAFETY: a root of eight bytes.
    assert_eq!(unsafe { counter.cast::<u64>().read() }, 42);
    assert_eq!(heap.root("medium").map(|root| root.bytes), Some(40_000));
    assert_eq!(heap.root_type("typed").map(|found| (found.layout, found.version)), Some((7, 1)));
    assert!(heap.root("half done").is_none());
    assert_sound(heap.backing().bytes(), "recovered");
    let medium = heap.root("medium").unwrap().pointer;
    assert_eq!(heap.usable_bytes(medium), Ok(CHUNK_BYTES));
    assert_eq!(heap.format_version(), 2, "what it had needs nothing new");
    let object = heap.alloc(40_000).unwrap();
    assert_eq!((heap.usable_bytes(object), heap.format_version()), (Ok(43_680), 4));
    heap.remove_root("medium").unwrap();
    let heap = open(heap.close());
    assert_eq!(heap.opened(), Opened::Clean);
    assert_sound(heap.backing().bytes(), "raised");
    // An older version does not know such slabs, so a heap that calls itself one has none.
    let mut older = heap.close();
    older.bytes_mut()[SUPER_VERSION as usize] = 2;
    let mut found = Vec::new();
    check(older.bytes(), &mut |finding| found.push(finding.what));
    assert_eq!(found, ["a slab spans chunks in a version that has no such slabs"]);
}
