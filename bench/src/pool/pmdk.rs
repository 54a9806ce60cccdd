//! PMDK in the suite `pool`: with its cache flushes, on the same tmpfs as our emulated memory.

#![allow(unsafe_code, reason = "reads and writes the objects that it allocates")]

use std::io::{self, Error};
use std::ptr::NonNull;

use super::pages::{PAGE_BYTES, PAGES, Pages};
use crate::heap::ground::Ground;
use crate::heap::peers::pmdk::Pmdk;

/// Pages in one object of a pool.
pub(super) struct PmdkPages {
    pub(super) pmdk: Pmdk,
    pages: NonNull<u8>,
}

impl PmdkPages {
    /// `None` without the library.
    pub(super) fn open(ground: &Ground) -> io::Result<Option<PmdkPages>> {
        let Some(pmdk) = Pmdk::new(&ground.in_memory("pmdk")?)? else { return Ok(None) };
        let pages = pmdk.alloc_bytes(PAGES * PAGE_BYTES).ok_or_else(refused)?;
        Ok(Some(PmdkPages { pmdk, pages }))
    }

    /// The object that all pages are in, and its bytes.
    pub(super) fn object(&self) -> (NonNull<u8>, usize) {
        (self.pages, PAGES * PAGE_BYTES)
    }
}

impl Pages for PmdkPages {
    fn replace(&mut self, page: usize, content: &[u8; PAGE_BYTES]) -> io::Result<()> {
        assert!(page < PAGES);
        // SAFETY: within the object.
        let at = unsafe { self.pages.add(page * PAGE_BYTES) };
        self.pmdk.replace(at, content).ok_or_else(refused)
    }

    fn first_word(&mut self, page: usize) -> io::Result<u64> {
        assert!(page < PAGES);
        // SAFETY: within the object, which is aligned to 16, and live.
        Ok(unsafe { self.pages.add(page * PAGE_BYTES).cast::<u64>().read() })
    }
}

fn refused() -> Error {
    Error::other("PMDK refused an allocation or a transaction; is there memory?")
}
