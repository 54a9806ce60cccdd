//! The commit: one store, and what has to be before and after it.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::error::Result;
use crate::flush::{LOG_BYTES_MAX, VOID};
use crate::layout::BLOCK_BYTES;
use crate::pool::Pool;
use crate::stub;
use holdfast_types::Durability;

impl Pool {
    /// Commits what a writer with EXCLUSIVE has put in front of the map.
    #[inline]
    pub(crate) fn commit(&self, shadows: &[u32], size: u64) -> Result<()> {
        let header = self.image.header();
        let last = header.committed.load(Relaxed);
        let (transaction, before) = (last + 1, header.size[(last & 1) as usize].load(Relaxed));
        header.size[(transaction & 1) as usize].store(size, Relaxed);
        // Shadows that were written again after their first time are written back here.
        shadows.iter().for_each(|link| self.image.write_back_slot(*link));
        self.image.write_back_header();
        let waits = self.waits_for_log();
        // A record of a commit that was taken back must be gone before its number is used again.
        let is_void = header.log_suspect.load(Acquire) == VOID;
        let mut turn = (waits || is_void).then(|| self.log_turn());
        let mut logged = turn.as_mut().map_or(Ok(()), |turn| match waits {
            true => self.prepare_to_wait(turn),
            false => self.prepare_log(turn),
        });
        if header.prepared.load(Relaxed) == 0 && logged.is_err() {
            return logged;
        }
        if !waits {
            turn = None;
        }
        let guard = self.lock_briefly(&header.commit_lock);
        if waits {
            header.provisional.store(transaction, Release);
        }
        header.committed.store(transaction, Release);
        self.image.write_back_header();
        if let (Some(turn), true) = (turn.as_mut(), logged.is_ok()) {
            logged = self.flush_in_turn(turn, Some(shadows));
        }
        if let Err(error) = logged {
            if header.prepared.load(Relaxed) == 0 {
                // Nobody has seen it: the writer still has EXCLUSIVE. What is in the log of it is not known.
                header.log_suspect.store(VOID, Release);
                header.committed.store(last, Release);
                header.provisional.store(0, Release);
                self.image.write_back_header();
                return Err(error);
            }
            // The super-journal is gone: it is committed, here as in the other databases, and SQLite takes no error any
            // more. The log is written anew with the next flush.
            crate::host::log(error.code(), &error.to_string());
        }
        if waits {
            header.provisional.store(0, Release);
        }
        if header.prepared.load(Relaxed) != 0 {
            header.prepared.store(0, Release);
            stub::remove(&self.database);
        }
        let cleaned = self.drop_replaced(shadows, size, before);
        drop(guard);
        cleaned.map_err(|found| self.astray(found))
    }

    /// Whether a commit returns when it is in the log, at the level that was chosen.
    #[inline]
    pub(crate) fn waits_for_log(&self) -> bool {
        match self.settings.level() {
            Durability::Process => false,
            Durability::System => !self.image.is_persistent(),
            Durability::Power => true,
        }
    }

    #[inline]
    fn drop_replaced(
        &self,
        shadows: &[u32],
        size: u64,
        size_before: u64,
    ) -> std::result::Result<(), crate::image::Astray> {
        let header = self.image.header();
        let (gathered, mut dirty) = (header.gathered.load(Relaxed), 0);
        // At a level that waits it is in the log already.
        let is_in_log = gathered >= header.committed.load(Relaxed);
        for link in shadows {
            let older = self.image.drop_older(*link)?;
            dirty += u32::from(!is_in_log && (older == 0 || older <= gathered));
        }
        if dirty > 0 {
            header.dirty.fetch_add(dirty, Relaxed);
        }
        if size < size_before {
            let end = size.div_ceil(BLOCK_BYTES as u64);
            self.image.remove_if(|block, _| u64::from(block) >= end)?;
        }
        Ok(())
    }

    /// Has a flush done when more has changed than the threshold says.
    #[inline]
    pub(crate) fn flush_if_due(self: &Arc<Pool>) -> Result<()> {
        let header = self.image.header();
        let dirty = u64::from(header.dirty.load(Relaxed));
        let is_due = dirty > self.settings.threshold() || header.log_tail.load(Acquire) > LOG_BYTES_MAX;
        if !is_due {
            return self.flush_in_time();
        }
        self.flush_now_or_soon(dirty)
    }

    /// Sees to it that what is in the pool alone is flushed when the interval is over, by the thread, also where the commit does
    /// the other flushes: nobody may come again.
    #[inline]
    pub(crate) fn flush_in_time(self: &Arc<Pool>) -> Result<()> {
        if self.settings.flush_interval().is_none() || !self.is_behind() || self.flusher.arm(self) {
            return Ok(());
        }
        // There is no thread to be had.
        self.flush_now()
    }

    /// Whether something that is committed is in the pool alone.
    fn is_behind(&self) -> bool {
        let header = self.image.header();
        header.hot.load(Relaxed) != 0 && header.committed.load(Relaxed) != header.flushed.load(Relaxed)
    }

    fn flush_now_or_soon(self: &Arc<Pool>, dirty: u64) -> Result<()> {
        let waits = self.settings.is_inline() || dirty > self.settings.lag_max();
        if waits || !self.flusher.ask(self) {
            return self.flush_now();
        }
        Ok(())
    }

    fn flush_now(self: &Arc<Pool>) -> Result<()> {
        // The transaction is committed: what fails here fails again, and is told, in the next flush.
        if let Err(error) = self.flush_and_tidy() {
            crate::host::log(error.code(), &error.to_string());
            // Also where nobody commits any more.
            self.flusher.arm(self);
        }
        Ok(())
    }
}
