//! For tools: what is known of a database, bringing everything to its file, and recovering it; without SQLite.
//!
//! Not for a process that has the database open with SQLite as well: closing the file here would drop that one's locks.

#![forbid(unsafe_code)]

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use holdfast_region::Places;
use holdfast_sys::file::private_options;

use crate::attach::{Identity, attach, open_behind_gate, read_mark};
use crate::base::{Base, OwnFile};
use crate::copy;
use crate::error::{Result, SqliteError};
use crate::layout::{BLOCK_BYTES, Header, MAGIC};
use crate::locks::{Owner, is_anybody_there, pid_space};
use crate::log::{Log, log_path};
use crate::recovery::{Lost, Source, clear_mark};
use crate::renumbered;
use crate::stub;

/// What is known of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The file bears the mark: its newest pages are elsewhere.
    pub is_hot: bool,
    /// It is in WAL mode, and none of ours.
    pub is_wal: bool,
    /// Its image in the pool, if one holds its newest pages.
    pub image: Option<PathBuf>,
    /// Its redo log, if there is one.
    pub log: Option<PathBuf>,
    /// A copy that a keeper saved, if a recovery would go on from it: it is newer than the redo log, and the image is gone.
    pub saved: Option<PathBuf>,
    /// Some process has it open.
    pub is_open: bool,
    /// Commits since the image was made; those among them that are in the log, and in the file.
    pub commits: [u64; 3],
    /// Blocks of 4096 bytes that are not in the log yet, about.
    pub dirty_blocks: u64,
    /// Size of the database in bytes, as of its newest commit.
    pub bytes: u64,
}

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
    /// Every commit is in the file, and pages besides of a transaction that outgrew the pool and did not end: its journal is
    /// beside the file, and the next program that opens the database with the VFS rolls it back. Others refuse it until then.
    JournalLeft,
    /// What was not in the file was dropped, as was asked for.
    Discarded,
}

fn identify(path: &Path) -> Result<Identity> {
    Identity::of(path).map_err(SqliteError::io("examine", path))
}

fn image_path(path: &Path) -> Result<PathBuf> {
    Ok(identify(path)?.image_path(Places::from_env()?.pool()))
}

/// A saved copy of it from which a recovery would go on.
fn saved_copy(path: &Path, base: &dyn Base) -> Result<Option<PathBuf>> {
    let Some(mark) = read_mark(base)?.0 else { return Ok(None) };
    let copies = copy::folder(&Places::from_env()?);
    let lost = Lost { base, database: path, identity: identify(path)?, mark, copies: &copies };
    Ok(lost.has_newer_copy().then(|| copy::path_of(&copies, mark.nonce)))
}

/// What is known of a database. Nothing is changed.
///
/// # Errors
/// When the database or its image cannot be read.
pub fn status(path: &Path) -> Result<Status> {
    let base = OwnFile::open(path)?;
    let (marked, is_wal) = read_mark(&base)?;
    let log = Some(log_path(path)).filter(|path| path.exists());
    let mut status = Status {
        is_hot: marked.is_some(),
        is_wal: is_wal && marked.is_none(),
        image: None,
        log,
        saved: None,
        is_open: false,
        commits: [0; 3],
        dirty_blocks: 0,
        bytes: base.size()?,
    };
    let mut image = image_path(path)?;
    if let (Some(mark), false) = (marked, image.exists()) {
        let found = renumbered::find(&Places::from_env()?, identify(path)?, mark);
        image = found.map_err(SqliteError::io("look for", &image))?.unwrap_or(image);
    }
    let Ok(file) = private_options().read(true).write(true).open(&image) else {
        status.saved = saved_copy(path, &base)?;
        return Ok(status);
    };
    let leased = is_anybody_there(&file, pid_space());
    status.is_open = leased.map_err(SqliteError::io("probe", &image))?;
    let mut header = [0; BLOCK_BYTES];
    let read = file.read_at(&mut header, 0).map_err(SqliteError::io("read", &image))?;
    let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap_or_default());
    let is_hot = word(std::mem::offset_of!(Header, hot)) as u32 != 0;
    if read == BLOCK_BYTES && word(0) == MAGIC && is_hot {
        let offset = |at: usize| word(at).saturating_sub(1);
        let [committed, flushed, applied] = [
            std::mem::offset_of!(Header, committed),
            std::mem::offset_of!(Header, flushed),
            std::mem::offset_of!(Header, applied),
        ];
        status.commits = [offset(committed), offset(flushed), offset(applied)];
        status.dirty_blocks = word(std::mem::offset_of!(Header, dirty)) & 0xffff_ffff;
        if marked.is_some() {
            status.bytes = word(std::mem::offset_of!(Header, size) + (word(committed) & 1) as usize * 8);
        }
        status.image = Some(image);
    } else {
        status.saved = saved_copy(path, &base)?;
    }
    Ok(status)
}

