//! A pool belongs to one home. The pool has a record of its owner, the home has an identity; a home
//! whose identity is not the one in the record is refused, before a byte of the pool is written or
//! deleted.
//!
//! The record is the symbolic link `.owner` in the pool, whose target is the text
//! `holdfast-pool-1:IDENTITY:PATH`. A link is made whole or not at all, the first of two who make
//! it wins, and it needs no page of a pool that is full. Nothing follows it. The identity is a
//! random UUID in the file `identity` of the home, so a home can be moved; PATH says where the home
//! was seen last, tells people whose the pool is, and tells a moved home from a copied one.
//!
//! Invariants:
//! - A record is replaced only under the lock of the pool's directory, and only if the home in it
//!   is the same one, or is gone, or has gone over to another pool and left nothing here.
//! - A pool without a record (an earlier version made it) is taken only by a home that knows every
//!   image in it.
//! - A home that cannot store an identity (a full or read-only disk) is known by its path, which
//!   the record then says.
//! - Before a pool that outlives the boot has a record, the identity in it is durable; the record
//!   is before its first image.

#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_sys::file::{private_options, sync_directory};
use holdfast_sys::lock::{LockMode, try_lock};

use crate::error::place::PlaceError;
use crate::media::files::{addresses_path, image_path, names_in};
use crate::media::image::Image;
use crate::media::pool_kind::PoolKind;
use crate::name::RegionName;
use crate::names::key::{OwnerKey, is_owner};
use crate::names::one_pool;
use crate::store::base::open_base;
use crate::store::rescue::open_rescue;

/// The name of the record.
pub(crate) const RECORD: &str = ".owner";
const IDENTITY: &str = "identity";
const MAGIC: &[u8] = b"holdfast-pool-";
const VERSION: &[u8] = b"1";
/// In the place of the identity of a home that has none.
const NO_IDENTITY: &[u8] = b"-";
/// A link's target has at most 4095 bytes.
const PATH_BYTES_MAX: usize = 4000;
/// An identity file is 37 bytes long.
const IDENTITY_BYTES_MAX: u64 = 64;
/// Names that an error lists.
const NAMES_TOLD_MAX: usize = 3;
const LOCK_ATTEMPTS: u32 = 2000;
const PAUSE: Duration = Duration::from_millis(1);

/// The identity of a home: made once, and kept wherever the home is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HomeId([u8; 16]);

impl HomeId {
    fn text(id: Option<HomeId>) -> String {
        id.map_or_else(|| "-".to_owned(), |id| uuid::Uuid::from_bytes(id.0).to_string())
    }

    fn parse(text: &[u8]) -> Option<HomeId> {
        uuid::Uuid::try_parse_ascii(text.trim_ascii()).ok().map(|id| HomeId(id.into_bytes()))
    }

    /// That of the home at a path; `None` where there is none.
    fn read(home: &Path) -> io::Result<Option<HomeId>> {
        let mut text = Vec::new();
        match private_options().read(true).open(home.join(IDENTITY)) {
            Ok(file) => file.take(IDENTITY_BYTES_MAX).read_to_end(&mut text)?,
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        Ok(HomeId::parse(&text))
    }

    /// That of the home at a path, made if it has none; `None` where none can be stored.
    ///
    /// # Errors
    /// `Io` when there is one that cannot be read.
    pub(crate) fn of(home: &Path) -> Result<Option<HomeId>, PlaceError> {
        let path = home.join(IDENTITY);
        let found = HomeId::read(home).map_err(io_error("read", &path))?;
        if found.is_some() {
            return Ok(found);
        }
        // Of two processes that come at the same time, one makes it.
        let lock = locked(home);
        let found = HomeId::read(home).map_err(io_error("read", &path))?;
        if found.is_none() && lock.is_ok() && make_identity(home).is_err() {
            return Ok(None);
        }
        HomeId::read(home).map_err(io_error("read", &path))
    }
}

/// Half an identity would be none: it appears whole.
fn make_identity(home: &Path) -> io::Result<()> {
    let temporary = home.join(format!("{IDENTITY}.new"));
    let mut file = private_options().write(true).create(true).truncate(true).open(&temporary)?;
    file.write_all(format!("{}\n", uuid::Uuid::new_v4()).as_bytes())?;
    std::fs::rename(&temporary, home.join(IDENTITY))
}

/// What a pool's record says.
#[derive(Debug, PartialEq, Eq)]
struct Record {
    id: Option<HomeId>,
    home: PathBuf,
}

impl Record {
    /// The record of a pool; `None` where there is none.
    fn read(root: &Path) -> Result<Option<Record>, PlaceError> {
        let path = root.join(RECORD);
        let target = match std::fs::read_link(&path) {
            Ok(target) => target.into_os_string().into_vec(),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                return Err(PlaceError::PoolRecord { path, what: "is no symbolic link" });
            }
            Err(error) => return Err(io_error("read", &path)(error)),
        };
        let mut parts =
            target.strip_prefix(MAGIC).unwrap_or_default().splitn(3, |byte| *byte == b':');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(VERSION), Some(id), Some(home)) => {
                let parsed = HomeId::parse(id);
                if parsed.is_none() && id != NO_IDENTITY {
                    return Err(PlaceError::PoolRecord { path, what: "is damaged" });
                }
                Ok(Some(Record { id: parsed, home: PathBuf::from(OsStr::from_bytes(home)) }))
            }
            (Some(version), Some(_), _) if !version.is_empty() => {
                Err(PlaceError::PoolRecord { path, what: "was made by a newer version" })
            }
            _ => Err(PlaceError::PoolRecord { path, what: "is damaged" }),
        }
    }
}

