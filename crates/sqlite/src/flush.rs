//! LazyFlush: from the pool to the redo log, and from the redo log to the database file.
//!
//! A *flush* appends every block that changed since the last one as one record; a *checkpoint* writes what the log holds to the
//! database file and begins the log again. The paper flushes into the database file in place; a pool that is lost in the
//! middle of that leaves a torn file, so here the log stands between.
//!
//! Invariants:
//! - A flush holds exactly what is committed at one moment: blocks are copied under the commit lock.
//! - `flushed` and `applied` are raised only after what they say is durable, under the log lock.
//! - A slot is clean, and may be dropped, only when its transaction is not above `applied`: so whoever misses a block in the
//!   pool may read it from the database file, also while a checkpoint writes there.

#![forbid(unsafe_code)]

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use holdfast_sys::file::path_names_file;

use crate::base::Base;
use crate::error::{CREATE, Result, SqliteError};
use crate::layout::BLOCK_BYTES;
use crate::locks::Brief;
use crate::log::{Contents, FIRST, Generation, Log, random};
use crate::mark;
use crate::pool::Pool;

/// A log that is longer is brought to the database file after a flush.
const LOG_BYTES_MAX: u64 = 4 << 20;
/// `log_suspect`: the last record is not to be believed.
pub(crate) const FAILED: u32 = 1;
/// `log_suspect`: somebody died who may have begun the log again.
pub(crate) const CHECK: u32 = 2;

/// The log, and the right to write to it.
pub(crate) struct LogTurn<'a> {
    log: MutexGuard<'a, Option<Log>>,
    _lock: Brief<'a>,
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
        LogTurn { log, _lock: self.lock_briefly(&self.image.header().log_lock) }
    }

    /// A flush, and a checkpoint when the log has become long.
    pub(crate) fn flush_and_tidy(&self) -> Result<()> {
        let mut turn = self.log_turn();
        if self.is_hot() {
            // Also where there is nothing to flush: the log may be one of another process, or gone.
            self.prepare_log(&mut turn)?;
        }
        self.flush_in_turn(&mut turn, false)?;
        match self.image.header().log_tail.load(Relaxed) > LOG_BYTES_MAX {
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
            // All may be flushed by somebody who died: then no flush opens the log.
            self.prepare_log(turn)?;
        }
        self.flush_in_turn(turn, false)?;
        self.checkpoint_in_turn(turn)
    }

    /// A flush in a turn. A writer that has the commit lock already, and old versions beside new ones, says so.
    pub(crate) fn flush_in_turn(&self, turn: &mut LogTurn<'_>, is_committing: bool) -> Result<()> {
        let header = self.image.header();
        if header.hot.load(Acquire) == 0 || header.committed.load(Acquire) == header.flushed.load(Acquire) {
            return Ok(());
        }
        self.prepare_log(turn)?;
        let commit = (!is_committing).then(|| self.lock_briefly(&header.commit_lock));
        let (committed, flushed) = (header.committed.load(Acquire), header.flushed.load(Acquire));
        let wanted = self.image.in_use().filter(|(link, block, transaction)| {
            (flushed + 1..=committed).contains(transaction)
                && (!is_committing || self.image.find(*block).is_ok_and(|newest| newest == *link))
        });
        let (links, blocks): (Vec<u32>, Vec<u32>) = wanted.map(|(link, block, _)| (link, block)).unzip();
        let Some(log) = turn.log.as_mut() else { return Err(self.damaged("its log is not open")) };
        log.begin(&blocks);
        for link in links {
            let copied = self.image.read(link, 0, log.add());
            copied.map_err(|_| self.damaged("a slot leads astray"))?;
        }
        let size = header.size[(committed & 1) as usize].load(Relaxed);
        header.gathered.store(committed, Relaxed);
        header.dirty.store(0, Relaxed);
        drop(commit);
        let generation = (header.log_salt.load(Relaxed), header.log_sequence.load(Relaxed));
        let at = header.log_tail.load(Relaxed);
        let count = blocks.len() as u32;
        match log.finish(at, generation, (committed, size, count)) {
            Ok(end) => {
                header.log_tail.store(end, Relaxed);
                header.log_sequence.store(generation.1 + 1, Release);
                header.flushed.store(committed, Release);
                header.flushes.fetch_add(1, Relaxed);
                header.flushed_blocks.fetch_add(u64::from(count), Relaxed);
                self.image.write_back_header();
                Ok(())
            }
            Err(source) => {
                header.dirty.fetch_add(count, Relaxed);
                header.log_suspect.store(FAILED, Release);
                Err(SqliteError::Io { step: "flush to", path: log.path().to_owned(), source })
            }
        }
    }

    /// Sees to it that the log that is open is the one beside the database, and sound at its end.
    fn prepare_log(&self, turn: &mut LogTurn<'_>) -> Result<()> {
        let header = self.image.header();
        let path = self.log_path();
        let is_ours = match turn.log.as_ref() {
            Some(log) => log.is_named(&path).map_err(SqliteError::io("examine", &path))?,
            None => false,
        };
        if !is_ours {
            *turn.log = Log::open(&path).map_err(SqliteError::io("open", &path))?;
            let _ = header.log_suspect.compare_exchange(0, CHECK, Release, Relaxed);
        }
        let suspicion = header.log_suspect.load(Acquire);
        if suspicion == 0 {
            return Ok(());
        }
        let nonce = header.nonce.load(Acquire);
        let found = match turn.log.as_ref() {
            Some(log) => log.generation().map_err(SqliteError::io("read", &path))?,
            None => None,
        };
        match found {
            Some(found) if found.nonce == nonce => {
                if found.salt != header.log_salt.load(Acquire) {
                    // It was begun again after all of it was applied, by somebody who died before it could say so here.
                    header.applied.store(header.flushed.load(Acquire), Release);
                    self.note_new_log(found.salt);
                    header.log_suspect.store(suspicion, Release);
                }
                if suspicion == FAILED {
                    self.checkpoint_in_turn(turn)?;
                }
            }
            _ if has_several_names(&self.database).map_err(SqliteError::io("examine", &self.database))? => {
                // Two logs would each have a part of the commits.
                return Err(SqliteError::Linked { database: self.database.clone(), log: path });
            }
            _ => {
                // It was moved away, or the database was: everything that it held is still in the pool. That is noted first:
                // whoever dies in between leaves no empty log that is held for a full one.
                header.flushed.store(header.applied.load(Acquire), Release);
                self.image.write_back_header();
                let generation = Generation { nonce, salt: random() };
                let log = Log::create(&path, generation).map_err(SqliteError::io(CREATE, &path))?;
                *turn.log = Some(log);
                self.note_new_log(generation.salt);
            }
        }
        header.log_suspect.store(0, Release);
        Ok(())
    }

    pub(crate) fn note_new_log(&self, salt: u64) {
        let header = self.image.header();
        header.log_tail.store(FIRST, Relaxed);
        header.log_sequence.store(0, Relaxed);
        header.log_salt.store(salt, Release);
        header.log_suspect.store(0, Release);
        self.image.write_back_header();
    }

    /// Writes what the log holds to the database file and begins the log again.
    pub(crate) fn checkpoint_in_turn(&self, turn: &mut LogTurn<'_>) -> Result<()> {
        let header = self.image.header();
        if header.hot.load(Acquire) == 0 {
            return Ok(());
        }
        let records = header.log_sequence.load(Acquire);
        let failed = header.log_suspect.load(Acquire) == FAILED;
        if records == 0 && !failed {
            header.applied.store(header.flushed.load(Acquire), Release);
            return Ok(());
        }
        let path = self.log_path();
        let nonce = header.nonce.load(Acquire);
        let Some(log) = turn.log.as_mut() else { return Err(self.damaged("its log is not open")) };
        let salt = header.log_salt.load(Acquire);
        let contents = log.contents(salt, records).map_err(SqliteError::io("read", &path))?;
        if contents.records != records {
            // The log was damaged behind us. All that it held is in the pool still: it is flushed anew.
            header.flushed.store(header.applied.load(Acquire), Release);
        } else {
            apply(self.base(), log, &contents, Some(nonce))?;
            header.applied.store(header.flushed.load(Acquire), Release);
        }
        let generation = Generation { nonce, salt: random() };
        if let Err(source) = log.restart(generation) {
            // Which generation a power cut would leave is not known: nothing is added to either.
            header.log_suspect.store(FAILED, Release);
            return Err(SqliteError::Io { step: "begin again", path, source });
        }
        self.note_new_log(generation.salt);
        header.checkpoints.fetch_add(1, Relaxed);
        if contents.records != records {
            self.flush_in_turn(turn, false)?;
            return self.checkpoint_in_turn(turn);
        }
        Ok(())
    }

    /// Drops blocks that are in the database file. Only for whoever has EXCLUSIVE.
    pub(crate) fn drop_clean(&self) -> Result<u32> {
        let applied = self.image.header().applied.load(Acquire);
        let dropped = self.image.remove_if(|block, transaction| block != 0 && transaction <= applied);
        dropped.map_err(|_| self.damaged("a slot leads astray"))
    }
}

