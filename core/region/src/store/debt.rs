//! The pages of an image that the store lacks.
//!
//! Invariants:
//! - `Unknown` is the safe answer: only a comparison of image and store, or a new base, leaves it.
//! - A debt that is not proven was read from the store, perhaps from the kernel's cache only.

#![forbid(unsafe_code)]

use std::ops::Range;

use crate::media::pending::Pending;

/// The pages of an image that the store lacks, or all of them.
#[derive(Debug)]
pub(crate) struct Debt {
    lacking: Lacking,
    is_proven: bool,
}

#[derive(Debug)]
enum Lacking {
    /// These pages, and the new size where the region has grown.
    Pages { pages: Pending, has_grown: bool },
    /// It is not known what.
    Unknown,
}

impl Debt {
    /// Nothing is lacking. It is `proven` when this process wrote the store, or need not rely on
    /// it.
    pub(crate) fn none(is_proven: bool) -> Debt {
        Debt { lacking: Lacking::Pages { pages: Pending::default(), has_grown: false }, is_proven }
    }

    pub(crate) fn unknown(is_proven: bool) -> Debt {
        Debt { lacking: Lacking::Unknown, is_proven }
    }

    /// Whether something is known, or suspected, to be lacking.
    pub(crate) fn is_due(&self) -> bool {
        match &self.lacking {
            Lacking::Pages { pages, has_grown } => *has_grown || !pages.is_empty(),
            Lacking::Unknown => true,
        }
    }

    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self.lacking, Lacking::Unknown)
    }

    pub(crate) fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// From now on it is not known what is lacking.
    pub(crate) fn set_unknown(&mut self) {
        self.lacking = Lacking::Unknown;
    }

    pub(crate) fn set_proven(&mut self, is_proven: bool) {
        self.is_proven = is_proven;
    }

    /// These bytes are lacking. Without memory to note them it is not known what is.
    pub(crate) fn note(&mut self, bytes: Range<u64>) {
        if let Lacking::Pages { pages, .. } = &mut self.lacking
            && pages.insert(bytes).is_err()
        {
            self.set_unknown();
        }
    }

    pub(crate) fn note_growth(&mut self) {
        if let Lacking::Pages { has_grown, .. } = &mut self.lacking {
            *has_grown = true;
        }
    }

    /// A comparison found these pages, and whether the sizes differ.
    pub(crate) fn set_found(&mut self, found: Pending, sizes_differ: bool) {
        let has_grown =
            sizes_differ || matches!(self.lacking, Lacking::Pages { has_grown: true, .. });
        self.lacking = Lacking::Pages { pages: found, has_grown };
    }

    /// How many bytes the known pages have; `None` when it is not known which they are.
    pub(crate) fn bytes(&self) -> Option<u64> {
        match &self.lacking {
            Lacking::Pages { pages, .. } => Some(pages.bytes()),
            Lacking::Unknown => None,
        }
    }

    /// The known pages, in order; `None` when it is not known which they are.
    pub(crate) fn ranges(&self) -> Option<Vec<Range<u64>>> {
        match &self.lacking {
            Lacking::Pages { pages, .. } => Some(pages.ranges()),
            Lacking::Unknown => None,
        }
    }

    /// The store has everything.
    pub(crate) fn settle(&mut self) {
        *self = Debt::none(self.is_proven);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::sparse::PAGE_BYTES;

    /// Unknown debt is left only by a comparison or a base.
    #[test]
    fn unknown_debt_ends_by_comparison_or_base() {
        let mut debt = Debt::none(true);
        assert!(!debt.is_due());
        debt.note(0..PAGE_BYTES);
        debt.note_growth();
        assert_eq!((debt.is_due(), debt.bytes()), (true, Some(PAGE_BYTES)));
        debt.set_unknown();
        debt.note(0..PAGE_BYTES);
        debt.note_growth();
        assert_eq!((debt.is_due(), debt.ranges()), (true, None));
        debt.set_found(Pending::default(), false);
        assert!(!debt.is_due() && debt.is_proven());
        debt.set_unknown();
        debt.settle();
        assert!(!debt.is_due());
    }
}
