//! Reading a journal: which records are whole and right, where the torn tail starts, what is
//! damage.
//!
//! Invariants:
//! - A record counts only if its head, its table, its bounds and the checksum of its body are
//!   right, and all records before it count.
//! - Zeros up to the end of the file are the end of the journal: they were written ahead. Anything
//!   else that is no record is a *torn tail* when nothing follows that could be a later record of
//!   this journal; it is *damage* when something does, because a record is written only after the
//!   one before it was durable.
//! - A record whose checksums are right was written whole. Where its sizes do not fit the base,
//!   that is said; it is never taken for a torn tail.
//! - Nothing is written here: the caller that applies a journal says where to.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use holdfast_sys::file::next_data;
use xxhash_rust::xxh3::Xxh3;

use super::layout::{
    ENTRY_BYTES, Entry, JOURNAL_HEADER_BYTES, JournalHeader, RECORD_HEAD_BYTES, RECORD_MAGIC,
    RECORD_UNIT_BYTES, RecordHead,
};
use crate::media::format::LIMIT_UNIT_BYTES;
use crate::media::sparse::{PAGE_BYTES, buffer, is_zero};

/// Bytes read at once.
const CHUNK_BYTES: u64 = 256 << 10;

/// The whole records of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Sequence of the last one; 0 without one.
    pub(crate) last_sequence: u64,
    /// Where the last one starts.
    pub(crate) last_start: u64,
    /// Where the next one goes.
    pub(crate) end: u64,
    /// Backed bytes of the region after the last one.
    pub(crate) backed_bytes: u64,
    /// The last one says nothing but that the one before it was durable: see
    /// [`super::Journal::mark_end`].
    pub(crate) marked: bool,
    /// The file is longer, and not with zeros alone: a writer died while it appended.
    pub(crate) torn: bool,
}

impl Extent {
    /// Sequence of the last commit: the mark is none.
    pub(crate) fn commits(&self) -> u64 {
        self.last_sequence - u64::from(self.marked)
    }
}

/// Why a journal cannot be read or applied.
#[derive(Debug)]
pub(crate) enum ReadFault {
    Read(io::Error),
    Write(io::Error),
    /// The record with this sequence is damaged, at this offset, and was not the last.
    Damaged {
        sequence: u64,
        offset: u64,
    },
    /// The record with this sequence is right, and the region cannot have the bytes that it says.
    Misfit {
        sequence: u64,
        backed_bytes: u64,
        limit_bytes: u64,
    },
}

/// What is found of the body of a record whose head is right.
enum Body {
    Right,
    /// Some of its bytes are not those that were written.
    Wrong,
    /// They are, and do not fit the region.
    Misfit,
}

/// What is found behind the last record that is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// Nothing but zeros.
    Zeros,
    /// Something that is no record.
    Torn,
    /// The head of a later record.
    LaterRecord,
}

/// The sizes between which a region's backed bytes must lie.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) backed_bytes: u64,
    pub(crate) limit_bytes: u64,
}

/// Checks all records.
pub(crate) fn examine(
    file: &File,
    journal: &JournalHeader,
    sizes: Sizes,
) -> Result<Extent, ReadFault> {
    match whole_records(file, journal, sizes)? {
        (_, Some(damaged)) => Err(damaged),
        (extent, None) => Ok(extent),
    }
}

