//! The errors of the VFS, and the text that says what to do about each.

#![forbid(unsafe_code)]

use std::io;
use std::path::{Path, PathBuf};

use crate::ffi;
use crate::owner::{Owner, Whereabouts, describe};

/// Why an operation on a database failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqliteError {
    /// The kernel refused.
    #[error("cannot {step} {}: {source}; mend that and try again, nothing that was committed is lost", path.display())]
    Io {
        /// The step, as a verb.
        step: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// No directory for the pool.
    #[error("no pool for databases: {0}")]
    Places(#[from] holdfast_region::PlaceError),
    /// A parameter, or a variable of the environment, that is unknown or has a value that is none.
    #[error("{} is not opened: {wrong}", path.display())]
    Parameter {
        /// The database.
        path: PathBuf,
        /// What is wrong, and what would be right.
        wrong: String,
    },
    /// Another process has the database.
    #[error("{} is in use by another process; try again when it is done", path.display())]
    Busy {
        /// The database.
        path: PathBuf,
    },
    /// The image in the pool is no image, or contradicts itself.
    #[error(
        "the pool image {} of {} is damaged ({what}); it may hold the newest commits, so keep a copy of it; \
         `holdfast sqlite recover --discard {1}` takes the database as of its last flush",
        image.display(), database.display()
    )]
    Damaged {
        /// The image.
        image: PathBuf,
        /// The database.
        database: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// The database says that its newest state is elsewhere, and there is neither image nor redo
    /// log.
    #[error(
        "{} was in use with its newest pages in a pool and in the redo log {}, and neither is here (is it a copy?); put \
         the log back beside it, or take the file as it is with `holdfast sqlite recover --discard {0}`",
        database.display(), log.display()
    )]
    LogMissing {
        /// The database.
        database: PathBuf,
        /// Where its log should be.
        log: PathBuf,
    },
    /// What has the newest commits was written by a newer version, whose format this one does not
    /// know.
    #[error(
        "{} has the newest commits of {} and was written by a newer version of holdfast; open the database with that one. \
         Nothing was changed", file.display(), database.display()
    )]
    Newer {
        /// The image, or the redo log.
        file: PathBuf,
        /// The database.
        database: PathBuf,
    },
    /// The log is of another database or is damaged.
    #[error(
        "the redo log {} is not of {} or is damaged ({what}); nothing was changed. Put the right one back, or take the \
         database as of its last checkpoint with `holdfast sqlite recover --discard {1}`",
        log.display(), database.display()
    )]
    LogForeign {
        /// The log.
        log: PathBuf,
        /// The database.
        database: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// The database file was replaced while its newest pages are in the pool.
    #[error(
        "{} was overwritten while commits were in the pool image {}; `holdfast sqlite recover --discard {0}` keeps the \
         file and drops the pool's commits",
        database.display(), image.display()
    )]
    Replaced {
        /// The database.
        database: PathBuf,
        /// The image.
        image: PathBuf,
    },
    /// The newest commits are, or may be, in a pool that is not the one in use: of another home,
    /// another `HOLDFAST_POOL`, another mount name space.
    #[error("{}", describe(database, log, owner.as_deref(), *whereabouts))]
    Elsewhere {
        /// The database.
        database: PathBuf,
        /// Its redo log.
        log: PathBuf,
        /// Whose the pool is; `None` where nothing says so.
        owner: Option<Box<Owner>>,
        /// Why it is not taken for lost.
        whereabouts: Whereabouts,
    },
    /// The newest pages went to another pool, which is gone, while this process had the database
    /// open.
    #[error(
        "{} was in use in another pool while this program had it open, and that pool is gone, or the file was put back from a \
         backup; close it everywhere and open it again, which brings what its redo log has. Nothing was changed",
        path.display()
    )]
    PoolLost {
        /// The database.
        path: PathBuf,
    },
    /// The newest commits are in an image of the pool that was made for another file, which is not
    /// there any more.
    #[error(
        "the newest commits of {0} are in the pool image {1}, which was made for a file that is not there any more (was it \
         moved here from another file system?); nothing was changed. Only if they are of no use: `holdfast sqlite recover \
         --discard --lost-pool {2} {0}` takes the database as of its last flush",
        database.display(), image.display(), image.parent().unwrap_or(image).display()
    )]
    Orphaned {
        /// The database.
        database: PathBuf,
        /// The image.
        image: PathBuf,
    },
    /// What is to be dropped is sound.
    #[error(
        "the pool image {1} is sound and has {commits} commits of {0} that are not in its file; `holdfast sqlite recover \
         {0}`, without --discard, brings them there. Nothing was changed. `holdfast sqlite recover --discard --lost-pool {2} {0}` \
         drops them", database.display(), image.display(), image.parent().unwrap_or(image).display()
    )]
    WouldLose {
        /// The database.
        database: PathBuf,
        /// The image.
        image: PathBuf,
        /// Commits that the database file does not have.
        commits: u64,
    },
    /// The file is no database.
    #[error("{} is not an SQLite database ({what}); nothing was changed", path.display())]
    NotADatabase {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// The database is in WAL mode, and SQLite's own.
    #[error(
        "{} is in WAL mode and left to SQLite: part of its commits may be in {0}-wal; `PRAGMA wal_checkpoint(TRUNCATE)` brings \
         them into the file", path.display()
    )]
    WalMode {
        /// The database.
        path: PathBuf,
    },
    /// The newest pages are in the pool, and a process that opens the database asks for no locks.
    #[error(
        "{} is in use with its newest pages in a pool, which are not read without locks; open it without `nolock` and \
         `immutable`, or release it first with `PRAGMA holdfast_release`",
        path.display()
    )]
    Unlocked {
        /// The database.
        path: PathBuf,
    },
    /// The file of a database was being handed over to other programs, and a disk that failed left
    /// that half done.
    #[error(
        "{} was being released and the disk failed: its file is complete, and nothing is written to it from the pool any \
         more; release it again (`PRAGMA holdfast_release`), or close it everywhere and open it again",
        path.display()
    )]
    Leaving {
        /// The database.
        path: PathBuf,
    },
    /// It is not known where the database of an image is.
    #[error(
        "the database of the pool image {} is not where it was when it was opened last; open it once with the VFS, or \
         `holdfast sqlite recover FILE`, where it is now; nothing is lost", image.display()
    )]
    Unplaced {
        /// The image.
        image: PathBuf,
    },
    /// A transaction left a journal that only SQLite rolls back: it outgrew the pool, or its
    /// program did without the VFS. The VFS says so itself where a program without it began to roll
    /// the journal back, and died.
    #[error(
        "{} has a journal, {}, of a transaction that did not end; open and read the database once with the VFS, which \
         rolls it back, or, where the VFS itself says this, once without it", database.display(), journal.display()
    )]
    JournalLeft {
        /// The database.
        database: PathBuf,
        /// The journal.
        journal: PathBuf,
    },
    /// A transaction that outgrew the pool left its journal beside another name of the database.
    #[error(
        "{0} has a journal, {1}, of a transaction that did not end, beside another of its names; open and read it once by that \
         name, which rolls the journal back, or, where it was moved from there, move the journal to {0}-journal. Nothing was \
         changed", database.display(), journal.display()
    )]
    JournalElsewhere {
        /// The database, by the name by which it was opened.
        database: PathBuf,
        /// The journal.
        journal: PathBuf,
    },
    /// The database has several names, the pool is lost, and there is no redo log beside this name.
    #[error(
        "{0} has hard links and was in use with its newest pages in a pool, which is not here, and in a redo log beside another \
         of its names (there is none at {1}); open it by that name. Nothing was changed. Only if that log is lost: `holdfast \
         sqlite recover --discard {0}` takes the file as it is",
        database.display(), log.display()
    )]
    LinkedLog {
        /// The database, by the name by which it was opened.
        database: PathBuf,
        /// Where its log is not.
        log: PathBuf,
    },
    /// The database has several names, and is in use by another one of them.
    #[error(
        "{} has hard links, and its redo log is beside another of its names (there is none at {}); open it by that name, or by one \
         name only when nobody else has it open; what was committed is in the pool",
        database.display(), log.display()
    )]
    Linked {
        /// The database, by the name by which it was opened.
        database: PathBuf,
        /// Where its log is not.
        log: PathBuf,
    },
    /// A commit was to be found under a name that names another file by now, or none.
    #[error(
        "{} was moved, removed or replaced while it was in use, and a commit would not be found there after a power cut: \
         it was undone. Put the file back, or close the database everywhere and open it where it is now",
        database.display()
    )]
    Moved {
        /// The database, by the name by which it was opened.
        database: PathBuf,
    },
    /// The log lost its name while a commit was written to it.
    #[error(
        "the redo log {} was moved, removed or overwritten while a commit of {} was written to it, and the commit was undone: try it again. \
         What was committed before is in the pool, and goes to a new log then", log.display(), database.display()
    )]
    LogTaken {
        /// Where the log was.
        log: PathBuf,
        /// The database.
        database: PathBuf,
    },
    /// While the database was in use, the log of another one took the place of its log.
    #[error(
        "{} is the redo log of another database and took the place of that of {} while it was in use; move it away: what was \
         committed is in the pool, and goes to a new log then", log.display(), database.display()
    )]
    LogReplaced {
        /// What is there.
        log: PathBuf,
        /// The database.
        database: PathBuf,
    },
    /// The pool has no room.
    #[error("no room in the pool for {}: {source}; free memory there, or choose another one with HOLDFAST_POOL", path.display())]
    PoolFull {
        /// The image.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The pool survives a reset, and what is stored there might not.
    #[error(
        "{} cannot be mapped so that what is stored there survives a reset; see to it that its file system is mounted with \
         dax=always, or choose another pool with HOLDFAST_POOL (`holdfast doctor` says what it offers)",
        path.display()
    )]
    NotSynchronous {
        /// The image.
        path: PathBuf,
    },
    /// Too many processes.
    #[error("{} is open in {max} processes already; close some", path.display())]
    TooMany {
        /// The database.
        path: PathBuf,
        /// How many there may be.
        max: usize,
    },
    /// A file that SQLite's base VFS has, which answered with an error code of SQLite.
    #[error("SQLite's own file layer answered {code} while it should {step} {}", path.display())]
    Base {
        /// What it should do.
        step: &'static str,
        /// The file.
        path: PathBuf,
        /// The code.
        code: i32,
    },
}

