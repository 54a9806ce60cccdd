//! Watching a mapping page by page: every page is read-only until its first store, which is noted.
//!
//! Invariants:
//! - A page is writable only if it is in the set, or a handler that has put it there is still
//!   running when the set is emptied. [`PageWatch::take`] empties the set, waits for those
//!   handlers, and only then protects what it found: so no page stays writable that is in neither
//!   this answer nor the set.
//! - The handler's part sets bits, counts itself in and out, and calls `mprotect`; nothing else.
//! - The number of separate mappings that the kernel must keep for one watch is bounded: after
//!   [`RUNS_MAX`] first stores they open whole blocks.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::handler::install;
use super::table::{CLAIMED, Claim, Slot};
use crate::mapping::{HUGE_PAGE_BYTES, Prot, protect};
use crate::page_set::PageSet;

/// First stores that open one page each, between two calls of `take`. Each may cost two mappings,
/// of which Linux allows a process 65,530 unless that was changed.
const RUNS_MAX: u32 = 8192;
/// How many blocks a mapping has, at most, of which a first store opens one when pages have become
/// too many.
const BLOCKS_MAX: usize = 1024;

/// Watches a mapping page by page.
pub(crate) struct PageWatch {
    // Released before the set that it points to.
    claim: Claim,
    pages: Arc<PageSet>,
}

impl PageWatch {
    /// Makes `len` bytes from `address` read-only and watches them; `limit` is what
    /// [`PageWatch::extend`] may come to.
    ///
    /// # Safety
    /// The contract of [`crate::dirty::track`].
    pub(crate) unsafe fn new(address: *mut u8, len: usize, limit: usize) -> io::Result<PageWatch> {
        install()?;
        let pages = Arc::new(PageSet::new(limit));
        let start = address as usize;
        let claim = Claim::on_pages(start..start + len, &pages)?;
        let watch = PageWatch { claim, pages };
        watch.set_protection(0..len, Prot::Read)?;
        Ok(watch)
    }

    /// The mapping now has `len` bytes; what was added becomes read-only.
    ///
    /// # Safety
    /// The part that is added is mapped as the first was, within the limit, and no thread stores to
    /// it meanwhile.
    pub(crate) unsafe fn extend(&self, len: usize) -> io::Result<()> {
        let added = self.len()..len;
        self.set_protection(added, Prot::Read)?;
        self.slot().end.store(self.start() + len, Ordering::Release);
        Ok(())
    }

    /// Puts pages into the set, as if they had been stored to.
    pub(crate) fn mark(&self, bytes: Range<usize>) {
        self.pages.insert(bytes);
    }

    /// Makes pages writable without a fault, and puts them into the set.
    pub(crate) fn make_writable(&self, bytes: Range<usize>) -> io::Result<()> {
        let page_bytes = self.pages.page_bytes();
        let aligned = bytes.start / page_bytes * page_bytes..bytes.end.next_multiple_of(page_bytes);
        self.mark(aligned.clone());
        self.set_protection(aligned, Prot::ReadWrite)
    }

    /// The pages that were stored to since the last call; they are read-only again. After an error
    /// some of them may be writable and not in the set.
    pub(crate) fn take(&mut self) -> io::Result<Vec<Range<u64>>> {
        let ranges = self.pages.drain(self.len());
        let slot = self.slot();
        slot.runs.store(0, Ordering::Relaxed);
        wait_for_handlers(slot);
        if let (Some(first), Some(last)) = (ranges.first(), ranges.last()) {
            // One call for all: what is read-only already costs nothing, and mappings are merged at
            // once.
            self.set_protection(first.start as usize..last.end as usize, Prot::Read)?;
        }
        Ok(ranges)
    }

    fn slot(&self) -> &'static Slot {
        self.claim.0
    }

    fn start(&self) -> usize {
        self.slot().start.load(Ordering::Acquire)
    }

    fn len(&self) -> usize {
        self.slot().end.load(Ordering::Acquire) - self.start()
    }

    fn set_protection(&self, bytes: Range<usize>, prot: Prot) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let address = std::ptr::with_exposed_provenance_mut::<u8>(self.start() + bytes.start);
        // SAFETY: the range is the owner's live mapping, which it lets this module protect
        // (contract of `new` and `extend`); a store that meets a read-only page is resolved by the
        // handler.
        unsafe { protect(address, bytes.len(), prot) }
    }
}

impl Drop for PageWatch {
    fn drop(&mut self) {
        // A failure leaves the mapping read-only; stores then end the process rather than go
        // unseen.
        let _ = self.set_protection(0..self.len(), Prot::ReadWrite);
        self.slot().kind.store(CLAIMED, Ordering::Release);
        wait_for_handlers(self.slot());
    }
}