/// The records before the first one that is not whole, and what is wrong with that one unless it is
/// a torn tail.
pub(crate) fn whole_records(
    file: &File,
    journal: &JournalHeader,
    sizes: Sizes,
) -> Result<(Extent, Option<ReadFault>), ReadFault> {
    let len = file.metadata().map_err(ReadFault::Read)?.len();
    let start = JOURNAL_HEADER_BYTES as u64;
    let mut extent = Extent {
        last_sequence: 0,
        last_start: start,
        end: start,
        backed_bytes: sizes.backed_bytes,
        marked: false,
        torn: false,
    };
    let mut is_second_look = false;
    while extent.end < len {
        let sequence = extent.last_sequence + 1;
        let head =
            head_at(file, journal, extent.end, len)?.filter(|head| head.sequence == sequence);
        let body = match &head {
            Some(head) => check_body(file, journal, head, extent, sizes)?,
            None => Body::Wrong,
        };
        let head = match (head, body) {
            (Some(head), Body::Right) => head,
            (Some(head), Body::Misfit) => {
                let (backed_bytes, limit_bytes) = (head.backed_bytes, sizes.limit_bytes);
                return Ok((
                    extent,
                    Some(ReadFault::Misfit { sequence, backed_bytes, limit_bytes }),
                ));
            }
            _ => match rest(file, journal, sequence, extent.end, len)? {
                Rest::LaterRecord if !is_second_look => {
                    // A later one is written only after this one was: a writer may have done both
                    // meanwhile.
                    is_second_look = true;
                    continue;
                }
                Rest::LaterRecord => {
                    return Ok((extent, Some(ReadFault::Damaged { sequence, offset: extent.end })));
                }
                rest => {
                    extent.torn = rest == Rest::Torn;
                    break;
                }
            },
        };
        is_second_look = false;
        extent = Extent {
            last_sequence: sequence,
            last_start: extent.end,
            end: extent.end + RECORD_HEAD_BYTES as u64 + head.body_bytes,
            backed_bytes: head.backed_bytes,
            marked: head.entries == 0 && head.backed_bytes == extent.backed_bytes,
            torn: false,
        };
    }
    Ok((extent, None))
}

/// Gives the pages of all records of `extent` to `write`, with their place in the data area, in
/// order.
pub(crate) fn apply(
    file: &File,
    journal: &JournalHeader,
    extent: Extent,
    write: &mut dyn FnMut(&[u8], u64) -> io::Result<()>,
) -> Result<(), ReadFault> {
    let (mut offset, mut sequence) = (JOURNAL_HEADER_BYTES as u64, 1);
    while sequence <= extent.last_sequence {
        // It was right a moment ago; a medium that gives other bytes now is damaged.
        let damaged = || ReadFault::Damaged { sequence, offset };
        let head =
            head_at(file, journal, offset, extent.end)?.filter(|head| head.sequence == sequence);
        let head = head.ok_or_else(damaged)?;
        let table = table_of(file, &head, offset)?;
        let mut sum = Xxh3::with_seed(journal.seed(sequence));
        let mut position = offset + RECORD_HEAD_BYTES as u64;
        for entry in entries(&table) {
            let entry =
                entry.filter(|entry| fits(entry, extent.backed_bytes)).ok_or_else(damaged)?;
            let mut page_offset = entry.first_page * PAGE_BYTES;
            let mut left = u64::from(entry.pages) * PAGE_BYTES;
            let mut chunk = buffer(left.min(CHUNK_BYTES)).map_err(ReadFault::Read)?;
            while left > 0 {
                let bytes = &mut chunk[..left.min(CHUNK_BYTES) as usize];
                if !entry.zero {
                    file.read_exact_at(bytes, position).map_err(ReadFault::Read)?;
                    sum.update(bytes);
                    position += bytes.len() as u64;
                }
                write(bytes, page_offset).map_err(ReadFault::Write)?;
                page_offset += bytes.len() as u64;
                left -= bytes.len() as u64;
            }
        }
        sum.update(&table);
        if sum.digest() != head.body_checksum {
            return Err(damaged());
        }
        offset += RECORD_HEAD_BYTES as u64 + head.body_bytes;
        sequence += 1;
    }
    Ok(())
}

/// The head at an offset, if there is one whose record ends within `end`.
fn head_at(
    file: &File,
    journal: &JournalHeader,
    offset: u64,
    end: u64,
) -> Result<Option<RecordHead>, ReadFault> {
    let body_start = offset + RECORD_HEAD_BYTES as u64;
    if body_start > end {
        return Ok(None);
    }
    let mut bytes = [0; RECORD_HEAD_BYTES];
    file.read_exact_at(&mut bytes, offset).map_err(ReadFault::Read)?;
    Ok(RecordHead::decode(&bytes, journal).filter(|head| {
        head.body_bytes <= end - body_start
            && head.table_bytes() <= head.body_bytes
            && (head.body_bytes - head.table_bytes()).is_multiple_of(PAGE_BYTES)
    }))
}

