//! Heaps in plain memory, opened as an applet opens its own.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

#[cfg(feature = "crash-points")]
pub mod crashes;
#[cfg(feature = "crash-points")]
pub mod kill;
#[cfg(all(feature = "crash-points", target_arch = "x86_64"))]
pub mod medium;
#[cfg(all(feature = "crash-points", target_arch = "x86_64"))]
pub mod reset;

use std::ptr::NonNull;

use holdfast_heap::{Heap, OpenOptions, Pointers, check};
pub use holdfast_testkit::TestMemory;

pub const OPTIONS: OpenOptions =
    OpenOptions { pointers: Some(Pointers { base: 0x8000_0000, bytes: 4 }), format_if_empty: true };

pub fn open(memory: TestMemory) -> Heap<TestMemory> {
    Heap::open(memory, OPTIONS).unwrap()
}

pub fn fill(pointer: NonNull<u8>, bytes: u64, seed: u8) {
    // SAFETY: the callers pass objects of that size.
    unsafe { pointer.as_ptr().write_bytes(seed, bytes as usize) };
}

pub fn holds(heap: &Heap<TestMemory>, offset: u64, bytes: u64, seed: u8) -> bool {
    heap.backing().bytes()[offset as usize..(offset + bytes) as usize]
        .iter()
        .all(|byte| *byte == seed)
}

pub fn at(heap: &Heap<TestMemory>, offset: u64) -> NonNull<u8> {
    NonNull::new(holdfast_heap::Backing::base(heap.backing()).wrapping_add(offset as usize))
        .unwrap()
}

pub fn at_base<B: holdfast_heap::Backing>(heap: &Heap<B>, offset: u64) -> NonNull<u8> {
    NonNull::new(heap.backing().base().wrapping_add(offset as usize)).unwrap()
}

/// The heap of format version 1 that an older program left behind, with a transaction open.
pub fn version_1() -> TestMemory {
    golden(include_str!("../golden/version-1.txt"))
}

/// The same of format version 2, with objects of whole segments.
pub fn version_2() -> TestMemory {
    golden(include_str!("../golden/version-2.txt"))
}

/// The heap of a golden file: its length, then every word that is not zero.
pub fn golden(text: &str) -> TestMemory {
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let number = |digits: &str| usize::from_str_radix(digits, 16).unwrap();
    let bytes = number(lines.next().unwrap()) as u64;
    let mut memory = TestMemory::new(bytes);
    holdfast_heap::Backing::grow(&mut memory, bytes).unwrap();
    for line in lines {
        let (at, word) = line.split_once(' ').unwrap();
        for (index, byte) in memory.bytes_mut()[number(at)..][..8].iter_mut().enumerate() {
            *byte = number(&word[index * 2..][..2]) as u8;
        }
    }
    memory
}

/// Checks the bytes; panics with the findings if there are any.
pub fn assert_sound(bytes: &[u8], context: &str) -> holdfast_heap::CheckReport {
    let mut findings = Vec::new();
    let report = check(bytes, &mut |finding| findings.push(finding));
    assert!(report.is_sound(), "{context}: {findings:#x?}");
    report
}

/// Numbers that look random, the same in every run.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// A size of an object: mostly small, seldom a run of chunks.
    pub fn bytes(&mut self) -> u64 {
        match self.below(100) {
            0 => 32_769 + self.below(200_000),
            1..10 => 1 + self.below(8000),
            _ => 1 + self.below(200),
        }
    }
}

#[cfg(feature = "std")]
pub fn share<B: holdfast_heap::Backing + Send>(heap: Heap<B>) -> holdfast_heap::SharedHeap<B> {
    // SAFETY: no closure here exchanges the heap.
    unsafe { holdfast_heap::SharedHeap::new(heap) }
}

/// As [`share`], with threads that change their own slabs with plain stores.
#[cfg(all(feature = "std", not(target_family = "wasm")))]
pub fn share_with_barrier<B: holdfast_heap::Backing + Send>(
    heap: Heap<B>,
) -> holdfast_heap::SharedHeap<B> {
    // SAFETY: no closure here exchanges the heap.
    unsafe { holdfast_heap::SharedHeap::with_barrier(heap, Some(thread_barrier())) }
}

/// The kernel's barrier over the threads of this process.
#[cfg(all(feature = "std", not(target_family = "wasm")))]
pub fn thread_barrier() -> holdfast_heap::ThreadBarrier {
    use rustix::thread::{MembarrierCommand, membarrier};
    membarrier(MembarrierCommand::RegisterPrivateExpedited).unwrap();
    || membarrier(MembarrierCommand::PrivateExpedited).unwrap()
}
