//! The five levels of SQLite's locks, as a connection takes and gives them: in the pool, or at the
//! base VFS while the database is cold.
//!
//! Invariant: who waits for RESERVED has nothing else of this database; see `patience.rs`.

#![forbid(unsafe_code)]

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Instant;

use crate::connection::{Code, Connection, report};
use crate::ffi::{self, LOCK_EXCLUSIVE, LOCK_NONE, LOCK_RESERVED, LOCK_SHARED};
use crate::locking::Entered;
use crate::patience::{TRIED_AGAIN_WITHIN, note_refusal};

impl Connection {
    #[inline]
    pub(crate) fn lock(&mut self, wanted: c_int) -> Result<(), Code> {
        if !self.pool.is_ours() {
            return Err(ffi::MISUSE);
        }
        if self.pool.is_poisoned() {
            report(&self.pool.damaged("its slots lead astray"));
            return Err(ffi::IOERR);
        }
        if wanted <= self.level {
            return Ok(());
        }
        let locked = match wanted {
            LOCK_SHARED => self.lock_shared(),
            LOCK_RESERVED => self.lock_reserved(),
            _ if self.in_pool => self.lock_exclusive(),
            LOCK_EXCLUSIVE if self.is_going => self.go_to_pool(),
            _ => self.base_lock(LOCK_EXCLUSIVE),
        };
        match locked {
            Ok(()) => self.level = wanted,
            Err(ffi::BUSY) if self.is_hot() => {
                note_refusal(Arc::as_ptr(&self.pool).addr(), wanted);
            }
            Err(_) => {}
        }
        locked
    }

    pub(crate) fn base_lock(&self, level: c_int) -> Result<(), Code> {
        self.base.lock(level).map_err(|error| report(&error))
    }

    #[inline]
    fn lock_shared(&mut self) -> Result<(), Code> {
        if self
            .refused_at
            .take()
            .is_some_and(|refused_at| refused_at.elapsed() < TRIED_AGAIN_WITHIN)
        {
            self.is_writer = self.pool.is_hot() && self.pool.claim(self.writer_id);
        }
        let entered = self.enter();
        if !self.in_pool {
            self.drop_claim();
        }
        entered
    }

    /// Gives up RESERVED where SQLite did not ask for it. It held up no commit that SHARED would
    /// not have held up.
    pub(crate) fn drop_claim(&mut self) {
        if self.is_writer && self.level < LOCK_RESERVED {
            self.pool.unlock_writer();
            self.is_writer = false;
        }
    }

    #[inline]
    fn enter(&mut self) -> Result<(), Code> {
        loop {
            match self.pool.enter() {
                Entered::Hot => match self.leave_if_rolled_back() {
                    Ok(false) => {
                        self.in_pool = true;
                        return Ok(());
                    }
                    left => {
                        self.pool.unlock_shared();
                        left?;
                    }
                },
                Entered::Busy => return Err(ffi::BUSY),
                Entered::Cold => {}
            }
            self.base_lock(LOCK_SHARED)?;
            if !self.pool.is_hot() {
                self.in_pool = false;
                return Ok(());
            }
            self.base.unlock_to(LOCK_NONE).map_err(|error| report(&error))?;
        }
    }

    /// Whether the database has left the pool, as its file is others': see `direct.rs`.
    #[inline]
    fn leave_if_rolled_back(&mut self) -> Result<bool, Code> {
        if !self.pool.image.mode().may_have_journal() {
            return Ok(false);
        }
        self.drop_claim();
        self.pool.leave_if_rolled_back(self.writer_id).map_err(|error| report(&error))
    }

    fn lock_reserved(&mut self) -> Result<(), Code> {
        if !self.in_pool {
            // Others may read on until the first page is written.
            self.base_lock(LOCK_RESERVED)?;
            self.is_going = true;
        } else if !self.is_writer && !self.pool.lock_reserved(self.writer_id) {
            self.refused_at = Some(Instant::now());
            return Err(ffi::BUSY);
        } else {
            self.is_writer = true;
            // Behind a refusal SQLite may read on, with what it has in its cache of the pool: the
            // database does not leave that here.
            let allowed = self.pool.end_leaving().and_then(|()| self.refuse_rolled_back(false));
            if let Err(error) = allowed {
                self.drop_claim();
                return Err(report(&error));
            }
        }
        if self.journal.is_on_disk() {
            // Rolled back, and kept open by SQLite for this transaction, whose journal it is not to
            // be.
            self.journal.clear();
        }
        Ok(())
    }

    #[inline]
    fn lock_exclusive(&mut self) -> Result<(), Code> {
        let rolls_back = self.level < LOCK_RESERVED;
        if rolls_back && !self.is_writer {
            if !self.pool.lock_reserved(self.writer_id) {
                return Err(ffi::BUSY);
            }
            self.is_writer = true;
        }
        if !self.pool.lock_exclusive(self.writer_id) {
            return Err(ffi::BUSY);
        }
        if rolls_back
            && self.pool.image.mode().may_have_journal()
            && let Err(error) = self.resume_direct()
        {
            // SQLite's exclusive mode would keep it, and others out.
            self.drop_claim();
            return Err(report(&error));
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn unlock(&mut self, wanted: c_int) -> Result<(), Code> {
        if !self.pool.is_ours() {
            return Ok(());
        }
        if self.in_pool {
            if self.is_writer {
                self.roll_back()?;
                self.pool.unlock_writer();
                self.is_writer = false;
                self.is_stale |= std::mem::take(&mut self.names_super);
            }
            if wanted == LOCK_NONE && self.level > LOCK_NONE {
                self.pool.unlock_shared();
                self.in_pool = false;
                self.level = wanted;
                self.pool.pay(&mut self.owed);
            }
        } else if wanted <= self.level {
            // The base VFS may have PENDING, after it could not get EXCLUSIVE.
            self.is_going = false;
            if wanted == LOCK_NONE && self.has_map && !self.is_wal {
                self.has_map = false;
                self.base.unmap();
            }
            self.base.unlock_to(wanted).map_err(|error| report(&error))?;
        }
        self.level = self.level.min(wanted);
        Ok(())
    }

    pub(crate) fn is_reserved(&self) -> Result<bool, Code> {
        if self.in_pool {
            Ok(self.pool.is_reserved())
        } else {
            self.base.is_reserved().map_err(|error| report(&error))
        }
    }
}
