//! The redo log of a region in `atomic` mode: a file beside the image that makes a commit of many
//! changes one.
//!
//! A commit writes what changed and where it belongs, then the header: that is the moment it
//! counts. Then the changes go to the image, and the header is cleared. The next opener finds a
//! header that counts and finishes the commit.
//!
//! Invariants:
//! - The header is written after everything that it describes. A process that dies leaves what it
//!   wrote, in the order in which it wrote it; whatever loses the image loses the redo log with it:
//!   a reset of the machine, a user who empties the pool.
//! - In a pool that outlives the boot every step is durable before the next one is made: changes
//!   and table, header, image, the header's end.
//! - A log belongs to one image: another UUID or image generation makes it void.
//! - A log that counts and cannot be read, or that a newer program wrote, is an error: without it
//!   the image may be half of a publication.
//! - Applying it twice gives the same bytes as once.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use holdfast_sys::file::private_options;
use xxhash_rust::xxh3::Xxh3;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{FileRemedy, RegionError};
use crate::media::format::{DATA_OFFSET, Header};
use crate::media::image::{FileFault, Image};
use crate::media::sparse::{PAGE_BYTES, buffer};
use crate::media::storage::Storage;

const MAGIC: [u8; 8] = *b"HFSTREDO";
const VERSION: u32 = 1;
/// Where the table of ranges starts.
const TABLE_OFFSET: u64 = PAGE_BYTES;
/// A log that is longer is cut back to this after the commit; it takes room in the pool.
const KEPT_BYTES: u64 = 16 << 20;
/// Bytes that are written to the log, or copied from it to the image, at a time.
const PIECE_BYTES: u64 = 256 << 10;
/// The log grows in such steps.
const STEP_BYTES: u64 = 256 << 10;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct LogHeader {
    magic: [u8; 8],
    version: U32,
    reserved: U32,
    uuid: [u8; 16],
    image_generation: U64,
    /// Ranges in the table; 0 when nothing is to be done.
    count: U64,
    /// XXH3-64 of all before and of the table.
    sum: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Entry {
    /// In the data area.
    offset: U64,
    bytes: U64,
}

const HEADER_BYTES: usize = size_of::<LogHeader>();
const ENTRY_BYTES: u64 = size_of::<Entry>() as u64;
const _: () = assert!(HEADER_BYTES == 56 && ENTRY_BYTES == 16);

/// The log of an open region.
#[derive(Debug)]
pub(crate) struct Redo {
    file: File,
    path: PathBuf,
    allocated_bytes: u64,
    /// It outlives the boot, so each step is synced.
    outlives_boot: bool,
    /// A header that could neither be made durable nor taken back.
    may_count: bool,
}

impl Redo {
    /// Makes the log, or takes over one that an earlier writer left and that is not needed any
    /// more.
    pub(crate) fn open(
        storage: &dyn Storage,
        path: PathBuf,
        outlives_boot: bool,
    ) -> io::Result<Redo> {
        let file = match private_options().read(true).write(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => storage.create(&path)?,
            other => other?,
        };
        storage.allocate(&file, 0..2 * PAGE_BYTES)?;
        storage.write_at(&file, LogHeader::new_zeroed().as_bytes(), 0)?;
        let log =
            Redo { file, path, allocated_bytes: 2 * PAGE_BYTES, outlives_boot, may_count: false };
        if outlives_boot {
            storage.sync(&log.file)?;
            // A log without its name would be no log.
            storage.sync_directory(log.path.parent().unwrap_or(Path::new("/")))?;
        }
        Ok(log)
    }

    fn make_durable(&self, storage: &dyn Storage) -> io::Result<()> {
        if self.outlives_boot { storage.sync_data(&self.file) } else { Ok(()) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a commit of these ranges of the data area, whose bytes `read` gives. When it returns,
    /// the commit counts, though the image does not have it yet; when it fails, it does not count.
    pub(crate) fn write<'a>(
        &mut self,
        storage: &dyn Storage,
        header: &Header,
        ranges: &[Range<u64>],
        read: impl Fn(&Range<u64>) -> &'a [u8],
    ) -> io::Result<()> {
        let payload: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let payload_start = payload_offset(ranges.len() as u64);
        if payload_start + payload > self.allocated_bytes {
            let end = (payload_start + payload).next_multiple_of(STEP_BYTES);
            storage.allocate(&self.file, self.allocated_bytes..end)?;
            self.allocated_bytes = end;
        }
        let table: Vec<Entry> = ranges
            .iter()
            .map(|range| Entry {
                offset: range.start.into(),
                bytes: (range.end - range.start).into(),
            })
            .collect();
        let (mut piece, mut at) = (table.as_bytes().to_vec(), TABLE_OFFSET);
        piece.resize((payload_start - TABLE_OFFSET) as usize, 0);
        for range in ranges {
            for bytes in read(range).chunks(PIECE_BYTES as usize) {
                if piece.len() + bytes.len() > PIECE_BYTES as usize {
                    storage.write_at(&self.file, &piece, at)?;
                    at += piece.len() as u64;
                    piece.clear();
                }
                piece.extend_from_slice(bytes);
            }
        }
        storage.write_at(&self.file, &piece, at)?;
        self.make_durable(storage)?;
        let mut log = LogHeader {
            magic: MAGIC,
            version: VERSION.into(),
            reserved: U32::ZERO,
            uuid: header.uuid,
            image_generation: header.image_generation.into(),
            count: (ranges.len() as u64).into(),
            sum: U64::ZERO,
        };
        log.sum = sum(&log, table.as_bytes()).into();
        storage.write_at(&self.file, log.as_bytes(), 0)?;
        self.make_durable(storage).inspect_err(|_| {
            // Whether it counts after a reset is not known; after the death of this process it
            // would.
            let zeros = LogHeader::new_zeroed();
            self.may_count = storage.write_at(&self.file, zeros.as_bytes(), 0).is_err();
        })
    }

    /// Whether a commit that failed may count all the same.
    pub(crate) fn may_count(&self) -> bool {
        self.may_count
    }

    /// The image has the commit: forgets it.
    pub(crate) fn clear(&mut self, storage: &dyn Storage) -> io::Result<()> {
        storage.write_at(&self.file, LogHeader::new_zeroed().as_bytes(), 0)?;
        self.make_durable(storage)?;
        if self.allocated_bytes > KEPT_BYTES {
            storage.set_len(&self.file, KEPT_BYTES)?;
            self.allocated_bytes = KEPT_BYTES;
        }
        Ok(())
    }
}

/// Whether there is a log with a commit in it, of whatever image.
///
/// # Errors
/// What the kernel reports of a log that is there.
pub(crate) fn is_pending(path: &Path) -> io::Result<bool> {
    let file = match private_options().read(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    let mut header = [0; HEADER_BYTES];
    match file.read_exact_at(&mut header, 0) {
        // Its writer is making it, or died there.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| header.starts_with(&MAGIC)),
    }
}

/// Whether there is a log with a commit in it that belongs to this image.
///
/// # Errors
/// As [`recover`].
pub(crate) fn counts(path: &Path, image: &Header) -> io::Result<bool> {
    match private_options().read(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        opened => Ok(read_table(&opened?, image)?.is_some()),
    }
}

/// The error of a log that could not be read, or put into the image.
pub(crate) fn log_error(step: &'static str, path: &Path, source: io::Error) -> RegionError {
    match newer_version(path) {
        Some(version) if source.kind() == io::ErrorKind::Unsupported => {
            let remedy = FileRemedy::RestoreFile { path: path.to_owned() };
            FileFault::Newer { version, flags: 0 }.into_error(path, remedy)
        }
        _ => RegionError::Io { step, path: path.to_owned(), source },
    }
}

/// Finishes the commit of a writer that died in the middle of it, if there is one for this image;
/// whether there was.
///
/// # Errors
/// `Unsupported` when a newer program wrote the log (see [`log_error`]); what the kernel reports.
pub(crate) fn recover(storage: &dyn Storage, image: &Image, path: &Path) -> io::Result<bool> {
    let file = match private_options().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    let write =
        &mut |bytes: &[u8], offset| storage.write_at(&image.file, bytes, DATA_OFFSET + offset);
    let pending = replay(&file, &image.header, write)?;
    if pending {
        if image.outlives_boot {
            storage.sync_data(&image.file)?;
        }
        storage.write_at(&file, LogHeader::new_zeroed().as_bytes(), 0)?;
        if image.outlives_boot {
            storage.sync_data(&file)?;
        }
    }
    Ok(pending)
}

/// Gives the pages of a commit that counts and belongs to the image to `write`, with their place in
/// the data area; whether there is one.
pub(crate) fn replay(
    file: &File,
    image: &Header,
    write: &mut dyn FnMut(&[u8], u64) -> io::Result<()>,
) -> io::Result<bool> {
    let Some(table) = read_table(file, image)? else { return Ok(false) };
    let mut at = payload_offset(table.len() as u64);
    let longest = table.iter().map(|entry| entry.bytes.get()).max().unwrap_or(0);
    let mut piece = buffer(longest.min(PIECE_BYTES))?;
    for entry in &table {
        let (mut offset, end) = (entry.offset.get(), entry.offset.get() + entry.bytes.get());
        while offset < end {
            let bytes = (end - offset).min(PIECE_BYTES);
            piece.resize(bytes as usize, 0);
            file.read_exact_at(&mut piece, at)?;
            write(&piece, offset)?;
            offset += bytes;
            at += bytes;
        }
    }
    Ok(true)
}

/// The image generation that a log with a commit in it says it is for.
pub(crate) fn generation(path: &Path) -> Option<u64> {
    pending_header(path).map(|log| log.image_generation.get())
}

/// The version of a log with a commit in it, if this program does not know it.
fn newer_version(path: &Path) -> Option<u32> {
    pending_header(path).map(|log| log.version.get()).filter(|version| *version > VERSION)
}

fn pending_header(path: &Path) -> Option<LogHeader> {
    let mut log = LogHeader::new_zeroed();
    let file = private_options().read(true).open(path).ok()?;
    file.read_exact_at(log.as_mut_bytes(), 0).ok()?;
    (log.magic == MAGIC).then_some(log)
}

/// The table of a commit that counts and belongs to the image.
fn read_table(file: &File, image: &Header) -> io::Result<Option<Vec<Entry>>> {
    let file_bytes = file.metadata()?.len();
    let mut log = LogHeader::new_zeroed();
    if file_bytes < TABLE_OFFSET {
        return Ok(None);
    }
    file.read_exact_at(log.as_mut_bytes(), 0)?;
    let ours = log.magic == MAGIC
        && log.version.get() >= VERSION
        && log.uuid == image.uuid
        && log.image_generation.get() == image.image_generation;
    let count = log.count.get();
    if !ours || count > (file_bytes - TABLE_OFFSET) / ENTRY_BYTES {
        return Ok(None);
    }
    let mut bytes = buffer(count * ENTRY_BYTES)?;
    file.read_exact_at(&mut bytes, TABLE_OFFSET)?;
    if log.sum.get() != sum(&log, &bytes) {
        return Ok(None);
    }
    // A later version keeps header, table and sum, so that this is no damage.
    if log.version.get() > VERSION {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut payload_end = payload_offset(count);
    let mut table = Vec::new();
    table
        .try_reserve_exact(count as usize)
        .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    for entry in bytes.chunks_exact(ENTRY_BYTES as usize) {
        let Ok(entry) = Entry::read_from_bytes(entry) else { return Ok(None) };
        payload_end = payload_end.saturating_add(entry.bytes.get());
        let end = entry.offset.get().checked_add(entry.bytes.get());
        if end.is_none_or(|end| end > image.backed_bytes) || payload_end > file_bytes {
            return Ok(None);
        }
        table.push(entry);
    }
    Ok(Some(table))
}

fn payload_offset(count: u64) -> u64 {
    (TABLE_OFFSET + count * ENTRY_BYTES).next_multiple_of(PAGE_BYTES)
}

fn sum(log: &LogHeader, table: &[u8]) -> u64 {
    let head = &log.as_bytes()[..HEADER_BYTES - size_of::<U64>()];
    let mut sum = Xxh3::new();
    sum.update(head);
    sum.update(table);
    sum.digest()
}
