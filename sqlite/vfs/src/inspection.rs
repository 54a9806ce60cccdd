//! Inspects a database for tools: where its newest commits are, and whether it can be opened.
//!
//! Invariants:
//! - Nothing is changed, and no lock is taken; what may only be read is looked at all the same.
//! - What an opening would refuse is never called complete: the refusal is that of the opening,
//!   from the same checks.
//! - What changes meanwhile is looked at again; what does not come to rest is busy.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_region::Places;
use holdfast_sys::file::private_options;

use crate::base::{Base, OwnFile, mark_of, read_header};
use crate::copy;
use crate::direct::journal_elsewhere;
use crate::error::{Result, SqliteError};
use crate::identity::Identity;
use crate::image::layout::NAME_AT;
use crate::image::{BLOCK_BYTES, Found, HeaderCopy, Plan, examine, scan};
use crate::locking::{is_anybody_there, pid_space};
use crate::log::log_path;
use crate::mark::{self, Mark};
use crate::owner::Owner;
use crate::owner::elsewhere::refuse_if_elsewhere;
use crate::recovery::Lost;
use crate::renumbered;
use crate::stub;

/// How often a database is looked at that changes meanwhile, and the pause between.
const LOOKS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(2);
/// The smallest page of SQLite.
const PAGE_BYTES_MIN: u64 = 512;

/// Where the newest commits of a database are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// In the file.
    Complete,
    /// In the file, and a program without the VFS is changing it, or one with it is about to.
    Writing,
    /// In the file and its journal, which SQLite rolls back with the next opening.
    Journal,
    /// In the file and its `-wal`: the database is in WAL mode, and none of ours.
    Wal,
    /// In the pool; some process has the database open.
    InUse,
    /// In the pool; no process has the database open.
    Left,
    /// The pool is lost: in the file and the redo log, as of the last flush.
    AsFlushed,
    /// The pool is lost: in a copy that a keeper saved.
    AsSaved,
    /// Not to be reached from here, or contradictory: an opening is refused, with the text in
    /// [`Status::problem`].
    Refused,
}

/// What is known of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Where its newest commits are.
    pub state: State,
    /// Why it cannot be opened, and what to do about it.
    pub problem: Option<String>,
    /// The file bears the mark: its newest pages are elsewhere.
    pub is_hot: bool,
    /// It is in WAL mode, and none of ours.
    pub is_wal: bool,
    /// Its image in the pool, if one holds its newest pages.
    pub image: Option<PathBuf>,
    /// Its redo log, if there is one.
    pub log: Option<PathBuf>,
    /// A copy that a keeper saved, if a recovery would go on from it: it is newer than the redo
    /// log, and the image is gone.
    pub saved: Option<PathBuf>,
    /// Some process has it open with the VFS.
    pub is_open: bool,
    /// Commits since the image was made; those among them that are in the log, and in the file.
    /// Zeros where there is no image.
    pub commits: [u64; 3],
    /// Blocks of 4096 bytes that are not in the log yet, about.
    pub dirty_blocks: u64,
    /// Size of the database in bytes, as of its newest commit; of the file, where that is not to be
    /// seen.
    pub bytes: u64,
}

/// The same, with the refusal as an error.
#[derive(Debug)]
pub(crate) struct Inspection {
    pub(crate) status: Status,
    pub(crate) refusal: Option<SqliteError>,
}

/// An image in the pool, opened to be looked at.
struct SeenDatabase {
    path: PathBuf,
    file: File,
}

/// What is known of a database. Nothing is changed.
///
/// # Errors
/// When the file is no database, or it or its image cannot be read. What keeps a database from
/// being opened is no error: see [`Status::problem`].
pub fn status(path: &Path) -> Result<Status> {
    Ok(inspect(path)?.status)
}

