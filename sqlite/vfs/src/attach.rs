//! Attaching to the image of a database, and leaving it: finding the image, or making it;
//! recovering what dead processes or a lost pool left; closing clean when no other process is
//! there.
//!
//! All of it happens behind the gate (a `flock` of the image's file), one process at a time.
//!
//! The mark in the database file decides what an image counts for: with a mark and the same nonce
//! it has the newest state; with a mark and no image, the redo log has what is left; without a
//! mark, the file is complete and an image has nothing.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use holdfast_region::{Places, make_room};
use holdfast_sys::file::{path_names_file, private_options};
use holdfast_sys::lease::{Lease, take};
use holdfast_sys::lock::{LockMode, try_lock, unlock};
use holdfast_sys::process::ProcessId;

use crate::at_rest;
use crate::base::{Base, read_mark};
use crate::copy;
use crate::error::{Result, SqliteError};
use crate::freeing::Removed;
use crate::identity::Identity;
use crate::image::layout::PROCESSES_MAX;
use crate::image::{BLOCK_BYTES, Found, HeaderCopy, Image, Introduction, LEASES_AT, Plan, examine};
use crate::locking::{is_anybody_there, pid_space};
use crate::log::Log;
use crate::mark::{self, Mark};
use crate::owner::Owner;
use crate::owner::elsewhere::refuse_if_elsewhere;
use crate::pool::Pool;
use crate::recovery::Lost;
use crate::renumbered::{self, Adopted};
use crate::settings::default_limit_slots;

const PATIENCE: Duration = Duration::from_secs(20);
/// How much of its address space an image asks for beyond a limit that was chosen, which can be
/// raised so far. It costs 4 bytes a block.
const HEADROOM: u64 = 4;
const PAUSE: Duration = Duration::from_millis(1);

/// Attaches this process to the image of a database.
pub(crate) fn attach_at(
    places: &Places,
    (database, identity): (&Path, Identity),
    base: Box<dyn Base>,
    limit_slots: Option<u32>,
) -> Result<Pool> {
    let path = identity.image_path(places.pool());
    if !path.exists()
        && let (Some(mark), _) = read_mark(base.as_ref())?
    {
        // Nothing is left in the pool of one who is refused.
        refuse_if_elsewhere((database, identity), mark, places, &Owner::of(places)?)?;
    }
    let mut file = open_behind_gate(&path, database)?;
    if file.metadata().map_err(SqliteError::io("measure", &path))?.len() == 0
        && let (Some(mark), _) = read_mark(base.as_ref())?
    {
        let started = Instant::now();
        loop {
            match renumbered::adopt(places, identity, mark, &path)
                .map_err(SqliteError::io("look for", &path))?
            {
                Adopted::Nothing => break,
                // The one that was empty, and is no process's any more, loses its gate when it is
                // dropped.
                Adopted::Image(adopted) => {
                    file = adopted;
                    break;
                }
                Adopted::Busy if started.elapsed() > PATIENCE => {
                    return Err(SqliteError::Busy { path: database.to_owned() });
                }
                Adopted::Busy => std::thread::sleep(PAUSE),
            }
        }
    }
    let attached = attach_file(places, (&file, &path), (database, identity), base, limit_slots);
    let _ = unlock(&file);
    attached
}

/// Opens the file that the path names, and holds its `flock`.
pub(crate) fn open_behind_gate(path: &Path, database: &Path) -> Result<File> {
    let started = Instant::now();
    loop {
        let options =
            private_options().read(true).write(true).create(true).truncate(false).open(path);
        let file = options.map_err(SqliteError::io("open", path))?;
        while !try_lock(&file, LockMode::Exclusive).map_err(SqliteError::io("lock", path))? {
            if started.elapsed() > PATIENCE {
                return Err(SqliteError::Busy { path: database.to_owned() });
            }
            std::thread::sleep(PAUSE);
        }
        if path_names_file(path, &file).map_err(SqliteError::io("examine", path))? {
            return Ok(file);
        }
    }
}

