//! For a keeper: all databases that have an image in a pool, what is known of them, and what it may
//! do with them, without SQLite.
//!
//! Invariants:
//! - Nothing here waits for a lock that a process holds, but for a moment for the gate.
//! - What a process has open is looked at only, and copied: see `saving.rs`.
//! - An image is removed when its database file has what it holds, durable and without a mark.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use holdfast_region::{Places, RoomReport, evict_databases_for_room};
use holdfast_sys::file::{open_regular, path_names_file, private_options, space};
use holdfast_sys::lock::{LockMode, try_lock};

use crate::attach::{attach_at, attach_file};
use crate::base::read_mark;
use crate::base::{Base, OwnFile};
use crate::copy::{self, Copy};
use crate::error::{Result, SqliteError};
use crate::identity::Identity;
use crate::locking::{pid_space, who_is_there};
use crate::log::log_path;
use crate::mark;
use crate::pool::Pool;
use crate::snapshot::Head;
use crate::stub;

/// How long a process may be opening or closing a database that is to be evicted.
const PATIENCE: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(5);

/// The databases of a pool.
#[derive(Debug, Clone)]
pub struct Databases {
    places: Places,
}

/// A database with an image, as it is found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Database {
    /// Where it was when it was opened last; `None` if that is not known, or something else is
    /// there now.
    pub path: Option<PathBuf>,
    /// Its image in the pool.
    pub image: PathBuf,
    /// What the image takes, in bytes.
    pub image_bytes: u64,
    /// When it was opened, or grew in the pool, last: in seconds since 1970.
    pub used_unix_s: u64,
    /// Some process has it open.
    pub is_open: bool,
    /// Those of them that can be named.
    pub holders: Vec<u32>,
    /// What neither its redo log nor a saved copy has, in bytes, about.
    pub unsaved_bytes: u64,
    /// When its log was flushed to, or a copy was saved, last: in seconds since 1970. Of one that
    /// never was, when its image was made.
    pub saved_unix_s: u64,
    /// Whether there is a saved copy.
    pub has_copy: bool,
    /// Why nothing can be done with the image.
    pub damaged: Option<String>,
    /// The identity of its file.
    pub identity: Identity,
}

impl Database {
    /// The path of the database, or, where that is not known, of its image.
    #[must_use]
    pub fn name(&self) -> String {
        self.path.as_ref().unwrap_or(&self.image).display().to_string()
    }
}

impl Databases {
    /// The databases of these places.
    #[must_use]
    pub fn of(places: &Places) -> Databases {
        Databases { places: places.clone() }
    }

    pub(crate) fn copies(&self) -> PathBuf {
        copy::folder(&self.places)
    }

    pub(crate) fn store(&self) -> &Path {
        self.places.store()
    }

