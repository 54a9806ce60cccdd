//! The names of one home: places, locks, and finding the files of a region. Opening, removing and
//! evicting regions stand above it and add their operations to [`NameSpace`].
//!
//! Invariants:
//! - A process that changes a region's files holds its lock, from before the first look to after
//!   the last step.
//! - Locks are taken in one order: the region's, then the one of all names. The latter is held only
//!   while an address is chosen and the new image gets its name, while the base of an imported
//!   region gets its name, while a region is removed (which compartments it has must not change) or
//!   gets another limit, while one grows whose image does not say what its compartments have, while
//!   a restored base gets its name, and while an access table is replaced. Its holder waits for no
//!   region's lock.
//! - Ownership and every check come before the first byte is written.
//! - An image, if there is one, is newer than the base. The base is used only where there is no
//!   image; a damaged image is never passed over in silence. An image that outlived a boot and was
//!   neither closed nor ordered is no image (see `names::region::order`).

#![forbid(unsafe_code)]

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_sys::file::path_names_file;
use holdfast_sys::lock::{FileLock, LockMode, LockOutcome, try_lock};

use crate::error::room::RoomReport;
use crate::error::{FileRemedy, RegionError, Result};
use crate::media::files::{
    addresses_path, base_path, image_path, is_missing, lock_path, names_in, names_lock_path,
    redo_path, remove_temporaries, rescue_path, rescue_temporary_path,
};
use crate::media::format::{FileState, Header};
use crate::media::image::{FileFault, Image, open_file};
use crate::media::medium::Medium;
use crate::media::storage::Storage;
use crate::name::{RegionName, near_names};
use crate::names::places::{Places, current_image_path, image_paths, redo_paths};
use crate::store::base::{open_base, verify_base};
use crate::store::rescue::{goes_on_from, open_rescue, refuse_newer_rescue};
use crate::store::stored::{Stored, check_replaceable, knows_more, remedy_for_image, source_error};

/// How long a holder may take to write its record, or a reader to go.
const HELD_PATIENCE: Duration = Duration::from_millis(500);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_micros(200);
/// How long another process may take to choose an address.
const NAMES_PATIENCE: Duration = Duration::from_secs(5);
/// How often a header that is being changed is read again.
pub(crate) const HEADER_ATTEMPTS_MAX: u32 = 3;

/// All regions of one home.
#[derive(Debug, Clone)]
pub struct NameSpace {
    places: Arc<Places>,
    storage: Arc<dyn Storage>,
    /// Of new regions.
    medium: Medium,
    /// Whether it has regions for moments only, so that others wait for it.
    is_brief: bool,
    evict: Evict,
}

/// Takes the image of a region that no process holds out of the pool, and returns how many bytes
/// that freed. Eviction opens and commits regions, which stands above this module; see
/// [`crate::names::eviction`].
pub(crate) type Evict = fn(&NameSpace, &RegionName) -> Result<u64>;

impl NameSpace {
    pub(crate) fn with_evict(
        places: Arc<Places>,
        storage: Arc<dyn Storage>,
        evict: Evict,
    ) -> NameSpace {
        NameSpace { places, storage, medium: Medium::default(), is_brief: false, evict }
    }

    /// Where every change to a file goes.
    pub(crate) fn storage(&self) -> &dyn Storage {
        &*self.storage
    }

    /// The medium of new regions.
    pub(crate) fn medium(&self) -> Medium {
        self.medium
    }

    /// Evicts a region at once, without waiting for a holder; returns the bytes that this freed.
    pub(crate) fn evict_now(&self, name: &RegionName) -> Result<u64> {
        (self.evict)(self, name)
    }

    /// The same name space, in which new regions get this medium. Those that exist keep theirs.
    #[must_use]
    pub fn with_medium(self, medium: Medium) -> NameSpace {
        NameSpace { medium, ..self }
    }

    /// The same name space for a keeper that has regions for moments only: a process that wants to
    /// open one waits until it is free again, where another holder would be an error.
    #[must_use]
    pub fn for_moments(self) -> NameSpace {
        NameSpace { is_brief: true, ..self }
    }

    /// Where everything is.
    #[must_use]
    pub fn places(&self) -> &Places {
        &self.places
    }
}

