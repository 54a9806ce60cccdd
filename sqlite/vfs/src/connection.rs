//! A connection's database file: locks, reads, writes, commit and rollback, as SQLite asks for
//! them.
//!
//! A write transaction puts *shadows* in front of what is committed; the commit is one store of its
//! number. A process that unlocks without a commit drops the shadows. SQLite's own rollback writes
//! the old pages over them, which comes to the same.
//!
//! Invariants:
//! - Blocks are written only under EXCLUSIVE; so no process reads the map while it changes.
//! - While the database is cold every call goes to the base VFS; with the first RESERVED it becomes
//!   hot.
//! - EXCLUSIVE without RESERVED is SQLite rolling back a journal that is on the disk: that goes to
//!   the database file.

#![forbid(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use crate::base::{Base, HostFile, database_size, read_mark};
use crate::error::SqliteError;
use crate::ffi::{self, LOCK_EXCLUSIVE, LOCK_NONE, LOCK_SHARED, RawFile};
use crate::file_size;
use crate::host;
use crate::image::{BLOCK_BYTES, BadLink, NoSlot, WriterId};
use crate::journal::{self, Journal};
use crate::mark;
use crate::owner::elsewhere::refuse_if_elsewhere;
use crate::pool::Pool;
use crate::pressure::Owed;
use crate::stub;

/// A connection's state: its lock, its transaction, its files.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) pool: Arc<Pool>,
    pub(crate) base: HostFile,
    pub(crate) journal: Journal,
    pub(crate) database: PathBuf,
    /// What SQLite holds, and the name by which it asks for the log of WAL mode; null until both
    /// are known.
    pub(crate) file: *mut RawFile,
    pub(crate) wal_name: *const c_char,
    pub(crate) writer_id: WriterId,
    /// It was opened for reading: what is beside the database is not its to remove.
    pub(crate) is_read_only: bool,
    pub(crate) level: c_int,
    /// The locks are those of the pool.
    pub(crate) in_pool: bool,
    /// The writer's word is ours; with SHARED it was claimed ahead.
    pub(crate) is_writer: bool,
    /// When RESERVED was refused, if it was the last time that it was asked for.
    pub(crate) refused_at: Option<Instant>,
    /// RESERVED at the base VFS: the database goes to the pool with EXCLUSIVE.
    pub(crate) is_going: bool,
    /// The first page, as it was read or written last, says that the database is in WAL mode.
    pub(crate) is_wal: bool,
    /// Pages of the file may be mapped.
    pub(crate) has_map: bool,
    /// Slots that this transaction wrote.
    pub(crate) shadows: Vec<u32>,
    /// Size of the database in this transaction.
    pub(crate) pending_size: Option<u64>,
    /// This transaction writes to the database file itself.
    pub(crate) is_direct: bool,
    /// The pool was full: the transaction is dropped, and SQLite is yet to roll it back.
    pub(crate) is_dropped: bool,
    /// The journal of this transaction refers to a super-journal.
    pub(crate) names_super: bool,
    /// Named by no journal here any more: it goes when this database is rolled back.
    pub(crate) forgotten_super: Option<Vec<u8>>,
    /// SQLite may hold pages of a transaction that was not committed for those of the database: see
    /// `stub.rs`.
    pub(crate) is_stale: bool,
    /// How often SQLite asked whether the database was moved.
    asked: u32,
    /// How long it is to wait for what it has committed: see `pressure.rs`.
    pub(crate) owed: Owed,
}

/// Where SQLite reads in the header whether its cache is of the database as it is, and how much.
const VERSION_AT: u64 = 24;
const VERSION_BYTES: usize = 16;

/// Every so many times SQLite's question whether the database was moved is asked of the kernel.
const ASKED_OFTEN: u32 = 256;

/// A code of SQLite that is not `OK`.
pub(crate) type Code = c_int;

/// Tells the program's log, and makes a code of it.
pub(crate) fn report(error: &SqliteError) -> Code {
    let code = error.code();
    if code != ffi::BUSY {
        host::log(code, &error.to_string());
    }
    code
}

