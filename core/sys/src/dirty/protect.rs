//! Changed pages by page protection: a page is read-only until its first store, which the fault
//! handler notes before it lets the store through. Works on every kernel; a first store costs a
//! signal, and stores that the kernel does (`read(2)` into the mapping) fail with EFAULT unless
//! they are announced.

use std::io;
use std::ops::Range;

use super::{DirtyMethod, DirtyTracker, Mapping};
use crate::fault::PageWatch;

/// A tracker of changed pages that protects them with `mprotect`.
pub(super) struct Protect {
    mapping: Mapping,
    watch: PageWatch,
    /// Protecting again failed: pages may be writable that the watch takes for clean.
    unknown: bool,
}

impl Protect {
    /// # Safety
    /// As for [`super::track`].
    pub(super) unsafe fn new(mapping: Mapping) -> io::Result<Protect> {
        // SAFETY: the caller's contract is that of the watch.
        let watch = unsafe { PageWatch::new(mapping.base, mapping.len, mapping.limit)? };
        Ok(Protect { mapping, watch, unknown: false })
    }
}

impl DirtyTracker for Protect {
    fn kind(&self) -> DirtyMethod {
        DirtyMethod::Protect
    }

    unsafe fn extend(&mut self, len: usize) -> io::Result<()> {
        self.mapping.added(len)?;
        // SAFETY: the part was mapped by the caller, within the limit (contract, and checked
        // above).
        unsafe { self.watch.extend(len)? };
        self.mapping.len = len;
        Ok(())
    }

    fn take(&mut self) -> io::Result<Vec<Range<u64>>> {
        if std::mem::replace(&mut self.unknown, true) {
            self.watch.mark(0..self.mapping.len);
        }
        let ranges = self.watch.take()?;
        self.unknown = false;
        Ok(ranges)
    }

    fn make_writable(&mut self, bytes: Range<u64>) -> io::Result<()> {
        let bound = |at| usize::try_from(at).unwrap_or(usize::MAX).min(self.mapping.len);
        self.watch.make_writable(bound(bytes.start)..bound(bytes.end))
    }
}
