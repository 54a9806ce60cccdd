//! LazyFlush: from the pool to the redo log, and from the redo log to the database file.
//!
//! A *flush* appends every block that changed since the last one as one record; a *checkpoint*
//! writes what the log holds to the database file and begins the log again. The paper flushes into
//! the database file in place; a pool that is lost in the middle of that leaves a torn file, so
//! here the log stands between.
//!
//! Invariants:
//! - A flush holds exactly what is committed at one moment: blocks are copied under the commit
//!   lock.
//! - `flushed` and `applied` are raised only after what they say is durable, under the log lock.
//! - A slot is clean, and may be dropped, only when its transaction is not above `applied`: so a
//!   process that misses a block in the pool may read it from the database file, also while a
//!   checkpoint writes there.

#![forbid(unsafe_code)]

use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::MutexGuard;

use holdfast_sys::file::path_names_file;

use crate::apply::apply;
use crate::error::{CREATE, Result, SqliteError};
use crate::image::{BadLink, Suspicion};
use crate::locking::Held;
use crate::log::{FIRST, Generation, Log, random};
use crate::mark::Stamp;
use crate::pool::Pool;

/// A log that is longer is brought to the database file after a flush.
pub(crate) const LOG_BYTES_MAX: u64 = 4 << 20;

/// The log, and the right to write to it.
pub(crate) struct LogTurn<'a> {
    log: MutexGuard<'a, Option<Log>>,
    _lock: Held<'a>,
}

impl LogTurn<'_> {
    /// The log is not to be used any more.
    pub(crate) fn forget(&mut self) {
        *self.log = None;
    }
}