/// SQLite takes a full disk and an error of the disk for a failed commit, or write, and drops what
/// it has in its cache. With any other code, as BUSY, it would try again what it holds for done, or
/// go on as if nothing was to be rolled back.
pub(crate) fn code_of_change(code: Code) -> Code {
    match code & 0xff {
        ffi::FULL | ffi::IOERR => code,
        _ => ffi::IOERR,
    }
}

impl Connection {
    pub(crate) fn new(pool: Arc<Pool>, base: HostFile, database: &Path) -> Connection {
        let writer_id = WriterId::new(pool.number, pool.next_connection());
        Connection {
            pool,
            base,
            journal: Journal::default(),
            database: database.to_owned(),
            file: std::ptr::null_mut(),
            wal_name: std::ptr::null(),
            writer_id,
            is_read_only: false,
            level: LOCK_NONE,
            in_pool: false,
            is_writer: false,
            refused_at: None,
            is_going: false,
            is_wal: false,
            has_map: false,
            shadows: Vec::new(),
            pending_size: None,
            is_direct: false,
            is_dropped: false,
            names_super: false,
            forgotten_super: None,
            is_stale: false,
            asked: 0,
            owed: Owed::default(),
        }
    }

    /// Reads and writes answer a slot that leads astray alike: the image is used no more.
    #[cold]
    fn astray(&self, found: BadLink) -> Code {
        report(&self.pool.astray(found));
        ffi::IOERR
    }

    /// The level for SQLite; PENDING is what an EXCLUSIVE leaves that was not to be had.
    /// What was claimed ahead it does not have.
    pub(crate) fn level(&self) -> c_int {
        if self.is_writer && self.level > LOCK_SHARED {
            self.pool.writer_level()
        } else {
            self.level
        }
    }

    pub(crate) fn is_hot(&self) -> bool {
        self.in_pool || self.pool.is_hot()
    }

    /// Whether SQLite's question whether the file was moved is worth a system call: it asks in each
    /// transaction, and the pool knows a database by its inode.
    pub(crate) fn asks_for_move(&mut self) -> bool {
        self.asked = self.asked.wrapping_add(1);
        self.asked.is_multiple_of(ASKED_OFTEN)
    }

    // ---- reads

    /// Size of the database in bytes.
    #[inline]
    pub(crate) fn size(&self) -> Result<u64, Code> {
        match self.pending_size {
            Some(size) => Ok(size),
            // Of a cold one, too, the file may be a stand-in: a process that died while the empty
            // database became hot left it.
            None if self.is_direct || !self.is_hot() => {
                database_size(&self.base).map_err(|error| report(&error))
            }
            None => Ok(self.pool.size()),
        }
    }

