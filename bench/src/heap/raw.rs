//! A region without a heap, all backed and filled with what no file system can leave out or
//! compress.
//!
//! Invariant: stores go through a pointer made from the live mapping, below the backed bytes.

use std::io;
use std::ptr::NonNull;

use holdfast_region::{CheckpointReport, Consistency, Durability, Region};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::ground::{Home, name};

/// What the kernel writes at once.
pub(crate) const PAGE_BYTES: usize = 4096;

/// A region of `bytes`, mapped.
pub(crate) struct RawRegion {
    region: Region,
    base: NonNull<u8>,
    pages: usize,
    /// Changes what is stored from one pass to the next.
    pass: u64,
}

impl RawRegion {
    /// Backed and filled; nothing is in the store yet.
    pub(crate) fn create(home: &Home, text: &str, bytes: u64) -> io::Result<RawRegion> {
        let mut region =
            home.names.create(&name(text)?, &home.key, bytes).map_err(io::Error::other)?;
        region.grow(bytes).map_err(io::Error::other)?;
        let base = region.map_native().map_err(io::Error::other)?;
        let mut raw = RawRegion { region, base, pages: bytes as usize / PAGE_BYTES, pass: 0 };
        let mut random = SmallRng::seed_from_u64(bytes);
        for page in 0..raw.pages {
            random.fill_bytes(raw.page(page));
        }
        Ok(raw)
    }

    /// One that is there.
    pub(crate) fn open(home: &Home, text: &str) -> io::Result<RawRegion> {
        let mut region = home.names.open(&name(text)?, &home.key).map_err(io::Error::other)?;
        let base = region.map_native().map_err(io::Error::other)?;
        let pages = region.backed_bytes() as usize / PAGE_BYTES;
        let mut raw = RawRegion { region, base, pages, pass: 0 };
        // Goes on with the passes of the session before.
        raw.pass = u64::from_le_bytes(raw.page(0)[..8].try_into().unwrap_or_default());
        Ok(raw)
    }

    /// The same as [`RawRegion::create`], to be committed in the mode `atomic`; every page has been
    /// read.
    pub(crate) fn create_atomic(home: &Home, text: &str, bytes: u64) -> io::Result<RawRegion> {
        let mut raw = RawRegion::create(home, text, bytes)?;
        raw.region.unmap().map_err(io::Error::other)?;
        raw.region.set_consistency(Consistency::Atomic).map_err(io::Error::other)?;
        raw.base = raw.region.map_native().map_err(io::Error::other)?;
        let mut seen = 0;
        for page in 0..raw.pages {
            seen ^= std::hint::black_box(raw.page(page)[0]);
        }
        std::hint::black_box(seen);
        Ok(raw)
    }

    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    /// Changes a word of a page.
    pub(crate) fn store_word(&mut self, page: usize, word: usize) {
        self.pass += 1;
        let pass = self.pass.to_le_bytes();
        self.page(page)[word * 8..word * 8 + 8].copy_from_slice(&pass);
    }

    /// Replaces a page.
    pub(crate) fn store_page(&mut self, page: usize, content: &[u8; PAGE_BYTES]) {
        self.page(page).copy_from_slice(content);
    }

    pub(crate) fn first_word(&mut self, page: usize) -> u64 {
        u64::from_le_bytes(self.page(page)[..8].try_into().unwrap_or_default())
    }

    /// Makes what was stored survive this process.
    pub(crate) fn commit_process(&mut self) -> io::Result<()> {
        self.commit(Durability::Process)
    }

    /// Makes what was stored survive what the level names.
    pub(crate) fn commit(&mut self, durability: Durability) -> io::Result<()> {
        self.region.commit(durability).map(drop).map_err(io::Error::other)
    }

    /// Goes without a checkpoint.
    pub(crate) fn abandon(self) {
        drop(self.region);
    }

    fn page(&mut self, page: usize) -> &mut [u8] {
        assert!(page < self.pages);
        // SAFETY: below the backed bytes of the live mapping, and borrowed with the whole region.
        unsafe {
            std::slice::from_raw_parts_mut(self.base.as_ptr().add(page * PAGE_BYTES), PAGE_BYTES)
        }
    }

    /// Changes a word of every `step`-th page; returns the dirty bytes, page by page.
    pub(crate) fn dirty(&mut self, step: usize) -> u64 {
        self.pass += 1;
        let word = self.pass.to_le_bytes();
        for page in (0..self.pages).step_by(step) {
            self.page(page)[..8].copy_from_slice(&word);
        }
        (self.pages.div_ceil(step) * PAGE_BYTES) as u64
    }

    /// The pages that [`RawRegion::dirty`] changes, one after the other.
    pub(crate) fn dirty_pages(&mut self, step: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.pages.div_ceil(step) * PAGE_BYTES);
        for page in (0..self.pages).step_by(step) {
            bytes.extend_from_slice(self.page(page));
        }
        bytes
    }

    pub(crate) fn checkpoint(&mut self) -> io::Result<CheckpointReport> {
        let report = self.region.checkpoint().map_err(io::Error::other)?;
        if report.skipped {
            return Err(io::Error::other("a checkpoint of a changed region was skipped"));
        }
        Ok(report)
    }

    pub(crate) fn close(self) -> io::Result<()> {
        self.region.close().map(drop).map_err(io::Error::other)
    }
}
