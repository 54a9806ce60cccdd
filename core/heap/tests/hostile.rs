//! Heaps whose bytes an attacker chose: what fuzzing has found, told as examples.

#![allow(clippy::unwrap_used, reason = "a test ends where an expectation fails")]

mod common;

use common::{TestMemory, assert_sound, at, open};
use holdfast_heap::layout::*;
use holdfast_heap::{Heap, HeapError, inspect};
use xxhash_rust::xxh3::xxh3_64;

#[cfg(not(target_family = "wasm"))]
fn ends(work: impl FnOnce() + Send + 'static) -> bool {
    let (done, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        work();
        done.send(()).unwrap();
    });
    wait.recv_timeout(std::time::Duration::from_secs(60)).is_ok()
}

/// An applet has no threads; it is stopped from outside.
#[cfg(target_family = "wasm")]
fn ends(work: impl FnOnce()) -> bool {
    work();
    true
}

/// A stray store to the number of segments, after the heap was opened, made every walk over the
/// segments endless: that of an allocation of whole segments, and the question where the bytes
/// went.
///
/// Guarantee: heap/check
/// Guarantee: heap/hostile-content
#[test]
fn endless_segments_are_walked_to_the_end_only() {
    for claimed in [3_u64, 1 << 40, u64::MAX] {
        let work = move || {
            let mut heap = open(TestMemory::new(1 << 20));
            // SAFETY: the superblock lies in the heap's memory.
            unsafe { at(&heap, SUPER_SEGMENTS).cast::<u64>().write(claimed.to_le()) };
            assert!(heap.usage().formatted_bytes <= 1 << 20);
            assert!(heap.alloc(5 << 20).is_err());
        };
        assert!(ends(work), "{claimed} segments are walked for ever");
    }
}

/// Stores a word into a heap's own bytes.
fn put(heap: &Heap<TestMemory>, offset: u64, word: u64) {
    // SAFETY: the callers pass offsets in the superblock, in tables and in objects of the heap.
    unsafe { at(heap, offset).cast::<u64>().write(word.to_le()) };
}

/// A heap with a root table of so many slots, of which so many lead to one entry whose name is said
/// to have 1 MiB.
fn heap_with_a_long_name(slots: u64, roots: u64) -> Heap<TestMemory> {
    let mut heap = open(TestMemory::new((8 << 20) + slots * 32));
    let (entry, table) =
        (heap.alloc_zeroed(2 << 20).unwrap(), heap.alloc_zeroed(slots * 8).unwrap());
    let (entry, table) = (heap.offset_of(entry).unwrap(), heap.offset_of(table).unwrap());
    put(&heap, entry + ENTRY_OBJECT, entry);
    put(&heap, entry + ENTRY_SIZE, 8);
    put(&heap, entry + ENTRY_NAME_LENGTH, 1 << 20);
    (0..roots).for_each(|slot| put(&heap, table + slot * 8, entry));
    let words = [table, slots, roots, roots];
    words.into_iter().zip(0..).for_each(|(word, index)| put(&heap, SUPER_ROOTS + index * 8, word));
    heap
}

/// Tools that kept each of these names died for lack of memory.
///
/// Guarantee: heap/hostile-content
#[test]
fn overlong_name_is_never_a_root() {
    let heap = heap_with_a_long_name(1 << 14, 1 << 14);
    assert_eq!(heap.roots().count(), 0);
    let bytes = heap.close();
    let mut copy: Vec<u64> =
        bytes.bytes().as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let (mut findings, mut names) = (0_u64, 0_u64);
    inspect(&mut copy, &mut |_| findings += 1, &mut |name, _| names += name.len() as u64).unwrap();
    assert!(findings >= 1 << 14);
    assert_eq!(names, 0);
}

/// What a hostile table of roots leaves of a repair is bounded.
///
#[cfg(feature = "std")]
/// Guarantee: heap/hostile-content
#[test]
fn repair_of_a_hostile_root_table_is_bounded() {
    let work = || {
        let bytes = heap_with_a_long_name(1 << 17, 1 << 17).close();
        let mut copy: Vec<u64> =
            bytes.bytes().as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let report = holdfast_heap::mend(&mut copy, false).unwrap();
        assert!(!report.left.is_empty() && report.left.len() <= 10_000);
    };
    assert!(ends(work));
}

