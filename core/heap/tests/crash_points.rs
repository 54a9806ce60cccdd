//! Dies at every single store to a heap's metadata, and at every store of the recovery from that:
//! whatever the moment, the next open finds the state before or after the operation, and the
//! checker finds nothing.

#![allow(clippy::unwrap_used, reason = "a test ends where an expectation fails")]

mod common;

use std::ptr::NonNull;

use common::crashes::{LARGE, SMALL, enumerate, enumerate_from};
use common::kill::{Left, killed_at};
use common::{TestMemory, assert_sound, open, version_1, version_2};
use holdfast_heap::{
    Backing, Fixed, Heap, HeapError, OpenError, OpenOptions, RootType, inspect, typed,
};

/// Names, sizes and content of all roots, sorted.
fn all_roots(heap: &Heap<TestMemory>) -> Vec<u8> {
    let mut roots: Vec<_> = heap
        .roots()
        .map(|(name, root)| {
            // SAFETY: the root's object is allocated with that size, and no thread writes to it
            // now.
            let content =
                unsafe { std::slice::from_raw_parts(root.pointer.as_ptr(), root.bytes as usize) };
            (name.to_owned(), content.to_vec())
        })
        .collect();
    roots.sort();
    format!("{roots:?}").into_bytes()
}

fn nothing(_: &mut Heap<TestMemory>) {}

fn store(heap: &mut Heap<TestMemory>, name: &str, at: usize, byte: u8) {
    let root = heap.root(name).unwrap();
    heap.add_range(root.pointer.as_ptr().wrapping_add(at), 1).unwrap();
    // SAFETY: inside the root's object.
    unsafe { root.pointer.as_ptr().add(at).write_volatile(byte) };
}

/// Guarantee: heap/roots
#[test]
fn creating_the_first_root_is_all_or_nothing() {
    assert!(
        enumerate(SMALL, nothing, |heap| _ = heap.create_root("a", 100).unwrap(), all_roots) > 20
    );
}

/// Creating a root that makes the table grow is all or nothing.
#[test]
fn root_that_grows_the_table_is_all_or_nothing() {
    fn fill(heap: &mut Heap<TestMemory>) {
        for index in 0..48 {
            heap.create_root(&format!("root {index}"), 16).unwrap();
        }
    }
    enumerate(SMALL, fill, |heap| _ = heap.create_root("one more", 40_000).unwrap(), all_roots);
}

/// Guarantee: heap/roots
#[test]
fn removing_a_root_is_all_or_nothing() {
    fn two(heap: &mut Heap<TestMemory>) {
        heap.create_root("stays", 16).unwrap();
        heap.create_root("goes", 5000).unwrap();
    }
    enumerate(SMALL, two, |heap| heap.remove_root("goes").unwrap(), all_roots);
}

/// A transaction over many ranges and objects is all or nothing.
///
/// Guarantee: heap/kill-any-instruction
/// Guarantee: heap/transactions
#[test]
fn large_transaction_is_all_or_nothing() {
    fn prepare(heap: &mut Heap<TestMemory>) {
        heap.create_root("data", 256).unwrap();
        heap.create_root("big", 300_000).unwrap();
    }
    fn operate(heap: &mut Heap<TestMemory>) {
        heap.begin().unwrap();
        for at in [0, 17, 255] {
            store(heap, "data", at, 1);
        }
        heap.alloc(64).unwrap();
        heap.alloc(200_000).unwrap();
        heap.create_root("new", 32).unwrap();
        heap.remove_root("big").unwrap();
        store(heap, "data", 17, 2);
        heap.commit().unwrap();
    }
    enumerate(SMALL, prepare, operate, all_roots);
}

