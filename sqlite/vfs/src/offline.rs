//! For tools: bringing everything to the file of a database, and recovering it; without SQLite.
//!
//! Not for a process that has the database open with SQLite as well: closing the file here would
//! drop that one's locks.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use holdfast_region::Places;

use crate::at_rest;
use crate::attach::open_behind_gate;
use crate::base::read_mark;
use crate::base::{Base, OwnFile};
use crate::copy;
use crate::databases::attach;
use crate::error::{Result, SqliteError};
use crate::image::WriterId;
use crate::inspection::{Inspection, State, identify, inspect};
use crate::locking::{is_anybody_there, pid_space};
use crate::log::{Log, log_path};
use crate::owner::name_of_pool;
use crate::recovery::{Lost, Source, clear_mark};
use crate::stub;

/// What a recovery found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovered {
    /// The file was complete already.
    Nothing,
    /// The newest state is in the file.
    Everything,
    /// The pool was lost: the file is as of its last flush.
    LastFlush,
    /// The pool was lost: the file is as a keeper saved it, later than its last flush.
    Saved,
    /// Every commit is in the file, and pages besides of a transaction that outgrew the pool and
    /// did not end: its journal is beside the file, and the next program that reads the database
    /// with the VFS rolls it back. So does one without the VFS; but if the file still bears its
    /// mark then, it refuses the file until that is opened once with the VFS.
    JournalLeft,
    /// What was not in the file was dropped, as was asked for.
    Discarded,
}

fn image_path(path: &Path) -> Result<PathBuf> {
    Ok(identify(path)?.image_path(Places::from_env()?.pool()))
}

/// Whether the file has every commit, and nothing is to be done; otherwise it is marked.
fn is_complete(path: &Path) -> Result<bool> {
    let Inspection { status, refusal } = inspect(path)?;
    if let Some(refusal) = refusal {
        return Err(refusal);
    }
    let database = path.to_owned();
    match status.state {
        State::Complete => Ok(true),
        State::Writing => Err(SqliteError::Busy { path: database }),
        State::Wal => Err(SqliteError::WalMode { path: database }),
        State::Journal => {
            Err(SqliteError::JournalLeft { journal: stub::journal_path(path), database })
        }
        _ => Ok(false),
    }
}

/// Brings all commits to the database file. When no process has the database open it is complete
/// and unmarked afterwards.
///
/// # Errors
/// [`SqliteError`] says what is in the way: it is no database, or in WAL mode, its newest commits
/// are not to be reached from here. Nothing is lost.
pub fn checkpoint(path: &Path) -> Result<()> {
    if is_complete(path)? {
        return Ok(());
    }
    let pool = attach(path, Box::new(OwnFile::open(path)?), None)?;
    pool.checkpoint()?;
    pool.detach().map(drop)
}

/// Brings all commits to the database file and takes the mark away, also while programs have it
/// open: until one of them writes again, any program reads or copies it.
///
/// # Errors
/// `Busy` when a process reads or writes; otherwise what is in the way, as of [`checkpoint`].
/// Nothing is lost.
pub fn release(path: &Path) -> Result<()> {
    let base = OwnFile::open(path)?;
    if read_mark(&base)?.0.is_none() && is_complete(path)? {
        at_rest::release(path, &base);
        return Ok(());
    }
    let pool = attach(path, Box::new(OwnFile::open(path)?), None)?;
    let released = pool.release(&base, WriterId::new(pool.number, pool.next_connection()));
    pool.detach().and(released)
}

/// Makes a database file complete that no process has open: from the pool, or, if that is lost,
/// from the redo log and what a keeper saved besides. With `discard` the image is dropped: the file
/// is as of its last flush or as it was saved, or taken as it is where it has no log that fits.
/// What is sound, or may be, is not dropped by that: see [`recover_without_pool`].
///
/// # Errors
/// `Busy` when a process has it open; otherwise what is in the way. Nothing is lost then.
pub fn recover(path: &Path, discard: bool) -> Result<Recovered> {
    if discard {
        return discard_all(path, None);
    }
    let was_complete = is_complete(path)?;
    if was_complete && !image_path(path)?.exists() {
        return Ok(Recovered::Nothing);
    }
    let found = inspect(path)?.status;
    if found.is_open {
        return Err(SqliteError::Busy { path: path.to_owned() });
    }
    let pool = attach(path, Box::new(OwnFile::open(path)?), None)?;
    drop(pool.detach()?);
    if read_mark(&OwnFile::open(path)?)?.0.is_some() {
        return if stub::has_journal(path)? {
            Ok(Recovered::JournalLeft)
        } else {
            // A process has it open by now.
            Err(SqliteError::Busy { path: path.to_owned() })
        };
    }
    Ok(match found.state {
        State::Left => Recovered::Everything,
        State::AsSaved => Recovered::Saved,
        State::AsFlushed => Recovered::LastFlush,
        _ => Recovered::Nothing,
    })
}

