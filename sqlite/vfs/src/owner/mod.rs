//! Finds the pool with the newest commits of a marked database, and whether that pool can still
//! exist. `elsewhere.rs` decides by it whether a database is refused.
//!
//! The process that makes a database hot writes its [`Owner`] into the header block of the redo
//! log: the boot, the pool (a random number, the identity of each directory on its path) and, for
//! messages, the path of the pool, the home and the user. The mark in the database file carries a
//! short [`Tag`] of boot and pool, for the case that the log is missing.
//!
//! Invariants:
//! - A pool that cannot be seen is not a pool that is lost: it is lost when the machine was started
//!   anew and the pool does not outlive that, or was made anew since, or when the directory it was
//!   in is here and the pool, or its image, is not in it.
//! - The record is read from a folder that others may write to: it is bounded, has a sum, and
//!   decides only about a refusal.
//! - Marks and logs of earlier versions say nothing of this; they are treated as if their pool was
//!   the one in use.

#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use holdfast_region::Places;
use holdfast_sys::file::{effective_user, is_mount_root, private_options};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Result, SqliteError};
use crate::image::{BLOCK_BYTES, HeaderCopy};

pub(crate) mod elsewhere;

/// Where the record is in the log's header block, and how long it is.
pub(crate) const OWNER_AT: usize = 512;
pub(crate) const OWNER_BYTES: usize = BLOCK_BYTES - OWNER_AT;
const OWNER_MAGIC: &[u8; 8] = b"HFowner\x01";
/// Before the identities of the directories: magic, sum, boot, pool, flags, user, three counts.
const FIXED_BYTES: usize = 72;
const OUTLIVES_BOOT: u32 = 1;
/// The file in a pool with its number.
const ID_FILE: &str = "sqlite-pool-id";
const ID_BYTES: usize = 16;
/// In a [`Tag`]: the pool is memory that outlives the boot.
const ANY_BOOT: u16 = 0;

/// The pool that has the newest commits of a database, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    boot: [u8; 16],
    id: [u8; ID_BYTES],
    outlives_boot: bool,
    user: u32,
    /// Device and inode of each directory on the path of the pool, from `/` on; empty where they
    /// did not fit.
    directories: Vec<[u64; 2]>,
    pool: PathBuf,
    home: PathBuf,
}

/// What the mark says of boot and pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) boot: u16,
    pub(crate) pool: u16,
}

/// Why a database is not recovered without the image that its mark speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Whereabouts {
    /// The pool is there, and has the image, or may not be looked into.
    Present,
    /// The pool cannot be seen: it is in another mount name space, or something else is mounted on
    /// its path, or it was moved.
    Hidden,
    /// The pool is gone, and a keeper of its home has saved what it had, or may have.
    Saved,
    /// Nothing says which pool it is, but that it is another one, of this boot.
    Unknown,
}

/// What became of a directory.
#[derive(Debug, PartialEq, Eq)]
enum Sight {
    SeenFile,
    Hidden,
    Gone,
}

impl Owner {
    /// This process's own.
    pub(crate) fn of(places: &Places) -> Result<Owner> {
        let read =
            |source| SqliteError::Io { step: "examine", path: places.pool().to_owned(), source };
        let pool = places.pool().canonicalize().map_err(read)?;
        let directories: io::Result<Vec<[u64; 2]>> = prefixes(&pool)
            .map(|path| path.symlink_metadata().map(|found| identity(&found)))
            .collect();
        Ok(Owner {
            boot: places.boot(),
            id: pool_id(&pool)?,
            // What is emulated ends with the boot all the same.
            outlives_boot: places.pool_kind().outlives_boot() && !places.is_emulated(),
            user: effective_user(),
            directories: directories.map_err(read)?,
            pool,
            home: places.home().to_owned(),
        })
    }

    /// The directory of the pool.
    #[must_use]
    pub fn pool(&self) -> &Path {
        &self.pool
    }

    /// The home that it belongs to.
    #[must_use]
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The number of the user.
    #[must_use]
    pub fn user(&self) -> u32 {
        self.user
    }

    pub(crate) fn tag(&self) -> Tag {
        let short = |bytes: &[u8]| (xxh3_64(bytes) as u16).max(1);
        let boot = if self.outlives_boot { ANY_BOOT } else { short(&self.boot) };
        Tag { boot, pool: short(&self.id) }
    }

    fn is_pool_of(&self, other: &Owner) -> bool {
        let is_same_directory = self.boot == other.boot
            && !self.directories.is_empty()
            && self.directories.last() == other.directories.last();
        self.id == other.id || is_same_directory
    }

