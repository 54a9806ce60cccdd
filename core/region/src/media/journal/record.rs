//! Making a record: the pages of an image that changed, as the bytes of one commit.
//!
//! A small record, and one of a region with many writers, is built whole in memory, so that writers
//! need to be kept away only while it is built; a large one of a single writer is streamed. Pages
//! of zeros cost an entry of the table and no bytes.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use holdfast_sys::mapping::prefer_huge_pages;
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use super::layout::{ENTRY_BYTES, Entry, JournalHeader, RECORD_HEAD_BYTES, RecordHead};
use crate::media::format::DATA_OFFSET;
use crate::media::sparse::{PAGE_BYTES, is_zero};
use crate::media::storage::Storage;

/// Bytes read at once.
const CHUNK_BYTES: u64 = 256 << 10;
/// Bytes written at once by [`stream`].
const PIECE_BYTES: usize = 512 << 10;

/// Where the pages of a record come from.
pub(crate) trait PageSource {
    /// Appends bytes of the data area.
    fn append(&self, range: Range<u64>, bytes: &mut Vec<u8>) -> io::Result<()>;
}

/// An image that is not mapped.
impl PageSource for File {
    fn append(&self, range: Range<u64>, bytes: &mut Vec<u8>) -> io::Result<()> {
        let at = bytes.len();
        bytes.resize(at + (range.end - range.start) as usize, 0);
        self.read_exact_at(&mut bytes[at..], DATA_OFFSET + range.start)
    }
}

/// One commit, ready to be appended.
#[derive(Debug)]
pub(crate) struct Record {
    /// From `start` on.
    buffer: Vec<u8>,
    start: usize,
    pub(crate) sequence: u64,
    /// Pages whose bytes are in it.
    pub(crate) pages: u64,
}

impl Record {
    /// Takes the ranges (page-aligned, in order, apart from each other, within the data area) from
    /// a source, for a record that goes to `offset` in the journal.
    pub(crate) fn build(
        source: &(impl PageSource + ?Sized),
        ranges: &[Range<u64>],
        backed_bytes: u64,
        journal: &JournalHeader,
        sequence: u64,
        offset: u64,
    ) -> io::Result<Record> {
        let dirty_bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let mut bytes = Vec::new();
        // An allocation that fails is an error value, and the caller falls back to a base file. The
        // table has an entry for each page at most.
        let table = (dirty_bytes / PAGE_BYTES) as usize * ENTRY_BYTES;
        let room = PAGE_BYTES as usize + RECORD_HEAD_BYTES + table + dirty_bytes as usize;
        bytes.try_reserve_exact(room).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        prefer_huge_pages(bytes.spare_capacity_mut());
        // Memory and file at the same place in their pages: copies between them are several times
        // as fast.
        let start = offset.wrapping_sub(bytes.as_ptr() as u64) % PAGE_BYTES;
        let start = start as usize;
        bytes.resize(start + RECORD_HEAD_BYTES, 0);
        let mut entries: Vec<Entry> = Vec::new();
        for range in ranges {
            let mut position = range.start;
            while position < range.end {
                let wanted = (range.end - position).min(CHUNK_BYTES);
                let at = bytes.len();
                source.append(position..position + wanted, &mut bytes)?;
                keep_data_pages(&mut bytes, at, position, &mut entries);
                position += wanted;
            }
        }
        let body_start = start + RECORD_HEAD_BYTES;
        let pages = ((bytes.len() - body_start) as u64) / PAGE_BYTES;
        for entry in &entries {
            bytes.extend_from_slice(&entry.encode());
        }
        let body = &bytes[body_start..];
        let head = RecordHead {
            entries: entries.len() as u32,
            sequence,
            backed_bytes,
            body_bytes: body.len() as u64,
            body_checksum: xxh3_64_with_seed(body, journal.seed(sequence)),
        };
        bytes[start..body_start].copy_from_slice(&head.encode(journal));
        Ok(Record { buffer: bytes, start, sequence, pages })
    }

    /// All of it.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..]
    }
}

/// What a record that was streamed has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Streamed {
    pub(crate) bytes: u64,
    pub(crate) pages: u64,
}

/// Writes a record through a small buffer to `offset` of a file, its head last, so that it counts
/// only when all of it is there: for who keeps writers away until the end. `is_whole` says whether
/// what the source gave can be believed.
pub(crate) fn stream(
    source: &(impl PageSource + ?Sized),
    ranges: &[Range<u64>],
    backed_bytes: u64,
    (journal, sequence): (&JournalHeader, u64),
    (storage, file, offset): (&dyn Storage, &File, u64),
    is_whole: impl Fn() -> bool,
) -> io::Result<Streamed> {
    let body_start = offset + RECORD_HEAD_BYTES as u64;
    let (mut sum, mut position, mut pages) =
        (Xxh3::with_seed(journal.seed(sequence)), body_start, 0);
    let (mut piece, mut entries) = (Vec::with_capacity(2 * PIECE_BYTES), Vec::new());
    let mut put = |piece: &mut Vec<u8>| {
        sum.update(piece);
        storage.write_at(file, piece, position)?;
        position += piece.len() as u64;
        piece.clear();
        io::Result::Ok(())
    };
    for range in ranges {
        let mut at = range.start;
        while at < range.end {
            let (wanted, start) = ((range.end - at).min(CHUNK_BYTES), piece.len());
            source.append(at..at + wanted, &mut piece)?;
            keep_data_pages(&mut piece, start, at, &mut entries);
            pages += (piece.len() - start) as u64 / PAGE_BYTES;
            at += wanted;
            if piece.len() >= PIECE_BYTES {
                put(&mut piece)?;
            }
        }
    }
    for entry in &entries {
        piece.extend_from_slice(&entry.encode());
    }
    put(&mut piece)?;
    if !is_whole() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let body_bytes = position - body_start;
    let head = RecordHead {
        entries: entries.len() as u32,
        sequence,
        backed_bytes,
        body_bytes,
        body_checksum: sum.digest(),
    };
    storage.write_at(file, &head.encode(journal), offset)?;
    Ok(Streamed { bytes: body_bytes + RECORD_HEAD_BYTES as u64, pages })
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
