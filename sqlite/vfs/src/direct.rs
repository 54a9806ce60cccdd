//! Transactions that outgrow the pool: from then on a transaction is *direct*, as SQLite would do
//! it without us. Its journal is on the disk, and its pages go to the database file, a pool at a
//! time.
//!
//! Invariants:
//! - All that was committed before is in the database file, durable, before the first page of such
//!   a transaction goes there.
//! - What undoes a page is durable before the page is written, and goes durably, after the page is
//!   durable: a journal that came back with a power cut would undo what is committed after it.
//! - The journal is beside the file that it is of, under the name by which that was opened. The image
//!   has that name: by another one nothing is read past the journal.
//! - The image says that there may be a journal on the disk before there is one.
//! - A connection with such a transaction has SQLite's RESERVED, too, from before the journal is
//!   there: an SQLite without the VFS looks for a journal before it reads the mark, and rolls it
//!   back if no process has that lock. Nothing in this process opens and closes the file but
//!   through that SQLite's VFS meanwhile, no second copy of SQLite and no function for tools: the
//!   kernel would drop the lock.
//! - Where an SQLite without the VFS has rolled back the journal that a dead process left, the file
//!   has lost its mark, and may have been written to since: the database leaves the pool before
//!   anything is read or committed there.
//! - A direct transaction that dies leaves its journal, and `direct` in the image says that nothing
//!   in the pool counts.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_sys::file::refused_link;

use crate::apply::write_stand_in;
use crate::base::{Base, database_size, read_mark};
use crate::connection::{Code, Connection, code_of_change, report};
use crate::error::SqliteError;
use crate::ffi;
use crate::host;
use crate::identity::Identity;
use crate::image::{BLOCK_BYTES, BadLink, WriterId};
use crate::journal;
use crate::mark::{self, Stamp};
use crate::pool::Pool;
use crate::stub;

/// How long programs without the VFS are waited for, which take SQLite's locks before they find the
/// mark.
const BASE_PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_micros(200);

impl Pool {
    /// Frees slots whose blocks are in the database file, and has some brought there if there are
    /// none: how many. What a flush that is under way brings there is enough; it need not end
    /// another one that follows.
    pub(crate) fn clean_some(&self) -> Result<u32, SqliteError> {
        loop {
            let applied = self.image.commits().applied();
            let dropped = self.drop_clean()?;
            if dropped > 0 {
                return Ok(dropped);
            }
            let Some(mut turn) = self.log_turn_unless(|| self.image.commits().applied() > applied)
            else {
                continue;
            };
            if self.image.commits().applied() == applied {
                self.checkpoint_with(&mut turn)?;
                return self.drop_clean();
            }
        }
    }

    /// Whether there is a journal beside a database, by this name, that may be one to roll back. An
    /// error where it is beside another name, by which the transaction was made, or from which the
    /// database was moved.
    pub(crate) fn has_journal(&self, database: &Path) -> Result<bool, SqliteError> {
        if !self.image.mode().may_have_journal() {
            return Ok(false);
        }
        if stub::has_live_journal(database)? {
            return Ok(true);
        }
        // One that is settled does not hide it.
        match journal_elsewhere(self.image.name(), (database, self.identity))? {
            Some(journal) => {
                Err(SqliteError::JournalElsewhere { database: database.to_owned(), journal })
            }
            None => stub::has_journal(database),
        }
    }

    /// Whether the file of a database in the pool has lost its mark while there may be a journal
    /// that a dead process left: a program without the VFS rolls that back, or has done so. All
    /// that is committed was in the file before there was a journal, so nothing in the pool counts.
    /// Not for a moment at which a process writes. `HeaderCopy::is_under_journal` is the same
    /// condition for who does not attach.
    fn has_lost_mark(&self) -> Result<bool, SqliteError> {
        let (mode, commits) = (self.image.mode(), self.image.commits());
        let is_in_file = commits.is_applied() && commits.prepared().is_none();
        let is_under_journal = mode.is_direct() || mode.may_have_journal() && is_in_file;
        Ok(mode.is_hot() && is_under_journal && read_mark(self.base())?.0.is_none())
    }

