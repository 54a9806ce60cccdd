//! A region opened for reading: a view that changes no byte and keeps writers away while it lives.
//! Its open allocates what an image at rest gave back (see [`crate::media::rest`]).

#![forbid(unsafe_code)]

use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use holdfast_sys::file::next_data;
use holdfast_sys::lock::FileLock;
use holdfast_sys::mapping::{HUGE_PAGE_BYTES, Reservation};

use crate::error::{RegionError, Result};
use crate::image::memory::ReadOnlyData;
use crate::image::private_copy::PrivateCopy;
use crate::media::format::DATA_OFFSET;
use crate::media::image::Image;
use crate::media::sparse::{PAGE_BYTES, buffer};
use crate::names::summary::RegionSummary;

/// A region's data as it was when it was opened, from the image or, without one, from the store.
pub struct RegionReader {
    // Dropped before the lock.
    data: ReadOnlyData,
    file: File,
    summary: RegionSummary,
    backed_bytes: u64,
    lock: FileLock,
}

impl RegionReader {
    pub(crate) fn new(
        image: Image,
        summary: RegionSummary,
        lock: FileLock,
    ) -> Result<RegionReader> {
        let Image { file, path, header, .. } = image;
        let backed_bytes = header.backed_bytes;
        let backed = usize::try_from(backed_bytes)
            .map_err(|_| RegionError::AddressesExhausted { limit_bytes: backed_bytes })?;
        // An image of huge pages takes one fault for each of them, where it lies as they do.
        let data = Reservation::anywhere(backed, HUGE_PAGE_BYTES)
            .and_then(|range| ReadOnlyData::map(range, &file, backed))
            .map_err(RegionError::io("map", &path))?;
        Ok(RegionReader { data, file, summary, backed_bytes, lock })
    }

    /// What is known about the region.
    #[must_use]
    pub fn summary(&self) -> &RegionSummary {
        &self.summary
    }

    /// The backed data, mapped read-only. It is untrusted: an applet wrote it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.data.bytes()
    }

    /// The parts of the data that are no holes of the file, in whole pages and in order.
    pub(crate) fn extents(&self) -> impl Iterator<Item = Range<usize>> {
        let end = DATA_OFFSET + self.backed_bytes;
        let mut position = DATA_OFFSET;
        std::iter::from_fn(move || {
            let data = match next_data(&self.file, position) {
                _ if position >= end => return None,
                Ok(found) => found?,
                // Where it cannot be told, everything is data.
                Err(_) => position..end,
            };
            let start = (data.start / PAGE_BYTES * PAGE_BYTES).clamp(position, end);
            position = data.end.next_multiple_of(PAGE_BYTES).clamp(start, end);
            Some((start - DATA_OFFSET) as usize..(position - DATA_OFFSET) as usize)
        })
        .filter(|extent| !extent.is_empty())
    }

    /// A copy of the backed data that takes memory for those of its pages that are stored to.
    ///
    /// # Errors
    /// `Io` when there is no address space for it.
    pub fn private_copy(&self) -> Result<PrivateCopy> {
        // It fits: it is mapped already.
        PrivateCopy::map(&self.file, self.backed_bytes as usize)
            .map_err(RegionError::io("map", self.path()))
    }

    fn path(&self) -> PathBuf {
        let file = self.summary.image.as_ref().or(self.summary.base.as_ref());
        file.map(|file| file.path.clone()).unwrap_or_default()
    }

    /// A copy of the backed data.
    ///
    /// # Errors
    /// `NoMemory`, `Io`.
    pub fn read_all(&self) -> Result<Vec<u8>> {
        let read = buffer(self.backed_bytes).and_then(|mut bytes| {
            self.file.read_exact_at(&mut bytes, DATA_OFFSET)?;
            Ok(bytes)
        });
        read.map_err(RegionError::read_whole(self.path(), self.backed_bytes))
    }

    /// Whether the file was cut off while it was being read, or its disk failed: what
    /// [`RegionReader::bytes`] gave is then partly made up of zeros.
    #[must_use]
    pub fn lost_backing(&self) -> bool {
        self.data.lost_backing()
            || self.file.metadata().is_ok_and(|found| found.len() < DATA_OFFSET + self.backed_bytes)
    }
}

impl fmt::Debug for RegionReader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RegionReader")
            .field("summary", &self.summary)
            .field("lock", &self.lock)
            .finish_non_exhaustive()
    }
}