/// The status of a database, with what its openers would be refused for.
///
/// # Errors
/// As [`status`].
pub(crate) fn inspect(path: &Path) -> Result<Inspection> {
    let base = OwnFile::look(path)?;
    for look in 1.. {
        let before = read_header(&base)?;
        let found = Look::new(path, &base, before)?.inspect();
        // The file of a database that is in use may be between two states.
        let may_pass = found.as_ref().is_ok_and(|found| {
            let is_replaced = matches!(found.refusal, Some(SqliteError::Replaced { .. }));
            is_replaced && found.status.is_open && look < LOOKS
        });
        if mark_of(&read_header(&base)?) == mark_of(&before) && !may_pass {
            return found;
        }
        if look == LOOKS {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    Err(SqliteError::Busy { path: path.to_owned() })
}

pub(crate) fn identify(path: &Path) -> Result<Identity> {
    Identity::of(path).map_err(SqliteError::io("examine", path))
}

/// One look at a database.
struct Look<'a> {
    path: &'a Path,
    base: &'a OwnFile,
    header: [u8; mark::HEADER_BYTES],
    places: Places,
    identity: Identity,
    marked: Option<Mark>,
    is_wal: bool,
    status: Status,
}

impl<'a> Look<'a> {
    /// The header is read once: a process may write or take off the mark between two reads.
    fn new(
        path: &'a Path,
        base: &'a OwnFile,
        header: [u8; mark::HEADER_BYTES],
    ) -> Result<Look<'a>> {
        let (marked, is_wal) = mark_of(&header);
        let places = Places::from_env()?;
        let identity = identify(path)?;
        let is_wal = is_wal && marked.is_none();
        let status = Status {
            state: State::Complete,
            problem: None,
            is_hot: marked.is_some(),
            is_wal,
            image: None,
            log: Some(log_path(path)).filter(|path| path.exists()),
            saved: None,
            is_open: false,
            commits: [0; 3],
            dirty_blocks: 0,
            bytes: base.size()?,
        };
        Ok(Look { path, base, header, places, identity, marked, is_wal, status })
    }

    fn inspect(mut self) -> Result<Inspection> {
        if let Some(what) = self.what_is_wrong()? {
            return Err(SqliteError::NotADatabase { path: self.path.to_owned(), what });
        }
        let found = match self.find_image()? {
            Some(seen) => self.judge_image(&seen)?,
            None => None,
        };
        let judged = match found {
            Some(judged) => judged,
            None => self.judge_without_image()?,
        };
        let (state, refusal) = match judged {
            Ok(state) => (state, None),
            Err(refusal) => (State::Refused, Some(refusal)),
        };
        self.status.state = state;
        self.status.problem = refusal.as_ref().map(ToString::to_string);
        Ok(Inspection { status: self.status, refusal })
    }

    /// Why the file is none that SQLite, or the VFS, reads.
    fn what_is_wrong(&self) -> Result<Option<&'static str>> {
        let bytes = self.base.size()?;
        if bytes == 0 {
            return Ok(None);
        }
        let header = &self.header;
        let page = page_bytes(header);
        let is_stand_in = self.marked.is_some_and(|mark| mark.was_empty);
        Ok(match () {
            () if !mark::is_database(header) => Some("it does not begin as one"),
            () if is_stand_in => None,
            () if !page.is_power_of_two() || page < PAGE_BYTES_MIN || bytes < PAGE_BYTES_MIN => {
                Some("its header is damaged")
            }
            () if self.marked.is_none() && header[19] > 2 => {
                Some("its header asks for a newer SQLite, or a newer version of holdfast marked it")
            }
            () => None,
        })
    }

    /// The file of its image, whatever is in it.
    fn find_image(&self) -> Result<Option<SeenDatabase>> {
        let mut path = self.identity.image_path(self.places.pool());
        let mut file = open_image(&path)?;
        if let (None, Some(mark)) = (&file, self.marked) {
            let found = renumbered::find(&self.places, self.identity, mark);
            if let Some(other) = found.map_err(SqliteError::io("look for", &path))? {
                file = open_image(&other)?;
                path = other;
            }
        }
        Ok(file.map(|file| SeenDatabase { path, file }))
    }

    /// As an opening would: `None` where nothing is in the image.
    fn judge_image(&mut self, seen: &SeenDatabase) -> Result<Option<Result<State>>> {
        let SeenDatabase { path, file } = seen;
        let leased = is_anybody_there(file, pid_space());
        self.status.is_open = leased.map_err(SqliteError::io("probe", path))?;
        let read = |source| SqliteError::Io { step: "read", path: path.clone(), source };
        let refuse = |refusal| Ok(Some(Err(refusal)));
        let (image, database) = (path.clone(), self.path.to_owned());
        let plan = match examine(file, self.identity).map_err(read)? {
            Found::Sound(capacity) => Plan::new(capacity),
            Found::Newer if self.marked.is_some() => {
                return refuse(SqliteError::Newer { file: image, database });
            }
            Found::Broken(what) if self.marked.is_some() => {
                return refuse(SqliteError::Damaged { image, database, what });
            }
            Found::Fresh | Found::Unfinished | Found::Newer | Found::Broken(_) => return Ok(None),
        };
        let Some(header) = HeaderCopy::read(file).map_err(read)? else { return Ok(None) };
        let is_of_boot = header.is_of_boot(self.places.boot());
        if !self.status.is_open && !is_of_boot && !self.places.pool_kind().outlives_boot() {
            return Ok(None);
        }
        let (nonce, committed) = (header.nonce(), header.committed());
        let (flushed, applied) = (header.flushed(), header.applied());
        if !header.is_hot() {
            // Of one that is just becoming hot the mark is there first.
            let is_going =
                self.status.is_open && self.marked.is_some_and(|mark| mark.nonce == nonce);
            return Ok(is_going.then_some(Ok(State::InUse)));
        }
        match self.marked {
            // All is in the file: it was being handed over.
            None if header.closing() != 0 => return Ok(None),
            // A program without the VFS has rolled back a dead process's journal, or died at that.
            None if header.is_under_journal() => {
                let mut name = vec![0; header.name_bytes()];
                file.read_exact_at(&mut name, NAME_AT as u64).map_err(read)?;
                return self.judge_lost_mark(name);
            }
            Some(mark) if mark.nonce == nonce && mark.is_of(header.log_base()..=committed) => {}
            _ => return refuse(SqliteError::Replaced { database, image }),
        }
        let damaged = |what| SqliteError::Damaged {
            image: path.clone(),
            database: self.path.to_owned(),
            what,
        };
        if !self.status.is_open && (applied > flushed || flushed > committed) {
            return refuse(damaged("its counters contradict each other"));
        }
        let size = header.size_of(committed);
        if !self.status.is_open && needs_more(file, plan, (committed, size)).map_err(read)? {
            return refuse(damaged("it is shorter than its first page says"));
        }
        self.status.commits = [committed, flushed, applied].map(|number| number.saturating_sub(1));
        self.status.dirty_blocks = u64::from(header.dirty());
        self.status.bytes = size;
        self.status.image = Some(image);
        Ok(Some(Ok(if self.status.is_open { State::InUse } else { State::Left })))
    }

    /// Of such a file: a journal is left beside it, or is that of a program that writes. `None`
    /// where there is none.
    fn judge_lost_mark(&self, name: Vec<u8>) -> Result<Option<Result<State>>> {
        let database = self.path.to_owned();
        if stub::has_live_journal(self.path)? {
            if self.base.is_being_written()? {
                return Ok(Some(Ok(State::Writing)));
            }
            // The program may have ended in between.
            if stub::has_live_journal(self.path)? {
                let journal = stub::journal_path(self.path);
                return Ok(Some(Err(SqliteError::JournalLeft { database, journal })));
            }
        }
        let other = journal_elsewhere(name, (self.path, self.identity))?;
        Ok(other.map(|journal| Err(SqliteError::JournalElsewhere { database, journal })))
    }

    fn judge_without_image(&mut self) -> Result<Result<State>> {
        let Some(mark) = self.marked else { return self.judge_file() };
        let (database, identity) = (self.path, self.identity);
        let ours = Owner::of(&self.places)?;
        if let Err(refusal) = refuse_if_elsewhere((database, identity), mark, &self.places, &ours) {
            return Ok(Err(refusal));
        }
        let copies = copy::folder(&self.places);
        let lost = Lost { base: self.base, database, identity, mark, copies: &copies };
        Ok(lost.look().map(|is_saved| match is_saved {
            true => {
                self.status.saved = Some(copy::path_of(&copies, mark.nonce));
                State::AsSaved
            }
            false => State::AsFlushed,
        }))
    }

    /// Of a file without a mark, and nothing in the pool.
    fn judge_file(&self) -> Result<Result<State>> {
        if self.is_wal {
            return Ok(Ok(State::Wal));
        }
        let journal = stub::journal_path(self.path);
        for _ in 0..2 {
            let has_journal =
                is_to_be_rolled_back(&journal).map_err(SqliteError::io("read", &journal))?;
            if self.base.is_being_written()? {
                return Ok(Ok(State::Writing));
            }
            if !has_journal {
                return Ok(match self.is_cut()? {
                    true => {
                        let what = "it is shorter than its header says";
                        Err(SqliteError::NotADatabase { path: self.path.to_owned(), what })
                    }
                    false => Ok(State::Complete),
                });
            }
        }
        Ok(Ok(State::Journal))
    }

    fn is_cut(&self) -> Result<bool> {
        let header = read_header(self.base)?;
        Ok(says_more_than(&header, self.base.size()?))
    }
}

