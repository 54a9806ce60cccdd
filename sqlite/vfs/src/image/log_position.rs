//! The position of the redo log's next record, the generation of the log, and whether its end is to
//! be believed.
//!
//! Only the process with the log lock writes these words, but for `suspicion`, which is also set
//! when a process dies or leaves.

#![forbid(unsafe_code)]

use super::atomic::Ordering::{Acquire, Relaxed, Release};
use super::atomic::{AtomicU32, AtomicU64};

/// What is wrong with the end of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Suspicion {
    None = 0,
    /// The last record is not to be believed.
    Failed = 1,
    /// A process may have begun the log again and died: the records are to be read.
    Unchecked = 2,
    /// The record at the end, if there is one, is of a commit that was taken back.
    Void = 3,
}

impl Suspicion {
    fn of(word: u32) -> Suspicion {
        match word {
            0 => Suspicion::None,
            1 => Suspicion::Failed,
            3 => Suspicion::Void,
            _ => Suspicion::Unchecked,
        }
    }

    /// The log must be begun again before the next record.
    pub(crate) fn ends_generation(self) -> bool {
        matches!(self, Suspicion::Failed | Suspicion::Void)
    }
}

/// What has been flushed and applied since the image was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogCounts {
    pub(crate) flushes: u64,
    pub(crate) flushed_blocks: u64,
    pub(crate) checkpoints: u64,
}

/// The words of an image about its redo log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogPosition<'a> {
    pub(super) tail: &'a AtomicU64,
    pub(super) salt: &'a AtomicU64,
    pub(super) sequence: &'a AtomicU64,
    pub(super) base: &'a AtomicU64,
    pub(super) reached: &'a AtomicU64,
    pub(super) blocks: &'a AtomicU32,
    pub(super) suspicion: &'a AtomicU32,
    pub(super) flushes: &'a AtomicU64,
    pub(super) flushed_blocks: &'a AtomicU64,
    pub(super) checkpoints: &'a AtomicU64,
}

impl LogPosition<'_> {
    /// Where the next record goes. Acquire: a commit compares it without the log lock.
    #[inline]
    pub(crate) fn tail(self) -> u64 {
        self.tail.load(Acquire)
    }

    /// The salt of this generation.
    pub(crate) fn salt(self) -> u64 {
        self.salt.load(Acquire)
    }

    /// How many records this generation has.
    pub(crate) fn records(self) -> u64 {
        self.sequence.load(Acquire)
    }

    /// The transaction as of which the database file was when the generation began.
    pub(crate) fn base(self) -> u64 {
        self.base.load(Acquire)
    }

    /// Blocks in the records of this generation; one that is in two counts twice. Relaxed: an
    /// estimate.
    #[inline]
    pub(crate) fn blocks(self) -> u32 {
        self.blocks.load(Relaxed)
    }

    /// The log has one record more, of so many blocks, whole and durable. Release, the end first:
    /// who sees the count sees where the record ends, and who sees `reached` finds it in the log.
    pub(crate) fn note_record(self, end: u64, blocks: u32, records: u64, transaction: u64) {
        self.tail.store(end, Relaxed);
        self.blocks.store(self.blocks().saturating_add(blocks), Relaxed);
        self.sequence.store(records, Release);
        self.reached.store(transaction, Release);
    }

    /// File and log are together as of this transaction only: the log was lost.
    pub(crate) fn fall_back_to(self, transaction: u64) {
        self.reached.store(transaction, Release);
    }

    /// A new generation, durable, without records. Release, the salt after all that belongs to it,
    /// and the log is sound last.
    pub(crate) fn begin(self, first: u64, salt: u64, transaction: u64) {
        self.tail.store(first, Relaxed);
        self.blocks.store(0, Relaxed);
        self.sequence.store(0, Release);
        self.base.store(transaction, Release);
        self.reached.store(transaction, Release);
        self.salt.store(salt, Release);
        self.clear_suspicion();
    }

    #[inline]
    pub(crate) fn suspicion(self) -> Suspicion {
        Suspicion::of(self.suspicion.load(Acquire))
    }

    /// A record failed, or a writer to the log died: which generation a power cut would leave is
    /// not known. That a record is void stays known.
    pub(crate) fn suspect(self) {
        if self.suspicion() != Suspicion::Void {
            self.note_failed_record();
        }
    }

    /// The last record is not to be believed, and is of a transaction that counts.
    pub(crate) fn note_failed_record(self) {
        self.suspicion.store(Suspicion::Failed as u32, Release);
    }

    /// The last record is of a commit that is being taken back. Release: before that.
    pub(crate) fn note_void_record(self) {
        self.suspicion.store(Suspicion::Void as u32, Release);
    }

    /// The records are to be read before the next one, unless something worse is known.
    pub(crate) fn ask_for_check(self) {
        let unchecked = Suspicion::Unchecked as u32;
        let _ = self.suspicion.compare_exchange(0, unchecked, Release, Relaxed);
    }

    /// Release: after what was checked or written anew.
    pub(crate) fn clear_suspicion(self) {
        self.suspicion.store(Suspicion::None as u32, Release);
    }

    /// Relaxed: a statistic.
    pub(crate) fn count_flush(self, blocks: u32) {
        self.flushes.fetch_add(1, Relaxed);
        self.flushed_blocks.fetch_add(u64::from(blocks), Relaxed);
    }

    /// Relaxed: a statistic.
    pub(crate) fn count_checkpoint(self) {
        self.checkpoints.fetch_add(1, Relaxed);
    }

    pub(crate) fn counts(self) -> LogCounts {
        LogCounts {
            flushes: self.flushes.load(Relaxed),
            flushed_blocks: self.flushed_blocks.load(Relaxed),
            checkpoints: self.checkpoints.load(Relaxed),
        }
    }
}
