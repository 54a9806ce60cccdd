//! A set of pages of one mapping, as bits that any thread, and a signal handler, may set.
//!
//! Invariants:
//! - Its size is fixed when it is made: inserting allocates nothing, takes no lock, cannot panic,
//!   and is async-signal-safe. What lies past its end is left out, so its owner makes it as large
//!   as the mapping may get.
//! - A page that is inserted while the set is being emptied is in the answer or still in the set.

#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

const WORD_BITS: usize = u64::BITS as usize;

pub(crate) struct PageSet {
    page_bytes: usize,
    words: Box<[AtomicU64]>,
}

impl PageSet {
    /// An empty set of the pages of a mapping of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> PageSet {
        let page_bytes = rustix::param::page_size();
        let words = limit.div_ceil(page_bytes).div_ceil(WORD_BITS);
        PageSet { page_bytes, words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    pub(crate) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Puts every page in that shares a byte with the range, which is relative to the mapping's
    /// first byte.
    pub(crate) fn insert(&self, bytes: Range<usize>) {
        self.insert_new(bytes);
    }

    /// The same; says how many bytes the pages have that were not in the set.
    pub(crate) fn insert_new(&self, bytes: Range<usize>) -> u64 {
        let mut new_pages = 0;
        if bytes.is_empty() {
            return 0;
        }
        let (mut page, end) = (bytes.start / self.page_bytes, bytes.end.div_ceil(self.page_bytes));
        while page < end {
            let Some(word) = self.words.get(page / WORD_BITS) else { break };
            let first = page % WORD_BITS;
            let count = (end - page).min(WORD_BITS - first);
            // `count` is at least 1, so the shift is less than the width of the word.
            let bits = (u64::MAX >> (WORD_BITS - count)) << first;
            let before = word.fetch_or(bits, Ordering::SeqCst);
            new_pages += u64::from((bits & !before).count_ones());
            page += count;
        }
        new_pages * self.page_bytes as u64
    }

    /// Empties the set: ranges of bytes, sorted and merged, none of them past `len`, a multiple of
    /// the page size.
    pub(crate) fn drain(&self, len: usize) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        for (index, word) in self.words.iter().enumerate() {
            // Most words are empty, and a load costs less than an exchange.
            if word.load(Ordering::SeqCst) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::SeqCst);
            while bits != 0 {
                let first = bits.trailing_zeros() as usize;
                let count = (bits >> first).trailing_ones() as usize;
                bits &= !((u64::MAX >> (WORD_BITS - count)) << first);
                let start = (index * WORD_BITS + first) * self.page_bytes;
                push_merged(
                    &mut ranges,
                    start as u64..(start + count * self.page_bytes).min(len) as u64,
                );
            }
        }
        ranges
    }
}

/// Appends a range that starts at or after the end of the last one.
pub(crate) fn push_merged(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    if range.is_empty() {
        return;
    }
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_come_out_sorted_merged_and_once() {
        let set = PageSet::new(300 * 4096);
        let page = set.page_bytes();
        for bytes in
            [250 * page..251 * page, 0..1, 62 * page..130 * page, 1..page + 1, 7 * page..7 * page]
        {
            set.insert(bytes);
        }
        let pages: Vec<Range<u64>> = set.drain(300 * page);
        let expected = [0..2, 62..130, 250..251]
            .map(|range: Range<usize>| (range.start * page) as u64..(range.end * page) as u64);
        assert_eq!(pages, expected);
        assert!(set.drain(300 * page).is_empty());
    }

    #[test]
    fn what_lies_past_the_end_is_left_out() {
        let set = PageSet::new(64 * rustix::param::page_size());
        let page = set.page_bytes();
        set.insert(60 * page..1000 * page);
        set.insert(usize::MAX - 1..usize::MAX);
        assert_eq!(set.drain(62 * page), [(60 * page) as u64..(62 * page) as u64]);
    }
}
