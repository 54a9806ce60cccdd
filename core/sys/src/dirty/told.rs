//! Trackers that ask nothing of the kernel: one believes reports, one takes everything for
//! changed.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::{DirtyMethod, DirtyTracker, Mapping};
use crate::page_set::PageSet;

/// Tells a tracker of stores; any thread may hold one, also past the tracker's end.
#[derive(Clone)]
pub struct Reporter(Arc<PageSet>);

impl Reporter {
    /// Bytes of the range, relative to the mapping's first, have been stored to. Call it after the
    /// stores: a report that comes before them can be taken before them, too, and then they are
    /// missed.
    pub fn report(&self, bytes: Range<u64>) {
        let bound = |at| usize::try_from(at).unwrap_or(usize::MAX);
        self.0.insert(bound(bytes.start)..bound(bytes.end));
    }
}

/// Knows what is reported, such as the ranges of transactions.
pub(super) struct Reported {
    mapping: Mapping,
    pages: Arc<PageSet>,
}

impl Reported {
    pub(super) fn new(mapping: Mapping) -> Reported {
        Reported { mapping, pages: Arc::new(PageSet::new(mapping.limit)) }
    }
}

impl DirtyTracker for Reported {
    fn kind(&self) -> DirtyMethod {
        DirtyMethod::Reported
    }

    unsafe fn extend(&mut self, len: usize) -> io::Result<()> {
        self.mapping.added(len)?;
        self.mapping.len = len;
        Ok(())
    }

    fn take(&mut self) -> io::Result<Vec<Range<u64>>> {
        Ok(self.pages.drain(self.mapping.len))
    }

    fn reporter(&self) -> Option<Reporter> {
        Some(Reporter(self.pages.clone()))
    }
}

/// Knows nothing, so everything may have changed.
pub(super) struct Everything(pub(super) Mapping);

impl DirtyTracker for Everything {
    fn kind(&self) -> DirtyMethod {
        DirtyMethod::Everything
    }

    unsafe fn extend(&mut self, len: usize) -> io::Result<()> {
        self.0.added(len)?;
        self.0.len = len;
        Ok(())
    }

    fn take(&mut self) -> io::Result<Vec<Range<u64>>> {
        Ok(self.0.whole())
    }
}
