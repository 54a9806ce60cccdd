//! The directories: home, store, keys, cache and pool.
//!
//! Invariants: a [`Places`] that exists was checked. Its directories exist, belong to this user,
//! are closed to others (of the home: to their writing), and the pool is no symbolic link; so no
//! other user could have put a file there, or another directory in the place of one of these. Other
//! users can create names in /dev/shm before us; they get us an error, never our data. Home, store,
//! keys and pool are durable before anything is in them.
//!
//! A pool that is no memory keeps its files over a reboot, and a power cut leaves them in any
//! state. What is in it is therefore of one boot, as are images on the disk: see
//! [`Places::images`]. A pool in persistent memory is not: its images say of which boot they are
//! (see [`PoolKind`]).

#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use holdfast_sys::file::{effective_user, is_volatile_memory, sync_directory};
use holdfast_sys::private_group::is_private_group;
use holdfast_sys::process::boot_id;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::place::PlaceError;
use crate::media::files::{image_path, is_missing, redo_path};
use crate::media::medium::Medium;
use crate::media::pool_kind::{PoolKind, Survives};
use crate::name::RegionName;
use crate::names::one_pool::take_into_use;
use crate::names::pool_owner::{Claim, HomeId, RECORD, target};

/// The directories of one home. See the module for what is guaranteed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    home: PathBuf,
    store: PathBuf,
    keys: PathBuf,
    cache: PathBuf,
    pool: PathBuf,
    pool_kind: PoolKind,
    /// The pool is a tmpfs that is treated as what `pool_kind` says.
    emulated: bool,
    boot: [u8; 16],
    /// Where other boots have theirs, if the pool is on a disk.
    pools: Option<PathBuf>,
    /// The directory of images on the disk, and in it the one of this boot.
    disk_images: PathBuf,
    images_of_boot: PathBuf,
    id: Option<HomeId>,
    /// Whether the pool has the name of the home's default pool.
    is_default: bool,
    /// Where the record of the pool's owner is, and what it says.
    owner_record: PathBuf,
    owner_target: PathBuf,
}

impl Places {
    /// The places that the environment names: `HOLDFAST_HOME`, `HOLDFAST_POOL` and the XDG
    /// variables. Creates what is missing.
    ///
    /// # Errors
    /// [`PlaceError`] says which directory cannot be used, why, and what to do.
    pub fn from_env() -> Result<Places, PlaceError> {
        Places::from_variables(|name| std::env::var_os(name), Path::new("/dev/shm"))
    }

    /// As [`Places::from_env`], for a pool of a home that is gone: what is in it becomes this
    /// home's.
    ///
    /// # Errors
    /// As [`Places::from_env`]; `PoolOfOther` and `PoolOfCopy` while the home that it belongs to is
    /// there; `PoolClash` when both have a heap of one name.
    pub fn adopt_from_env() -> Result<Places, PlaceError> {
        Places::find(|name| std::env::var_os(name), Path::new("/dev/shm"), true)
    }

    /// As [`Places::at`], with what [`Places::adopt_from_env`] does.
    ///
    /// # Errors
    /// As there.
    pub fn adopt_at(
        home: impl Into<PathBuf>,
        pool: impl Into<PathBuf>,
    ) -> Result<Places, PlaceError> {
        let home = home.into();
        let cache = home.join("cache");
        Places::prepare(home, cache, |_| Ok(pool.into()), None, true)
    }

    /// As [`Places::from_env`], with the variables from `lookup` and the first choice of tmpfs from
    /// `tmpfs`.
    ///
    /// # Errors
    /// As [`Places::from_env`].
    pub fn from_variables(
        lookup: impl Fn(&str) -> Option<OsString>,
        tmpfs: &Path,
    ) -> Result<Places, PlaceError> {
        Places::find(lookup, tmpfs, false)
    }

