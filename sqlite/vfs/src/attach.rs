//! Attaching to the image of a database, and leaving it: finding the image, or making it; recovering what dead processes or
//! a lost pool left; closing clean when nobody else is there.
//!
//! All of it happens behind the gate (a `flock` of the image's file), one process at a time.
//!
//! The mark in the database file decides what an image counts for: with a mark and the same nonce it has the newest state;
//! with a mark and no image, the redo log has what is left; without a mark, the file is complete and an image has nothing.

#![forbid(unsafe_code)]

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant, UNIX_EPOCH};

use holdfast_region::{Places, evict_databases_for_room, make_room};
use holdfast_sys::file::{path_names_file, private_options};
use holdfast_sys::lease::{Lease, take};
use holdfast_sys::lock::{LockMode, try_lock, unlock};
use holdfast_sys::process::ProcessId;
use xxhash_rust::xxh3::xxh3_64;

use crate::base::Base;
use crate::copy;
use crate::databases::evict_for_room;
use crate::error::{Result, SqliteError};
use crate::flush::CHECK;
use crate::image::Image;
use crate::layout::{BLOCK_BYTES, CAPACITY_MAX, Header, LEASES_AT, MAGIC, PROCESSES_MAX, Plan, VERSION};
use crate::locks::{is_anybody_there, pid_space};
use crate::log::Log;
use crate::mark::{self, Mark};
use crate::owner::{Owner, refuse_if_elsewhere};
use crate::pool::Pool;
use crate::recovery::Lost;
use crate::renumbered::{self, Adopted};
use crate::settings::LIMIT_SLOTS;

const PATIENCE: Duration = Duration::from_secs(20);
/// How much of its address space an image asks for beyond its limit, which can be raised so far. It costs 4 bytes a block.
const HEADROOM: u64 = 4 * BLOCK_BYTES as u64;
const PAUSE: Duration = Duration::from_millis(1);

/// Which database it is: device, inode, time of birth in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Identity(pub(crate) [u64; 3]);

impl Identity {
    pub(crate) fn of(database: &Path) -> io::Result<Identity> {
        Ok(Identity::from_metadata(&std::fs::metadata(database)?))
    }

    /// That of an open file.
    pub(crate) fn of_file(file: &File) -> io::Result<Identity> {
        Ok(Identity::from_metadata(&file.metadata()?))
    }

    fn from_metadata(found: &Metadata) -> Identity {
        let born = found.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Identity([found.dev(), found.ino(), born.map_or(0, |since| since.as_nanos() as u64)])
    }

    /// Its image's file in a pool.
    pub(crate) fn image_path(self, pool: &Path) -> PathBuf {
        let [device, inode, born] = self.0;
        pool.join(format!("{device:x}-{inode:x}-{born:x}.sqlite"))
    }
}

/// What an image's file is, before it is mapped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing yet.
    Fresh,
    /// An image of this database, with so many slots.
    Sound(u32),
    /// Whoever was making it died: nothing is in it.
    Unfinished,
    /// Of a later version.
    Newer,
    /// Something else.
    Broken(&'static str),
}

pub(crate) fn static_sum(magic: u64, version: u32, capacity: u32, identity: Identity) -> u64 {
    let words =
        [magic, u64::from(version) << 32 | u64::from(capacity), identity.0[0], identity.0[1], identity.0[2]];
    xxh3_64(words.map(u64::to_le_bytes).as_flattened())
}

pub(crate) fn examine(file: &File, identity: Identity) -> io::Result<Found> {
    let mut header = [0; BLOCK_BYTES];
    let length = file.metadata()?.len();
    if length == 0 {
        return Ok(Found::Fresh);
    }
    if file.read_at(&mut header, 0)? < BLOCK_BYTES {
        return Ok(Found::Broken("it is too short"));
    }
    let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap_or_default());
    let offset = std::mem::offset_of!(Header, sum);
    let (nonce, hot) = (std::mem::offset_of!(Header, nonce), std::mem::offset_of!(Header, hot));
    if [offset, nonce, hot].iter().all(|at| word(*at) == 0) && is_unused(file, length)? {
        return Ok(Found::Unfinished);
    }
    let (version, capacity) = (word(8) as u32, (word(8) >> 32) as u32);
    let names = Identity([word(16), word(24), word(32)]);
    if word(0) != MAGIC || word(offset) != static_sum(word(0), version, capacity, names) {
        return Ok(Found::Broken("its header is not one"));
    }
    if version != VERSION {
        return Ok(if version > VERSION { Found::Newer } else { Found::Broken("it is of another version") });
    }
    // The device is in the file's name; its number may have been another one when the image was made: see `renumbered.rs`.
    if names.0[1..] != identity.0[1..] || !capacity.is_power_of_two() || capacity > CAPACITY_MAX {
        return Ok(Found::Broken("it is of another database"));
    }
    Ok(if length < Plan::new(capacity).bytes as u64 {
        Found::Broken("it is too short")
    } else {
        Found::Sound(capacity)
    })
}

