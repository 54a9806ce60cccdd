//! Handles of one thread on a shared heap: each allocates in slabs of its own, and any frees what
//! any allocated. (`shared` has the threads.)

#![allow(clippy::unwrap_used, reason = "a test ends where an expectation fails")]

mod common;

use std::ptr::NonNull;

use common::{TestMemory, assert_sound, open, share};
use holdfast_heap::HeapError;

/// A handle frees what it does not own and refuses what is not allocated.
///
/// Guarantee: heap/same-in-a-sandbox
/// Guarantee: heap/no-undefined-behaviour
#[test]
fn handle_frees_foreign_and_refuses_free_objects() {
    let shared = share(open(TestMemory::new(16 << 20)));
    assert!(shared.handle().with_heap(|heap| heap.begin()).is_ok());
    let (mut one, mut two) = (shared.handle(), shared.handle());
    let object = one.alloc_zeroed(100).unwrap();
    assert_eq!(one.usable_bytes(object), Ok(112));
    two.alloc(100).unwrap();
    two.free(object).unwrap();
    assert_eq!(one.free(object), Err(HeapError::NotAllocated));
    assert_eq!(two.free(object), Err(HeapError::NotAllocated));
    let object = one.alloc(100).unwrap();
    let inside = NonNull::new(object.as_ptr().wrapping_add(16)).unwrap();
    assert_eq!(one.free(inside), Err(HeapError::NotAllocated));
    let failed: Result<(), HeapError> = two.transaction(|tx| {
        assert_eq!(tx.transaction_depth(), 1, "another one was left open");
        tx.create_root("lost", 10)?;
        tx.free(object)?;
        Err(HeapError::BadName)
    });
    assert_eq!(failed, Err(HeapError::BadName));
    let done: Result<(), HeapError> = two.transaction(|tx| tx.free(object));
    done.unwrap();
    assert_eq!(one.free(object), Err(HeapError::NotAllocated));
    let shared = shared.into_heap().err().unwrap();
    drop((one, two));
    let heap = shared.into_heap().ok().unwrap();
    assert_eq!(assert_sound(heap.backing().bytes(), "one object of two's").objects, 1);
}

/// What the heap freed last in a slab is the thread's alone once it has claimed the slab.
///
/// Guarantee: heap/objects
#[test]
fn claimed_slab_is_the_threads_alone() {
    let shared = share(open(TestMemory::new(16 << 20)));
    let mut one = shared.handle();
    one.with_heap(|heap| {
        let objects: Vec<_> = (0..3).map(|_| heap.alloc(64).unwrap()).collect();
        // The first free makes the slab known, and all of them leave their slots to the next
        // allocations.
        objects.iter().for_each(|object| heap.free(*object).unwrap());
    });
    let slab = one.alloc(64).unwrap().as_ptr() as usize >> 16;
    for _ in 0..5 {
        let object = one.with_heap(|heap| heap.alloc(64).unwrap());
        assert_ne!(object.as_ptr() as usize >> 16, slab, "two allocate from one slab");
    }
}