    /// As it is stored. Paths that do not fit are left out: then nothing is believed to be gone.
    pub(crate) fn to_bytes(&self) -> [u8; OWNER_BYTES] {
        let mut bytes = [0; OWNER_BYTES];
        let (mut pool, mut home) =
            (self.pool.as_os_str().as_bytes(), self.home.as_os_str().as_bytes());
        let mut directories = &self.directories[..];
        let length = |parts: usize, pool: &[u8], home: &[u8]| {
            FIXED_BYTES + parts * 16 + pool.len() + home.len()
        };
        if length(directories.len(), pool, home) > OWNER_BYTES {
            directories = &[];
        }
        if length(directories.len(), pool, home) > OWNER_BYTES {
            home = &[];
        }
        if length(directories.len(), pool, home) > OWNER_BYTES {
            pool = &[];
        }
        bytes[..8].copy_from_slice(OWNER_MAGIC);
        bytes[16..32].copy_from_slice(&self.boot);
        bytes[32..48].copy_from_slice(&self.id);
        let flags = if self.outlives_boot { OUTLIVES_BOOT } else { 0 };
        let words =
            [flags, self.user, directories.len() as u32, pool.len() as u32, home.len() as u32];
        for (number, word) in words.into_iter().enumerate() {
            bytes[48 + number * 4..52 + number * 4].copy_from_slice(&word.to_le_bytes());
        }
        let rest = directories.iter().flatten().flat_map(|word| word.to_le_bytes());
        let rest = rest.chain(pool.iter().copied()).chain(home.iter().copied());
        for (place, byte) in bytes[FIXED_BYTES..].iter_mut().zip(rest) {
            *place = byte;
        }
        let sum = xxh3_64(&bytes[16..]);
        bytes[8..16].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// What is stored, if it is whole.
    pub(crate) fn from_bytes(bytes: &[u8; OWNER_BYTES]) -> Option<Owner> {
        let sum = u64::from_le_bytes(bytes[8..16].try_into().ok()?);
        if &bytes[..8] != OWNER_MAGIC || sum != xxh3_64(&bytes[16..]) {
            return None;
        }
        let word = |number: usize| {
            let at = 48 + number * 4;
            u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default())
        };
        let [flags, user, count, pool, home] = [0, 1, 2, 3, 4].map(word);
        let end = FIXED_BYTES.checked_add((count as usize).checked_mul(16)?)?;
        let (pool_end, length) = (end.checked_add(pool as usize)?, pool as usize + home as usize);
        let directories = bytes.get(FIXED_BYTES..end)?;
        let long = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        let directories =
            directories.chunks_exact(16).map(|pair| [long(&pair[..8]), long(&pair[8..])]).collect();
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        Some(Owner {
            boot: bytes[16..32].try_into().ok()?,
            id: bytes[32..48].try_into().ok()?,
            outlives_boot: flags & OUTLIVES_BOOT != 0,
            user,
            directories,
            pool: path(bytes.get(end..pool_end)?),
            home: path(bytes.get(pool_end..end.checked_add(length)?)?),
        })
    }

    /// Whether its pool, and the image of a nonce in it, can be seen from here, in the boot of the
    /// owner.
    fn look(&self, nonce: u64) -> Sight {
        let paths: Vec<PathBuf> = prefixes(&self.pool).collect();
        if paths.len() != self.directories.len() {
            return Sight::Hidden;
        }
        for (number, (path, expected)) in paths.iter().zip(&self.directories).enumerate() {
            match path.symlink_metadata() {
                Ok(found) if identity(&found) == *expected => {}
                found if number > 0 => {
                    let parent = (paths[number - 1].as_path(), self.directories[number - 1]);
                    return replaced(path, *expected, parent, found);
                }
                _ => return Sight::Hidden,
            }
        }
        match image_of(&self.pool, nonce) {
            Ok(None) => Sight::Gone,
            Ok(Some(_)) | Err(_) => Sight::SeenFile,
        }
    }

    /// The same in a later boot, of a pool that outlives it: it is where it was, if such memory is
    /// mounted there. Memory that was lost, as in a power cut, has a pool with another number, or
    /// none with images.
    fn look_later(&self, nonce: u64, is_persistent: impl Fn(&Path) -> bool) -> Sight {
        if !is_persistent(&self.pool) {
            return Sight::Hidden;
        }
        match read_id(&self.pool.join(ID_FILE)) {
            Ok(Some(id)) if id != self.id => Sight::Gone,
            Ok(Some(_)) => match image_of(&self.pool, nonce) {
                Ok(None) => Sight::Gone,
                Ok(Some(_)) | Err(_) => Sight::SeenFile,
            },
            Ok(None) | Err(_) => Sight::Hidden,
        }
    }
}

