//! The redo log beside the database, `DB-holdfast`: what has changed since the last checkpoint, in
//! records that each hold all blocks that changed since the one before.
//!
//! A record counts when it is whole: a sum over it and the salt of the log's generation says so.
//! Blocks are compressed where that pays; of one that the log has already, a short record says only
//! what changed. Space is written ahead with zeros, as much
//! again as the log has, so that most short records change no metadata of the file system, and one
//! `fdatasync` is one write of the disk. A program that opens a database for one commit has it write 16 KiB.
//!
//! Invariants:
//! - A block that is twice in a record counts as it is there last.
//! - What changed is said against the version that the records before have of the block, of the
//!   same generation: a recovery needs nothing but the log for it, and no torn page of the file.
//! - No record of this version is in a log that an earlier one began, which would take it for the
//!   end.
//! - Records are read in order and up to the first that is not whole; so the state is always as of
//!   some commit.
//! - The header names the database by a nonce that the mark in the database file has, too: a
//!   foreign log is never applied.
//! - It names the pool that goes on from it, too: see `owner/`.
//! - The log is begun again (another salt) only when all that it holds is in the database file, and
//!   durable.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io;
use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use holdfast_sys::file::{FileId, length, private_options, sync_directory};
use holdfast_sys::lease::{Lease, is_taken, take};
use holdfast_sys::mapping::prefer_huge_pages;
use holdfast_sys::write_out;
use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::apply::Blocks;
use crate::changes;
use crate::error::SqliteError;
use crate::file_names::{Names, folder_of};
use crate::image::BLOCK_BYTES;
use crate::owner::{OWNER_AT, Owner};

const MAGIC: &[u8; 8] = b"HFsqlog\x04";
/// Of the version whose records do not say what changed in a block.
const MAGIC_WITHOUT_CHANGES: &[u8; 8] = b"HFsqlog\x03";
/// Of the version whose records have whole blocks only.
const MAGIC_OF_WHOLE_BLOCKS: &[u8; 8] = b"HFsqlog\x02";
/// Of the version that did not say who its owner is either.
const MAGIC_WITHOUT_OWNER: &[u8; 8] = b"HFsqlog\x01";
const HEADER_BYTES: usize = 48;
/// In the header: see `at_rest.rs`.
pub(crate) const FOLDER_AT: usize = 32;
/// In place of a nonce: a close left the log, and it is of no database.
const NO_NONCE: u64 = 0;
const RECORD_HEADER_BYTES: usize = 64;
const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"HFrz");
/// Of earlier versions: numbers of blocks, zeros to the next sector, and whole blocks.
const RECORD_MAGIC_OF_WHOLE_BLOCKS: u32 = u32::from_le_bytes(*b"HFrc");
/// What a record has of each block before its bytes: its number, and how many they are.
const ENTRY_BYTES: usize = 6;
/// Set in how many bytes a block has in a record: they are what changed in it.
const IS_CHANGE: u16 = 1 << 15;
/// What changed is kept where it takes no more.
const CHANGE_BYTES_MAX: usize = BLOCK_BYTES / 2;
/// Of a block in succession: a recovery reads each.
const CHANGES_MAX: usize = 64;
/// Of a longer record all blocks are whole.
const CHANGED_BLOCKS_MAX: usize = 32;
/// A block is kept compressed where that is shorter by an eighth at least.
const COMPRESSED_BYTES_MAX: usize = BLOCK_BYTES - BLOCK_BYTES / 8;
/// After so many blocks for which that did not pay, only each so manieth is tried.
const MISSES_MAX: usize = 8;
/// Records begin at multiples of it.
const SECTOR_BYTES: u64 = 512;
/// Where the first record is.
pub(crate) const FIRST: u64 = BLOCK_BYTES as u64;
/// Of a new log, behind its header.
const FIRST_AHEAD_BYTES: u64 = 12 << 10;
const AHEAD_BYTES_MIN: u64 = 48 << 10;
const AHEAD_BYTES_MAX: u64 = 4 << 20;
/// A call writes so many bytes at most. The kernel keeps what one call writes in folios as large as
/// it can, and to write a part of a folio back it looks at each block of it: with folios of 2 MiB
/// that is a tenth of what a commit of a few KiB takes, for as long as the log is there.
const CALL_BYTES_MAX: usize = 64 << 10;
/// A log that has grown larger is shortened when it is begun again.
const KEPT_BYTES_MAX: u64 = 80 << 20;
/// A long record is written in pieces of this size: the kernel brings one to the disk while the next
/// one is copied.
const WRITTEN_AT_ONCE: usize = 4 << 20;
/// Memory for a record that is kept for the next one, if that is not much shorter.
const KEPT_MEMORY_MAX: usize = 16 << 20;
/// A record that is longer is no slower for the metadata that it changes: its space is not written
/// ahead.
const RECORD_BYTES_AHEAD_MAX: usize = 256 << 10;
/// Blocks of a record are read so many bytes at a time.
const PIECE_BYTES: usize = 256 << 10;
/// A process that has the log open has a shared lease of this byte, far behind its end: who finds
/// no image in its own pool sees by it that the database is at work in another one.
const LEASE_BYTE: u64 = 1 << 62;

/// Which generation of which log a header names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Generation {
    pub(crate) nonce: u64,
    pub(crate) salt: u64,
    /// The transaction as of which the database file was then.
    pub(crate) transaction: u64,
}

/// An open log.
#[derive(Debug)]
pub(crate) struct Log {
    id: FileId,
    file: File,
    path: PathBuf,
    /// As long as the file was when this process last looked.
    bytes: u64,
    /// When its name was last known to be durable; see `names.rs`.
    pub(crate) names: Option<Names>,
    /// With which folder its name was durable, for the next session: see `at_rest.rs`.
    pub(crate) folder_sum: u64,
    /// The last record that this process has seen.
    tip: Option<Tip>,
    /// Salt and number of the records that were all found here, after the last one was written.
    pub(crate) confirmed: Option<(u64, u64)>,
    /// The records of this generation, if this process wrote all of them.
    written: Option<Written>,
    draft: Draft,
}