pub(crate) fn attach_file(
    places: &Places,
    (file, path): (&File, &Path),
    (database, identity): (&Path, Identity),
    base: Box<dyn Base>,
    limit_slots: Option<u32>,
) -> Result<Pool> {
    let pool_error = |step| SqliteError::io(step, path);
    let is_persistent = places.pool_kind().outlives_boot();
    let others = is_anybody_there(file, pid_space()).map_err(pool_error("probe"))?;
    let mut found = examine(file, identity).map_err(pool_error("read"))?;
    let (marked, _) = read_mark(base.as_ref())?;
    if !others {
        found = set_aside(places, (file, path), found, database, marked)?;
    }
    let capacity = match found {
        Found::Sound(capacity) => capacity,
        Found::Fresh => {
            let slots = limit_slots
                .map_or_else(|| default_limit_slots().into(), |slots| u64::from(slots) * HEADROOM);
            Plan::capacity_for(slots * BLOCK_BYTES as u64)
        }
        Found::Newer => {
            return Err(SqliteError::Newer {
                file: path.to_owned(),
                database: database.to_owned(),
            });
        }
        Found::Unfinished | Found::Broken(_) => {
            let what = if let Found::Broken(what) = found { what } else { "it was never finished" };
            return Err(SqliteError::Damaged {
                image: path.to_owned(),
                database: database.to_owned(),
                what,
            });
        }
    };
    let map = || Image::map(file.try_clone()?, path, Plan::new(capacity), is_persistent);
    let mapped = map().or_else(|error| {
        let needed_bytes = Plan::new(capacity).slots_at as u64;
        if error.kind() == io::ErrorKind::StorageFull && make_room(places, needed_bytes).is_ok() {
            map()
        } else {
            Err(error)
        }
    });
    let mut image = mapped.map_err(|source| {
        if found == Found::Fresh {
            // As if it had not been tried: the next one begins anew.
            let _ = file.set_len(0);
        }
        SqliteError::PoolFull { path: path.to_owned(), source }
    })?;
    if is_persistent && !image.is_synchronous() && !places.is_emulated() {
        return Err(SqliteError::NotSynchronous { path: path.to_owned() });
    }
    image.grow_in(places);
    if found == Found::Fresh {
        image.format(identity, limit_slots.unwrap_or_else(default_limit_slots));
    }
    let (number, pid_space) = take_lease(&image, database)?;
    let owner = Owner::of(places)?;
    let pool = Pool::new(image, (database, identity), base, (number, pid_space), (places, owner));
    if others {
        // A process that had this entry before is dead.
        pool.take_over(number);
    } else {
        pool.recover_alone((identity, marked), is_persistent, places.boot())?;
    }
    pool.introduce();
    pool.show_in_log();
    // Where that fails the keeper saves the database all the same, but does not know its name.
    let _ = pool.image.note_path(database);
    if let Some(slots) = limit_slots {
        pool.image.set_limit(slots);
    }
    Ok(pool)
}

/// Decides what becomes of an image that is not sound, or of another boot, when no process has it
/// open.
fn set_aside(
    places: &Places,
    (file, path): (&File, &Path),
    found: Found,
    database: &Path,
    marked: Option<Mark>,
) -> Result<Found> {
    let clear = || file.set_len(0).map_err(SqliteError::io("clear", path)).map(|()| Found::Fresh);
    match found {
        Found::Fresh => Ok(Found::Fresh),
        Found::Unfinished => clear(),
        Found::Newer if marked.is_some() => Ok(found),
        Found::Broken(what) if marked.is_some() => Err(SqliteError::Damaged {
            image: path.to_owned(),
            database: database.to_owned(),
            what,
        }),
        Found::Newer | Found::Broken(_) => clear(),
        Found::Sound(_) if places.pool_kind().outlives_boot() => Ok(found),
        Found::Sound(_) => {
            let header = HeaderCopy::read(file).map_err(SqliteError::io("read", path))?;
            let is_of_boot = |header: HeaderCopy| header.is_of_boot(places.boot());
            if header.is_some_and(is_of_boot) { Ok(found) } else { clear() }
        }
    }
}

/// A free entry for this process, by its lease; and the name space of process numbers.
fn take_lease(image: &Image, database: &Path) -> Result<(u32, u64)> {
    for number in 0..PROCESSES_MAX as u32 {
        let taken = take(image.file(), Lease::Exclusive, LEASES_AT + u64::from(number), 1);
        if taken.map_err(SqliteError::io("lease", image.path()))? {
            return Ok((number, pid_space()));
        }
    }
    Err(SqliteError::TooMany { path: database.to_owned(), max: PROCESSES_MAX })
}

impl Pool {
    /// Writes into its entry who this process is.
    fn introduce(&self) {
        let known = ProcessId::current().ok();
        let locks = self.image.locks();
        locks.entry(self.number).introduce(Introduction {
            pid: std::process::id(),
            start_ticks: known.as_ref().map_or(0, |id| id.start_ticks),
            pid_space: if known.is_some() { self.pid_space } else { 0 },
        });
        locks.note_process(self.number);
    }

    /// Brings an image in order that no other process has open.
    fn recover_alone(
        &self,
        (identity, marked): (Identity, Option<Mark>),
        is_persistent: bool,
        boot: [u8; 16],
    ) -> Result<()> {
        let mode = self.image.mode();
        let (nonce, is_hot) = (mode.nonce(), mode.is_hot());
        let is_rolled_back = self.is_rolled_back()?;
        match marked {
            Some(mark) if is_hot && mark.nonce == nonce && mark.is_of(self.since_log()) => {
                self.recover_image()?;
                self.end_leaving()?;
            }
            None if is_rolled_back || is_hot && mode.is_closing() => {
                self.drop_side_files()?;
                self.reset();
            }
            _ if is_hot => return Err(self.refuse_file()),
            Some(mark) => {
                refuse_if_elsewhere((&self.database, identity), mark, &self.places, &self.owner)?;
                let (base, database, copies) = (self.base(), &self.database, &self.copies);
                Lost { base, database, identity, mark, copies }.recover()?;
                self.reset();
            }
            None => self.reset(),
        }
        for number in 0..PROCESSES_MAX as u32 {
            self.image.locks().entry(number).clear();
        }
        self.image.set_boot(boot);
        mode.end_closing();
        if is_persistent {
            self.image.write_back_header();
        }
        Ok(())
    }

