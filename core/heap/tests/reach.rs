//! How far the references of a portable heap reach.

#![cfg(not(target_family = "wasm"))]
#![allow(clippy::unwrap_used, reason = "a test ends where an expectation fails")]
#![allow(unsafe_code, reason = "heaps are followed by references")]

use holdfast_heap::{Backing, GrowError, Heap, HeapError, OpenOptions, Pointers, REF_REACH_BYTES};

const PORTABLE: OpenOptions =
    OpenOptions { pointers: Some(Pointers::PORTABLE), format_if_empty: true };

/// Address space of 40 GiB of which only what is touched is memory.
struct Vast(*mut u8);

const VAST_BYTES: u64 = 40 << 30;

impl Vast {
    fn new() -> Vast {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping where the kernel likes.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                VAST_BYTES as usize,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )
        };
        Vast(base.unwrap().cast())
    }
}

impl Drop for Vast {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nobody has a pointer into it any more.
        unsafe { rustix::mm::munmap(self.0.cast(), VAST_BYTES as usize) }.unwrap();
    }
}

// SAFETY: all of it is readable and writable memory, page-aligned, this value's alone, and stays.
unsafe impl Backing for Vast {
    fn base(&self) -> *mut u8 {
        self.0
    }
    fn backed_bytes(&self) -> u64 {
        VAST_BYTES
    }
    fn limit_bytes(&self) -> u64 {
        VAST_BYTES
    }
    fn grow(&mut self, _: u64) -> Result<u64, GrowError> {
        Err(GrowError::LimitReached { limit_bytes: VAST_BYTES })
    }
}

/// A portable heap is used up to 32 GiB, where each object is reached by its reference, and no
/// object lies beyond; a heap with pointers goes on.
///
/// Guarantee: programs/portable
#[test]
fn portable_heap_ends_where_references_end() {
    const LARGE: u64 = 5 << 30;
    let mut heap = Heap::open(Vast::new(), PORTABLE).unwrap();
    let base = heap.base().unwrap();
    let mut last = 0;
    for number in 0..6_u64 {
        let object = heap.alloc(LARGE).unwrap().cast::<u64>();
        let reference = heap.reference(object).unwrap();
        // SAFETY: just allocated, large enough, and nothing else refers to it.
        unsafe { object.write(number) };
        assert_eq!(reference.target(base), Some(object));
        last = reference.offset();
    }
    assert!(last > 25 << 30, "{last:#x}");
    let out_of_reach =
        |wanted_bytes| Some(HeapError::OutOfMemory { wanted_bytes, cause: GrowError::OutOfReach });
    let refused = heap.alloc(LARGE).err();
    assert_eq!(refused, out_of_reach(LARGE));
    assert!(refused.unwrap().to_string().contains("ends at 32 GiB"));
    assert_eq!(heap.reserve(LARGE).err(), out_of_reach(LARGE));
    // Small ones, up to the last byte.
    let mut highest = 0;
    let error = loop {
        match heap.alloc(3 << 20) {
            Ok(object) => highest = heap.offset_of(object).unwrap(),
            Err(error) => break error,
        }
    };
    assert_eq!(Some(error), out_of_reach(3 << 20));
    assert!((REF_REACH_BYTES - (8 << 20)..REF_REACH_BYTES).contains(&highest), "{highest:#x}");

    let native = Pointers { base: 1 << 44, bytes: 8 };
    let options = OpenOptions { pointers: Some(native), format_if_empty: true };
    let mut plain = Heap::open(Vast::new(), options).unwrap();
    assert_eq!((0..7).filter(|_| plain.alloc(LARGE).is_ok()).count(), 7);
}
