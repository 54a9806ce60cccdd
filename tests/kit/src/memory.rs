//! A heap's backing in memory: it can be copied at any moment, as a killed run leaves it behind,
//! and grows only as often as a test lets it. On the host that is plain memory; in an applet it is
//! an object in the applet's own heap, so that the heaps under test lie in the region that the host
//! has mapped.
//!
//! Invariant: one allocation that never moves; a copy lies at another address.

#![allow(unsafe_code, reason = "it is a backing, and backings are memory")]

use std::alloc::{Layout, handle_alloc_error};

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
    grows_left: u32,
}

#[cfg(not(target_family = "wasm"))]
use std::alloc::{alloc_zeroed, dealloc};

/// The applet's heap as the allocator of the memory for tests.
#[cfg(target_family = "wasm")]
mod region {
    use std::alloc::Layout;
    use std::cell::RefCell;
    use std::ptr::{NonNull, null_mut};

    thread_local! {
        static REGION: RefCell<holdfast_guest::Heap> =
            RefCell::new(holdfast_guest::attach().expect("the tests run with a heap of 1 GiB"));
    }

    /// # Safety
    /// As for [`std::alloc::alloc_zeroed`].
    pub(super) unsafe fn alloc_zeroed(layout: Layout) -> *mut u8 {
        let (bytes, align_bytes) = (layout.size() as u64, layout.align() as u64);
        let object = REGION.with_borrow_mut(|heap| heap.alloc_aligned(bytes, align_bytes));
        let object = object.map_or(null_mut(), NonNull::as_ptr);
        if !object.is_null() {
            // SAFETY: just allocated with that many bytes.
            unsafe { object.write_bytes(0, layout.size()) };
        }
        object
    }

    /// # Safety
    /// As for [`std::alloc::dealloc`].
    pub(super) unsafe fn dealloc(object: *mut u8, _layout: Layout) {
        let freed =
            NonNull::new(object).map(|object| REGION.with_borrow_mut(|heap| heap.free(object)));
        assert_eq!(freed, Some(Ok(())), "the heap around the heap under test is damaged");
    }
}
#[cfg(target_family = "wasm")]
use region::{alloc_zeroed, dealloc};

/// # Panics
/// With a size that no memory has; this is for tests.
fn layout(bytes: u64) -> Layout {
    Layout::from_size_align(bytes.max(1) as usize, ALIGN_BYTES)
        .expect("a test's heap fits into memory")
}

impl TestMemory {
    /// Lets `grow` fail from now on, as in a full pool.
    pub fn refuse_to_grow(&mut self) {
        self.grows_left = 0;
    }

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
        self.with_limit(self.limit)
    }

    /// As [`TestMemory::copy`], after the limit was changed to one that is no smaller than what is
    /// backed.
    #[must_use]
    pub fn with_limit(&self, limit: u64) -> TestMemory {
        let mut other = TestMemory::new(limit);
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
