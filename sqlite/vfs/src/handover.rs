//! Databases that leave the pool while they are open: to be read or copied by other programs, or to
//! go over to SQLite's WAL mode.
//!
//! A database that was released comes back with the next write, as one that was just opened.
//!
//! SQLite changes the mode by a transaction that says so in the first page. It is one like any
//! other here: committed in the pool. A process that reads such a page next opens the log of WAL
//! mode, `-wal`, and on this occasion the database leaves the pool: all of it is brought to the
//! file, the mark goes, and from then on every call is the base VFS's. So a death at any step
//! leaves a database that is in the pool and says that it is in WAL mode, which the next one to
//! read it finishes; or one that has left. The way back needs nothing: SQLite leaves WAL mode under
//! its EXCLUSIVE lock, and the next write makes the database hot.
//!
//! Invariants:
//! - No process has a `-wal` open while the database is in the pool: its newest state is there, or
//!   in the file with its `-wal`.
//! - The database leaves under EXCLUSIVE of the pool and of SQLite, and comes back under SQLite's;
//!   who has a `-wal` open has SQLite's SHARED.
//! - Nothing is committed in the pool while the file may be without its mark.
//! - A file whose mark is gone may have been written to by others since, and is not written to from
//!   the pool again.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use holdfast_sys::file::FileId;

use crate::apply::mark_again;
use crate::at_rest;
use crate::base::Base;
use crate::base::read_mark;
use crate::connection::{Code, Connection, report};
use crate::copy;
use crate::error::{Result, SqliteError};
use crate::ffi::{self, LOCK_EXCLUSIVE, LOCK_NONE};
use crate::file_size;
use crate::host;
use crate::image::WriterId;
use crate::journal;
use crate::log::Log;
use crate::pool::Pool;
use crate::recovery::clear_mark;
use crate::stub;

/// How long readers are waited for. Others who read a page that says WAL come to the same door, and
/// go back when a process is in it.
const DOOR_PATIENCE: Duration = Duration::from_millis(200);
/// How long those are waited for who look, at SQLite's locks, whether the database is in the pool.
const BASE_PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_micros(200);

impl Pool {
    /// Brings everything to the file and hands it over to a process that reads it: nothing of the
    /// database is in the pool afterwards. The caller has passed the gate and is alone, or has
    /// EXCLUSIVE of the pool and of SQLite, and says so: only then no process can have changed the
    /// file when a mark that was not taken away for good is put back.
    /// A log that leaves its name is returned. One that stays counts for nothing.
    pub(crate) fn hand_over(&self, is_locked: bool) -> Result<Option<Log>> {
        let mode = self.image.mode();
        let mut turn = self.log_turn();
        // It may be gone since another process began, and the file be others' since.
        let may_stay = is_locked && read_mark(self.base())?.0.is_some();
        // Where a process came as far and no further, there is nothing left to write.
        let filled = self.fill_new_file(&mut turn)?;
        if filled.is_none() {
            self.complete_file(&mut turn)?;
        }
        let size = self.size();
        mode.begin_closing();
        self.image.write_back_header();
        let cleared = match filled {
            Some(first) => first.write(self.base()),
            None => clear_mark(self.base(), Some(size)),
        };
        if let Err(error) = cleared {
            // Whether it is gone, and durably, is not known.
            if may_stay {
                let _ = self.stay();
            }
            return Err(error);
        }
        if is_locked {
            file_size::trim(self.base());
        }
        copy::remove(&self.copies, mode.nonce());
        let (log, path) = (turn.take(), self.log_path());
        let named = FileId::at(&path).ok().flatten();
        let is_elsewhere = log.as_ref().is_some_and(|log| Some(log.id()) != named);
        let stays = || log.as_ref().is_some_and(|log| self.leave_log(log));
        // What has its name may be the log of a process that has the complete file already.
        if is_elsewhere || !is_locked && stays() {
            self.forget();
            return Ok(None);
        }
        if let Err(error) = Log::remove(&path).map_err(SqliteError::io("remove", &path)) {
            // It counts for nothing, and the next one takes its place.
            let _ = log.as_ref().map(Log::rest);
            report(&error);
        }
        self.forget();
        Ok(log)
    }

    /// The database is not handed over. Also a mark that is there is written: a disk that failed to
    /// sync it may have it not, and is not asked again for what was not written since.
    fn stay(&self) -> Result<()> {
        mark_again(self.base(), self.stamp(self.image.commits().applied()))?;
        self.image.mode().end_closing();
        self.image.write_back_header();
        Ok(())
    }