/// Waits until every handler has ended that is now at work on this slot. Two turns, because a
/// handler may have read the phase, and not yet counted itself, when it changes.
fn wait_for_handlers(slot: &Slot) {
    for _ in 0..2 {
        let phase = slot.phase.fetch_xor(1, Ordering::SeqCst) & 1;
        while slot.in_flight[phase].load(Ordering::SeqCst) != 0 {
            std::thread::yield_now();
        }
    }
}

/// The handler's part: the page is noted, then writable.
pub(super) fn unlock(slot: &Slot, address: usize) -> bool {
    let phase = slot.phase.load(Ordering::SeqCst) & 1;
    slot.in_flight[phase].fetch_add(1, Ordering::SeqCst);
    let pages = slot.pages.load(Ordering::Acquire);
    // SAFETY: the set lives until the owner has waited for the handlers that were at work on its
    // slot, and this one has counted itself in; no store races with the end of the watch (contract
    // of `PageWatch::new`).
    let done = !pages.is_null() && unlock_in(slot, unsafe { &*pages }, address);
    slot.in_flight[phase].fetch_sub(1, Ordering::SeqCst);
    done
}

fn unlock_in(slot: &Slot, pages: &PageSet, address: usize) -> bool {
    let (start, end) = (slot.start.load(Ordering::Acquire), slot.end.load(Ordering::Acquire));
    if address < start || end <= address {
        return false;
    }
    let runs = slot.runs.fetch_add(1, Ordering::Relaxed);
    let run_bytes = if runs < RUNS_MAX { pages.page_bytes() } else { block_bytes(end - start) };
    let offset = address - start;
    let run = offset / run_bytes * run_bytes;
    // The whole mapping is one run that needs no further mapping: for when the kernel allows no
    // more of them.
    [run..(run + run_bytes).min(end - start), 0..end - start].into_iter().any(|run| {
        pages.insert(run.clone());
        // SAFETY: the run lies in a live PAGE_WATCH slot, whose owner lets this module change its
        // protection.
        unsafe {
            let address = std::ptr::with_exposed_provenance_mut(start + run.start);
            libc::mprotect(address, run.len(), libc::PROT_READ | libc::PROT_WRITE) == 0
        }
    })
}

fn block_bytes(len: usize) -> usize {
    (len / BLOCKS_MAX).next_power_of_two().max(HUGE_PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::WriteWatch;
    use crate::mapping::{Reservation, map_shared_fixed};

    fn mapped(len: usize) -> Reservation {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.set_len(len as u64).unwrap();
        let range = Reservation::anywhere(len, 4096).unwrap();
        // SAFETY: the reservation was made here, and nothing refers into it.
        unsafe { map_shared_fixed(range.base(), len, &file, 0, Prot::ReadWrite).unwrap() };
        range
    }

    fn bytes_of(ranges: &[Range<u64>]) -> u64 {
        ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// After very many first stores a store opens a block and all of it is reported.
    #[test]
    fn many_first_stores_open_and_report_whole_blocks() {
        let (page, stored) = (4096, RUNS_MAX as usize + 1);
        let range = mapped(4 * stored * page);
        // SAFETY: the mapping lives to the end of the test; the stores lie within it.
        unsafe {
            let mut watch = PageWatch::new(range.base(), range.len(), range.len()).unwrap();
            for at in 0..stored {
                range.base().add(2 * at * page).write_volatile(1);
            }
            let block = HUGE_PAGE_BYTES as u64;
            let taken = watch.take().unwrap();
            assert_eq!(bytes_of(&taken), (RUNS_MAX as usize * page) as u64 + block);
            range.base().write_volatile(2);
            assert_eq!(watch.take().unwrap(), [0..page as u64], "pages one by one again");
        }
    }

    /// A first store under a page watch is noticed by the write watch too.
    #[test]
    fn page_watch_stores_reach_the_write_watch() {
        let range = mapped(8 * 4096);
        // SAFETY: as above; read-only before the write watch is made, as it wants it.
        unsafe {
            let mut watch = PageWatch::new(range.base(), range.len(), range.len()).unwrap();
            let whole = WriteWatch::new(range.base(), range.len(), None).unwrap();
            range.base().add(5000).write_volatile(1);
            assert!(whole.is_dirty());
            range.base().add(3 * 4096).write_volatile(1);
            assert_eq!(watch.take().unwrap(), [4096..8192, 3 * 4096..4 * 4096]);
        }
    }
}
