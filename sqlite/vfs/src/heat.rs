//! A database becomes *hot* with its first write, when its newest state moves to the pool, and cold
//! again with its last close.
//!
//! Invariants:
//! - The redo log is there before the mark is in the database file, and the mark is durable before
//!   the first commit.
//! - While a database becomes hot it is locked by SQLite's own locks, so that no other program
//!   reads or writes it.
//! - The mark is cleared only when the database file is complete and durable; a saved copy and the
//!   log go after it, or the log stays as that of no database; the image goes last.

#![forbid(unsafe_code)]

use crate::base::{Base, database_size, read_mark};
use crate::error::{CREATE, Result, SqliteError};
use crate::ffi;
use crate::image::{BLOCK_BYTES, BadLink, NoSlot};
use crate::log::{Generation, Log, random};
use crate::mark::{self, Stamp};
use crate::owner::elsewhere::refuse_if_elsewhere;
use crate::pool::Pool;
use crate::recovery::clear_mark;
use crate::stub;

impl Pool {
    /// Makes the database hot. The caller has SQLite's EXCLUSIVE through `base`, and that of the
    /// pool. False: it is in WAL mode, and stays cold.
    pub(crate) fn heat(&self, base: &dyn Base) -> Result<bool> {
        let (mode, commits) = (self.image.mode(), self.image.commits());
        let (nonce, path) = (random(), self.log_path());
        match read_mark(base)? {
            (None, true) => return Ok(false),
            (None, false) => {}
            (Some(mark), _) if mark.nonce == mode.nonce() => {
                // A process that was at this died, or could not take the mark back: nothing was
                // committed behind it.
                clear_mark(base, None)?;
                self.forget();
            }
            (Some(mark), _) => {
                let database = (self.database.as_path(), self.identity);
                refuse_if_elsewhere(database, mark, &self.places, &self.owner)?;
                return Err(SqliteError::Replaced {
                    database: self.database.clone(),
                    image: self.image.path().to_owned(),
                });
            }
        }
        let committed = commits.newest_for_writer();
        let generation = Generation { nonce, salt: random(), transaction: committed };
        let stamp = Stamp { nonce, transaction: committed, tag: Some(self.owner.tag()) };
        let size = base.size()?;
        commits.set_size(committed, size);
        let mut page = [0; BLOCK_BYTES];
        let begun = self.take_first_page(base, size, &mut page).and_then(|()| {
            // Last, of what can fail before the mark: no process would ever look at it again.
            match Log::take_over(&path, generation, &self.owner) {
                Ok(Some(log)) => Ok(log),
                // What is in the way of the old one may not be in the way of a new one.
                _ => Log::create(&path, generation, &self.owner)
                    .map_err(SqliteError::io(CREATE, &path)),
            }
        });
        let log = match begun {
            Ok(log) => log,
            Err(error) => {
                self.forget();
                return Err(error);
            }
        };
        *self.log.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(log);
        self.note_new_log(generation);
        mode.set_nonce(nonce);
        let marked = if size == 0 {
            let mut stand_in = [0; mark::STAND_IN_BYTES as usize];
            mark::put(&mut stand_in, stamp);
            base.write(0, &stand_in)
        } else {
            mark::put(&mut page, stamp);
            base.write(0, &page[..mark::HEADER_BYTES])
        };
        if let Err(error) = marked.and_then(|()| base.sync()) {
            self.forget();
            if clear_mark(base, Some(size)).is_ok() {
                let _ = Log::remove(&path);
            } else {
                // The mark is there, perhaps: its log stays, which says that nothing was committed
                // behind it.
                mode.set_nonce(nonce);
            }
            return Err(error);
        }
        self.image.write_back_slot(1);
        mode.prepare_to_heat();
        self.image.write_back_header();
        mode.heat();
        self.image.write_back_header();
        Ok(true)
    }

    /// Reads the first page of a database that has one, and puts it into the pool.
    fn take_first_page(
        &self,
        base: &dyn Base,
        size: u64,
        page: &mut [u8; BLOCK_BYTES],
    ) -> Result<()> {
        if size == 0 {
            return Ok(());
        }
        base.read(0, page)?;
        if !mark::is_database(page) {
            return Err(SqliteError::Base {
                step: "know",
                path: self.database.clone(),
                code: ffi::NOTADB,
            });
        }
        let slot = self.image.take_free().map_err(|error| self.no_slot(error))?;
        let committed = self.image.commits().newest_for_writer();
        let filled =
            self.image.write(slot, 0, page).and_then(|()| self.image.insert(slot, 0, committed));
        filled.map_err(|found| self.astray(found))
    }