/// Checks a body that ends within the file, as [`head_at`] made sure.
fn check_body(
    file: &File,
    journal: &JournalHeader,
    head: &RecordHead,
    extent: Extent,
    sizes: Sizes,
) -> Result<Body, ReadFault> {
    let start = extent.end + RECORD_HEAD_BYTES as u64;
    let mut sum = Xxh3::with_seed(journal.seed(head.sequence));
    let mut chunk = buffer(head.body_bytes.min(CHUNK_BYTES)).map_err(ReadFault::Read)?;
    let (mut position, end) = (start, start + head.body_bytes);
    while position < end {
        let bytes = &mut chunk[..(end - position).min(CHUNK_BYTES) as usize];
        file.read_exact_at(bytes, position).map_err(ReadFault::Read)?;
        sum.update(bytes);
        position += bytes.len() as u64;
    }
    if sum.digest() != head.body_checksum {
        return Ok(Body::Wrong);
    }
    let fits_region = (extent.backed_bytes..=sizes.limit_bytes).contains(&head.backed_bytes)
        && head.backed_bytes.is_multiple_of(LIMIT_UNIT_BYTES);
    if !fits_region {
        return Ok(Body::Misfit);
    }
    let table = table_of(file, head, extent.end)?;
    let mut data_pages = 0;
    for entry in entries(&table) {
        match entry {
            Some(entry) if fits(&entry, head.backed_bytes) => {
                data_pages += if entry.zero { 0 } else { u64::from(entry.pages) };
            }
            _ => return Ok(Body::Misfit),
        }
    }
    let is_whole = data_pages * PAGE_BYTES == head.body_bytes - head.table_bytes();
    Ok(if is_whole { Body::Right } else { Body::Misfit })
}

fn table_of(file: &File, head: &RecordHead, offset: u64) -> Result<Vec<u8>, ReadFault> {
    let mut table = buffer(head.table_bytes()).map_err(ReadFault::Read)?;
    let at = offset + RECORD_HEAD_BYTES as u64 + head.body_bytes - head.table_bytes();
    file.read_exact_at(&mut table, at).map_err(ReadFault::Read)?;
    Ok(table)
}

fn entries(table: &[u8]) -> impl Iterator<Item = Option<Entry>> {
    let (whole, _) = table.as_chunks::<ENTRY_BYTES>();
    whole.iter().map(Entry::decode)
}

fn fits(entry: &Entry, backed_bytes: u64) -> bool {
    let end = entry.first_page.checked_add(u64::from(entry.pages));
    end.is_some_and(|end| end <= backed_bytes / PAGE_BYTES)
}