/// Whether no process ever introduced itself in an image, and no slot of it was ever used. A header that was destroyed looks as
/// one that was never finished, but not what is behind it.
fn is_unused(file: &File, length: u64) -> io::Result<bool> {
    let capacities = (0..=CAPACITY_MAX.ilog2()).map(|power| Plan::new(1 << power));
    let Some(plan) = capacities.into_iter().find(|plan| plan.bytes as u64 == length) else {
        return Ok(false);
    };
    let mut piece = vec![0; 64 << 10];
    let mut at = BLOCK_BYTES;
    while at < plan.pages_at {
        let bytes = piece.len().min(plan.pages_at - at);
        file.read_exact_at(&mut piece[..bytes], at as u64)?;
        if piece[..bytes].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += bytes;
    }
    Ok(true)
}

/// The mark in a database file, and whether the file is in WAL mode.
pub(crate) fn read_mark(base: &dyn Base) -> Result<(Option<Mark>, bool)> {
    let mut header = [0; mark::HEADER_BYTES];
    base.read(0, &mut header)?;
    Ok((mark::find(&header), mark::is_wal(&header)))
}

/// Attaches this process to the image of a database.
pub(crate) fn attach(database: &Path, base: Box<dyn Base>, limit_slots: Option<u32>) -> Result<Pool> {
    let places = Places::from_env()?;
    evict_databases_for_room(evict_for_room);
    let identity = Identity::of(database).map_err(SqliteError::io("examine", database))?;
    attach_at(&places, (database, identity), base, limit_slots)
}

/// The same, with the pool at a place of the caller's.
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
                // The one that was empty, and is nobody's any more, loses its gate when it is dropped.
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
        let options = private_options().read(true).write(true).create(true).truncate(false).open(path);
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
        Found::Fresh => Plan::capacity_for(u64::from(limit_slots.unwrap_or(LIMIT_SLOTS)) * HEADROOM),
        Found::Newer => {
            return Err(SqliteError::Newer { file: path.to_owned(), database: database.to_owned() });
        }
        Found::Unfinished | Found::Broken(_) => {
            let what = if let Found::Broken(what) = found { what } else { "it was never finished" };
            return Err(SqliteError::Damaged { image: path.to_owned(), database: database.to_owned(), what });
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
        format(&image, identity, limit_slots);
    }
    let (number, pid_space) = take_lease(&image, database)?;
    let owner = Owner::of(places)?;
    let pool = Pool::new(image, (database, identity), base, (number, pid_space), (places, owner));
    if others {
        // Whoever had this entry before is dead.
        pool.take_over(number);
    } else {
        pool.recover_alone((identity, marked), is_persistent, places.boot())?;
    }
    pool.introduce();
    pool.show_in_log();
    // Where that fails the keeper saves the database all the same, but does not know its name.
    let _ = pool.image.note_path(database);
    let header = pool.image.header();
    if let Some(slots) = limit_slots {
        header.limit.store(slots.min(capacity), Relaxed);
    }
    Ok(pool)
}

/// Decides what becomes of an image that is not sound, or of another boot, when nobody has it open.
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
        Found::Broken(what) if marked.is_some() => {
            Err(SqliteError::Damaged { image: path.to_owned(), database: database.to_owned(), what })
        }
        Found::Newer | Found::Broken(_) => clear(),
        Found::Sound(_) if places.pool_kind().outlives_boot() => Ok(found),
        Found::Sound(_) => {
            let mut boot = [0; 16];
            let at = std::mem::offset_of!(Header, boot) as u64;
            file.read_exact_at(&mut boot, at).map_err(SqliteError::io("read", path))?;
            if boot == places.boot() || boot == [0; 16] { Ok(found) } else { clear() }
        }
    }
}

