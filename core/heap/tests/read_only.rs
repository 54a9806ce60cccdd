//! A heap that may only be read: everything reads, nothing changes, and every change is an error.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{OPTIONS, TestMemory, at, open};
use holdfast_heap::{Backing, GrowError, Heap, HeapError, OpenError, Opened, SharedHeap, typed};

/// Memory of which the heap is told that it cannot be stored to.
struct ReadOnly(TestMemory);

// SAFETY: that of the memory inside.
unsafe impl Backing for ReadOnly {
    fn base(&self) -> *mut u8 {
        self.0.base()
    }

    fn backed_bytes(&self) -> u64 {
        self.0.backed_bytes()
    }

    fn limit_bytes(&self) -> u64 {
        self.0.limit_bytes()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn grow(&mut self, _: u64) -> Result<u64, GrowError> {
        panic!("a heap that may only be read was to grow")
    }
}

typed! {
    struct Counter: 1 {
        count: u64,
    }
}

/// A heap with a root, small and large objects, and free places next to them.
fn memory() -> (TestMemory, u64, u64) {
    let mut heap = open(TestMemory::new(16 << 20));
    let root = heap.create_root("words", 100).unwrap();
    // SAFETY: the root has 100 bytes.
    unsafe { root.as_ptr().write_bytes(7, 100) };
    heap.create_root_typed::<Counter>("counter").unwrap();
    let large = heap.alloc(200_000).unwrap();
    let gone = heap.alloc(100).unwrap();
    heap.free(gone).unwrap();
    let (root, large) = (heap.offset_of(root).unwrap(), heap.offset_of(large).unwrap());
    (heap.close(), root, large)
}

/// A heap that may only be read reads refuses every change and keeps every byte.
///
/// Guarantee: heap/read-only
#[test]
fn read_only_heap_refuses_every_change() {
    let (memory, root, large) = memory();
    let before = memory.bytes().to_vec();
    let mut heap = Heap::open(ReadOnly(memory), OPTIONS).unwrap();
    assert_eq!(heap.opened(), Opened::Clean);
    let pointer = |heap: &Heap<ReadOnly>, offset| {
        std::ptr::NonNull::new(heap.backing().base().wrapping_add(offset as usize)).unwrap()
    };
    let (root, large) = (pointer(&heap, root), pointer(&heap, large));
    assert_eq!((heap.root("words").unwrap().pointer, heap.roots().count()), (root, 2));
    assert!(heap.root_typed::<Counter>("counter").unwrap().is_some());
    assert!(heap.usable_bytes(large).unwrap() >= 200_000);
    for bytes in [1, 100, 5_000, 40_000, 300_000, 5 << 20, 1 << 40] {
        assert_eq!(heap.alloc(bytes), Err(HeapError::ReadOnly));
        assert_eq!(heap.alloc_zeroed(bytes), Err(HeapError::ReadOnly));
        assert_eq!(heap.alloc_aligned(bytes, 4096), Err(HeapError::ReadOnly));
        assert_eq!(heap.create_root("new", bytes), Err(HeapError::ReadOnly));
        for object in [root, large] {
            assert_eq!(heap.realloc(object, bytes), Err(HeapError::ReadOnly));
        }
        assert_eq!(heap.realloc_zeroed(large, 200_000, bytes), Err(HeapError::ReadOnly));
    }
    assert_eq!(heap.create_root_typed::<Counter>("another"), Err(HeapError::ReadOnly));
    assert_eq!(heap.adopt_root::<Counter>("words"), Err(HeapError::ReadOnly));
    assert_eq!(heap.name_object("named", large, 8, None), Err(HeapError::ReadOnly));
    assert_eq!(heap.free(large), Err(HeapError::ReadOnly));
    assert_eq!(heap.remove_root("words"), Err(HeapError::ReadOnly));
    assert_eq!(heap.begin(), Err(HeapError::ReadOnly));
    assert!(heap.begin_transaction().is_err());
    assert!(
        heap.add_range(root.as_ptr(), 8).is_err()
            && heap.commit().is_err()
            && heap.abort().is_err()
    );
    // SAFETY: nothing here swaps the heap for another.
    let shared = unsafe { SharedHeap::new(heap) };
    let mut handle = shared.handle();
    assert_eq!(handle.alloc(100), Err(HeapError::ReadOnly));
    assert_eq!(handle.free(large), Err(HeapError::ReadOnly));
    drop(handle);
    let ReadOnly(memory) = shared.into_heap().ok().unwrap().close();
    assert!(memory.bytes() == before, "a byte of the heap was changed");
    // The same heap serves a program that may write.
    let mut heap = open(memory);
    let large = at(&heap, heap.offset_of(large).unwrap());
    heap.free(large).unwrap();
}

/// An empty region and a heap with an open transaction are refused and left as they are.
#[test]
fn empty_and_unsettled_regions_are_refused() {
    for (memory, expected) in [
        (TestMemory::new(16 << 20), OpenError::Empty),
        (
            {
                let mut heap = open(memory().0);
                heap.begin().unwrap();
                heap.alloc(100).unwrap();
                heap.backing().copy()
            },
            OpenError::Unfinished,
        ),
        (common::version_1(), OpenError::Unfinished),
    ] {
        let copy = memory.copy();
        let refused = Heap::open(ReadOnly(memory), OPTIONS).err();
        assert_eq!(refused, Some(expected));
        // Nothing is known of the memory any more; a copy shows what a program that may write makes
        // of it.
        let heap = open(copy);
        assert_ne!(heap.opened(), Opened::Clean);
        assert!(Heap::open(ReadOnly(heap.close()), OPTIONS).is_ok());
    }
}
