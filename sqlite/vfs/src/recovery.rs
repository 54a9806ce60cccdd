//! A database file whose image is lost: it is brought to the newest state that there is, which is
//! that of the redo log, or of a copy that the keeper saved when the log was not as far.
//!
//! Invariants:
//! - Log and copy stay until the database file has what they hold, durable, and without its mark: a
//!   process that dies on the way leaves what makes the next one do the same.
//! - What does not fit is not applied, not in part either, and stays where it is.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::Path;

use crate::apply::apply;
use crate::base::Base;
use crate::base::read_mark;
use crate::copy::{self, Copy, Fit};
use crate::error::{Result, SqliteError, is_forbidden};
use crate::ffi;
use crate::host;
use crate::identity::{Identity, has_several_names};
use crate::log::{Contents, Generation, Log, log_path};
use crate::mark::{self, Mark, Stamp};

/// Where the newest state came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// From the log, or the database file had it.
    Log,
    /// From a copy that the keeper saved.
    Copy,
}

/// A database file, and who it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lost<'a> {
    pub(crate) base: &'a dyn Base,
    pub(crate) database: &'a Path,
    pub(crate) identity: Identity,
    pub(crate) mark: Mark,
    /// The folder of saved copies.
    pub(crate) copies: &'a Path,
}

/// The log of a database, read.
struct Known {
    log: Log,
    generation: Generation,
    contents: Contents,
}

impl Known {
    /// The transaction as of which database file and log are together.
    fn reached(&self) -> u64 {
        self.contents.last.map_or(self.generation.transaction, |record| record.transaction)
    }
}

impl Lost<'_> {
    /// Brings the file in order, when it is ours alone, and tells the user what was lost.
    pub(crate) fn recover(self) -> Result<Source> {
        self.base.lock_exclusive()?;
        let recovered = self.recover_locked();
        self.base.unlock()?;
        let source = recovered?;
        let what = match source {
            Source::Log => "the database is as of its last flush",
            Source::Copy => "the database is as the keeper saved it",
        };
        let text = format!(
            "the pool of {} is gone (the machine was started anew, or the pool was emptied): {what}, and what was committed \
             after that is lost",
            self.database.display()
        );
        host::log(ffi::NOTICE, &text);
        Ok(source)
    }

    /// The same for a process that has locked it already.
    pub(crate) fn recover_locked(self) -> Result<Source> {
        let Lost { base, mark, .. } = self;
        // A process may have been faster.
        if read_mark(base)?.0 != Some(mark) {
            return Ok(Source::Log);
        }
        let known = self.read_log()?;
        if !known.log.is_alone().map_err(SqliteError::io("lock", known.log.path()))? {
            // Its image is in another pool: of another user, another home, another container.
            return Err(SqliteError::Busy { path: self.database.to_owned() });
        }
        let copy = self.newer_copy(&known);
        // In the middle of a checkpoint, as it were: the log stays as it is.
        let stamp = Stamp { nonce: mark.nonce, transaction: known.reached(), tag: mark.tag };
        let mut size = None;
        if let Some(last) = known.contents.last {
            apply(base, &known.contents.blocks(&known.log), stamp)?;
            size = Some(last.size);
        }
        if let Some((copy, places)) = &copy {
            apply(base, &copy.blocks(places), stamp)?;
            size = Some(copy.origin.size);
        }
        clear_mark(base, size)?;
        if copy.is_some() {
            copy::remove(self.copies, mark.nonce);
        }
        let path = log_path(self.database);
        Log::remove(&path).map_err(SqliteError::io("remove", &path))?;
        Ok(if copy.is_some() { Source::Copy } else { Source::Log })
    }

    /// Whether a recovery would go on from a saved copy. Nothing is changed.
    ///
    /// # Errors
    /// Those with which a recovery would fail.
    pub(crate) fn look(self) -> Result<bool> {
        let known = self.read_log()?;
        match known.log.is_in_use().map_err(SqliteError::io("probe", known.log.path()))? {
            true => Err(SqliteError::Busy { path: self.database.to_owned() }),
            false => Ok(self.newer_copy(&known).is_some()),
        }
    }

    fn read_log(self) -> Result<Known> {
        let path = log_path(self.database);
        let foreign = |what| SqliteError::LogForeign {
            log: path.clone(),
            database: self.database.to_owned(),
            what,
        };
        let log = match Log::look(&path) {
            // It may be looked at all the same.
            Err(error) if is_forbidden(&error) => Log::read_only(&path),
            log => log,
        };
        let log = log.map_err(SqliteError::io("open", &path))?;
        let missing = || {
            let (database, log) = (self.database.to_owned(), path.clone());
            match has_several_names(self.database) {
                Ok(true) => SqliteError::LinkedLog { database, log },
                _ => SqliteError::LogMissing { database, log },
            }
        };
        let mut log = log.ok_or_else(missing)?;
        if log.is_newer().map_err(SqliteError::io("read", &path))? {
            return Err(SqliteError::Newer {
                file: path.clone(),
                database: self.database.to_owned(),
            });
        }
        let generation = log.generation().map_err(SqliteError::io("read", &path))?;
        let generation = generation.ok_or_else(|| foreign("its header is not whole"))?;
        if generation.is_at_rest() {
            return Err(missing());
        }
        if generation.nonce != self.mark.nonce {
            return Err(foreign("it belongs to another database"));
        }
        let contents =
            log.contents(generation.salt, u64::MAX).map_err(SqliteError::io("read", &path))?;
        let known = Known { log, generation, contents };
        if !self.mark.is_of(generation.transaction..=known.reached()) {
            return Err(foreign(
                "it is of another time than the file: one of them was put back from a backup",
            ));
        }
        Ok(known)
    }

    /// A copy that has what file and log lack. One that does not fit, or is damaged, stays, and the
    /// user is told.
    fn newer_copy(self, known: &Known) -> Option<(Copy, BTreeMap<u32, u64>)> {
        let path = copy::path_of(self.copies, self.mark.nonce);
        let tell = |what: &str| {
            let (copy, database) = (path.display(), self.database.display());
            host::log(
                ffi::NOTICE,
                &format!("{copy}, which a keeper saved, is not applied to {database}: {what}"),
            );
            None
        };
        let copy = match Copy::open(self.copies, self.mark.nonce) {
            Ok(copy) => copy?,
            Err(error) => return tell(&format!("it cannot be read ({error})")),
        };
        match copy.fits(self.identity, known.reached()) {
            Fit::Older => None,
            Fit::OtherFile => {
                let of = copy.origin.database.display();
                tell(&format!(
                    "it is of {of}, and this is a copy of that, or was moved here from another disk"
                ))
            }
            Fit::NoBase => tell(
                "database and redo log are older than what it was made on: they were put back from a backup",
            ),
            Fit::Newer => match copy.places() {
                Ok(places) => Some((copy, places)),
                Err(error) => tell(&format!("it is damaged ({error})")),
            },
        }
    }
}