    /// The same, and the program has ended its rollback: it settles the journal when the file is as
    /// the last commit left it.
    pub(crate) fn is_rolled_back(&self) -> Result<bool, SqliteError> {
        Ok(self.has_lost_mark()?
            && !stub::has_live_journal(&self.database)?
            && journal_elsewhere(self.image.name(), (&self.database, self.identity))?.is_none())
    }

    /// The refusal of a file that does not bear the mark of its image. Where a program without the
    /// VFS died in its rollback, only one of those can end it: the pool does not know what else was
    /// done to the file. `Busy` where one writes, whose journal that is.
    pub(crate) fn refuse_file(&self) -> SqliteError {
        let database = self.database.clone();
        if matches!(self.has_lost_mark(), Ok(true)) {
            let is_live = || matches!(stub::has_live_journal(&database), Ok(true));
            if is_live() {
                // In this order: the program may end meanwhile.
                if matches!(self.base().is_being_written(), Ok(true)) || !is_live() {
                    return SqliteError::Busy { path: database };
                }
                let journal = stub::journal_path(&database);
                return SqliteError::JournalLeft { database, journal };
            }
            let other = journal_elsewhere(self.image.name(), (&database, self.identity));
            if let Ok(Some(journal)) = other {
                return SqliteError::JournalElsewhere { database, journal };
            }
        }
        SqliteError::Replaced { database, image: self.image.path().to_owned() }
    }

    /// For one with SHARED, and no more: a database whose journal was rolled back without the VFS
    /// leaves the pool. `Busy` where a process reads or writes.
    pub(crate) fn leave_if_rolled_back(&self, id: WriterId) -> Result<bool, SqliteError> {
        if !self.is_rolled_back()? {
            return Ok(false);
        }
        self.close_door(id)?;
        let left = self.forget_rolled_back();
        self.unlock_writer();
        left.map(|()| !self.is_hot())
    }

    /// The same for one with EXCLUSIVE.
    fn forget_rolled_back(&self) -> Result<(), SqliteError> {
        if !self.is_rolled_back()? {
            return Ok(());
        }
        let mut turn = self.log_turn();
        drop(turn.take());
        if let Err(error) = self.drop_side_files() {
            // The log counts for nothing, and the next one takes its place.
            report(&error);
        }
        self.forget();
        Ok(())
    }

    /// For one with EXCLUSIVE, and SQLite's RESERVED: the file is as the pool knows it. `Busy`
    /// where a program without the VFS came first: with the next SHARED the database is in its
    /// file, or is refused.
    fn check_file(&self) -> Result<(), SqliteError> {
        if self.has_lost_mark()? {
            self.forget_rolled_back()?;
            return Err(SqliteError::Busy { path: self.database.clone() });
        }
        self.check_mark()
    }
}

/// The journal to roll back beside another name of a database, which its image has: by that name
/// the transaction was made.
pub(crate) fn journal_elsewhere(
    name: Vec<u8>,
    (database, identity): (&Path, Identity),
) -> Result<Option<PathBuf>, SqliteError> {
    let other = PathBuf::from(OsString::from_vec(name));
    if !other.is_absolute() || other == database || !stub::has_live_journal(&other)? {
        return Ok(None);
    }
    let is_of_this = match Identity::of(&other) {
        Ok(found) => found == identity,
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(source) => return Err(SqliteError::Io { step: "examine", path: other, source }),
    };
    // Otherwise another database has taken its place, whose journal this is.
    Ok(is_of_this.then(|| stub::journal_path(&other)))
}

