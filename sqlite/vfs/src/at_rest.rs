//! A redo log that a close leaves beside its database, for the next session: it is there, durable
//! with its name, and has space. To make one, write it ahead and remove it again is most of what a
//! session of a few commits has a journalled file system write.
//!
//! Its header says then that it is of no database, so what it holds counts for nothing, whatever
//! becomes of the file: also where a copy is put back that was made while the file bore a mark. The
//! next session begins the log again, with a nonce of its own, before it marks the file. A log whose
//! header does not say so was left by a death: it may be that of a database that was moved away.
//!
//! Invariants:
//! - The header says so only after the mark is gone, durably. No close waits for that: after a power
//!   cut the session's header may be there, and then the next session makes a new log.
//! - A log that a process has open, one that others may read, or that has another name, is not
//!   written to.
//! - The name of the log is durable before the mark is.

#![forbid(unsafe_code)]

use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use holdfast_sys::file::{effective_user, is_private, length, sync_directory};

use crate::base::{Base, read_mark};
use crate::connection::report;
use crate::error::SqliteError;
use crate::file_names::{SeenFile, folder_of};
use crate::file_size;
use crate::log::{FOLDER_AT, Generation, Log, log_path};
use crate::owner::Owner;
use crate::pool::Pool;

/// A longer one goes with the close.
const BYTES_MAX: u64 = 512 << 10;
/// In the mode of a file: its group, or everybody, may write to it.
const OTHERS_WRITE: u32 = 0o022;
/// In that of a folder.
const STICKY: u32 = 0o1000;

impl Pool {
    /// Leaves the log of a database without a mark to the next session; false where it must go. A
    /// database with hard links may be opened by another of its names then. Another user who may write
    /// to the database could not open this log, and in a folder with the sticky bit not replace it.
    pub(crate) fn leave_log(&self, log: &Log) -> bool {
        let is_short = length(log.file()).is_ok_and(|bytes| bytes <= BYTES_MAX);
        let is_own = self.database.metadata().is_ok_and(|found| {
            found.nlink() == 1
                && found.uid() == effective_user()
                && found.mode() & OTHERS_WRITE == 0
        });
        let folder = folder_of(log.path()).metadata();
        let is_sticky = folder.map_or(true, |found| found.mode() & STICKY != 0);
        self.settings.keeps_side_file()
            && is_short
            && is_own
            && !is_sticky
            && matches!(is_private(log.file()), Ok(true))
            && log.rest().is_ok()
    }
}

impl Log {
    /// Takes over the log that a close left, for a database that bears no mark. `None` where it is to
    /// be made anew.
    pub(crate) fn take_over(
        path: &Path,
        generation: Generation,
        owner: &Owner,
    ) -> io::Result<Option<Log>> {
        let Some(mut log) = Log::look(path)? else { return Ok(None) };
        let is_left = matches!(log.header()?, Some((found, true)) if found.is_at_rest());
        if !is_left || !is_private(log.file())? || !log.is_alone()? {
            return Ok(None);
        }
        log.show();
        let folder = SeenFile::of(&folder_of(path).metadata()?);
        let sum = folder.sum_with(log.id());
        if !folder.is_settled() || log.read_folder_sum()? != sum {
            sync_directory(folder_of(path))?;
        }
        log.folder_sum = if folder.is_settled() { sum } else { 0 };
        log.restart(generation, owner)?;
        Ok(Some(log))
    }

    /// Of the folder, as it was when the log's name was durable; 0: that is not known.
    fn read_folder_sum(&self) -> io::Result<u64> {
        let mut sum = [0; 8];
        self.file().read_exact_at(&mut sum, FOLDER_AT as u64)?;
        Ok(u64::from_le_bytes(sum))
    }
}

/// For who releases a database: removes the log that a close left, and what is ahead in the file.
/// Both stay where a program reads or writes the database, or has that log open for another one.
pub(crate) fn release(database: &Path, base: &dyn Base) {
    remove_and(database, base, file_size::trim);
}

/// For a user who wants no log to stay: removes it, and leaves the file as it is. See [`release`].
pub(crate) fn remove(database: &Path, base: &dyn Base) {
    remove_and(database, base, |_| ());
}

/// Where the log cannot be removed, the program's error log says so: nothing is in the way of a copy
/// then either.
fn remove_and(database: &Path, base: &dyn Base, settle: impl FnOnce(&dyn Base)) {
    let path = log_path(database);
    let left = match Log::look(&path) {
        Ok(Some(left)) => left,
        Ok(None) => return,
        Err(error) => return report_left(&path, error),
    };
    // A log of another kind may be that of a database that was moved away.
    let is_left = || matches!(left.header(), Ok(Some((found, _))) if found.is_at_rest());
    if !is_left() || base.lock_exclusive().is_err() {
        return;
    }
    let is_unmarked = matches!(read_mark(base), Ok((None, _)));
    if is_unmarked && matches!(left.is_alone(), Ok(true)) && is_left() {
        settle(base);
        Log::remove(&path).unwrap_or_else(|error| report_left(&path, error));
    }
    let _ = base.unlock();
}