/// Takes the mark out of a complete database file, whose size may be known.
pub(crate) fn clear_mark(base: &dyn Base, size: Option<u64>) -> Result<()> {
    let mut header = [0; mark::HEADER_BYTES];
    base.read(0, &mut header)?;
    let Some(found) = mark::find(&header) else { return Ok(()) };
    if size == Some(0) || found.was_empty && size.is_none() {
        base.truncate(0)?;
    } else {
        mark::take(&mut header);
        base.write(0, &header)?;
    }
    base.sync()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use crate::base::OwnFile;
    use crate::databases::Databases;
    use crate::image::BLOCK_BYTES;
    use crate::saving::Rescue;
    use crate::testing::{commit, first_page, hot, lose, page, places};

    /// What a disk does: a change is there at once, and durable with the next sync.
    #[derive(Debug, Clone)]
    enum Change {
        Write(u64, Vec<u8>),
        Truncate(u64),
    }

    #[derive(Debug)]
    struct State {
        now: Vec<u8>,
        durable: Vec<u8>,
        pending: Vec<Change>,
        /// Steps until the machine goes.
        left: u32,
    }

    #[derive(Debug)]
    struct Disk(Mutex<State>);

    fn change(bytes: &mut Vec<u8>, change: &Change) {
        match change {
            Change::Write(offset, source) => {
                let end = *offset as usize + source.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[*offset as usize..end].copy_from_slice(source);
            }
            Change::Truncate(size) => bytes.resize(*size as usize, 0),
        }
    }

    impl Disk {
        fn new(bytes: &[u8], left: u32) -> Disk {
            let (now, durable) = (bytes.to_vec(), bytes.to_vec());
            Disk(Mutex::new(State { now, durable, pending: Vec::new(), left }))
        }

        fn state(&self) -> MutexGuard<'_, State> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// One step more, if the machine is still there.
        fn step(&self) -> Result<MutexGuard<'_, State>> {
            let mut state = self.state();
            if state.left == 0 {
                return Err(SqliteError::Busy { path: "the machine has gone".into() });
            }
            state.left -= 1;
            Ok(state)
        }

        /// The file as the next boot finds it, when of what was not synced this much got through.
        fn after(&self, survives: impl Fn(usize, usize) -> bool) -> Vec<u8> {
            let state = self.state();
            let mut bytes = state.durable.clone();
            let count = state.pending.len();
            for (number, pending) in state.pending.iter().enumerate() {
                if survives(number, count) {
                    change(&mut bytes, pending);
                }
            }
            bytes
        }
    }

    impl Base for Disk {
        fn read(&self, offset: u64, target: &mut [u8]) -> Result<bool> {
            let state = self.state();
            let there = state.now.get(offset as usize..).unwrap_or_default();
            let bytes = there.len().min(target.len());
            target[..bytes].copy_from_slice(&there[..bytes]);
            target[bytes..].fill(0);
            Ok(bytes == target.len())
        }

        fn write(&self, offset: u64, source: &[u8]) -> Result<()> {
            let mut state = self.step()?;
            let written = Change::Write(offset, source.to_vec());
            change(&mut state.now, &written);
            state.pending.push(written);
            Ok(())
        }

        fn size(&self) -> Result<u64> {
            Ok(self.state().now.len() as u64)
        }

        fn truncate(&self, size: u64) -> Result<()> {
            let mut state = self.step()?;
            change(&mut state.now, &Change::Truncate(size));
            state.pending.push(Change::Truncate(size));
            Ok(())
        }

        fn sync(&self) -> Result<()> {
            let mut state = self.step()?;
            state.durable = state.now.clone();
            state.pending.clear();
            Ok(())
        }

        fn lock_exclusive(&self) -> Result<()> {
            Ok(())
        }

        fn unlock(&self) -> Result<()> {
            Ok(())
        }

        fn is_being_written(&self) -> Result<bool> {
            Ok(false)
        }
    }

    /// By another name of a database whose pool is lost there is no log: nothing is dropped, and the
    /// error does not call it a copy.
    ///
    /// Guarantee: sqlite/hard-links
    #[test]
    fn other_name_of_a_lost_pool_is_told_of_links() {
        let folder = tempfile::tempdir().unwrap();
        let pool = hot(folder.path(), 3);
        let (database, other) = (pool.database.clone(), folder.path().join("other"));
        commit(&pool, &[(1, 2)], 3).unwrap();
        pool.flush_and_tidy().unwrap();
        std::fs::hard_link(&database, &other).unwrap();
        lose(pool);
        let copies = Databases::of(&places(folder.path())).copies();
        let recovered = |database: &Path| {
            let base = OwnFile::open(database).unwrap();
            let (identity, mark) = (Identity::of(database).unwrap(), read_mark(&base).unwrap().0);
            let mark = mark.unwrap();
            Lost { base: &base, database, identity, mark, copies: &copies }.recover_locked()
        };
        let refused = recovered(&other);
        assert!(matches!(refused, Err(SqliteError::LinkedLog { .. })), "{refused:?}");
        assert_eq!(recovered(&database).unwrap(), Source::Log);
        assert_eq!(std::fs::read(&other).unwrap(), [first_page(), page(2), page(1)].concat());
    }

    /// Takes over a copy on a machine that goes in each step of it, with all, none, or only the
    /// last of what was not synced.
    ///
    /// Guarantee: sqlite/taking-over
    #[test]
    fn interrupted_copy_recovery_is_repeated_without_loss() {
        let folder = tempfile::tempdir().unwrap();
        let pool = hot(folder.path(), 4);
        let database = pool.database.clone();
        let identity = Identity::of(&database).unwrap();
        // In the file; in the log; in the image only. The database becomes larger, and then smaller
        // again.
        commit(&pool, &[(1, 2), (2, 2)], 4).unwrap();
        pool.checkpoint().unwrap();
        commit(&pool, &[(1, 3), (4, 3), (6, 3)], 7).unwrap();
        pool.flush_and_tidy().unwrap();
        commit(&pool, &[(2, 4), (4, 4)], 5).unwrap();
        let expected = [first_page(), page(3), page(4), page(1), page(4)].concat();
        let databases = Databases::of(&places(folder.path()));
        let found = databases.list().unwrap().remove(0);
        assert_eq!(
            databases.save(&found).unwrap(),
            Rescue::Written { bytes: 2 * BLOCK_BYTES as u64 }
        );
        lose(pool);
        let copies = databases.copies();
        let (marked, mark) = {
            let base = OwnFile::open(&database).unwrap();
            (std::fs::read(&database).unwrap(), read_mark(&base).unwrap().0.unwrap())
        };
        let paths: [PathBuf; 2] = [log_path(&database), copy::path_of(&copies, mark.nonce)];
        let files = paths.clone().map(|path| std::fs::read(path).unwrap());
        let mut steps = 0;
        loop {
            let mut is_over = true;
            for survivors in 0..3 {
                for (path, bytes) in paths.iter().zip(&files) {
                    std::fs::write(path, bytes).unwrap();
                }
                let disk = Disk::new(&marked, steps);
                let lost = |base, mark| Lost {
                    base,
                    database: &database,
                    identity,
                    mark,
                    copies: &copies,
                };
                let first = lost(&disk, mark).recover_locked();
                is_over &= first.is_ok();
                let bytes = disk.after(|number, count| match survivors {
                    0 => true,
                    1 => false,
                    _ => number + 1 == count,
                });
                let disk = Disk::new(&bytes, u32::MAX);
                let again = read_mark(&disk).unwrap().0;
                if let Some(mark) = again {
                    assert_eq!(
                        lost(&disk, mark).recover_locked().unwrap(),
                        Source::Copy,
                        "{steps} {survivors}"
                    );
                    assert!(paths.iter().all(|path| !path.exists()), "left behind");
                }
                assert!(disk.state().now == expected, "step {steps}, survivors {survivors}");
            }
            if is_over {
                break;
            }
            steps += 1;
        }
        assert!(steps > 10, "{steps} steps are not all");
    }
}