    /// All of them, in the order of their images' names. What cannot be read says so itself.
    ///
    /// # Errors
    /// When the pool cannot be listed.
    pub fn list(&self) -> Result<Vec<Database>> {
        let pool = self.places.pool();
        let mut found = Vec::new();
        let entries = match std::fs::read_dir(pool) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            entries => entries.map_err(SqliteError::io("list", pool))?,
        };
        for entry in entries {
            let image = entry.map_err(SqliteError::io("list", pool))?.path();
            let Some(identity) = Identity::of_image(&image) else { continue };
            match self.look(&image, identity) {
                Ok(database) => found.push(database),
                // It was closed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(SqliteError::Io { step: "read", path: image, source }),
            }
        }
        found.sort_unstable_by(|a, b| a.image.cmp(&b.image));
        Ok(found)
    }

    fn look(&self, image: &Path, identity: Identity) -> io::Result<Database> {
        let file = private_options().read(true).write(true).open(image)?;
        let known = file.metadata()?;
        let born = known.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let holders = who_is_there(&file, pid_space())?;
        let mut database = Database {
            path: None,
            image: image.to_owned(),
            image_bytes: known.blocks() * 512,
            used_unix_s: u64::try_from(known.mtime()).unwrap_or(0),
            is_open: !holders.is_empty(),
            holders: holders.into_iter().flatten().collect(),
            unsaved_bytes: 0,
            saved_unix_s: born.map_or(0, |since| since.as_secs()),
            has_copy: false,
            damaged: None,
            identity,
        };
        let head = match Head::read(&file, identity) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                database.damaged = Some(error.to_string());
                return Ok(database);
            }
            head => head?,
        };
        let Some((head, _)) = head else { return Ok(database) };
        let here = |path: &PathBuf| Identity::of(path).is_ok_and(|found| found == identity);
        database.path = head.header().database().filter(here);
        let copy = Copy::open(&self.copies(), head.header().nonce()).ok().flatten();
        database.has_copy = copy.is_some();
        let log = database.path.as_deref().map(log_path);
        let copied = copy.as_ref().map(|_| copy::path_of(&self.copies(), head.header().nonce()));
        for path in [log, copied].into_iter().flatten() {
            let changed =
                path.metadata().map_or(0, |found| u64::try_from(found.mtime()).unwrap_or(0));
            database.saved_unix_s = database.saved_unix_s.max(changed);
        }
        let counts =
            self.places.pool_kind().outlives_boot() || head.header().is_of_boot(self.places.boot());
        if counts && head.is_behind(&file)? && !head.is_in(copy.as_ref(), &file)? {
            database.unsaved_bytes = head.dirty_bytes();
        }
        Ok(database)
    }

    /// Brings all that the image of a database that no process has open holds to the database file,
    /// and removes the image. Returns the bytes that this frees.
    ///
    /// # Errors
    /// `Busy` when a process has it open, or is about to; what is in the way otherwise. Nothing is
    /// lost then.
    pub fn evict(&self, database: &Database) -> Result<u64> {
        let image = &database.image;
        let busy =
            || SqliteError::Busy { path: database.path.clone().unwrap_or_else(|| image.clone()) };
        let file = match private_options().read(true).write(true).open(image) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            file => file.map_err(SqliteError::io("open", image))?,
        };
        let started = Instant::now();
        while !try_lock(&file, LockMode::Exclusive).map_err(SqliteError::io("lock", image))? {
            if started.elapsed() > PATIENCE {
                return Err(busy());
            }
            std::thread::sleep(PAUSE);
        }
        let is_named = path_names_file(image, &file).map_err(SqliteError::io("examine", image))?;
        let holders = who_is_there(&file, pid_space()).map_err(SqliteError::io("probe", image))?;
        if !is_named || !holders.is_empty() {
            return Err(busy());
        }
        let freed = file.metadata().map_err(SqliteError::io("examine", image))?.blocks() * 512;
        let head = Head::read(&file, database.identity).map_err(SqliteError::io("read", image))?;
        if head.as_ref().is_none_or(|(head, _)| !head.header().is_hot()) {
            // Nothing is in it, the database file is complete, and no process comes: the gate is
            // ours.
            std::fs::remove_file(image).map_err(SqliteError::io("remove", image))?;
            return Ok(freed);
        }
        let path = head.and_then(|(head, _)| head.header().database());
        let is_it =
            |path: &PathBuf| Identity::of(path).is_ok_and(|found| found == database.identity);
        let Some(path) = path.filter(is_it) else {
            return Err(SqliteError::Unplaced { image: image.clone() });
        };
        self.bring_home(&file, image, (&path, database.identity))?;
        Ok(freed)
    }

    /// The gate is held from before a process is looked for until the image is gone, so no process
    /// can hold a lock of it.
    fn bring_home(
        &self,
        file: &File,
        image: &Path,
        (path, identity): (&Path, Identity),
    ) -> Result<()> {
        let base = Box::new(OwnFile::open(path)?);
        let pool = attach_file(&self.places, (file, image), (path, identity), base, None)?;
        drop(pool.detach_behind_gate()?);
        let is_marked = read_mark(&OwnFile::open(path)?)?.0.is_some();
        match is_marked && stub::has_journal(path)? {
            true => {
                let journal = stub::journal_path(path);
                Err(SqliteError::JournalLeft { database: path.to_owned(), journal })
            }
            false => Ok(()),
        }
    }

    /// Removes what is of no use any more: copies of which log or database have everything, and
    /// what keepers that were killed left in the making. Only for the one keeper of a home.
    ///
    /// # Errors
    /// When the copies cannot be listed.
    pub fn tidy(&self, databases: &[Database]) -> Result<()> {
        let copies = self.copies();
        let (found, unfinished) = copy::all(&copies).map_err(SqliteError::io("list", &copies))?;
        for path in found {
            // One that cannot be read is left to a person.
            let Ok(Some(copy)) = Copy::open_at(&path) else { continue };
            if is_done_with(&copy, databases) {
                let _ = std::fs::remove_file(path);
            }
        }
        for path in unfinished {
            let _ = std::fs::remove_file(path);
        }
        Ok(())
    }
}

