//! In which pages an image differs from what the store has of it: for a session whose stores were
//! not noticed, because it was killed, or was too short to track them.
//!
//! Invariants:
//! - A page that a cold open would show otherwise is in the answer.
//! - There is an answer only when the store is whole: checksums of base and journal are verified on
//!   the way.
//! - Files are read, never mapped.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use holdfast_sys::file::next_data;

use crate::media::format::DATA_OFFSET;
use crate::media::journal::apply;
use crate::media::pending::Pending;
use crate::media::sparse::{CopyError, PAGE_BYTES, buffer, is_zero, sum_each};
use crate::store::stored::Stored;

/// Bytes read at once: both sides fit the second-level cache.
const CHUNK_BYTES: usize = 256 << 10;

/// Why there is no answer.
#[derive(Debug)]
enum Unknown {
    /// Something could not be read.
    Unread,
    /// So much differs that it is not worth knowing all of it.
    Enough,
}

impl From<CopyError> for Unknown {
    fn from(_: CopyError) -> Unknown {
        Unknown::Unread
    }
}

impl From<io::Error> for Unknown {
    fn from(_: io::Error) -> Unknown {
        Unknown::Unread
    }
}

/// The pages among the first `backed_bytes` of an image's data that differ from what is stored;
/// `None` when the store is not whole, something cannot be read, or more than `enough_bytes`
/// differ.
pub(crate) fn differing(
    stored: &Stored,
    image: &File,
    backed_bytes: u64,
    enough_bytes: u64,
) -> Option<Pending> {
    let base = &stored.base;
    // What the journal has may differ from the base and be right.
    let journal_bytes = stored.journal.as_ref().map_or(0, |journal| journal.extent.end);
    let mut comparison = Comparison {
        image,
        backed_bytes,
        enough_bytes: enough_bytes + journal_bytes,
        found: Pending::default(),
        bytes: buffer(CHUNK_BYTES as u64).ok()?,
    };
    let mut compared_bytes = 0;
    let base_file = base.data_file().ok()?;
    let checksum = sum_each(&base_file, base.header.backed_bytes, |bytes, position| {
        let at = position - DATA_OFFSET;
        comparison.with_zeros(compared_bytes, at)?;
        compared_bytes = at + bytes.len() as u64;
        comparison.with(bytes, at)?;
        comparison.check_enough()
    });
    if checksum.ok()? != base.header.data_checksum {
        return None;
    }
    comparison.with_zeros(compared_bytes, backed_bytes).ok()?;
    if let Some(journal) = &stored.journal {
        // A later record has the last word about a page.
        let write = &mut |bytes: &[u8], at| {
            comparison.with(bytes, at).map_err(|_| io::Error::other("not comparable"))
        };
        apply(&journal.file, &journal.header, journal.extent, write).ok()?;
    }
    (comparison.found.bytes() <= enough_bytes).then_some(comparison.found)
}

struct Comparison<'a> {
    image: &'a File,
    backed_bytes: u64,
    enough_bytes: u64,
    found: Pending,
    bytes: Vec<u8>,
}

impl Comparison<'_> {
    /// Compares whole pages that the store has at an offset of the data area.
    fn with(&mut self, stored: &[u8], at: u64) -> Result<(), Unknown> {
        for (chunk, at) in stored.chunks(CHUNK_BYTES).zip((at..).step_by(CHUNK_BYTES)) {
            // An image that has less than the store is not of this store.
            if at + chunk.len() as u64 > self.backed_bytes {
                return Err(Unknown::Unread);
            }
            let bytes = &mut self.bytes[..chunk.len()];
            self.image.read_exact_at(bytes, DATA_OFFSET + at)?;
            let pages = bytes.chunks(PAGE_BYTES as usize).zip(chunk.chunks(PAGE_BYTES as usize));
            for ((image, stored), at) in pages.zip((at..).step_by(PAGE_BYTES as usize)) {
                if image == stored {
                    self.found.remove_page(at);
                } else {
                    self.found.insert(at..at + PAGE_BYTES)?;
                }
            }
        }
        Ok(())
    }

    /// Notes the pages between two offsets that are not all zero.
    fn with_zeros(&mut self, mut at: u64, end: u64) -> Result<(), Unknown> {
        while at < end {
            let Some(data) = next_data(self.image, DATA_OFFSET + at)? else { return Ok(()) };
            at = (data.start - DATA_OFFSET) / PAGE_BYTES * PAGE_BYTES;
            let data_end = (data.end - DATA_OFFSET).next_multiple_of(PAGE_BYTES).min(end);
            while at < data_end {
                let bytes = &mut self.bytes[..(data_end - at).min(CHUNK_BYTES as u64) as usize];
                self.image.read_exact_at(bytes, DATA_OFFSET + at)?;
                for (page, at) in
                    bytes.chunks(PAGE_BYTES as usize).zip((at..).step_by(PAGE_BYTES as usize))
                {
                    if !is_zero(page) {
                        self.found.insert(at..at + PAGE_BYTES)?;
                    }
                }
                at += bytes.len() as u64;
            }
            self.check_enough()?;
        }
        Ok(())
    }

    fn check_enough(&self) -> Result<(), Unknown> {
        if self.found.bytes() > self.enough_bytes { Err(Unknown::Enough) } else { Ok(()) }
    }
}