/// What the record of a home says.
pub(crate) fn target(id: Option<HomeId>, home: &Path) -> PathBuf {
    let home = home.as_os_str().as_bytes();
    let home = if home.len() > PATH_BYTES_MAX { &[] } else { home };
    let head = [MAGIC, VERSION, b":", HomeId::text(id).as_bytes(), b":"].concat();
    PathBuf::from(OsStr::from_bytes(&[head.as_slice(), home].concat()))
}

/// What has become of the home in a record.
#[derive(Debug, PartialEq, Eq)]
enum Owner {
    /// It is there, or that is not known.
    Alive,
    /// Something else, or nothing, is where it was.
    Gone,
}

/// A home and a pool that it wants to use.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    /// The home, canonical.
    pub(crate) home: &'a Path,
    pub(crate) id: Option<HomeId>,
    /// The directory that was named as the pool: where the record is.
    pub(crate) root: &'a Path,
    /// Where the images of this boot are: the same, but for a pool on a disk.
    pub(crate) images: &'a Path,
    pub(crate) kind: PoolKind,
    /// Whether the pool has the name that the home's default pool has.
    pub(crate) is_default: bool,
    /// A person says that what is in the pool is this home's.
    pub(crate) adopts: bool,
}

impl Claim<'_> {
    /// Makes sure that the pool is this home's. True if it was not before.
    ///
    /// # Errors
    /// `PoolOfOther`, `PoolOfCopy`, `PoolOfLost`, `PoolRecord`, `Io`; then nothing was changed.
    pub(crate) fn take(&self) -> Result<bool, PlaceError> {
        if Record::read(self.root)?.is_some_and(|record| self.is_current(&record)) {
            return Ok(false);
        }
        let _lock = locked(self.root).map_err(io_error("lock", self.root))?;
        let ours = Record { id: self.id, home: self.home.to_owned() };
        match Record::read(self.root)? {
            Some(record) if self.is_current(&record) => Ok(false),
            None => {
                let known_by_name = self.is_default || self.is_noted();
                self.check_contents(known_by_name, known_by_name, None)?;
                self.forget_addresses()?;
                self.make_durable_before()?;
                match symlink(target(ours.id, &ours.home), self.root.join(RECORD)) {
                    // It was made by a process that had no patience for the lock.
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                        let found = Record::read(self.root)?.unwrap_or(ours);
                        self.refuse_other(&found)?;
                    }
                    made => made.map_err(io_error("make", &self.root.join(RECORD)))?,
                }
                self.make_durable_after()?;
                Ok(true)
            }
            Some(record) => {
                self.refuse_other(&record)?;
                self.forget_addresses()?;
                self.make_durable_before()?;
                self.replace(&ours)?;
                self.make_durable_after()?;
                Ok(true)
            }
        }
    }

    /// Which addresses are free was remembered for the home that had the pool.
    fn forget_addresses(&self) -> Result<(), PlaceError> {
        let path = addresses_path(self.images);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(io_error("remove", &path)(error))
            }
            _ => Ok(()),
        }
    }

    /// Takes back what [`Claim::take`] did, when the pool cannot be used for another reason.
    pub(crate) fn give_up(&self) {
        if self.is_empty()
            && Record::read(self.root)
                .is_ok_and(|found| found.is_some_and(|found| self.is_current(&found)))
        {
            let _ = std::fs::remove_file(self.root.join(RECORD));
        }
    }

    fn is_current(&self, record: &Record) -> bool {
        let same_path =
            record.home == self.home || record.id.is_some() && record.home.as_os_str().is_empty();
        // A home that could not store an identity when these places were made may have one by now.
        let has_now =
            || self.id.is_none() && HomeId::read(self.home).is_ok_and(|found| found == record.id);
        same_path && (record.id == self.id || has_now())
    }

    /// Whether a record may make way for ours.
    fn refuse_other(&self, record: &Record) -> Result<(), PlaceError> {
        let pool = || self.root.to_owned();
        let (home, owner) = (self.home.to_owned(), record.home.clone());
        if record.id.is_some() && record.id == self.id {
            // The home was moved, is seen through another path, or was copied.
            let is_copy = is_alive(record) == Owner::Alive && !is_same(&record.home, self.home);
            return if is_copy {
                Err(PlaceError::PoolOfCopy { pool: pool(), home, owner })
            } else {
                Ok(())
            };
        }
        let same_path = record.home == self.home;
        if record.id.is_none() && same_path {
            return Ok(());
        }
        match is_alive(record) {
            Owner::Alive if self.is_empty() && one_pool::uses_another(&record.home, self.root) => {
                Ok(())
            }
            Owner::Alive => Err(PlaceError::PoolOfOther { pool: pool(), home, owner }),
            // Databases are named by their files and not by a home: at the same path they are the
            // same user's.
            Owner::Gone => self.check_contents(false, same_path, Some(&record.home)),
        }
    }

    fn replace(&self, ours: &Record) -> Result<(), PlaceError> {
        let (path, temporary) = (self.root.join(RECORD), self.root.join(".owner.new"));
        // The lock is ours: what is there was left by a process that died.
        match std::fs::remove_file(&temporary) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(io_error("remove", &temporary)(error));
            }
            _ => {}
        }
        symlink(target(ours.id, &ours.home), &temporary).map_err(io_error("make", &temporary))?;
        std::fs::rename(&temporary, &path).map_err(io_error("replace", &path))
    }

    fn make_durable_before(&self) -> Result<(), PlaceError> {
        if self.kind == PoolKind::Tmpfs || self.id.is_none() {
            return Ok(());
        }
        let path = self.home.join(IDENTITY);
        let synced = private_options().read(true).open(&path).and_then(|file| file.sync_all());
        synced.and_then(|()| sync_directory(self.home)).map_err(io_error("make durable", &path))
    }

    fn make_durable_after(&self) -> Result<(), PlaceError> {
        if self.kind == PoolKind::Tmpfs {
            return Ok(());
        }
        sync_directory(self.root).map_err(io_error("make durable", self.root))
    }

    /// Whether nothing is in the pool that a program would miss.
    fn is_empty(&self) -> bool {
        let is_image = |entry: std::fs::DirEntry| {
            let path = entry.path();
            path.extension().is_some_and(|extension| extension == "image" || extension == "sqlite")
        };
        match std::fs::read_dir(self.images) {
            Ok(entries) => !entries.flatten().any(is_image),
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }

    /// Refuses a pool with images that this home does not know: `new_ones`, that never had a
    /// checkpoint, and `databases` may count as known.
    fn check_contents(
        &self,
        new_ones: bool,
        databases: bool,
        owner: Option<&Path>,
    ) -> Result<(), PlaceError> {
        if self.adopts {
            return self.check_adoption();
        }
        let mut unknown = Vec::new();
        for name in self.image_names()? {
            if !self.knows(&name, new_ones) {
                unknown.push(name.to_string());
            }
        }
        if !databases {
            unknown.extend(self.databases()?);
        }
        if unknown.is_empty() {
            return Ok(());
        }
        let (count, owner) = (unknown.len(), owner.map(Path::to_owned));
        unknown.truncate(NAMES_TOLD_MAX);
        let names = unknown.join(", ") + if count > NAMES_TOLD_MAX { ", ..." } else { "" };
        Err(PlaceError::PoolOfLost {
            pool: self.root.to_owned(),
            home: self.home.to_owned(),
            owner,
            names,
        })
    }

    /// What a person says is believed, but where it would make one region of two.
    fn check_adoption(&self) -> Result<(), PlaceError> {
        for name in self.image_names()? {
            let image = Image::open(image_path(self.images, &name), &name, false).ok();
            let base = open_base(&self.home.join("store"), &name).ok();
            if let (Some(image), Some(base)) = (image, base)
                && image.header.uuid != base.header.uuid
            {
                let (pool, home) = (self.root.to_owned(), self.home.to_owned());
                return Err(PlaceError::PoolClash { pool, home, name: name.to_string() });
            }
        }
        Ok(())
    }

    /// Whether an image is one of this home's regions: its store has the region, or a key of its
    /// owns it.
    fn knows(&self, name: &RegionName, new_ones: bool) -> bool {
        let store = self.home.join("store");
        let stored = [open_base(&store, name), open_rescue(&store, name)].into_iter().flatten();
        let stored: Vec<[u8; 16]> = stored.map(|file| file.header.uuid).collect();
        let Ok(image) = Image::open(image_path(self.images, name), name, false) else {
            // It tells nothing: the name has to do.
            return !stored.is_empty() || new_ones;
        };
        let header = &image.header;
        if !stored.is_empty() {
            return stored.contains(&header.uuid);
        }
        new_ones && header.checkpoint_count == 0 || self.has_key(name, header.owner_fingerprint)
    }

    fn has_key(&self, name: &RegionName, owner: [u8; 32]) -> bool {
        let Ok(entries) = std::fs::read_dir(self.home.join("keys")) else { return false };
        let keys = entries.flatten().map(|entry| entry.path());
        keys.filter(|path| path.extension() == Some(OsStr::new("key"))).any(|path| {
            let mut secret = [0; 32];
            let file = private_options().read(true).open(path);
            file.and_then(|mut file| file.read_exact(&mut secret)).is_ok()
                && is_owner(name, owner, &OwnerKey::from_bytes(secret))
        })
    }

    fn image_names(&self) -> Result<Vec<RegionName>, PlaceError> {
        names_in(self.images, "image")
            .map_err(|error| io_error("list", self.images)(io::Error::other(error.to_string())))
    }

    fn databases(&self) -> Result<Vec<String>, PlaceError> {
        let entries = match std::fs::read_dir(self.images) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(io_error("list", self.images))?,
        };
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        Ok(names.filter(|name| name.ends_with(".sqlite")).collect())
    }

    /// Whether the note that every version left in a new pool names this home.
    fn is_noted(&self) -> bool {
        let note = std::fs::read(self.root.join("home")).unwrap_or_default();
        note.strip_suffix(b"\n") == Some(self.home.as_os_str().as_bytes())
    }
}

fn is_alive(record: &Record) -> Owner {
    if record.home.as_os_str().is_empty() {
        return Owner::Alive;
    }
    let is_there = match record.id {
        // A home of which nothing but the path is known.
        None => record.home.join("store").symlink_metadata().map(|_| true),
        id => HomeId::read(&record.home).map(|found| found == id),
    };
    match is_there {
        Ok(true) => Owner::Alive,
        Ok(false) => Owner::Gone,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Owner::Gone
        }
        Err(_) => Owner::Alive,
    }
}

/// Whether two paths lead to one directory.
fn is_same(one: &Path, other: &Path) -> bool {
    let of = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino())).ok();
    of(one).is_some() && of(one) == of(other)
}

/// The lock of a directory, as long as the file is open.
fn locked(directory: &Path) -> io::Result<File> {
    let file = File::open(directory)?;
    for _ in 0..LOCK_ATTEMPTS {
        if try_lock(&file, LockMode::Exclusive)? {
            return Ok(file);
        }
        std::thread::sleep(PAUSE);
    }
    Err(ErrorKind::TimedOut.into())
}

fn io_error(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PlaceError {
    move |source| PlaceError::Io { step, path: path.to_owned(), source }
}
