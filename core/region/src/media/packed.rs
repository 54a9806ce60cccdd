//! Packed base files: the data of a small region as its bytes that are not zero, right behind the
//! header slots, as `docs/format.md` draws them.
//!
//! A data area of a few objects has something in pages far apart. In its own place each takes a
//! block of the disk, and the file one more to say where they are; packed, they share one.
//!
//! Invariants:
//! - What is unpacked is that of which the head's sum is right, and has the length that the header
//!   says; whether the bytes themselves are right, `data_checksum` of the header tells.
//! - Unpacking takes memory for the bytes that there are, whatever the file claims.
//! - Only base files are packed, and snapshots: nothing that is mapped, or changed in place.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use holdfast_sys::file::{anonymous, next_data};
use xxhash_rust::xxh3::Xxh3;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::media::format::{
    DATA_OFFSET, LIMIT_UNIT_BYTES, PACKED_BYTES_MAX, PACKED_BYTES_MIN, PACKED_DATA_BYTES_MAX,
    PACKED_OFFSET,
};
use crate::media::sparse::{PAGE_BYTES, buffer};

/// First bytes of the packed part.
const MAGIC: [u8; 8] = *b"HFPACKED";
/// Areas that have more pages with something in them are not looked at.
const PAGES_MAX: u64 = 64;
const WORD_BYTES: usize = 8;
/// So many words of zeros between two runs take as much room as an entry of the table.
const GAP_WORDS: usize = size_of::<Run>() / WORD_BYTES;

/// All integers are little endian.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct Head {
    magic: [u8; 8],
    /// Of the area that was packed.
    data_bytes: U64,
    /// Entries of the table, which follows; the bytes of the runs follow that, one after the other.
    runs: U32,
    reserved: U32,
    /// XXH3-64 of the fields above and of the table.
    sum: U64,
}

/// An entry of the table.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct Run {
    /// In the data area.
    offset: U32,
    bytes: U32,
}

const HEAD_BYTES: usize = size_of::<Head>();
const SUM_OFFSET: usize = HEAD_BYTES - 8;
const _: () = assert!(HEAD_BYTES as u64 == PACKED_BYTES_MIN && size_of::<Run>() == 8);
const _: () = assert!(std::mem::offset_of!(Head, data_bytes) == 8);
const _: () = assert!(std::mem::offset_of!(Head, runs) == 16);
const _: () = assert!(std::mem::offset_of!(Head, sum) == SUM_OFFSET);
const _: () = assert!(std::mem::offset_of!(Run, bytes) == 4);

/// What salvage can read of a packed part that may be damaged.
#[derive(Debug)]
pub(crate) struct Remains {
    pub(crate) data_bytes: u64,
    /// Where in the data area something is missing first; `None` where nothing is.
    pub(crate) missing_from: Option<u64>,
    /// The bytes that there are, at their offsets.
    pub(crate) runs: Vec<(u64, Vec<u8>)>,
    /// Head and table are as they were written.
    pub(crate) is_whole: bool,
}

impl Remains {
    /// The whole area, zeros where nothing is left.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(crate) fn into_bytes(self) -> io::Result<Vec<u8>> {
        let mut bytes = buffer(self.data_bytes)?;
        for (offset, run) in self.runs {
            // They lie in the area.
            if let Some(target) =
                bytes.get_mut(offset as usize..).and_then(|rest| rest.get_mut(..run.len()))
            {
                target.copy_from_slice(&run);
            }
        }
        Ok(bytes)
    }
}

/// The packed form of the data area of a sparse file; `None` where it would be too long, or take as
/// many blocks as the pages do.
///
/// # Errors
/// What the kernel reports.
pub(crate) fn pack(file: &File, data_bytes: u64) -> io::Result<Option<Vec<u8>>> {
    if data_bytes > PACKED_DATA_BYTES_MAX {
        return Ok(None);
    }
    let (mut table, mut contents) = (Vec::new(), Vec::new());
    let (mut pages, mut position, end) = (0, DATA_OFFSET, DATA_OFFSET + data_bytes);
    while position < end {
        let Some(data) = next_data(file, position)? else { break };
        let start = (data.start / PAGE_BYTES * PAGE_BYTES).clamp(position, end);
        position = data.end.next_multiple_of(PAGE_BYTES).clamp(start, end);
        pages += (position - start) / PAGE_BYTES;
        if pages > PAGES_MAX {
            return Ok(None);
        }
        let mut bytes = buffer(position - start)?;
        file.read_exact_at(&mut bytes, start)?;
        add_runs(&bytes, (start - DATA_OFFSET) as u32, &mut table, &mut contents);
    }
    let packed_bytes = HEAD_BYTES + size_of_val(&table[..]) + contents.len();
    let takes_less = (packed_bytes as u64).div_ceil(PAGE_BYTES) < pages;
    if packed_bytes as u64 > PACKED_BYTES_MAX || !takes_less {
        return Ok(None);
    }
    let mut head = Head {
        magic: MAGIC,
        data_bytes: data_bytes.into(),
        runs: (table.len() as u32).into(),
        reserved: 0.into(),
        sum: 0.into(),
    };
    head.sum = sum(&head, table.as_bytes()).into();
    Ok(Some([head.as_bytes(), table.as_bytes(), &contents].concat()))
}

