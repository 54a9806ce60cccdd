//! Rolls a heap back after its applet was stopped in the middle of something.
//!
//! The next applet that opens the heap would do the same. Doing it here means that the checkpoint
//! at close holds the last consistent state, and that tools which only read see it too.
//!
//! Invariants: the bytes of the region are the applet's and are not trusted; a region that holds no
//! heap (an applet may use its memory as it likes) or a damaged one is left exactly as it is.

use holdfast_heap::{Fixed, Heap, OpenError, OpenOptions, Opened};
use holdfast_region::{Consistency, Region, RegionError};

/// What recovery found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recovery {
    /// The heap was in order; nothing was written.
    InOrder,
    /// An unfinished transaction was rolled back, or a committed one completed.
    RolledBack,
    /// The region holds no heap of ours; nothing was written.
    NoHeap,
}

/// Why a heap could not be recovered. Nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoveryError {
    /// The region cannot be mapped.
    #[error("its region cannot be mapped for recovery: {0}")]
    Region(#[from] RegionError),
    /// The heap's metadata is wrong.
    #[error("it cannot be recovered: {0}")]
    Heap(OpenError),
}

/// Brings the heap in an unmapped region to its last consistent state. The region's mode stays as it
/// is, for the next applet.
///
/// # Errors
/// See [`RecoveryError`]; the heap is then as the applet left it.
pub fn recover(region: &mut Region) -> Result<Recovery, RecoveryError> {
    let mode = region.consistency();
    // Whatever the applet's mode: what it did not publish is gone by now, and recovery is a
    // transaction.
    region.set_consistency(Consistency::Direct)?;
    let recovered = recover_in_place(region);
    region.set_consistency(mode)?;
    recovered
}

fn recover_in_place(region: &mut Region) -> Result<Recovery, RecoveryError> {
    let ordered = region.needs_order() && holdfast_persist::instruction().is_some();
    if ordered {
        region.promise_order()?;
    }
    let base = region.map_native()?;
    let found = open(base.as_ptr(), region.backed_bytes(), ordered);
    region.unmap()?;
    match found {
        Ok(Opened::Recovered) => Ok(Recovery::RolledBack),
        Ok(_) => Ok(Recovery::InOrder),
        Err(OpenError::Empty | OpenError::NotAHeap | OpenError::TooSmall { .. }) => {
            Ok(Recovery::NoHeap)
        }
        Err(error) => Err(RecoveryError::Heap(error)),
    }
}

fn open(base: *mut u8, backed_bytes: u64, ordered: bool) -> Result<Opened, OpenError> {
    // SAFETY: `base` starts `backed_bytes` of the region's mapping, which is page-aligned,
    // readable, and writable (its first store makes it so); the caller holds the region, so nothing
    // else writes to it, and unmaps it only after this function has dropped the heap.
    let backing = unsafe { Fixed::new(base, backed_bytes) }.with_order(ordered);
    Heap::open(backing, OpenOptions { pointers: None, format_if_empty: false })
        .map(|heap| heap.opened())
}