    fn find(
        lookup: impl Fn(&str) -> Option<OsString>,
        tmpfs: &Path,
        adopts: bool,
    ) -> Result<Places, PlaceError> {
        let given = |variable: &'static str| -> Result<Option<PathBuf>, PlaceError> {
            match lookup(variable).filter(|value| !value.is_empty()).map(PathBuf::from) {
                Some(value) if value.is_relative() => {
                    Err(PlaceError::NotAbsolute { variable, value })
                }
                other => Ok(other),
            }
        };
        // The XDG specification has relative values ignored, not refused.
        let xdg = |name: &str| lookup(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let user_home = || xdg("HOME").ok_or(PlaceError::NoHome);
        let explicit_home = given("HOLDFAST_HOME")?;
        let (home, cache) = match explicit_home {
            Some(home) => {
                let cache = home.join("cache");
                (home, cache)
            }
            None => (
                match xdg("XDG_DATA_HOME") {
                    Some(data) => data.join("holdfast"),
                    None => user_home()?.join(".local/share/holdfast"),
                },
                match xdg("XDG_CACHE_HOME") {
                    Some(cache) => cache.join("holdfast"),
                    None => user_home()?.join(".cache/holdfast"),
                },
            ),
        };
        let emulation = match lookup("HOLDFAST_EMULATE_DAX") {
            Some(value) if value == "1" => Some(boot_of_machine()?),
            _ => None,
        };
        match given("HOLDFAST_POOL")? {
            Some(pool) => Places::prepare(home, cache, |_| Ok(pool), emulation, adopts),
            None => {
                let runtime = xdg("XDG_RUNTIME_DIR");
                let pool = |home: &Path| default_pool(home, tmpfs, runtime.as_deref());
                Places::prepare(home, cache, pool, emulation, adopts)
            }
        }
    }

    /// The places below `home`, with the pool at `pool`, which may be on any file system. Creates
    /// what is missing.
    ///
    /// # Errors
    /// As [`Places::from_env`].
    pub fn at(home: impl Into<PathBuf>, pool: impl Into<PathBuf>) -> Result<Places, PlaceError> {
        let home = home.into();
        let cache = home.join("cache");
        Places::prepare(home, cache, |_| Ok(pool.into()), None, false)
    }

    /// As [`Places::at`], with the pool *treated as* persistent memory that survives a reset, in a
    /// boot that the caller makes up. For tests and measurements where there is no such memory:
    /// another `boot` is what a reset looks like from above. Nothing is durable by this: a tmpfs is
    /// gone after a real reset. What `HOLDFAST_EMULATE_DAX=1` does, with the boot of the machine.
    ///
    /// # Errors
    /// As [`Places::from_env`]; `NotEmulable` when the pool is neither a tmpfs nor persistent
    /// memory (of which then only the boot is made up).
    pub fn at_emulated_dax(
        home: impl Into<PathBuf>,
        pool: impl Into<PathBuf>,
        boot: [u8; 16],
    ) -> Result<Places, PlaceError> {
        let home = home.into();
        let cache = home.join("cache");
        Places::prepare(home, cache, |_| Ok(pool.into()), Some(boot), false)
    }

    fn prepare(
        home: PathBuf,
        cache: PathBuf,
        pool: impl FnOnce(&Path) -> Result<PathBuf, PlaceError>,
        emulation: Option<[u8; 16]>,
        adopts: bool,
    ) -> Result<Places, PlaceError> {
        create_durably(&[&home])?;
        let home = home.canonicalize().map_err(io_error("resolve", &home))?;
        check_home(&home)?;
        let (store, keys) = (home.join("store"), home.join("keys"));
        create_durably(&[&store, &keys])?;
        for directory in [&store, &keys] {
            check_directory(directory, true)?;
        }
        // Collecting the components drops a trailing slash, which would make lstat follow a link.
        let pool: PathBuf = pool(&home)?.components().collect();
        create_durably(&[&pool])?;
        check_directory(&pool, true)?;
        let found = PoolKind::of(&pool).map_err(io_error("examine", &pool))?;
        let (pool_kind, emulated) = match (found, emulation) {
            (PoolKind::Tmpfs, Some(_)) => (PoolKind::Dax { survives: Survives::Reset }, true),
            (PoolKind::Disk, Some(_)) => return Err(PlaceError::NotEmulable { pool }),
            (found, _) => (found, false),
        };
        let disk_images = home.join("images");
        let boot = emulation.map_or_else(boot_of_machine, Ok)?;
        let boot_text = uuid::Uuid::from_bytes(boot).to_string();
        let images_of_boot = disk_images.join(&boot_text);
        let is_default = pool.file_name().is_some_and(|name| *name == *default_name(&home));
        let id = HomeId::of(&home)?;
        let (pool, pools) = match pool_kind {
            PoolKind::Disk => (pool.join(&boot_text), Some(pool)),
            _ => (pool, None),
        };
        let places = Places {
            owner_record: pools.as_ref().unwrap_or(&pool).join(RECORD),
            owner_target: target(id, &home),
            home,
            store,
            keys,
            cache,
            pool,
            pool_kind,
            emulated,
            boot,
            pools,
            disk_images,
            images_of_boot,
            id,
            is_default,
        };
        let claim = places.claim(adopts);
        let is_new = claim.take()?;
        // What is emulated ends with the boot all the same.
        take_into_use(&places.home, &boot_text, places.pool_root(), found).inspect_err(|_| {
            if is_new {
                claim.give_up();
            }
        })?;
        note_home(places.pool_root(), &places.home);
        if places.pools.is_some() {
            create_private(&places.pool)?;
            check_directory(&places.pool, true)?;
        }
        Ok(places)
    }