/// An aborted transaction leaves no trace whenever it dies.
///
/// Guarantee: heap/transactions
#[test]
fn abort_leaves_no_trace_at_any_death() {
    fn prepare(heap: &mut Heap<TestMemory>) {
        heap.create_root("data", 64).unwrap();
    }
    fn operate(heap: &mut Heap<TestMemory>) {
        heap.begin().unwrap();
        store(heap, "data", 3, 9);
        heap.create_root("new", 32).unwrap();
        heap.abort().unwrap();
    }
    enumerate(SMALL, prepare, operate, all_roots);
}

/// A log that outgrows its chunk is linked and given back whenever it dies.
///
/// Guarantee: heap/transactions
#[test]
fn outgrown_log_is_linked_and_returned_at_any_death() {
    fn prepare(heap: &mut Heap<TestMemory>) {
        heap.create_root("data", 200_000).unwrap();
    }
    fn operate(heap: &mut Heap<TestMemory>) {
        let root = heap.root("data").unwrap();
        heap.begin().unwrap();
        heap.add_range(root.pointer.as_ptr(), 200_000).unwrap();
        // SAFETY: the whole object.
        unsafe { root.pointer.as_ptr().write_bytes(7, 200_000) };
        heap.commit().unwrap();
    }
    fn first_and_last(heap: &Heap<TestMemory>) -> Vec<u8> {
        let root = heap.root("data").unwrap();
        // SAFETY: inside the object.
        let content = unsafe { std::slice::from_raw_parts(root.pointer.as_ptr(), 200_000) };
        assert!(content.iter().all(|byte| *byte == content[0]), "torn");
        vec![content[0]]
    }
    enumerate(SMALL, prepare, operate, first_and_last);
}

/// Objects of whole segments appear and vanish at once.
#[test]
fn spanning_objects_appear_and_vanish_at_once() {
    fn prepare(heap: &mut Heap<TestMemory>) {
        heap.create_root("huge", 5 << 20).unwrap();
    }
    fn sizes(heap: &Heap<TestMemory>) -> Vec<u8> {
        let mut roots: Vec<_> =
            heap.roots().map(|(name, root)| format!("{name} {}", root.bytes)).collect();
        roots.sort();
        roots.concat().into_bytes()
    }
    enumerate(LARGE, nothing, |heap| _ = heap.create_root("huge", 5 << 20).unwrap(), sizes);
    enumerate(LARGE, prepare, |heap| heap.remove_root("huge").unwrap(), sizes);
    enumerate(
        LARGE,
        prepare,
        |heap| {
            heap.begin().unwrap();
            heap.remove_root("huge").unwrap();
            heap.create_root("huge", 6 << 20).unwrap();
            heap.commit().unwrap();
        },
        sizes,
    );
}

/// An anonymous object of whole segments is freed whole or kept whole.
#[test]
fn anonymous_spanning_object_is_freed_whole() {
    const BYTES: u64 = 5 << 20;
    fn prepare(heap: &mut Heap<TestMemory>) {
        let huge = heap.alloc(BYTES).unwrap();
        // SAFETY: the object has that many bytes.
        unsafe { huge.as_ptr().write_bytes(7, BYTES as usize) };
        // Its place, so that it is found again at another address.
        let place = heap.offset_of(huge).unwrap();
        let root = heap.create_root("place", 8).unwrap();
        // SAFETY: eight bytes, aligned to 16.
        unsafe { root.cast::<u64>().write(place) };
    }
    fn huge(heap: &Heap<TestMemory>) -> NonNull<u8> {
        // SAFETY: as above.
        let place = unsafe { heap.root("place").unwrap().pointer.cast::<u64>().read() };
        NonNull::new(heap.backing().base().wrapping_add(place as usize)).unwrap()
    }
    fn whole_or_gone(heap: &Heap<TestMemory>) -> Vec<u8> {
        let object = huge(heap);
        if heap.usable_bytes(object).is_err() {
            return b"gone".to_vec();
        }
        // SAFETY: it is allocated with that many bytes.
        let content = unsafe { std::slice::from_raw_parts(object.as_ptr(), BYTES as usize) };
        assert!(content.iter().all(|byte| *byte == 7), "kept, but not whole");
        b"whole".to_vec()
    }
    enumerate(LARGE, prepare, |heap| heap.free(huge(heap)).unwrap(), whole_or_gone);
}

