//! Copying and summing a data area without touching its holes.
//!
//! The sum is XXH3-64 of all bytes, holes included as zeros, so it does not depend on which zeros
//! happen to be holes. Pages of zeros are not written: in a fresh target they stay holes.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use holdfast_sys::file::next_data;
use holdfast_sys::zeroed::zeroed;

use crate::media::format::DATA_OFFSET;
use crate::media::long_sum::LongSum;
use crate::media::storage::Storage;
use crate::media::turns::{Stages, in_turns, threads_for};

/// Unit of what is a hole and what is data.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// Bytes read at once: fits the second-level cache, so that summing and writing find them there.
const CHUNK_BYTES: usize = 256 << 10;

/// The same for threads that take turns: so much that to wake one takes little time beside it.
const TURN_BYTES: usize = 1 << 20;

/// So much is handed to the disk at once, while the next is still summed.
const WRITE_OUT_BYTES: u64 = 1 << 20;

static ZEROS: [u8; CHUNK_BYTES] = [0; CHUNK_BYTES];

/// What was found in a data area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DataSum {
    /// XXH3-64 of all bytes.
    pub(crate) checksum: u64,
    /// Pages that are not all zero.
    pub(crate) pages: u64,
}

/// Which side of a copy failed.
#[derive(Debug)]
pub(crate) enum CopyError {
    /// The source could not be read, or is too short.
    Read(io::Error),
    /// The target could not be written.
    Write(io::Error),
}

/// Zeros to read into. Without memory it is an error, where `vec!` would end the process.
pub(crate) fn buffer(bytes: u64) -> io::Result<Vec<u8>> {
    zeroed(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Sums the first `data_bytes` bytes of the data area of `source`; with a target, copies all pages
/// that are not zero to the same place in it.
pub(crate) fn sum_and_copy(
    source: &File,
    data_bytes: u64,
    target: Option<(&dyn Storage, &File)>,
) -> Result<DataSum, CopyError> {
    if target.is_none() {
        return sum(source, data_bytes).map_err(CopyError::Read);
    }
    let (mut pages, mut begun) = (0, DATA_OFFSET);
    let checksum = sum_each(source, data_bytes, |bytes, position| {
        pages += write_pages(bytes, position, target).map_err(CopyError::Write)?;
        let written = position + bytes.len() as u64;
        if let Some((storage, file)) = target
            && written - begun >= WRITE_OUT_BYTES
        {
            storage.begin_write_out(file, begun..written);
            begun = written;
        }
        Ok(())
    })?;
    Ok(DataSum { checksum, pages })
}

/// Reads on several threads, which sum in turn what each has read.
fn sum(source: &File, data_bytes: u64) -> io::Result<DataSum> {
    let zero = DataState { sum: AreaSum::new(), pages: 0 };
    let pieces = Pieces::new(source, data_bytes, TURN_BYTES);
    let stages = Summing { source };
    let found = in_turns(threads_for(data_bytes), &stages, pieces, zero, |()| Ok(()))?;
    check_length(source, data_bytes)?;
    Ok(DataSum { checksum: found.sum.finish(data_bytes), pages: found.pages })
}

struct Summing<'a> {
    source: &'a File,
}

struct DataState {
    sum: AreaSum,
    pages: u64,
}

impl Stages for Summing<'_> {
    type Piece = Piece;
    /// What was read, and how many of its pages are not zero.
    type Desk = (Vec<u8>, u64);
    type State = DataState;
    type Done = ();

    fn desk(&self) -> io::Result<(Vec<u8>, u64)> {
        Ok((buffer(TURN_BYTES as u64)?, 0))
    }

    fn prepare(&self, (buffer, pages): &mut (Vec<u8>, u64), piece: &Piece) -> io::Result<()> {
        let bytes = &mut buffer[..piece.len];
        self.source.read_exact_at(bytes, piece.position)?;
        *pages = write_pages(bytes, piece.position, None)?;
        Ok(())
    }

    fn add(&self, state: &mut DataState, (buffer, pages): &mut (Vec<u8>, u64), piece: Piece) {
        // Pieces are in order.
        let _ = state.sum.add(&buffer[..piece.len], piece.position - DATA_OFFSET);
        state.pages += *pages;
    }
}