/// Which slot of the image a block was copied from, and the transaction that wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) link: u32,
    pub(crate) transaction: u64,
}

/// A block as the log has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Logged {
    pub(crate) version: Version,
    /// XXH3-64 of its bytes: the sum of its record is not looked at where the pool has most blocks.
    sum: u64,
}

impl Logged {
    /// Whether these are the bytes that were put into the log.
    pub(crate) fn is(&self, page: &[u8]) -> bool {
        xxh3_64(page) == self.sum
    }
}

/// What one process wrote to a generation of the log.
#[derive(Debug)]
pub(crate) struct Written {
    salt: u64,
    pub(crate) contents: Contents,
    /// Of each block, the version that the log has.
    pub(crate) versions: HashMap<u32, Logged>,
    /// Of the database in its largest record, in bytes.
    longest: u64,
}

/// The record that is being put together.
#[derive(Debug, Default)]
struct Draft {
    /// Of each block its number, and how many bytes it has in `room`; see [`IS_CHANGE`].
    entries: Vec<(u32, Logged, u16)>,
    room: Vec<u8>,
    /// Of each block that is whole, where in `room`: a later version takes its place.
    whole: HashMap<u32, (usize, usize)>,
    /// The record's head, and the blocks behind it where they are few.
    head: Vec<u8>,
    /// For how many blocks in succession compression did not pay.
    misses: usize,
    /// A commit waits for it: see [`is_sparse`].
    is_awaited: bool,
    /// This process wrote all records before it.
    goes_on: bool,
}

/// Whether compressing a block takes next to no time: most of what a look at 64 of its words finds
/// is zero. Others take some 6 us each, of the 130 or so that a commit waits for its record; and the
/// disk takes a few KiB more in the same time.
fn is_sparse(page: &[u8; BLOCK_BYTES]) -> bool {
    let (words, _) = page.as_chunks::<8>();
    words.iter().step_by(8).filter(|word| **word == [0; 8]).count() > 40
}

/// A record of more blocks is compressed all the same: there it is the disk that takes longest.
const AWAITED_BLOCKS_MAX: usize = 16;

impl Draft {
    fn clear(&mut self) {
        self.entries.clear();
        self.room.clear();
        self.whole.clear();
    }

    fn put(
        &mut self,
        block: u32,
        version: Version,
        before: Option<&[u8; BLOCK_BYTES]>,
        page: &[u8; BLOCK_BYTES],
    ) {
        let logged = Logged { version, sum: xxh3_64(page) };
        // A version that is in this record already is not the one before.
        let is_first = self.entries.len() < CHANGED_BLOCKS_MAX
            && self.entries.iter().all(|(other, ..)| *other != block);
        if let Some(before) = before.filter(|_| is_first) {
            let at = self.room.len();
            if changes::put(before, page, &mut self.room, CHANGE_BYTES_MAX) {
                let bytes = (self.room.len() - at) as u16;
                self.entries.push((block, logged, bytes | IS_CHANGE));
                return;
            }
            self.room.truncate(at);
        }
        let mut compressed = [0; get_maximum_output_size(BLOCK_BYTES)];
        let is_short = self.is_awaited && self.entries.len() < AWAITED_BLOCKS_MAX;
        let is_tried = match is_short {
            true => is_sparse(page),
            false => self.misses < MISSES_MAX || self.entries.len().is_multiple_of(MISSES_MAX),
        };
        let bytes = match is_tried {
            true => compress_into(page, &mut compressed).unwrap_or(BLOCK_BYTES),
            false => BLOCK_BYTES,
        };
        if bytes <= COMPRESSED_BYTES_MAX {
            if !is_short {
                self.misses = 0;
            }
            self.room.extend_from_slice(&compressed[..bytes]);
            self.entries.push((block, logged, bytes as u16));
            // The next version of this block goes behind this one, as the last one counts.
            self.whole.remove(&block);
            return;
        }
        self.misses += usize::from(!is_short);
        if let Some((entry, at)) = self.whole.get(&block) {
            self.entries[*entry].1 = logged;
            self.room[*at..at + BLOCK_BYTES].copy_from_slice(page);
            return;
        }
        self.whole.insert(block, (self.entries.len(), self.room.len()));
        self.room.extend_from_slice(page);
        self.entries.push((block, logged, BLOCK_BYTES as u16));
    }

    /// Makes room for a long record at once, of huge pages: it is filled with commits kept out.
    fn reserve(&mut self, blocks: usize) {
        let bytes = blocks * BLOCK_BYTES;
        if bytes > KEPT_MEMORY_MAX {
            self.room.reserve_exact(bytes);
            prefer_huge_pages(self.room.spare_capacity_mut());
            self.entries.reserve(blocks);
            self.whole.reserve(blocks);
        }
    }

    /// Gives up memory that is too much to keep.
    fn shrink(&mut self) {
        let (used, kept) = (self.room.len(), self.room.capacity());
        if kept > KEPT_MEMORY_MAX || kept > AHEAD_BYTES_MAX as usize && used < kept / 4 {
            *self = Draft { misses: self.misses, ..Draft::default() };
        }
    }

    /// Fills in the head, with the sum over the record, and zeros to the next sector behind it all.
    fn seal(&mut self, [salt, sequence, transaction, size]: [u64; 4]) {
        let head = &mut self.head;
        head.clear();
        head.extend_from_slice(&RECORD_MAGIC.to_le_bytes());
        head.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
        for word in [salt, sequence, transaction, size, 0, self.room.len() as u64] {
            head.extend_from_slice(&word.to_le_bytes());
        }
        head.resize(RECORD_HEADER_BYTES, 0);
        for (block, _, bytes) in &self.entries {
            head.extend_from_slice(&block.to_le_bytes());
            head.extend_from_slice(&bytes.to_le_bytes());
        }
        let mut hasher = Xxh3::new();
        hasher.update(head);
        hasher.update(&self.room);
        head[40..48].copy_from_slice(&hasher.digest().to_le_bytes());
        let bytes = head.len() + self.room.len();
        self.room.resize(bytes.next_multiple_of(SECTOR_BYTES as usize) - head.len(), 0);
    }

