//! Private copies by userfaultfd: after a publication they stay, protected, and the kernel notes
//! which of them are stored to again (Linux 6.7, as [`crate::dirty`]).
//!
//! Looking through the whole mapping costs about a nanosecond for each of its pages, so two shorter
//! ways come first, both sure: a page that is stored to for the first time since the last look
//! costs its process at least one fault. If the process has had none, nothing was stored to; if it
//! has had as many as pages are found where pages were found before, those are all.
//!
//! Invariants:
//! - Every page of the mapping is protected, or was stored to since the last look.
//! - The number of faults is read when no thread stores (the caller's duty): after a look, or after
//!   what follows it.
//! - Faults that are not counted for this process are those of kernel threads that store on their
//!   own behalf (a polling thread of io_uring) and of a debugger: such stores are found when the
//!   next look is a long one.

use std::io;
use std::ops::Range;

use crate::dirty::{PageRegion, Pagemap, Userfaultfd};
use crate::mapping::HUGE_PAGE_BYTES;
use crate::page_set::push_merged;

/// Regions that one call of the scan may list.
const REGIONS: usize = 512;
/// Pieces of the mapping in which pages were found lately, at most.
const HOT_MAX: usize = 64;
/// Bytes of such a piece.
const HOT_BYTES: u64 = HUGE_PAGE_BYTES as u64;

/// Private pages that the kernel watches for stores.
#[derive(Debug)]
pub(super) struct Armed {
    userfaultfd: Userfaultfd,
    pagemap: Pagemap,
    base: usize,
    len: usize,
    regions: Box<[PageRegion]>,
    /// Where pages were found lately, in order.
    hot: Vec<u64>,
    /// What the process had had when everything was protected or known.
    faults: Option<i64>,
    /// A look failed: what it had taken is not known.
    unknown: bool,
}

impl Armed {
    /// Protects the whole of a private mapping of a file in memory.
    pub(super) fn new(base: usize, len: usize) -> io::Result<Armed> {
        let armed = Armed {
            userfaultfd: Userfaultfd::open()?,
            pagemap: Pagemap::open()?,
            base,
            len,
            regions: vec![PageRegion::default(); REGIONS].into_boxed_slice(),
            hot: Vec::new(),
            faults: None,
            unknown: false,
        };
        armed.arm(0..len)?;
        Ok(armed)
    }

    /// The mapping now has `len` bytes.
    pub(super) fn extend(&mut self, len: usize) -> io::Result<()> {
        self.arm(self.len..len)?;
        self.len = len;
        self.faults = None;
        Ok(())
    }

    fn arm(&self, bytes: Range<usize>) -> io::Result<()> {
        let addresses = self.base + bytes.start..self.base + bytes.end;
        if addresses.is_empty() {
            return Ok(());
        }
        self.userfaultfd.register(&addresses)?;
        self.userfaultfd.write_protect(&addresses)
    }

    /// What was stored to since the last call; it is protected again. After an error the next
    /// answer is the whole mapping.
    pub(super) fn take(&mut self) -> io::Result<Vec<Range<u64>>> {
        if self.unknown {
            self.arm(0..self.len)?;
            self.unknown = false;
            return Ok(std::iter::once(0..self.len as u64).collect());
        }
        let new_faults = self.faults.and_then(|before| Some(faults()? - before));
        if new_faults == Some(0) {
            return Ok(Vec::new());
        }
        (self.faults, self.unknown) = (None, true);
        let mut found = self.scan_hot()?;
        if new_faults.is_none_or(|new_faults| page_count(&found) != new_faults) {
            // What a short look has taken is not found again, but by who stores meanwhile.
            self.scan(0..self.len as u64, &mut found)?;
            found.sort_unstable_by_key(|range| range.start);
            self.note_hot(&found);
        }
        self.unknown = false;
        Ok(found)
    }

    fn scan_hot(&mut self) -> io::Result<Vec<Range<u64>>> {
        let (mut pieces, mut found) = (Vec::new(), Vec::new());
        for start in self.hot.iter().map(|piece| piece * HOT_BYTES) {
            push_merged(&mut pieces, start..(start + HOT_BYTES).min(self.len as u64));
        }
        for piece in pieces {
            self.scan(piece, &mut found)?;
        }
        Ok(found)
    }

    /// No thread has stored since the last [`Armed::take`]: what faults were had is no concern of
    /// the next.
    pub(super) fn settle(&mut self) {
        self.faults = faults();
    }

    fn note_hot(&mut self, found: &[Range<u64>]) {
        let mut all = std::mem::take(&mut self.hot);
        for range in found {
            all.extend(range.start / HOT_BYTES..range.end.div_ceil(HOT_BYTES));
        }
        all.sort_unstable();
        all.dedup();
        // Where pages are found all over, a short look would be no shorter; it starts anew with
        // what comes next.
        if all.len() <= HOT_MAX {
            self.hot = all;
        }
    }

    fn scan(&mut self, bytes: Range<u64>, found: &mut Vec<Range<u64>>) -> io::Result<()> {
        let base = self.base as u64;
        let mut rest = self.base + bytes.start as usize..self.base + bytes.end as usize;
        while !rest.is_empty() {
            let scanned = self.pagemap.take_written(&rest, &mut self.regions)?;
            for region in &self.regions[..scanned.found] {
                found.push(region.start - base..region.end - base);
            }
            if scanned.end <= rest.start {
                return Err(io::Error::other(
                    "the kernel's scan of changed pages does not advance",
                ));
            }
            rest.start = scanned.end;
        }
        Ok(())
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        // Closing the descriptor would do, were it not that a child of `fork` may hold a copy of
        // it.
        let _ = self.userfaultfd.unregister(&(self.base..self.base + self.len));
    }
}

fn page_count(ranges: &[Range<u64>]) -> i64 {
    let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    (bytes / rustix::param::page_size() as u64) as i64
}

/// Page faults of all threads of this process so far, ended ones included.
fn faults() -> Option<i64> {
    // SAFETY: rusage is plain data for which all-zero is valid, and the call gets a valid pointer
    // to it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) == 0)
            .then(|| usage.ru_minflt + usage.ru_majflt)
    }
}