/// What it means that something else, or nothing, is where a directory was, whose parent is the one
/// that it was.
fn replaced(
    path: &Path,
    expected: [u64; 2],
    (parent, of_parent): (&Path, [u64; 2]),
    found: io::Result<Metadata>,
) -> Sight {
    let was_mount = expected[0] != of_parent[0];
    let is_covered = match &found {
        Ok(found) => {
            found.dev() != of_parent[0] || is_mount_root(path).ok().flatten() != Some(false)
        }
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    };
    if was_mount || is_covered {
        return Sight::Hidden;
    }
    let Ok(entries) = std::fs::read_dir(parent) else { return Sight::Hidden };
    let is_it = |entry: io::Result<std::fs::DirEntry>| {
        entry.and_then(|entry| entry.metadata()).is_ok_and(|found| identity(&found) == expected)
    };
    // It has another name now, or it was removed.
    if entries.into_iter().any(is_it) { Sight::Hidden } else { Sight::Gone }
}

fn identity(found: &Metadata) -> [u64; 2] {
    [found.dev(), found.ino()]
}

/// `/`, and each directory on the way to a path, it included.
fn prefixes(path: &Path) -> impl Iterator<Item = PathBuf> {
    let mut prefixes: Vec<PathBuf> = path.ancestors().map(Path::to_owned).collect();
    prefixes.reverse();
    prefixes.into_iter()
}

/// The number of a pool, drawn when it is asked for the first time.
fn pool_id(pool: &Path) -> Result<[u8; ID_BYTES]> {
    let path = pool.join(ID_FILE);
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::StorageFull => SqliteError::PoolFull { path: path.clone(), source },
        _ => SqliteError::Io { step: "number the pool in", path: path.clone(), source },
    };
    if let Some(id) = read_id(&path).map_err(failed)? {
        return Ok(id);
    }
    // Whole from the moment that it has its name; of two who come at the same time one is first.
    let drawn = uuid::Uuid::new_v4().into_bytes();
    let temporary = pool.join(format!(".{ID_FILE}-{:032x}", u128::from_ne_bytes(drawn)));
    let written = private_options()
        .write(true)
        .create_new(true)
        .open(&temporary)
        .and_then(|mut file| file.write_all(&drawn).and_then(|()| file.sync_all()));
    let named = written.and_then(|()| match std::fs::hard_link(&temporary, &path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        named => named,
    });
    let _ = std::fs::remove_file(&temporary);
    named.map_err(failed)?;
    read_id(&path).map_err(failed)?.ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))
}

/// The number in a file; `None` where there is none.
fn read_id(path: &Path) -> io::Result<Option<[u8; ID_BYTES]>> {
    let mut id = [0; ID_BYTES];
    match private_options().read(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        file => file?.read_exact(&mut id).map(|()| Some(id)),
    }
}

/// The image in a pool that holds the newest state under a nonce. One that cannot be read may be
/// it.
pub(crate) fn image_of(pool: &Path, nonce: u64) -> io::Result<Option<PathBuf>> {
    for entry in std::fs::read_dir(pool)? {
        let path = entry?.path();
        if path.extension() != Some(OsStr::new("sqlite")) {
            continue;
        }
        let file = match private_options().read(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file?,
        };
        if HeaderCopy::read(&file)?.is_some_and(|header| header.holds(nonce)) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// A path for a message: the record that it comes from may be anybody's.
pub(crate) fn printable(path: &Path) -> String {
    let text = path.display().to_string();
    text.chars()
        .map(|letter| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter })
        .collect()
}

/// What is typed to confirm that a pool is lost: its path, or `unknown`.
pub(crate) fn name_of_pool(owner: Option<&Owner>) -> OsString {
    match owner {
        Some(owner) if !owner.pool.as_os_str().is_empty() => owner.pool.as_os_str().to_owned(),
        _ => "unknown".into(),
    }
}

/// For the message of `Elsewhere`.
pub(crate) fn describe(
    database: &Path,
    log: &Path,
    owner: Option<&Owner>,
    whereabouts: Whereabouts,
) -> String {
    let name = printable(Path::new(&name_of_pool(owner)));
    let database = database.display();
    let (place, remedy) = match owner {
        Some(owner) => {
            let (pool, home, user) = (&name, printable(&owner.home), owner.user);
            let why = match whereabouts {
                Whereabouts::Hidden => {
                    ", which cannot be seen from here (a container, another mount)"
                }
                Whereabouts::Saved => {
                    ", which is gone, and a keeper of that home may have saved them"
                }
                Whereabouts::Present | Whereabouts::Unknown => "",
            };
            (
                format!("the pool {pool} of the home {home} of user {user}{why}"),
                format!(
                    "open it with HOLDFAST_HOME={home} HOLDFAST_POOL={pool}, as that user, or run \
                     `holdfast sqlite checkpoint` with these to bring them into the file"
                ),
            )
        }
        None => (
            "a pool that is not the one in use here".to_owned(),
            format!(
                "open it from the home that wrote them last (the redo log {}, which names it, cannot \
                 be read)",
                log.display()
            ),
        ),
    };
    format!(
        "the newest commits of {database} are in {place}; {remedy}. Nothing was changed. Only if that \
         pool is gone for good: `holdfast sqlite recover --discard --lost-pool {name} {database}` drops \
         all commits since the last flush"
    )
}