    fn claim(&self, adopts: bool) -> Claim<'_> {
        Claim {
            home: &self.home,
            id: self.id,
            root: self.pool_root(),
            images: &self.pool,
            kind: self.pool_kind,
            is_default: self.is_default,
            adopts,
        }
    }

    /// The directory that was named as the pool.
    fn pool_root(&self) -> &Path {
        self.pools.as_ref().unwrap_or(&self.pool)
    }

    /// Whether the pool still is this home's: it may have been emptied by hand, and another home
    /// may have taken it since. One that was emptied, and that no home has taken, is taken anew.
    ///
    /// # Errors
    /// `PoolOfOther` and the other errors about a pool's owner; `Io`.
    pub fn check_pool(&self) -> Result<(), PlaceError> {
        // Asked at each lock: as a rule it says what it said before.
        if std::fs::read_link(&self.owner_record).is_ok_and(|found| found == self.owner_target) {
            return Ok(());
        }
        match self.claim(false).take() {
            // Without its directory nothing is in it: what needs the directory says so itself.
            Err(PlaceError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(())
            }
            other => other.map(drop),
        }
    }

    /// The home directory, canonical.
    #[must_use]
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Base files.
    #[must_use]
    pub fn store(&self) -> &Path {
        &self.store
    }

    /// Owner keys.
    #[must_use]
    pub fn keys(&self) -> &Path {
        &self.keys
    }

    /// Compiled applets. Not created here; the code that fills it creates it.
    #[must_use]
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// Images and locks; if the directory that was named is on a disk, the one of this boot in it.
    #[must_use]
    pub fn pool(&self) -> &Path {
        &self.pool
    }

    /// Where images on a medium lie. Those on the disk are of this boot: after the next one they do
    /// not count.
    #[must_use]
    pub fn images(&self, medium: Medium) -> &Path {
        match medium {
            Medium::Memory => &self.pool,
            Medium::File => &self.images_of_boot,
        }
    }

    /// Creates [`Places::images`] where it is not there yet.
    pub(crate) fn prepare_images(&self, medium: Medium) -> Result<(), PlaceError> {
        let path = self.images(medium);
        create_private(path)?;
        check_directory(path, true)
    }

    /// What is left of earlier boots.
    pub(crate) fn images_of_other_boots(&self) -> Vec<PathBuf> {
        let directories = [Some(&self.disk_images), self.pools.as_ref()].into_iter().flatten();
        let entries = directories.flat_map(std::fs::read_dir).flatten().flatten();
        // In a directory that the user chose for a pool there may be others' directories.
        let is_of_boot = |path: &PathBuf| {
            path.file_name()
                .and_then(OsStr::to_str)
                .is_some_and(|name| uuid::Uuid::try_parse(name).is_ok())
        };
        let others = entries.map(|entry| entry.path()).filter(is_of_boot);
        others.filter(|path| *path != self.images_of_boot && *path != self.pool).collect()
    }

    /// Whether the pool is memory of the kernel (tmpfs): always so for the default pool.
    #[must_use]
    pub fn pool_is_volatile_memory(&self) -> bool {
        self.pool_kind == PoolKind::Tmpfs || self.emulated
    }

    /// What the pool is made of, or (see [`Places::is_emulated`]) is treated as.
    #[must_use]
    pub fn pool_kind(&self) -> PoolKind {
        self.pool_kind
    }

    /// Whether the pool is only treated as persistent memory (see [`Places::at_emulated_dax`]).
    #[must_use]
    pub fn is_emulated(&self) -> bool {
        self.emulated
    }

    /// Which boot of the machine this is (`/proc/sys/kernel/random/boot_id`).
    #[must_use]
    pub fn boot(&self) -> [u8; 16] {
        self.boot
    }

    /// Whether an image on a medium outlives the boot, so that every step to it must be durable in
    /// order.
    pub(crate) fn images_outlive_boot(&self, medium: Medium) -> bool {
        medium == Medium::Memory && self.pool_kind.outlives_boot()
    }

    /// Whether such an image can be mapped so that stores are durable once they are written back.
    pub(crate) fn maps_synchronously(&self, medium: Medium) -> bool {
        self.images_outlive_boot(medium) && !self.emulated
    }
}

