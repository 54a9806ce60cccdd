//! What following a reference costs for one following of a plain pointer: a list and a hash table
//! in one heap, the same code over both kinds of links.
//!
//! Invariants: both sides hold the same keys in objects of the same size, allocated from the same
//! heap in the same order and linked in the same random order; what they read is summed up and
//! compared.

use std::hint::black_box;
use std::io::{self, Error};
use std::ptr::NonNull;

use holdfast_heap::{Backing, Heap, HeapBase, Ref};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::live::heap_error;
use crate::race::{Side, Times, race};
use crate::timing::processor_ns;

pub(crate) const POINTER: &str = "pointer";
pub(crate) const REFERENCE: &str = "reference";

const SEED: u64 = 43;
/// Steps of one measurement of a list, at least.
const STEPS: usize = 1 << 20;
const ENTRIES: usize = 100_000;
const BUCKETS: usize = 1 << 17;
const LOOKUPS: usize = 400_000;
/// One of so many operations moves its entry to the front of the bucket.
const MOVED: u64 = 4;

/// A kind of links between the objects of a heap.
trait Links: Copy {
    type Link<T>: Copy;
    fn link<T>(self, target: NonNull<T>) -> Option<Self::Link<T>>;
    fn target<T>(self, link: Self::Link<T>) -> Option<NonNull<T>>;
}

#[derive(Clone, Copy)]
struct Pointers;

impl Links for Pointers {
    type Link<T> = *mut T;
    fn link<T>(self, target: NonNull<T>) -> Option<*mut T> {
        Some(target.as_ptr())
    }
    #[inline(always)]
    fn target<T>(self, link: *mut T) -> Option<NonNull<T>> {
        NonNull::new(link)
    }
}

#[derive(Clone, Copy)]
struct References(HeapBase);

impl Links for References {
    type Link<T> = Ref<T>;
    fn link<T>(self, target: NonNull<T>) -> Option<Ref<T>> {
        self.0.reference(target)
    }
    #[inline(always)]
    fn target<T>(self, link: Ref<T>) -> Option<NonNull<T>> {
        link.target(self.0)
    }
}

/// 16 bytes with either link.
#[repr(C)]
struct Node<L: Links> {
    next: L::Link<Node<L>>,
    key: u64,
}

/// 24 bytes with either link.
#[repr(C)]
struct Entry<L: Links> {
    next: L::Link<Entry<L>>,
    key: u64,
    value: u64,
}

const _: () = assert!(size_of::<Node<Pointers>>() == size_of::<Node<References>>());
const _: () = assert!(size_of::<Entry<Pointers>>() == size_of::<Entry<References>>());

fn no_reach() -> Error {
    Error::other("a reference does not reach the object")
}

/// A circle of nodes.
struct List<L: Links> {
    links: L,
    first: NonNull<Node<L>>,
    nodes: usize,
}

impl<L: Links> List<L> {
    fn new<B: Backing>(heap: &mut Heap<B>, links: L, nodes: usize) -> io::Result<List<L>> {
        let alloc = |_| heap.alloc(size_of::<Node<L>>() as u64).map(NonNull::cast::<Node<L>>);
        let mut places: Vec<_> =
            (0..nodes).map(alloc).collect::<Result<_, _>>().map_err(heap_error)?;
        places.shuffle(&mut SmallRng::seed_from_u64(SEED));
        for (index, place) in places.iter().enumerate() {
            let next = links.link(places[(index + 1) % nodes]).ok_or_else(no_reach)?;
            // SAFETY: allocated above, for a node; nothing else refers to it yet.
            unsafe { place.write(Node { next, key: index as u64 }) };
        }
        let first = *places.first().ok_or_else(no_reach)?;
        Ok(List { links, first, nodes })
    }

    /// Nanoseconds for a step.
    fn walk(&self) -> io::Result<f64> {
        let steps = STEPS.max(self.nodes).next_multiple_of(self.nodes);
        let started = processor_ns();
        let sum = self.sum(steps);
        let taken = processor_ns() - started;
        let nodes = self.nodes as u64;
        if sum != nodes * (nodes - 1) / 2 * (steps / self.nodes) as u64 {
            return Err(Error::other("the list was not read whole"));
        }
        Ok(taken / steps as f64)
    }

    #[inline(never)]
    fn sum(&self, steps: usize) -> u64 {
        let links = self.links;
        let (mut node, mut sum) = (black_box(self.first), 0_u64);
        for _ in 0..steps {
            // SAFETY: each link of the circle leads to a node (`new`).
            let Node { next, key } = unsafe { node.read() };
            sum = sum.wrapping_add(key);
            match links.target(next) {
                Some(next) => node = next,
                None => return 0,
            }
        }
        sum
    }
}

type EntryLink<L> = <L as Links>::Link<Entry<L>>;

/// A hash table of chains.
struct Table<L: Links> {
    links: L,
    buckets: NonNull<EntryLink<L>>,
    keys: Vec<u64>,
}

