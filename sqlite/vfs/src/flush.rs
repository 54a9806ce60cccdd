//! LazyFlush: from the pool to the redo log, and from the redo log to the database file.
//!
//! A *flush* appends every block that changed since the last one as one record; a *checkpoint*
//! writes what the log holds to the database file and begins the log again. The paper flushes into
//! the database file in place; a pool that is lost in the middle of that leaves a torn file, so
//! here the log stands between.
//!
//! Commits wait for neither. A flush copies most blocks a few at a time, with the commit lock for
//! each few; what commits replace meanwhile it copies again, and the last ones, which are few, with
//! the lock held. A checkpoint takes blocks from the pool, but for those that a commit has replaced
//! since the flush: of these the log has what is to be written.
//!
//! Invariants:
//! - A flush holds exactly what is committed at one moment: the last blocks are copied under the
//!   commit lock, and no block that was copied before has changed since.
//! - A slot that is committed and not applied is freed under the commit lock only. So a slot that
//!   has the same block and transaction as before, seen under that lock, has the same page.
//! - `flushed` and `applied` are raised only after what they say is durable, under the log lock.
//! - A slot is clean, and may be dropped, only when its transaction is not above `applied`: so a
//!   process that misses a block in the pool may read it from the database file, also while a
//!   checkpoint writes there.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{MutexGuard, TryLockError};
use std::time::Duration;

use holdfast_sys::file::FileId;

use crate::apply::{Blocks, apply};
use crate::error::{CREATE, Result, SqliteError};
use crate::growth::Growth;
use crate::identity::has_several_names;
use crate::image::{BLOCK_BYTES, BadLink, Suspicion};
use crate::locking::Held;
use crate::log::{Contents, FIRST, Generation, Log, Logged, Version, Written, random};
use crate::mark::Stamp;
use crate::pool::Pool;

/// Blocks that are copied under one commit lock: it is held for some microseconds.
const COPIED_AT_ONCE: usize = 16;
/// A flush copies so many blocks at last, when no commit can come in between.
const COPIED_LAST_MAX: usize = 64;
/// How often a flush copies what has changed while it copied.
const PASSES_MAX: u32 = 8;
/// Blocks that make room for others at once.
const DROPPED_AT_ONCE: u32 = 64;

/// How long a process sleeps that waits for the log or for what comes about.
const PAUSE: Duration = Duration::from_micros(200);

/// The log, and the right to write to it.
pub(crate) struct LogTurn<'a> {
    log: MutexGuard<'a, Option<Log>>,
    _lock: Held<'a>,
    /// The file grew in this turn by what it has not been told yet: it is to be brought up to date,
    /// for little.
    has_grown: bool,
}

impl LogTurn<'_> {
    /// Takes the log out of use. It is closed when the returned value is dropped.
    pub(crate) fn take(&mut self) -> Option<Log> {
        self.log.take()
    }
}

