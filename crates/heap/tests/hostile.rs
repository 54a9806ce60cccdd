//! Heaps whose bytes somebody chose: what fuzzing has found, told as examples.

#![allow(clippy::unwrap_used, reason = "a test ends where an expectation fails")]

mod common;

use common::{TestMemory, at, open};
use holdfast_heap::layout::SUPER_SEGMENTS;

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

/// A stray store to the number of segments, after the heap was opened, made every walk over the segments endless: that
/// of an allocation of whole segments, and the question where the bytes went.
#[test]
fn a_heap_that_claims_endless_segments_is_walked_to_its_end_only() {
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