    fn bytes(&self) -> usize {
        self.head.len() + self.room.len()
    }
}

/// Where a block is in a log, and how many bytes it has there: in the upper 16 bits, 0 for a whole
/// one.
#[derive(Debug, Clone, Copy)]
struct Place {
    at: u64,
    bytes: usize,
}

impl Place {
    /// No log is as long.
    const END: u64 = 1 << 48;

    fn of(word: u64) -> Place {
        let bytes = match (word >> 48) as usize {
            0 => BLOCK_BYTES,
            bytes => bytes,
        };
        Place { at: word & (Place::END - 1), bytes }
    }

    fn word(self) -> u64 {
        let bytes = if self.is_whole() { 0 } else { self.bytes as u64 };
        self.at | bytes << 48
    }

    fn is_whole(self) -> bool {
        self.bytes == BLOCK_BYTES
    }

    fn end(self) -> u64 {
        self.at + self.bytes as u64
    }
}

/// Where a record begins, by its number in a generation.
#[derive(Debug, Clone, Copy)]
struct Tip {
    salt: u64,
    sequence: u64,
    at: u64,
}

/// What a whole record says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    pub(crate) transaction: u64,
    /// Of the database, in bytes.
    pub(crate) size: u64,
    blocks: u32,
    /// Where its blocks begin, and where the next record does.
    pages: u64,
    end: u64,
    /// It has whole blocks only, as those of earlier versions.
    is_plain: bool,
}

/// What a whole record says, and of each block in it where that is, and whether what changed is
/// there.
type Whole = (Record, Vec<(u32, Place, bool)>);

/// What a record's head says, the sum over the record, and the head's bytes without that.
type Head = (Record, u64, [u8; RECORD_HEADER_BYTES]);

/// Bytes of a record's head with the numbers of its blocks, and of all of it with so many bytes of
/// blocks; in an earlier version or this one.
fn record_bytes(blocks: u32, bytes: u64, is_plain: bool) -> (u64, u64) {
    let (head, blocks) = (RECORD_HEADER_BYTES as u64, u64::from(blocks));
    if is_plain {
        let list = (head + blocks * 4).next_multiple_of(SECTOR_BYTES);
        return (list, list + blocks * BLOCK_BYTES as u64);
    }
    let list = head + blocks * ENTRY_BYTES as u64;
    // A record that says that it is longer than any is none.
    (list, (list + bytes.min(Place::END)).next_multiple_of(SECTOR_BYTES))
}

/// What a log holds.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// The last whole record.
    pub(crate) last: Option<Record>,
    /// Of each block, where its newest version is that is there as a whole.
    pub(crate) places: BTreeMap<u32, u64>,
    /// Of blocks that changed after that, where what changed is, in order.
    changes: HashMap<u32, Vec<Place>>,
    pub(crate) records: u64,
}

impl Generation {
    /// Of a log that a close left.
    const AT_REST: Generation = Generation { nonce: NO_NONCE, salt: 0, transaction: 0 };

    pub(crate) fn is_at_rest(self) -> bool {
        self.nonce == NO_NONCE
    }
}

impl Written {
    fn is(&self, salt: u64, records: u64) -> bool {
        (self.salt, self.contents.records) == (salt, records)
    }
}

impl Contents {
    /// A record has this of a block.
    fn note(&mut self, block: u32, place: Place, is_change: bool) {
        if is_change {
            self.changes.entry(block).or_default().push(place);
        } else {
            self.changes.remove(&block);
            self.places.insert(block, place.word());
        }
    }

    /// As what is written to a database file; nothing, where there is no record.
    pub(crate) fn blocks<'a>(&'a self, log: &'a Log) -> Blocks<'a> {
        let read = Box::new(|run: &[(u32, u64)], pages: &mut [u8]| {
            log.read_blocks(self, run, pages).map_err(SqliteError::io("read", log.path()))
        });
        Blocks { places: &self.places, size: self.last.map_or(0, |record| record.size), read }
    }
}

/// The first block of a log.
fn first_block(generation: Generation, owner: &Owner, folder_sum: u64) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    block[..HEADER_BYTES].copy_from_slice(&header(generation, folder_sum));
    block[OWNER_AT..].copy_from_slice(&owner.to_bytes());
    block
}

fn header(generation: Generation, folder_sum: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..16].copy_from_slice(&generation.nonce.to_le_bytes());
    header[16..24].copy_from_slice(&generation.salt.to_le_bytes());
    header[24..32].copy_from_slice(&generation.transaction.to_le_bytes());
    header[FOLDER_AT..FOLDER_AT + 8].copy_from_slice(&folder_sum.to_le_bytes());
    let sum = xxh3_64(&header[..40]);
    header[40..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
    header
}

/// Writes bytes, a call for each few; returns where they end.
fn write_parts(file: &File, bytes: &[u8], mut at: u64) -> io::Result<u64> {
    for part in bytes.chunks(CALL_BYTES_MAX) {
        file.write_all_at(part, at)?;
        at += part.len() as u64;
    }
    Ok(at)
}

/// Where the log of a database is.
pub(crate) fn log_path(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-holdfast");
    PathBuf::from(name)
}

impl Log {
    /// Makes a new log, durable with its name, in place of one that may be there. That one is not
    /// cleared: another database may have it open still, which was moved away from it.
    pub(crate) fn create(path: &Path, generation: Generation, owner: &Owner) -> io::Result<Log> {
        Log::remove(path)?;
        let file = private_options().read(true).write(true).create_new(true).open(path)?;
        let mut log = Log {
            id: FileId::of(&file)?,
            file,
            path: path.to_owned(),
            bytes: 0,
            names: None,
            folder_sum: 0,
            tip: None,
            confirmed: None,
            written: None,
            draft: Draft::default(),
        };
        log.show();
        let written = log.fill(generation, owner);
        if written.is_err() {
            // As if it had not been tried. What takes its place holds what it held, if anything.
            let _ = Log::remove(path);
        }
        written.map(|()| log)
    }