/// The kernel's text is a UUID.
fn boot_of_machine() -> Result<[u8; 16], PlaceError> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = boot_id().map_err(io_error("examine", path))?;
    let parsed = uuid::Uuid::try_parse_ascii(text.trim_ascii());
    let parsed =
        parsed.map_err(|_| io_error("examine", path)(io::ErrorKind::InvalidData.into()))?;
    Ok(parsed.into_bytes())
}

/// TMPFS/holdfast-UID/HASH, where HASH tells the homes of one user apart.
fn default_pool(home: &Path, tmpfs: &Path, runtime: Option<&Path>) -> Result<PathBuf, PlaceError> {
    let is_tmpfs = |path: &Path| path.is_dir() && is_volatile_memory(path).unwrap_or(false);
    let root = std::iter::once(tmpfs)
        .chain(runtime)
        .find(|path| is_tmpfs(path))
        .ok_or_else(|| PlaceError::NoTmpfs { tried: tmpfs.to_owned() })?;
    let of_user = root.join(format!("holdfast-{}", effective_user()));
    create_private(&of_user)?;
    check_directory(&of_user, true)?;
    Ok(of_user.join(default_name(home)))
}

fn default_name(home: &Path) -> String {
    format!("{:016x}", xxh3_64(home.as_os_str().as_bytes()))
}

/// Creates a directory and its parents, closed to others; one that exists is left as it is.
fn create_private(path: &Path) -> Result<(), PlaceError> {
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io_error("create", path))
}

/// The same of several, and makes the names of what it creates durable: a commit would be in no
/// directory that a power cut takes away.
fn create_durably(paths: &[&Path]) -> Result<(), PlaceError> {
    create_durably_with(paths, &sync_directory)
}

fn create_durably_with(
    paths: &[&Path],
    sync: &dyn Fn(&Path) -> io::Result<()>,
) -> Result<(), PlaceError> {
    let mut synced: Vec<&Path> = Vec::new();
    for path in paths {
        let made: Vec<&Path> = path.ancestors().take_while(|path| is_missing(path)).collect();
        create_private(path)?;
        for directory in made.into_iter().rev() {
            let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
            synced.push(parent.unwrap_or(Path::new(".")));
        }
    }
    synced.dedup();
    for directory in synced {
        match sync(directory) {
            // It may be written to and not read, so that it cannot be opened.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            done => done.map_err(io_error("make durable", directory))?,
        }
    }
    Ok(())
}

/// The home may be open to others' reading, but not to their writing: who may write to it may put
/// other directories in the place of ours.
fn check_home(path: &Path) -> Result<(), PlaceError> {
    check_directory(path, false)?;
    let found = path.symlink_metadata().map_err(io_error("examine", path))?;
    let mode = found.permissions().mode() & 0o7777;
    // A umask of 0002 opens what is made to a group, which as a rule is the user's alone.
    if mode & 0o002 != 0 || mode & 0o020 != 0 && !is_private_group(found.gid()) {
        return Err(PlaceError::WritableByOthers { path: path.to_owned(), mode });
    }
    Ok(())
}