fn open_image(path: &Path) -> Result<Option<File>> {
    match private_options().read(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        file => file.map(Some).map_err(SqliteError::io("open", path)),
    }
}

fn page_bytes(header: &[u8]) -> u64 {
    match u64::from(u16::from_be_bytes([header[16], header[17]])) {
        1 => 65_536,
        bytes => bytes,
    }
}

/// Whether a first page says that its database is larger. SQLite's file format, 1.3.8: it counts if
/// the change counter and "version-valid-for" are the same.
fn says_more_than(header: &[u8], bytes: u64) -> bool {
    let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap_or_default());
    word(24) == word(92) && u64::from(word(28)) * page_bytes(header) > bytes
}

/// The same of the first page that an image has, if it has one.
fn needs_more(file: &File, plan: Plan, (committed, size): (u64, u64)) -> io::Result<bool> {
    let mut newest = (0, 0);
    scan(file, plan, plan.capacity, |link, block, transaction| {
        if block == 0 && transaction > newest.0 && transaction <= committed {
            newest = (transaction, link as usize - 1);
        }
    })?;
    if newest.0 == 0 {
        return Ok(false);
    }
    let mut page = [0; mark::HEADER_BYTES];
    file.read_exact_at(&mut page, (plan.pages_at + newest.1 * BLOCK_BYTES) as u64)?;
    Ok(says_more_than(&page, size))
}

/// Whether SQLite takes a journal for one to be rolled back, if no process is at it.
fn is_to_be_rolled_back(journal: &Path) -> io::Result<bool> {
    let mut first = [0; 1];
    let file = match File::open(journal) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    match (&file).read_exact(&mut first) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| first[0] != 0),
    }
}