/// As [`recover`] with `discard`, where commits would be lost that may still exist: in a pool that
/// is not in use here, or in a sound image of the one that is. `lost_pool` names that pool, as the
/// refusal does (`unknown` where nothing names it).
///
/// # Errors
/// The refusal, where another pool is named; otherwise as of [`recover`]. Nothing is lost then.
pub fn recover_without_pool(path: &Path, lost_pool: &Path) -> Result<Recovered> {
    discard_all(path, Some(lost_pool))
}

/// Refuses to drop what is sound, or may be, unless its pool is named.
fn confirm(path: &Path, lost_pool: Option<&Path>) -> Result<()> {
    let Inspection { status, refusal } = inspect(path)?;
    let [committed, flushed, _] = status.commits;
    let (pool, refusal) = match refusal {
        Some(SqliteError::Elsewhere { database, log, owner, whereabouts }) => {
            let name = name_of_pool(owner.as_deref());
            (PathBuf::from(name), SqliteError::Elsewhere { database, log, owner, whereabouts })
        }
        Some(SqliteError::Orphaned { database, image }) => {
            (Places::from_env()?.pool().to_owned(), SqliteError::Orphaned { database, image })
        }
        // Damaged, or overwritten: that is what it is for.
        Some(_) => return Ok(()),
        None => match (status.state, status.image) {
            (State::Left, Some(image)) if committed > flushed => {
                let (database, commits) = (path.to_owned(), committed - flushed);
                let refusal = SqliteError::WouldLose { database, image, commits };
                (Places::from_env()?.pool().to_owned(), refusal)
            }
            (State::Wal, _) => return Err(SqliteError::WalMode { path: path.to_owned() }),
            _ => return Ok(()),
        },
    };
    if lost_pool == Some(&pool) { Ok(()) } else { Err(refusal) }
}

fn discard_all(path: &Path, lost_pool: Option<&Path>) -> Result<Recovered> {
    confirm(path, lost_pool)?;
    let base = &OwnFile::open(path)?;
    let image = image_path(path)?;
    let file = open_behind_gate(&image, path)?;
    let is_open = is_anybody_there(&file, pid_space()).map_err(SqliteError::io("probe", &image))?;
    if is_open {
        return Err(SqliteError::Busy { path: path.to_owned() });
    }
    base.lock_exclusive()?;
    let log = log_path(path);
    if let Some(open) = Log::look(&log).map_err(SqliteError::io("open", &log))?
        && !open.is_alone().map_err(SqliteError::io("lock", &log))?
    {
        return Err(SqliteError::Busy { path: path.to_owned() });
    }
    let recovered = take_what_is_left(path, base)?;
    Log::remove(&log).map_err(SqliteError::io("remove", &log))?;
    std::fs::remove_file(&image).map_err(SqliteError::io("remove", &image))?;
    base.unlock()?;
    Ok(recovered)
}

/// The log is durable commits: only where there is none of this database the file is taken as it
/// is.
fn take_what_is_left(path: &Path, base: &dyn Base) -> Result<Recovered> {
    if let Some(mark) = read_mark(base)?.0 {
        let copies = copy::folder(&Places::from_env()?);
        let lost = Lost { base, database: path, identity: identify(path)?, mark, copies: &copies };
        match lost.recover_locked() {
            Ok(Source::Log) => return Ok(Recovered::LastFlush),
            Ok(Source::Copy) => return Ok(Recovered::Saved),
            Err(
                SqliteError::LogMissing { .. }
                | SqliteError::LinkedLog { .. }
                | SqliteError::LogForeign { .. },
            ) => {}
            Err(error) => return Err(error),
        }
    }
    clear_mark(base, None)?;
    Ok(Recovered::Discarded)
}
