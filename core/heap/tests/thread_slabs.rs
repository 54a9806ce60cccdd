//! The slabs of threads: what others free there, what a thread leaves behind, and what the heap
//! takes back.

#![allow(clippy::unwrap_used, reason = "a test ends where an expectation fails")]
// An applet has no threads of this kind.
#![cfg(not(target_family = "wasm"))]

mod common;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use common::{TestMemory, assert_sound, open, share, share_with_barrier, thread_barrier};
use holdfast_heap::{Handle, HeapError};

/// A slab of this class is one word of the bitmap.
const BYTES: u64 = 1024;
const SLOTS: usize = 64;

fn slab_of(object: NonNull<u8>) -> usize {
    object.as_ptr() as usize >> 16
}

/// Others free in a thread's slabs at the very moment in which it changes the same words. Each slab
/// becomes common once, so there are many of them.
///
/// Guarantee: heap/threads
#[test]
fn no_free_is_lost_while_a_slab_becomes_common() {
    const ROUNDS: usize = 4000;
    let shared = share_with_barrier(open(TestMemory::new(64 << 20)));
    let (passed, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut owner = shared.handle();
    let mut other = shared.handle();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                if let Some(object) = NonNull::new(passed.swap(0, Ordering::AcqRel) as *mut u8) {
                    other.free(object).unwrap();
                }
                thread::yield_now();
            }
        });
        // Also when an expectation fails.
        struct Done<'a>(&'a AtomicBool);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        let _done = Done(&done);
        for _ in 0..ROUNDS {
            let mut objects: Vec<_> = (0..SLOTS).map(|_| owner.alloc(BYTES).unwrap()).collect();
            passed.store(objects.swap_remove(0).as_ptr() as usize, Ordering::Release);
            while passed.load(Ordering::Acquire) != 0 {
                owner.free(objects[0]).unwrap();
                objects[0] = owner.alloc(BYTES).unwrap();
            }
            // What the other one is at now, it does to the same words.
            for object in objects {
                owner.free(object).unwrap();
            }
        }
    });
    drop((owner, other));
    let heap = shared.into_heap().ok().unwrap();
    assert_eq!(assert_sound(heap.backing().bytes(), "all freed").objects, 0);
}

/// A thread that frees what an ended one has left takes its slabs over, and uses their room.
///
/// Guarantee: heap/threads
#[test]
fn slabs_of_an_ended_thread_are_taken_over() {
    for share in [share, share_with_barrier] {
        let shared = share(open(TestMemory::new(64 << 20)));
        let mut ended = shared.handle();
        // Six slabs, all full.
        let objects: Vec<_> = (0..6 * SLOTS).map(|_| ended.alloc(BYTES).unwrap()).collect();
        drop(ended);
        let used = |handle: &mut Handle<TestMemory>| handle.with_heap(|heap| heap.usage());
        let mut next = shared.handle();
        let before = used(&mut next);
        for _ in 0..10 {
            for object in &objects {
                next.free(*object).unwrap();
                assert_eq!(next.alloc(BYTES).unwrap(), *object, "the latest one comes first");
            }
        }
        assert_eq!(used(&mut next), before);
        objects.iter().for_each(|object| next.free(*object).unwrap());
        // Of the empty ones it keeps one.
        assert!(used(&mut next).chunk_bytes <= before.chunk_bytes - 5 * (64 << 10));
        drop(next);
        let heap = shared.into_heap().ok().unwrap();
        assert_eq!(assert_sound(heap.backing().bytes(), "all freed").objects, 0);
    }
}

/// Room that a thread does not need goes to another one before the heap says that there is none.
///
/// Guarantee: heap/threads
#[test]
fn full_heap_takes_back_what_threads_do_not_use() {
    let shared = share_with_barrier(open(TestMemory::new(4 << 20)));
    let mut idle = shared.handle();
    // One object, and room for others, in a slab of each class.
    let objects: Vec<_> = (1..20).map(|class| idle.alloc(class * 16).unwrap()).collect();
    let mut busy = shared.handle();
    let mut filled = 0_u64;
    while busy.alloc(16).is_ok() {
        filled += 1;
    }
    let whole = open(TestMemory::new(4 << 20));
    let mut whole = share(whole).handle();
    (1..20).for_each(|class| _ = whole.alloc(class * 16).unwrap());
    let expected = std::iter::from_fn(|| whole.alloc(16).ok()).count() as u64;
    assert!(filled + 1 >= expected, "{filled} objects fit, where one thread fits {expected}");
    // The thread goes on with other slabs.
    assert!(matches!(idle.alloc(16), Err(HeapError::OutOfMemory { .. })));
    for object in objects {
        idle.free(object).unwrap();
        assert_eq!(idle.free(object), Err(HeapError::NotAllocated));
    }
    assert!(idle.alloc(16).is_ok() && busy.alloc(100).is_ok());
}