    fn fill(&mut self, generation: Generation, owner: &Owner) -> io::Result<()> {
        let mut start = first_block(generation, owner, 0).to_vec();
        start.resize((FIRST + FIRST_AHEAD_BYTES) as usize, 0);
        self.file.write_all_at(&start, 0)?;
        self.bytes = start.len() as u64;
        self.file.sync_all()?;
        sync_directory(folder_of(&self.path))
    }

    /// Opens a log; `None` when there is none.
    pub(crate) fn open(path: &Path) -> io::Result<Option<Log>> {
        let log = Log::look(path)?;
        if let Some(log) = &log {
            log.show();
        }
        Ok(log)
    }

    /// Has others see that it is open.
    pub(crate) fn show(&self) {
        // Where that is not to be had, another pool does not see us; all else works.
        let _ = take(&self.file, Lease::Shared, LEASE_BYTE, 1);
    }

    /// Opens a log to look into it: for those who ask who else has it open, this counts for none.
    pub(crate) fn look(path: &Path) -> io::Result<Option<Log>> {
        Log::at(path, private_options().read(true).write(true))
    }

    /// Opens a log of which nothing but what it says is asked.
    pub(crate) fn read_only(path: &Path) -> io::Result<Option<Log>> {
        Log::at(path, private_options().read(true))
    }