impl Pool {
    /// Waits for the turn to write to the log.
    pub(crate) fn log_turn(&self) -> LogTurn<'_> {
        let log = self.log.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        LogTurn { log, _lock: self.lock_log(), has_grown: false }
    }

    /// The same, but for as long only as something has not come about.
    pub(crate) fn log_turn_unless(&self, came_about: impl Fn() -> bool) -> Option<LogTurn<'_>> {
        loop {
            match self.log.try_lock() {
                Err(TryLockError::WouldBlock) => {}
                Ok(log) => {
                    let lock = self.lock_log_unless(&came_about)?;
                    return Some(LogTurn { log, _lock: lock, has_grown: false });
                }
                Err(TryLockError::Poisoned(poisoned)) => {
                    let (log, lock) = (poisoned.into_inner(), self.lock_log_unless(&came_about)?);
                    return Some(LogTurn { log, _lock: lock, has_grown: false });
                }
            }
            if came_about() {
                return None;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// A flush, and a checkpoint when the log has become long, or the file has grown: then most is
    /// there already.
    pub(crate) fn flush_and_tidy(&self) -> Result<()> {
        let mut turn = self.log_turn();
        if self.is_hot() {
            // Also where there is nothing to flush: the log may be one of another process, or gone.
            self.prepare_log(&mut turn)?;
        }
        self.flush_in_turn(&mut turn, None)?;
        match turn.has_grown || self.is_log_long() {
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
        let flushed = commits.flushed();
        let Some(log) = turn.log.as_mut() else { return Err(self.damaged("its log is not open")) };
        let position = self.image.log_position();
        log.begin((position.salt(), position.records()), committing.is_some());
        let started_ns = self.pressure.now_ns();
        let (copied, mut growth) = match committing {
            Some(_) => (flushed, None),
            None => self.copy_beside_commits(log, flushed)?,
        };
        let commit = committing.is_none().then(|| self.lock_commit());
        let committed = commits.newest();
        let last = match committing {
            // Nothing else has changed: the pool need not be searched for it.
            Some(shadows) if flushed + 1 == committed => self.versions(shadows)?,
            _ => self.changed(copied + 1..=committed, committing.is_some()),
        };
        self.copy(log, growth.as_mut(), &last)?;
        let grown = growth.as_ref().map_or(0, Growth::blocks);
        let (size, count) = (commits.size_of(committed), log.blocks() + grown);
        commits.note_gathered(committed);
        self.pressure.begin_flush(count, started_ns);
        drop(commit);
        turn.has_grown |= growth.is_some();
        let grown = growth.as_mut().map_or(Ok(()), |growth| {
            growth.write_all(self.base())?;
            self.base().sync()
        });
        let finished =
            grown.and_then(|()| self.finish_record(log, (committed, size), committing.is_some()));
        self.pressure.end_flush();
        if let Err(error) = finished {
            commits.add_dirty(count);
            return Err(error);
        }
        commits.note_flushed(committed);
        self.image.log_position().count_flush(count);
        self.image.write_back_header();
        Ok(())
    }

    /// Copies what has changed after a transaction, while processes commit; returns the transaction
    /// as of which the copies are: what has changed after that is to be copied yet. By how much the
    /// file grows is written to it here, but not what changes meanwhile: that follows once.
    fn copy_beside_commits(&self, log: &mut Log, flushed: u64) -> Result<(u64, Option<Growth>)> {
        let commits = self.image.commits();
        let (mut copied, mut growth) = (flushed, None);
        for pass in 0..PASSES_MAX {
            let committed = commits.newest();
            let mut found = self.changed(copied + 1..=committed, false);
            if found.len() <= COPIED_LAST_MAX {
                break;
            }
            found.sort_unstable_by_key(|(block, _)| *block);
            if pass == 0 {
                growth = self.begin_growth(log, &found)?;
                if growth.is_none() {
                    log.expect(found.len());
                }
            }
            for some in found.chunks(COPIED_AT_ONCE) {
                let commit = self.lock_commit();
                self.copy(log, growth.as_mut(), some)?;
                drop(commit);
                if let (0, Some(growth)) = (pass, growth.as_mut()) {
                    growth.write_some(self.base())?;
                }
            }
            if let (0, Some(growth)) = (pass, growth.as_mut()) {
                growth.write_all(self.base())?;
            }
            copied = committed;
        }
        Ok((copied, growth))
    }

    /// Copies blocks, with the commit lock held; not those of which there is a newer version by
    /// now.
    fn copy(
        &self,
        log: &mut Log,
        mut growth: Option<&mut Growth>,
        blocks: &[(u32, Version)],
    ) -> Result<()> {
        for (block, version) in blocks {
            if self.has(*block, *version) {
                let read = |page: &mut [u8]| self.image.read(version.link, 0, page);
                let copied = match growth.as_mut().filter(|growth| growth.takes(*block)) {
                    Some(growth) => read(growth.page_of(*block)),
                    None => {
                        let before = self.page_before(log, *block)?;
                        log.put(*block, *version, before.as_ref(), read)
                    }
                };
                copied.map_err(|found| self.astray(found))?;
            }
        }
        Ok(())
    }

    /// A block as the log has it, where the pool has that still; with the commit lock held.
    fn page_before(&self, log: &Log, block: u32) -> Result<Option<[u8; BLOCK_BYTES]>> {
        let version = log.version_before(block).filter(|version| self.has(block, *version));
        let Some(version) = version else { return Ok(None) };
        let mut page = [0; BLOCK_BYTES];
        self.image.read(version.link, 0, &mut page).map_err(|found| self.astray(found))?;
        Ok(Some(page))
    }

    /// Whether a slot still has this version of a block: see the invariants.
    fn has(&self, block: u32, version: Version) -> bool {
        let found = self.image.version(version.link);
        found.is_ok_and(|found| found == (block, version.transaction))
    }

    /// What some slots have.
    fn versions(&self, links: &[u32]) -> Result<Vec<(u32, Version)>> {
        let version = |link: &u32| {
            let (block, transaction) = self.image.version(*link)?;
            Ok((block, Version { link: *link, transaction }))
        };
        let versions: std::result::Result<_, BadLink> = links.iter().map(version).collect();
        versions.map_err(|found| self.astray(found))
    }

    /// The blocks that some transactions changed; of each the newest version only, where there may
    /// be several.
    pub(crate) fn changed(
        &self,
        transactions: RangeInclusive<u64>,
        newest: bool,
    ) -> Vec<(u32, Version)> {
        let wanted = self.image.in_use().filter(|(link, block, transaction)| {
            transactions.contains(transaction)
                && (!newest || self.image.find(*block).is_ok_and(|newest| newest == *link))
        });
        wanted.map(|(link, block, transaction)| (block, Version { link, transaction })).collect()
    }

    /// Makes a record durable: its transaction, and the size of the database.
    /// Where a commit waits for it, it counts only if recovery would find it.
    pub(crate) fn finish_record(
        &self,
        log: &mut Log,
        record: (u64, u64),
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
                position.note_record(end, log.blocks(), sequence + 1, record.0);
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
        log.confirmed = (is_ours && is_whole).then_some((salt, records));
        match log.confirmed {
            Some(_) => Ok(()),
            None => Err(SqliteError::LogTaken {
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
        let header = match turn.log.as_ref() {
            Some(log) => log.header().map_err(SqliteError::io("read", &path))?,
            None => None,
        };
        let (found, is_current) = header.unzip();
        if let (None, Some(log)) = (found, turn.log.as_ref())
            && log.is_newer().map_err(SqliteError::io("read", &path))?
        {
            return Err(SqliteError::Newer { file: path, database: self.database.clone() });
        }
        let suspicion = position.suspicion();
        // What a close of another database left where this one is now is no log.
        match found.filter(|found| !found.is_at_rest()) {
            Some(found) if found.nonce == nonce && found.salt == position.salt() => {
                if suspicion.ends_generation() {
                    self.checkpoint_in_turn(turn)?;
                } else if !self.has_records(turn, suspicion == Suspicion::None)? {
                    // An older copy is in its place. What was flushed since is in the pool still.
                    self.count_log_as_lost();
                    self.restart(turn)?;
                } else if is_current == Some(false) {
                    // An earlier version takes a record of this one for the end of the log.
                    match position.records() {
                        0 => self.restart(turn)?,
                        _ => self.checkpoint_in_turn(turn)?,
                    }
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
        let found = log.has((salt, records, position.tail()), by_heads);
        found.map_err(SqliteError::io("read", log.path()))
    }

    /// Whether this process wrote and found the last record, and knows of nothing that came after:
    /// then a commit may write the next one at once, and look behind it whether both are found.
    pub(crate) fn trusts_log(&self, turn: &LogTurn<'_>) -> bool {
        let position = self.image.log_position();
        let records = (position.salt(), position.records());
        position.suspicion() == Suspicion::None
            && turn.log.as_ref().is_some_and(|log| {
                log.confirmed == Some(records)
                    && log.names.is_some_and(|names| names.files.is_none())
            })
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
        let position = self.image.log_position();
        log.begin((position.salt(), position.records()), false);
        self.finish_record(log, (self.image.commits().applied(), self.size()), false)?;
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
        while self.is_hot() {
            let position = self.image.log_position();
            if position.records() == 0 && !position.suspicion().ends_generation() {
                self.image.commits().note_applied();
                return Ok(());
            }
            let is_applied = self.apply_in_turn(turn)?;
            self.restart(turn)?;
            position.count_checkpoint();
            if is_applied {
                return Ok(());
            }
            self.flush_in_turn(turn, None)?;
        }
        Ok(())
    }

    /// Brings all that is committed to the database file, for a process that takes the mark away
    /// next: the log, which counts for nothing then, stays as it is.
    pub(crate) fn complete_file(&self, turn: &mut LogTurn<'_>) -> Result<()> {
        if !self.is_hot() {
            return Ok(());
        }
        self.prepare_log(turn)?;
        self.flush_in_turn(turn, None)?;
        if self.image.commits().is_applied() {
            return Ok(());
        }
        match self.apply_in_turn(turn)? {
            true => self.image.log_position().count_checkpoint(),
            // The log lost something that the pool has: the log begins anew, and a flush fills it.
            false => {
                self.restart(turn)?;
                self.flush_in_turn(turn, None)?;
                self.checkpoint_in_turn(turn)?;
            }
        }
        Ok(())
    }

    /// Writes what the log holds to the database file. False where another program damaged the log:
    /// the pool still has all that the log held, and the caller flushes that once more.
    fn apply_in_turn(&self, turn: &mut LogTurn<'_>) -> Result<bool> {
        let (commits, position, path) =
            (self.image.commits(), self.image.log_position(), self.log_path());
        let (salt, records) = (position.salt(), position.records());
        let Some(log) = turn.log.as_mut() else { return Err(self.damaged("its log is not open")) };
        let read = |source| SqliteError::Io { step: "read", path: path.clone(), source };
        let is_sound = position.suspicion() == Suspicion::None
            && log.reaches(salt, records, position.tail()).map_err(read)?;
        let written = is_sound.then(|| log.take_written(salt, records)).flatten();
        let (contents, versions) = match written {
            Some(Written { contents, versions, .. }) => (contents, versions),
            None => (log.contents(salt, records).map_err(read)?, HashMap::new()),
        };
        if contents.records != records {
            self.count_log_as_lost();
            return Ok(false);
        }
        // A process that handed the file over may have come as far, and the file be others' since.
        let is_done = self.image.mode().is_closing() && commits.is_applied();
        if let Some(last) = contents.last.filter(|_| !is_done) {
            self.check_mark()?;
            self.pressure.begin_apply(contents.places.len() as u32);
            let blocks = self.blocks_of(&contents, &versions, log);
            let applied = apply(self.base(), &blocks, self.stamp(last.transaction));
            self.pressure.end_apply();
            applied?;
        }
        commits.note_applied();
        Ok(true)
    }

    /// What a log holds, from the pool where that has it in the same version.
    fn blocks_of<'a>(
        &'a self,
        contents: &'a Contents,
        versions: &'a HashMap<u32, Logged>,
        log: &'a Log,
    ) -> Blocks<'a> {
        let read = move |run: &[(u32, u64)], pages: &mut [u8]| {
            let mut replaced = Vec::new();
            let some = run.chunks(COPIED_AT_ONCE);
            for (run, pages) in some.zip(pages.chunks_mut(COPIED_AT_ONCE * BLOCK_BYTES)) {
                let _commit = self.lock_commit();
                for ((block, place), page) in run.iter().zip(pages.chunks_mut(BLOCK_BYTES)) {
                    let logged = versions.get(block).map(|logged| logged.version);
                    match logged.filter(|version| self.has(*block, *version)) {
                        Some(version) => self
                            .image
                            .read(version.link, 0, page)
                            .map_err(|found| self.astray(found))?,
                        None => replaced.push((*block, *place)),
                    }
                }
            }
            let (first, _) = run[0];
            for some in replaced.chunk_by(|one, other| one.0 + 1 == other.0) {
                let at = (some[0].0 - first) as usize * BLOCK_BYTES;
                let pages = &mut pages[at..at + some.len() * BLOCK_BYTES];
                log.read_blocks(contents, some, pages)
                    .map_err(SqliteError::io("read", log.path()))?;
                // The next checkpoint reads all of the log, finds what is missing, and flushes it.
                let mut blocks = some.iter().zip(pages.chunks(BLOCK_BYTES));
                let is_as_put = |(block, page): (&(u32, u64), &[u8])| {
                    versions.get(&block.0).is_none_or(|logged| logged.is(page))
                };
                if !blocks.all(is_as_put) {
                    return Err(self.damaged("a block of its log is not what was written there"));
                }
            }
            Ok(())
        };
        let size = contents.last.map_or(0, |record| record.size);
        Blocks { places: &contents.places, size, read: Box::new(read) }
    }

    /// Drops some blocks that are in the database file, a few at a time, so that no commit waits
    /// long for it. Only for a process that has EXCLUSIVE.
    pub(crate) fn drop_clean(&self) -> Result<u32> {
        let applied = self.image.commits().applied();
        let dropped = self
            .image
            .remove_some((self.clean_from.load(Relaxed), DROPPED_AT_ONCE), |block, transaction| {
                block != 0 && transaction <= applied
            });
        let (dropped, next) = dropped.map_err(|found| self.astray(found))?;
        self.clean_from.store(next, Relaxed);
        Ok(dropped)
    }
}

impl Log {
    /// Whether a path names this log.
    fn is_named(&self, path: &Path) -> std::io::Result<bool> {
        Ok(self.path() == path && FileId::at(path)? == Some(self.id()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::SeqCst;
    use std::time::Instant;

    use super::*;
    use crate::image::BLOCK_BYTES;
    use crate::testing::{commit, hot, hot_on_slow, lose, recovered};

    const AT_ONCE: Duration = Duration::ZERO;

    fn fresh() -> tempfile::TempDir {
        tempfile::tempdir_in("/dev/shm").unwrap()
    }

    /// The first byte of each block of a database.
    fn fills(bytes: &[u8]) -> Vec<u8> {
        bytes.chunks(BLOCK_BYTES).map(|block| block[0]).collect()
    }

    /// A commit past the threshold returns while the flush that it asked for waits for the disk.
    #[test]
    fn commits_do_not_wait_for_the_flush_under_way() {
        const SYNC: Duration = Duration::from_millis(400);
        let folder = fresh();
        let (pool, _) = hot_on_slow(folder.path(), (1001, 4096), (AT_ONCE, SYNC));
        pool.settings.set("threshold", "200").unwrap();
        let mut longest = Duration::ZERO;
        let started = Instant::now();
        let mut number = 0;
        while pool.image.log_position().counts().checkpoints < 2 {
            assert!(started.elapsed() < Duration::from_secs(60), "nothing was brought to the file");
            let began = Instant::now();
            commit(&pool, &[(number % 1000 + 1, 7)], 1001).unwrap();
            pool.flush_if_due().unwrap();
            longest = longest.max(began.elapsed());
            number += 1;
            std::thread::sleep(Duration::from_micros(200));
        }
        pool.flusher.stop();
        assert!(longest < SYNC / 2, "a commit took {longest:?}");
    }

    /// What a flush has is as of one commit, however many there are while it copies: each commit
    /// here writes the same to all blocks.
    ///
    /// Guarantee: sqlite/lost-pool
    #[test]
    fn flush_beside_commits_is_of_one_moment() {
        const BLOCKS: u32 = 4 * COPIED_LAST_MAX as u32;
        let folder = fresh();
        let pool = Arc::new(hot(folder.path(), BLOCKS as usize + 1));
        let stop = Arc::new(AtomicBool::new(false));
        let writer = {
            let (pool, stop) = (Arc::clone(&pool), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut fill = 1_u8;
                while !stop.load(SeqCst) {
                    fill = fill % 250 + 1;
                    let blocks: Vec<_> = (1..=BLOCKS).map(|block| (block, fill)).collect();
                    commit(&pool, &blocks, BLOCKS as usize + 1).unwrap();
                }
            })
        };
        for _ in 0..100 {
            pool.flush_and_tidy().unwrap();
            let mut log = Log::look(&pool.log_path()).unwrap().unwrap();
            let contents = log.contents(pool.image.log_position().salt(), u64::MAX).unwrap();
            let read = |(block, place): (&u32, &u64)| {
                let mut page = [0; BLOCK_BYTES];
                log.read_blocks(&contents, &[(*block, *place)], &mut page).unwrap();
                page[0]
            };
            let mut found: Vec<u8> = contents.places.iter().map(read).collect();
            found.dedup();
            assert!(found.len() < 2, "of several commits: {found:?}");
        }
        stop.store(true, SeqCst);
        writer.join().unwrap();
        lose(Arc::into_inner(pool).unwrap());
        let found = fills(&recovered(folder.path()).1);
        assert!(found[1..].iter().all(|fill| *fill == found[1]), "{found:?}");
    }

    /// A checkpoint writes what was flushed, also of blocks that were committed again since: those
    /// are not in the log.
    ///
    /// Guarantee: sqlite/lost-pool
    #[test]
    fn checkpoint_writes_what_the_log_has() {
        let folder = fresh();
        let pool = hot(folder.path(), 5);
        commit(&pool, &[(1, 2), (2, 2), (3, 2)], 5).unwrap();
        pool.flush_and_tidy().unwrap();
        commit(&pool, &[(2, 3), (4, 3)], 5).unwrap();
        pool.checkpoint_in_turn(&mut pool.log_turn()).unwrap();
        let database = pool.database.clone();
        assert_eq!(fills(&std::fs::read(&database).unwrap())[1..], [2, 2, 2, 1]);
        pool.checkpoint().unwrap();
        assert_eq!(fills(&std::fs::read(&database).unwrap())[1..], [2, 3, 2, 3]);
    }

    /// Commits that wait for the log say what changed. The machine goes while one of them is
    /// written, whichever of its sectors is missing: what was committed before is there, and the
    /// file is whole.
    ///
    /// Guarantee: sqlite/lost-pool
    /// Guarantee: sqlite/level-power
    #[test]
    fn changes_count_up_to_the_last_whole_record() {
        const SECTOR: usize = 512;
        let folder = fresh();
        let pool = hot(folder.path(), 5);
        pool.settings.set("level", "power").unwrap();
        let mut blocks: Vec<Vec<u8>> = (1..5_u64)
            .map(|block| {
                let words = (0..BLOCK_BYTES as u64 / 8).map(move |word| block << 32 | word);
                words.flat_map(|word| xxhash_rust::xxh3::xxh3_64(&word.to_le_bytes()).to_le_bytes())
            })
            .map(Iterator::collect)
            .collect();
        let state = |blocks: &[Vec<u8>]| blocks.concat();
        let before = std::fs::read(&pool.database).unwrap()[BLOCK_BYTES..].to_vec();
        let (mut states, mut ends) = (vec![before], vec![FIRST as usize]);
        for number in 0..160_usize {
            // The first record has all blocks, each other has one, and each fifth has two.
            let changed: Vec<usize> = match number {
                0 => (0..4).collect(),
                _ => (0..1 + usize::from(number % 5 == 0))
                    .map(|more| (number / 40 + more) % 4)
                    .collect(),
            };
            let links: Vec<u32> = changed
                .iter()
                .map(|at| {
                    let offset = number * 131 % (BLOCK_BYTES - 30);
                    blocks[*at][offset..offset + 30].fill(number as u8);
                    crate::testing::put(&pool, *at as u32 + 1, &blocks[*at])
                })
                .collect();
            pool.commit(&links, 5 * BLOCK_BYTES as u64).unwrap();
            states.push(state(&blocks));
            ends.push(pool.image.log_position().tail() as usize);
        }
        let short = ends.windows(2).filter(|ends| ends[1] - ends[0] == SECTOR).count();
        assert!(short > 150, "{short} records are short");
        let (database, path) = (pool.database.clone(), pool.log_path());
        let [file, log] = [&database, &path].map(|path| std::fs::read(path).unwrap());
        lose(pool);
        for (number, end) in ends.windows(2).enumerate() {
            for sector in (end[0]..end[1]).step_by(SECTOR) {
                let mut torn = log.clone();
                torn[sector..sector + SECTOR].fill(0);
                std::fs::write(&database, &file).unwrap();
                std::fs::write(&path, torn).unwrap();
                let (_, found) = recovered(folder.path());
                assert!(found[BLOCK_BYTES..] == states[number], "record {number}, at {sector}");
            }
        }
        std::fs::write(&database, &file).unwrap();
        std::fs::write(&path, log).unwrap();
        assert!(recovered(folder.path()).1[BLOCK_BYTES..] == *states.last().unwrap());
    }

    /// A checkpoint reads nothing back that the pool has: it writes blocks that the log has lost
    /// meanwhile all the same, and needs no second flush.
    #[test]
    fn checkpoint_reads_nothing_back_that_the_pool_has() {
        use std::os::unix::fs::FileExt;

        let folder = fresh();
        let pool = hot(folder.path(), 9);
        commit(&pool, &[(1, 2), (2, 2), (7, 2)], 9).unwrap();
        pool.flush_and_tidy().unwrap();
        let log = std::fs::File::options().write(true).open(pool.log_path()).unwrap();
        // Behind the record's head.
        log.write_all_at(&[0xee; 256], FIRST + 64).unwrap();
        pool.checkpoint().unwrap();
        let found = fills(&std::fs::read(&pool.database).unwrap());
        assert_eq!(found[1..], [2, 2, 1, 1, 1, 1, 2, 1]);
        assert_eq!(pool.image.log_position().counts().flushes, 1);
    }

    /// A block that the log alone has, and that is not what was put there, does not come into the
    /// file: the checkpoint fails, and the next one finds the block in the pool.
    ///
    /// Guarantee: sqlite/lost-pool
    #[test]
    fn checkpoint_believes_no_damaged_block_of_the_log() {
        use std::os::unix::fs::FileExt;

        let folder = fresh();
        let pool = hot(folder.path(), 5);
        // A block that the log does not compress: nothing but its sum tells that it is another.
        let noise: Vec<u8> = (0..BLOCK_BYTES as u64 / 8)
            .flat_map(|word| xxhash_rust::xxh3::xxh3_64(&word.to_le_bytes()).to_le_bytes())
            .collect();
        let link = crate::testing::put(&pool, 2, &noise);
        pool.commit(&[link], 5 * BLOCK_BYTES as u64).unwrap();
        pool.flush_and_tidy().unwrap();
        // The log's version of the block is in the pool no more.
        commit(&pool, &[(2, 9)], 5).unwrap();
        let log = std::fs::File::options().write(true).open(pool.log_path()).unwrap();
        log.write_all_at(&[0xee; 8], FIRST + 2000).unwrap();
        let before = std::fs::read(&pool.database).unwrap();
        let error = pool.checkpoint_in_turn(&mut pool.log_turn()).unwrap_err();
        assert!(error.to_string().contains("a block of its log"), "{error}");
        assert!(std::fs::read(&pool.database).unwrap() == before);
        pool.checkpoint().unwrap();
        assert_eq!(fills(&std::fs::read(&pool.database).unwrap())[1..], [1, 9, 1, 1]);
    }

    /// A checkpoint writes in order, and neighbours at once.
    #[test]
    fn checkpoint_writes_sorted_runs() {
        let folder = fresh();
        let (pool, writes) = hot_on_slow(folder.path(), (1001, 4096), (AT_ONCE, AT_ONCE));
        // In three records, in no order.
        for part in 0..3 {
            let blocks = (0..200).map(|number| (number * 7 % 200 * 3 + part, 5));
            let blocks: Vec<_> = blocks.filter(|(block, _)| *block > 99 || *block < 20).collect();
            commit(&pool, &blocks, 1001).unwrap();
            pool.flush_and_tidy().unwrap();
        }
        pool.checkpoint().unwrap();
        let block = BLOCK_BYTES as u64;
        let runs: Vec<(u64, u64)> = writes.lock().unwrap()[..3]
            .iter()
            .map(|(offset, bytes)| (offset / block, *bytes as u64 / block))
            .collect();
        assert_eq!(runs, [(0, 20), (100, 256), (356, 244)]);
    }

    /// Before the mark goes the log is not begun again, which would be one sync more of each close.
    #[test]
    fn completed_file_leaves_the_log_as_it_is() {
        let folder = fresh();
        let (pool, writes) = hot_on_slow(folder.path(), (9, 4096), (AT_ONCE, AT_ONCE));
        commit(&pool, &[(1, 2), (2, 2), (7, 2)], 9).unwrap();
        let position = pool.image.log_position();
        let salt = position.salt();
        for _ in 0..2 {
            pool.complete_file(&mut pool.log_turn()).unwrap();
            assert_eq!((position.salt(), position.records()), (salt, 1));
        }
        assert_eq!(fills(&std::fs::read(&pool.database).unwrap())[1..], [2, 2, 1, 1, 1, 1, 2, 1]);
        // The second time there was nothing to write: two runs, and the mark as of the commit.
        assert_eq!(writes.lock().unwrap().len(), 3);
        // And it goes on from there.
        commit(&pool, &[(1, 3)], 9).unwrap();
        pool.checkpoint().unwrap();
        assert_eq!(fills(&std::fs::read(&pool.database).unwrap())[1..], [3, 2, 1, 1, 1, 1, 2, 1]);
        assert!(pool.cool().unwrap().is_none());
        assert_eq!(fills(&std::fs::read(&pool.database).unwrap())[1..], [3, 2, 1, 1, 1, 1, 2, 1]);
    }

    /// Room is made a few blocks at a time, of those that the file has, and of each once.
    #[test]
    fn room_is_made_a_few_blocks_at_a_time() {
        let folder = fresh();
        let pool = hot(folder.path(), 1001);
        let blocks: Vec<_> = (1..=150).map(|block| (block, 2)).collect();
        commit(&pool, &blocks, 1001).unwrap();
        pool.flush_and_tidy().unwrap();
        assert_eq!(pool.drop_clean().unwrap(), 0, "the log has them, and not the file");
        pool.checkpoint().unwrap();
        commit(&pool, &[(500, 2)], 1001).unwrap();
        let dropped: Vec<u32> = (0..4).map(|_| pool.drop_clean().unwrap()).collect();
        assert_eq!(dropped, [64, 64, 22, 0]);
        assert_ne!(pool.image.find(500).unwrap(), 0, "the newest commit is gone");
    }
}
