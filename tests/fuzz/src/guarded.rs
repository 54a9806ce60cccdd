//! A heap's backing between two ranges that cannot be touched.
//!
//! Invariant: `bytes` from `base` are mapped as long as the value lives; the pages before and after
//! are not accessible.

use std::ptr::NonNull;

use holdfast_heap::{Backing, GrowError};
use holdfast_sys::mapping::{Prot, Reservation, map_anon_fixed};

const GUARD_BYTES: usize = 64 << 10;

/// See the module. It never grows.
pub struct Guarded {
    range: Reservation,
    bytes: usize,
}

impl Guarded {
    /// Zeroed memory of that many bytes, a multiple of 64 KiB.
    ///
    /// # Panics
    /// When the kernel has no memory: fuzzing ends then.
    #[must_use]
    pub fn new(bytes: usize) -> Guarded {
        let range =
            Reservation::anywhere(bytes + 2 * GUARD_BYTES, GUARD_BYTES).expect("address space");
        // SAFETY: the range is reserved by us, and the part lies inside of it.
        unsafe { map_anon_fixed(range.base().add(GUARD_BYTES), bytes, Prot::ReadWrite) }
            .expect("memory");
        Guarded { range, bytes }
    }

    fn start(&self) -> *mut u8 {
        self.range.base().wrapping_add(GUARD_BYTES)
    }

    /// All bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for the value's life; a writer borrows it mutably or is a heap on
        // it.
        unsafe { std::slice::from_raw_parts(self.start(), self.bytes) }
    }

    /// All bytes, to write them.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.bytes) }
    }

    /// A pointer to an offset, inside or not.
    #[must_use]
    pub fn at(&self, offset: u64) -> NonNull<u8> {
        NonNull::new(self.start().wrapping_add(offset as usize)).unwrap_or(NonNull::dangling())
    }
}

// SAFETY: mapped, aligned to 64 KiB, used by this value alone, and never changing in size.
unsafe impl Backing for &mut Guarded {
    fn base(&self) -> *mut u8 {
        self.start()
    }

    fn backed_bytes(&self) -> u64 {
        self.bytes as u64
    }

    fn limit_bytes(&self) -> u64 {
        self.bytes as u64
    }

    fn grow(&mut self, _: u64) -> Result<u64, GrowError> {
        Err(GrowError::LimitReached { limit_bytes: self.bytes as u64 })
    }
}
