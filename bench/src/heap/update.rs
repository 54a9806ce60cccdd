//! A transaction that changes 64 bytes: begin, announce the range, store, commit.
//!
//! Every side changes the same objects in the same order to the same bytes, and the result is
//! compared.

use std::io;
use std::ptr::NonNull;

use holdfast_heap::{Backing, Heap};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::alloc::OBJECT_BYTES;
use crate::timing::processor_ns;

const OBJECTS: usize = 1000;
const TRANSACTIONS: usize = 100_000;
const SEED: u64 = 1;

/// The new content.
pub(crate) type Words = [u64; OBJECT_BYTES / 8];

/// What can be raced: something that keeps [`OBJECTS`] objects.
pub(crate) trait Transactions {
    /// One more object.
    fn alloc(&mut self) -> Option<NonNull<Words>>;
    /// Changes an object as a transaction of its own.
    fn update(&mut self, object: NonNull<Words>, words: Words) -> Option<()>;
}

impl<B: Backing> Transactions for &mut Heap<B> {
    fn alloc(&mut self) -> Option<NonNull<Words>> {
        Heap::alloc(self, OBJECT_BYTES as u64).ok().map(NonNull::cast)
    }

    #[inline]
    fn update(&mut self, object: NonNull<Words>, words: Words) -> Option<()> {
        self.begin().ok()?;
        self.add_range(object.as_ptr().cast(), OBJECT_BYTES as u64).ok()?;
        // SAFETY: a live object of the heap, aligned to 16.
        unsafe { object.write(words) };
        self.commit().ok()
    }
}

/// A side with its objects.
pub(crate) struct Updates<T: Transactions> {
    side: T,
    objects: Vec<NonNull<Words>>,
}

impl<T: Transactions> Updates<T> {
    pub(crate) fn new(mut side: T) -> io::Result<Updates<T>> {
        let objects: Option<Vec<_>> = (0..OBJECTS).map(|_| side.alloc()).collect();
        Ok(Updates { side, objects: objects.ok_or_else(refused)? })
    }

    /// Nanoseconds for a transaction.
    pub(crate) fn run(&mut self) -> io::Result<f64> {
        let mut random = SmallRng::seed_from_u64(SEED);
        let started_ns = processor_ns();
        for number in 0..TRANSACTIONS as u64 {
            let object = self.objects[random.random_range(0..OBJECTS)];
            self.side.update(object, [number; OBJECT_BYTES / 8]).ok_or_else(refused)?;
        }
        let taken_ns = processor_ns() - started_ns;
        for (object, number) in self.objects.iter().zip(expected()) {
            // SAFETY: a live object, initialised by the transactions or skipped.
            if number.is_some_and(|number| unsafe { object.read() } != [number; OBJECT_BYTES / 8]) {
                return Err(io::Error::other("a committed transaction left other bytes"));
            }
        }
        Ok(taken_ns / TRANSACTIONS as f64)
    }
}

/// The last number stored to each object, if any was.
fn expected() -> Vec<Option<u64>> {
    let (mut random, mut last) = (SmallRng::seed_from_u64(SEED), vec![None; OBJECTS]);
    for number in 0..TRANSACTIONS as u64 {
        last[random.random_range(0..OBJECTS)] = Some(number);
    }
    last
}

fn refused() -> io::Error {
    io::Error::other("a transaction was refused; is there memory?")
}
