//! SQLite's five locks as words of the image, and two short ones of our own.
//!
//! SHARED counts in the reader's process entry; RESERVED, PENDING and EXCLUSIVE are one word that
//! names the connection that has it. A reader announces itself first and looks at the word second;
//! a writer stores PENDING first and counts readers second. All four steps are sequentially
//! consistent, so of a reader and a writer that meet at least one sees the other: with any weaker
//! order each may read the other's word as it was before.
//!
//! Nothing here waits, makes a system call or decides whether a process is alive: see
//! `locking.rs`.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;

use super::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use super::atomic::{AtomicU32, AtomicU64};
use super::layout::{PROCESSES_AT, PROCESSES_MAX};

/// How far the connection that writes has come. The numbers are those of SQLite's locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum WriterLevel {
    Reserved = 2,
    Pending = 3,
    Exclusive = 4,
}

/// A connection, as the writer's word names it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriterId(u64);

impl WriterId {
    pub(crate) fn new(process: u32, connection: u32) -> WriterId {
        WriterId(u64::from(process + 1) << 8 | u64::from(connection) << 32)
    }

    fn at(self, level: WriterLevel) -> u64 {
        self.0 | level as u64
    }
}

/// The writer's word as it was read: who writes, and how far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Writer(u64);

impl Writer {
    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The number of the level; a damaged word may hold one that is none of [`WriterLevel`].
    pub(crate) fn level(self) -> u8 {
        self.0 as u8
    }

    /// New readers stay out.
    pub(crate) fn excludes_readers(self) -> bool {
        self.level() >= WriterLevel::Pending as u8
    }

    /// It may have written.
    pub(crate) fn is_exclusive(self) -> bool {
        self.level() == WriterLevel::Exclusive as u8
    }

    /// Number of the process.
    pub(crate) fn process(self) -> u32 {
        ((self.0 >> 8 & 0xff_ffff) as u32).wrapping_sub(1)
    }
}

/// What a process that has the database open says of itself.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct ProcessEntry {
    /// How many connections of it read.
    readers: AtomicU32,
    pid: AtomicU32,
    start_ticks: AtomicU64,
    /// Inode of the name space in which `pid` counts.
    pid_space: AtomicU64,
}

/// A process by its number, start and name space of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Introduction {
    /// 0: the entry is free.
    pub(crate) pid: u32,
    pub(crate) start_ticks: u64,
    pub(crate) pid_space: u64,
}

impl Introduction {
    /// As an image's file has it; `None` where that is shorter.
    pub(crate) fn read(file: &File, process: u32) -> io::Result<Option<Introduction>> {
        let mut bytes = [0; size_of::<ProcessEntry>()];
        let at = PROCESSES_AT as u64 + u64::from(process) * bytes.len() as u64;
        if file.read_at(&mut bytes, at)? < bytes.len() {
            return Ok(None);
        }
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        let (start_ticks, pid_space) = (
            word(offset_of!(ProcessEntry, start_ticks)),
            word(offset_of!(ProcessEntry, pid_space)),
        );
        let pid = word(offset_of!(ProcessEntry, readers)) >> 32;
        Ok(Some(Introduction { pid: pid as u32, start_ticks, pid_space }))
    }
}

impl ProcessEntry {
    /// States which process this is. Release, the number last: who reads it reads the rest.
    pub(crate) fn introduce(&self, process: Introduction) {
        self.readers.store(0, Relaxed);
        self.start_ticks.store(process.start_ticks, Relaxed);
        self.pid_space.store(process.pid_space, Relaxed);
        self.pid.store(process.pid, Release);
    }

    pub(crate) fn introduction(&self) -> Introduction {
        Introduction {
            pid: self.pid.load(Acquire),
            start_ticks: self.start_ticks.load(Acquire),
            pid_space: self.pid_space.load(Acquire),
        }
    }

    /// The process leaves, or no other process has the image open. Release: after what it did.
    pub(crate) fn clear(&self) {
        self.readers.store(0, Relaxed);
        self.pid.store(0, Release);
    }

    /// The process is dead: its readers no longer count. SeqCst, as all changes of `readers` that
    /// a writer waits for.
    pub(crate) fn clear_dead(&self) {
        self.pid.store(0, Release);
        self.readers.store(0, SeqCst);
    }

    /// A reader leaves. Release: what it read, it has read before a writer counts it as gone.
    #[inline]
    pub(crate) fn leave(&self) {
        self.readers.fetch_sub(1, Release);
    }

    /// SeqCst: see the module.
    #[inline]
    pub(crate) fn readers(&self) -> u32 {
        self.readers.load(SeqCst)
    }
}

/// The words of an image that say who reads, writes, commits and flushes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Locks<'a> {
    pub(super) writer: &'a AtomicU64,
    pub(super) commit: &'a AtomicU32,
    pub(super) log: &'a AtomicU32,
    pub(super) processes: &'a AtomicU32,
    pub(super) entries: &'a [ProcessEntry; PROCESSES_MAX],
}

impl<'a> Locks<'a> {
    // ---- SHARED

