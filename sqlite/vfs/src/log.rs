//! The redo log beside the database, `DB-holdfast`: what has changed since the last checkpoint, in
//! records that each hold all blocks that changed since the one before.
//!
//! A record counts when it is whole: a sum over it and the salt of the log's generation says so.
//! Space is written ahead with zeros, so that a record changes no metadata of the file system and
//! one `fdatasync` is one write of the disk.
//!
//! Invariants:
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
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use holdfast_sys::file::{private_options, sync_directory};
use holdfast_sys::lease::{Lease, is_taken, take};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::apply::Blocks;
use crate::error::SqliteError;
use crate::file_names::{Names, folder_of};
use crate::image::BLOCK_BYTES;
use crate::owner::{OWNER_AT, Owner};

const MAGIC: &[u8; 8] = b"HFsqlog\x02";
/// Of the version that did not say who its owner is.
const MAGIC_WITHOUT_OWNER: &[u8; 8] = b"HFsqlog\x01";
const HEADER_BYTES: usize = 48;
const RECORD_HEADER_BYTES: usize = 64;
const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"HFrc");
/// Records begin at multiples of it.
const SECTOR_BYTES: u64 = 512;
/// Where the first record is.
pub(crate) const FIRST: u64 = BLOCK_BYTES as u64;
const AHEAD_BYTES_MIN: u64 = 256 << 10;
const AHEAD_BYTES_MAX: u64 = 4 << 20;
/// A log that has grown larger is shortened when it is begun again.
const KEPT_BYTES_MAX: u64 = 80 << 20;
/// Memory for a record that is kept for the next one, if that is not much shorter.
const KEPT_MEMORY_MAX: usize = 16 << 20;
/// A record that is longer is no slower for the metadata that it changes: its space is not written
/// ahead.
const RECORD_BYTES_AHEAD_MAX: usize = AHEAD_BYTES_MIN as usize;
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
    file: File,
    path: PathBuf,
    /// As long as the file was when this process last looked.
    bytes: u64,
    /// When its name was last known to be durable; see `names.rs`.
    pub(crate) names: Option<Names>,
    /// The last record that this process has seen.
    tip: Option<Tip>,
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

/// What one process wrote to a generation of the log.
#[derive(Debug)]
pub(crate) struct Written {
    salt: u64,
    pub(crate) contents: Contents,
    /// Of each block, the version that the log has.
    pub(crate) versions: HashMap<u32, Version>,
    /// Of the database in its largest record, in bytes.
    longest: u64,
}

/// The record that is being put together: each block once.
#[derive(Debug, Default)]
struct Draft {
    numbers: Vec<u32>,
    versions: Vec<Version>,
    /// Of each block its bytes, and behind them room that was used before.
    room: Vec<u8>,
    /// Of each block, how many are before it.
    order: HashMap<u32, usize>,
    /// The record's head, and the blocks behind it where they are few.
    head: Vec<u8>,
}

impl Draft {
    fn clear(&mut self) {
        self.numbers.clear();
        self.versions.clear();
        self.order.clear();
    }

    fn page_of(&mut self, block: u32, version: Version) -> &mut [u8] {
        let number = *self.order.entry(block).or_insert(self.numbers.len());
        if number == self.numbers.len() {
            self.numbers.push(block);
            self.versions.push(version);
            let end = (number + 1) * BLOCK_BYTES;
            self.room.resize(end.max(self.room.len()), 0);
        } else {
            self.versions[number] = version;
        }
        &mut self.room[number * BLOCK_BYTES..][..BLOCK_BYTES]
    }

    fn pages(&self) -> &[u8] {
        &self.room[..self.numbers.len() * BLOCK_BYTES]
    }

    /// Gives up memory that is too much to keep.
    fn shrink(&mut self) {
        let (used, kept) = (self.pages().len(), self.room.capacity());
        if kept > KEPT_MEMORY_MAX || kept > AHEAD_BYTES_MAX as usize && used < kept / 4 {
            *self = Draft::default();
        }
    }