    /// An image whose processes all died.
    fn recover_image(&self) -> Result<()> {
        let locks = self.image.locks();
        if !self.image.commits().are_plausible() {
            return Err(self.damaged("its counters contradict each other"));
        }
        locks.free_short();
        self.settle_dead_writer().map_err(|_| self.damaged("its slots lead astray"))?;
        locks.free_writer();
        self.image.log_position().ask_for_check();
        self.check_first_page()
    }

    /// The first page knows how large the database is, if the one that wrote it is known to have
    /// said so.
    fn check_first_page(&self) -> Result<()> {
        let link = self.image.find(0).map_err(|_| self.damaged("a slot leads astray"))?;
        let mut page = [0; mark::HEADER_BYTES];
        if link == 0 || self.image.read(link, 0, &mut page).is_err() {
            return Ok(());
        }
        let word = |at: usize| u32::from_be_bytes(page[at..at + 4].try_into().unwrap_or_default());
        let page_bytes = match u64::from(u16::from_be_bytes([page[16], page[17]])) {
            1 => 65_536,
            bytes => bytes,
        };
        // SQLite's file format, 1.3.8: the size counts if the change counter and
        // "version-valid-for" are the same.
        if word(24) == word(92) && u64::from(word(28)) * page_bytes > self.size() {
            return Err(self.damaged("it is shorter than its first page says"));
        }
        Ok(())
    }

    /// Before [`Pool::forget`], where the file is complete and may be others' already: removes the
    /// saved copy and the log. The image says first that it counts for nothing: it may bear neither
    /// nonce nor journal when this process dies in the middle of that.
    pub(crate) fn drop_side_files(&self) -> Result<()> {
        let (mode, path) = (self.image.mode(), self.log_path());
        mode.begin_closing();
        self.image.write_back_header();
        copy::remove(&self.copies, mode.nonce());
        let log = Log::read_only(&path).ok().flatten();
        match log.and_then(|log| log.header().ok().flatten()) {
            Some((found, _)) if found.nonce == mode.nonce() => {
                Log::remove(&path).map_err(SqliteError::io("remove", &path))
            }
            // Another pool may go on from the file by now, with a log of its own.
            _ => Ok(()),
        }
    }

    /// As an image that holds nothing, for a database file that is complete. No other process uses
    /// the image.
    pub(crate) fn reset(&self) {
        self.forget();
        self.image.locks().free_all();
        self.image.write_back_header();
    }

    /// The same, and others may wait for locks meanwhile.
    pub(crate) fn forget(&self) {
        let mode = self.image.mode();
        // It fails at a slot beyond the image's end only, when there is none left to free.
        let _ = self.image.free_all();
        self.image.commits().forget();
        mode.forget();
        self.image.forget_slots();
        mode.cool();
        self.image.write_back_header();
        mode.end_closing();
    }

    /// Leaves the image; the last process brings everything to the database file and removes it.
    /// What has no name any more is returned, and freed when that is dropped.
    pub(crate) fn detach(self) -> Result<Removed> {
        self.detach_from(false)
    }

    /// The same for one who has attached to a file whose gate is still held.
    pub(crate) fn detach_behind_gate(self) -> Result<Removed> {
        self.detach_from(true)
    }

    fn detach_from(self, is_behind_gate: bool) -> Result<Removed> {
        let (is_removed, log) = self.leave(is_behind_gate)?;
        Ok(Removed { image: is_removed.then_some(self.image), log })
    }

    /// Whether the image has no name any more; and the log, if it has none.
    fn leave(&self, is_behind_gate: bool) -> Result<(bool, Option<Log>)> {
        if !self.is_ours() {
            return Ok((false, None));
        }
        // Not behind the gate: who waits for the log may have to take over from a dead process.
        self.flush_for_others();
        let busy = || SqliteError::Busy { path: self.database.clone() };
        let _gate = match is_behind_gate {
            true => None,
            false => Some(self.enter_gate().ok_or_else(busy)?),
        };
        self.image.locks().entry(self.number).clear();
        let others = self.has_others();
        if others.map_err(SqliteError::io("probe", self.image.path()))? || self.is_poisoned() {
            return Ok((false, None));
        }
        let mut log = None;
        if self.is_hot() {
            // Others that died may have left something to settle.
            self.recover_image()?;
            // With the file as it is where that was others' already.
            if self.is_hot() {
                log = self.cool()?;
            }
            if self.is_hot() {
                return Ok((false, log));
            }
        } else if !self.settings.keeps_side_file() {
            at_rest::remove(&self.database, self.base());
        }
        match std::fs::remove_file(self.image.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(SqliteError::Io {
                step: "remove",
                path: self.image.path().to_owned(),
                source: error,
            }),
            _ => Ok((true, log)),
        }
    }
}
