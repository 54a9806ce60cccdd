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
//! - A direct transaction that dies leaves its journal, and `direct` in the image says that nothing
//!   in the pool counts.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_sys::file::refused_link;

use crate::apply::write_stand_in;
use crate::base::{Base, database_size};
use crate::connection::{Code, Connection, code_of_change, report};
use crate::error::SqliteError;
use crate::ffi;
use crate::host;
use crate::identity::Identity;
use crate::image::{BLOCK_BYTES, BadLink};
use crate::journal;
use crate::mark::{self, Stamp};
use crate::pool::Pool;
use crate::stub;

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
        if stub::has_journal(database)? {
            return Ok(true);
        }
        let other = PathBuf::from(OsString::from_vec(self.image.name()));
        if !other.is_absolute() || other == database || !stub::has_live_journal(&other)? {
            return Ok(false);
        }
        let is_of_this = match Identity::of(&other) {
            Ok(found) => found == self.identity,
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(source) => return Err(SqliteError::Io { step: "examine", path: other, source }),
        };
        match is_of_this {
            true => Err(SqliteError::JournalElsewhere {
                database: database.to_owned(),
                journal: stub::journal_path(&other),
            }),
            // Another database has taken its place, whose journal this is.
            false => Ok(false),
        }
    }
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
        self.begin_direct().map_err(|error| report(&error))
    }

    fn begin_direct(&mut self) -> Result<(), SqliteError> {
        let (pool, path) = (Arc::clone(&self.pool), stub::journal_path(&self.database));
        let (image, mode) = (&pool.image, pool.image.mode());
        pool.check_database_name()?;
        pool.checkpoint()?;
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
        self.is_direct = true;
        self.write_out()?;
        image.remove_if(|_, _| true).map_err(|found| pool.astray(found))?;
        Ok(())
    }

    /// A journal that a dead process left is about to be rolled back.
    pub(crate) fn resume_direct(&mut self) -> Result<(), SqliteError> {
        let pool = Arc::clone(&self.pool);
        let (image, mode) = (&pool.image, pool.image.mode());
        pool.checkpoint()?;
        image.remove_if(|_, _| true).map_err(|found| pool.astray(found))?;
        self.note_name();
        mode.begin_direct();
        image.write_back_header();
        self.is_direct = true;
        Ok(())
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
