//! The mode of a database, which says where its newest state is: in the image (*hot*), in its file
//! (*cold*), on the way out of the pool (*closing*), or in a transaction that goes to the file
//! itself (*direct*).
//!
//! These words change under EXCLUSIVE, or behind the gate by the only process there.

#![forbid(unsafe_code)]

use super::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use super::atomic::{AtomicU32, AtomicU64};

/// The words of an image that say where the database is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mode<'a> {
    pub(super) nonce: &'a AtomicU64,
    pub(super) hot: &'a AtomicU32,
    pub(super) closing: &'a AtomicU32,
    pub(super) direct: &'a AtomicU32,
    pub(super) disk_journal: &'a AtomicU32,
}

impl Mode<'_> {
    /// The newest state is in the image. Acquire: who sees it sees the first page and the log.
    #[inline]
    pub(crate) fn is_hot(self) -> bool {
        self.hot.load(Acquire) != 0
    }

    /// The number that joins image, mark and log. 0: none.
    pub(crate) fn nonce(self) -> u64 {
        self.nonce.load(Acquire)
    }

    /// The mark with this nonce is about to be written, or may be there. Release: after the log.
    pub(crate) fn set_nonce(self, nonce: u64) {
        self.nonce.store(nonce, Release);
    }

    /// The mark is durable: no earlier attempt to leave the pool counts. Relaxed: `heat` follows.
    pub(crate) fn prepare_to_heat(self) {
        self.closing.store(0, Relaxed);
    }

    /// From now on commits go to the pool. Release: after the mark, the log and the first page.
    pub(crate) fn heat(self) {
        self.hot.store(1, Release);
    }

    /// Nothing of the image counts any more. A mark that is found later is of a copy, and not to
    /// be believed. Relaxed: `cool` follows.
    pub(crate) fn forget(self) {
        self.direct.store(0, Relaxed);
        self.nonce.store(0, Relaxed);
        self.disk_journal.store(0, Relaxed);
    }

    /// The database is in its file. Release: after the image was emptied.
    pub(crate) fn cool(self) {
        self.hot.store(0, Release);
    }

    /// Everything is in the database file, whose mark is being cleared. Acquire, with the rest.
    pub(crate) fn is_closing(self) -> bool {
        self.closing.load(Acquire) != 0
    }

    /// Release: before the mark is cleared.
    pub(crate) fn begin_closing(self) {
        self.closing.store(1, Release);
    }

    /// The database stays, or has left. Release: after that is so.
    pub(crate) fn end_closing(self) {
        self.closing.store(0, Release);
    }

    /// A transaction writes to the database file itself, under a journal on the disk.
    pub(crate) fn is_direct(self) -> bool {
        self.direct.load(Acquire) != 0
    }

    /// Release: after its journal is durable, before the first page.
    pub(crate) fn begin_direct(self) {
        self.direct.store(1, Release);
    }

    /// Release: after the transaction ended, or was noted as one to roll back.
    pub(crate) fn end_direct(self) {
        self.direct.store(0, Release);
    }

    /// There may be a journal on the disk.
    #[inline]
    pub(crate) fn may_have_journal(self) -> bool {
        self.disk_journal.load(Acquire) != 0
    }

    /// The same for the connection that has just taken RESERVED. SeqCst: no earlier than the lock.
    pub(crate) fn may_have_journal_now(self) -> bool {
        self.disk_journal.load(SeqCst) != 0
    }

    /// Release: before there is a journal, or after it is gone.
    pub(crate) fn note_journal(self, may_exist: bool) {
        self.disk_journal.store(u32::from(may_exist), Release);
    }
}
