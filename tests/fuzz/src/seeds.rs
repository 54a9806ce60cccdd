//! Heaps to start from: an empty range, and heaps with all that a heap can have in it. Made anew in
//! each run, so that they are always of the format that the code has.

use holdfast_heap::{Backing, Heap, OpenOptions, Pointers};
use holdfast_testkit::TestMemory;

/// The pointers of all heaps here.
pub const POINTERS: OpenOptions =
    OpenOptions { pointers: Some(Pointers { base: 0x8000_0000, bytes: 4 }), format_if_empty: true };

/// Heaps of `bytes` each: nothing, an empty one, a full one, one whose last program died inside a
/// transaction, and one with a log of several extents.
///
/// # Panics
/// When a heap cannot be made, which ends the fuzzing before it begins.
#[must_use]
pub fn seeds(bytes: usize) -> Vec<Vec<u8>> {
    let heap = || Heap::open(TestMemory::new(bytes as u64), POINTERS).expect("a new heap");
    let image = |heap: &Heap<TestMemory>| heap.backing().bytes().to_vec();
    let empty = heap();
    let mut used = heap();
    for index in 0..70 {
        used.create_root(&format!("root {index}"), 16 + index % 4 * 40).expect("room");
    }
    for index in (0..70).step_by(3) {
        used.remove_root(&format!("root {index}")).expect("a root");
    }
    used.alloc(100_000).expect("room");
    let full = image(&used);
    let object = used.alloc(200).expect("room");
    used.begin().expect("a transaction");
    used.create_root("in flight", 5000).expect("room");
    used.free(object).expect("an object");
    let open = image(&used);
    let pointer = used.backing().base();
    // Longer than the lane's own chunk.
    for index in 0..4_u64 {
        let start = pointer.wrapping_add((3 * 65_536 + index * 30_000) as usize);
        used.add_range(start, 25_000).expect("room in the log");
    }
    let extents = image(&used);
    std::mem::forget(used);
    vec![vec![0; bytes], image(&empty), full, open, extents]
}