    /// For one with RESERVED, or who is alone: a database that was being handed over, and is not,
    /// stays; unless its file may be others' already.
    pub(crate) fn end_leaving(&self) -> Result<()> {
        if !self.image.mode().is_closing() {
            return Ok(());
        }
        // No checkpoint writes the first page meanwhile.
        let _turn = self.log_turn();
        match read_mark(self.base())?.0 {
            Some(_) => self.stay(),
            None => Err(SqliteError::Leaving { path: self.database.clone() }),
        }
    }

    /// As [`Pool::hand_over`], for one with EXCLUSIVE of the pool, who has SQLite's afterwards.
    fn hand_over_locked(&self, base: &dyn Base) -> Result<()> {
        let started = Instant::now();
        loop {
            match base.lock_exclusive() {
                Err(SqliteError::Busy { .. }) if started.elapsed() < BASE_PATIENCE => {
                    std::thread::sleep(PAUSE)
                }
                locked => break locked?,
            }
        }
        self.hand_over(true).map(drop)
    }

    /// The database leaves the pool until a process writes again: its file is complete, and any
    /// program reads or copies it. `Busy` where a process reads or writes.
    pub(crate) fn release(&self, base: &dyn Base, id: WriterId) -> Result<()> {
        if !self.is_hot() {
            at_rest::release(&self.database, base);
            return Ok(());
        }
        if !self.lock_shared() {
            return Err(SqliteError::Busy { path: self.database.clone() });
        }
        let left = match self.leave_if_rolled_back(id) {
            Ok(false) => self.release_shared(base, id),
            left => left.map(drop),
        };
        self.unlock_shared();
        left
    }

    /// The same, for one who has SHARED.
    fn release_shared(&self, base: &dyn Base, id: WriterId) -> Result<()> {
        if self.has_journal(&self.database)? {
            return Err(SqliteError::Busy { path: self.database.clone() });
        }
        let closed = self.close_door(id);
        let is_closed = closed.is_ok();
        let mut left = closed.and_then(|()| match self.is_hot() {
            true => self.hand_over_locked(base),
            false => Ok(()),
        });
        if is_closed {
            left = left.and(base.unlock());
            self.unlock_writer();
        }
        left
    }