/// A rollback that is killed does not write into what it has given back.
///
/// Guarantee: heap/transactions
#[test]
fn killed_rollback_never_writes_into_freed_space() {
    // The old bytes of a range inside a new object of whole segments are in the log. Once the
    // object is given back, a segment's table lies there: a second rollback must not restore the
    // range over it.
    fn prepare(heap: &mut Heap<TestMemory>) {
        heap.create_root("data", 8).unwrap();
    }
    fn operate(heap: &mut Heap<TestMemory>) {
        heap.begin().unwrap();
        store(heap, "data", 0, 1);
        let huge = heap.alloc(9 << 20).unwrap();
        let second_segment = (4 << 20) - (64 << 10);
        let inside = huge.as_ptr().wrapping_add(second_segment);
        // SAFETY: inside the object.
        unsafe { inside.write_bytes(0xAB, 4096) };
        heap.add_range(inside, 4096).unwrap();
        heap.abort().unwrap();
    }
    enumerate(LARGE, prepare, operate, all_roots);
}

/// Guarantee: heap/kill-any-instruction
#[test]
fn formatting_can_be_killed_and_repeated() {
    for step in 0.. {
        let memory = TestMemory::new(8 << 20);
        let view = memory.copy();
        let base = view.base();
        let dead = killed_at(step, Left::of(&view), || {
            // SAFETY: the view's memory is used by nothing else while this runs.
            let fixed = unsafe { Fixed::new(base, 4 << 20) };
            Heap::open(fixed, OpenOptions { format_if_empty: true, ..common::OPTIONS }).unwrap();
        });
        // For tools that is an empty region, as long as it is no heap yet; nothing to mend, and
        // nothing to remove.
        let words: Vec<u64> =
            view.bytes().as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let empty = |result: Option<OpenError>| result == dead.then_some(OpenError::Empty);
        assert!(
            empty(inspect(&mut words.clone(), &mut |_| {}, &mut |_, _| {}).err()),
            "step {step}"
        );
        #[cfg(feature = "std")]
        assert!(empty(holdfast_heap::mend(&mut words.clone(), false).err()), "step {step}");
        let mut heap = open(view.copy());
        heap.create_root("works", 10).unwrap();
        assert_sound(heap.backing().bytes(), &format!("formatting died at step {step}"));
        if !dead {
            assert!(step > 10);
            return;
        }
    }
}

#[test]
fn plain_allocations_and_frees_are_single_steps() {
    fn prepare(heap: &mut Heap<TestMemory>) {
        for _ in 0..70 {
            heap.alloc(1000).unwrap();
        }
    }
    fn operate(heap: &mut Heap<TestMemory>) {
        let mut objects = Vec::new();
        for bytes in [1, 16, 100, 5000, 30_000, 40_000, 100_000, 1_000_000] {
            objects.push(heap.alloc(bytes).unwrap());
        }
        for object in objects {
            heap.free(object).unwrap();
        }
    }
    enumerate(2 * SMALL, prepare, operate, |_| Vec::new());
}

