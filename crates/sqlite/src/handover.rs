//! Databases that leave the pool while they are open: to be read or copied by other programs, or to go over to SQLite's WAL mode.
//!
//! A database that was released comes back with the next write, as one that was just opened. SQLite changes the mode by a transaction that says so in the first page. It is one like any other here: committed in the
//! pool. Whoever reads such a page next opens the log of WAL mode, `-wal`, and on this occasion the database leaves the pool:
//! all of it is brought to the file, the mark goes, and from then on every call is the base VFS's. So a death at any step
//! leaves a database that is in the pool and says that it is in WAL mode, which the next one to read it finishes; or one that has left.
//! The way back needs nothing: SQLite leaves WAL mode under its EXCLUSIVE lock, and the next write makes the database hot.
//!
//! Invariants:
//! - Nobody has a `-wal` open while the database is in the pool. Its newest state is there or in the file with its `-wal`, never in both.
//! - The database leaves under EXCLUSIVE of the pool and of SQLite, and comes back under SQLite's; who has a `-wal` open has
//!   SQLite's SHARED.
//! - A file whose mark is gone may have been written to by others since, and is not written to from the pool again.

#![forbid(unsafe_code)]

use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

use crate::attach::{clear_mark, read_mark};
use crate::base::Base;
use crate::connection::{Code, Connection, report};
use crate::error::{Result, SqliteError};
use crate::ffi::{self, LOCK_EXCLUSIVE, LOCK_NONE};
use crate::host;
use crate::log::Log;
use crate::pool::Pool;
use crate::stub;

/// Others who read the same page come to the same door, and go back when somebody is in it.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_micros(200);

impl Pool {
    /// Brings everything to the file and hands it over to whoever reads it: nothing of the database is in the pool afterwards.
    /// The caller has EXCLUSIVE of the pool and of SQLite, or has passed the gate and is alone.
    pub(crate) fn hand_over(&self) -> Result<()> {
        let header = self.image.header();
        let mut turn = self.log_turn();
        let is_complete = header.closing.load(Acquire) != 0 && read_mark(self.base())?.0.is_none();
        if !is_complete {
            self.checkpoint_with(&mut turn)?;
            let size = self.size();
            header.closing.store(1, Release);
            self.image.write_back_header();
            clear_mark(self.base(), Some(size))?;
        }
        turn.forget();
        let path = self.log_path();
        if let Err(error) = Log::remove(&path).map_err(SqliteError::io("remove", &path)) {
            // It is of no database that is marked: it counts for nothing, and the next one takes its place.
            report(&error);
        }
        self.forget();
        Ok(())
    }
}

impl Connection {
    /// EXCLUSIVE for one with RESERVED at the base VFS: the database becomes hot.
    pub(crate) fn go_to_pool(&mut self) -> std::result::Result<(), Code> {
        self.base_lock(LOCK_EXCLUSIVE)?;
        // Before others see that the database is hot. They look into the pool for a moment, to find that it is not.
        if !self.pool.lock_shared() {
            return Err(ffi::BUSY);
        }
        let is_reserved = self.pool.lock_reserved(self.owner);
        let heated = match is_reserved && self.pool.lock_exclusive(self.owner) {
            true => self.pool.heat(&self.base).map_err(|error| report(&error)),
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
        let moved = if self.journal.is_empty() { Ok(()) } else { self.journal.spill(&path, &self.database) };
        moved.map_err(SqliteError::io("write", &path)).map_err(|error| report(&error))
    }

    /// Before the log of WAL mode is opened: the database leaves the pool, if it is there.
    pub(crate) fn go_over(&mut self) -> std::result::Result<(), Code> {
        if !self.in_pool {
            return Ok(());
        }
        self.leave_pool()?;
        host::log(ffi::NOTICE, &format!("{} goes over to WAL mode, and is SQLite's", self.database.display()));
        Ok(())
    }

    /// The database leaves the pool until somebody writes again: its file is complete, and any program reads or copies it.
    /// `Busy` where somebody reads or writes, this connection included.
    pub(crate) fn release(&mut self) -> Result<()> {
        let busy = || SqliteError::Busy { path: self.database.clone() };
        if self.level > LOCK_NONE || !self.pool.is_ours() {
            return Err(busy());
        }
        if !self.pool.is_hot() {
            return Ok(());
        }
        if !self.pool.lock_shared() {
            return Err(busy());
        }
        self.in_pool = true;
        let left = match self.pool.is_hot() {
            true => self.try_to_leave(),
            false => Ok(()),
        };
        if self.in_pool {
            self.pool.unlock_shared();
            self.in_pool = false;
        }
        left
    }

    fn leave_pool(&mut self) -> std::result::Result<(), Code> {
        self.try_to_leave().map_err(|error| report(&error))
    }

    /// For one with SHARED or more in the pool, who has as much at SQLite afterwards, and nothing in the pool.
    fn try_to_leave(&mut self) -> Result<()> {
        let busy = || SqliteError::Busy { path: self.database.clone() };
        // A journal that is to be rolled back is rolled back first.
        if !self.pool.is_ours() || self.has_disk_journal() {
            return Err(busy());
        }
        let was_writer = self.is_writer;
        if self.level < LOCK_EXCLUSIVE {
            self.close_door()?;
        }
        if let Err(error) = self.lock_base().and_then(|()| self.pool.hand_over()) {
            let _ = self.base.unlock_to(LOCK_NONE);
            if !was_writer {
                self.pool.unlock_writer();
                self.is_writer = false;
            }
            return Err(error);
        }
        self.pool.unlock_writer();
        self.pool.unlock_shared();
        (self.is_writer, self.in_pool) = (false, false);
        self.base.unlock_to(self.level)
    }

    /// Whether somebody began to hand the database over and could not end it.
    pub(crate) fn is_leaving(&self) -> bool {
        self.in_pool && self.pool.image.header().closing.load(Acquire) != 0
    }

    /// EXCLUSIVE of the pool, for one who has SHARED.
    fn close_door(&mut self) -> Result<()> {
        let busy = || SqliteError::Busy { path: self.database.clone() };
        if !self.pool.lock_reserved(self.owner) {
            return Err(busy());
        }
        self.is_writer = true;
        let started = Instant::now();
        while !self.pool.lock_exclusive(self.owner) {
            if started.elapsed() > PATIENCE {
                self.pool.unlock_writer();
                self.is_writer = false;
                return Err(busy());
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// SQLite's EXCLUSIVE. Whoever has a lock there now only looked whether the database is in the pool.
    fn lock_base(&self) -> Result<()> {
        let started = Instant::now();
        loop {
            match self.base.lock_exclusive() {
                Err(SqliteError::Busy { .. }) if started.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
                locked => return locked,
            }
        }
    }
}