/// What the file has from `from` on, and whether a head of a record later than `sequence` is
/// anywhere in it. An applet cannot plant one in its pages: it does not know the salt.
fn rest(
    file: &File,
    journal: &JournalHeader,
    sequence: u64,
    from: u64,
    len: u64,
) -> Result<Rest, ReadFault> {
    let overlap = RECORD_HEAD_BYTES as u64 - RECORD_UNIT_BYTES;
    let mut chunk = buffer((len - from).min(CHUNK_BYTES + overlap)).map_err(ReadFault::Read)?;
    let mut found = Rest::Zeros;
    let mut position = from;
    while position < len {
        // A file can claim any length: holes cost no time. A head begins with its magic, so in no
        // hole.
        let Some(data) = next_data(file, position).map_err(ReadFault::Read)? else { break };
        position = position
            .max(from + data.start.saturating_sub(from) / RECORD_UNIT_BYTES * RECORD_UNIT_BYTES);
        if position >= len {
            break;
        }
        let bytes = &mut chunk[..(len - position).min(CHUNK_BYTES + overlap) as usize];
        file.read_exact_at(bytes, position).map_err(ReadFault::Read)?;
        position += CHUNK_BYTES;
        if is_zero(bytes) {
            continue;
        }
        found = Rest::Torn;
        for start in (0..bytes.len()).step_by(RECORD_UNIT_BYTES as usize) {
            let Some(candidate) = bytes[start..].first_chunk::<RECORD_HEAD_BYTES>() else { break };
            if candidate.starts_with(&RECORD_MAGIC)
                && RecordHead::decode(candidate, journal)
                    .is_some_and(|head| head.sequence > sequence)
            {
                return Ok(Rest::LaterRecord);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::format::DATA_OFFSET;
    use crate::media::journal::Record;

    const SIZES: Sizes = Sizes { backed_bytes: 64 << 10, limit_bytes: 1 << 20 };

    /// A journal of two records, of one page each; where the second one starts.
    fn two_records() -> (JournalHeader, Vec<u8>, usize) {
        let header =
            JournalHeader { uuid: [3; 16], checkpoint_count: 1, base_checksum: 2, salt: 0xfeed };
        let image = tempfile::tempfile().unwrap();
        image.set_len(DATA_OFFSET + SIZES.backed_bytes).unwrap();
        image.write_all_at(&[7; 2 * 4096], DATA_OFFSET).unwrap();
        let mut bytes = header.encode().to_vec();
        let mut second = 0;
        for sequence in [1, 2] {
            second = bytes.len();
            let pages = (sequence - 1) * 4096..sequence * 4096;
            let record =
                Record::build(&image, &[pages], SIZES.backed_bytes, &header, sequence, 0).unwrap();
            bytes.extend(record.bytes());
        }
        (header, bytes, second)
    }

    fn file_of(bytes: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file
    }

    #[test]
    fn a_last_record_cut_off_at_any_length_is_a_torn_tail() {
        let (header, bytes, second) = two_records();
        let file = file_of(&bytes);
        let whole = examine(&file, &header, SIZES).unwrap();
        assert_eq!((whole.last_sequence, whole.end, whole.torn), (2, bytes.len() as u64, false));
        for len in (second..bytes.len()).rev() {
            file.set_len(len as u64).unwrap();
            let extent = examine(&file, &header, SIZES).unwrap();
            assert_eq!((extent.last_sequence, extent.end), (1, second as u64), "length {len}");
            assert_eq!(extent.torn, len > second, "length {len}");
        }
    }

    /// The search behind the last record read a journal of 1 TiB of zeros byte by byte, for
    /// minutes.
    #[test]
    fn a_hole_behind_the_records_costs_no_time() {
        let (header, bytes, second) = two_records();
        let file = file_of(&bytes);
        file.set_len(1 << 40).unwrap();
        let extent = examine(&file, &header, SIZES).unwrap();
        assert_eq!((extent.last_sequence, extent.torn), (2, false));
        // What is somewhere in it is found all the same.
        file.write_all_at(b"something", 1 << 39).unwrap();
        assert!(examine(&file, &header, SIZES).unwrap().torn);
        // The second record far behind a first one that is none.
        let file = file_of(&bytes[..4096]);
        file.set_len(1 << 40).unwrap();
        file.write_all_at(b"something", 4096).unwrap();
        file.write_all_at(&bytes[second..], (1 << 39) + 48).unwrap();
        assert!(matches!(
            examine(&file, &header, SIZES),
            Err(ReadFault::Damaged { sequence: 1, .. })
        ));
    }

    /// A record that is whole and does not fit the region is no torn tail.
    #[test]
    fn ill_fitting_whole_record_is_no_torn_tail() {
        let (header, bytes, _) = two_records();
        let file = file_of(&bytes);
        for (backed_bytes, limit_bytes) in [(64 << 10, 32 << 10), (128 << 10, 1 << 20)] {
            let fault = examine(&file, &header, Sizes { backed_bytes, limit_bytes }).unwrap_err();
            assert!(
                matches!(fault, ReadFault::Misfit { sequence: 1, backed_bytes: 65_536, .. }),
                "{backed_bytes}, {limit_bytes}: {fault:?}"
            );
        }
    }

    /// A flipped bit is damage in any byte of the first record and a torn tail in the last.
    #[test]
    fn flipped_bit_is_damage_first_and_torn_tail_last() {
        let (header, bytes, second) = two_records();
        let file = file_of(&bytes);
        for position in JOURNAL_HEADER_BYTES..bytes.len() {
            let flipped = bytes[position] ^ (1 << (position % 8));
            file.write_all_at(&[flipped], position as u64).unwrap();
            match examine(&file, &header, SIZES) {
                Err(ReadFault::Damaged { sequence: 1, .. }) => {
                    assert!(position < second, "byte {position}")
                }
                Ok(extent) => assert_eq!(
                    (extent.last_sequence, extent.torn, position >= second),
                    (1, true, true),
                    "byte {position}"
                ),
                Err(fault) => panic!("byte {position}: {fault:?}"),
            }
            file.write_all_at(&bytes[position..=position], position as u64).unwrap();
        }
    }
}