/// One flipped bit in the word of used chunks gave an object the place of the superblock, or one
/// behind the heap's end.
///
/// Guarantee: heap/check
#[test]
fn absent_chunks_are_never_allocated() {
    const BYTES: u64 = 6 << 20;
    const OBJECT: u64 = 60_000;
    let mut heap = open(TestMemory::new(BYTES));
    let objects = std::iter::repeat_with(|| heap.alloc(OBJECT)).take_while(Result::is_ok).count();
    let mut memory = heap.close();
    for segment in 0..BYTES.div_ceil(SEGMENT_BYTES) {
        let at = (segment * SEGMENT_BYTES + DESC_USED_CHUNKS) as usize;
        // The lane's chunk stays: without it the heap does not open.
        memory.bytes_mut()[at..at + 8]
            .copy_from_slice(&(2 * u64::from(segment == 0)).to_le_bytes());
    }
    let mut heap = open(memory);
    heap.create_root("precious", 64).unwrap();
    let mut given = 0;
    while let Ok(object) = heap.alloc(OBJECT) {
        let offset = heap.offset_of(object).unwrap();
        assert!(offset % SEGMENT_BYTES >= CHUNK_BYTES && offset + OBJECT <= BYTES, "{offset:#x}");
        given += 1;
    }
    assert_eq!(
        given,
        objects - 3,
        "a slab each for the root's table, its entry and object, and the rest as before"
    );
    assert!(open(heap.close()).root("precious").is_some());
}

/// Every entry claimed the same place in the new table: with a million of them that took minutes.
///
/// Guarantee: heap/hostile-content
#[test]
fn roots_that_share_a_slot_do_not_grow_the_table() {
    let work = || {
        let mut heap = heap_with_a_long_name(1 << 20, 3 << 18);
        let before = heap.backing().bytes()[SUPER_ROOTS as usize..][..32].to_vec();
        assert_eq!(heap.create_root("one more", 8), Err(HeapError::OutsideHeap));
        assert_eq!(heap.backing().bytes()[SUPER_ROOTS as usize..][..32], before);
    };
    assert!(ends(work));
}

/// No root is left behind by a table that grows however few are counted.
///
/// Guarantee: heap/hostile-content
#[test]
fn growing_table_leaves_no_root_behind() {
    let mut heap = open(TestMemory::new(8 << 20));
    for index in 0..96 {
        heap.create_root(&format!("root {index}"), 8).unwrap();
    }
    put(&heap, SUPER_ROOTS + 24, 1);
    heap.create_root("one more", 8).unwrap();
    for index in 0..96 {
        assert!(heap.root(&format!("root {index}")).is_some(), "root {index} is lost");
    }
    assert_sound(heap.backing().bytes(), "grown");
}

/// Four hundred names that collide in the table (an attacker finds them at once) kept a heap from
/// having one root more, and the check called the heap damaged.
///
/// Guarantee: heap/hostile-content
#[test]
fn names_that_were_chosen_to_meet_are_roots() {
    const MEET: u64 = (1 << 11) - 1;
    let name = |number: u64| format!("name {number}");
    let mut heap = open(TestMemory::new(4 << 20));
    let meets = |number: &u64| xxh3_64(name(*number).as_bytes()) & MEET == 0;
    let numbers: Vec<u64> = (0..).filter(meets).take(600).collect();
    for number in &numbers {
        heap.create_root(&name(*number), 8).unwrap();
    }
    heap.create_root("any other", 8).unwrap();
    assert!(numbers.iter().all(|number| heap.root(&name(*number)).is_some()));
    assert_eq!(assert_sound(heap.backing().bytes(), "they meet").roots, 601);
}

/// A chunk that claimed to be absent together with the one behind it hid that from the check.
///
/// Guarantee: heap/check
#[test]
fn absent_chunk_hides_no_other_from_the_check() {
    let mut heap = open(TestMemory::new(4 << 20));
    let objects = [(); 2].map(|()| heap.alloc(CHUNK_BYTES).unwrap());
    let [first, second] = objects.map(|object| heap.offset_of(object).unwrap());
    assert_eq!(second, first + CHUNK_BYTES);
    let absent = Head { kind: HeadKind::Absent, class: 0, span: 2 };
    put(&heap, descriptor_of(first) + DESC_HEAD, absent.encode());
    let mut findings = Vec::new();
    let report = holdfast_heap::check(heap.backing().bytes(), &mut |finding| {
        findings.push(finding.offset);
    });
    assert_eq!(findings, [descriptor_of(first)]);
    assert_eq!(report.objects, 1, "the second one is seen");
}
