//! A heap whose stores reach memory in order, on a tmpfs that is treated as persistent memory:
//! cache lines are written back as they would be there, and nothing of it outlives a reset. A
//! transaction of such a heap is at the level `system` when it has committed.

#![allow(unsafe_code, reason = "reads and writes the objects that it allocates")]

use std::io::{self, Error};
use std::ptr::NonNull;

use holdfast_heap::Heap;
use holdfast_native_heap::{HeapOptions, HeapRegion, RegionBacking, open_heap_with};
use holdfast_region::{Durability, Places};

use super::pages::{PAGE_BYTES, PAGES, Pages};
use crate::heap::ground::{Ground, Home, name};
use crate::heap::live::heap_error;

const LIMIT_BYTES: u64 = 64 << 20;
/// Made up: the pool is treated as if it outlived boots.
const BOOT: [u8; 16] = [0xDA; 16];

/// A heap with pages in one object.
pub(super) struct Ordered {
    pub(super) heap: Heap<RegionBacking>,
    region: HeapRegion,
    pages: NonNull<u8>,
    durability: Durability,
}

impl Ordered {
    pub(super) fn new(ground: &Ground, durability: Durability) -> io::Result<Ordered> {
        let places =
            Places::at_emulated_dax(ground.on_disk("home")?, ground.in_memory("pool")?, BOOT);
        let home = Home::of(places.map_err(Error::other)?)?;
        let region =
            home.names.create(&name("ordered")?, &home.key, LIMIT_BYTES).map_err(Error::other)?;
        let (mut heap, region) =
            open_heap_with(region, HeapOptions { ordered: true, ..HeapOptions::default() })
                .map_err(Error::other)?;
        let pages = heap.create_root("pages", (PAGES * PAGE_BYTES) as u64).map_err(heap_error)?;
        region.commit(Durability::Power).map_err(Error::other)?;
        Ok(Ordered { heap, region, pages, durability })
    }

    /// The object that all pages are in, and its bytes.
    pub(super) fn object(&self) -> (NonNull<u8>, usize) {
        (self.pages, PAGES * PAGE_BYTES)
    }
}

impl Pages for Ordered {
    fn replace(&mut self, page: usize, content: &[u8; PAGE_BYTES]) -> io::Result<()> {
        assert!(page < PAGES);
        // SAFETY: within the object.
        let at = unsafe { self.pages.add(page * PAGE_BYTES) };
        let stored = self.heap.transaction(|heap| {
            heap.add_range(at.as_ptr(), PAGE_BYTES as u64)?;
            // SAFETY: as above; the old bytes were noted.
            unsafe { at.copy_from_nonoverlapping(NonNull::from(content).cast(), PAGE_BYTES) };
            Ok::<(), holdfast_heap::HeapError>(())
        });
        stored.map_err(heap_error)?;
        match self.durability {
            // So it is in memory, which is what the level asks for.
            Durability::System => Ok(()),
            more => self.region.commit(more).map(drop).map_err(Error::other),
        }
    }

    fn first_word(&mut self, page: usize) -> io::Result<u64> {
        assert!(page < PAGES);
        // SAFETY: within the object, at a multiple of 4096 from its start, which is aligned to 16.
        Ok(unsafe { self.pages.add(page * PAGE_BYTES).cast::<u64>().read() })
    }
}