/// Sums as [`sum_and_copy`] does, and shows `visit` the bytes of the file that are no hole, with
/// their position in it, in whole pages and in order.
pub(crate) fn sum_each<E: From<CopyError>>(
    source: &File,
    data_bytes: u64,
    mut visit: impl FnMut(&[u8], u64) -> Result<(), E>,
) -> Result<u64, E> {
    let mut sum = AreaSum::new();
    let mut buffer = buffer(CHUNK_BYTES as u64).map_err(CopyError::Read)?;
    for piece in Pieces::new(source, data_bytes, CHUNK_BYTES) {
        let Piece { position, len } = piece.map_err(CopyError::Read)?;
        let bytes = &mut buffer[..len];
        source.read_exact_at(bytes, position).map_err(CopyError::Read)?;
        // Pieces are in order.
        let _ = sum.add(bytes, position - DATA_OFFSET);
        visit(bytes, position)?;
    }
    check_length(source, data_bytes).map_err(CopyError::Read)?;
    Ok(sum.finish(data_bytes))
}

/// A source that was cut off meanwhile looks like one that ends in a hole.
fn check_length(source: &File, data_bytes: u64) -> io::Result<()> {
    if source.metadata()?.len() < DATA_OFFSET + data_bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

/// Bytes of a file that are no hole, in whole pages.
struct Piece {
    position: u64,
    len: usize,
}

/// The pieces of a data area, in order. After an error there is none.
struct Pieces<'a> {
    source: &'a File,
    position: u64,
    /// Of the data that `position` is in.
    data_end: u64,
    end: u64,
    len_max: usize,
}

impl<'a> Pieces<'a> {
    fn new(source: &'a File, data_bytes: u64, len_max: usize) -> Pieces<'a> {
        let (position, end) = (DATA_OFFSET, DATA_OFFSET + data_bytes);
        Pieces { source, position, data_end: position, end, len_max }
    }

    fn find_data(&mut self) -> io::Result<()> {
        let data = next_data(self.source, self.position)?.unwrap_or(self.end..self.end);
        // Extents need not be page-aligned; a page that is partly data is data.
        let start = (data.start / PAGE_BYTES * PAGE_BYTES).clamp(self.position, self.end);
        self.data_end = data.end.next_multiple_of(PAGE_BYTES).clamp(start, self.end);
        self.position = start;
        Ok(())
    }
}

impl Iterator for Pieces<'_> {
    type Item = io::Result<Piece>;

    fn next(&mut self) -> Option<io::Result<Piece>> {
        while self.position >= self.data_end {
            if self.position >= self.end {
                return None;
            }
            if let Err(error) = self.find_data() {
                (self.position, self.data_end) = (self.end, self.end);
                return Some(Err(error));
            }
        }
        let len = (self.data_end - self.position).min(self.len_max as u64);
        let piece = Piece { position: self.position, len: len as usize };
        self.position += len;
        Some(Ok(piece))
    }
}

/// Writes the data area of a new file in order, and sums it as it is written: each piece is in the
/// cache for both. What is left out is a hole.
pub(crate) struct SummedWriter<'a> {
    target: (&'a dyn Storage, &'a File),
    sum: AreaSum,
    pages: u64,
    /// So far the data were handed to the disk.
    begun: u64,
}

