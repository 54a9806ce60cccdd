//! Measures the cost of bringing stores to persistent memory in order: transactions and single
//! write-backs of an ordered heap against PMDK's, both on the same tmpfs that is treated as such
//! memory, both with the processor's write-backs.
//!
//! Time of the processor: nothing here waits.

#![allow(unsafe_code, reason = "reads and writes the objects that it allocates")]

use std::io::{self, Error};
use std::ptr::NonNull;

use holdfast_heap::Heap;
use holdfast_native_heap::RegionBacking;
use holdfast_region::Durability;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::ordered::Ordered;
use super::pages::HOLDFAST;
#[cfg(feature = "peers")]
use super::pages::PMDK;
use crate::heap::ground::Ground;
use crate::heap::update::Updates;
use crate::race::{Side, Times, race};
use crate::timing::processor_ns;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
/// A page.
const LONG_BYTES: usize = 4096;
const PERSISTS: usize = 200_000;

/// Nanoseconds for a transaction that changes 64 bytes.
pub(super) fn transactions(ground: &Ground, rounds: usize) -> io::Result<Times> {
    let mut ordered = Ordered::new(ground, Durability::System)?;
    let mut ours = Updates::new(&mut ordered.heap)?;
    #[cfg(feature = "peers")]
    let mut theirs = match crate::heap::peers::pmdk::Pmdk::new(&ground.in_memory("pmdk")?)? {
        Some(pmdk) => Some(Updates::new(pmdk)?),
        None => None,
    };
    let sides = std::iter::once(Side::new(HOLDFAST, || ours.run()));
    #[cfg(feature = "peers")]
    let sides = sides.chain(theirs.as_mut().map(|theirs| Side::new(PMDK, || theirs.run())));
    race(rounds, sides.collect())
}

/// Nanoseconds for a store of so many bytes, aligned to them, that is brought to memory.
pub(super) fn persists(ground: &Ground, rounds: usize, bytes: usize) -> io::Result<Times> {
    let ordered = Ordered::new(ground, Durability::System)?;
    let mut persist = |at: NonNull<u8>| persist(&ordered.heap, at, bytes);
    let mut ours = Lines::of(ordered.object(), bytes);
    #[cfg(feature = "peers")]
    let theirs = super::pmdk::PmdkPages::open(ground)?;
    let sides = std::iter::once(Side::new(HOLDFAST, || ours.run(&mut persist)));
    #[cfg(feature = "peers")]
    let sides = sides.chain(theirs.as_ref().map(|theirs| {
        let mut lines = Lines::of(theirs.object(), bytes);
        let mut persist = move |at: NonNull<u8>| {
            theirs.pmdk.persist(at, bytes);
            Some(())
        };
        Side::new(PMDK, move || lines.run(&mut persist))
    }));
    race(rounds, sides.collect())
}

#[inline]
fn persist(heap: &Heap<RegionBacking>, at: NonNull<u8>, bytes: usize) -> Option<()> {
    heap.persist(at.as_ptr(), bytes as u64).ok()
}

/// Parts of an object, each aligned to its size.
struct Lines {
    start: NonNull<u8>,
    count: usize,
    bytes: usize,
    turn: u64,
}

impl Lines {
    fn of((object, object_bytes): (NonNull<u8>, usize), bytes: usize) -> Lines {
        let skipped = object.align_offset(bytes);
        // SAFETY: less than one part, of which the object has many.
        let start = unsafe { object.add(skipped) };
        Lines { start, count: (object_bytes - skipped) / bytes, bytes, turn: 0 }
    }

    fn at(&self, number: usize) -> NonNull<u8> {
        assert!(number < self.count);
        // SAFETY: `count` parts follow the start within the object.
        unsafe { self.start.add(number * self.bytes) }
    }

    fn run(&mut self, persist: &mut dyn FnMut(NonNull<u8>) -> Option<()>) -> io::Result<f64> {
        self.turn += 1;
        let count = PERSISTS * LINE_BYTES / self.bytes;
        let mut random = SmallRng::seed_from_u64(self.turn);
        let mut last = 0;
        let started_ns = processor_ns();
        for number in 0..count {
            last = random.random_range(0..self.count);
            let at = self.at(last);
            // SAFETY: a part of a live object, this many bytes long.
            unsafe { at.write_bytes(number as u8, self.bytes) };
            persist(at)
                .ok_or_else(|| Error::other("what is in the heap was not brought to memory"))?;
        }
        let taken_ns = processor_ns() - started_ns;
        // SAFETY: as above.
        if unsafe { self.at(last).read() } != (count - 1) as u8 {
            return Err(Error::other("what was stored last is not there"));
        }
        Ok(taken_ns / count as f64)
    }
}

/// The sizes that are persisted.
pub(super) const SIZES: [(&str, usize); 2] =
    [("dax_persist", LINE_BYTES), ("dax_persist_4k", LONG_BYTES)];