/// Brings all commits to the database file. When nobody has the database open it is complete and unmarked afterwards.
///
/// # Errors
/// [`SqliteError`] says what is in the way; nothing is lost.
pub fn checkpoint(path: &Path) -> Result<()> {
    if read_mark(&OwnFile::open(path)?)?.0.is_none() {
        return Ok(());
    }
    let pool = attach(path, Box::new(OwnFile::open(path)?), None)?;
    pool.checkpoint()?;
    pool.detach()
}

/// Brings all commits to the database file and takes the mark away, also while programs have it open: until one of them writes
/// again, any program reads or copies it.
///
/// # Errors
/// `Busy` when somebody reads or writes; otherwise what is in the way. Nothing is lost.
pub fn release(path: &Path) -> Result<()> {
    let base = OwnFile::open(path)?;
    if read_mark(&base)?.0.is_none() {
        return Ok(());
    }
    let pool = attach(path, Box::new(OwnFile::open(path)?), None)?;
    let released = pool.release(&base, Owner::new(pool.number, pool.next_connection()));
    pool.detach().and(released)
}

/// Makes a database file complete that nobody has open: from the pool, or, if that is lost, from the redo log and what a keeper
/// saved besides. With `discard` the image is dropped: the file is as of its last flush or as it was saved, or taken as it is where it
/// has no log that fits.
///
/// # Errors
/// `Busy` when somebody has it open; otherwise what is in the way. Nothing is lost then.
pub fn recover(path: &Path, discard: bool) -> Result<Recovered> {
    let base = OwnFile::open(path)?;
    let marked = read_mark(&base)?.0;
    if discard {
        return discard_all(path, &base);
    }
    if marked.is_none() && !image_path(path)?.exists() {
        return Ok(Recovered::Nothing);
    }
    let found = status(path)?;
    if found.is_open {
        return Err(SqliteError::Busy { path: path.to_owned() });
    }
    let pool = attach(path, Box::new(base), None)?;
    pool.detach()?;
    if read_mark(&OwnFile::open(path)?)?.0.is_some() {
        let journal = stub::journal_path(path);
        return if journal.exists() {
            Ok(Recovered::JournalLeft)
        } else {
            // Somebody has it open by now.
            Err(SqliteError::Busy { path: path.to_owned() })
        };
    }
    Ok(match (marked, found.image) {
        (None, _) => Recovered::Nothing,
        (Some(_), Some(_)) => Recovered::Everything,
        (Some(_), None) if found.saved.is_some() => Recovered::Saved,
        (Some(_), None) => Recovered::LastFlush,
    })
}

fn discard_all(path: &Path, base: &dyn Base) -> Result<Recovered> {
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

/// The log is durable commits: only where there is none of this database the file is taken as it is.
fn take_what_is_left(path: &Path, base: &dyn Base) -> Result<Recovered> {
    if let Some(mark) = read_mark(base)?.0 {
        let copies = copy::folder(&Places::from_env()?);
        let lost = Lost { base, database: path, identity: identify(path)?, mark, copies: &copies };
        match lost.recover_locked() {
            Ok(Source::Log) => return Ok(Recovered::LastFlush),
            Ok(Source::Copy) => return Ok(Recovered::Saved),
            Err(SqliteError::LogMissing { .. } | SqliteError::LogForeign { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    clear_mark(base, None)?;
    Ok(Recovered::Discarded)
}