/// The step of making a file beside the database.
pub(crate) const CREATE: &str = "create";

pub(crate) fn is_forbidden(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// What operations here return.
pub type Result<T, E = SqliteError> = std::result::Result<T, E>;

impl SqliteError {
    /// For `map_err`: the kernel refused a step.
    pub(crate) fn io<'a>(
        step: &'static str,
        path: &'a Path,
    ) -> impl FnOnce(io::Error) -> SqliteError + 'a {
        move |source| SqliteError::Io { step, path: path.to_owned(), source }
    }

    /// Whether it is for want of room on a disk, or in the pool.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.code() == ffi::FULL
    }

    /// SQLite's code for it.
    #[must_use]
    pub fn code(&self) -> i32 {
        match self {
            SqliteError::Busy { .. } => ffi::BUSY,
            SqliteError::PoolFull { .. } => ffi::FULL,
            SqliteError::Parameter { .. } => ffi::ERROR,
            SqliteError::NotADatabase { .. } => ffi::NOTADB,
            SqliteError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                ffi::FULL
            }
            // As SQLite says it of a journal that it cannot make.
            SqliteError::Io { step: CREATE, source, .. } if is_forbidden(source) => {
                ffi::READONLY_DIRECTORY
            }
            SqliteError::Io { source, .. } if is_forbidden(source) => ffi::CANTOPEN,
            SqliteError::Io { .. } => ffi::IOERR,
            SqliteError::Base { code, .. } => *code,
            _ => ffi::CANTOPEN,
        }
    }
}