    /// Fills `target`; false when the database ends before.
    #[inline]
    pub(crate) fn read(&mut self, offset: u64, target: &mut [u8]) -> Result<bool, Code> {
        // SQLite reads again when it has given the dropped transaction up. In its exclusive mode
        // nothing else says so where there is no journal, or nothing is synced.
        self.is_dropped = false;
        if !self.is_hot() {
            return self.read_cold(offset, target).map_err(|error| report(&error));
        }
        if offset < mark::HEADER_BYTES as u64 {
            // SQLite comes here behind its look at the journal, before it believes its cache.
            let asks_for_version = (offset, target.len()) == (VERSION_AT, VERSION_BYTES);
            self.refuse_rolled_back(asks_for_version).map_err(|error| report(&error))?;
        }
        let size = self.size()?;
        let there =
            usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX).min(target.len());
        let (found, missing) = target.split_at_mut(there);
        missing.fill(0);
        let mut at = offset;
        let mut rest = found;
        while !rest.is_empty() {
            let (block, within) = ((at / BLOCK_BYTES as u64) as u32, at as usize % BLOCK_BYTES);
            let bytes = rest.len().min(BLOCK_BYTES - within);
            let (piece, next) = rest.split_at_mut(bytes);
            let link = self.pool.image.find(block).map_err(|error| self.astray(error))?;
            if link == 0 {
                self.read_base(at, piece).map_err(|error| report(&error))?;
            } else {
                self.pool.image.read(link, within, piece).map_err(|error| self.astray(error))?;
            }
            (rest, at) = (next, at + bytes as u64);
        }
        Ok(missing.is_empty())
    }

    /// Where SQLite asks whether its cache is of the database as it is, and it may not be: changes
    /// the answer, so that the cache is given up.
    #[inline]
    pub(crate) fn gives_cache_up(&mut self, offset: u64, answer: &mut [u8]) -> bool {
        let gives_up = self.is_stale && (offset, answer.len()) == (VERSION_AT, VERSION_BYTES);
        if gives_up {
            self.is_stale = false;
            answer.iter_mut().for_each(|byte| *byte = !*byte);
        }
        gives_up
    }

    /// From the database file while nothing is in the pool in use. SQLite reads the change counter
    /// under each SHARED lock, and so comes here before it believes its cache.
    fn read_cold(&self, offset: u64, target: &mut [u8]) -> Result<bool, SqliteError> {
        if offset < mark::HEADER_BYTES as u64
            && self.level > LOCK_NONE
            && let (Some(found), _) = read_mark(&self.base)?
            && found.nonce != self.pool.image.mode().nonce()
        {
            // Its newest pages went to another pool since it was opened.
            refuse_if_elsewhere(
                (&self.database, self.pool.identity),
                found,
                &self.pool.places,
                &self.pool.owner,
            )?;
            // That pool is gone, and the file is without what the log has.
            return Err(SqliteError::PoolLost { path: self.database.clone() });
        }
        self.read_base(offset, target)
    }

    /// From the database file, without the mark that may be in it.
    pub(crate) fn read_base(&self, offset: u64, target: &mut [u8]) -> Result<bool, SqliteError> {
        let is_whole = self.base.read(offset, target)?;
        if offset >= mark::HEADER_BYTES as u64 {
            return Ok(is_whole);
        }
        let mut header = [0; mark::HEADER_BYTES];
        self.base.read(0, &mut header)?;
        if mark::find(&header).is_some() {
            mark::take(&mut header);
            let part = &header[offset as usize..];
            let bytes = part.len().min(target.len());
            target[..bytes].copy_from_slice(&part[..bytes]);
        }
        Ok(is_whole)
    }

    // ---- writes

    #[inline]
    pub(crate) fn write(&mut self, offset: u64, source: &[u8]) -> Result<(), Code> {
        if !self.in_pool {
            // A journal of another program is rolled back, or a log in WAL mode is brought to the
            // file.
            return match self.level {
                LOCK_NONE => Err(ffi::MISUSE),
                _ => self.base.write(offset, source).map_err(|error| report(&error)),
            };
        }
        if self.level < LOCK_EXCLUSIVE || !self.pool.is_ours() {
            return Err(ffi::MISUSE);
        }
        if self.is_dropped {
            return Ok(());
        }
        if self.is_direct {
            self.end_rolled_back()?;
        }
        let before = self.size()?;
        let mut at = offset;
        let mut rest = source;
        while !rest.is_empty() {
            let (block, within) = ((at / BLOCK_BYTES as u64) as u32, at as usize % BLOCK_BYTES);
            let bytes = rest.len().min(BLOCK_BYTES - within);
            if let Err(code) = self.write_block(block, within, &rest[..bytes]) {
                self.forget_super();
                return Err(code_of_change(code));
            }
            (rest, at) = (&rest[bytes..], at + bytes as u64);
            // At once: a block that follows may have this one written to the file, which takes what
            // is within the size.
            self.pending_size = Some(self.size()?.max(at));
        }
        if at > before && !self.is_direct && !self.pool.settings.has_page_limit() {
            self.pending_size = Some(self.size()?.max(file_size::grown(at, source.len() as u64)));
        }
        Ok(())
    }

    /// Writes within one block.
    #[inline]
    fn write_block(&mut self, block: u32, within: usize, source: &[u8]) -> Result<(), Code> {
        let transaction = self.pool.image.commits().newest_for_writer() + 1;
        let old = self.pool.image.find(block).map_err(|found| self.astray(found))?;
        if old != 0 {
            let (_, writer) = self.pool.image.version(old).map_err(|found| self.astray(found))?;
            if writer == transaction {
                return self
                    .pool
                    .image
                    .write(old, within, source)
                    .map_err(|found| self.astray(found));
            }
        }
        let link = loop {
            match self.pool.image.take_free() {
                Ok(link) => break link,
                Err(NoSlot::BadLink) => return Err(self.astray(BadLink)),
                Err(_) => self.make_room()?,
            }
        };
        let image = &self.pool.image;
        let astray = |found: BadLink| self.astray(found);
        if source.len() < BLOCK_BYTES {
            let mut page = [0; BLOCK_BYTES];
            // Room may have been made by dropping what was found above.
            match image.find(block).map_err(astray)? {
                0 => {
                    let offset = u64::from(block) * BLOCK_BYTES as u64;
                    self.read_base(offset, &mut page).map_err(|error| report(&error))?;
                }
                old => image.read(old, 0, &mut page).map_err(astray)?,
            }
            page[within..within + source.len()].copy_from_slice(source);
            image.write(link, 0, &page).map_err(astray)?;
        } else {
            image.write(link, 0, source).map_err(astray)?;
        }
        image.insert(link, block, transaction).map_err(astray)?;
        image.write_back_slot(link);
        self.shadows.push(link);
        Ok(())
    }

    #[inline]
    pub(crate) fn truncate(&mut self, size: u64) -> Result<(), Code> {
        if !self.in_pool {
            return self.base.truncate(size).map_err(|error| report(&error));
        }
        if self.level < LOCK_EXCLUSIVE {
            return Err(ffi::MISUSE);
        }
        self.pending_size = Some(size);
        Ok(())
    }

    pub(crate) fn sync(&mut self) -> Result<(), Code> {
        if !self.is_direct && self.in_pool {
            // SQLite's own rollback after a full pool ends here, too.
            self.is_dropped = false;
            return Ok(());
        }
        self.settle().map_err(code_of_change)?;
        self.base.sync().map_err(|error| report(&error))
    }

    // ---- the end of a transaction

    /// The transaction will be committed when its super-journal is deleted.
    pub(crate) fn prepare(&mut self, super_journal: &[u8]) -> Result<(), Code> {
        if self.is_direct || !self.in_pool || self.level < LOCK_EXCLUSIVE {
            return Ok(());
        }
        let prepared = self.leave_stub(super_journal);
        if prepared.is_err() {
            self.forget_super();
        }
        prepared
    }

    fn leave_stub(&self, super_journal: &[u8]) -> Result<(), Code> {
        if self.pool.waits_for_log() {
            // Afterwards it is too late: the commit stands in all databases.
            self.pool.check_database_name().map_err(|error| report(&error))?;
        }
        let commits = self.pool.image.commits();
        let transaction = commits.newest_for_writer() + 1;
        commits.set_size(transaction, self.size()?);
        if !self.pool.image.set_name(super_journal) {
            return Err(ffi::CANTOPEN);
        }
        let written = stub::write(&self.pool.database, super_journal);
        written
            .map_err(SqliteError::io("write beside", &self.database))
            .map_err(|error| report(&error))?;
        commits.prepare(transaction);
        self.pool.image.write_back_header();
        Ok(())
    }

    /// A commit over several databases failed here before this one was prepared. No stub keeps the
    /// super-journal for it, which goes when SQLite has rolled the others back; SQLite is to roll
    /// this one back all the same. For one with EXCLUSIVE.
    ///
    /// It does not go here: those that are prepared come before this one, in SQLite's commit as in
    /// its rollback, and without the super-journal they would be taken for committed.
    #[cold]
    fn forget_super(&mut self) {
        if !self.names_super || self.pool.image.commits().is_prepared() {
            return;
        }
        if let Some(super_journal) = self.journal.drop_reference() {
            self.names_super = false;
            self.forgotten_super = Some(super_journal);
        }
    }

    /// This database is rolled back, and so are those that were prepared.
    #[inline]
    pub(crate) fn clean_up_forgotten(&mut self) {
        if let Some(super_journal) = self.forgotten_super.take() {
            stub::clean_up(&self.pool.database, &super_journal);
        }
    }

    /// As [`Connection::drop_prepared`], where SQLite may be rolling back, or writes another
    /// transaction: in its exclusive mode no lock is given back in between.
    pub(crate) fn drop_failed_prepared(&mut self) {
        let may_write = self.in_pool && self.is_writer && self.level == LOCK_EXCLUSIVE;
        if may_write && self.pool.is_ours() {
            self.drop_prepared();
            self.clean_up_forgotten();
        }
    }

    /// The transaction that was prepared, if there is one, is rolled back.
    #[inline]
    pub(crate) fn drop_prepared(&self) {
        let commits = self.pool.image.commits();
        if commits.is_prepared() {
            commits.end_prepared();
            stub::remove(&self.pool.database);
        }
    }

    /// SQLite has committed.
    #[inline]
    pub(crate) fn commit(&mut self) -> Result<(), Code> {
        self.names_super = false;
        if !self.in_pool || !self.is_writer {
            return Ok(());
        }
        if self.is_dropped {
            self.is_dropped = false;
            return Err(ffi::FULL);
        }
        if self.is_direct {
            return self.end_direct(true).map_err(code_of_change);
        }
        let size = self.size()?;
        if self.shadows.is_empty() && size == self.pool.size() {
            self.pending_size = None;
            return Ok(());
        }
        let pool = Arc::clone(&self.pool);
        // In SQLite's exclusive mode no lock is given back, and it is here that it waits.
        pool.pay(&mut self.owed);
        match pool.commit(&self.shadows, size) {
            Ok(blocks) => pool.charge(&mut self.owed, blocks),
            Err(error) => {
                self.roll_back()?;
                return Err(code_of_change(report(&error)));
            }
        }
        self.shadows.clear();
        self.pending_size = None;
        pool.flush_if_due().map_err(|error| report(&error))
    }

    /// Drops what was not committed.
    #[inline]
    pub(crate) fn roll_back(&mut self) -> Result<(), Code> {
        self.is_dropped = false;
        while let Some(link) = self.shadows.pop() {
            self.pool.image.remove(link).map_err(|error| self.astray(error))?;
        }
        if self.is_direct {
            self.end_direct(false)?;
        } else {
            self.pending_size = None;
            self.drop_prepared();
        }
        self.clean_up_forgotten();
        Ok(())
    }

    /// Whether there is a journal to roll back. One that cannot be looked at is an error; so is one
    /// that a program without the VFS has rolled back, or rolls back.
    #[inline]
    pub(crate) fn has_disk_journal(&mut self) -> Result<bool, SqliteError> {
        if !self.is_hot() {
            return stub::has_journal(&self.database);
        }
        if !self.pool.image.mode().may_have_journal() {
            return Ok(false);
        }
        let mut exists = self.pool.has_journal(&self.database)?;
        // With SHARED SQLite asks this before it looks at its cache.
        self.refuse_rolled_back(true)?;
        if exists
            && self.in_pool
            && !self.is_read_only
            && self.level == LOCK_SHARED
            && !stub::has_live_journal(&self.database)?
            && self.pool.check_mark().is_ok()
        {
            // SQLite would use it for its next transaction, whose commits are in the pool: if this
            // process died in that, a program without the VFS would roll the journal back.
            let removed = journal::remove_settled(&stub::journal_path(&self.database));
            exists = removed.is_err() || self.pool.has_journal(&self.database)?;
        }
        if !exists {
            self.pool.image.mode().note_journal(false);
        }
        Ok(exists)
    }
}