    fn at(path: &Path, options: &OpenOptions) -> io::Result<Option<Log>> {
        match options.open(path) {
            Ok(file) => {
                let bytes = length(&file)?;
                Ok(Some(Log {
                    id: FileId::of(&file)?,
                    file,
                    path: path.to_owned(),
                    bytes,
                    names: None,
                    folder_sum: 0,
                    tip: None,
                    confirmed: None,
                    written: None,
                    draft: Draft::default(),
                }))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a process has it open; it is not kept from anybody by the question.
    pub(crate) fn is_in_use(&self) -> io::Result<bool> {
        is_taken(&self.file, LEASE_BYTE, 1)
    }

    /// Whether no other process has it open, and until this is closed no other process will recover
    /// the database by it.
    pub(crate) fn is_alone(&self) -> io::Result<bool> {
        take(&self.file, Lease::Exclusive, LEASE_BYTE, 1)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// As long as the file was when this process last looked.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Which file it is, whatever its name names by now.
    pub(crate) fn id(&self) -> FileId {
        self.id
    }

    /// What the header says; `None` when it is not whole.
    pub(crate) fn generation(&self) -> io::Result<Option<Generation>> {
        Ok(self.header()?.map(|(generation, _)| generation))
    }

    /// The same, and whether this version began it.
    pub(crate) fn header(&self) -> io::Result<Option<(Generation, bool)>> {
        let mut header = [0; HEADER_BYTES];
        match self.file.read_exact_at(&mut header, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let word =
            |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap_or_default());
        let is_current = &header[..8] == MAGIC;
        let is_known = is_current
            || &header[..8] == MAGIC_WITHOUT_CHANGES
            || &header[..8] == MAGIC_OF_WHOLE_BLOCKS
            || &header[..8] == MAGIC_WITHOUT_OWNER;
        let is_whole = is_known && word(40) == xxh3_64(&header[..40]);
        let found = Generation { nonce: word(8), salt: word(16), transaction: word(24) };
        Ok(is_whole.then_some((found, is_current)))
    }

    /// Which pool goes on from it; `None` where an earlier version began it, or that is not whole.
    pub(crate) fn owner(&self) -> io::Result<Option<Owner>> {
        let mut block = [0; BLOCK_BYTES];
        match self.file.read_exact_at(&mut block, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let Ok(owner) = block[OWNER_AT..].try_into() else { return Ok(None) };
        Ok(Owner::from_bytes(owner).filter(|_| &block[..8] != MAGIC_WITHOUT_OWNER))
    }

    /// Whether a later version began it.
    pub(crate) fn is_newer(&self) -> io::Result<bool> {
        let mut magic = [0; MAGIC.len()];
        let read = self.file.read_at(&mut magic, 0)?;
        let last = MAGIC.len() - 1;
        Ok(read == magic.len() && magic[..last] == MAGIC[..last] && magic[last] > MAGIC[last])
    }

    /// Begins a new generation: what is in the log counts no more.
    pub(crate) fn restart(&mut self, generation: Generation, owner: &Owner) -> io::Result<()> {
        self.written = None;
        self.file.write_all_at(&first_block(generation, owner, self.folder_sum), 0)?;
        if self.bytes > KEPT_BYTES_MAX {
            self.file.set_len(KEPT_BYTES_MAX)?;
            self.bytes = KEPT_BYTES_MAX;
        }
        self.file.sync_data()
    }

    /// From now on it is of no database, whatever a mark says; not durably.
    pub(crate) fn rest(&self) -> io::Result<()> {
        self.file.write_all_at(&header(Generation::AT_REST, self.folder_sum), 0)
    }

    /// How long the file is: another process may have made it longer, or shorter.
    fn refresh(&mut self) -> io::Result<()> {
        self.bytes = length(&self.file)?;
        Ok(())
    }

    /// Writes a short record, and zeros ahead where it is the first one that goes beyond what is
    /// there: they need not be durable before it, as its sum tells a torn one.
    fn write_short(&mut self, at: u64) -> io::Result<()> {
        let Draft { head, room, .. } = &mut self.draft;
        head.extend_from_slice(room);
        let end = at + head.len() as u64;
        if end > self.bytes {
            // What another process wrote beyond what we know of is not to be cleared.
            self.refresh()?;
        }
        write_parts(&self.file, &self.draft.head, at)?;
        if end <= self.bytes {
            return Ok(());
        }
        let ahead = self.bytes.clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX);
        let (mut at, end) = (end, (end + ahead).next_multiple_of(FIRST));
        let zeros = vec![0; CALL_BYTES_MAX.min((end - at) as usize)];
        while at < end {
            let piece = &zeros[..zeros.len().min((end - at) as usize)];
            if let Err(error) = self.file.write_all_at(piece, at) {
                // The record is there: one that goes no further needs none of them.
                if !matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge) {
                    return Err(error);
                }
                return self.refresh();
            }
            at += piece.len() as u64;
        }
        self.bytes = end;
        Ok(())
    }

    /// Begins a record behind so many of a generation, whose blocks follow with [`Log::put`];
    /// whether a commit waits for it.
    pub(crate) fn begin(&mut self, (salt, records): (u64, u64), is_awaited: bool) {
        self.draft.clear();
        self.draft.is_awaited = is_awaited;
        self.draft.goes_on = self.wrote(salt, records);
    }

    /// The version of a block that the records before have, if the next one may say what changed
    /// since.
    pub(crate) fn version_before(&self, block: u32) -> Option<Version> {
        let Written { contents, versions, .. } =
            self.written.as_ref().filter(|_| self.draft.goes_on)?;
        let changes = contents.changes.get(&block).map_or(0, Vec::len);
        versions.get(&block).filter(|_| changes < CHANGES_MAX).map(|logged| logged.version)
    }

    /// The record will have so many blocks, about.
    pub(crate) fn expect(&mut self, blocks: usize) {
        self.draft.reserve(blocks);
    }

    /// Puts a block into the record, in this version, which `read` fills in; one of an earlier
    /// version that is there does not count any more. `before` is the block in the version of
    /// [`Log::version_before`].
    pub(crate) fn put<E>(
        &mut self,
        block: u32,
        version: Version,
        before: Option<&[u8; BLOCK_BYTES]>,
        read: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut page = [0; BLOCK_BYTES];
        read(&mut page)?;
        self.draft.put(block, version, before, &page);
        Ok(())
    }

    /// How many blocks the record has; one that is there twice counts twice.
    pub(crate) fn blocks(&self) -> u32 {
        self.draft.entries.len() as u32
    }

    /// Writes the record at `at` and waits until it is durable; returns where the next one goes.
    pub(crate) fn finish(
        &mut self,
        at: u64,
        (salt, sequence): (u64, u64),
        (transaction, size): (u64, u64),
    ) -> io::Result<u64> {
        self.draft.seal([salt, sequence, transaction, size]);
        let bytes = self.draft.bytes();
        let end = at + bytes as u64;
        if bytes > RECORD_BYTES_AHEAD_MAX {
            let pages_at = at + self.draft.head.len() as u64;
            write_parts(&self.file, &self.draft.head, at)?;
            let mut at = pages_at;
            for piece in self.draft.room.chunks(WRITTEN_AT_ONCE) {
                let piece_at = at;
                at = write_parts(&self.file, piece, at)?;
                // The sync below waits for what is left, and tells what failed.
                let _ = write_out::begin(&self.file, piece_at..at);
            }
            self.bytes = self.bytes.max(end);
        } else {
            self.write_short(at)?;
        }
        self.file.sync_data()?;
        // A commit that trusted its log has not looked for the record before this one: the look
        // behind it begins there.
        if self.confirmed != Some((salt, sequence)) {
            self.tip = Some(Tip { salt, sequence, at });
        }
        let blocks = self.blocks();
        let pages = at + record_bytes(blocks, 0, false).0;
        let record = Record { transaction, size, blocks, pages, end, is_plain: false };
        self.note_written((salt, sequence), record);
        self.draft.shrink();
        Ok(end)
    }

    /// Remembers what the record has, if this process wrote all before it, too.
    fn note_written(&mut self, (salt, sequence): (u64, u64), record: Record) {
        let written = match self.written.take() {
            Some(written) if written.is(salt, sequence) => written,
            _ if sequence > 0 => return,
            _ => Written {
                salt,
                contents: Contents::default(),
                versions: HashMap::new(),
                longest: 0,
            },
        };
        let Written { mut contents, mut versions, longest, .. } = written;
        let longest = longest.max(record.size);
        let mut at = record.pages;
        for (block, logged, bytes) in &self.draft.entries {
            let place = Place { at, bytes: usize::from(bytes & !IS_CHANGE) };
            contents.note(*block, place, bytes & IS_CHANGE != 0);
            versions.insert(*block, *logged);
            at = place.end();
        }
        contents.last = Some(record);
        contents.records = sequence + 1;
        self.written = Some(Written { salt, contents, versions, longest });
    }

    /// Whether this process wrote all records of a generation, and no more than these.
    fn wrote(&self, salt: u64, records: u64) -> bool {
        self.written.as_ref().is_some_and(|written| written.is(salt, records))
    }

    /// How long the database was at most as of a record of a generation, in bytes, if this process
    /// wrote all of them, and there are so many.
    pub(crate) fn longest(&self, salt: u64, records: u64) -> Option<u64> {
        match records {
            0 => Some(0),
            _ => self.written.as_ref().filter(|own| own.is(salt, records)).map(|own| own.longest),
        }
    }

    /// What this process wrote, if that is all of the generation: it is forgotten here.
    pub(crate) fn take_written(&mut self, salt: u64, records: u64) -> Option<Written> {
        self.written.take_if(|written| written.is(salt, records))
    }

    /// The head of the record at `at`, if it is the one that is expected: what it says, its sum,
    /// and its bytes without that.
    fn head(&self, at: u64, salt: u64, sequence: u64) -> io::Result<Option<Head>> {
        if at + RECORD_HEADER_BYTES as u64 > self.bytes {
            return Ok(None);
        }
        let mut header = [0; RECORD_HEADER_BYTES];
        self.file.read_exact_at(&mut header, at)?;
        let word =
            |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap_or_default());
        let blocks = (word(0) >> 32) as u32;
        let is_plain = word(0) as u32 == RECORD_MAGIC_OF_WHOLE_BLOCKS;
        let (list, bytes) = record_bytes(blocks, word(48), is_plain);
        let (pages, end) = (at + list, at + bytes);
        if !is_plain && word(0) as u32 != RECORD_MAGIC
            || word(8) != salt
            || word(16) != sequence
            || end > self.bytes.min(Place::END)
        {
            return Ok(None);
        }
        let (sum, transaction, size) = (word(40), word(24), word(32));
        header[40..48].fill(0);
        Ok(Some((Record { transaction, size, blocks, pages, end, is_plain }, sum, header)))
    }

    /// Whether so many records of a generation are there and end at `tail`, as far as their heads
    /// tell. Heads that were seen before are not read again, but the last one is.
    pub(crate) fn reaches(&mut self, salt: u64, records: u64, tail: u64) -> io::Result<bool> {
        self.refresh()?;
        let seen = self.tip.filter(|tip| tip.salt == salt && tip.sequence < records);
        let (mut sequence, mut at) = seen.map_or((0, FIRST), |tip| (tip.sequence, tip.at));
        while sequence < records {
            let Some((record, ..)) = self.head(at, salt, sequence)? else {
                self.tip = None;
                return Ok(false);
            };
            self.tip = Some(Tip { salt, sequence, at });
            (sequence, at) = (sequence + 1, record.end);
        }
        Ok(at == tail && tail <= self.bytes)
    }

    /// Whether the log has so many records of a generation, that end at `tail`: by their heads, or
    /// by all that is in them. Of its own records a process reads the heads.
    pub(crate) fn has(
        &mut self,
        (salt, records, tail): (u64, u64, u64),
        by_heads: bool,
    ) -> io::Result<bool> {
        match by_heads || self.wrote(salt, records) {
            true => self.reaches(salt, records, tail),
            false => self.contents(salt, records).map(|contents| contents.records == records),
        }
    }

    /// The record at `at`, if it is whole and the one that is expected, and where its blocks are.
    fn record(&self, at: u64, salt: u64, sequence: u64) -> io::Result<Option<Whole>> {
        let Some((record, sum, header)) = self.head(at, salt, sequence)? else { return Ok(None) };
        let mut hasher = Xxh3::new();
        hasher.update(&header);
        let list_at = at + RECORD_HEADER_BYTES as u64;
        let mut list = vec![0; (record.pages - list_at) as usize];
        self.file.read_exact_at(&mut list, list_at)?;
        hasher.update(&list);
        let mut places = Vec::new();
        let mut end = record.pages;
        let entry_bytes = if record.is_plain { 4 } else { ENTRY_BYTES };
        for entry in list.chunks_exact(entry_bytes).take(record.blocks as usize) {
            let block = u32::from_le_bytes(entry[..4].try_into().unwrap_or_default());
            let stored = match record.is_plain {
                true => BLOCK_BYTES as u16,
                false => u16::from_le_bytes([entry[4], entry[5]]),
            };
            let (bytes, is_change) = (usize::from(stored & !IS_CHANGE), stored & IS_CHANGE != 0);
            let place = Place { at: end, bytes };
            end = place.end();
            if !(1..=BLOCK_BYTES).contains(&bytes) || end > record.end {
                return Ok(None);
            }
            places.push((block, place, is_change));
        }
        let mut next = record.pages;
        let mut piece = vec![0; PIECE_BYTES.min((end - next) as usize)];
        while next < end {
            let bytes = piece.len().min((end - next) as usize);
            self.file.read_exact_at(&mut piece[..bytes], next)?;
            hasher.update(&piece[..bytes]);
            next += bytes as u64;
        }
        Ok((hasher.digest() == sum).then_some((record, places)))
    }

    /// Reads the whole records of a generation, in order, `records_max` at most.
    pub(crate) fn contents(&mut self, salt: u64, records_max: u64) -> io::Result<Contents> {
        self.refresh()?;
        let mut contents = Contents::default();
        let mut at = FIRST;
        while contents.records < records_max {
            let Some((record, places)) = self.record(at, salt, contents.records)? else { break };
            let has_before = |(block, _, is_change): &(u32, Place, bool)| {
                !is_change || contents.places.contains_key(block)
            };
            if !places.iter().all(has_before) {
                break;
            }
            places
                .into_iter()
                .for_each(|(block, place, is_change)| contents.note(block, place, is_change));
            at = record.end;
            contents.last = Some(record);
            contents.records += 1;
        }
        Ok(contents)
    }

    /// Reads blocks of what the log holds, as they are in their newest version.
    pub(crate) fn read_blocks(
        &self,
        contents: &Contents,
        run: &[(u32, u64)],
        pages: &mut [u8],
    ) -> io::Result<()> {
        self.read_run(run, pages)?;
        if contents.changes.is_empty() {
            return Ok(());
        }
        let mut stored = Vec::new();
        for ((block, _), page) in run.iter().zip(pages.chunks_exact_mut(BLOCK_BYTES)) {
            for place in contents.changes.get(block).into_iter().flatten() {
                stored.resize(place.bytes, 0);
                self.file.read_exact_at(&mut stored, place.at)?;
                let made = changes::apply(&stored, page);
                made.ok_or_else(|| {
                    io::Error::new(io::ErrorKind::InvalidData, "a change goes beyond its block")
                })?;
            }
        }
        Ok(())
    }

    /// Reads blocks from their places; those that are one behind the other at once.
    fn read_run(&self, run: &[(u32, u64)], pages: &mut [u8]) -> io::Result<()> {
        let mut pages = pages;
        let places: Vec<Place> = run.iter().map(|(_, word)| Place::of(*word)).collect();
        let mut stored = Vec::new();
        for some in places.chunk_by(|one, other| one.end() == other.at) {
            let (target, rest) = pages.split_at_mut(some.len() * BLOCK_BYTES);
            pages = rest;
            if some.iter().all(|place| place.is_whole()) {
                self.file.read_exact_at(target, some[0].at)?;
                continue;
            }
            stored.resize(some.iter().map(|place| place.bytes).sum(), 0);
            self.file.read_exact_at(&mut stored, some[0].at)?;
            let mut rest = stored.as_slice();
            for (place, page) in some.iter().zip(target.chunks_exact_mut(BLOCK_BYTES)) {
                let (bytes, behind) = rest.split_at(place.bytes);
                match place.is_whole() {
                    true => page.copy_from_slice(bytes),
                    false => unpack(bytes, page)?,
                }
                rest = behind;
            }
        }
        Ok(())
    }

    /// Removes the log's name. A missing one is no error.
    pub(crate) fn remove(path: &Path) -> io::Result<()> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// A compressed block, which becomes a whole one.
fn unpack(bytes: &[u8], page: &mut [u8]) -> io::Result<()> {
    match decompress_into(bytes, page) {
        Ok(BLOCK_BYTES) => Ok(()),
        Ok(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "a block is shorter than one")),
        Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
    }
}

/// A number that no other process has drawn.
pub(crate) fn random() -> u64 {
    let drawn = xxh3_64(uuid::Uuid::new_v4().as_bytes());
    drawn.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{hot, page};

    /// A block that does not become shorter.
    fn noise(seed: u64) -> Vec<u8> {
        let words =
            (0..BLOCK_BYTES as u64 / 8).map(|number| xxh3_64(&(seed << 16 | number).to_le_bytes()));
        words.flat_map(u64::to_le_bytes).collect()
    }

    /// A page of rows, as a database has them: some of it becomes shorter.
    fn mixed(seed: u64) -> Vec<u8> {
        let mut page = noise(seed);
        page[..2000].fill(seed as u8);
        page
    }

    /// Writes records to the log of a database, and has `look` see it; the salt, and where each
    /// record ends.
    fn with_records(records: &[Vec<(u32, Vec<u8>)>], look: impl FnOnce(&mut Log, u64, &[u64])) {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let pool = hot(folder.path(), 4);
        let salt = pool.image.log_position().salt();
        let mut log = pool.log.lock().unwrap();
        let log = log.as_mut().unwrap();
        let mut ends = vec![FIRST];
        for (number, blocks) in records.iter().enumerate() {
            log.begin((salt, u64::MAX), false);
            for (block, bytes) in blocks {
                let version = Version { link: 1, transaction: number as u64 };
                let put = log.put(*block, version, None, |page| {
                    page.copy_from_slice(bytes);
                    Ok::<(), ()>(())
                });
                put.unwrap();
            }
            let number = number as u64;
            ends.push(log.finish(ends[ends.len() - 1], (salt, number), (number, 1 << 20)).unwrap());
        }
        log.written = None;
        look(log, salt, &ends);
    }

    fn read_all(log: &Log, contents: &Contents) -> Vec<(u32, Vec<u8>)> {
        let run: Vec<(u32, u64)> = contents.places.iter().map(|(a, b)| (*a, *b)).collect();
        let mut pages = vec![0; run.len() * BLOCK_BYTES];
        log.read_blocks(contents, &run, &mut pages).unwrap();
        run.iter()
            .map(|(block, _)| *block)
            .zip(pages.chunks(BLOCK_BYTES).map(<[u8]>::to_vec))
            .collect()
    }

    /// What changed is said against the record before, also of a block that is twice in one; a
    /// longer change, or the last of many, is the block.
    #[test]
    fn changes_are_against_the_record_before() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let pool = hot(folder.path(), 4);
        let salt = pool.image.log_position().salt();
        let mut log = pool.log.lock().unwrap();
        let log = log.as_mut().unwrap();
        let (mut at, mut records) = (FIRST, 0);
        let mut write = |log: &mut Log, blocks: &[(u32, Vec<u8>)], before: Option<&[u8]>| {
            log.begin((salt, records), true);
            for (block, bytes) in blocks {
                let version = Version { link: 1, transaction: records };
                let is_known = log.version_before(*block).is_some();
                let before = before.filter(|_| is_known).map(|before| before.try_into().unwrap());
                let put = log.put(*block, version, before, |page| {
                    page.copy_from_slice(bytes);
                    Ok::<(), ()>(())
                });
                put.unwrap();
            }
            let begin = at;
            at = log.finish(at, (salt, records), (records, 1 << 20)).unwrap();
            records += 1;
            let contents = log.contents(salt, u64::MAX).unwrap();
            assert_eq!(contents.records, records);
            let found = read_all(log, &contents);
            assert!(found.iter().any(|found| Some(found) == blocks.last()), "record {records}");
            at - begin
        };
        let base = noise(1);
        let with = |at: usize| {
            let mut page = base.clone();
            page[at..at + 100].fill(9);
            page
        };
        assert_eq!(write(log, &[(1, base.clone())], None), 4096 + 512);
        assert_eq!(write(log, &[(1, with(200))], Some(&base)), 512);
        // The second one has nothing of the first, and must not be taken for a change of it.
        let twice = [(1, with(3000)), (1, with(200))];
        assert_eq!(write(log, &twice, Some(&with(200))), 4096 + 512);
        assert_eq!(write(log, &[(1, noise(2))], Some(&with(200))), 4096 + 512);
        for _ in 0..CHANGES_MAX {
            assert_eq!(write(log, &[(1, noise(2))], Some(&noise(2))), 512);
        }
        assert_eq!(write(log, &[(1, noise(2))], Some(&noise(2))), 4096 + 512);
        // Of another generation, or one of which another process wrote a record, nothing is known.
        for other in [(salt + 1, records), (salt, records + 1)] {
            log.begin(other, true);
            assert_eq!(log.version_before(1), None);
        }
    }

    /// Of a short record that a commit waits for, only blocks that take no time are compressed.
    #[test]
    fn short_awaited_record_is_not_compressed() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let pool = hot(folder.path(), 4);
        let mut log = pool.log.lock().unwrap();
        let log = log.as_mut().unwrap();
        let mut bytes = |is_awaited: bool, blocks: u32, page: &[u8]| {
            log.begin((0, 0), is_awaited);
            for block in 1..=blocks {
                let version = Version { link: 1, transaction: 1 };
                let put = log.put(block, version, None, |target| {
                    target.copy_from_slice(page);
                    Ok::<(), ()>(())
                });
                put.unwrap();
            }
            log.draft.room.len() / blocks as usize
        };
        let (text, zeros) = (b"some words ".repeat(373)[..BLOCK_BYTES].to_vec(), page(0));
        assert_eq!(bytes(true, 4, &text), BLOCK_BYTES);
        assert!(bytes(false, 4, &text) < BLOCK_BYTES / 8);
        assert!(bytes(true, 1000, &text) < BLOCK_BYTES / 4);
        assert!(bytes(true, 4, &zeros) < BLOCK_BYTES / 8);
    }