impl<'a> SummedWriter<'a> {
    pub(crate) fn new(storage: &'a dyn Storage, file: &'a File) -> SummedWriter<'a> {
        SummedWriter { target: (storage, file), sum: AreaSum::new(), pages: 0, begun: 0 }
    }

    /// Writes bytes at an offset in the data that is not before the end of what was written;
    /// offset and length are whole pages.
    pub(crate) fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        for (piece, offset) in bytes.chunks(CHUNK_BYTES).zip((offset..).step_by(CHUNK_BYTES)) {
            if !self.sum.add(piece, offset) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            self.pages += write_pages(piece, DATA_OFFSET + offset, Some(self.target))?;
        }
        let end = self.sum.end;
        if end - self.begun >= WRITE_OUT_BYTES {
            let (storage, file) = self.target;
            storage.begin_write_out(file, DATA_OFFSET + self.begun..DATA_OFFSET + end);
            self.begun = end;
        }
        Ok(())
    }

    /// What a data area of this length holds, which ends in a hole.
    pub(crate) fn finish(self, data_bytes: u64) -> DataSum {
        DataSum { checksum: self.sum.finish(data_bytes), pages: self.pages }
    }
}

/// The sum of a data area whose pieces come in order; what is left out is zero.
pub(crate) struct AreaSum {
    sum: LongSum,
    /// So far it was summed.
    end: u64,
}

impl AreaSum {
    pub(crate) fn new() -> AreaSum {
        AreaSum { sum: LongSum::new(), end: 0 }
    }

    /// Adds the bytes at an offset; false, with nothing added, where that is before what was
    /// summed.
    #[must_use]
    pub(crate) fn add(&mut self, bytes: &[u8], offset: u64) -> bool {
        let Some(zeros) = offset.checked_sub(self.end) else { return false };
        add_zeros(&mut self.sum, zeros);
        self.sum.update(bytes);
        self.end = offset + bytes.len() as u64;
        true
    }

    /// The sum of an area of this length.
    pub(crate) fn finish(mut self, data_bytes: u64) -> u64 {
        add_zeros(&mut self.sum, data_bytes.saturating_sub(self.end));
        self.sum.digest()
    }
}

fn add_zeros(sum: &mut LongSum, mut count: u64) {
    while count > 0 {
        let step = count.min(CHUNK_BYTES as u64);
        sum.update(&ZEROS[..step as usize]);
        count -= step;
    }
}

/// Writes the runs of pages that are not zero; returns how many pages they have.
pub(crate) fn write_pages(
    bytes: &[u8],
    position: u64,
    target: Option<(&dyn Storage, &File)>,
) -> io::Result<u64> {
    let page_bytes = PAGE_BYTES as usize;
    let mut pages = 0;
    let mut offset = 0;
    while offset < bytes.len() {
        let run = bytes[offset..].chunks(page_bytes).take_while(|page| !is_zero(page)).count();
        if run == 0 {
            offset += page_bytes;
            continue;
        }
        let run_end = (offset + run * page_bytes).min(bytes.len());
        if let Some((storage, file)) = target {
            storage.write_at(file, &bytes[offset..run_end], position + offset as u64)?;
        }
        pages += run as u64;
        offset = run_end;
    }
    Ok(pages)
}

