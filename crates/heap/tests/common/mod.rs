//! Heaps in plain memory, opened as an applet opens its own.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use holdfast_heap::{Heap, OpenOptions, Pointers, check};
pub use holdfast_testkit::TestMemory;

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
