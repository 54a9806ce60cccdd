//! A heap whose whole content is a function of one number: how many entries were made. So a reader
//! that opens it after a fault knows every byte that must be there.
//!
//! An entry allocates an object, fills it, frees the one that had its place, stores to a few
//! counters, and raises the number: as one transaction, or, in the mode `atomic`, as plain stores
//! that a publication makes count.

#![allow(unsafe_code, reason = "objects of a heap are reached by their pointers")]

use std::ptr::NonNull;

use holdfast_heap::{Heap, HeapError, check};
use holdfast_native_heap::{HeapRegion, OpenHeapError, RegionBacking, open_heap};
use holdfast_region::{Consistency, NameSpace, Region, RegionError};

use crate::home::{key, name};

const PLACES: u64 = 40;
const COUNTERS: u64 = 32;
/// Counters that an entry stores to.
const TOUCHED: u64 = 3;
/// Words of the root: the number of entries, places, counters.
const WORDS: u64 = 1 + PLACES + COUNTERS;
const LIMIT_BYTES: u64 = 32 << 20;

/// An open ledger.
pub(crate) struct Ledger {
    pub(crate) heap: Heap<RegionBacking>,
    pub(crate) region: HeapRegion,
    table: NonNull<u64>,
    consistency: Consistency,
}

/// Why a ledger did not open, or went no further.
#[derive(Debug)]
pub(crate) enum Refused {
    Region(RegionError),
    Heap(#[expect(dead_code, reason = "shown when a test fails")] String),
}

impl From<OpenHeapError> for Refused {
    fn from(error: OpenHeapError) -> Refused {
        match error {
            OpenHeapError::Region(error) => Refused::Region(error),
            other => Refused::Heap(other.to_string()),
        }
    }
}

impl From<RegionError> for Refused {
    fn from(error: RegionError) -> Refused {
        Refused::Region(error)
    }
}

impl From<HeapError> for Refused {
    fn from(error: HeapError) -> Refused {
        Refused::Heap(error.to_string())
    }
}

fn size(entry: u64) -> u64 {
    match entry % 61 {
        0 => 70_000,
        1 => 140_000,
        2 => 9000,
        rest => 16 + rest * 13,
    }
}

/// The latest entry up to `done` that is congruent.
fn latest(done: u64, modulus: u64, residue: u64) -> u64 {
    let back = (done + modulus - residue) % modulus;
    done.saturating_sub(back)
}

impl Ledger {
    /// Opens the ledger, or makes it.
    pub(crate) fn open(names: &NameSpace, consistency: Consistency) -> Result<Ledger, Refused> {
        Ledger::on(names.open_or_create(&name(), &key(), LIMIT_BYTES)?, consistency)
    }

    /// Takes over an open region.
    pub(crate) fn on(mut region: Region, consistency: Consistency) -> Result<Ledger, Refused> {
        region.set_consistency(consistency)?;
        let (mut heap, region) = open_heap(region)?;
        let table = match heap.root("ledger") {
            Some(root) => root.pointer,
            None => {
                let made = heap.create_root("ledger", WORDS * 8)?;
                if consistency == Consistency::Atomic {
                    region.with(Region::publish)?;
                }
                made
            }
        };
        Ok(Ledger { heap, region, table: table.cast(), consistency })
    }

    fn word(&self, index: u64) -> *mut u64 {
        self.table.as_ptr().wrapping_add(index as usize)
    }

    fn load(&self, index: u64) -> u64 {
        // SAFETY: the root has this many words, and nothing else refers to it.
        unsafe { self.word(index).read() }
    }

    /// Entries so far.
    pub(crate) fn done(&self) -> u64 {
        self.load(0)
    }