/// Empty slabs that a thread keeps are room for large objects as well.
///
/// Guarantee: heap/threads
#[test]
fn full_heap_takes_empty_slabs_back_for_large_objects() {
    let large = |heap: &mut dyn FnMut(u64) -> bool| (0..).take_while(|_| heap(100_000)).count();
    let mut fresh = share(open(TestMemory::new(4 << 20))).handle();
    let expected = large(&mut |bytes| fresh.alloc(bytes).is_ok());
    let shared = share_with_barrier(open(TestMemory::new(4 << 20)));
    let mut idle = shared.handle();
    let objects: Vec<_> = (1..20).map(|class| idle.alloc(class * 16).unwrap()).collect();
    objects.into_iter().for_each(|object| idle.free(object).unwrap());
    let mut busy = shared.handle();
    let found = large(&mut |bytes| busy.alloc(bytes).is_ok());
    // The chunk in which the heap allocates next may be left.
    assert!(found + 1 >= expected, "{found} objects fit, where {expected} do");
}

/// A closed heap has its slabs back, the empty ones as free chunks, and what a thread still thinks
/// to have of it is of no use.
///
/// Guarantee: heap/threads
#[test]
fn closed_heap_leaves_its_threads_nothing() {
    let mut heap = open(TestMemory::new(16 << 20));
    // SAFETY: the heap is closed below, and they get no other one.
    let mut slabs = unsafe { heap.thread_slabs(Some(thread_barrier())) };
    let used = heap.usage().chunk_bytes;
    assert_eq!(slabs.alloc(100), None, "it has no slab yet");
    let object = slabs.alloc_in(&mut heap, 100).unwrap();
    let other = slabs.alloc_zeroed(100).unwrap();
    assert_eq!(slab_of(other), slab_of(object));
    assert!(slabs.free(object) && !slabs.free(object), "only once");
    assert_eq!(slabs.free_in(&mut heap, object), Err(HeapError::NotAllocated));
    assert!(slabs.free(other));
    let memory = heap.close();
    assert_eq!((slabs.alloc(100), slabs.free(other)), (None, false));
    let heap = open(memory);
    assert!(!slabs.are_of(&heap));
    assert_eq!(heap.usage().chunk_bytes, used);
    assert_eq!(assert_sound(heap.backing().bytes(), "closed").objects, 0);
}

/// What a thread allocates and frees in a transaction belongs to that, whatever slabs it has.
///
/// Guarantee: heap/threads
/// Guarantee: heap/transactions
#[test]
fn slabs_of_threads_leave_transactions_alone() {
    let mut heap = open(TestMemory::new(16 << 20));
    // SAFETY: they are not used after the heap was closed, and get no other one.
    let mut slabs = unsafe { heap.thread_slabs(Some(thread_barrier())) };
    let object = slabs.alloc_in(&mut heap, 100).unwrap();
    heap.begin().unwrap();
    slabs.free_in(&mut heap, object).unwrap();
    let inside = slabs.alloc_in(&mut heap, 100).unwrap();
    assert_ne!(inside, object);
    heap.abort().unwrap();
    assert_eq!(assert_sound(heap.backing().bytes(), "aborted").objects, 1);
    heap.begin().unwrap();
    slabs.free_in(&mut heap, object).unwrap();
    heap.commit().unwrap();
    assert_eq!(assert_sound(heap.backing().bytes(), "committed").objects, 0);
    assert!(!slabs.free(object), "its slab is common now, and the heap has to be asked");
    assert_eq!(slabs.free_in(&mut heap, object), Err(HeapError::NotAllocated));
    assert_eq!(slabs.alloc_in(&mut heap, 100).map(slab_of), Ok(slab_of(object)));
    slabs.give_back(&mut heap);
    drop(heap.close());
}

/// A thread whose slab was taken back and is one of another class by now does not say how large an
/// object there is: the heap does.
///
/// Guarantee: heap/threads
#[test]
fn taken_back_slab_tells_no_old_size() {
    let mut heap = open(TestMemory::new(4 << 20));
    // SAFETY: they are not used after the heap was closed, and get no other one.
    let mut slabs = unsafe { heap.thread_slabs(Some(thread_barrier())) };
    let objects: Vec<_> = (0..SLOTS).map(|_| slabs.alloc_in(&mut heap, BYTES).unwrap()).collect();
    let slab = slab_of(objects[0]);
    assert_eq!(slabs.usable_bytes(objects[0]), Some(BYTES));
    assert!(heap.take_back_slabs());
    objects.into_iter().for_each(|object| heap.free(object).unwrap());
    let other = std::iter::from_fn(|| heap.alloc(2048).ok()).find(|other| slab_of(*other) == slab);
    let other = other.unwrap();
    assert_eq!((slabs.usable_bytes(other), heap.usable_bytes(other)), (None, Ok(2048)));
    drop(heap.close());
}

/// What one thread frees of large slots another one can allocate: no thread claims their slabs.
///
/// Guarantee: heap/threads
#[test]
fn slabs_of_large_slots_are_claimed_by_no_thread() {
    let mut heap = open(TestMemory::new(16 << 20));
    // SAFETY: as above.
    let mut slabs = unsafe { heap.thread_slabs(Some(thread_barrier())) };
    let objects: Vec<_> = (0..40).map(|_| heap.alloc(16_000).unwrap()).collect();
    let used = heap.usage().chunk_bytes;
    objects.into_iter().step_by(2).for_each(|object| slabs.free_in(&mut heap, object).unwrap());
    assert!((0..20).all(|_| heap.alloc(16_000).is_ok()));
    assert_eq!(heap.usage().chunk_bytes, used);
    slabs.give_back(&mut heap);
    drop(heap.close());
}