impl<L: Links> Table<L> {
    fn new<B: Backing>(heap: &mut Heap<B>, links: L) -> io::Result<Table<L>> {
        let bytes = (BUCKETS * size_of::<EntryLink<L>>()) as u64;
        // All zeroes is no link, of either kind.
        let buckets: NonNull<EntryLink<L>> = heap.alloc_zeroed(bytes).map_err(heap_error)?.cast();
        let mut random = SmallRng::seed_from_u64(SEED);
        let keys: Vec<u64> = (0..ENTRIES).map(|_| random.random()).collect();
        let table = Table { links, buckets, keys };
        let alloc = |_| heap.alloc(size_of::<Entry<L>>() as u64).map(NonNull::cast::<Entry<L>>);
        let mut places: Vec<_> =
            (0..ENTRIES).map(alloc).collect::<Result<_, _>>().map_err(heap_error)?;
        places.shuffle(&mut random);
        for (place, key) in places.into_iter().zip(&table.keys) {
            let bucket = bucket::<L>(buckets, *key);
            // SAFETY: one of the buckets; and an object for an entry, to which nothing refers yet.
            unsafe {
                place.write(Entry { next: bucket.read(), key: *key, value: *key ^ SEED });
                bucket.write(links.link(place).ok_or_else(no_reach)?);
            }
        }
        Ok(table)
    }

    /// Nanoseconds for a look-up, of which some move their entry.
    fn look_up(&self) -> io::Result<f64> {
        let mut random = SmallRng::seed_from_u64(SEED + 1);
        let wanted: Vec<usize> = (0..LOOKUPS).map(|_| random.random_range(0..ENTRIES)).collect();
        let expected = wanted.iter().fold(0_u64, |sum, at| sum.wrapping_add(self.keys[*at] ^ SEED));
        let started = processor_ns();
        let sum = self.sum(&wanted);
        let taken = processor_ns() - started;
        if sum != expected {
            return Err(Error::other("an entry of the table was not found"));
        }
        Ok(taken / LOOKUPS as f64)
    }

    #[inline(never)]
    fn sum(&self, wanted: &[usize]) -> u64 {
        // As a program has them at hand: stores to entries do not change them.
        let (links, buckets, mut sum) = (self.links, self.buckets, 0_u64);
        for (turn, at) in wanted.iter().enumerate() {
            let key = self.keys[*at];
            let mut link = bucket::<L>(buckets, key);
            // SAFETY: `link` is a bucket or the link of an entry, and each leads to an entry.
            unsafe {
                while let Some(entry) = links.target(link.read()) {
                    if (*entry.as_ptr()).key == key {
                        sum = sum.wrapping_add((*entry.as_ptr()).value);
                        if (turn as u64).is_multiple_of(MOVED) {
                            move_to_front::<L>(bucket::<L>(buckets, key), link, entry);
                        }
                        break;
                    }
                    link = NonNull::from(&mut (*entry.as_ptr()).next);
                }
            }
        }
        sum
    }
}

fn bucket<L: Links>(first: NonNull<EntryLink<L>>, key: u64) -> NonNull<EntryLink<L>> {
    let index = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - BUCKETS.trailing_zeros());
    // SAFETY: as many bits as there are buckets.
    unsafe { first.add(index as usize) }
}

/// # Safety
/// `link` leads to `entry`, in the chain of its bucket.
unsafe fn move_to_front<L: Links>(
    bucket: NonNull<EntryLink<L>>,
    link: NonNull<EntryLink<L>>,
    entry: NonNull<Entry<L>>,
) {
    // SAFETY: per the contract.
    unsafe {
        let own = link.read();
        link.write((*entry.as_ptr()).next);
        (*entry.as_ptr()).next = bucket.read();
        bucket.write(own);
    }
}

fn base<B: Backing>(heap: &Heap<B>) -> io::Result<References> {
    heap.base().map(References).ok_or_else(no_reach)
}

/// Walks lists of so many nodes.
pub(crate) fn lists<B: Backing>(
    heap: &mut Heap<B>,
    runs: usize,
    nodes: usize,
) -> io::Result<Times> {
    let references = base(heap)?;
    let plain = List::new(heap, Pointers, nodes)?;
    let referred = List::new(heap, references, nodes)?;
    race(runs, vec![Side::new(POINTER, || plain.walk()), Side::new(REFERENCE, || referred.walk())])
}

/// Looks up in tables of 100,000 entries.
pub(crate) fn tables<B: Backing>(heap: &mut Heap<B>, runs: usize) -> io::Result<Times> {
    let references = base(heap)?;
    let plain = Table::new(heap, Pointers)?;
    let referred = Table::new(heap, references)?;
    let sides =
        vec![Side::new(POINTER, || plain.look_up()), Side::new(REFERENCE, || referred.look_up())];
    race(runs, sides)
}