/// The heap goes on after the kill, whose call was cut off: that takes unwinding.
#[cfg(not(target_family = "wasm"))]
/// Guarantee: heap/objects
#[test]
fn short_path_is_one_store_too() {
    let mut heap = open(TestMemory::new(SMALL));
    let objects: Vec<_> = (0..40).map(|_| heap.alloc(64).unwrap()).collect();
    let left = Left::of(heap.backing());
    // From the slab's first free, which makes it known, on to where no more slots are remembered.
    for (index, object) in objects.iter().enumerate() {
        assert!(killed_at(0, left, || heap.free(*object).unwrap()), "free {index} is no store");
        assert!(heap.usable_bytes(*object).is_ok(), "free {index}: freed before its store");
        assert!(
            !killed_at(1, left, || heap.free(*object).unwrap()),
            "free {index} is more than one store"
        );
        assert!(heap.usable_bytes(*object).is_err());
    }
    // Each dies once and so forgets a slot that it remembered: the latest, earlier ones, those of
    // the slab.
    for index in 0..40 {
        let free = objects.iter().filter(|object| heap.usable_bytes(**object).is_err()).count();
        assert!(
            killed_at(0, left, || _ = heap.alloc(64).unwrap()),
            "allocation {index} is no store"
        );
        let same = objects.iter().filter(|object| heap.usable_bytes(**object).is_err()).count();
        assert_eq!(free, same, "allocation {index}: taken before its store");
        assert!(
            !killed_at(1, left, || _ = heap.alloc(64).unwrap()),
            "allocation {index} is more than one store"
        );
    }
    assert_eq!(assert_sound(heap.backing().bytes(), "one by one").objects, 40);
}

/// Guarantee: programs/named-objects
#[test]
fn an_object_becomes_a_root_all_or_nothing() {
    fn operate(heap: &mut Heap<TestMemory>) {
        let object = heap.alloc_zeroed(100).unwrap();
        heap.name_object("named", object, 100, Some(RootType { layout: 7, version: 0 })).unwrap();
    }
    fn named(heap: &Heap<TestMemory>) -> Vec<u8> {
        vec![heap.root("named").is_some().into(), (heap.root_type("named").is_some()).into()]
    }
    assert!(enumerate(SMALL, nothing, operate, named) > 20);
}

/// Aligned objects of whole segments appear and vanish at once.
#[test]
fn aligned_spanning_objects_appear_at_once() {
    fn objects(heap: &Heap<TestMemory>) -> Vec<u8> {
        holdfast_heap::check(heap.backing().bytes(), &mut |_| {})
            .object_bytes
            .to_le_bytes()
            .to_vec()
    }
    enumerate(LARGE, nothing, |heap| _ = heap.alloc_aligned(5 << 20, 2 << 20).unwrap(), objects);
    // From free segments on, over new ones.
    fn freed(heap: &mut Heap<TestMemory>) {
        let object = heap.alloc(5 << 20).unwrap();
        heap.free(object).unwrap();
    }
    enumerate(LARGE, freed, |heap| _ = heap.alloc(13 << 20).unwrap(), objects);
}

/// Guarantee: heap/transactions
#[test]
fn nested_transactions_are_all_or_nothing() {
    fn prepare(heap: &mut Heap<TestMemory>) {
        heap.create_root("data", 64).unwrap();
    }
    fn operate(heap: &mut Heap<TestMemory>) {
        heap.begin().unwrap();
        store(heap, "data", 0, 1);
        heap.begin().unwrap();
        store(heap, "data", 1, 2);
        heap.create_root("inner", 32).unwrap();
        heap.commit().unwrap();
        store(heap, "data", 2, 3);
        heap.commit().unwrap();
    }
    enumerate(SMALL, prepare, operate, all_roots);
}

typed! { struct Old: 1 { value: u64 } }
typed! { struct New: 2 { values: [u64; 3] } }

fn typed_roots(heap: &Heap<TestMemory>) -> Vec<u8> {
    let mut roots: Vec<_> =
        heap.roots().map(|(name, root)| (name, root.bytes, heap.root_type(name))).collect();
    roots.sort_by_key(|root| root.0);
    let objects = holdfast_heap::check(heap.backing().bytes(), &mut |_| {}).objects;
    let content = all_roots(heap);
    format!("{roots:?} {objects} {}", String::from_utf8(content).unwrap()).into_bytes()
}

