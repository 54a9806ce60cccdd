//! A heap's backing in plain memory: it can be copied at any moment, as a killed run leaves it behind, and grows
//! only as often as a test lets it.
//!
//! Invariant: one allocation that never moves; a copy lies at another address.

#![allow(unsafe_code, reason = "it is a backing, and backings are memory")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

use holdfast_heap::{Backing, GrowError};

/// How much a backing grows at least.
const STEP_BYTES: u64 = 4 << 20;
/// Alignment of the first byte, as large as that of any object.
const ALIGN_BYTES: usize = 2 << 20;

/// Memory of `limit` bytes of which the first `backed` count.
#[derive(Debug)]
pub struct TestMemory {
    base: *mut u8,
    backed: u64,
    limit: u64,
    /// How many more times `grow` succeeds.
    pub grows_left: u32,
}

/// # Panics
/// With a size that no memory has; this is for tests.
fn layout(bytes: u64) -> Layout {
    Layout::from_size_align(bytes.max(1) as usize, ALIGN_BYTES).expect("a test's heap fits into memory")
}

impl TestMemory {
    /// Zeroed memory for `limit` bytes, [`STEP_BYTES`] of it backed.
    #[must_use]
    pub fn new(limit: u64) -> TestMemory {
        // SAFETY: the size is not zero.
        let base = unsafe { alloc_zeroed(layout(limit)) };
        if base.is_null() {
            handle_alloc_error(layout(limit));
        }
        TestMemory { base, backed: STEP_BYTES.min(limit), limit, grows_left: u32::MAX }
    }

    /// The backed bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the allocation has `limit` bytes and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.base, self.backed as usize) }
    }

    /// The backed bytes, to damage them.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.backed as usize) }
    }

    /// What a second process would find: same bytes, another address.
    #[must_use]
    pub fn copy(&self) -> TestMemory {
        let mut other = TestMemory::new(self.limit);
        other.backed = self.backed;
        other.bytes_mut().copy_from_slice(self.bytes());
        other
    }
}

impl Drop for TestMemory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.base, layout(self.limit)) };
    }
}

// SAFETY: an allocation of its own, which any thread may use and free.
unsafe impl Send for TestMemory {}

// SAFETY: one allocation, aligned to 2 MiB, never moved, exclusively owned; `backed` only grows.
unsafe impl Backing for TestMemory {
    fn base(&self) -> *mut u8 {
        self.base
    }

    fn backed_bytes(&self) -> u64 {
        self.backed
    }

    fn limit_bytes(&self) -> u64 {
        self.limit
    }

    fn grow(&mut self, bytes: u64) -> Result<u64, GrowError> {
        if bytes > self.limit {
            return Err(GrowError::LimitReached { limit_bytes: self.limit });
        }
        if self.grows_left == 0 {
            return Err(GrowError::NoRoom);
        }
        self.grows_left -= 1;
        self.backed = bytes.next_multiple_of(STEP_BYTES).min(self.limit);
        Ok(self.backed)
    }
}