    /// Blocks that become shorter and others come back as they were, each as it was put last.
    #[test]
    fn blocks_come_back_as_they_were_put_last() {
        let mut first: Vec<(u32, Vec<u8>)> =
            (0..40).map(|block| (block, noise(block.into()))).collect();
        first.extend((20..60).map(|block| (block, page(block as u8))));
        first.extend((30..50).map(|block| (block, noise(1000 + u64::from(block)))));
        first.extend((35..45).map(|block| (block, mixed(2000 + u64::from(block)))));
        // And whole over whole, with a short one in between.
        first.extend([
            (5, noise(7777)),
            (6, page(9)),
            (6, noise(8888)),
            (7, page(3)),
            (7, page(4)),
        ]);
        let second = vec![(6, page(1)), (70, noise(9999))];
        let mut expected = BTreeMap::new();
        expected.extend(first.iter().cloned());
        expected.extend(second.iter().cloned());
        with_records(&[first, second], |log, salt, ends| {
            let contents = log.contents(salt, u64::MAX).unwrap();
            assert_eq!(contents.records, 2);
            assert!(read_all(log, &contents).into_iter().eq(expected));
            assert!(log.reaches(salt, 2, ends[2]).unwrap());
            assert!(!log.reaches(salt, 2, ends[2] + 512).unwrap());
        });
    }

