//! The transactions that count, the size of the database as of each, and how far log and database
//! file have followed.
//!
//! Only the process with EXCLUSIVE commits; only the process with the log lock raises `flushed`
//! and `applied`. `gathered` and `dirty` change under the commit lock.
//!
//! Invariant: `applied` <= `flushed` <= `committed`, but for the moment of a commit that is taken
//! back.

#![forbid(unsafe_code)]

use super::atomic::AtomicU32;
use super::atomic::AtomicU64;
use super::atomic::Ordering::{Acquire, Relaxed, Release};

/// Stands for "more than any threshold", and leaves room to count on.
const ALL_DIRTY: u32 = u32::MAX / 2;

/// The words of an image that count transactions. A value of 0 in `provisional` or `prepared`
/// means that there is none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Commits<'a> {
    pub(super) committed: &'a AtomicU64,
    pub(super) size: &'a [AtomicU64; 2],
    pub(super) flushed: &'a AtomicU64,
    pub(super) applied: &'a AtomicU64,
    pub(super) gathered: &'a AtomicU64,
    pub(super) dirty: &'a AtomicU32,
    pub(super) provisional: &'a AtomicU64,
    pub(super) prepared: &'a AtomicU64,
}

impl Commits<'_> {
    /// A new image: transaction 1 is the database file as it was found.
    pub(super) fn format(self) {
        for word in [self.committed, self.flushed, self.applied, self.gathered] {
            word.store(1, Relaxed);
        }
    }

    // ---- the commit

    /// The last transaction that counts. Acquire: what it wrote is seen by who sees its number.
    #[inline]
    pub(crate) fn newest(self) -> u64 {
        self.committed.load(Acquire)
    }

    /// The same for the process with EXCLUSIVE, which alone changes it. Relaxed: the lock has
    /// ordered what came before.
    #[inline]
    pub(crate) fn newest_for_writer(self) -> u64 {
        self.committed.load(Relaxed)
    }

    /// Size of the database as of the last commit, in bytes.
    #[inline]
    pub(crate) fn size(self) -> u64 {
        self.size_of(self.newest())
    }

    /// Size as of the last transaction or the one before it. Relaxed: `newest` or a lock orders it.
    #[inline]
    pub(crate) fn size_of(self, transaction: u64) -> u64 {
        self.size[(transaction & 1) as usize].load(Relaxed)
    }

    /// States the size as of a transaction that does not count yet. Relaxed: `publish` follows.
    #[inline]
    pub(crate) fn set_size(self, transaction: u64, bytes: u64) {
        self.size[(transaction & 1) as usize].store(bytes, Relaxed);
    }

    /// The transaction is about to be published, and counts only when the log has it. Release:
    /// ordered before `publish`, so a reader of the file never takes it for certain too early.
    #[inline]
    pub(crate) fn announce(self, transaction: u64) {
        self.provisional.store(transaction, Release);
    }

    /// The commit. Release: a process that sees the number sees its slots, pages and size.
    #[inline]
    pub(crate) fn publish(self, transaction: u64) {
        self.committed.store(transaction, Release);
    }

    /// The announced transaction is in the log. Release: after `publish`.
    #[inline]
    pub(crate) fn confirm(self) {
        self.provisional.store(0, Release);
    }

    /// Takes an announced transaction back, which no reader has seen. Release, in this order: the
    /// number is gone before it is no longer marked as provisional.
    pub(crate) fn retract_to(self, last: u64) {
        self.committed.store(last, Release);
        self.provisional.store(0, Release);
    }

    /// The next transaction is committed when its super-journal is gone. Release: after its slots,
    /// its size and the name of the super-journal.
    pub(crate) fn prepare(self, transaction: u64) {
        self.prepared.store(transaction, Release);
    }

    /// The prepared transaction, if there is one. Acquire: with what `prepare` followed.
    #[inline]
    pub(crate) fn prepared(self) -> Option<u64> {
        Some(self.prepared.load(Acquire)).filter(|transaction| *transaction != 0)
    }

    /// Whether the process with EXCLUSIVE has prepared its transaction. Relaxed: its own store.
    #[inline]
    pub(crate) fn is_prepared(self) -> bool {
        self.prepared.load(Relaxed) != 0
    }

    /// The prepared transaction was published or dropped. Release: after that.
    pub(crate) fn end_prepared(self) {
        self.prepared.store(0, Release);
    }

    /// A transaction that went to the database file itself: file and image are as of it. Under the
    /// commit lock, with the size stated before. Release, the commit first: no reader finds
    /// `applied` above `committed`.
    pub(crate) fn publish_applied(self, transaction: u64) {
        for word in [self.committed, self.flushed, self.applied, self.gathered] {
            word.store(transaction, Release);
        }
        self.dirty.store(0, Relaxed);
    }

    // ---- what follows a commit

    /// Up to here transactions are in the log, durable. Acquire: with the state of the log.
    #[inline]
    pub(crate) fn flushed(self) -> u64 {
        self.flushed.load(Acquire)
    }

    /// Up to here transactions are in the database file, durable. Acquire: who sees the number may
    /// read the file instead of the slot.
    pub(crate) fn applied(self) -> u64 {
        self.applied.load(Acquire)
    }

    /// Release: after the log is durable.
    pub(crate) fn note_flushed(self, transaction: u64) {
        self.flushed.store(transaction, Release);
    }

    /// All that is flushed is in the database file. Release: after that is durable.
    pub(crate) fn note_applied(self) {
        self.applied.store(self.flushed(), Release);
    }

    /// What was in the log only is to be flushed again; returns the transaction of the file.
    pub(crate) fn forget_flushed(self) -> u64 {
        let applied = self.applied();
        self.flushed.store(applied, Release);
        applied
    }

    /// Whether all commits are in the log.
    pub(crate) fn is_flushed(self) -> bool {
        self.newest() == self.flushed()
    }

    /// Whether all commits are in the database file.
    pub(crate) fn is_applied(self) -> bool {
        self.newest() == self.applied()
    }

    /// Whether all commits are in the log, as a hint, after each commit. Relaxed: both numbers are
    /// this process's own, or a flush that is missed here has been made.
    #[inline]
    pub(crate) fn seems_flushed(self) -> bool {
        self.committed.load(Relaxed) == self.flushed.load(Relaxed)
    }

    /// Whether the counters can be those of one image.
    pub(crate) fn are_plausible(self) -> bool {
        let (committed, flushed) = (self.newest(), self.flushed());
        self.applied() <= flushed && flushed <= committed
    }

    // ---- blocks that changed

    /// Blocks that changed since the last flush, about. Relaxed: it decides when to flush only.
    #[inline]
    pub(crate) fn dirty(self) -> u32 {
        self.dirty.load(Relaxed)
    }

    /// The transaction as of which blocks were last counted as clean. Relaxed: under the commit
    /// lock.
    #[inline]
    pub(crate) fn gathered(self) -> u64 {
        self.gathered.load(Relaxed)
    }

    /// Relaxed: a count.
    #[inline]
    pub(crate) fn add_dirty(self, blocks: u32) {
        self.dirty.fetch_add(blocks, Relaxed);
    }

    /// All blocks as of a transaction were copied. Relaxed: under the commit lock.
    pub(crate) fn note_gathered(self, transaction: u64) {
        self.gathered.store(transaction, Relaxed);
        self.dirty.store(0, Relaxed);
    }

    /// How many blocks changed since the last flush, counted anew by the process that rebuilt the
    /// map. Release: after the map.
    pub(super) fn recount(self, gathered: u64, dirty: u32) {
        self.gathered.store(gathered, Release);
        self.dirty.store(dirty, Release);
    }

    /// How many blocks changed is not known: the next flush is due. Release: seen with the free
    /// log lock.
    pub(crate) fn count_all_as_dirty(self) {
        self.dirty.store(ALL_DIRTY, Release);
    }

    /// The database file is complete: the image is to hold nothing. Relaxed: the store of `hot`
    /// follows.
    pub(crate) fn forget(self) {
        let committed = self.committed.load(Relaxed);
        for word in [self.flushed, self.applied, self.gathered] {
            word.store(committed, Relaxed);
        }
        self.prepared.store(0, Relaxed);
        self.dirty.store(0, Relaxed);
    }
}
