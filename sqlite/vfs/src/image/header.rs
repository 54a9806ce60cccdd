//! The first block of an image: its words, who owns which, and the same block read from a file.
//!
//! Invariants:
//! - The offsets are those of `docs/format.md`, and asserted.
//! - No word is used here but the ones that are written once, or without others: each of the rest
//!   belongs to one part, and is reached through it.

#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use xxhash_rust::xxh3::xxh3_64;

use super::commits::Commits;
use super::layout::{BLOCK_BYTES, CAPACITY_MAX, NAME_BYTES_MAX, PATH_AT, PATH_BYTES_MAX};
use super::layout::{PROCESSES_MAX, Plan};
use super::locks::{Locks, ProcessEntry};
use super::log_position::LogPosition;
use super::mode::Mode;
use super::slots::Room;
use crate::identity::Identity;

const MAGIC: u64 = u64::from_le_bytes(*b"HFsqlite");
const VERSION: u32 = 1;

/// First block of an image.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    /// Slots that the file has room for; a power of two.
    capacity: AtomicU32,
    /// Device, inode, time of birth of the database.
    identity: [AtomicU64; 3],
    /// Of the boot in which it was last attached.
    boot: [AtomicU64; 2],
    /// Sum over all of the above but the boot, stored last: an image without it was never finished.
    sum: AtomicU64,
    /// Joins the mark in the database file, the redo log and this image.
    nonce: AtomicU64,
    /// 1: the newest state of the database is here.
    hot: AtomicU32,
    /// 1: everything is in the database file, only the mark was left to clear.
    closing: AtomicU32,
    /// Number of the last transaction that counts. Storing it is the commit.
    committed: AtomicU64,
    /// Size of the database in bytes, by the parity of the transaction.
    size: [AtomicU64; 2],
    /// Transactions up to here are in the redo log and durable.
    flushed: AtomicU64,
    /// Transactions up to here are in the database file and durable.
    applied: AtomicU64,
    /// The transaction as of which blocks were last counted as clean.
    gathered: AtomicU64,
    /// Blocks that changed after `gathered`.
    dirty: AtomicU32,
    /// See [`Room`].
    backed: AtomicU32,
    used: AtomicU32,
    free_head: AtomicU32,
    limit: AtomicU32,
    /// See [`Locks`].
    writer: AtomicU64,
    commit_lock: AtomicU32,
    log_lock: AtomicU32,
    /// 1: a transaction writes to the database file itself, under a journal on the disk.
    direct: AtomicU32,
    /// 1: there may be a journal on the disk.
    disk_journal: AtomicU32,
    /// A transaction that is committed when its super-journal is gone; 0: none.
    prepared: AtomicU64,
    name_bytes: AtomicU32,
    /// Entries of processes that were ever in use.
    processes: AtomicU32,
    /// Where the next record of the redo log goes.
    log_tail: AtomicU64,
    /// Of the log's generation.
    log_salt: AtomicU64,
    /// Number of the next record in this generation.
    log_sequence: AtomicU64,
    flushes: AtomicU64,
    flushed_blocks: AtomicU64,
    checkpoints: AtomicU64,
    /// Whether the log's end is sound: see `log_position.rs`.
    log_suspect: AtomicU32,
    /// Blocks in the log's generation, about: earlier versions leave it as it is.
    log_blocks: AtomicU32,
    /// The transaction as of which the database file was when the log was begun.
    log_base: AtomicU64,
    /// The transaction as of which database file and log are together, at least.
    log_reached: AtomicU64,
    /// A transaction that is committed, but for the log: if that fails it was none. 0: none.
    provisional: AtomicU64,
    /// Of the path; 0: not known.
    path_bytes: AtomicU32,
}

const _: () = assert!(size_of::<Header>() == 280 && size_of::<Header>() <= PATH_AT);
const _: () = assert!(offset_of!(Header, sum) == 56 && offset_of!(Header, nonce) == 64);
const _: () = assert!(offset_of!(Header, committed) == 80 && offset_of!(Header, gathered) == 120);
const _: () = assert!(offset_of!(Header, dirty) == 128 && offset_of!(Header, writer) == 152);
const _: () = assert!(offset_of!(Header, direct) == 168 && offset_of!(Header, prepared) == 176);
const _: () = assert!(offset_of!(Header, log_tail) == 192 && offset_of!(Header, flushes) == 216);
const _: () =
    assert!(offset_of!(Header, log_suspect) == 240 && offset_of!(Header, log_base) == 248);
const _: () = assert!(offset_of!(Header, provisional) == 264);