    /// A commit of a row takes a sector of the log, or two.
    #[test]
    fn short_changes_are_short_in_the_log() {
        with_records(&[vec![(0, page(0)), (1, page(1))]], |_, _, ends| {
            assert_eq!(ends[1] - ends[0], 512);
        });
        with_records(&[vec![(1, noise(1))]], |_, _, ends| {
            assert_eq!(ends[1] - ends[0], BLOCK_BYTES as u64 + 512);
        });
    }

    /// The machine goes while a record is written: whichever of its sectors are missing, it does not
    /// count, and those before it do. Nor does one with a byte that is another.
    ///
    /// Guarantee: sqlite/lost-pool
    #[test]
    fn record_that_is_not_whole_does_not_count() {
        let records: Vec<Vec<(u32, Vec<u8>)>> = (0..3_u64)
            .map(|number| {
                (0..6).map(|block| (block, mixed(number * 10 + u64::from(block)))).collect()
            })
            .collect();
        with_records(&records, |log, salt, ends| {
            assert_eq!(log.contents(salt, u64::MAX).unwrap().records, 3);
            let (begin, end) = (ends[2], ends[3]);
            let mut whole = vec![0; (end - begin) as usize];
            log.file.read_exact_at(&mut whole, begin).unwrap();
            let sectors = whole.len() / SECTOR_BYTES as usize;
            assert!(sectors > 20);
            let found = |log: &mut Log, bytes: &[u8]| {
                log.file.write_all_at(bytes, begin).unwrap();
                let contents = log.contents(salt, u64::MAX).unwrap();
                assert_eq!(read_all(log, &contents)[0].1, mixed((contents.records - 1) * 10));
                contents.records
            };
            for missing in 0..sectors {
                let range = missing * SECTOR_BYTES as usize..(missing + 1) * SECTOR_BYTES as usize;
                let mut cut = whole.clone();
                cut[range.clone()].fill(0);
                assert_eq!(found(log, &cut), 2, "sector {missing} is missing");
                let mut only = vec![0; whole.len()];
                only[range.clone()].copy_from_slice(&whole[range]);
                assert_eq!(found(log, &only), 2, "only sector {missing} is there");
                cut.copy_from_slice(&whole);
                cut[missing * SECTOR_BYTES as usize..].fill(0);
                assert_eq!(found(log, &cut), 2, "it ends at sector {missing}");
            }
            for at in (0..RECORD_HEADER_BYTES + 36).chain([whole.len() - 1024]) {
                let mut other = whole.clone();
                other[at] ^= 0x40;
                assert_eq!(found(log, &other), 2, "byte {at} is another");
            }
            assert_eq!(found(log, &whole), 3);
        });
    }