impl Connection {
    /// Makes room in the pool; where there is none to make, the transaction moves to the database
    /// file.
    #[cold]
    pub(crate) fn make_room(&mut self) -> Result<(), Code> {
        if self.is_direct {
            return self.settle();
        }
        if self.pool.clean_some().map_err(|error| report(&error))? > 0 {
            return Ok(());
        }
        let has_journal = !self.journal.is_empty() && !self.journal.is_settled();
        if self.shadows.is_empty() || !has_journal {
            // No journal, as the user wants it: nothing could undo what is in the file. What is there
            // may be of an earlier mode, and settled. Or no memory for a single page.
            self.roll_back()?;
            self.is_dropped = true;
            return Err(ffi::FULL);
        }
        self.begin_direct().map_err(|error| {
            let code = report(&error);
            if code == ffi::BUSY {
                // SQLite takes it for an error of the disk, and so would the user.
                host::log(code, &error.to_string());
            }
            code
        })
    }

    fn begin_direct(&mut self) -> Result<(), SqliteError> {
        let pool = Arc::clone(&self.pool);
        pool.check_database_name()?;
        pool.checkpoint()?;
        self.reserve_base()?;
        if let Err(error) = self.move_journal(&pool) {
            self.free_base();
            return Err(error);
        }
        self.is_direct = true;
        self.write_out()?;
        pool.image.remove_if(|_, _| true).map_err(|found| pool.astray(found))?;
        Ok(())
    }

    /// The journal of this transaction goes to the disk, and the image says so.
    fn move_journal(&mut self, pool: &Pool) -> Result<(), SqliteError> {
        let path = stub::journal_path(&self.database);
        let (image, mode) = (&pool.image, pool.image.mode());
        self.note_name();
        // Known first: a journal that no process knew of would undo what is committed after it.
        mode.note_journal(true);
        image.write_back_header();
        if let Err(source) = self.journal.spill(&path, &self.database) {
            // A link in its place is not ours.
            if !refused_link(&source) {
                let _ = journal::remove(&path);
            }
            return Err(SqliteError::Io { step: "write", path, source });
        }
        mode.begin_direct();
        image.write_back_header();
        Ok(())
    }

    /// A journal that a dead process left is about to be rolled back. `Busy` where a program
    /// without the VFS is at that, or has done it since the journal was found: then this has SHARED
    /// at the file, and nothing in the pool.
    pub(crate) fn resume_direct(&mut self) -> Result<(), SqliteError> {
        let pool = Arc::clone(&self.pool);
        let (image, mode) = (&pool.image, pool.image.mode());
        self.reserve_base()?;
        let emptied = pool
            .check_file()
            .and_then(|()| pool.checkpoint())
            .and_then(|()| image.remove_if(|_, _| true).map_err(|found| pool.astray(found)));
        if let Err(error) = emptied {
            if pool.is_hot() {
                self.free_base();
            } else {
                // SQLite's exclusive mode keeps SHARED, and does not ask for it again.
                self.drop_claim();
                pool.unlock_shared();
                self.in_pool = false;
                if let Err(error) = self.base.unlock_to(ffi::LOCK_SHARED) {
                    report(&error);
                }
            }
            return Err(error);
        }
        self.note_name();
        mode.begin_direct();
        image.write_back_header();
        self.is_direct = true;
        Ok(())
    }

    /// SQLite's RESERVED at the file, for one who has none of its locks there.
    fn reserve_base(&self) -> Result<(), SqliteError> {
        let started = Instant::now();
        loop {
            let shared = self.base.lock(ffi::LOCK_SHARED);
            match shared.and_then(|()| self.base.lock(ffi::LOCK_RESERVED)) {
                Ok(()) => return Ok(()),
                Err(SqliteError::Busy { .. }) if started.elapsed() < BASE_PATIENCE => {
                    self.free_base();
                    std::thread::sleep(PAUSE);
                }
                Err(error) => {
                    self.free_base();
                    return Err(error);
                }
            }
        }
    }

    fn free_base(&self) {
        if let Err(error) = self.base.unlock() {
            report(&error);
        }
    }