    /// Fills in the head, with the sum over the record.
    fn seal(&mut self, [salt, sequence, transaction, size]: [u64; 4]) {
        let head = &mut self.head;
        head.clear();
        head.extend_from_slice(&RECORD_MAGIC.to_le_bytes());
        head.extend_from_slice(&(self.numbers.len() as u32).to_le_bytes());
        for word in [salt, sequence, transaction, size] {
            head.extend_from_slice(&word.to_le_bytes());
        }
        head.resize(RECORD_HEADER_BYTES, 0);
        self.numbers.iter().for_each(|block| head.extend_from_slice(&block.to_le_bytes()));
        head.resize(head.len().next_multiple_of(SECTOR_BYTES as usize), 0);
        let mut hasher = Xxh3::new();
        hasher.update(head);
        hasher.update(&self.room[..self.numbers.len() * BLOCK_BYTES]);
        head[40..48].copy_from_slice(&hasher.digest().to_le_bytes());
    }

    fn bytes(&self) -> usize {
        self.head.len() + self.pages().len()
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
    end: u64,
}

/// What a record's head says, the sum over the record, and the head's bytes without that.
type Head = (Record, u64, [u8; RECORD_HEADER_BYTES]);

/// Bytes of a record's head with the numbers of its blocks.
fn list_bytes(blocks: u32) -> u64 {
    (RECORD_HEADER_BYTES as u64 + u64::from(blocks) * 4).next_multiple_of(SECTOR_BYTES)
}

/// What a log holds.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// The last whole record.
    pub(crate) last: Option<Record>,
    /// Of each block, where its newest version is.
    pub(crate) places: BTreeMap<u32, u64>,
    pub(crate) records: u64,
}

impl Written {
    fn is(&self, salt: u64, records: u64) -> bool {
        (self.salt, self.contents.records) == (salt, records)
    }
}

