//! The heap under test: laid over a mapped region, as a native host does it, growing with the
//! region.
//!
//! Invariant: the heap goes before the region's mapping does, and only this module's backing grows
//! the region.

use std::cell::RefCell;
use std::io;
use std::ptr::NonNull;
use std::rc::Rc;

use holdfast_heap::{Backing, GrowError, Heap, OpenOptions, Pointers};
use holdfast_region::{CheckpointReport, CommitReport, Durability, ErrorKind, Region, RegionError};

use super::ground::{Home, name};

/// The heap's name in its home.
const NAME: &str = "bench";

/// A mapped region as the ground of a heap.
pub(crate) struct Growing {
    region: Rc<RefCell<Region>>,
    base: NonNull<u8>,
}

// SAFETY: the mapping is page-aligned and stays where it is while the region lives, of which this
// holds a part; the region's lock keeps other writers away; backed bytes are a multiple of 64 KiB
// and only grow.
unsafe impl Backing for Growing {
    fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    fn backed_bytes(&self) -> u64 {
        self.region.borrow().backed_bytes()
    }

    fn limit_bytes(&self) -> u64 {
        self.region.borrow().limit_bytes()
    }

    fn grow(&mut self, bytes: u64) -> Result<u64, GrowError> {
        self.region.borrow_mut().grow(bytes).map_err(|error| grow_error(&error))
    }
}

fn grow_error(error: &RegionError) -> GrowError {
    match error {
        RegionError::LimitReached { limit_bytes, .. } => {
            GrowError::LimitReached { limit_bytes: *limit_bytes }
        }
        _ => GrowError::NoRoom,
    }
}

/// An open heap and its region.
pub(crate) struct LiveHeap {
    pub(crate) heap: Heap<Growing>,
    region: Rc<RefCell<Region>>,
}

impl LiveHeap {
    /// A new heap in place of the one that may be there.
    pub(crate) fn create(home: &Home, limit_bytes: u64) -> io::Result<LiveHeap> {
        let region_name = name(NAME)?;
        match home.names.remove(&region_name, &home.key) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(io::Error::other(error));
            }
            _ => {}
        }
        let mut region =
            home.names.create(&region_name, &home.key, limit_bytes).map_err(io::Error::other)?;
        let base = region.map_native().map_err(io::Error::other)?;
        let pointers = Pointers { base: region.address(), bytes: 8 };
        let region = Rc::new(RefCell::new(region));
        let options = OpenOptions { pointers: Some(pointers), format_if_empty: true };
        let heap = Heap::open(Growing { region: region.clone(), base }, options)
            .map_err(|error| io::Error::other(error.to_string()))?;
        Ok(LiveHeap { heap, region })
    }

    /// What the heap takes of the pool.
    pub(crate) fn backed_bytes(&self) -> u64 {
        self.region.borrow().backed_bytes()
    }

    /// Makes everything until now survive a power cut.
    pub(crate) fn checkpoint(&mut self) -> io::Result<CheckpointReport> {
        self.region.borrow_mut().checkpoint().map_err(io::Error::other)
    }

    /// Makes everything until now survive what the level names.
    pub(crate) fn commit(&mut self, durability: Durability) -> io::Result<CommitReport> {
        self.region.borrow_mut().commit(durability).map_err(io::Error::other)
    }

    /// Closes in order, so that the next open is warm; returns the region's name.
    pub(crate) fn close(self) -> io::Result<&'static str> {
        drop(self.heap.close());
        let region = Rc::into_inner(self.region)
            .ok_or_else(|| io::Error::other("the region is still used by a heap"))?;
        region.into_inner().close().map_err(io::Error::other)?;
        Ok(NAME)
    }
}

/// The heap's errors know nothing of the operating system.
pub(crate) fn heap_error(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}