    /// `Busy` where a program without the VFS has rolled back the journal that a dead process left,
    /// or does so: with the next SHARED the database is in its file. Where that program died, the
    /// refusal. It may come to that between two looks that SQLite takes at the journal.
    ///
    /// `may_leave`: SQLite believes nothing of its cache yet, so one with SHARED has that at the
    /// file afterwards, and nothing in the pool. In its exclusive mode SQLite does not give SHARED
    /// back where this fails, nor ask for it again.
    #[inline]
    pub(crate) fn refuse_rolled_back(&mut self, may_leave: bool) -> Result<(), SqliteError> {
        match self.in_pool && !self.is_direct && self.pool.image.mode().may_have_journal() {
            true => self.refuse_lost_mark(may_leave && self.level == ffi::LOCK_SHARED),
            false => Ok(()),
        }
    }

    #[cold]
    fn refuse_lost_mark(&mut self, may_leave: bool) -> Result<(), SqliteError> {
        if !self.pool.has_lost_mark()? {
            return Ok(());
        }
        let busy = SqliteError::Busy { path: self.database.clone() };
        // While this has SHARED no such program goes on.
        let locked = self.base.lock(ffi::LOCK_SHARED);
        let refusal = match locked.and_then(|()| self.base.is_reserved()) {
            Ok(true) => busy,
            Ok(false) => match self.pool.is_rolled_back() {
                Ok(true) if may_leave => match self.move_to_file() {
                    Ok(true) => return Err(busy),
                    Ok(false) => busy,
                    Err(error) => error,
                },
                Ok(true) => busy,
                Ok(false) => self.pool.refuse_file(),
                Err(error) => error,
            },
            Err(error) => error,
        };
        self.free_base();
        Err(refusal)
    }

    /// For one with SHARED in the pool and at the file: gives up the first, where the database
    /// leaves the pool.
    fn move_to_file(&mut self) -> Result<bool, SqliteError> {
        self.drop_claim();
        let has_left = self.pool.leave_if_rolled_back(self.writer_id)?;
        if has_left {
            self.pool.unlock_shared();
            self.in_pool = false;
        }
        Ok(has_left)
    }

    /// Before a write: a transaction that was rolled back is over, also where SQLite gave no lock
    /// back behind it, as in its exclusive mode. The next one may have no journal on the disk to
    /// undo what it writes to the file.
    pub(crate) fn end_rolled_back(&mut self) -> Result<(), Code> {
        let is_over = self.is_direct
            && self.shadows.is_empty()
            && (!self.journal.is_on_disk() || self.journal.is_settled());
        match is_over {
            true => self.end_direct(false),
            false => Ok(()),
        }
    }

    /// Has the image name the database as this connection does, beside whose name the journal is.
    fn note_name(&self) {
        // What is prepared has the name of its super-journal there. It is being rolled back.
        self.drop_prepared();
        self.pool.image.set_name(self.database.as_os_str().as_bytes());
    }

    /// Writes what this transaction has in the pool to the database file, if that is where it
    /// belongs.
    pub(crate) fn settle(&mut self) -> Result<(), Code> {
        if !self.is_direct {
            return Ok(());
        }
        self.write_out().map_err(|error| report(&error))
    }

    /// Before SQLite gives the journal up: what that would undo is durable, also where SQLite waits
    /// for no disk (`PRAGMA synchronous = OFF`).
    pub(crate) fn settle_durably(&mut self) -> Result<(), Code> {
        if !self.is_direct {
            // SQLite's own rollback after a full pool comes here, also where nothing is synced; a
            // commit that the pool was too full for does not.
            self.is_dropped = false;
            self.drop_failed_prepared();
            return Ok(());
        }
        self.settle().map_err(code_of_change)?;
        self.base.sync().map_err(|error| report(&error))?;
        self.clean_up_forgotten();
        Ok(())
    }

