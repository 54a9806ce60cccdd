//! Taking a heap of the mode `atomic` back to its last commit.
//!
//! Invariant: no handle outlives a rollback. What one has in its caches describes bytes that are
//! gone.

use holdfast_heap::{Backing, Heap, OpenOptions};
use holdfast_region::Region;

use crate::{HeapRegion, OpenHeapError, RegionBacking};

/// Undoes everything that was stored since the last commit, an open transaction included, and opens
/// the heap anew. Pointers to what the last commit had stay valid; those to what was allocated
/// since point to free memory. Growth of the region stays. No thread may use the heap meanwhile.
///
/// # Errors
/// `NotAtomic` for a heap that is open in the mode `direct` (ask [`Region::consistency`] first),
/// `Poisoned` and `Io` as [`Region::rollback`]. The handle is gone then; drop the region, whose
/// image has the last commit.
pub fn roll_back(heap: Heap<RegionBacking>) -> Result<Heap<RegionBacking>, OpenHeapError> {
    let region = heap.backing().region().clone();
    roll_back_on(heap, &region)
}

/// As [`roll_back`], for a backing that is made from that of this region.
///
/// # Errors
/// As [`roll_back`].
pub fn roll_back_on<B: Backing>(
    heap: Heap<B>,
    region: &HeapRegion,
) -> Result<Heap<B>, OpenHeapError> {
    // Also of a heap whose pointers its user does not follow.
    let pointers = heap.pointers();
    // Ends an open transaction; what that stores is undone with the rest.
    let backing = heap.close();
    region.with(Region::rollback)?;
    // A heap that was never committed is formatted anew.
    let options = OpenOptions { pointers: Some(pointers), format_if_empty: true };
    Ok(Heap::open(backing, options)?)
}
