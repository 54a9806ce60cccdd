//! The commit: one store, and what has to be before and after it.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::Result;
use crate::image::{BLOCK_BYTES, Suspicion};
use crate::pool::Pool;
use crate::stub;
use holdfast_types::Durability;

impl Pool {
    /// Commits what a writer with EXCLUSIVE has put in front of the map; returns how many blocks are
    /// to be flushed besides those that were before.
    #[inline]
    pub(crate) fn commit(&self, shadows: &[u32], size: u64) -> Result<u32> {
        let commits = self.image.commits();
        let last = commits.newest_for_writer();
        let (transaction, before) = (last + 1, commits.size_of(last));
        commits.set_size(transaction, size);
        // Shadows that were written again after their first time are written back here.
        shadows.iter().for_each(|link| self.image.write_back_slot(*link));
        self.image.write_back_header();
        let waits = self.waits_for_log();
        // A record of a commit that was taken back must be gone before its number is used again.
        let is_void = self.image.log_position().suspicion() == Suspicion::Void;
        let mut turn = (waits || is_void).then(|| self.log_turn());
        let mut logged = turn.as_mut().map_or(Ok(()), |turn| match waits {
            true => self.prepare_to_wait(turn),
            false => self.prepare_log(turn),
        });
        if !commits.is_prepared() && logged.is_err() {
            return logged.map(|()| 0);
        }
        if !waits {
            turn = None;
        }
        let guard = self.lock_commit();
        if waits {
            commits.announce(transaction);
        }
        commits.publish(transaction);
        self.image.write_back_header();
        if let (Some(turn), true) = (turn.as_mut(), logged.is_ok()) {
            logged = self.flush_in_turn(turn, Some(shadows));
        }
        if let Err(error) = logged {
            if !commits.is_prepared() {
                // No process has seen it: the writer still has EXCLUSIVE. What is in the log of it
                // is not known.
                self.image.log_position().note_void_record();
                commits.retract_to(last);
                self.image.write_back_header();
                return Err(error);
            }
            // The super-journal is gone: it is committed, here as in the other databases, and
            // SQLite takes no error any more. The log is written anew with the next flush.
            crate::host::log(error.code(), &error.to_string());
        }
        if waits {
            commits.confirm();
        }
        if commits.is_prepared() {
            commits.end_prepared();
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
    ) -> std::result::Result<u32, crate::image::BadLink> {
        let commits = self.image.commits();
        let (gathered, mut dirty) = (commits.gathered(), 0);
        // At a level that waits it is in the log already.
        let is_in_log = gathered >= commits.newest_for_writer();
        for link in shadows {
            let older = self.image.drop_older(*link)?;
            dirty += u32::from(!is_in_log && (older == 0 || older <= gathered));
        }
        if dirty > 0 {
            commits.add_dirty(dirty);
        }
        if size < size_before {
            let end = size.div_ceil(BLOCK_BYTES as u64);
            self.image.remove_if(|block, _| u64::from(block) >= end)?;
        }
        Ok(dirty)
    }

    /// Has a flush done when one is due: by the thread, unless the commit is to do it.
    #[inline]
    pub(crate) fn flush_if_due(self: &Arc<Pool>) -> Result<()> {
        match self.is_flush_due() {
            false => self.flush_in_time(),
            true if self.settings.is_inline() || !self.flusher.ask(self) => self.flush_now(),
            true => Ok(()),
        }
    }

    /// Sees to it that what is in the pool alone is flushed when the interval is over, by the
    /// thread, also where the commit does the other flushes: no process may come again.
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
        self.is_hot() && !self.image.commits().seems_flushed()
    }

    fn flush_now(self: &Arc<Pool>) -> Result<()> {
        // The transaction is committed: what fails here fails again, and is reported, in the next
        // flush.
        if let Err(error) = self.flush_and_tidy() {
            crate::host::log(error.code(), &error.to_string());
            // Also where no process commits any more.
            self.flusher.arm(self);
        }
        Ok(())
    }
}