    /// See [`Connection::settle`]. What undoes it is durable first.
    fn write_out(&mut self) -> Result<(), SqliteError> {
        let pool = Arc::clone(&self.pool);
        let astray = |found: BadLink| pool.astray(found);
        self.journal.sync().map_err(SqliteError::io("sync the journal of", &self.database))?;
        let there = database_size(&self.base)?;
        let size = self.pending_size.unwrap_or(there);
        let mut page = [0; BLOCK_BYTES];
        while let Some(link) = self.shadows.last().copied() {
            let (block, _) = pool.image.version(link).map_err(astray)?;
            pool.image.read(link, 0, &mut page).map_err(astray)?;
            let offset = u64::from(block) * BLOCK_BYTES as u64;
            let bytes = size.saturating_sub(offset).min(BLOCK_BYTES as u64) as usize;
            if bytes > 0 {
                self.write_base(offset, &mut page[..bytes])?;
            }
            pool.image.remove(link).map_err(astray)?;
            self.shadows.pop();
        }
        if size == 0 {
            // This transaction made the database, and is rolled back: the image stays hot.
            return write_stand_in(&self.base, self.stamp_of_log());
        }
        match self.base.size()? {
            found if found != size => self.base.truncate(size),
            _ => Ok(()),
        }
    }

    /// With the mark, which the file keeps.
    fn write_base(&self, offset: u64, page: &mut [u8]) -> Result<(), SqliteError> {
        if offset == 0 && page.len() >= mark::HEADER_BYTES {
            mark::put(page, self.stamp_of_log());
        }
        self.base.write(offset, page)
    }

    /// A mark of before this transaction: the file is not as of it yet.
    fn stamp_of_log(&self) -> Stamp {
        self.pool.stamp(self.pool.image.log_position().base())
    }

