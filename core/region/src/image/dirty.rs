//! Tracks which pages of a region were stored to since the last question.
//!
//! Invariants:
//! - A page that was stored to is reported at least once; one that was not may be reported, too.
//! - Asking starts anew: a store that slips in after the question is in the next answer. No thread
//!   may store while the question is being asked (see [`crate::Region::commit`]).

#![forbid(unsafe_code)]

use std::ops::Range;
use std::{fmt, io};

use crate::media::sparse::PAGE_BYTES;

/// Whether to begin tracking a mapping that is not tracked. A tracked mapping is made of small
/// pages, so it begins with the first commit of a session that goes on, and not at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tracking {
    Begin,
    AsIs,
}

/// Something that knows which bytes of a region were stored to.
pub trait DirtySource: fmt::Debug + Send + Sync {
    /// The byte ranges of the data area that were stored to since the last call, in any order; they
    /// may overlap, and are widened to whole pages.
    ///
    /// # Errors
    /// What the kernel reports; everything then counts as stored to.
    fn take(&mut self) -> io::Result<Vec<Range<u64>>>;
}

/// Whole pages below `backed_bytes`, in order, without overlap.
pub(crate) fn merged(ranges: Vec<Range<u64>>, backed_bytes: u64) -> Vec<Range<u64>> {
    let mut pages: Vec<Range<u64>> = ranges
        .into_iter()
        .filter(|range| range.start < range.end.min(backed_bytes))
        .map(|range| {
            let end = range.end.min(backed_bytes).next_multiple_of(PAGE_BYTES);
            range.start / PAGE_BYTES * PAGE_BYTES..end
        })
        .collect();
    pages.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(pages.len());
    for range in pages {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_become_whole_pages_in_order_without_overlap() {
        let ranges =
            vec![9000..9001, 0..1, 4095..4097, 20_000..20_000, 30_000..99_999, 50_000..60_000];
        assert_eq!(merged(ranges, 32_768), [0..12_288, 28_672..32_768]);
        let apart = vec![8192..12_288, 0..4096];
        assert_eq!(merged(apart, 1 << 20), [0..4096, 8192..12_288]);
    }
}