impl Contents {
    /// As what is written to a database file; nothing, where there is no record.
    pub(crate) fn blocks<'a>(&'a self, log: &'a Log) -> Blocks<'a> {
        let read = Box::new(|run: &[(u32, u64)], pages: &mut [u8]| {
            log.read_run(run, pages).map_err(SqliteError::io("read", log.path()))
        });
        Blocks { places: &self.places, size: self.last.map_or(0, |record| record.size), read }
    }
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
        let _ = take(&file, Lease::Shared, LEASE_BYTE, 1);
        let mut log = Log {
            file,
            path: path.to_owned(),
            bytes: 0,
            names: None,
            tip: None,
            written: None,
            draft: Draft::default(),
        };
        let written = log.fill(generation, owner);
        if written.is_err() {
            // As if it had not been tried. What takes its place holds what it held, if anything.
            let _ = Log::remove(path);
        }
        written.map(|()| log)
    }

    fn fill(&mut self, generation: Generation, owner: &Owner) -> io::Result<()> {
        self.extend(FIRST + AHEAD_BYTES_MIN)?;
        self.write_header(generation, owner)?;
        self.file.sync_all()?;
        sync_directory(folder_of(&self.path))
    }

    /// Opens a log; `None` when there is none.
    pub(crate) fn open(path: &Path) -> io::Result<Option<Log>> {
        let log = Log::look(path)?;
        if let Some(log) = &log {
            // Where that is not to be had, another pool does not see us; all else works.
            let _ = take(&log.file, Lease::Shared, LEASE_BYTE, 1);
        }
        Ok(log)
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
                let bytes = file.metadata()?.len();
                Ok(Some(Log {
                    file,
                    path: path.to_owned(),
                    bytes,
                    names: None,
                    tip: None,
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

    pub(crate) fn descriptor(&self) -> &File {
        &self.file
    }

    /// What the header says; `None` when it is not whole.
    pub(crate) fn generation(&self) -> io::Result<Option<Generation>> {
        let mut header = [0; HEADER_BYTES];
        match self.file.read_exact_at(&mut header, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let word =
            |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap_or_default());
        let is_known = &header[..8] == MAGIC || &header[..8] == MAGIC_WITHOUT_OWNER;
        let is_whole = is_known && word(40) == xxh3_64(&header[..40]);
        Ok(is_whole.then(|| Generation { nonce: word(8), salt: word(16), transaction: word(24) }))
    }

    /// Which pool goes on from it; `None` where an earlier version began it, or that is not whole.
    pub(crate) fn owner(&self) -> io::Result<Option<Owner>> {
        let mut block = [0; BLOCK_BYTES];
        match self.file.read_exact_at(&mut block, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let Ok(owner) = block[OWNER_AT..].try_into() else { return Ok(None) };
        Ok(Owner::from_bytes(owner).filter(|_| &block[..8] == MAGIC))
    }

    /// Whether a later version began it.
    pub(crate) fn is_newer(&self) -> io::Result<bool> {
        let mut magic = [0; MAGIC.len()];
        let read = self.file.read_at(&mut magic, 0)?;
        let last = MAGIC.len() - 1;
        Ok(read == magic.len() && magic[..last] == MAGIC[..last] && magic[last] > MAGIC[last])
    }

    fn write_header(&self, generation: Generation, owner: &Owner) -> io::Result<()> {
        let mut header = [0; BLOCK_BYTES];
        header[..8].copy_from_slice(MAGIC);
        header[8..16].copy_from_slice(&generation.nonce.to_le_bytes());
        header[16..24].copy_from_slice(&generation.salt.to_le_bytes());
        header[24..32].copy_from_slice(&generation.transaction.to_le_bytes());
        let sum = xxh3_64(&header[..40]);
        header[40..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
        header[OWNER_AT..].copy_from_slice(&owner.to_bytes());
        self.file.write_all_at(&header, 0)
    }

    /// Begins a new generation: what is in the log counts no more.
    pub(crate) fn restart(&mut self, generation: Generation, owner: &Owner) -> io::Result<()> {
        self.written = None;
        self.write_header(generation, owner)?;
        if self.bytes > KEPT_BYTES_MAX {
            self.file.set_len(KEPT_BYTES_MAX)?;
            self.bytes = KEPT_BYTES_MAX;
        }
        self.file.sync_data()
    }

    /// How long the file is: another process may have made it longer, or shorter.
    fn refresh(&mut self) -> io::Result<()> {
        self.bytes = self.file.metadata()?.len();
        Ok(())
    }

    fn extend(&mut self, end: u64) -> io::Result<()> {
        // What another process wrote beyond what we know of is not to be cleared.
        self.refresh()?;
        if end <= self.bytes {
            return Ok(());
        }
        let ahead = self.bytes.clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX);
        let end = end.max(self.bytes + ahead).next_multiple_of(FIRST);
        let zeros = vec![0; 64 << 10];
        while self.bytes < end {
            let bytes = zeros.len().min((end - self.bytes) as usize);
            self.file.write_all_at(&zeros[..bytes], self.bytes)?;
            self.bytes += bytes as u64;
        }
        self.file.sync_all()
    }

    /// Begins a record, whose blocks follow with [`Log::page_of`].
    pub(crate) fn begin(&mut self) {
        self.draft.clear();
    }

    /// Room in the record for a block's bytes, in this version; for those of an earlier version
    /// that was put there, the same.
    pub(crate) fn page_of(&mut self, block: u32, version: Version) -> &mut [u8] {
        self.draft.page_of(block, version)
    }

    /// How many blocks the record has.
    pub(crate) fn blocks(&self) -> u32 {
        self.draft.numbers.len() as u32
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
            self.file.write_all_at(&self.draft.head, at)?;
            self.file.write_all_at(self.draft.pages(), pages_at)?;
            self.bytes = self.bytes.max(end);
        } else {
            if end > self.bytes {
                self.extend(end)?;
            }
            let Draft { head, room, .. } = &mut self.draft;
            head.extend_from_slice(&room[..bytes - head.len()]);
            self.file.write_all_at(head, at)?;
        }
        self.file.sync_data()?;
        self.tip = Some(Tip { salt, sequence, at });
        let blocks = self.blocks();
        self.note_written((at, salt, sequence), Record { transaction, size, blocks, end });
        self.draft.shrink();
        Ok(end)
    }

    /// Remembers what the record has, if this process wrote all before it, too.
    fn note_written(&mut self, (at, salt, sequence): (u64, u64, u64), record: Record) {
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
        let pages = at + list_bytes(record.blocks);
        let places = (0..).map(|number: u64| pages + number * BLOCK_BYTES as u64);
        contents.places.extend(self.draft.numbers.iter().copied().zip(places));
        let found = self.draft.numbers.iter().copied().zip(self.draft.versions.iter().copied());
        versions.extend(found);
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
        let end = at + list_bytes(blocks) + u64::from(blocks) * BLOCK_BYTES as u64;
        if word(0) as u32 != RECORD_MAGIC
            || word(8) != salt
            || word(16) != sequence
            || end > self.bytes
        {
            return Ok(None);
        }
        let (sum, transaction, size) = (word(40), word(24), word(32));
        header[40..48].fill(0);
        Ok(Some((Record { transaction, size, blocks, end }, sum, header)))
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

    /// The record at `at`, if it is whole and the one that is expected.
    fn record(&self, at: u64, salt: u64, sequence: u64) -> io::Result<Option<(Record, Vec<u32>)>> {
        let Some((record, sum, header)) = self.head(at, salt, sequence)? else { return Ok(None) };
        let Record { blocks, end, .. } = record;
        let mut hasher = Xxh3::new();
        hasher.update(&header);
        let mut list = vec![0; list_bytes(blocks) as usize - RECORD_HEADER_BYTES];
        self.file.read_exact_at(&mut list, at + RECORD_HEADER_BYTES as u64)?;
        hasher.update(&list);
        let mut next = end - u64::from(blocks) * BLOCK_BYTES as u64;
        let mut piece = vec![0; PIECE_BYTES.min((end - next) as usize)];
        while next < end {
            let bytes = piece.len().min((end - next) as usize);
            self.file.read_exact_at(&mut piece[..bytes], next)?;
            hasher.update(&piece[..bytes]);
            next += bytes as u64;
        }
        if hasher.digest() != sum {
            return Ok(None);
        }
        let numbers = list.chunks_exact(4).take(blocks as usize);
        let numbers =
            numbers.map(|four| u32::from_le_bytes(four.try_into().unwrap_or_default())).collect();
        Ok(Some((record, numbers)))
    }

    /// Reads the whole records of a generation, in order, `records_max` at most.
    pub(crate) fn contents(&mut self, salt: u64, records_max: u64) -> io::Result<Contents> {
        self.refresh()?;
        let mut contents = Contents::default();
        let mut at = FIRST;
        while contents.records < records_max {
            let Some((record, numbers)) = self.record(at, salt, contents.records)? else { break };
            let pages = record.end - u64::from(record.blocks) * BLOCK_BYTES as u64;
            for (number, block) in numbers.into_iter().enumerate() {
                contents.places.insert(block, pages + number as u64 * BLOCK_BYTES as u64);
            }
            at = record.end;
            contents.last = Some(record);
            contents.records += 1;
        }
        Ok(contents)
    }

    /// Reads blocks from their places; those that are one behind the other at once.
    pub(crate) fn read_run(&self, run: &[(u32, u64)], pages: &mut [u8]) -> io::Result<()> {
        let mut pages = pages;
        let is_next = |one: &(u32, u64), other: &(u32, u64)| one.1 + BLOCK_BYTES as u64 == other.1;
        for some in run.chunk_by(is_next) {
            let (target, rest) = pages.split_at_mut(some.len() * BLOCK_BYTES);
            self.file.read_exact_at(target, some[0].1)?;
            pages = rest;
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

/// A number that no other process has drawn.
pub(crate) fn random() -> u64 {
    let drawn = xxh3_64(uuid::Uuid::new_v4().as_bytes());
    drawn.max(1)
}