    /// The entry of a process; numbers beyond the table wrap.
    #[inline]
    pub(crate) fn entry(self, process: u32) -> &'a ProcessEntry {
        &self.entries[process as usize % PROCESSES_MAX]
    }

    /// One reader more, unless a writer keeps readers out. SeqCst, both: see the module.
    #[inline]
    pub(crate) fn try_enter(self, process: u32) -> bool {
        let entry = self.entry(process);
        entry.readers.fetch_add(1, SeqCst);
        let is_open = !self.writer().excludes_readers();
        if !is_open {
            entry.readers.fetch_sub(1, SeqCst);
        }
        is_open
    }

    /// Counts readers, without those of processes that `is_gone` says have died. It is asked of
    /// processes that have readers only.
    #[inline]
    pub(crate) fn count_readers(self, is_gone: impl Fn(u32) -> bool) -> u32 {
        let count = (self.processes.load(SeqCst) as usize).min(PROCESSES_MAX);
        let mut readers = 0_u32;
        for (number, entry) in self.entries[..count].iter().enumerate() {
            let found = entry.readers();
            if found != 0 && !is_gone(number as u32) {
                readers = readers.saturating_add(found);
            }
        }
        readers
    }

    /// The entry of this process is in use. Release: after its contents.
    pub(crate) fn note_process(self, process: u32) {
        self.processes.fetch_max(process + 1, Release);
    }

    // ---- RESERVED, PENDING, EXCLUSIVE

    /// The writer. SeqCst: see the module.
    #[inline]
    pub(crate) fn writer(self) -> Writer {
        Writer(self.writer.load(SeqCst))
    }

    /// Whether it is worth trying [`Locks::reserve`]. Relaxed: a hint.
    #[inline]
    pub(crate) fn seems_unreserved(self) -> bool {
        self.writer.load(Relaxed) == 0
    }

    /// RESERVED. SeqCst, as all changes of the word; what the last writer did is ordered by SHARED,
    /// which every writer takes as well.
    ///
    /// # Errors
    /// The process that has it.
    #[inline]
    pub(crate) fn reserve(self, writer: WriterId) -> Result<(), Writer> {
        let word = writer.at(WriterLevel::Reserved);
        self.writer.compare_exchange(0, word, SeqCst, Relaxed).map(drop).map_err(Writer)
    }

    /// PENDING, for the connection with RESERVED. SeqCst: before readers are counted.
    #[inline]
    pub(crate) fn pend(self, writer: WriterId) {
        self.writer.store(writer.at(WriterLevel::Pending), SeqCst);
    }

    /// EXCLUSIVE, for the connection with PENDING when no other reader is left. Release: PENDING
    /// keeps readers out already, so this orders nothing against them.
    #[inline]
    pub(crate) fn exclude(self, writer: WriterId) {
        self.writer.store(writer.at(WriterLevel::Exclusive), Release);
    }

    /// Back to SHARED. SeqCst: what was written is seen by who sees the word free.
    #[inline]
    pub(crate) fn end_write(self) {
        self.writer.store(0, SeqCst);
    }

    /// Frees the word of a dead writer, if it still has it.
    pub(crate) fn end_dead_write(self, dead: Writer) {
        let _ = self.writer.compare_exchange(dead.0, 0, SeqCst, Relaxed);
    }

    // ---- short locks

    /// Held by the process that commits, or that copies blocks for a flush.
    #[inline]
    pub(crate) fn commit_lock(self) -> ShortLock<'a> {
        ShortLock(self.commit)
    }

    /// Held by the process that writes to the redo log, or from it to the database file.
    #[inline]
    pub(crate) fn log_lock(self) -> ShortLock<'a> {
        ShortLock(self.log)
    }

    /// All processes that had the image open are dead. Relaxed: no other process is there.
    pub(crate) fn free_all(self) {
        self.free_short();
        self.writer.store(0, Relaxed);
    }

    /// The same of the short locks.
    pub(crate) fn free_short(self) {
        self.commit.store(0, Relaxed);
        self.log.store(0, Relaxed);
    }

    /// The same of the writer's word, when what it left is settled. Release: after that.
    pub(crate) fn free_writer(self) {
        self.writer.store(0, Release);
    }
}

/// A lock that is held for a moment; it names the process that has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShortLock<'a>(&'a AtomicU32);

impl ShortLock<'_> {
    /// Acquire: what the last owner did is seen.
    ///
    /// # Errors
    /// The process that has it; `None` where it was free again.
    #[inline]
    pub(crate) fn try_take(self, process: u32) -> Result<(), Option<u32>> {
        let taken = self.0.compare_exchange(0, process + 1, Acquire, Relaxed);
        taken.map(drop).map_err(|word| word.checked_sub(1))
    }

    /// Release: the next owner sees what this one did.
    #[inline]
    pub(crate) fn free(self) {
        self.0.store(0, Release);
    }

    pub(crate) fn is_held_by(self, process: u32) -> bool {
        self.0.load(Acquire) == process + 1
    }

    /// Frees it if a dead process has it. AcqRel: the next owner sees what the dead one did, and
    /// what was noted of its death before.
    pub(crate) fn free_of_dead(self, process: u32) {
        let _ = self.0.compare_exchange(process + 1, 0, AcqRel, Relaxed);
    }
}