impl NameSpace {
    /// The error of an allocation that found no room on a medium.
    pub(crate) fn no_room(
        &self,
        medium: Medium,
        needed_bytes: u64,
        cause: Option<io::ErrorKind>,
    ) -> RegionError {
        let available = |path| self.storage.available_bytes(path).unwrap_or(0);
        let places = &self.places;
        let (pool_bytes, disk_bytes) = (available(places.pool()), available(places.home()));
        let (pool, home) = (places.pool().to_owned(), places.home().to_owned());
        match medium {
            Medium::Memory => {
                let room = Box::new(RoomReport { cause, ..RoomReport::default() });
                RegionError::NoRoom {
                    needed_bytes,
                    available_bytes: pool_bytes,
                    pool,
                    home,
                    disk_bytes,
                    room,
                }
            }
            Medium::File => RegionError::NoRoomOnDisk {
                needed_bytes,
                available_bytes: disk_bytes,
                home,
                pool,
                pool_bytes,
            },
        }
    }

    /// The region's image, checked and locked; `None` when there is none.
    ///
    /// The image has a lock of its own besides the one of the name, so that a lock file that a
    /// person removed by hand does not make two writers.
    pub(crate) fn image(&self, name: &RegionName, mode: LockMode) -> Result<Option<Image>> {
        // A child between fork and exec keeps the lock of a holder that is gone for a moment.
        let started = Instant::now();
        let (path, found) = loop {
            let path = current_image_path(&self.places, name);
            let file = match open_file(&path, mode == LockMode::Exclusive) {
                Ok(file) => file,
                Err(fault) => break (path, Err(fault)),
            };
            let is_ours = try_lock(&file, mode).map_err(RegionError::io("lock", &path))?
                && path_names_file(&path, &file).map_err(RegionError::io("examine", &path))?;
            if is_ours {
                // Only now: a holder changes the header, or replaces the image, until it goes.
                let found = Image::of_file(file, path.clone(), name);
                break (path, found);
            }
            if started.elapsed() >= HELD_PATIENCE {
                return Err(RegionError::Held { name: name.to_string(), holder: None });
            }
            std::thread::sleep(PAUSE);
        };
        match found {
            Ok(mut image) => {
                image.outlives_boot = self.places.images_outlive_boot(image.header.medium);
                Ok(Some(image))
            }
            Err(FileFault::Missing) => Ok(None),
            Err(fault) => {
                let remedy = if fault.is_damage() {
                    remedy_for_image(self.places.store(), name, &path)
                } else {
                    FileRemedy::RestoreFile { path: path.clone() }
                };
                Err(fault.into_error(&path, remedy))
            }
        }
    }

    /// The region's base file; `None` when there is none.
    pub(crate) fn base(&self, name: &RegionName) -> Result<Option<Image>> {
        match open_base(self.places.store(), name) {
            Ok(base) => Ok(Some(base)),
            Err(FileFault::Missing) => Ok(None),
            Err(fault) => Err(self.base_error(name, fault)),
        }
    }

    pub(crate) fn base_error(&self, name: &RegionName, fault: FileFault) -> RegionError {
        let path = base_path(self.places.store(), name);
        let remedy = FileRemedy::RestoreFile { path: path.clone() };
        fault.into_error(&path, remedy)
    }

    /// Whether the region has, or may have, a file that holds its data.
    pub(crate) fn exists(&self, name: &RegionName) -> bool {
        let base = base_path(self.places.store(), name);
        let rescue = rescue_path(self.places.store(), name);
        image_paths(&self.places, name).iter().chain([&base, &rescue]).any(|path| !is_missing(path))
    }

    pub(crate) fn lock(&self, name: &RegionName, mode: LockMode) -> Result<FileLock> {
        self.lock_within(HELD_PATIENCE, name, mode)
    }

    pub(crate) fn lock_within(
        &self,
        patience: Duration,
        name: &RegionName,
        mode: LockMode,
    ) -> Result<FileLock> {
        let path = lock_path(self.places.pool(), name);
        let outcome = match (self.is_brief, mode) {
            (true, LockMode::Exclusive) => FileLock::acquire_briefly(&path, patience),
            _ => FileLock::acquire(&path, mode, patience),
        };
        match outcome.map_err(RegionError::io("lock", &path))? {
            LockOutcome::Acquired(lock) => {
                // Places can be old: whose the pool is is asked each time, before anything in it is
                // touched.
                self.places.check_pool()?;
                Ok(lock)
            }
            LockOutcome::Held(holder) => Err(RegionError::Held { name: name.to_string(), holder }),
        }
    }

    pub(crate) fn lock_names(&self) -> Result<FileLock> {
        let path = names_lock_path(self.places.pool());
        let started = Instant::now();
        loop {
            let patience = NAMES_PATIENCE.saturating_sub(started.elapsed());
            let outcome = FileLock::acquire(&path, LockMode::Exclusive, patience);
            match outcome.map_err(RegionError::io("lock", &path))? {
                LockOutcome::Acquired(lock) => {
                    self.places.check_pool()?;
                    return Ok(lock);
                }
                LockOutcome::Held(_) if started.elapsed() < NAMES_PATIENCE => {
                    std::thread::sleep(PAUSE);
                }
                LockOutcome::Held(_) => return Err(RegionError::NamesBusy { path }),
            }
        }
    }