/// Attaches this process to the image of a database, in the pool that the environment names.
pub(crate) fn attach(
    database: &Path,
    base: Box<dyn Base>,
    limit_slots: Option<u32>,
) -> Result<Pool> {
    let places = Places::from_env()?;
    evict_databases_for_room(evict_for_room);
    let identity = Identity::of(database).map_err(SqliteError::io("examine", database))?;
    attach_at(&places, (database, identity), base, limit_slots)
}

/// Evicts databases that no process has open, the one longest unused first, until so many bytes are
/// free in the pool; for [`holdfast_region::evict_databases_for_room`].
#[must_use]
pub fn evict_for_room(places: &Places, bytes: u64) -> Option<RoomReport> {
    let databases = Databases::of(places);
    let mut found = databases.list().ok()?;
    found.sort_by_key(|database| database.used_unix_s);
    let mut report = RoomReport::default();
    for database in &found {
        if space(places.pool()).is_ok_and(|space| space.available_bytes >= bytes) {
            break;
        }
        if database.is_open {
            report.held += 1;
            continue;
        }
        match databases.evict(database) {
            Ok(freed_bytes) => {
                report.freed_bytes += freed_bytes;
                report.evicted.push(database.name());
            }
            Err(SqliteError::Busy { .. }) => report.held += 1,
            Err(error) => report.failed.push(format!("{}: {error}", database.name())),
        }
    }
    Some(report)
}

/// Whether what a copy holds is durable elsewhere: in the log, as the image says, or in the
/// database file, whose mark is gone.
fn is_done_with(copy: &Copy, databases: &[Database]) -> bool {
    let origin = &copy.origin;
    let image = databases.iter().find(|database| database.identity == origin.identity);
    if let Some(image) = image {
        let file = private_options().read(true).open(&image.image);
        match file.and_then(|file| Head::read(&file, image.identity)) {
            Ok(Some((head, _))) if head.header().nonce() == origin.nonce => {
                return head.header().flushed() >= origin.transaction;
            }
            Err(_) => return false,
            // The copy is of before, or the image is being made: the mark in the file says which.
            Ok(_) => {}
        }
    }
    // A user that may write to the folder may have put something else there.
    let Ok(mut file) = open_regular(File::options().read(true), &origin.database) else {
        return false;
    };
    let is_there =
        Identity::of_file(&file).is_ok_and(|found| found.is_but_for_device(origin.identity));
    let mut header = [0; mark::HEADER_BYTES];
    let read = io::Read::read_exact(&mut file, &mut header);
    let is_empty = read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::UnexpectedEof);
    let has_mark = mark::find(&header).is_some_and(|mark| mark.nonce == origin.nonce);
    is_there && (is_empty || read.is_ok() && !has_mark)
}