    /// Makes the database cold. The caller has passed the gate, and no other process has the
    /// database open.
    /// Its log, which has no name any more, is returned.
    pub(crate) fn cool(&self) -> Result<Option<Log>> {
        if self.has_journal(&self.database)? {
            // A journal of a transaction that outgrew the pool: a process that opens the database
            // next rolls it back.
            return Ok(None);
        }
        let log = self.hand_over(false)?;
        self.reset();
        Ok(log)
    }

    /// Brings in order what a writer left that died with the lock EXCLUSIVE, when no process reads
    /// the map.
    pub(crate) fn settle_dead_writer(&self) -> std::result::Result<(), BadLink> {
        let (mode, commits) = (self.image.mode(), self.image.commits());
        let is_left = mode.is_closing() && matches!(read_mark(self.base()), Ok((None, _)));
        if is_left || matches!(self.is_rolled_back(), Ok(true)) {
            // It was handing the file over, or a program without the VFS has rolled its journal
            // back: the file is complete, and may have been written to since.
            let _ = self.drop_side_files();
            self.forget();
            return Ok(());
        }
        let committed = commits.newest();
        if mode.is_direct() {
            // All that was committed before is in the file; what is there now, its journal says.
            self.image.free_all()?;
            let size = database_size(self.base()).map_err(|_| BadLink)?;
            commits.set_size(committed, size);
            mode.note_journal(true);
            mode.end_direct();
        }
        commits.confirm();
        if let Some(prepared) = commits.prepared() {
            let name = self.image.name();
            if prepared == committed + 1 && stub::is_committed(&name) {
                commits.publish(prepared);
            }
            commits.end_prepared();
            self.image.write_back_header();
            stub::clean_up(&self.database, &name);
        } else {
            // While the file is without its mark, a journal may be that of a process without the
            // VFS.
            let is_ours = mode.is_hot() && matches!(read_mark(self.base()), Ok((Some(_), _)));
            stub::clean_up_stale(&self.database, is_ours);
        }
        self.image.rebuild()?;
        self.image.write_back_header();
        Ok(())
    }

    pub(crate) fn no_slot(&self, error: NoSlot) -> SqliteError {
        match error {
            NoSlot::BadLink => self.astray(BadLink),
            NoSlot::Memory(source) => {
                SqliteError::PoolFull { path: self.image.path().to_owned(), source }
            }
            NoSlot::Limit => SqliteError::PoolFull {
                path: self.image.path().to_owned(),
                source: std::io::Error::new(
                    std::io::ErrorKind::StorageFull,
                    "its limit is reached",
                ),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::WriterId;
    use crate::testing::{attached, first_page, hot};

    /// A database of one page, or of none, whose process died, or failed, before it said that the
    /// database is hot.
    ///
    /// Guarantee: sqlite/killed-holder
    #[test]
    fn dead_marker_prevents_no_writer() {
        for page in [Vec::new(), first_page()] {
            let folder = tempfile::tempdir().unwrap();
            let database = folder.path().join("db");
            std::fs::write(&database, &page).unwrap();
            let pool = attached(folder.path());
            pool.heat(pool.base()).unwrap();
            pool.image.mode().cool();
            assert!(read_mark(pool.base()).unwrap().0.is_some());
            pool.heat(pool.base()).unwrap();
            assert_eq!(pool.size(), page.len() as u64);
            pool.cool().unwrap();
            assert_eq!(std::fs::read(&database).unwrap(), page);
            // But that of a copy is not believed: what was committed behind it is not here.
            pool.heat(pool.base()).unwrap();
            let copy = std::fs::read(&database).unwrap();
            pool.cool().unwrap();
            std::fs::write(&database, copy).unwrap();
            let refused = pool.heat(pool.base());
            assert!(matches!(refused, Err(SqliteError::Replaced { .. })), "{refused:?}");
        }
    }

    /// A journal that cannot be looked at may be one to roll back: the database does not leave the
    /// pool beside it.
    ///
    /// Guarantee: sqlite/outgrown-pool
    #[test]
    fn database_stays_in_the_pool_beside_a_hidden_journal() {
        let folder = tempfile::tempdir().unwrap();
        let pool = hot(folder.path(), 3);
        let journal = stub::journal_path(&pool.database);
        // A symbolic link to itself: the kernel answers ELOOP.
        std::os::unix::fs::symlink(&journal, &journal).unwrap();
        pool.image.mode().note_journal(true);
        let is_told = |refused| matches!(refused, Some(SqliteError::Io { .. }));
        assert!(is_told(pool.cool().err()));
        let released = pool.release(pool.base(), WriterId::new(pool.number, 1));
        assert!(is_told(released.err()));
        assert!(pool.is_hot() && read_mark(pool.base()).unwrap().0.is_some());
        std::fs::remove_file(&journal).unwrap();
        pool.cool().unwrap();
        assert!(!pool.is_hot() && read_mark(pool.base()).unwrap().0.is_none());
    }
}
