//! Allocation and free of 64 bytes: a ring of live objects in which random ones are replaced.
//!
//! Every side replaces the same ring positions in the same order, writes each new object and reads
//! each old one; a sum over what was read proves it. Ours is crash-consistent at each call, glibc's
//! and mimalloc's are not.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::io;
use std::ptr::NonNull;

use holdfast_heap::{Backing, Heap};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::timing::processor_ns;

pub(crate) const OBJECT_BYTES: usize = 64;
const LIVE: usize = 1000;
const PAIRS: usize = 200_000;
const SEED: u64 = 64;

/// What can be raced.
pub(crate) trait Allocator {
    /// A handle, as a program would keep it.
    type Object: Copy;
    /// A new object of [`OBJECT_BYTES`].
    fn alloc(&mut self) -> Option<Self::Object>;
    /// Gives back one that [`Allocator::alloc`] returned.
    fn free(&mut self, object: Self::Object) -> Option<()>;
    /// The object's first word.
    fn at(&self, object: Self::Object) -> *mut u64;
}

impl<B: Backing> Allocator for &mut Heap<B> {
    type Object = NonNull<u8>;

    #[inline]
    fn alloc(&mut self) -> Option<NonNull<u8>> {
        Heap::alloc(self, black_box(OBJECT_BYTES as u64)).ok()
    }

    #[inline]
    fn free(&mut self, object: NonNull<u8>) -> Option<()> {
        Heap::free(self, object).ok()
    }

    #[inline]
    fn at(&self, object: NonNull<u8>) -> *mut u64 {
        object.as_ptr().cast()
    }
}

/// The C library's.
pub(crate) struct Glibc;

fn layout() -> Layout {
    Layout::new::<[u128; OBJECT_BYTES / 16]>()
}

impl Allocator for Glibc {
    type Object = NonNull<u8>;

    #[inline]
    fn alloc(&mut self) -> Option<NonNull<u8>> {
        // SAFETY: the size is not zero.
        NonNull::new(unsafe { System.alloc(black_box(layout())) })
    }

    #[inline]
    fn free(&mut self, object: NonNull<u8>) -> Option<()> {
        // SAFETY: allocated above with this layout, freed once.
        unsafe { System.dealloc(object.as_ptr(), layout()) };
        Some(())
    }

    #[inline]
    fn at(&self, object: NonNull<u8>) -> *mut u64 {
        object.as_ptr().cast()
    }
}

/// An allocator with its ring.
pub(crate) struct Ring<A: Allocator> {
    allocator: A,
    live: Vec<A::Object>,
}

impl<A: Allocator> Ring<A> {
    pub(crate) fn new(mut allocator: A) -> io::Result<Ring<A>> {
        let mut live = Vec::with_capacity(LIVE);
        for _ in 0..LIVE {
            live.push(allocator.alloc().ok_or_else(refused)?);
        }
        Ok(Ring { allocator, live })
    }

    /// Nanoseconds for an allocation and a free.
    pub(crate) fn churn(&mut self) -> io::Result<f64> {
        for object in &self.live {
            // SAFETY: a live object of 64 bytes, aligned to 16 (for PMDK, too: its headers have 16
            // bytes).
            unsafe { self.allocator.at(*object).write(0) };
        }
        let (mut random, mut sum) = (SmallRng::seed_from_u64(SEED), 0u64);
        let started_ns = processor_ns();
        for number in 0..PAIRS as u64 {
            let place = &mut self.live[random.random_range(0..LIVE)];
            // SAFETY: live, as above.
            sum = sum.rotate_left(1) ^ unsafe { self.allocator.at(*place).read() };
            self.allocator.free(*place).ok_or_else(refused)?;
            *place = self.allocator.alloc().ok_or_else(refused)?;
            // SAFETY: live, as above.
            unsafe { self.allocator.at(*place).write(number) };
        }
        let taken_ns = processor_ns() - started_ns;
        if sum == expected() { Ok(taken_ns / PAIRS as f64) } else { Err(wrong()) }
    }
}

/// The sum that every side must come to.
fn expected() -> u64 {
    let (mut random, mut sum, mut live) = (SmallRng::seed_from_u64(SEED), 0u64, [0; LIVE]);
    for number in 0..PAIRS as u64 {
        let place = &mut live[random.random_range(0..LIVE)];
        sum = sum.rotate_left(1) ^ *place;
        *place = number;
    }
    sum
}

fn refused() -> io::Error {
    io::Error::other("an allocation or a free was refused; is there memory?")
}

fn wrong() -> io::Error {
    io::Error::other("an object lost its content")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Gives the same object twice.
    struct Forgetful(Cell<u64>);

    impl Allocator for Forgetful {
        type Object = usize;

        fn alloc(&mut self) -> Option<usize> {
            Some(0)
        }

        fn free(&mut self, _object: usize) -> Option<()> {
            Some(())
        }

        fn at(&self, _object: usize) -> *mut u64 {
            self.0.as_ptr()
        }
    }

    #[test]
    fn every_side_must_do_the_same_work() {
        assert!(Ring::new(Glibc).unwrap().churn().unwrap() > 0.0);
        assert!(Ring::new(Forgetful(Cell::new(0))).unwrap().churn().is_err());
    }
}