impl Pool {
    /// Waits for the turn to write to the log.
    pub(crate) fn log_turn(&self) -> LogTurn<'_> {
        let log = self.log.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        LogTurn { log, _lock: self.lock_log() }
    }

    /// A flush, and a checkpoint when the log has become long.
    pub(crate) fn flush_and_tidy(&self) -> Result<()> {
        let mut turn = self.log_turn();
        if self.is_hot() {
            // Also where there is nothing to flush: the log may be one of another process, or gone.
            self.prepare_log(&mut turn)?;
        }
        self.flush_in_turn(&mut turn, None)?;
        match self.image.log_position().tail() > LOG_BYTES_MAX {
            true => self.checkpoint_in_turn(&mut turn),
            false => Ok(()),
        }
    }

    /// Brings all that is committed to the database file.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        self.checkpoint_with(&mut self.log_turn())
    }

    /// The same, in a turn.
    pub(crate) fn checkpoint_with(&self, turn: &mut LogTurn<'_>) -> Result<()> {
        if self.is_hot() {
            // All may be flushed by a process that died: then no flush opens the log.
            self.prepare_log(turn)?;
        }
        self.flush_in_turn(turn, None)?;
        self.checkpoint_in_turn(turn)
    }

    /// A flush in a turn. A writer that has the commit lock already, and old versions beside new
    /// ones, shows what it commits.
    pub(crate) fn flush_in_turn(
        &self,
        turn: &mut LogTurn<'_>,
        committing: Option<&[u32]>,
    ) -> Result<()> {
        let commits = self.image.commits();
        if !self.is_hot() || commits.is_flushed() {
            return Ok(());
        }
        if committing.is_none() {
            // A process that is committing has seen to it, before the commit was locked, which this
            // may have to lock.
            self.prepare_log(turn)?;
        }
        let commit = committing.is_none().then(|| self.lock_commit());
        let (committed, flushed) = (commits.newest(), commits.flushed());
        let (links, blocks) = match committing {
            // Nothing else has changed: the pool need not be searched for it.
            Some(shadows) if flushed + 1 == committed => {
                let blocks = shadows.iter().map(|link| Ok(self.image.version(*link)?.0));
                let blocks: std::result::Result<Vec<u32>, BadLink> = blocks.collect();
                (shadows.to_vec(), blocks.map_err(|found| self.astray(found))?)
            }
            _ => self.changed(flushed + 1..=committed, committing.is_some()),
        };
        let Some(log) = turn.log.as_mut() else { return Err(self.damaged("its log is not open")) };
        log.begin(&blocks);
        for link in links {
            let copied = self.image.read(link, 0, log.add());
            copied.map_err(|found| self.astray(found))?;
        }
        let size = commits.size_of(committed);
        commits.note_gathered(committed);
        drop(commit);
        let count = blocks.len() as u32;
        if let Err(error) = self.finish_record(log, (committed, size, count), committing.is_some())
        {
            commits.add_dirty(count);
            return Err(error);
        }
        commits.note_flushed(committed);
        self.image.log_position().count_flush(count);
        self.image.write_back_header();
        Ok(())
    }

    /// The slots of some transactions, with their blocks; of each block the newest only, where
    /// there may be several.
    fn changed(&self, transactions: RangeInclusive<u64>, newest: bool) -> (Vec<u32>, Vec<u32>) {
        let wanted = self.image.in_use().filter(|(link, block, transaction)| {
            transactions.contains(transaction)
                && (!newest || self.image.find(*block).is_ok_and(|newest| newest == *link))
        });
        wanted.map(|(link, block, _)| (link, block)).unzip()
    }

    /// Makes a record durable: its transaction, the size of the database, the number of its blocks.
    /// Where a commit waits for it, it counts only if recovery would find it.
    fn finish_record(
        &self,
        log: &mut Log,
        record: (u64, u64, u32),
        is_awaited: bool,
    ) -> Result<()> {
        let position = self.image.log_position();
        let (salt, sequence) = (position.salt(), position.records());
        let finished = log.finish(position.tail(), (salt, sequence), record);
        let finished = finished.map_err(SqliteError::io("flush to", log.path()));
        #[cfg(test)]
        crate::testing::after_record();
        let found = finished.and_then(|end| match is_awaited {
            true => self.confirm_record(log, (salt, sequence + 1, end)).map(|()| end),
            false => Ok(end),
        });
        match found {
            Ok(end) => {
                position.note_record(end, sequence + 1, record.0);
                Ok(())
            }
            Err(error) => {
                position.note_failed_record();
                Err(error)
            }
        }
    }

    /// Whether recovery would find the records up to this one, whose number and end are given.
    fn confirm_record(&self, log: &mut Log, (salt, records, end): (u64, u64, u64)) -> Result<()> {
        // Names first: what changes the file after this look is seen before the next record.
        self.confirm_names(log)?;
        self.check_mark()?;
        let nonce = self.image.mode().nonce();
        let found =
            log.generation().and_then(|found| Ok((found, log.reaches(salt, records, end)?)));
        let (found, is_whole) = found.map_err(SqliteError::io("read", log.path()))?;
        let is_ours = found.is_some_and(|found| (found.nonce, found.salt) == (nonce, salt));
        match is_ours && is_whole {
            true => Ok(()),
            false => Err(SqliteError::LogTaken {
                log: log.path().to_owned(),
                database: self.database.clone(),
            }),
        }
    }

    /// Opens the log of a hot database, so that its lease shows that a process is here.
    pub(crate) fn show_in_log(&self) {
        if self.is_hot() {
            let mut log = self.log.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *log = Log::open(&self.log_path()).ok().flatten();
            self.image.log_position().ask_for_check();
        }
    }

    /// Sees to it that the log that is open is the one beside the database, and sound at its end.
    pub(crate) fn prepare_log(&self, turn: &mut LogTurn<'_>) -> Result<()> {
        let (commits, position) = (self.image.commits(), self.image.log_position());
        let path = self.log_path();
        let is_ours = match turn.log.as_ref() {
            Some(log) => log.is_named(&path).map_err(SqliteError::io("examine", &path))?,
            None => false,
        };
        if !is_ours {
            *turn.log = Log::open(&path).map_err(SqliteError::io("open", &path))?;
            self.image.log_position().ask_for_check();
        }
        let nonce = self.image.mode().nonce();
        // Also of a log that was not replaced: another program may have written to it.
        let found = match turn.log.as_ref() {
            Some(log) => log.generation().map_err(SqliteError::io("read", &path))?,
            None => None,
        };
        if let (None, Some(log)) = (found, turn.log.as_ref())
            && log.is_newer().map_err(SqliteError::io("read", &path))?
        {
            return Err(SqliteError::Newer { file: path, database: self.database.clone() });
        }
        let suspicion = position.suspicion();
        match found {
            Some(found) if found.nonce == nonce && found.salt == position.salt() => {
                if suspicion.ends_generation() {
                    self.checkpoint_in_turn(turn)?;
                } else if !self.has_records(turn, suspicion == Suspicion::None)? {
                    // An older copy is in its place. What was flushed since is in the pool still.
                    self.count_log_as_lost();
                    self.restart(turn)?;
                }
            }
            Some(found) if found.nonce == nonce => {
                let (flushed, began) = (commits.flushed(), found.transaction);
                if began > flushed {
                    return Err(SqliteError::LogForeign {
                        log: path,
                        database: self.database.clone(),
                        what: "it is of a later time than the pool",
                    });
                }
                if began == flushed {
                    // It was begun again after all of it was applied, by a process that died before
                    // it could say so here.
                    commits.note_applied();
                } else {
                    // An older one took its place: what was flushed since is in the pool still.
                    self.count_log_as_lost();
                }
                self.restart(turn)?;
            }
            Some(_) => {
                return Err(SqliteError::LogReplaced {
                    log: path,
                    database: self.database.clone(),
                });
            }
            _ if has_several_names(&self.database)
                .map_err(SqliteError::io("examine", &self.database))? =>
            {
                // Two logs would each have a part of the commits.
                return Err(SqliteError::Linked { database: self.database.clone(), log: path });
            }
            _ => {
                // It was moved away, or the database was: everything that it held is still in the
                // pool. That is noted first: a process that dies in between leaves no empty log
                // that is held for a full one.
                self.count_log_as_lost();
                let generation = self.generation();
                let log = Log::create(&path, generation, &self.owner)
                    .map_err(SqliteError::io(CREATE, &path))?;
                *turn.log = Some(log);
                self.note_new_log(generation);
            }
        }
        position.clear_suspicion();
        Ok(())
    }

    /// Whether the log has all records of its generation: by their heads, or all that is in them.
    fn has_records(&self, turn: &mut LogTurn<'_>, by_heads: bool) -> Result<bool> {
        let position = self.image.log_position();
        let (salt, records) = (position.salt(), position.records());
        let Some(log) = turn.log.as_mut() else { return Err(self.damaged("its log is not open")) };
        let found = match by_heads {
            true => log.reaches(salt, records, position.tail()),
            false => log.contents(salt, records).map(|contents| contents.records == records),
        };
        found.map_err(SqliteError::io("read", log.path()))
    }

    /// As [`Pool::prepare_log`], for a commit that waits for its record.
    pub(crate) fn prepare_to_wait(&self, turn: &mut LogTurn<'_>) -> Result<()> {
        self.check_mark()?;
        if let Err(error) = self.prepare_log(turn) {
            // The log may be where the database is now.
            self.check_database_name()?;
            return Err(error);
        }
        turn.log.as_mut().map_or(Ok(()), |log| self.settle_names(log))
    }

    /// What was in the log is flushed anew.
    fn count_log_as_lost(&self) {
        let applied = self.image.commits().forget_flushed();
        self.image.log_position().fall_back_to(applied);
        self.image.write_back_header();
    }

    /// A generation of the log that begins now.
    fn generation(&self) -> Generation {
        let transaction = self.image.commits().applied();
        Generation { nonce: self.image.mode().nonce(), salt: random(), transaction }
    }

    /// The mark of a file as of a transaction, for this image.
    pub(crate) fn stamp(&self, transaction: u64) -> Stamp {
        let nonce = self.image.mode().nonce();
        Stamp { nonce, transaction, tag: Some(self.owner.tag()) }
    }

    /// The log is begun again, durably.
    pub(crate) fn note_new_log(&self, generation: Generation) {
        self.image.log_position().begin(FIRST, generation.salt, generation.transaction);
        self.image.write_back_header();
    }

    /// The database file was written to by other means than a checkpoint, and is as of the last
    /// transaction. Log and mark say so, so that nothing older is ever applied to it: a record
    /// without blocks, and its checkpoint.
    pub(crate) fn note_direct(&self) -> Result<()> {
        let mut turn = self.log_turn();
        self.prepare_log(&mut turn)?;
        let Some(log) = turn.log.as_mut() else { return Err(self.damaged("its log is not open")) };
        log.begin(&[]);
        self.finish_record(log, (self.image.commits().applied(), self.size(), 0), false)?;
        self.checkpoint_in_turn(&mut turn)
    }

    fn restart(&self, turn: &mut LogTurn<'_>) -> Result<()> {
        let generation = self.generation();
        let Some(log) = turn.log.as_mut() else { return Err(self.damaged("its log is not open")) };
        if let Err(source) = log.restart(generation, &self.owner) {
            // Which generation a power cut would leave is not known: nothing is added to either.
            self.image.log_position().suspect();
            return Err(SqliteError::Io { step: "begin again", path: self.log_path(), source });
        }
        self.note_new_log(generation);
        Ok(())
    }

    /// Writes what the log holds to the database file and begins the log again.
    pub(crate) fn checkpoint_in_turn(&self, turn: &mut LogTurn<'_>) -> Result<()> {
        let (commits, position) = (self.image.commits(), self.image.log_position());
        if !self.is_hot() {
            return Ok(());
        }
        let records = position.records();
        if records == 0 && !position.suspicion().ends_generation() {
            commits.note_applied();
            return Ok(());
        }
        let path = self.log_path();
        let Some(log) = turn.log.as_mut() else { return Err(self.damaged("its log is not open")) };
        let contents =
            log.contents(position.salt(), records).map_err(SqliteError::io("read", &path))?;
        if contents.records != records {
            // The log was damaged behind us. All that it held is in the pool still: it is flushed
            // anew.
            self.count_log_as_lost();
        } else {
            if let Some(last) = contents.last {
                self.check_mark()?;
                let stamp = self.stamp(last.transaction);
                apply(self.base(), &contents.blocks(log), stamp)?;
            }
            commits.note_applied();
        }
        self.restart(turn)?;
        position.count_checkpoint();
        if contents.records != records {
            self.flush_in_turn(turn, None)?;
            return self.checkpoint_in_turn(turn);
        }
        Ok(())
    }

    /// Drops blocks that are in the database file. Only for a process that has EXCLUSIVE.
    pub(crate) fn drop_clean(&self) -> Result<u32> {
        let applied = self.image.commits().applied();
        let dropped =
            self.image.remove_if(|block, transaction| block != 0 && transaction <= applied);
        dropped.map_err(|found| self.astray(found))
    }
}

/// Whether a database has hard links: its log may be beside another of its names.
fn has_several_names(database: &Path) -> std::io::Result<bool> {
    Ok(database.metadata()?.nlink() > 1)
}

impl Log {
    /// Whether a path names this log.
    fn is_named(&self, path: &Path) -> std::io::Result<bool> {
        Ok(self.path() == path && path_names_file(path, self.descriptor())?)
    }
}