    /// All names that have an image, a base or a rescue copy, in order.
    pub(crate) fn names(&self) -> Result<Vec<RegionName>> {
        let mut names = names_in(self.places.pool(), "image")?;
        names.extend(names_in(self.places.images(Medium::File), "image")?);
        names.extend(names_in(self.places.store(), "base")?);
        // A region that had no checkpoint yet.
        names.extend(names_in(self.places.store(), "rescue")?);
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    pub(crate) fn not_found(&self, name: &RegionName) -> RegionError {
        // Near names are a courtesy: without a list there are none.
        let near = near_names(name, &self.names().unwrap_or_default());
        RegionError::NotFound { name: name.to_string(), near }
    }

    /// Removes a file that may be missing.
    pub(crate) fn remove_file(&self, path: &Path) -> Result<()> {
        match self.storage.remove(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(RegionError::io("remove", path)),
        }
    }

    /// Makes names in the pool durable, where they outlive the boot.
    pub(crate) fn sync_pool(&self) -> Result<()> {
        let pool = self.places.pool();
        if !self.places.pool_kind().outlives_boot() {
            return Ok(());
        }
        self.storage.sync_directory(pool).map_err(RegionError::io("make durable", pool))
    }

    pub(crate) fn sync_store(&self) -> Result<()> {
        let store = self.places.store();
        self.storage.sync_directory(store).map_err(RegionError::io("make durable", store))
    }

    /// Whether an image that outlived a boot is not to be believed: a reset tore it, or the region
    /// went on elsewhere while the pool was not there.
    ///
    /// # Errors
    /// `Io` when the store, which tells the latter, could not be looked at.
    pub(crate) fn is_void(&self, image: &Image) -> Result<bool> {
        let boot = self.places.boot();
        Ok(image.outlived(boot) && (image.is_torn(boot) || self.went_on_without(image)?))
    }

    /// Whether the store knows of a later image, or of a commit after the close of this one. One
    /// that a reset left open may lack a commit that the store has only in its header, so there it
    /// proves nothing.
    fn went_on_without(&self, image: &Image) -> Result<bool> {
        let header = &image.header;
        let stored = match Stored::open(self.places.store(), &header.name) {
            Ok(Some(stored)) => stored,
            Err(error) if error.is_unseen() => return Err(error),
            // A store that is damaged proves nothing.
            _ => return Ok(false),
        };
        let base = &stored.base.header;
        let later_image = base.image_generation > header.image_generation;
        let was_closed = header.state == FileState::Clean && !image.slot_damaged;
        Ok(base.uuid == header.uuid && (later_image || was_closed && knows_more(&stored, header)))
    }

    /// Removes redo logs whose image is gone, or has all that they say. One that stayed could be of
    /// the generation that the next image gets.
    pub(crate) fn remove_redo_logs(&self, name: &RegionName) -> Result<()> {
        let mut removed = false;
        for path in redo_paths(&self.places, name) {
            if !is_missing(&path) {
                self.remove_file(&path)?;
                removed = true;
            }
        }
        if removed { self.sync_pool() } else { Ok(()) }
    }

    /// Removes images that are not in force any more: that of a move which was killed, and all of
    /// earlier boots. The caller holds the name's lock; images of earlier boots belong to no
    /// process.
    pub(crate) fn remove_stale_images(&self, name: &RegionName) -> Result<()> {
        let current = current_image_path(&self.places, name);
        for path in image_paths(&self.places, name) {
            if path != current && !is_missing(&path) {
                self.remove_file(&path)?;
                self.sync_pool()?;
            }
        }
        for directory in self.places.images_of_other_boots() {
            // A pool on a disk has locks and logs in it, too.
            for path in [
                image_path(&directory, name),
                redo_path(&directory, name),
                lock_path(&directory, name),
            ] {
                if !is_missing(&path) {
                    self.remove_file(&path)?;
                }
            }
            if names_in(&directory, "image").is_ok_and(|names| names.is_empty()) {
                let _ = self.remove_file(&names_lock_path(&directory));
                let _ = self.remove_file(&addresses_path(&directory));
                let _ = std::fs::remove_dir(&directory);
            }
        }
        Ok(())
    }

    /// Refuses to replace what a newer program, or another region, has in the store, by a new base
    /// of the region whose image has this identity.
    ///
    /// # Errors
    /// `NewerFormat`, `Renamed`, `Clash`; `Io` when it could not be looked at.
    pub(crate) fn check_store_of(&self, name: &RegionName, uuid: [u8; 16]) -> Result<()> {
        let store = self.places.store();
        match check_replaceable(store, name)? {
            Some(found) if found != uuid => {
                let base = base_path(store, name);
                let image = current_image_path(&self.places, name);
                Err(RegionError::Clash { name: name.to_string(), base, image })
            }
            _ => Ok(()),
        }
    }

    /// The rescue copy, if it is newer than what is stored and whole. The caller holds the name's
    /// lock, and there is no image.
    ///
    /// # Errors
    /// `NewerFormat` of a copy that a newer program wrote, which may be newer than the store; `Io`
    /// of one that could not be looked at. Without a base file, one of the errors about a bad file.
    pub(crate) fn rescue_that_counts(
        &self,
        name: &RegionName,
        stored: Option<&Stored>,
    ) -> Result<Option<Image>> {
        let path = rescue_path(self.places.store(), name);
        let fail = |fault: FileFault| {
            fault.into_error(&path, FileRemedy::RestoreFile { path: path.clone() })
        };
        let whole = match (open_rescue(self.places.store(), name), stored) {
            (Err(FileFault::Missing), _) => return Ok(None),
            (Ok(rescue), Some(stored)) if !goes_on_from(&rescue, stored) => return Ok(None),
            // Without a base file the copy is all that there is.
            (Ok(rescue), None) => return Ok(Some(rescue)),
            (Err(fault @ FileFault::Newer { .. }), _) | (Err(fault), None) => {
                return Err(fail(fault));
            }
            (Err(fault), Some(_)) if fault.is_unseen() => return Err(fail(fault)),
            // Whatever is wrong with it, what was committed is in the store.
            (Err(_), Some(_)) => None,
            (Ok(rescue), Some(_)) => match verify_base(&rescue, None) {
                Ok(()) => Some(rescue),
                Err(error) => match source_error(error, &path) {
                    error if error.is_unseen() => return Err(error),
                    _ => None,
                },
            },
        };
        Ok(whole)
    }

    /// The base file or, where there is none yet, the rescue copy.
    pub(crate) fn base_or_rescue(&self, name: &RegionName) -> Result<Image> {
        match self.base(name)? {
            Some(base) => Ok(base),
            None => self.rescue_that_counts(name, None)?.ok_or_else(|| self.not_found(name)),
        }
    }

    /// Removes the copy, durably, if there is one; one that is being made gets no name then.
    pub(crate) fn remove_rescue(&self, name: &RegionName) -> Result<()> {
        let store = self.places.store();
        let mut removed = false;
        // In this order: a copy that gets its name in between is found under it.
        for path in [rescue_temporary_path(store, name), rescue_path(store, name)] {
            if !is_missing(&path) {
                self.remove_file(&path)?;
                removed = true;
            }
        }
        if removed { self.sync_store() } else { Ok(()) }
    }

    /// The same of a copy that is older than what counts, or holds the same; one that a newer
    /// program wrote stays.
    ///
    /// # Errors
    /// `NewerFormat`, `Io`.
    pub(crate) fn drop_rescue(&self, name: &RegionName) -> Result<()> {
        refuse_newer_rescue(self.places.store(), name)?;
        self.remove_rescue(name)
    }

    /// A header of the region: the image's, or the base file's when there is no image or a damaged
    /// one. Both name the same owner.
    pub(crate) fn header_of(&self, name: &RegionName) -> Result<Header> {
        let mut attempts = 1;
        let image = loop {
            match Image::open(current_image_path(&self.places, name), name, false) {
                // A writer may be changing one slot after the other while we read.
                Err(fault) if fault.is_damage() && attempts < HEADER_ATTEMPTS_MAX => attempts += 1,
                other => break other,
            }
        };
        match image {
            Ok(image) => Ok(image.header),
            Err(FileFault::Missing) => Ok(self.base_or_rescue(name)?.header),
            // What is wrong with the image is said when it is opened; here only its owner is asked
            // for.
            Err(fault) => match self.base(name) {
                Ok(Some(base)) => Ok(base.header),
                _ => {
                    let path = current_image_path(&self.places, name);
                    let remedy = FileRemedy::RestoreFile { path: path.clone() };
                    Err(fault.into_error(&path, remedy))
                }
            },
        }
    }

    /// Removes a region's images, and what belongs to them; under its lock.
    pub(crate) fn remove_images(&self, name: &RegionName) -> Result<()> {
        self.remove_stale_images(name)?;
        for medium in [Medium::Memory, Medium::File] {
            let images = self.places.images(medium);
            self.remove_file(&image_path(images, name))?;
            remove_temporaries(&*self.storage, images, name)?;
        }
        self.sync_pool()?;
        // An image without what is left of its publication would be half of it.
        self.remove_redo_logs(name)
    }
}