fn check_directory(path: &Path, private: bool) -> Result<(), PlaceError> {
    let found = path.symlink_metadata().map_err(io_error("examine", path))?;
    if found.is_symlink() {
        return Err(PlaceError::SymbolicLink { path: path.to_owned() });
    }
    if !found.is_dir() {
        return Err(PlaceError::WrongKind { path: path.to_owned(), expected: "directory" });
    }
    check_owner(path, found.uid())?;
    let mode = found.permissions().mode() & 0o7777;
    if private && mode & 0o077 != 0 {
        return Err(PlaceError::NotPrivate { path: path.to_owned(), mode, remedy_mode: 0o700 });
    }
    Ok(())
}

pub(crate) fn check_owner(path: &Path, owner: u32) -> Result<(), PlaceError> {
    let us = effective_user();
    if owner == us { Ok(()) } else { Err(PlaceError::NotOurs { path: path.to_owned(), owner, us }) }
}

/// Leaves the home's path in the pool, whose own name is only a hash. For people: nothing reads it,
/// and a full pool does without.
fn note_home(pool: &Path, home: &Path) {
    let note = pool.join("home");
    if let Ok(found) = note.symlink_metadata() {
        // Made by an earlier version, under a umask that left it open to others.
        if found.is_file() && found.mode() & 0o077 != 0 {
            let _ = std::fs::set_permissions(&note, Permissions::from_mode(0o600));
        }
        return;
    }
    let mut text = home.as_os_str().as_bytes().to_vec();
    text.push(b'\n');
    let _ = holdfast_sys::file::write_private(&note, &text);
}

fn io_error(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PlaceError {
    move |source| PlaceError::Io { step, path: path.to_owned(), source }
}

/// Where a region's image is, or would be, on each medium.
pub(crate) fn image_paths(places: &Places, name: &RegionName) -> [PathBuf; 2] {
    [Medium::Memory, Medium::File].map(|medium| image_path(places.images(medium), name))
}

/// Where the redo log of an image is, or would be, on each medium. It lies beside its image;
/// writers of an earlier version put that of an image on the disk into the pool.
pub(crate) fn redo_paths(places: &Places, name: &RegionName) -> [PathBuf; 2] {
    [Medium::Memory, Medium::File].map(|medium| redo_path(places.images(medium), name))
}

/// The path of the image in force; if there is none, one that leads nowhere.
pub(crate) fn current_image_path(places: &Places, name: &RegionName) -> PathBuf {
    let [pool, disk] = image_paths(places, name);
    // Both are there when a move was killed between its last two steps: they hold the same, and the
    // next writer removes one.
    let on_disk_only = is_missing(&pool) && !is_missing(&disk);
    if on_disk_only { disk } else { pool }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// What is made on the way to a home is durable, from the top down; what was there costs
    /// nothing.
    ///
    /// Guarantee: heap/checkpoint
    #[test]
    fn new_directories_are_durable_from_the_top_down() {
        let directory = tempfile::tempdir().unwrap();
        let at = |relative: &str| directory.path().join(relative);
        let synced = RefCell::new(Vec::new());
        let create = |relative: &[&str]| {
            let paths: Vec<PathBuf> = relative.iter().map(|relative| at(relative)).collect();
            let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
            let sync = |path: &Path| {
                synced.borrow_mut().push(path.to_owned());
                Ok(())
            };
            create_durably_with(&paths, &sync).unwrap();
            synced.take()
        };
        assert_eq!(create(&["a/b/c"]), [at(""), at("a"), at("a/b")]);
        assert!(create(&["a/b/c"]).is_empty());
        assert_eq!(create(&["a/b/d", "a/b/e"]), [at("a/b")]);
        let with = |error: io::ErrorKind, relative: &str| {
            create_durably_with(&[&at(relative)], &|_| Err(error.into()))
        };
        let failed = with(io::ErrorKind::Other, "x");
        assert!(matches!(failed, Err(PlaceError::Io { step: "make durable", .. })), "{failed:?}");
        // A directory that may not be read is of use all the same.
        with(io::ErrorKind::PermissionDenied, "y").unwrap();
    }
}