    /// Makes one more entry, all or nothing.
    pub(crate) fn enter(&mut self) -> Result<u64, Refused> {
        let entry = self.done() + 1;
        if self.consistency == Consistency::Atomic {
            self.write(entry)?;
            self.region.with(Region::publish)?;
            return Ok(entry);
        }
        if entry.is_multiple_of(7) {
            // One that is taken back leaves no trace.
            self.heap.begin()?;
            self.write(entry)?;
            self.heap.abort()?;
        }
        self.heap.begin()?;
        if let Err(error) = self.write(entry) {
            self.heap.abort()?;
            return Err(error);
        }
        self.heap.commit()?;
        Ok(entry)
    }

    fn write(&mut self, entry: u64) -> Result<(), Refused> {
        let object = self.heap.alloc(size(entry))?;
        // SAFETY: just allocated with this size.
        unsafe { object.as_ptr().write_bytes(entry as u8, size(entry) as usize) };
        let place = 1 + entry % PLACES;
        let old = self.load(place);
        if old != 0 {
            let old = NonNull::new(old as *mut u8).ok_or(HeapError::NotAllocated)?;
            self.heap.free(old)?;
        }
        self.store(place, object.as_ptr() as u64)?;
        for counter in 0..TOUCHED {
            self.store(1 + PLACES + (entry + counter) % COUNTERS, entry)?;
        }
        self.store(0, entry)
    }

    fn store(&mut self, index: u64, value: u64) -> Result<(), Refused> {
        let word = self.word(index);
        if self.heap.in_transaction() {
            self.heap.add_range(word.cast(), 8)?;
        }
        // SAFETY: as in `load`.
        unsafe { word.write_volatile(value) };
        Ok(())
    }

    /// Looks at every byte; what is found must be the work of `done()` entries, and nothing else.
    pub(crate) fn verify(&self, context: &str) {
        let done = self.done();
        for residue in 0..PLACES {
            let entry = latest(done, PLACES, residue);
            let found = self.load(1 + residue);
            if entry == 0 || done < PLACES && entry % PLACES != residue {
                assert_eq!(found, 0, "{context}: place {residue} is taken, after {done} entries");
                continue;
            }
            let object = NonNull::new(found as *mut u8);
            let object =
                object.unwrap_or_else(|| panic!("{context}: entry {entry} of {done} is lost"));
            let usable = self.heap.usable_bytes(object);
            assert!(
                usable.is_ok_and(|usable| usable >= size(entry)),
                "{context}: entry {entry} of {done}"
            );
            // SAFETY: an allocated object of at least this size, which nothing writes to.
            let bytes =
                unsafe { std::slice::from_raw_parts(object.as_ptr(), size(entry) as usize) };
            assert!(
                bytes.iter().all(|byte| *byte == entry as u8),
                "{context}: entry {entry} of {done} is torn"
            );
        }
        for counter in 0..COUNTERS {
            let expected = (0..TOUCHED).map(|touched| {
                let entry = latest(done, COUNTERS, (counter + COUNTERS - touched) % COUNTERS);
                // Below the first whole round nothing congruent may have been.
                if entry > 0 && (entry + touched) % COUNTERS == counter { entry } else { 0 }
            });
            let found = self.load(1 + PLACES + counter);
            assert_eq!(
                Some(found),
                expected.max(),
                "{context}: counter {counter} after {done} entries"
            );
        }
        let bytes = self.heap.backing();
        let bytes =
            (holdfast_heap::Backing::base(bytes), holdfast_heap::Backing::backed_bytes(bytes));
        // SAFETY: backed and mapped, and nothing writes to it now.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.0, bytes.1 as usize) };
        let mut findings = Vec::new();
        let report = check(bytes, &mut |finding| findings.push(finding));
        assert!(report.is_sound(), "{context}: {findings:#x?}");
        // The ledger, the table of roots and its entry; then one object for each place.
        assert_eq!(report.objects, 3 + done.min(PLACES), "{context}: objects after {done} entries");
    }

    /// Ends in order.
    pub(crate) fn close(self) -> Result<(), Refused> {
        drop(self.heap.close());
        self.region.close()?;
        Ok(())
    }

    /// Ends without a word; the region's next open finds that it was not closed.
    pub(crate) fn leave(self) {
        drop(self.heap.close());
    }
}
