//! Making a record: the pages of an image that changed, as the bytes of one commit.
//!
//! A record is built whole in memory, so that writers need to be kept away only while it is built. Pages of
//! zeros cost an entry of the table and no bytes.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::layout::{ENTRY_BYTES, Entry, JournalHeader, RECORD_HEAD_BYTES, RecordHead};
use crate::format::DATA_OFFSET;
use crate::sparse::{PAGE_BYTES, is_zero};

/// Bytes read at once.
const CHUNK_BYTES: u64 = 256 << 10;

/// One commit, ready to be appended.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) bytes: Vec<u8>,
    pub(crate) sequence: u64,
    /// Pages whose bytes are in it.
    pub(crate) pages: u64,
}

impl Record {
    /// Reads the ranges (page-aligned, in order, apart from each other, within the data area) from an image.
    pub(crate) fn build(
        image: &File,
        ranges: &[Range<u64>],
        backed_bytes: u64,
        journal: &JournalHeader,
        sequence: u64,
    ) -> io::Result<Record> {
        let dirty_bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let mut bytes = Vec::new();
        // An allocation that fails is an error value, and the caller falls back to a base file.
        let room = RECORD_HEAD_BYTES + (ranges.len() + 1) * ENTRY_BYTES + dirty_bytes as usize;
        bytes.try_reserve(room).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        bytes.resize(RECORD_HEAD_BYTES, 0);
        let mut entries: Vec<Entry> = Vec::new();
        for range in ranges {
            let mut position = range.start;
            while position < range.end {
                let wanted = (range.end - position).min(CHUNK_BYTES);
                let at = bytes.len();
                bytes.resize(at + wanted as usize, 0);
                image.read_exact_at(&mut bytes[at..], DATA_OFFSET + position)?;
                keep_data_pages(&mut bytes, at, position, &mut entries);
                position += wanted;
            }
        }
        let pages = ((bytes.len() - RECORD_HEAD_BYTES) as u64) / PAGE_BYTES;
        for entry in &entries {
            bytes.extend_from_slice(&entry.encode());
        }
        let body = &bytes[RECORD_HEAD_BYTES..];
        let head = RecordHead {
            entries: entries.len() as u32,
            sequence,
            backed_bytes,
            body_bytes: body.len() as u64,
            body_checksum: xxh3_64_with_seed(body, journal.seed(sequence)),
        };
        bytes[..RECORD_HEAD_BYTES].copy_from_slice(&head.encode(journal));
        Ok(Record { bytes, sequence, pages })
    }
}

/// Notes the pages from `at` on in the table and closes the gaps that pages of zeros leave.
fn keep_data_pages(bytes: &mut Vec<u8>, at: usize, position: u64, entries: &mut Vec<Entry>) {
    let page_bytes = PAGE_BYTES as usize;
    let mut kept = at;
    for (index, start) in (at..bytes.len()).step_by(page_bytes).enumerate() {
        let zero = is_zero(&bytes[start..start + page_bytes]);
        if !zero {
            if kept != start {
                bytes.copy_within(start..start + page_bytes, kept);
            }
            kept += page_bytes;
        }
        let page = position / PAGE_BYTES + index as u64;
        match entries.last_mut() {
            Some(last)
                if last.zero == zero
                    && last.first_page + u64::from(last.pages) == page
                    && last.pages < u32::MAX =>
            {
                last.pages += 1;
            }
            _ => entries.push(Entry { first_page: page, pages: 1, zero }),
        }
    }
    bytes.truncate(kept);
}