    /// A record whose numbers lie is no record, whatever its sum says, and no memory is taken for
    /// what it says.
    #[test]
    fn lying_record_is_none() {
        let seal = |list: &[(u32, u16)], blocks: u32, payload: u64, behind: usize| {
            let mut head = Vec::new();
            head.extend_from_slice(&RECORD_MAGIC.to_le_bytes());
            head.extend_from_slice(&blocks.to_le_bytes());
            for word in [7, 0, 1, 1 << 20, 0, payload, 0] {
                head.extend_from_slice(&u64::to_le_bytes(word));
            }
            for (block, bytes) in list {
                head.extend_from_slice(&block.to_le_bytes());
                head.extend_from_slice(&bytes.to_le_bytes());
            }
            head.resize(head.len() + behind, 0);
            let sum = xxh3_64(&head);
            head[40..48].copy_from_slice(&sum.to_le_bytes());
            head
        };
        let sound = seal(&[(1, 100)], 1, 100, 100);
        let lies = [
            seal(&[(1, 0)], 1, 100, 100),
            seal(&[(1, 4097)], 1, 5000, 5000),
            seal(&[(1, 4000)], 1, 100, 100),
            seal(&[(1, 100)], u32::MAX, 100, 100),
            seal(&[(1, 100)], 1, u64::MAX, 100),
            seal(&[(1, 100)], 1, 1 << 47, 100),
            // A change of a block that no record has.
            seal(&[(1, 100 | IS_CHANGE)], 1, 100, 100),
        ];
        with_records(&[], |log, _, _| {
            for (record, records) in
                [(&sound, 1)].into_iter().chain(lies.iter().map(|lie| (lie, 0)))
            {
                log.file.write_all_at(&vec![0; 8192], FIRST).unwrap();
                log.file.write_all_at(record, FIRST).unwrap();
                assert_eq!(log.contents(7, u64::MAX).unwrap().records, records);
            }
            // What is no compressed block is an error, and no block.
            log.file.write_all_at(&sound, FIRST).unwrap();
            let contents = log.contents(7, u64::MAX).unwrap();
            let run: Vec<_> = contents.places.iter().map(|(a, b)| (*a, *b)).collect();
            let error = log.read_blocks(&contents, &run, &mut page(0)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        });
    }
}
