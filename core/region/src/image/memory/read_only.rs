//! A view of a file's data for those who only read.
//!
//! Invariant: the descriptor is for reading only, so not even a stray store reaches the file.

use std::fs::File;
use std::io;

use holdfast_sys::mapping::Reservation;

use super::{MappedData, Mode, Sharing};

/// The data area of a file that nobody writes: for readers, who hold a lock that keeps writers out.
pub(crate) struct ReadOnlyData(MappedData);

impl ReadOnlyData {
    /// Maps `backed` bytes of the data area of `file`, which must be open for reading only: then not even a
    /// stray store can reach it.
    pub(crate) fn map(range: Reservation, file: &File, backed: usize) -> io::Result<ReadOnlyData> {
        MappedData::map_own(range, file, backed, (Mode::ReadOnly, Sharing::Ordinary), None).map(ReadOnlyData)
    }

    /// The mapped bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `backed` bytes are mapped readable from `base` while `self` lives. The reader's lock keeps
        // every writer of ours away; a page that a stranger cuts off is replaced by a readable one.
        unsafe { std::slice::from_raw_parts(self.0.base, self.0.backed) }
    }

    /// Whether the file was found shorter than the mapping.
    pub(crate) fn lost_backing(&self) -> bool {
        self.0.lost_backing()
    }
}
