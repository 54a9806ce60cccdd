//! A second mapping of an image, shared, beside the private one of the mode `atomic`: where a
//! publication compares what was stored with what the image has, and puts it.
//!
//! Invariants:
//! - Only the owner of the region stores to it, while it publishes; so it may read and write it
//!   through plain memory.
//! - If the image is cut off under it, scratch memory stands in, and [`FileView::lost_backing`]
//!   says so.

#![allow(unsafe_code, reason = "a mapping of a file is what it is")]

use std::fs::File;
use std::ops::Range;
use std::{fmt, io};

use holdfast_sys::fault::WriteWatch;
use holdfast_sys::mapping::{HUGE_PAGE_BYTES, Prot, Reservation, map_none_fixed};

use crate::media::format::DATA_OFFSET;
use crate::media::sharing::{Sharing, map_file};

/// A shared mapping of an image, for publications.
pub struct FileView {
    /// Released by hand, before the mapping.
    watch: Option<WriteWatch>,
    range: Reservation,
    backed: usize,
    sharing: Sharing,
}

// SAFETY: a mapping belongs to the process and to no thread; all stores need `&mut self`.
unsafe impl Sync for FileView {}
// SAFETY: as above.
unsafe impl Send for FileView {}

impl FileView {
    /// Maps `backed` bytes of the data area; it may grow to `limit`.
    pub(crate) fn map(
        file: &File,
        backed: usize,
        limit: usize,
        sharing: Sharing,
    ) -> io::Result<FileView> {
        let range = Reservation::anywhere(limit.max(backed), HUGE_PAGE_BYTES)?;
        // SAFETY: the reservation was made just now, and nothing refers into it.
        unsafe {
            map_file(range.base(), backed, file, DATA_OFFSET, Prot::ReadWrite, false, sharing)?
        };
        // SAFETY: the range is mapped as the watch wants it but for being writable, so that it has
        // only loss of the backing to notice; it is dropped before the mapping.
        let watch = unsafe { WriteWatch::new(range.base(), backed, None)? };
        Ok(FileView { watch: Some(watch), range, backed, sharing })
    }

    /// What it may grow to.
    pub(crate) fn limit(&self) -> usize {
        self.range.len()
    }

    /// Maps what was allocated by growth.
    pub(crate) fn grow(&mut self, file: &File, backed: usize) -> io::Result<()> {
        let added = backed.checked_sub(self.backed).filter(|_| backed <= self.range.len());
        let added = added.ok_or(io::ErrorKind::InvalidInput)?;
        if added == 0 {
            return Ok(());
        }
        let offset = DATA_OFFSET + self.backed as u64;
        // SAFETY: the part lies in the reservation, past the mapping; nothing refers into it.
        unsafe {
            let at = self.range.base().add(self.backed);
            if let Err(error) =
                map_file(at, added, file, offset, Prot::ReadWrite, false, self.sharing)
            {
                map_none_fixed(at, added)?;
                return Err(error);
            }
        }
        self.backed = backed;
        if let Some(watch) = &self.watch {
            watch.extend(backed);
        }
        Ok(())
    }

    /// Bytes of the data area as the image has them.
    #[must_use]
    pub fn bytes(&self, range: Range<u64>) -> &[u8] {
        let range = self.clamped(range);
        // SAFETY: the range lies in the mapping, which is readable and to which no store goes
        // through `&self`.
        unsafe { std::slice::from_raw_parts(self.range.base().add(range.start), range.len()) }
    }

    /// Stores bytes to the image.
    ///
    /// # Errors
    /// `InvalidInput` when they would lie outside of it.
    pub fn store(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let range = self.clamped(offset..offset.saturating_add(bytes.len() as u64));
        if range.len() != bytes.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the range lies in the mapping, which is writable, and no reference from `bytes`
        // is alive.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.range.base().add(range.start),
                bytes.len(),
            );
        }
        Ok(())
    }

    /// Whether the file was found shorter than the mapping.
    #[must_use]
    pub fn lost_backing(&self) -> bool {
        self.watch.as_ref().is_some_and(WriteWatch::lost_backing)
    }

    fn clamped(&self, range: Range<u64>) -> Range<usize> {
        let bound = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(self.backed);
        bound(range.start)..bound(range.end).max(bound(range.start))
    }
}

impl Drop for FileView {
    fn drop(&mut self) {
        self.watch = None;
    }
}

impl fmt::Debug for FileView {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FileView").field("backed", &self.backed).finish_non_exhaustive()
    }
}