    /// EXCLUSIVE of the pool, for one who has SHARED.
    pub(crate) fn close_door(&self, id: WriterId) -> Result<()> {
        let busy = || SqliteError::Busy { path: self.database.clone() };
        if !self.lock_reserved(id) {
            return Err(busy());
        }
        let started = Instant::now();
        while !self.lock_exclusive(id) {
            if started.elapsed() > DOOR_PATIENCE {
                self.unlock_writer();
                return Err(busy());
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

impl Connection {
    /// EXCLUSIVE for one with RESERVED at the base VFS: the database becomes hot.
    pub(crate) fn go_to_pool(&mut self) -> std::result::Result<(), Code> {
        self.base_lock(LOCK_EXCLUSIVE)?;
        // Before others see that the database is hot. They look into the pool for a moment, to find
        // that it is not.
        if !self.pool.lock_shared() {
            return Err(ffi::BUSY);
        }
        let is_reserved = self.pool.lock_reserved(self.writer_id);
        let heated = match is_reserved && self.pool.lock_exclusive(self.writer_id) {
            true => self
                .drop_dead_journal()
                .and_then(|()| self.pool.heat(&self.base))
                .map_err(|error| report(&error)),
            false => Err(ffi::BUSY),
        };
        if heated == Ok(true) {
            (self.is_going, self.in_pool, self.is_writer) = (false, true, true);
            let _ = self.base.unlock_to(LOCK_NONE);
            return Ok(());
        }
        if is_reserved {
            self.pool.unlock_writer();
        }
        self.pool.unlock_shared();
        heated?;
        // It is in WAL mode, and changed in its file: the journal belongs on the disk.
        self.is_going = false;
        let path = stub::journal_path(&self.database);
        let moved = if self.journal.is_empty() {
            Ok(())
        } else {
            self.journal.spill(&path, &self.database)
        };
        moved.map_err(SqliteError::io("write", &path)).map_err(|error| report(&error))
    }

    /// Removes a journal on the disk, which would undo what is committed from now on. It is of a
    /// program without the VFS that died before it wrote to the file: SQLite found no hot journal
    /// when it took SHARED, and no program can have written since. SQLite alone would write its own
    /// journal over it; here that is in memory.
    fn drop_dead_journal(&self) -> Result<()> {
        if read_mark(&self.base)? != (None, false) {
            // It may be refused, or stay in its file with a journal on the disk.
            return Ok(());
        }
        let path = stub::journal_path(&self.database);
        journal::remove(&path).map_err(SqliteError::io("remove", &path))
    }

    /// Before the log of WAL mode is opened: the database leaves the pool, if it is there.
    pub(crate) fn go_over(&mut self) -> std::result::Result<(), Code> {
        if !self.in_pool {
            return Ok(());
        }
        self.leave_pool()?;
        host::log(
            ffi::NOTICE,
            &format!("{} goes over to WAL mode, and is SQLite's", self.database.display()),
        );
        Ok(())
    }

    /// See [`Pool::release`]. `Busy` where this connection reads or writes, too.
    pub(crate) fn release(&mut self) -> Result<()> {
        if self.level > LOCK_NONE || !self.pool.is_ours() {
            return Err(SqliteError::Busy { path: self.database.clone() });
        }
        self.pool.release(&self.base, self.writer_id)
    }

    fn leave_pool(&mut self) -> std::result::Result<(), Code> {
        self.try_to_leave().map_err(|error| report(&error))
    }

    /// For one with SHARED or more in the pool, who has as much at SQLite afterwards, and nothing
    /// in the pool.
    fn try_to_leave(&mut self) -> Result<()> {
        if !self.pool.is_ours() || self.has_disk_journal()? {
            // A journal that is to be rolled back is rolled back first.
            return Err(SqliteError::Busy { path: self.database.clone() });
        }
        let was_writer = self.is_writer;
        if self.level < LOCK_EXCLUSIVE {
            self.pool.close_door(self.writer_id)?;
        }
        if let Err(error) = self.pool.hand_over_locked(&self.base) {
            let _ = self.base.unlock_to(LOCK_NONE);
            if !was_writer {
                self.pool.unlock_writer();
            }
            return Err(error);
        }
        self.pool.unlock_writer();
        self.pool.unlock_shared();
        (self.is_writer, self.in_pool) = (false, false);
        self.base.unlock_to(self.level)
    }

    /// Whether a process began to hand the database over and could not end it.
    pub(crate) fn is_leaving(&self) -> bool {
        self.in_pool && self.pool.image.mode().is_closing()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::OwnFile;
    use crate::mark;
    use crate::testing::{Dying, Steps, attached, attached_over, first_page, put};
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::Ordering::SeqCst;

    /// First pages of a database: as it was, and as a transaction leaves it that goes over to WAL.
    fn pages() -> [Vec<u8>; 2] {
        [1, 2].map(|version| {
            let mut page = first_page();
            page[18..20].fill(version);
            page
        })
    }

    /// A pool with the second of [`pages`] committed in it, over a file with the first.
    fn committed_pool(folder: &Path, steps: &Arc<Steps>) -> Pool {
        let database = folder.join("db");
        let [before, after] = pages();
        std::fs::write(&database, before).unwrap();
        let base = Box::new(Dying(OwnFile::open(&database).unwrap(), Arc::clone(steps)));
        let pool = attached_over(folder, base);
        assert!(pool.heat(pool.base()).unwrap());
        commit(&pool, &after);
        pool
    }

    fn commit(pool: &Pool, page: &[u8]) {
        pool.commit(&[put(pool, 0, page)], page.len() as u64).unwrap();
    }

    /// The process that comes after one that died while it handed a database over ends the
    /// hand-over.
    ///
    /// Guarantee: sqlite/wal-death
    #[test]
    fn successor_ends_a_dead_processes_hand_over() {
        let steps = Steps::endless();
        for count in 0.. {
            let folder = tempfile::tempdir().unwrap();
            let database = folder.path().join("db");
            steps.set(usize::MAX, 0);
            let pool = committed_pool(folder.path(), &steps);
            steps.set(count, usize::MAX);
            let is_done = pool.hand_over(false).is_ok();
            drop(pool);
            let pool = attached(folder.path());
            assert_eq!(read_mark(pool.base()).unwrap().0.is_some(), pool.is_hot(), "{count} steps");
            pool.hand_over(false).unwrap();
            assert!(!pool.is_hot());
            assert_eq!(std::fs::read(&database).unwrap(), pages()[1], "{count} steps");
            if is_done {
                assert!(count > 3, "it was done before it did anything");
                break;
            }
        }
    }

    /// Whatever the disk failed at, and for however long: a commit that is taken afterwards
    /// outlives its process, and its log the machine, as the mark refers to it.
    ///
    /// Guarantee: sqlite/disk-errors
    #[test]
    fn commit_after_failed_hand_over_is_kept_or_refused() {
        let steps = Steps::endless();
        let mut refused = 0;
        let cases = (0..120).map(|case| (case % 12, case / 12 % 5 + 1, case >= 60));
        for (count, failing, only_syncs) in cases {
            let folder = tempfile::tempdir().unwrap();
            let database = folder.path().join("db");
            steps.set(usize::MAX, 0);
            let pool = committed_pool(folder.path(), &steps);
            steps.only_syncs.store(only_syncs, SeqCst);
            steps.set(count, failing);
            let is_done = pool.hand_over(true).is_ok();
            steps.set(usize::MAX, 0);
            if is_done {
                continue;
            }
            let newest = [&pages()[1][..4000], &[9; 96]].concat();
            let is_refused = match pool.end_leaving() {
                Err(SqliteError::Leaving { .. }) => true,
                stays => {
                    stays.unwrap();
                    let marked = mark::find(&steps.durable.lock().unwrap());
                    assert!(
                        marked.is_some(),
                        "{failing} failures after {count} steps: the mark is not durable"
                    );
                    commit(&pool, &newest);
                    false
                }
            };
            refused += u32::from(is_refused);
            assert!(failing > 1 || !is_refused, "the mark was not put back");
            drop(pool);
            let pool = attached(folder.path());
            pool.hand_over(false).unwrap();
            let expected = if is_refused { &pages()[1] } else { &newest };
            assert!(
                std::fs::read(&database).unwrap() == *expected,
                "{failing} failures after {count} steps"
            );
        }
        assert!(refused > 0, "the mark could always be put back");
    }

    /// A process alone in the pool is not alone with the file: once its mark is gone any program
    /// may write to it.
    ///
    /// Guarantee: sqlite/wal-death
    #[test]
    fn file_written_during_failed_hand_over_is_theirs() {
        let others = [b"SQLite format 3\0".as_slice(), &[7; 4080]].concat();
        let mut meetings = 0;
        for count in 0..8 {
            let folder = tempfile::tempdir().unwrap();
            let steps = Steps::endless();
            let pool = committed_pool(folder.path(), &steps);
            pool.checkpoint().unwrap();
            *steps.others.lock().unwrap() = Some(others.clone());
            steps.set(count, 1);
            let _ = pool.cool();
            drop(pool);
            if steps.others.lock().unwrap().is_none() {
                meetings += 1;
                assert!(!attached(folder.path()).is_hot(), "{count} steps");
                assert!(
                    std::fs::read(folder.path().join("db")).unwrap() == others,
                    "{count} steps"
                );
            }
        }
        assert!(meetings > 0, "no sync failed");
    }

    /// The file may have been changed by others in between, once its mark was gone.
    ///
    /// Guarantee: sqlite/wal-death
    #[test]
    fn handed_over_file_is_not_written_again() {
        for (dead, failed_reads) in [(true, 0), (false, 0), (false, 1), (false, 2)] {
            let folder = tempfile::tempdir().unwrap();
            let steps = Steps::endless();
            let pool = committed_pool(folder.path(), &steps);
            pool.checkpoint().unwrap();
            pool.image.mode().begin_closing();
            clear_mark(pool.base(), Some(4096)).unwrap();
            let others = [b"SQLite format 3\0".as_slice(), &[7; 4080]].concat();
            std::fs::write(folder.path().join("db"), &others).unwrap();
            for number in 0..failed_reads {
                steps.reads.store(number, SeqCst);
                assert!(pool.hand_over(true).is_err() && pool.is_hot());
            }
            match dead {
                true => pool.settle_dead_writer().unwrap(),
                false => drop(pool.hand_over(true).unwrap()),
            }
            assert!(!pool.is_hot() && pool.image.find(0).unwrap() == 0);
            assert!(std::fs::read(folder.path().join("db")).unwrap() == others);
        }
    }

    /// Guarantee: sqlite/wal-passes
    #[test]
    fn a_database_in_wal_mode_does_not_become_hot() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("db"), &pages()[1]).unwrap();
        let pool = attached(folder.path());
        assert!(!pool.heat(pool.base()).unwrap() && !pool.is_hot());
        assert_eq!(std::fs::read(folder.path().join("db")).unwrap(), pages()[1]);
    }
}