impl Header {
    #[inline]
    pub(super) fn commits(&self) -> Commits<'_> {
        Commits {
            committed: &self.committed,
            size: &self.size,
            flushed: &self.flushed,
            applied: &self.applied,
            gathered: &self.gathered,
            dirty: &self.dirty,
            provisional: &self.provisional,
            prepared: &self.prepared,
        }
    }

    #[inline]
    pub(super) fn locks<'a>(&'a self, entries: &'a [ProcessEntry; PROCESSES_MAX]) -> Locks<'a> {
        Locks {
            writer: &self.writer,
            commit: &self.commit_lock,
            log: &self.log_lock,
            processes: &self.processes,
            entries,
        }
    }

    #[inline]
    pub(super) fn log_position(&self) -> LogPosition<'_> {
        LogPosition {
            tail: &self.log_tail,
            salt: &self.log_salt,
            sequence: &self.log_sequence,
            base: &self.log_base,
            reached: &self.log_reached,
            blocks: &self.log_blocks,
            suspicion: &self.log_suspect,
            flushes: &self.flushes,
            flushed_blocks: &self.flushed_blocks,
            checkpoints: &self.checkpoints,
        }
    }

    #[inline]
    pub(super) fn mode(&self) -> Mode<'_> {
        Mode {
            nonce: &self.nonce,
            hot: &self.hot,
            closing: &self.closing,
            direct: &self.direct,
            disk_journal: &self.disk_journal,
        }
    }

    #[inline]
    pub(super) fn room(&self) -> Room<'_> {
        Room {
            backed: &self.backed,
            used: &self.used,
            free_head: &self.free_head,
            limit: &self.limit,
        }
    }

    /// States what the image is, for good. Release, the sum last: an image without it was never
    /// finished.
    pub(super) fn identify(&self, capacity: u32, identity: Identity) {
        self.magic.store(MAGIC, Relaxed);
        self.version.store(VERSION, Relaxed);
        self.capacity.store(capacity, Relaxed);
        for (word, value) in self.identity.iter().zip(identity.words()) {
            word.store(value, Relaxed);
        }
        self.sum.store(sum_of(MAGIC, VERSION, capacity, identity), Release);
    }

    /// Relaxed: behind the gate, no other process is there.
    pub(super) fn set_boot(&self, boot: [u8; 16]) {
        for (word, half) in self.boot.iter().zip(boot.chunks_exact(8)) {
            word.store(u64::from_ne_bytes(half.try_into().unwrap_or_default()), Relaxed);
        }
    }

    /// Bytes of the super-journal's name. Acquire: with the name.
    pub(super) fn name_bytes(&self) -> usize {
        self.name_bytes.load(Acquire) as usize
    }

    /// Release: after the name.
    pub(super) fn set_name_bytes(&self, bytes: usize) {
        self.name_bytes.store(bytes as u32, Release);
    }

    /// Release: after the path.
    pub(super) fn set_path_bytes(&self, bytes: usize) {
        self.path_bytes.store(bytes as u32, Release);
    }
}

fn sum_of(magic: u64, version: u32, capacity: u32, identity: Identity) -> u64 {
    let [device, inode, born] = identity.words();
    let words = [magic, u64::from(version) << 32 | u64::from(capacity), device, inode, born];
    xxh3_64(words.map(u64::to_le_bytes).as_flattened())
}

/// The header of an image's file, as it was at about one moment: for those who do not attach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeaderCopy {
    bytes: Vec<u8>,
}

/// One accessor for each word that is read from a file.
macro_rules! words {
    ($($name:ident: $kind:ty = $field:ident;)*) => {$(
        pub(crate) fn $name(&self) -> $kind {
            const AT: usize = offset_of!(Header, $field);
            const BYTES: usize = size_of::<$kind>();
            <$kind>::from_le_bytes(self.bytes[AT..AT + BYTES].try_into().unwrap_or_default())
        }
    )*};
}

impl HeaderCopy {
    /// `None` where the file is shorter.
    pub(crate) fn read(file: &File) -> io::Result<Option<HeaderCopy>> {
        let mut bytes = vec![0; BLOCK_BYTES];
        Ok((file.read_at(&mut bytes, 0)? == BLOCK_BYTES).then_some(HeaderCopy { bytes }))
    }

    words! {
        magic: u64 = magic;
        version: u32 = version;
        capacity: u32 = capacity;
        sum: u64 = sum;
        nonce: u64 = nonce;
        hot: u32 = hot;
        closing: u32 = closing;
        committed: u64 = committed;
        flushed: u64 = flushed;
        applied: u64 = applied;
        dirty: u32 = dirty;
        backed: u32 = backed;
        direct: u32 = direct;
        disk_journal: u32 = disk_journal;
        prepared: u64 = prepared;
        bytes_of_name: u32 = name_bytes;
        bytes_of_path: u32 = path_bytes;
        log_base: u64 = log_base;
        log_reached: u64 = log_reached;
        provisional: u64 = provisional;
    }