    /// The journal is settled, or (after a failed rollback) left to the next one. Without a commit it
    /// does not fail: the lock is given back next.
    pub(crate) fn end_direct(&mut self, is_commit: bool) -> Result<(), Code> {
        if is_commit {
            if self.pool.waits_for_log() {
                self.pool.check_database_name().map_err(|error| report(&error))?;
            }
            // A shorter size comes after SQLite has settled its journal, as the last step.
            self.settle()?;
        }
        let pending_size = self.pending_size.take();
        let (commits, mode) = (self.pool.image.commits(), self.pool.image.mode());
        let path = stub::journal_path(&self.database);
        if self.journal.is_on_disk() && (is_commit || self.journal.is_settled()) {
            // In SQLite's exclusive mode, and in some journal modes, the journal stays open, and is
            // settled by clearing its first bytes.
            let removed = self.journal.discard(&path);
            if let Err(error) = removed.map_err(SqliteError::io("remove", &path)) {
                let code = report(&error);
                if is_commit {
                    return Err(code);
                }
            }
        }
        let size = match database_size(&self.base) {
            Ok(size) => size,
            Err(error) if is_commit => return Err(report(&error)),
            Err(error) => {
                report(&error);
                // What SQLite rolled back to. Without a page it would drop a journal that is left.
                let is_left = self.journal.is_on_disk() && !self.journal.is_settled();
                pending_size.unwrap_or_else(|| commits.size()).max(u64::from(is_left))
            }
        };
        let transaction = commits.newest_for_writer() + 1;
        commits.set_size(transaction, size);
        let commit = self.pool.lock_commit();
        commits.publish_applied(transaction);
        // One that cannot be looked at may be there, and is looked for again.
        mode.note_journal(stub::has_journal(&self.database).unwrap_or(true));
        mode.end_direct();
        self.pool.image.write_back_header();
        drop(commit);
        self.is_direct = false;
        self.free_base();
        if !mode.may_have_journal()
            && let Err(error) = self.pool.note_direct()
        {
            // The transaction stands: its journal is gone. What is not noted protects from a backup
            // that is put back.
            host::log(error.code(), &error.to_string());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    use holdfast_sys::lease::{Lease, take};

    use crate::log::{Generation, Log};
    use crate::recovery::clear_mark;
    use crate::testing::{attached, commit, hot};

    /// A pool counts for nothing beside a file without its mark where that has all that is
    /// committed, and no journal is left to roll back; and then nothing of the file is changed.
    ///
    /// Guarantee: sqlite/outgrown-pool
    /// Guarantee: sqlite/without-the-vfs
    #[test]
    fn pool_is_left_for_a_file_with_all_commits_only() {
        for is_direct in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let pool = hot(folder.path(), 3);
            let (mode, journal) = (pool.image.mode(), stub::journal_path(&pool.database));
            mode.note_journal(true);
            if is_direct {
                mode.begin_direct();
            }
            assert!(!pool.is_rolled_back().unwrap(), "it bears its mark");
            clear_mark(pool.base(), None).unwrap();
            std::fs::write(&journal, [0xd9; 600]).unwrap();
            assert!(!pool.is_rolled_back().unwrap(), "its journal is not rolled back");
            let refused = pool.refuse_file();
            assert!(matches!(refused, SqliteError::JournalLeft { .. }), "{refused}");
            // As SQLite settles one in the journal modes PERSIST, TRUNCATE and DELETE.
            for length in [Some(600), Some(0), None] {
                match length {
                    Some(length) => std::fs::write(&journal, vec![0_u8; length]).unwrap(),
                    None => std::fs::remove_file(&journal).unwrap(),
                }
                assert!(pool.is_rolled_back().unwrap(), "{length:?}");
            }
            if !is_direct {
                mode.note_journal(false);
                assert!(!pool.is_rolled_back().unwrap(), "there was no journal");
                mode.note_journal(true);
            }
            let file = std::fs::read(&pool.database).unwrap();
            assert!(pool.lock_shared());
            assert!(pool.leave_if_rolled_back(WriterId::new(pool.number, 1)).unwrap());
            pool.unlock_shared();
            assert!(!pool.is_hot() && !pool.log_path().exists());
            assert!(pool.heat(pool.base()).unwrap());
            mode.note_journal(true);
            commit(&pool, &[(1, 2)], 3).unwrap();
            clear_mark(pool.base(), None).unwrap();
            assert!(!pool.is_rolled_back().unwrap(), "a commit is in the pool alone");
            let refused = pool.refuse_file();
            assert!(matches!(refused, SqliteError::Replaced { .. }), "{refused}");
            assert!(std::fs::read(&pool.database).unwrap() == file);
        }
    }

    /// A process that takes over, or opens the database alone, finds the journal rolled back.
    ///
    /// Guarantee: sqlite/outgrown-pool
    #[test]
    fn takeover_leaves_a_rolled_back_file_alone() {
        for (is_direct, journal) in [(true, None), (true, Some([0_u8; 600])), (false, None)] {
            let folder = tempfile::tempdir().unwrap();
            let pool = hot(folder.path(), 3);
            let (mode, path) = (pool.image.mode(), stub::journal_path(&pool.database));
            mode.note_journal(true);
            if is_direct {
                mode.begin_direct();
            }
            clear_mark(pool.base(), None).unwrap();
            if let Some(bytes) = journal {
                std::fs::write(&path, bytes).unwrap();
            }
            let file = std::fs::read(&pool.database).unwrap();
            pool.settle_dead_writer().unwrap();
            assert!(!pool.is_hot());
            assert!(std::fs::read(&pool.database).unwrap() == file);
            assert_eq!(path.exists(), journal.is_some(), "it is that of a program without the VFS");
        }
    }

    /// One that is about to roll a journal back finds that a program without the VFS came first, or
    /// died at that: nothing is written to the file.
    ///
    /// Guarantee: sqlite/outgrown-pool
    /// Guarantee: sqlite/without-the-vfs
    #[test]
    fn file_rolled_back_in_between_is_busy_and_left() {
        for is_rolled_back in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let pool = hot(folder.path(), 3);
            pool.image.mode().note_journal(true);
            pool.check_file().unwrap();
            clear_mark(pool.base(), None).unwrap();
            if !is_rolled_back {
                std::fs::write(stub::journal_path(&pool.database), [0xd9; 600]).unwrap();
            }
            let file = std::fs::read(&pool.database).unwrap();
            let refused = pool.check_file();
            assert!(matches!(refused, Err(SqliteError::Busy { .. })), "{refused:?}");
            assert_eq!(pool.is_hot(), !is_rolled_back);
            assert!(std::fs::read(&pool.database).unwrap() == file);
        }
    }

