//! Allocation and free of 64 bytes by one thread and by two at once, each with its own handle on
//! one heap.
//!
//! Each does the work of [`Ring`] as often. Times are processor time of the threads, like those of
//! one thread: what two do to each other's caches is in them, other programs are not. Waiting for
//! the heap's lock is not, either; here a thread takes it only when it claims a slab, before the
//! first counted round.

use std::io;
use std::ptr::NonNull;
use std::sync::Barrier;
use std::thread;

use holdfast_heap::{Backing, GrowError, Handle, Heap, OpenOptions, Pointers, SharedHeap};

use super::alloc::{Allocator, OBJECT_BYTES, Ring};
use super::ground::{Home, name};
use super::live::heap_error;
use crate::race::{Side, Times, race};
/// Names of the sides; each takes nanoseconds for a pair, of whichever thread.
pub(crate) const ONE: &str = "one thread";
pub(crate) const TWO: &str = "two threads";
/// Rounds of the ring in each measurement: long enough that both are at work at once.
const ROUNDS: usize = 5;

/// A mapped region that does not grow.
struct Mapped {
    base: NonNull<u8>,
    bytes: u64,
}

// SAFETY: `run` keeps the region, mapped and backed up to `bytes`, and its lock until the heap is
// gone.
unsafe impl Backing for Mapped {
    fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    fn backed_bytes(&self) -> u64 {
        self.bytes
    }

    fn limit_bytes(&self) -> u64 {
        self.bytes
    }

    fn grow(&mut self, _bytes: u64) -> Result<u64, GrowError> {
        Err(GrowError::LimitReached { limit_bytes: self.bytes })
    }
}

// SAFETY: a mapping may be used from any thread.
unsafe impl Send for Mapped {}

/// A thread's side of the ring. Its objects go from thread to thread with it.
struct OwnObjects(Handle<Mapped>);

#[derive(Clone, Copy)]
struct Object(NonNull<u8>);

// SAFETY: an object of the heap may be used from any thread, and is by one at a time.
unsafe impl Send for Object {}

impl Allocator for OwnObjects {
    type Object = Object;

    #[inline]
    fn alloc(&mut self) -> Option<Object> {
        self.0.alloc(std::hint::black_box(OBJECT_BYTES as u64)).ok().map(Object)
    }

    #[inline]
    fn free(&mut self, object: Object) -> Option<()> {
        self.0.free(object.0).ok()
    }

    #[inline]
    fn at(&self, object: Object) -> *mut u64 {
        object.0.as_ptr().cast()
    }
}

/// Runs the race on a new heap of so many bytes.
pub(crate) fn run(home: &Home, runs: usize, bytes: u64) -> io::Result<Times> {
    let mut region =
        home.names.create(&name("threads")?, &home.key, bytes).map_err(io::Error::other)?;
    region.grow(bytes).map_err(io::Error::other)?;
    let base = region.map_native().map_err(io::Error::other)?;
    let pointers = Pointers { base: region.address(), bytes: 8 };
    let options = OpenOptions { pointers: Some(pointers), format_if_empty: true };
    let heap = Heap::open(Mapped { base, bytes }, options).map_err(heap_error)?;
    // SAFETY: nothing exchanges the heap.
    let shared = unsafe { SharedHeap::new(heap) };
    let ring = || Ring::new(OwnObjects(shared.handle()));
    let (mut alone, mut pair) = ([ring()?], [ring()?, ring()?]);
    let times = race(
        runs,
        vec![Side::new(ONE, || at_once(&mut alone)), Side::new(TWO, || at_once(&mut pair))],
    )?;
    drop((alone, pair));
    drop(shared);
    region.close().map_err(io::Error::other)?;
    Ok(times)
}

/// Nanoseconds for a pair, all threads at work at once: two that take as long as one for theirs
/// halve it.
fn at_once(rings: &mut [Ring<OwnObjects>]) -> io::Result<f64> {
    let threads = rings.len() as f64;
    let start = Barrier::new(rings.len());
    let work = |ring: &mut Ring<OwnObjects>| {
        start.wait();
        (0..ROUNDS).map(|_| ring.churn()).sum::<io::Result<f64>>()
    };
    let taken_ns = thread::scope(|scope| {
        let work = &work;
        let started: Vec<_> =
            rings.iter_mut().map(|ring| scope.spawn(move || work(ring))).collect();
        let ended = started.into_iter().map(|thread| thread.join());
        ended
            .map(|taken| taken.map_err(|_| io::Error::other("a thread ended with a panic"))?)
            .sum::<io::Result<f64>>()
    })?;
    Ok(taken_ns / ROUNDS as f64 / threads / threads)
}
