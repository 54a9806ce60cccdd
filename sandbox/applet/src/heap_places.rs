//! Where the pointers of a heap refer to in a WebAssembly memory.
//!
//! Invariant: the offset comes from the heap's own bytes, which are untrusted. The sandbox checks
//! that the memory has such a place, and the applet's library checks the offset when it opens the
//! heap.
#![forbid(unsafe_code)]

use holdfast_heap::{HEAD_BYTES, pointers_of};
use holdfast_region::Region;
use holdfast_wasm::Heaps;

/// Bytes of a pointer in WebAssembly.
const POINTER_BYTES: u32 = 4;

/// Notes for each heap where it must lie, as it is now.
pub(crate) fn note(heaps: &mut Heaps) {
    for heap in heaps.iter_mut() {
        heap.base = place_of(&heap.region);
    }
}

/// `None` for a region without a heap, and for one whose pointers are not those of WebAssembly,
/// which its library refuses wherever it lies.
fn place_of(region: &Region) -> Option<u64> {
    let mut head = [0; HEAD_BYTES];
    region.read_at(0, &mut head).ok()?;
    let pointers = pointers_of(&head).filter(|pointers| pointers.bytes == POINTER_BYTES)?;
    Some(pointers.base)
}
