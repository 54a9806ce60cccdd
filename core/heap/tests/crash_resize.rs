//! Resizes that die at every single store: the object has its old place and size, or the new one,
//! with its content.

#![allow(clippy::unwrap_used, reason = "a test ends where an expectation fails")]

mod common;

use std::ptr::NonNull;

use common::crashes::{SMALL, enumerate};
use common::{TestMemory, fill};
use holdfast_heap::{Backing, Heap};

/// An object that a root links to, with its number of valid bytes: (place, bytes).
fn linked(heap: &Heap<TestMemory>) -> (NonNull<u8>, usize) {
    let link = heap.root("link").unwrap().pointer.cast::<[u64; 2]>();
    // SAFETY: sixteen bytes, aligned to 16.
    let [place, bytes] = unsafe { link.read() };
    (NonNull::new(heap.backing().base().wrapping_add(place as usize)).unwrap(), bytes as usize)
}

fn link(heap: &mut Heap<TestMemory>, object: NonNull<u8>, bytes: u64) {
    let place = heap.offset_of(object).unwrap();
    let link = heap.root("link").unwrap().pointer;
    heap.add_range(link.as_ptr(), 16).unwrap();
    // SAFETY: as above.
    unsafe { link.cast::<[u64; 2]>().write([place, bytes]) };
}

fn prepare_link(heap: &mut Heap<TestMemory>, bytes: u64) {
    heap.begin().unwrap();
    heap.create_root("link", 16).unwrap();
    let object = heap.alloc(bytes).unwrap();
    // SAFETY: the object has that many bytes.
    unsafe { object.as_ptr().write_bytes(7, bytes as usize) };
    link(heap, object, bytes);
    heap.commit().unwrap();
}

/// Resizes the linked object together with its link.
fn resize_linked(heap: &mut Heap<TestMemory>, bytes: u64) {
    let (object, old_bytes) = linked(heap);
    heap.begin().unwrap();
    let object = heap.realloc_zeroed(object, old_bytes as u64, bytes).unwrap();
    link(heap, object, bytes);
    heap.commit().unwrap();
}

/// Size of the linked object and how much of it is content; also that nothing else is allocated.
fn linked_object(heap: &Heap<TestMemory>) -> Vec<u8> {
    let (object, bytes) = linked(heap);
    assert!(
        heap.usable_bytes(object).unwrap() >= bytes as u64,
        "the link leads to less than it says"
    );
    // SAFETY: allocated with at least that many bytes.
    let content = unsafe { std::slice::from_raw_parts(object.as_ptr(), bytes) };
    let sevens = content.iter().take_while(|byte| **byte == 7).count();
    assert!(content[sevens..].iter().all(|byte| *byte == 0), "torn");
    // The root's table, its entry and object, and this object.
    let objects = holdfast_heap::check(heap.backing().bytes(), &mut |_| {}).objects;
    assert_eq!(objects, 4, "one place too many or too few");
    format!("{bytes} {sevens} {}", heap.usable_bytes(object).unwrap()).into_bytes()
}

/// Guarantee: heap/resize
#[test]
fn resizing_together_with_the_link_is_all_or_nothing() {
    const CHUNK: u64 = 64 << 10;
    fn run(heap: &mut Heap<TestMemory>) {
        prepare_link(heap, 2 * CHUNK);
    }
    // In its slot, to another slot, to a run, in place to a longer and a shorter run, to another
    // run.
    enumerate(
        SMALL,
        |heap| prepare_link(heap, 100),
        |heap| resize_linked(heap, 110),
        linked_object,
    );
    enumerate(
        SMALL,
        |heap| prepare_link(heap, 100),
        |heap| resize_linked(heap, 3000),
        linked_object,
    );
    enumerate(
        SMALL,
        |heap| prepare_link(heap, 100),
        |heap| resize_linked(heap, CHUNK),
        linked_object,
    );
    enumerate(SMALL, run, |heap| resize_linked(heap, 5 * CHUNK), linked_object);
    enumerate(SMALL, run, |heap| resize_linked(heap, CHUNK), linked_object);
    enumerate(SMALL, run, |heap| resize_linked(heap, 90), linked_object);
}

/// Resizing outside a transaction leaves the old place or the new one.
///
/// Guarantee: heap/resize
#[test]
fn resize_leaves_the_old_place_or_the_new_one() {
    const CHUNK: u64 = 64 << 10;
    fn objects(heap: &Heap<TestMemory>) -> Vec<u8> {
        let report = holdfast_heap::check(heap.backing().bytes(), &mut |_| {});
        assert_eq!(report.objects, 4, "one place too many or too few");
        report.object_bytes.to_le_bytes().to_vec()
    }
    fn resize<const BYTES: u64>(heap: &mut Heap<TestMemory>) {
        heap.realloc(linked(heap).0, BYTES).unwrap();
    }
    enumerate(SMALL, |heap| prepare_link(heap, 100), resize::<3000>, objects);
    enumerate(SMALL, |heap| prepare_link(heap, 3000), resize::<100>, objects);
    enumerate(SMALL, |heap| prepare_link(heap, 2 * CHUNK), resize::<{ 5 * CHUNK }>, objects);
    enumerate(SMALL, |heap| prepare_link(heap, 5 * CHUNK), resize::<CHUNK>, objects);
}