/// Guarantee: heap/typed-roots
#[test]
fn a_migration_leaves_the_old_root_or_the_new_one() {
    fn prepare(heap: &mut Heap<TestMemory>) {
        let root = heap.create_root_typed::<Old>("root").unwrap();
        // SAFETY: just made, of this type.
        unsafe { root.write(Old { value: 77 }) };
    }
    fn operate(heap: &mut Heap<TestMemory>) {
        let migrated = heap.root_or_migrate("root", |tx, old: Old| {
            tx.create_root("by the way", 20)?;
            Ok::<_, HeapError>(New { values: [old.value; 3] })
        });
        migrated.unwrap();
    }
    assert!(enumerate(SMALL, prepare, operate, typed_roots) > 20);
}

/// Guarantee: heap/old-formats
#[test]
fn a_heap_of_version_1_is_raised_in_one_step() {
    let prepared = open(version_1()).close();
    fn operate(heap: &mut Heap<TestMemory>) {
        heap.adopt_root::<Old>("counter").unwrap();
    }
    assert!(enumerate_from(&prepared, operate, typed_roots) > 10);
}

/// Objects of wide slabs, and the slabs themselves, appear and vanish whole, whatever the moment.
///
/// Guarantee: heap/kill-any-instruction
/// Guarantee: heap/transactions
#[test]
fn objects_of_wide_slabs_appear_and_vanish_at_once() {
    fn prepare(heap: &mut Heap<TestMemory>) {
        // Of more than one segment.
        heap.create_root("huge", 5 << 20).unwrap();
        heap.create_root("goes", 50_000).unwrap();
        heap.create_root("stays", 50_000).unwrap();
        let alone = heap.create_root("alone", 45_000).unwrap();
        // Of another class, so in a slab of its own.
        let others = heap.root("goes").unwrap().pointer.as_ptr() as usize;
        assert!((alone.as_ptr() as usize).abs_diff(others) >= 3 << 16);
    }
    fn names(heap: &Heap<TestMemory>) -> Vec<u8> {
        let usable = |root: &holdfast_heap::Root| heap.usable_bytes(root.pointer).unwrap();
        let mut roots: Vec<_> =
            heap.roots().map(|(name, root)| format!("{name} {}", usable(&root))).collect();
        roots.sort();
        roots.concat().into_bytes()
    }
    // A slot, a slab's last slot, and a new slab.
    enumerate(LARGE, prepare, |heap| heap.remove_root("goes").unwrap(), names);
    enumerate(LARGE, prepare, |heap| heap.remove_root("alone").unwrap(), names);
    enumerate(LARGE, prepare, |heap| _ = heap.create_root("new", 40_000).unwrap(), names);
    fn transaction(heap: &mut Heap<TestMemory>) {
        heap.begin().unwrap();
        heap.create_root("first", 40_000).unwrap();
        heap.create_root("second", 50_000).unwrap();
        heap.remove_root("alone").unwrap();
        heap.remove_root("goes").unwrap();
        heap.commit().unwrap();
    }
    enumerate(LARGE, prepare, transaction, names);
    fn aborted(heap: &mut Heap<TestMemory>) {
        heap.begin().unwrap();
        heap.create_root("first", 40_000).unwrap();
        heap.remove_root("alone").unwrap();
        heap.abort().unwrap();
    }
    enumerate(LARGE, prepare, aborted, names);
    // Without a transaction: no more than a soundness that nothing is lost by.
    fn anonymous(heap: &mut Heap<TestMemory>) {
        let objects = [40_000, 40_000, 45_000].map(|bytes| heap.alloc(bytes).unwrap());
        objects.into_iter().for_each(|object| heap.free(object).unwrap());
    }
    // Each of the six stores at least once, and dies before that and before the recovery's.
    assert!(enumerate(LARGE, prepare, anonymous, names) > 12);
}

/// A heap of an older version becomes a newer one with its first wide slab, whatever the moment.
///
/// Guarantee: heap/old-formats
#[test]
fn step_to_wide_slabs_stands_a_kill() {
    let heap = open(version_2());
    assert_eq!(heap.format_version(), 2);
    let tried = enumerate_from(
        &heap.close(),
        |heap| _ = heap.create_root("new", 40_000).unwrap(),
        all_roots,
    );
    assert!(tried > 20);
}