fn report_left(path: &Path, source: io::Error) {
    report(&SqliteError::Io { step: "remove", path: path.to_owned(), source });
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use std::fs::{Permissions, hard_link, metadata, read, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::Arc;

    use super::*;
    use crate::attach::attach_at;
    use crate::base::OwnFile;
    use crate::identity::Identity;
    use crate::image::BLOCK_BYTES;
    use crate::mark;
    use crate::testing::{
        Dying, Steps, attached, attached_over, commit, hot, lose, places, recovered,
    };

    fn fresh() -> tempfile::TempDir {
        tempfile::tempdir_in("/dev/shm").unwrap()
    }

    /// A session of one commit, which is flushed.
    fn session(pool: &Pool, fill: u8) {
        commit(pool, &[(1, fill), (2, fill)], 4).unwrap();
        pool.flush_and_tidy().unwrap();
    }

    fn fills(bytes: &[u8]) -> Vec<u8> {
        bytes.chunks(BLOCK_BYTES).map(|block| block[1]).collect()
    }

    /// The next session writes to the same file. Nothing of what an earlier one left there is
    /// applied, when the database was changed by others in between and its pool is lost.
    ///
    /// Guarantee: sqlite/side-file
    /// Guarantee: sqlite/lost-pool
    #[test]
    fn log_is_left_to_the_next_session_and_counts_for_nothing() {
        for flushes in [false, true] {
            let folder = fresh();
            let pool = hot(folder.path(), 4);
            let (database, path) = (pool.database.clone(), pool.log_path());
            session(&pool, 2);
            drop(pool.detach().unwrap());
            let inode = || metadata(&path).unwrap().ino();
            let left = inode();
            let first = read(&database).unwrap()[..BLOCK_BYTES].to_vec();
            write(&database, [first, vec![7; 3 * BLOCK_BYTES]].concat()).unwrap();
            let pool = attached(folder.path());
            assert!(!pool.is_hot() && pool.heat(pool.base()).unwrap());
            assert_eq!(inode(), left);
            commit(&pool, &[(3, 9)], 4).unwrap();
            if flushes {
                pool.flush_and_tidy().unwrap();
            }
            lose(pool);
            let found = fills(&recovered(folder.path()).1);
            assert_eq!(found[1..], [7, 7, if flushes { 9 } else { 7 }]);
        }
    }

    /// A copy of the file that was made in a session, with its mark, is refused when it is put back
    /// after the session: the log of that time is no more, also where it had no record.
    ///
    /// Guarantee: sqlite/backups
    /// Guarantee: sqlite/side-file
    #[test]
    fn copy_of_a_session_that_ended_is_refused() {
        for flushes in [false, true] {
            let folder = fresh();
            let pool = hot(folder.path(), 4);
            let (database, path) = (pool.database.clone(), pool.log_path());
            let copy = read(&database).unwrap();
            assert!(mark::find(&copy).is_some());
            if flushes {
                session(&pool, 2);
            }
            drop(pool.detach().unwrap());
            assert!(path.exists());
            write(&database, &copy).unwrap();
            let base = Box::new(OwnFile::open(&database).unwrap());
            let identity = Identity::of(&database).unwrap();
            let opened = attach_at(&places(folder.path()), (&database, identity), base, None);
            let error = opened.map(drop).unwrap_err();
            assert!(matches!(error, SqliteError::LogMissing { .. }), "{error}");
            assert!(read(&database).unwrap() == copy);
        }
    }

    /// A database whose process died is moved to where another one was, whose log is there still:
    /// it goes on from the pool.
    ///
    /// Guarantee: sqlite/renamed
    #[test]
    fn moved_database_is_not_held_up_by_a_log_at_rest() {
        let folder = fresh();
        let pool = hot(folder.path(), 4);
        let (database, path) = (pool.database.clone(), pool.log_path());
        session(&pool, 2);
        drop(pool.detach().unwrap());
        let log = read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let pool = hot(folder.path(), 4);
        commit(&pool, &[(1, 9)], 4).unwrap();
        drop(pool);
        // As after a rename over it: this database, and the other one's log.
        write(&path, &log).unwrap();
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let pool = attached(folder.path());
        assert!(pool.is_hot());
        pool.flush_and_tidy().unwrap();
        drop(pool.detach().unwrap());
        assert_eq!(fills(&read(&database).unwrap())[1..], [9, 1, 1]);
    }

    /// A machine goes at each step in which a session takes such a log over and marks the file: the
    /// file is as it was.
    ///
    /// Guarantee: sqlite/side-file
    #[test]
    fn taking_a_log_over_is_whole_or_not_at_all() {
        let mut marked = 0;
        for left in 0.. {
            let folder = fresh();
            let pool = hot(folder.path(), 4);
            let database = pool.database.clone();
            session(&pool, 2);
            drop(pool.detach().unwrap());
            let before = read(&database).unwrap();
            let steps = Steps::endless();
            *steps.durable.lock().unwrap() = before.clone();
            let base = Box::new(Dying(OwnFile::open(&database).unwrap(), Arc::clone(&steps)));
            let pool = attached_over(folder.path(), base);
            steps.set(left, usize::MAX);
            let is_hot = pool.heat(pool.base()).is_ok();
            let durable = steps.durable.lock().unwrap().clone();
            let log = read(log_path(&database)).ok();
            lose(pool);
            for file in [read(&database).unwrap(), durable] {
                write(&database, &file).unwrap();
                log.iter().for_each(|log| write(log_path(&database), log).unwrap());
                let found = match mark::find(&file).is_some() {
                    true => recovered(folder.path()).1,
                    false => file,
                };
                assert!(found == before, "{left} steps");
            }
            if is_hot {
                break;
            }
            marked += 1;
        }
        assert!(marked > 1, "it took {marked} steps");
    }

    /// A log that is not this session's to write to stays as it is, and another one takes its name.
    ///
    /// Guarantee: sqlite/side-file
    #[test]
    fn log_of_others_is_not_written_to() {
        for case in ["open", "linked", "shown", "symbolic", "foreign"] {
            let folder = fresh();
            let pool = hot(folder.path(), 4);
            let (path, other) = (pool.log_path(), folder.path().join("other"));
            session(&pool, 2);
            drop(pool.detach().unwrap());
            let open = match case {
                // A database that was moved away has it.
                "open" => Log::open(&path).unwrap(),
                "foreign" => {
                    write(&path, b"mine").unwrap();
                    Log::look(&path).unwrap()
                }
                _ => Log::look(&path).unwrap(),
            };
            let open = open.unwrap();
            match case {
                "linked" => hard_link(&path, &other).unwrap(),
                "shown" => set_permissions(&path, Permissions::from_mode(0o640)).unwrap(),
                "symbolic" => {
                    std::fs::rename(&path, &other).unwrap();
                    symlink(&other, &path).unwrap();
                }
                _ => {}
            }
            let bytes = |log: &Log| {
                let mut bytes = vec![0; length(log.file()).unwrap() as usize];
                log.file().read_exact_at(&mut bytes, 0).unwrap();
                bytes
            };
            let before = bytes(&open);
            let pool = attached(folder.path());
            assert!(pool.heat(pool.base()).unwrap());
            session(&pool, 3);
            assert!(bytes(&open) == before, "{case}");
            assert_ne!(metadata(&path).unwrap().ino(), open.file().metadata().unwrap().ino());
            lose(pool);
            assert_eq!(fills(&recovered(folder.path()).1)[1..], [3, 3, 1], "{case}");
        }
    }

    /// Long logs, those that may be in the way of others, and all where that is asked for, go with
    /// the close.
    ///
    /// Guarantee: sqlite/side-file
    #[test]
    fn log_goes_with_the_close_where_it_may_not_stay() {
        for case in ["short", "long", "linked", "shared", "sticky", "unwanted"] {
            let folder = fresh();
            let pool = hot(folder.path(), 4);
            let (database, path) = (pool.database.clone(), pool.log_path());
            session(&pool, 2);
            match case {
                "long" => pool.log.lock().unwrap().as_ref().unwrap().file().set_len(BYTES_MAX + 1),
                "linked" => hard_link(&database, folder.path().join("other")),
                "shared" => set_permissions(&database, Permissions::from_mode(0o664)),
                "sticky" => set_permissions(folder.path(), Permissions::from_mode(0o1700)),
                "unwanted" => {
                    pool.settings.set("side_file", "remove").unwrap();
                    Ok(())
                }
                _ => Ok(()),
            }
            .unwrap();
            drop(pool.detach().unwrap());
            assert_eq!(path.exists(), case == "short", "{case}");
            assert!(read_mark(&OwnFile::open(&database).unwrap()).unwrap().0.is_none());
            if case == "short" {
                // One that no close left stays.
                let left = read(&path).unwrap();
                let other = tempfile::tempdir_in("/dev/shm").unwrap();
                write(&path, read(hot(other.path(), 4).log_path()).unwrap()).unwrap();
                remove(&database, &OwnFile::open(&database).unwrap());
                assert!(path.exists(), "a session's log is removed");
                write(&path, left).unwrap();
                remove(&database, &OwnFile::open(&database).unwrap());
                assert!(!path.exists(), "a released database is alone");
            }
        }
    }
}
