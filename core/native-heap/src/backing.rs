//! A mapped region as a heap's backing.
//!
//! Invariant: the base is that of the mapping and never changes, and the limit is the region's at
//! any time; the region stays mapped while the backing lives, because only [`HeapRegion::close`]
//! ends the mapping, and it needs the last handle.

use std::io;
use std::ptr::NonNull;

use holdfast_heap::{Backing, GrowError};
use holdfast_region::{AccessError, Consistency, ErrorKind, RegionError};
use holdfast_sys::mapping::share_with_children;

use crate::HeapRegion;
use crate::exclusion::TransactionPlace;

/// The bytes of a mapped region, lent to a heap.
#[derive(Debug)]
pub struct RegionBacking {
    base: NonNull<u8>,
    backed_bytes: u64,
    is_ordered: bool,
    region: HeapRegion,
    place: TransactionPlace,
}

// SAFETY: the mapping belongs to the process, not to a thread; the pointer is only handed on to the
// heap, which moves along.
unsafe impl Send for RegionBacking {}

impl RegionBacking {
    pub(crate) fn new(base: NonNull<u8>, region: HeapRegion) -> RegionBacking {
        let (backed_bytes, consistency) =
            region.with(|region| (region.backed_bytes(), region.consistency()));
        // In the mode `atomic` stores are to private pages, which the region publishes in its own
        // order.
        let is_ordered = region.is_ordered() && consistency == Consistency::Direct;
        let place = TransactionPlace::take();
        RegionBacking { base, backed_bytes, is_ordered, region, place }
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &HeapRegion {
        &self.region
    }
}

// SAFETY: the region is mapped at `base` while a handle to it exists (see the module),
// page-aligned, for this process alone (its lock), never shrinks, and `backed_bytes` of it are
// allocated.
unsafe impl Backing for RegionBacking {
    fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    fn backed_bytes(&self) -> u64 {
        self.backed_bytes
    }

    fn limit_bytes(&self) -> u64 {
        // Without the region's lock, which another thread may have had when this process was forked
        // off.
        self.region.limit_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.region.with(|region| region.is_read_only())
    }

    fn is_ordered(&self) -> bool {
        self.is_ordered
    }

    #[inline]
    fn enter_transaction(&self) -> bool {
        self.place.enter()
    }

    #[inline]
    fn leave_transaction(&self) {
        self.place.leave();
    }

    fn grow(&mut self, bytes: u64) -> Result<u64, GrowError> {
        let grown =
            self.region.with(|region| region.grow(bytes)).map_err(|error| grow_error(&error))?;
        if self.region.is_hidden() {
            let start = self.base.as_ptr().wrapping_add(self.backed_bytes as usize);
            hide(start, grown.saturating_sub(self.backed_bytes)).map_err(|_| GrowError::Failed)?;
        }
        self.backed_bytes = grown;
        Ok(self.backed_bytes)
    }
}

/// Keeps a part of a region's mapping from the children that this process forks.
pub(crate) fn hide(start: *mut u8, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: the part is mapped, and is the region's; what a child gets of it was not promised.
    unsafe { share_with_children(start, bytes as usize, false) }
}

/// What the heap has to know of why a region did not grow.
#[must_use]
pub fn grow_error(error: &RegionError) -> GrowError {
    match error {
        RegionError::LimitReached { limit_bytes, .. } => {
            GrowError::LimitReached { limit_bytes: *limit_bytes }
        }
        RegionError::Access(AccessError::QuotaReached { quota_bytes: limit_bytes, .. })
        | RegionError::Access(AccessError::NoQuotaLeft { limit_bytes, .. }) => {
            GrowError::LimitReached { limit_bytes: *limit_bytes }
        }
        error if error.kind() == ErrorKind::NoRoom => GrowError::NoRoom,
        _ => GrowError::Failed,
    }
}