    /// A process dies while it leaves such a file, when half of the image is forgotten: the next
    /// one ends that, and does not take the file for another one.
    ///
    /// Guarantee: sqlite/outgrown-pool
    /// Guarantee: sqlite/killed-holder
    #[test]
    fn death_while_a_file_is_left_costs_nothing() {
        for is_alone in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let mut pool = hot(folder.path(), 3);
            pool.image.mode().note_journal(true);
            clear_mark(pool.base(), None).unwrap();
            assert!(pool.is_rolled_back().unwrap());
            pool.drop_side_files().unwrap();
            assert!(!pool.log_path().exists());
            pool.image.mode().forget();
            let file = std::fs::read(&pool.database).unwrap();
            if is_alone {
                drop(pool);
                pool = attached(folder.path());
            } else {
                pool.settle_dead_writer().unwrap();
            }
            assert!(!pool.is_hot(), "alone: {is_alone}");
            assert!(std::fs::read(&pool.database).unwrap() == file);
        }
    }

    /// Another pool goes on from the file by now: its log is not removed with what is left here.
    ///
    /// Guarantee: sqlite/outgrown-pool
    #[test]
    fn log_of_another_pool_stays_beside_a_left_file() {
        for is_dead in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let pool = hot(folder.path(), 3);
            pool.image.mode().note_journal(true);
            clear_mark(pool.base(), None).unwrap();
            let generation = Generation { nonce: 1, salt: 2, transaction: 1 };
            drop(Log::create(&pool.log_path(), generation, &pool.owner).unwrap());
            if is_dead {
                pool.settle_dead_writer().unwrap();
            } else {
                assert!(pool.lock_shared());
                assert!(pool.leave_if_rolled_back(WriterId::new(pool.number, 1)).unwrap());
                pool.unlock_shared();
            }
            assert!(!pool.is_hot() && pool.log_path().exists(), "dead: {is_dead}");
        }
    }

    /// A settled journal beside the name in use does not hide one beside the name of the
    /// transaction.
    ///
    /// Guarantee: sqlite/hard-links
    /// Guarantee: sqlite/outgrown-pool
    #[test]
    fn settled_journal_hides_none_beside_another_name() {
        let folder = tempfile::tempdir().unwrap();
        let pool = hot(folder.path(), 3);
        let other = folder.path().join("other");
        std::fs::hard_link(&pool.database, &other).unwrap();
        let (own, elsewhere) = (stub::journal_path(&pool.database), stub::journal_path(&other));
        pool.image.mode().note_journal(true);
        pool.image.set_name(other.as_os_str().as_bytes());
        assert!(!pool.has_journal(&pool.database).unwrap());
        std::fs::write(&own, [0; 600]).unwrap();
        assert!(pool.has_journal(&pool.database).unwrap());
        std::fs::write(&elsewhere, [0xd9; 600]).unwrap();
        let refused = pool.has_journal(&pool.database);
        assert!(matches!(refused, Err(SqliteError::JournalElsewhere { .. })), "{refused:?}");
        std::fs::write(&own, [0xd9; 600]).unwrap();
        assert!(pool.has_journal(&pool.database).unwrap());
    }

    /// A journal beside a file without its mark is not called a dead program's while one writes.
    ///
    /// Guarantee: sqlite/without-the-vfs
    #[test]
    fn file_that_others_write_is_busy() {
        let folder = tempfile::tempdir().unwrap();
        let pool = hot(folder.path(), 3);
        pool.image.mode().note_journal(true);
        clear_mark(pool.base(), None).unwrap();
        std::fs::write(stub::journal_path(&pool.database), [0xd9; 600]).unwrap();
        let writer = File::options().read(true).write(true).open(&pool.database).unwrap();
        assert!(take(&writer, Lease::Exclusive, ffi::PENDING_BYTE + 1, 1).unwrap());
        let refused = pool.refuse_file();
        assert!(matches!(refused, SqliteError::Busy { .. }), "{refused}");
        drop(writer);
        let refused = pool.refuse_file();
        assert!(matches!(refused, SqliteError::JournalLeft { .. }), "{refused}");
    }
}
