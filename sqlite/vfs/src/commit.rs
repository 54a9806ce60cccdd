//! The commit: one store, and what has to be before and after it.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::Result;
use crate::image::{BLOCK_BYTES, Suspicion};
use crate::pool::Pool;
use crate::stub;
use holdfast_types::Durability;

/// A commit of so many blocks that waits for the log brings the file up to date itself: until that
/// is done the log takes no record, and the next commits would wait for what this one wrote. SQLite
/// checkpoints its WAL at the same length, in the same place.
const LARGE_COMMIT_BLOCKS: usize = 1000;

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
        // Half of the looks that a commit takes at the log, the names and the mark are spared here;
        // what they would find, those behind the record find.
        let is_trusted = waits
            && !commits.is_prepared()
            && turn.as_ref().is_some_and(|turn| self.trusts_log(turn));
        let mut logged = turn.as_mut().map_or(Ok(()), |turn| match waits {
            true if is_trusted => Ok(()),
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
        let is_logged = logged.is_ok();
        if let Err(error) = logged {
            if !commits.is_prepared() {
                // No process has seen it: the writer still has EXCLUSIVE. What is in the log of it
                // is not known.
                self.image.log_position().note_void_record();
                commits.retract_to(last);
                self.image.write_back_header();
                if is_trusted {
                    // Not without the looks: now they mend what can be mended.
                    drop((guard, turn));
                    return self.commit(shadows, size);
                }
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
        if let Some(turn) = turn.as_mut()
            && is_logged
            && shadows.len() >= LARGE_COMMIT_BLOCKS
            && let Err(error) = self.checkpoint_in_turn(turn)
        {
            // The commit is in the log. What fails here fails again, and is reported, in the next
            // checkpoint.
            crate::host::log(error.code(), &error.to_string());
        }
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

    /// Before this process leaves the pool: what it was yet to flush is flushed, as those that stay
    /// may neither commit nor close for days. The last one brings everything to the file, and one
    /// that comes meanwhile looks for itself what is to be flushed.
    pub(crate) fn flush_for_others(&self) {
        if self.flusher.has_work()
            && self.is_behind()
            && !self.is_poisoned()
            && self.has_others().unwrap_or(false)
            && let Err(error) = self.flush_and_tidy()
        {
            crate::host::log(error.code(), &error.to_string());
        }
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::OwnFile;
    use crate::testing::{Dying, Steps, attached_over, commit, lose, make_database, recovered};

    const SIZE: usize = LARGE_COMMIT_BLOCKS + 1;

    /// Commits the same to all blocks but the first.
    fn fill(pool: &Pool, fill: u8) {
        let blocks: Vec<_> = (1..SIZE as u32).map(|block| (block, fill)).collect();
        commit(pool, &blocks, SIZE).unwrap();
    }

    /// A large commit leaves no checkpoint that a later commit would wait for. Where the checkpoint
    /// fails, the commit stands: the log has it.
    ///
    /// Guarantee: sqlite/level-power
    #[test]
    fn large_power_commit_brings_the_file_up_to_date() {
        for left in 0..100 {
            let folder = tempfile::tempdir_in("/dev/shm").unwrap();
            let steps = Steps::endless();
            let database = make_database(folder.path(), SIZE);
            let base = Dying(OwnFile::open(&database).unwrap(), Arc::clone(&steps));
            let pool = attached_over(folder.path(), Box::new(base));
            assert!(pool.heat(pool.base()).unwrap());
            pool.settings.set("level", "power").unwrap();
            steps.set(left, usize::MAX);
            fill(&pool, 2);
            let is_applied = pool.image.commits().is_applied();
            lose(pool);
            let (_, found) = recovered(folder.path());
            assert!(found[BLOCK_BYTES..].iter().all(|byte| *byte == 2), "{left}");
            if is_applied {
                assert!(left > 1, "it failed at no step");
                return;
            }
        }
        panic!("the file was never brought up to date");
    }
}