/// Adds the parts of whole pages that are not zero, in words.
fn add_runs(bytes: &[u8], offset: u32, table: &mut Vec<Run>, contents: &mut Vec<u8>) {
    let words = bytes.as_chunks::<WORD_BYTES>().0;
    let is_zero = |word: &[u8; WORD_BYTES]| *word == [0; WORD_BYTES];
    let mut at = 0;
    while let Some(zeros) = words[at..].iter().position(|word| !is_zero(word)) {
        let start = at + zeros;
        let mut end = start + 1;
        // Up to a gap that is worth an entry.
        while let Some(more) =
            words[end..].iter().take(GAP_WORDS + 1).position(|word| !is_zero(word))
        {
            end += more + 1;
        }
        let range = start * WORD_BYTES..end * WORD_BYTES;
        let (offset, bytes_of_run) = (offset + range.start as u32, range.len() as u32);
        table.push(Run { offset: offset.into(), bytes: bytes_of_run.into() });
        contents.extend_from_slice(&bytes[range]);
        at = end;
    }
}

/// What was packed, as a file in memory that has it where an unpacked one does.
///
/// # Errors
/// `InvalidData` when head or table are not what was written, `UnexpectedEof` when the file is too
/// short, and what the kernel reports.
pub(crate) fn unpack(file: &File, packed_bytes: u64, data_bytes: u64) -> io::Result<File> {
    if packed_bytes > PACKED_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut packed = buffer(packed_bytes)?;
    file.read_exact_at(&mut packed, PACKED_OFFSET)?;
    let (head, table, contents) = parts(&packed).ok_or(io::ErrorKind::InvalidData)?;
    let is_whole = head.sum.get() == sum(&head, table.as_bytes())
        && head.data_bytes.get() == data_bytes
        && fit(table, contents.len(), data_bytes);
    if !is_whole {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let unpacked = anonymous("holdfast-unpacked", DATA_OFFSET + data_bytes)?;
    let mut rest = contents;
    for run in table {
        let (bytes, after) = rest.split_at(run.bytes.get() as usize);
        unpacked.write_all_at(bytes, DATA_OFFSET + u64::from(run.offset.get()))?;
        rest = after;
    }
    Ok(unpacked)
}

/// Whether the runs are in order, apart from each other and in the area, and all bytes are theirs.
fn fit(table: &[Run], contents_bytes: usize, data_bytes: u64) -> bool {
    let (mut next, mut bytes) = (0, 0);
    let in_order = table.iter().all(|run| {
        let (start, run_bytes) = (u64::from(run.offset.get()), u64::from(run.bytes.get()));
        let fits = start >= next && run_bytes > 0 && start + run_bytes <= data_bytes;
        (next, bytes) = (start + run_bytes, bytes + run_bytes);
        fits
    });
    in_order && bytes == contents_bytes as u64
}

/// Whatever a packed part still has: runs that lie in the area, in the order of the table. A
/// damaged table may give some of them another place; then the sum of the data does not match.
/// Where no header says that the file is packed, and how large the area was, the head must; `None`
/// when it does not.
///
/// # Errors
/// What the kernel reports.
pub(crate) fn salvage(file: &File, data_bytes: Option<u64>) -> io::Result<Option<Remains>> {
    let found_bytes = file.metadata()?.len().saturating_sub(PACKED_OFFSET).min(PACKED_BYTES_MAX);
    let mut packed = buffer(found_bytes)?;
    file.read_exact_at(&mut packed, PACKED_OFFSET)?;
    let Ok((head, rest)) = Head::read_from_prefix(&packed) else {
        let nothing = |data_bytes| Remains {
            data_bytes,
            missing_from: Some(0),
            runs: Vec::new(),
            is_whole: false,
        };
        return Ok(data_bytes.map(nothing));
    };
    let claims = head.magic == MAGIC && head.data_bytes.get() <= PACKED_DATA_BYTES_MAX;
    // No region could be opened that has a size which regions do not have.
    let claimed = claims.then(|| head.data_bytes.get().max(1).next_multiple_of(LIMIT_UNIT_BYTES));
    let Some(data_bytes) = data_bytes.or(claimed) else { return Ok(None) };
    let runs = head.runs.get() as usize;
    let table_bytes = runs.saturating_mul(size_of::<Run>()).min(rest.len());
    let (table, mut contents) = rest.split_at(table_bytes);
    let is_whole = head.magic == MAGIC
        && head.data_bytes.get() == data_bytes
        && head.sum.get() == sum(&head, table);
    let mut remains = Remains { data_bytes, missing_from: None, runs: Vec::new(), is_whole };
    let mut end = 0;
    for entry in table.chunks_exact(size_of::<Run>()) {
        let Ok(run) = Run::read_from_bytes(entry) else { break };
        let (offset, bytes) = (u64::from(run.offset.get()), run.bytes.get() as usize);
        let (present, after) = contents.split_at(bytes.min(contents.len()));
        contents = after;
        end = offset + present.len() as u64;
        if end > data_bytes {
            continue;
        }
        remains.runs.push((offset, present.to_vec()));
        if present.len() < bytes {
            remains.missing_from = Some(end);
            return Ok(Some(remains));
        }
    }
    if table.len() / size_of::<Run>() < runs {
        remains.missing_from = Some(end.min(data_bytes));
    }
    Ok(Some(remains))
}

/// Head, table and bytes of a packed part; `None` when it is none.
fn parts(packed: &[u8]) -> Option<(Head, &[Run], &[u8])> {
    let (head, rest) = Head::read_from_prefix(packed).ok()?;
    if head.magic != MAGIC {
        return None;
    }
    let (table, contents) =
        <[Run]>::ref_from_prefix_with_elems(rest, head.runs.get() as usize).ok()?;
    Some((head, table, contents))
}

fn sum(head: &Head, table: &[u8]) -> u64 {
    let mut sum = Xxh3::new();
    sum.update(&head.as_bytes()[..SUM_OFFSET]);
    sum.update(table);
    sum.digest()
}

#[cfg(test)]
mod tests {
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;
    use crate::media::sparse::sum_and_copy;

    const DATA_BYTES: u64 = 4 << 20;

    fn sparse(pieces: &[(u64, &[u8])]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(DATA_OFFSET + DATA_BYTES).unwrap();
        for (offset, bytes) in pieces {
            file.write_all_at(bytes, DATA_OFFSET + offset).unwrap();
        }
        file
    }

    fn laid(packed: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(packed, PACKED_OFFSET).unwrap();
        file
    }

    fn whole(file: &File) -> Vec<u8> {
        let mut bytes = vec![0; DATA_BYTES as usize];
        file.read_exact_at(&mut bytes, DATA_OFFSET).unwrap();
        bytes
    }

    /// What is packed comes back byte for byte, at the edges of words, pages and of the area, too.
    #[test]
    fn packed_data_comes_back() {
        let source = sparse(&[
            (0, b"first"),
            (16, b"near"),
            (40, b"behind a gap"),
            (4090, b"over the edge of a page"),
            (1 << 20, &[7; 300]),
            (DATA_BYTES - 1, b"x"),
        ]);
        let packed = pack(&source, DATA_BYTES).unwrap().unwrap();
        assert!(packed.len() < 600, "{}", packed.len());
        let unpacked = unpack(&laid(&packed), packed.len() as u64, DATA_BYTES).unwrap();
        assert!(whole(&unpacked) == whole(&source));
        let sums = [&source, &unpacked].map(|file| sum_and_copy(file, DATA_BYTES, None).unwrap());
        assert_eq!(sums[0], sums[1]);
        let remains = salvage(&laid(&packed), None).unwrap().unwrap();
        assert_eq!((remains.data_bytes, remains.missing_from), (DATA_BYTES, None));
    }

    /// Much data, and data that lies together, stay where they are.
    #[test]
    fn what_would_not_get_smaller_is_not_packed() {
        assert!(pack(&sparse(&[]), DATA_BYTES).unwrap().is_none());
        assert!(pack(&sparse(&[(0, &[7; 4096])]), DATA_BYTES).unwrap().is_none());
        assert!(pack(&sparse(&[(0, &[7; 300 << 10])]), DATA_BYTES).unwrap().is_none());
        let apart: Vec<(u64, &[u8])> = (0..65).map(|page| (page << 13, &[7_u8; 8][..])).collect();
        assert!(pack(&sparse(&apart[..64]), DATA_BYTES).unwrap().is_some());
        assert!(pack(&sparse(&apart), DATA_BYTES).unwrap().is_none());
    }

    /// The bytes as docs/format.md gives them; a change here is a new version.
    #[test]
    fn the_bytes_of_a_packed_part_never_change() {
        let source = sparse(&[(8, b"first"), (1 << 20, b"the second")]);
        let packed = pack(&source, DATA_BYTES).unwrap().unwrap();
        assert_eq!(&packed[..24], b"HFPACKED\0\0\x40\0\0\0\0\0\x02\0\0\0\0\0\0\0");
        let table = b"\x08\0\0\0\x08\0\0\0\0\0\x10\0\x10\0\0\0";
        assert_eq!(&packed[32..48], table);
        assert_eq!(packed[24..32], xxh3_64(&[&packed[..24], table].concat()).to_le_bytes());
        assert_eq!(&packed[48..], b"first\0\0\0the second\0\0\0\0\0\0");
    }

    /// A flipped bit of head or table is found, whatever it says.
    #[test]
    fn damaged_head_or_table_is_found() {
        let source = sparse(&[(8, b"first"), (1 << 20, b"the second")]);
        let packed = pack(&source, DATA_BYTES).unwrap().unwrap();
        for position in 0..48 {
            for bit in 0..8 {
                let mut damaged = packed.clone();
                damaged[position] ^= 1 << bit;
                // The four bytes that mean nothing are summed as well.
                let error = unpack(&laid(&damaged), packed.len() as u64, DATA_BYTES).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidData, "bit {bit} of {position}");
                // Whatever comes of it, it ends, and lies in the area.
                for known in [None, Some(DATA_BYTES)] {
                    let Some(remains) = salvage(&laid(&damaged), known).unwrap() else { continue };
                    let fits = |(offset, bytes): &(u64, Vec<u8>)| {
                        offset + bytes.len() as u64 <= remains.data_bytes
                    };
                    assert!(remains.runs.iter().all(fits));
                }
            }
        }
        for bytes in 0..packed.len() {
            assert!(unpack(&laid(&packed[..bytes]), packed.len() as u64, DATA_BYTES).is_err());
            assert!(unpack(&laid(&packed[..bytes]), bytes as u64, DATA_BYTES).is_err());
        }
    }

    /// A table whose sum was made right and whose runs are impossible is damage.
    #[test]
    fn sealed_table_with_impossible_runs_is_damaged() {
        let source = sparse(&[(8, b"first"), (1 << 20, b"the second")]);
        let packed = pack(&source, DATA_BYTES).unwrap().unwrap();
        let impossible: [(usize, u32); 7] = [
            (16, u32::MAX),
            (16, 1),
            (32, 1 << 20),
            (36, 0),
            (36, u32::MAX),
            (40, 12),
            (40, DATA_BYTES as u32 - 8),
        ];
        for (position, value) in impossible {
            let mut damaged = packed.clone();
            damaged[position..position + 4].copy_from_slice(&value.to_le_bytes());
            let sum = xxh3_64(&[&damaged[..24], &damaged[32..48]].concat());
            damaged[24..32].copy_from_slice(&sum.to_le_bytes());
            let error = unpack(&laid(&damaged), packed.len() as u64, DATA_BYTES).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{value} at {position}");
        }
        // One that is of another area.
        assert!(unpack(&laid(&packed), packed.len() as u64, DATA_BYTES * 2).is_err());
    }

    /// Of a part that was cut off, what is before the cut comes back.
    #[test]
    fn cut_off_part_gives_what_is_left() {
        let source = sparse(&[(8, b"first"), (1 << 20, b"the second")]);
        let packed = pack(&source, DATA_BYTES).unwrap().unwrap();
        let cut = |bytes: usize| salvage(&laid(&packed[..bytes]), None).unwrap();
        assert!(cut(31).is_none());
        let known = salvage(&laid(&packed[..31]), Some(DATA_BYTES)).unwrap().unwrap();
        assert_eq!((known.data_bytes, known.missing_from), (DATA_BYTES, Some(0)));
        let remains = cut(44).unwrap();
        assert_eq!(remains.missing_from, Some(8));
        let remains = cut(packed.len() - 10).unwrap();
        assert_eq!(remains.missing_from, Some((1 << 20) + 6));
        assert_eq!(remains.runs[1], (1 << 20, b"the se".to_vec()));
    }
}
