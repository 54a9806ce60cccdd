//! A copy of a region's data for this process alone, made page by page as it is stored to: for
//! tools that look into a heap as the next program will find it, which may roll something back.
//!
//! Invariants:
//! - Nothing that is stored here reaches the file: the mapping is private, and the descriptor is
//!   open for reading only.
//! - The mapping keeps the file open, and with it the lock of the reader that it was made from:
//!   writers stay away until both are dropped.
//! - A page that is cut off is replaced by scratch memory, and [`PrivateCopy::lost_backing`] says
//!   so.

#![allow(unsafe_code, reason = "a mapping of a file is what it is")]

use std::fmt;
use std::fs::File;
use std::io;

use holdfast_sys::fault::WriteWatch;
use holdfast_sys::mapping::{HUGE_PAGE_BYTES, Prot, Reservation};

use crate::media::format::DATA_OFFSET;
use crate::media::sharing::{Sharing, map_file};

/// The copy. Its first store to a page takes a page of memory, and nothing else does.
pub struct PrivateCopy {
    /// Released by hand, before the mapping.
    watch: Option<WriteWatch>,
    range: Reservation,
    bytes: usize,
}

impl PrivateCopy {
    /// Of the first `bytes` bytes of the data area, which are whole pages.
    pub(crate) fn map(file: &File, bytes: usize) -> io::Result<PrivateCopy> {
        let range = Reservation::anywhere(bytes, HUGE_PAGE_BYTES)?;
        // SAFETY: the reservation was made just now, and nothing refers into it.
        unsafe {
            map_file(
                range.base(),
                bytes,
                file,
                DATA_OFFSET,
                Prot::ReadWrite,
                true,
                Sharing::Ordinary,
            )?
        };
        // SAFETY: the range is mapped and writable, so that the watch has only loss of the backing
        // to notice; it is dropped before the mapping.
        let watch = unsafe { WriteWatch::new(range.base(), bytes, None)? };
        Ok(PrivateCopy { watch: Some(watch), range, bytes })
    }

    /// The data in words, as they are in memory.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        // SAFETY: the mapping is that long, aligned to pages, readable, and is stored to through
        // `&mut self` only; any bytes are words.
        unsafe { std::slice::from_raw_parts(self.range.base().cast(), self.bytes / 8) }
    }

    /// The same, to be changed.
    pub fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above; the mapping is private and writable, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.range.base().cast(), self.bytes / 8) }
    }

    /// Whether the file was cut off while it was read, or its disk failed: what was found is then
    /// partly made up.
    #[must_use]
    pub fn lost_backing(&self) -> bool {
        self.watch.as_ref().is_some_and(WriteWatch::lost_backing)
    }
}

impl Drop for PrivateCopy {
    fn drop(&mut self) {
        self.watch = None;
    }
}

impl fmt::Debug for PrivateCopy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PrivateCopy").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
