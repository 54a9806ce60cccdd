//! A backing in plain memory whose bytes can be copied, as a killed process leaves them behind.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use std::alloc::{Layout, alloc_zeroed, dealloc};

use holdfast_heap::{Backing, GrowError, Heap, OpenOptions, Pointers, check};

pub const STEP_BYTES: u64 = 4 << 20;

/// Memory of `limit` bytes of which the first `backed` count.
pub struct TestMemory {
    base: *mut u8,
    backed: u64,
    limit: u64,
    /// How many more times `grow` succeeds.
    pub grows_left: u32,
}

fn layout(bytes: u64) -> Layout {
    Layout::from_size_align(bytes as usize, 1 << 16).unwrap()
}

impl TestMemory {
    pub fn new(limit: u64) -> TestMemory {
        // SAFETY: the size is not zero.
        let base = unsafe { alloc_zeroed(layout(limit)) };
        TestMemory { base, backed: STEP_BYTES.min(limit), limit, grows_left: u32::MAX }
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the allocation has `limit` bytes and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.base, self.backed as usize) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.backed as usize) }
    }

    /// What a second process would find: same bytes, another address.
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

// SAFETY: one allocation, aligned to 64 KiB, never moved, exclusively owned; `backed` only grows.
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

pub const OPTIONS: OpenOptions =
    OpenOptions { pointers: Some(Pointers { base: 0x8000_0000, bytes: 4 }), format_if_empty: true };

pub fn open(memory: TestMemory) -> Heap<TestMemory> {
    Heap::open(memory, OPTIONS).unwrap()
}

/// Checks the bytes; panics with the findings if there are any.
pub fn assert_sound(bytes: &[u8], context: &str) -> holdfast_heap::CheckReport {
    let mut findings = Vec::new();
    let report = check(bytes, &mut |finding| findings.push(finding));
    assert!(report.is_sound(), "{context}: {findings:#x?}");
    report
}
