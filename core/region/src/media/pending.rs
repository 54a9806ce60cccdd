//! The pages of a region that the store lacks, as bits: noting some costs no more for how many are
//! noted already.
//!
//! Invariant: a page that was noted stays until it is removed, or all are cleared.

#![forbid(unsafe_code)]

use std::io;
use std::ops::Range;

use crate::media::sparse::PAGE_BYTES;

const WORD_BITS: u64 = u64::BITS as u64;

/// The set of pages that the store lacks: one bit for each page.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    words: Vec<u64>,
    /// How many bits are set.
    pages: u64,
}

impl Pending {
    /// Notes the pages that share a byte with a range.
    ///
    /// # Errors
    /// `OutOfMemory`; then none of them is noted.
    pub(crate) fn insert(&mut self, bytes: Range<u64>) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (mut page, end) = (bytes.start / PAGE_BYTES, bytes.end.div_ceil(PAGE_BYTES));
        let words = end.div_ceil(WORD_BITS) as usize;
        if self.words.len() < words {
            let more = self.words.try_reserve(words - self.words.len());
            more.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
            self.words.resize(words, 0);
        }
        while page < end {
            let first = page % WORD_BITS;
            let count = (end - page).min(WORD_BITS - first);
            let word = &mut self.words[(page / WORD_BITS) as usize];
            let noted = (u64::MAX >> (WORD_BITS - count)) << first;
            self.pages += u64::from((noted & !*word).count_ones());
            *word |= noted;
            page += count;
        }
        Ok(())
    }

    /// Takes out the page that has a byte.
    pub(crate) fn remove_page(&mut self, byte: u64) {
        let (page, bit) = (byte / PAGE_BYTES, 1 << (byte / PAGE_BYTES % WORD_BITS));
        if let Some(word) = self.words.get_mut((page / WORD_BITS) as usize)
            && *word & bit != 0
        {
            *word ^= bit;
            self.pages -= 1;
        }
    }

    /// Bytes of the pages noted.
    pub(crate) fn bytes(&self) -> u64 {
        self.pages * PAGE_BYTES
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pages == 0
    }

    pub(crate) fn clear(&mut self) {
        if self.pages > 0 {
            self.words.fill(0);
            self.pages = 0;
        }
    }

    /// Page-aligned ranges, in order, apart from each other.
    pub(crate) fn ranges(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (index, word) in self.words.iter().enumerate() {
            let mut bits = *word;
            while bits != 0 {
                let first = u64::from(bits.trailing_zeros());
                let count = u64::from((bits >> first).trailing_ones());
                bits &= !((u64::MAX >> (WORD_BITS - count)) << first);
                let start = (index as u64 * WORD_BITS + first) * PAGE_BYTES;
                match ranges.last_mut() {
                    Some(last) if last.end == start => last.end += count * PAGE_BYTES,
                    _ => ranges.push(start..start + count * PAGE_BYTES),
                }
            }
        }
        ranges
    }
}

/// What was stored to an image that outlives the boot, and need not have reached memory.
#[derive(Debug, Default)]
pub(crate) struct Unwritten {
    pages: Pending,
    /// It is not known which.
    all: bool,
}

impl Unwritten {
    /// It is not known what a writer that died left in the caches.
    pub(crate) fn unknown() -> Unwritten {
        Unwritten { all: true, ..Unwritten::default() }
    }

    pub(crate) fn note(&mut self, bytes: Range<u64>) {
        // Without memory to note them it is not known which.
        self.all |= self.pages.insert(bytes).is_err();
    }

    pub(crate) fn note_all(&mut self) {
        self.all = true;
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.all && self.pages.is_empty()
    }

    /// The bytes of the pages that are noted, whether or not there are others.
    pub(crate) fn noted_bytes(&self) -> u64 {
        self.pages.bytes()
    }

    /// The ranges that were stored to; none when it is not known which.
    pub(crate) fn ranges(&self) -> Option<Vec<Range<u64>>> {
        (!self.all).then(|| self.pages.ranges())
    }

    pub(crate) fn clear(&mut self) {
        self.pages.clear();
        self.all = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages come out in order and merged until they are cleared.
    #[test]
    fn pages_are_merged_in_order_until_cleared() {
        let mut pending = Pending::default();
        for pages in [63..65, 3..4, 64..130, 200..200, 191..192] {
            pending.insert(pages.start * PAGE_BYTES..pages.end * PAGE_BYTES).unwrap();
        }
        pending.insert(3 * PAGE_BYTES + 7..4 * PAGE_BYTES + 1).unwrap();
        let expected = [3..5, 63..130, 191..192]
            .map(|pages: Range<u64>| pages.start * PAGE_BYTES..pages.end * PAGE_BYTES);
        assert_eq!(pending.ranges(), expected);
        assert!(!pending.is_empty());
        assert_eq!(pending.bytes(), 70 * PAGE_BYTES);
        pending.remove_page(3 * PAGE_BYTES + 1);
        pending.remove_page(1000 * PAGE_BYTES);
        assert_eq!(pending.ranges()[0], 4 * PAGE_BYTES..5 * PAGE_BYTES);
        pending.clear();
        assert!(pending.is_empty() && pending.ranges().is_empty());
    }
}