/// Works on blocks without an early way out inside, so that the compiler can use vector
/// instructions.
pub(crate) fn is_zero(page: &[u8]) -> bool {
    page.chunks(256).all(|block| block.iter().fold(0, |seen, byte| seen | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::storage::KernelStorage;
    use std::os::unix::fs::MetadataExt;
    use xxhash_rust::xxh3::xxh3_64;

    const DATA_BYTES: u64 = 8 << 20;

    fn sparse_file(pieces: &[(u64, &[u8])]) -> (File, Vec<u8>) {
        let file = tempfile::tempfile().unwrap();
        file.set_len(DATA_OFFSET + DATA_BYTES).unwrap();
        let mut expected = vec![0; DATA_BYTES as usize];
        for (offset, bytes) in pieces {
            file.write_all_at(bytes, DATA_OFFSET + offset).unwrap();
            expected[*offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        (file, expected)
    }

    /// The sum is that of all bytes and the copy is identical with its holes.
    #[test]
    fn sum_covers_all_bytes_and_copy_keeps_holes() {
        let zeros = [0; 3 * 4096];
        let (source, expected) = sparse_file(&[
            (0, b"first"),
            (5000, b"middle of a page"),
            (1 << 20, &[7; 300 << 10]),
            (4 << 20, &zeros),
            (DATA_BYTES - 1, b"x"),
        ]);
        let target = tempfile::tempfile().unwrap();
        target.set_len(DATA_OFFSET + DATA_BYTES).unwrap();
        let found = sum_and_copy(&source, DATA_BYTES, Some((&KernelStorage, &target))).unwrap();
        assert_eq!(found.checksum, xxh3_64(&expected));
        assert_eq!(found.pages, 1 + 1 + 75 + 1);
        let mut copied = vec![0; DATA_BYTES as usize];
        target.read_exact_at(&mut copied, DATA_OFFSET).unwrap();
        assert!(copied == expected);
        assert!(target.metadata().unwrap().blocks() * 512 <= 80 * 4096);
        assert_eq!(sum_and_copy(&target, DATA_BYTES, None).unwrap(), found);
    }

    /// What is written piece by piece is summed as the whole is, and its zeros are holes.
    #[test]
    fn written_pieces_are_summed_as_the_whole() {
        let (source, expected) =
            sparse_file(&[(4096, b"first"), (1 << 20, &[7; 300 << 10]), (6 << 20, b"last")]);
        let found = sum_and_copy(&source, DATA_BYTES, None).unwrap();
        let target = tempfile::tempfile().unwrap();
        target.set_len(DATA_OFFSET + DATA_BYTES).unwrap();
        let mut writer = SummedWriter::new(&KernelStorage, &target);
        for range in [4096..12_288, 1 << 20..3 << 20, 6 << 20..(6 << 20) + 4096] {
            writer.write(&expected[range.clone()], range.start as u64).unwrap();
        }
        assert!(writer.write(&[1; 4096], 4096).is_err(), "it goes one way");
        assert_eq!(writer.finish(DATA_BYTES), found);
        assert_eq!(sum_and_copy(&target, DATA_BYTES, None).unwrap(), found);
        assert!(target.metadata().unwrap().blocks() * 512 <= 80 * 4096);
    }

    /// A large area, read and summed by threads that take turns, has the sum that one thread finds
    /// for it, and one that is cut off is noticed.
    #[test]
    fn threads_find_the_sum_that_one_finds() {
        const LARGE_BYTES: u64 = 64 << 20;
        let (source, _) = sparse_file(&[(4096, b"first"), (1 << 20, &[7; 3 << 20])]);
        source.set_len(DATA_OFFSET + LARGE_BYTES).unwrap();
        let noise: Vec<u8> =
            (0..5_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8 | 1).collect();
        source.write_all_at(&noise, DATA_OFFSET + (20 << 20) + 12_288).unwrap();
        source.write_all_at(b"last", DATA_OFFSET + LARGE_BYTES - 4).unwrap();
        let mut pages = 0;
        let checksum = sum_each::<CopyError>(&source, LARGE_BYTES, |bytes, position| {
            pages += write_pages(bytes, position, None).map_err(CopyError::Read)?;
            Ok(())
        });
        let expected = DataSum { checksum: checksum.unwrap(), pages };
        for _ in 0..20 {
            assert_eq!(sum_and_copy(&source, LARGE_BYTES, None).unwrap(), expected);
        }
        assert_eq!(expected.pages, 1 + 768 + 1280 + 1);
        source.set_len(DATA_OFFSET + (24 << 20)).unwrap();
        assert!(matches!(sum_and_copy(&source, LARGE_BYTES, None), Err(CopyError::Read(_))));
    }

    #[test]
    fn a_source_that_is_too_short_is_an_error_and_no_hole() {
        let (source, _) = sparse_file(&[(0, b"first")]);
        source.set_len(DATA_OFFSET + DATA_BYTES / 2).unwrap();
        assert!(matches!(sum_and_copy(&source, DATA_BYTES, None), Err(CopyError::Read(_))));
    }
}
