//! Changed pages by userfaultfd: the kernel itself lets the first store to a protected page through
//! and notes it in the page table, and one `ioctl(PAGEMAP_SCAN)` lists and protects again (Linux
//! 6.7).
//!
//! Invariants:
//! - Every page of the mapping was write-protected once, so each has an entry in a page table, and
//!   the kernel maps the range in small pages from then on (it does not gather a range into huge
//!   pages that is registered). That is why no store can hide in a huge page, and why a page
//!   without an entry counts as stored to.
//! - After a scan that failed half-way it is not known what it took: the next answer is the whole
//!   mapping.

use std::io;
use std::ops::Range;

use super::abi::{PageRegion, Pagemap, Userfaultfd};
use super::{DirtyMethod, DirtyTracker, Mapping};
use crate::page_set::push_merged;

/// Regions that one call of the scan may list.
const REGIONS: usize = 512;

/// A tracker of changed pages that asks the kernel.
pub(super) struct Userfault {
    userfaultfd: Userfaultfd,
    pagemap: Pagemap,
    mapping: Mapping,
    regions: Box<[PageRegion]>,
    /// A scan failed: what it had taken is not known.
    unknown: bool,
}

impl Userfault {
    /// # Safety
    /// As for [`super::track`].
    pub(super) unsafe fn new(mapping: Mapping) -> io::Result<Userfault> {
        let tracker = Userfault {
            userfaultfd: Userfaultfd::open()?,
            pagemap: Pagemap::open()?,
            mapping,
            regions: vec![PageRegion::default(); REGIONS].into_boxed_slice(),
            unknown: false,
        };
        tracker.arm(0..mapping.len)?;
        Ok(tracker)
    }

    fn addresses(&self, bytes: Range<usize>) -> Range<usize> {
        let base = self.mapping.base as usize;
        base + bytes.start..base + bytes.end
    }

    fn arm(&self, bytes: Range<usize>) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let addresses = self.addresses(bytes);
        self.userfaultfd.register(&addresses)?;
        self.userfaultfd.write_protect(&addresses)
    }

    fn scan(&mut self) -> io::Result<Vec<Range<u64>>> {
        let base = self.mapping.base as u64;
        let mut rest = self.addresses(0..self.mapping.len);
        let mut ranges = Vec::new();
        while !rest.is_empty() {
            let scanned = self.pagemap.take_written(&rest, &mut self.regions)?;
            for region in &self.regions[..scanned.found] {
                push_merged(&mut ranges, region.start - base..region.end - base);
            }
            if scanned.end <= rest.start {
                return Err(io::Error::other(
                    "the kernel's scan of changed pages does not advance",
                ));
            }
            rest.start = scanned.end;
        }
        Ok(ranges)
    }
}

impl DirtyTracker for Userfault {
    fn kind(&self) -> DirtyMethod {
        DirtyMethod::Userfault
    }

    unsafe fn extend(&mut self, len: usize) -> io::Result<()> {
        self.arm(self.mapping.added(len)?)?;
        self.mapping.len = len;
        Ok(())
    }

    fn peek(&self) -> Option<bool> {
        let written = self.pagemap.any_written(&self.addresses(0..self.mapping.len));
        // What cannot be asked may have been stored to.
        Some(self.unknown || written.unwrap_or(true))
    }

    fn take(&mut self) -> io::Result<Vec<Range<u64>>> {
        if self.unknown {
            self.arm(0..self.mapping.len)?;
            self.unknown = false;
            return Ok(self.mapping.whole());
        }
        let ranges = self.scan();
        self.unknown = ranges.is_err();
        ranges
    }
}

impl Drop for Userfault {
    fn drop(&mut self) {
        // Closing the descriptor would do, were it not that a child of `fork` may hold a copy of
        // it.
        let _ = self.userfaultfd.unregister(&self.addresses(0..self.mapping.len));
    }
}
