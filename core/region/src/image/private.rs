//! The private mapping of a region in the mode `atomic`, and what its publication needs: which
//! bytes were stored to, what the image has there, and the way to put them into it.
//!
//! Invariants:
//! - Bytes are read only while no thread stores to the region (the duty of the publisher).
//! - What differs is found by comparing the pages that were stored to with the image, block by
//!   block; so the redo log and the image get what changed, and not whole pages.

#![allow(unsafe_code, reason = "reads a mapping that somebody else stores to at other times")]

use std::fs::File;
use std::io;
use std::ops::Range;

use holdfast_sys::private::PrivatePages;

use crate::media::format::DATA_OFFSET;
use crate::media::sharing::Sharing;
use crate::media::storage::Storage;
use crate::media::view::FileView;

/// What is compared at once: a line of the processor's cache.
const BLOCK_BYTES: usize = 64;
/// Changes that are no farther apart are one: a range costs 16 bytes of the log, and time.
const GAP_BYTES: u64 = 192;

/// A private copy-on-write mapping, and what publishing its changed bytes needs.
#[derive(Debug)]
pub(crate) struct PrivateMapping {
    pages: PrivatePages,
    view: FileView,
    base: *mut u8,
    backed: usize,
    sharing: Sharing,
}

// SAFETY: the mapping belongs to the process and to no thread; see `MappedData`, which owns it.
unsafe impl Send for PrivateMapping {}
// SAFETY: through `&self` memory is only read, under the contract of who publishes.
unsafe impl Sync for PrivateMapping {}

impl PrivateMapping {
    /// # Safety
    /// `backed` bytes from `base` must be a fresh private mapping of the data area of `file`, of
    /// the caller's, that lives longer than the value; `limit` is what it may grow to.
    pub(crate) unsafe fn new(
        base: *mut u8,
        file: &File,
        backed: usize,
        limit: usize,
        sharing: Sharing,
    ) -> io::Result<PrivateMapping> {
        let view = FileView::map(file, backed, limit, sharing)?;
        // SAFETY: the caller's contract.
        let pages = unsafe { PrivatePages::new(base, backed)? };
        Ok(PrivateMapping { pages, view, base, backed, sharing })
    }

    /// # Safety
    /// As for [`PrivateMapping::new`]; no thread has stored to the new part.
    pub(crate) unsafe fn grow(&mut self, file: &File, backed: usize) -> io::Result<()> {
        self.view.grow(file, backed)?;
        // SAFETY: the caller's contract.
        unsafe { self.pages.extend(backed)? };
        self.backed = backed;
        Ok(())
    }

    /// From now on it may grow to `limit` bytes.
    pub(crate) fn reserve(&mut self, file: &File, limit: usize) -> io::Result<()> {
        if limit <= self.view.limit() {
            return Ok(());
        }
        let view = FileView::map(file, self.backed, limit, self.sharing)?;
        if self.view.lost_backing() {
            // The new one has not seen what the old one saw.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.view = view;
        Ok(())
    }

    /// The pages that were stored to and are neither published nor dropped.
    pub(crate) fn stored_to(&mut self) -> io::Result<Vec<Range<u64>>> {
        self.pages.take().map(<[Range<u64>]>::to_vec)
    }

    /// Where these pages differ from the image.
    pub(crate) fn changes(&self, pages: &[Range<u64>]) -> Vec<Range<u64>> {
        let mut changes = Vec::with_capacity(pages.len());
        for range in pages {
            differing(self.bytes(range), self.view.bytes(range.clone()), range.start, &mut changes);
        }
        changes
    }

    /// What was stored there. No thread stores to it while the bytes are used.
    pub(crate) fn bytes(&self, range: &Range<u64>) -> &[u8] {
        let range = range.start as usize..(range.end as usize).min(self.backed);
        // SAFETY: the range lies in the mapping, which is readable while `self` lives.
        unsafe {
            std::slice::from_raw_parts(self.base.add(range.start.min(range.end)), range.len())
        }
    }

    /// What the image has there.
    pub(crate) fn image_bytes(&self, range: Range<u64>) -> &[u8] {
        self.view.bytes(range)
    }

    /// Puts changes into the image.
    pub(crate) fn put(&mut self, storage: &dyn Storage, changes: &[Range<u64>]) -> io::Result<()> {
        for range in changes {
            let len = (range.end.min(self.backed as u64) - range.start) as usize;
            // SAFETY: the range lies in the private mapping, which the view does not touch.
            let bytes =
                unsafe { std::slice::from_raw_parts(self.base.add(range.start as usize), len) };
            storage.store(&mut self.view, range.start, bytes)?;
        }
        Ok(())
    }

    /// Writes back what was put into an image in persistent memory.
    pub(crate) fn write_back(
        &self,
        storage: &dyn Storage,
        file: &File,
        changes: &[Range<u64>],
    ) -> io::Result<()> {
        changes.iter().try_for_each(|range| {
            storage.write_back(file, DATA_OFFSET + range.start, self.view.bytes(range.clone()))
        })
    }

    /// The image has all that was stored.
    pub(crate) fn settle(&mut self) {
        // A copy that the kernel does not drop has the bytes of the image: it takes memory, and
        // nothing is lost by it.
        let _ = self.pages.settle();
    }

    /// Shows the image where something was stored and not published.
    pub(crate) fn discard(&mut self) -> io::Result<()> {
        // SAFETY: the caller of rollback promised that no thread uses the region meanwhile.
        unsafe { self.pages.discard() }
    }

    pub(crate) fn lost_backing(&self) -> bool {
        self.view.lost_backing()
    }
}

/// Appends the ranges in which two equally long pieces differ; the pieces lie at `offset`.
fn differing(new: &[u8], old: &[u8], offset: u64, ranges: &mut Vec<Range<u64>>) {
    let (new, rest) = new.as_chunks::<BLOCK_BYTES>();
    let (old, _) = old.as_chunks::<BLOCK_BYTES>();
    debug_assert!(rest.is_empty() && new.len() == old.len());
    for (index, (new, old)) in new.iter().zip(old).enumerate() {
        if !differs(new, old) {
            continue;
        }
        let start = offset + (index * BLOCK_BYTES) as u64;
        let end = start + BLOCK_BYTES as u64;
        match ranges.last_mut() {
            Some(last) if start - last.end <= GAP_BYTES => last.end = end,
            _ => ranges.push(start..end),
        }
    }
}

/// Without an early way out, so that the compiler can use vector instructions.
fn differs(new: &[u8; BLOCK_BYTES], old: &[u8; BLOCK_BYTES]) -> bool {
    let (new, old) = (new.as_chunks::<8>().0, old.as_chunks::<8>().0);
    let words =
        new.iter().zip(old).map(|(new, old)| u64::from_ne_bytes(*new) ^ u64::from_ne_bytes(*old));
    words.fold(0, |seen, word| seen | word) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_found_in_blocks_and_near_ones_are_one() {
        let old = [7; 4 * 4096];
        let mut new = old;
        for at in [0, 63, 64, 400, 1000, 4095, 4096, 16_383] {
            new[at] = 8;
        }
        let mut ranges = Vec::new();
        differing(&new, &old, 1 << 20, &mut ranges);
        let expected = [0..128, 384..448, 960..1024, 4032..4160, 16_320..16_384];
        assert_eq!(
            ranges,
            expected.map(|range: Range<u64>| range.start + (1 << 20)..range.end + (1 << 20))
        );
        differing(&old, &old, 1 << 30, &mut ranges);
        assert_eq!(ranges.len(), 5);
    }
}
