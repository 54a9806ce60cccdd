//! Starting to write a file's pages to its disk, long before a process waits for it.

#![allow(unsafe_code, reason = "sync_file_range(2) is in no safe library")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// Starts to write what is in the page cache of a range to the disk, and does not wait. Nothing is
/// durable by it: that takes `fsync`, which then has less to do. Where a file has no disk, nothing
/// happens.
///
/// # Errors
/// What `sync_file_range(2)` reports.
pub fn begin(file: &File, range: Range<u64>) -> io::Result<()> {
    let bytes = range.end.saturating_sub(range.start);
    if bytes == 0 {
        // It would stand for the rest of the file.
        return Ok(());
    }
    let (start, bytes) = (libc::off64_t::try_from(range.start), libc::off64_t::try_from(bytes));
    let (Ok(start), Ok(bytes)) = (start, bytes) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // SAFETY: the descriptor is open as long as `file` is borrowed; no memory is passed.
    let done = unsafe {
        libc::sync_file_range(file.as_raw_fd(), start, bytes, libc::SYNC_FILE_RANGE_WRITE)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A range of a file can be written out and an empty or endless one does no harm.
    #[test]
    fn ranges_are_written_out_and_odd_ones_are_harmless() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 8192]).unwrap();
        begin(&file, 0..8192).unwrap();
        begin(&file, 4096..4096).unwrap();
        assert_eq!(begin(&file, 0..u64::MAX).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
