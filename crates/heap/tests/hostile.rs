//! Heaps whose bytes somebody chose: what fuzzing has found, told as examples.

#![allow(clippy::unwrap_used, reason = "a test ends where an expectation fails")]

mod common;

use std::sync::mpsc::channel;
use std::time::Duration;

use common::{TestMemory, at, open};
use holdfast_heap::layout::SUPER_SEGMENTS;

/// A stray store to the number of segments, after the heap was opened, made every walk over the segments endless: that
/// of an allocation of whole segments, and the question where the bytes went.
#[test]
fn a_heap_that_claims_endless_segments_is_walked_to_its_end_only() {
    for claimed in [3_u64, 1 << 40, u64::MAX] {
        let (done, wait) = channel();
        std::thread::spawn(move || {
            let mut heap = open(TestMemory::new(1 << 20));
            // SAFETY: the superblock lies in the heap's memory.
            unsafe { at(&heap, SUPER_SEGMENTS).cast::<u64>().write(claimed.to_le()) };
            assert!(heap.usage().formatted_bytes <= 1 << 20);
            assert!(heap.alloc(5 << 20).is_err());
            done.send(()).unwrap();
        });
        assert!(wait.recv_timeout(Duration::from_secs(20)).is_ok(), "{claimed} segments are walked for ever");
    }
}