    fn long(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap_or_default())
    }

    fn identity(&self) -> Identity {
        Identity::new([0, 8, 16].map(|at| self.long(offset_of!(Header, identity) + at)))
    }

    /// Size of the database as of a transaction.
    pub(crate) fn size_of(&self, transaction: u64) -> u64 {
        self.long(offset_of!(Header, size) + (transaction & 1) as usize * 8)
    }

    /// The newest state of the database is in the image.
    pub(crate) fn is_hot(&self) -> bool {
        self.hot() != 0
    }

    /// All that is committed is in the database file, where there may be a journal of a transaction
    /// that outgrew the pool. `Pool::has_lost_mark` asks the same of the image in memory.
    pub(crate) fn is_under_journal(&self) -> bool {
        let is_in_file = self.applied() == self.committed() && self.prepared() == 0;
        self.direct() != 0 || self.disk_journal() != 0 && is_in_file
    }

    /// Whether it is one of an image that holds the newest state under a nonce.
    pub(crate) fn holds(&self, nonce: u64) -> bool {
        self.magic() == MAGIC && self.is_hot() && self.nonce() == nonce
    }

    fn boot(&self) -> &[u8] {
        &self.bytes[offset_of!(Header, boot)..][..16]
    }

    /// Whether it was last used in this boot, by a version that says so.
    pub(crate) fn names_boot(&self, boot: [u8; 16]) -> bool {
        self.boot() == boot
    }

    /// Whether it may have been last used in this boot.
    pub(crate) fn is_of_boot(&self, boot: [u8; 16]) -> bool {
        self.names_boot(boot) || self.boot() == [0; 16]
    }

    /// Bytes of the super-journal's name.
    pub(crate) fn name_bytes(&self) -> usize {
        (self.bytes_of_name() as usize).min(NAME_BYTES_MAX)
    }

    /// Where the database was when it was opened last.
    pub(crate) fn database(&self) -> Option<PathBuf> {
        let bytes = (self.bytes_of_path() as usize).min(PATH_BYTES_MAX);
        let path = Path::new(OsStr::from_bytes(&self.bytes[PATH_AT..PATH_AT + bytes]));
        path.is_absolute().then(|| path.to_owned())
    }
}

/// What an image's file is, before it is mapped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing yet.
    Fresh,
    /// An image of this database, with so many slots.
    Sound(u32),
    /// The process that was making it died: nothing is in it.
    Unfinished,
    /// Of a later version.
    Newer,
    /// Something else.
    Broken(&'static str),
}

/// What an image's file is.
pub(crate) fn examine(file: &File, identity: Identity) -> io::Result<Found> {
    let length = file.metadata()?.len();
    if length == 0 {
        return Ok(Found::Fresh);
    }
    let Some(header) = HeaderCopy::read(file)? else {
        return Ok(Found::Broken("it is too short"));
    };
    let is_blank =
        header.sum() == 0 && header.nonce() == 0 && header.long(offset_of!(Header, hot)) == 0;
    if is_blank && is_unused(file, length)? {
        return Ok(Found::Unfinished);
    }
    let (version, capacity, named) = (header.version(), header.capacity(), header.identity());
    if header.magic() != MAGIC || header.sum() != sum_of(MAGIC, version, capacity, named) {
        return Ok(Found::Broken("its header is not one"));
    }
    if version != VERSION {
        return Ok(if version > VERSION {
            Found::Newer
        } else {
            Found::Broken("it is of another version")
        });
    }
    // The device is in the file's name; it may have had another number when the image was made: see
    // `renumbered.rs`.
    if !named.is_but_for_device(identity) || !capacity.is_power_of_two() || capacity > CAPACITY_MAX
    {
        return Ok(Found::Broken("it is of another database"));
    }
    Ok(if length < Plan::new(capacity).bytes as u64 {
        Found::Broken("it is too short")
    } else {
        Found::Sound(capacity)
    })
}

/// Whether no process ever introduced itself in an image, and no slot of it was ever used. A header
/// that was destroyed looks as one that was never finished, but not what is behind it.
fn is_unused(file: &File, length: u64) -> io::Result<bool> {
    let capacities = (0..=CAPACITY_MAX.ilog2()).map(|power| Plan::new(1 << power));
    let Some(plan) = capacities.into_iter().find(|plan| plan.bytes as u64 == length) else {
        return Ok(false);
    };
    let mut piece = vec![0; 64 << 10];
    let mut at = BLOCK_BYTES;
    while at < plan.pages_at {
        let bytes = piece.len().min(plan.pages_at - at);
        file.read_exact_at(&mut piece[..bytes], at as u64)?;
        if piece[..bytes].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += bytes;
    }
    Ok(true)
}

#[cfg(test)]
impl HeaderCopy {
    /// The bytes of a header as a later version of it would be.
    pub(crate) fn as_of_version(file: &[u8], version: u32, identity: Identity) -> Vec<u8> {
        let mut bytes = file.to_vec();
        let capacity = HeaderCopy { bytes: file[..BLOCK_BYTES].to_vec() }.capacity();
        let (version_at, sum_at) = (offset_of!(Header, version), offset_of!(Header, sum));
        bytes[version_at..version_at + 4].copy_from_slice(&version.to_le_bytes());
        let sum = sum_of(MAGIC, version, capacity, identity);
        bytes[sum_at..sum_at + 8].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
}