fn format(image: &Image, identity: Identity, limit_slots: Option<u32>) {
    let header = image.header();
    let capacity = image.plan().capacity;
    header.magic.store(MAGIC, Relaxed);
    header.version.store(VERSION, Relaxed);
    header.capacity.store(capacity, Relaxed);
    for (word, value) in header.identity.iter().zip(identity.0) {
        word.store(value, Relaxed);
    }
    header.limit.store(limit_slots.unwrap_or(LIMIT_SLOTS).min(capacity), Relaxed);
    header.committed.store(1, Relaxed);
    header.flushed.store(1, Relaxed);
    header.applied.store(1, Relaxed);
    header.gathered.store(1, Relaxed);
    header.sum.store(static_sum(MAGIC, VERSION, capacity, identity), Release);
    image.write_back_header();
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
        let entry = self.image.process(self.number as usize);
        let known = ProcessId::current().ok();
        entry.readers.store(0, Relaxed);
        entry.start_ticks.store(known.map_or(0, |id| id.start_ticks), Relaxed);
        entry.pid_space.store(if known.is_some() { self.pid_space } else { 0 }, Relaxed);
        entry.pid.store(std::process::id(), Release);
        self.image.header().processes.fetch_max(self.number + 1, Release);
    }

    /// Brings an image in order that nobody else has open.
    fn recover_alone(
        &self,
        (identity, marked): (Identity, Option<Mark>),
        is_persistent: bool,
        boot: [u8; 16],
    ) -> Result<()> {
        let header = self.image.header();
        let nonce = header.nonce.load(Acquire);
        let since_log = header.log_base.load(Acquire)..=header.committed.load(Acquire);
        let is_hot = header.hot.load(Acquire) != 0;
        match marked {
            Some(mark) if is_hot && mark.nonce == nonce && mark.is_of(since_log) => {
                self.recover_image()?;
                self.end_leaving()?;
            }
            None if is_hot && header.closing.load(Acquire) != 0 => {
                copy::remove(&self.copies, nonce);
                Log::remove(&self.log_path()).map_err(SqliteError::io("remove", &self.log_path()))?;
                self.reset();
            }
            _ if is_hot => {
                let (database, image) = (self.database.clone(), self.image.path().to_owned());
                return Err(SqliteError::Replaced { database, image });
            }
            Some(mark) => {
                refuse_if_elsewhere((&self.database, identity), mark, &self.places, &self.owner)?;
                let (base, database, copies) = (self.base(), &self.database, &self.copies);
                Lost { base, database, identity, mark, copies }.recover()?;
                self.reset();
            }
            None => self.reset(),
        }
        for number in 0..PROCESSES_MAX {
            let entry = self.image.process(number);
            entry.readers.store(0, Relaxed);
            entry.pid.store(0, Relaxed);
        }
        for (word, half) in header.boot.iter().zip(boot.chunks_exact(8)) {
            word.store(u64::from_ne_bytes(half.try_into().unwrap_or_default()), Relaxed);
        }
        header.closing.store(0, Relaxed);
        if is_persistent {
            self.image.write_back_header();
        }
        Ok(())
    }

    /// An image whose processes all died.
    fn recover_image(&self) -> Result<()> {
        let header = self.image.header();
        let (committed, applied) = (header.committed.load(Acquire), header.applied.load(Acquire));
        if applied > header.flushed.load(Acquire) || header.flushed.load(Acquire) > committed {
            return Err(self.damaged("its counters contradict each other"));
        }
        header.commit_lock.store(0, Relaxed);
        header.log_lock.store(0, Relaxed);
        self.settle_dead_writer().map_err(|_| self.damaged("its slots lead astray"))?;
        header.writer.store(0, Release);
        if header.log_suspect.load(Relaxed) == 0 {
            header.log_suspect.store(CHECK, Relaxed);
        }
        self.check_first_page()
    }

    /// The first page knows how large the database is, if the one that wrote it is known to have said so.
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
        // SQLite's file format, 1.3.8: the size counts if the change counter and "version-valid-for" are the same.
        if word(24) == word(92) && u64::from(word(28)) * page_bytes > self.size() {
            return Err(self.damaged("it is shorter than its first page says"));
        }
        Ok(())
    }

    /// As an image that holds nothing, for a database file that is complete. Nobody else uses the image.
    pub(crate) fn reset(&self) {
        self.forget();
        let header = self.image.header();
        for word in [&header.commit_lock, &header.log_lock] {
            word.store(0, Relaxed);
        }
        header.writer.store(0, Relaxed);
        self.image.write_back_header();
    }

    /// The same, and others may wait for locks meanwhile.
    pub(crate) fn forget(&self) {
        let header = self.image.header();
        for link in 1..=header.backed.load(Relaxed) {
            if let Ok(slot) = self.image.slot(link) {
                slot.transaction.store(0, Relaxed);
            }
        }
        let committed = header.committed.load(Relaxed);
        for word in [&header.flushed, &header.applied, &header.gathered] {
            word.store(committed, Relaxed);
        }
        header.direct.store(0, Relaxed);
        // A mark that is found later is of a copy, and not to be believed.
        header.nonce.store(0, Relaxed);
        header.disk_journal.store(0, Relaxed);
        header.prepared.store(0, Relaxed);
        header.used.store(0, Relaxed);
        header.dirty.store(0, Relaxed);
        header.free_head.store(0, Relaxed);
        self.image.clear_buckets();
        header.hot.store(0, Release);
        self.image.write_back_header();
        header.closing.store(0, Release);
    }

    /// Leaves the image; whoever is the last brings everything to the database file and removes it.
    pub(crate) fn detach(self) -> Result<()> {
        if !self.is_ours() {
            return Ok(());
        }
        let _gate = self.enter_gate().ok_or_else(|| SqliteError::Busy { path: self.database.clone() })?;
        let entry = self.image.process(self.number as usize);
        entry.readers.store(0, Relaxed);
        entry.pid.store(0, Release);
        let others = self.has_others();
        if others.map_err(SqliteError::io("probe", self.image.path()))? || self.is_poisoned() {
            return Ok(());
        }
        if self.is_hot() {
            // Others that died may have left something to settle.
            self.recover_image()?;
            self.cool()?;
            if self.is_hot() {
                return Ok(());
            }
        }
        match std::fs::remove_file(self.image.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(SqliteError::Io { step: "remove", path: self.image.path().to_owned(), source: error })
            }
            _ => Ok(()),
        }
    }
}