/// A root's size, place and content change together.
///
/// Guarantee: heap/resize
#[test]
fn root_has_its_old_place_and_size_or_the_new_ones() {
    const CHUNK: u64 = 64 << 10;
    fn prepare<const BYTES: u64>(heap: &mut Heap<TestMemory>) {
        let object = heap.create_root("root", BYTES).unwrap();
        // SAFETY: the object has that many bytes.
        unsafe { object.as_ptr().write_bytes(7, BYTES as usize) };
    }
    fn resize<const BYTES: u64>(heap: &mut Heap<TestMemory>) {
        heap.resize_root("root", BYTES).unwrap();
    }
    fn found(heap: &Heap<TestMemory>) -> Vec<u8> {
        let root = heap.root("root").unwrap();
        assert!(heap.usable_bytes(root.pointer).unwrap() >= root.bytes, "less than it says");
        // SAFETY: allocated with at least that many bytes.
        let content = unsafe { std::slice::from_raw_parts(root.pointer.as_ptr(), 90) };
        assert!(content.iter().all(|byte| *byte == 7), "torn");
        // The table of roots, the entry, and the object.
        let objects = holdfast_heap::check(heap.backing().bytes(), &mut |_| {}).objects;
        assert_eq!(objects, 3, "one place too many or too few");
        root.bytes.to_le_bytes().to_vec()
    }
    enumerate(SMALL, prepare::<100>, resize::<110>, found);
    enumerate(SMALL, prepare::<100>, resize::<3000>, found);
    enumerate(SMALL, prepare::<3000>, resize::<90>, found);
    enumerate(SMALL, prepare::<{ 2 * CHUNK }>, resize::<{ 5 * CHUNK }>, found);
    enumerate(SMALL, prepare::<{ 5 * CHUNK }>, resize::<CHUNK>, found);
    enumerate(SMALL, prepare::<{ 5 * CHUNK }>, resize::<90>, found);
}

const MIB: u64 = 1 << 20;

/// A linked object of whole segments: its room, and that its first bytes are what they were.
fn huge<const KEPT: usize>(heap: &Heap<TestMemory>) -> Vec<u8> {
    let (object, _) = linked(heap);
    // SAFETY: allocated with at least that many bytes.
    let content = unsafe { std::slice::from_raw_parts(object.as_ptr(), KEPT) };
    assert!(content.iter().all(|byte| *byte == 7), "torn");
    let objects = holdfast_heap::check(heap.backing().bytes(), &mut |_| {}).objects;
    assert_eq!(objects, 4, "one place too many or too few");
    heap.usable_bytes(object).unwrap().to_le_bytes().to_vec()
}

/// Resizes in place, and makes what is new content.
fn resize_huge<const BYTES: u64>(heap: &mut Heap<TestMemory>) {
    let (object, bytes) = linked(heap);
    let bytes = bytes as u64;
    heap.begin().unwrap();
    assert_eq!(heap.realloc(object, BYTES), Ok(object));
    if BYTES > bytes {
        let new = NonNull::new(object.as_ptr().wrapping_add(bytes as usize)).unwrap();
        fill(new, BYTES - bytes, 9);
    }
    heap.commit().unwrap();
}

/// An object of whole segments grows in place or not at all.
///
/// Guarantee: heap/objects
/// Guarantee: heap/resize
#[test]
fn spanning_object_grows_in_place_or_not_at_all() {
    // By one new segment; over a free one and a new one.
    enumerate(
        16 * MIB,
        |heap| prepare_link(heap, 6 * MIB),
        resize_huge::<{ 10 * MIB }>,
        huge::<{ 6 << 20 }>,
    );
    fn with_a_free_segment(heap: &mut Heap<TestMemory>) {
        prepare_link(heap, 6 * MIB);
        heap.realloc(linked(heap).0, 10 * MIB).unwrap();
        heap.realloc(linked(heap).0, 6 * MIB).unwrap();
    }
    enumerate(20 * MIB, with_a_free_segment, resize_huge::<{ 14 * MIB }>, huge::<{ 6 << 20 }>);
}

/// An object of whole segments gives its tail back or keeps it whole.
///
/// Guarantee: heap/objects
/// Guarantee: heap/resize
#[test]
fn spanning_object_keeps_or_returns_its_tail() {
    // Two segments; one, of which each descriptor is made of content.
    fn room_or_content(heap: &Heap<TestMemory>) -> Vec<u8> {
        let seen = huge::<{ 6 << 20 }>(heap);
        if heap.usable_bytes(linked(heap).0).unwrap() > 8 * MIB {
            huge::<{ 10 << 20 }>(heap)
        } else {
            seen
        }
    }
    enumerate(
        20 * MIB,
        |heap| prepare_link(heap, 14 * MIB),
        resize_huge::<{ 6 * MIB }>,
        room_or_content,
    );
    enumerate(
        16 * MIB,
        |heap| prepare_link(heap, 10 * MIB),
        resize_huge::<{ 6 * MIB }>,
        room_or_content,
    );
}
