//! Heaps whose bytes somebody chose: what fuzzing has found, told as examples.

#![allow(clippy::unwrap_used, reason = "a test ends where an expectation fails")]

mod common;

use std::sync::mpsc::channel;
use std::time::Duration;

use common::{OPTIONS, TestMemory, open};
use holdfast_heap::Heap;
use holdfast_heap::layout::SUPER_SEGMENTS;

/// A heap that claims to have more segments than memory has bytes made every walk over its segments endless: that of an
/// allocation of whole segments, and that of `holdfast heap check`, which asks where the bytes went.
#[test]
fn a_heap_that_claims_endless_segments_is_walked_to_its_end_only() {
    for claimed in [3, 1 << 40, u64::MAX] {
        let mut memory = open(TestMemory::new(1 << 20)).close();
        memory.bytes_mut()[SUPER_SEGMENTS as usize..][..8].copy_from_slice(&claimed.to_le_bytes());
        let (done, wait) = channel();
        std::thread::spawn(move || {
            if let Ok(mut heap) = Heap::open(memory, OPTIONS) {
                assert!(heap.usage().formatted_bytes <= 1 << 20);
                assert!(heap.alloc(5 << 20).is_err());
            }
            done.send(()).unwrap();
        });
        assert!(wait.recv_timeout(Duration::from_secs(60)).is_ok(), "{claimed} segments are walked for ever");
    }
}