/// Whether a database has hard links: its log may be beside another of its names.
fn has_several_names(database: &Path) -> std::io::Result<bool> {
    Ok(database.metadata()?.nlink() > 1)
}

/// Writes what a log holds to a database file, with the mark or without it, and waits until it is durable.
pub(crate) fn apply(base: &dyn Base, log: &Log, contents: &Contents, nonce: Option<u64>) -> Result<()> {
    let Some(last) = contents.last else { return Ok(()) };
    let mut page = [0; BLOCK_BYTES];
    base.grow_to(last.size);
    for (block, place) in &contents.places {
        let offset = u64::from(*block) * BLOCK_BYTES as u64;
        if offset >= last.size {
            continue;
        }
        log.read_block(*place, &mut page).map_err(SqliteError::io("read", log.path()))?;
        if let (0, Some(nonce)) = (block, nonce) {
            mark::put(&mut page, nonce);
        }
        let bytes = (last.size - offset).min(BLOCK_BYTES as u64) as usize;
        base.write(offset, &page[..bytes])?;
    }
    match nonce {
        Some(nonce) if last.size == 0 => {
            let mut stand_in = [0; mark::STAND_IN_BYTES as usize];
            mark::put(&mut stand_in, nonce);
            base.write(0, &stand_in)?;
            base.truncate(mark::STAND_IN_BYTES)?;
        }
        _ if base.size()? != last.size => base.truncate(last.size)?,
        _ => {}
    }
    base.sync()
}

impl Log {
    /// Whether a path names this log.
    fn is_named(&self, path: &Path) -> std::io::Result<bool> {
        Ok(self.path() == path && path_names_file(path, self.descriptor())?)
    }
}
