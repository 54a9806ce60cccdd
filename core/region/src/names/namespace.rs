//! The names of one home: creating, opening, listing and removing regions.
//!
//! Invariants:
//! - Whoever changes a region's files holds its lock, from before the first look to after the last step.
//! - Locks are taken in one order: the region's, then the one of all names. The latter is held only while an
//!   address is chosen and the new image gets its name, while a region grows or is removed (which compartments it has
//!   must not change) or gets another limit, while a restored base gets its name, and while an access table is
//!   replaced. Whoever holds it waits for no region's lock.
//! - Ownership and every check come before the first byte is written.
//! - An image, if there is one, is newer than the base. The base is used only where there is no image; a
//!   damaged image is never passed over in silence. An image that outlived a boot and was neither closed nor ordered
//!   is no image (see [`crate::names::order`]).

#![forbid(unsafe_code)]

use std::sync::Arc;

use holdfast_sys::lock::{FileLock, LockMode};

use crate::care::medium::{Medium, image_paths, redo_paths};
use crate::care::rescue::open_rescue;
use crate::error::{RegionError, Remedy, Result};
use crate::media::files::{
    base_path, grants_path, image_path, journal_path, lock_path, remove_temporaries, rescue_path,
    rescue_temporary_path,
};
use crate::media::format::Header;
use crate::media::image::{FileFault, Image};
use crate::media::storage::{KernelStorage, Storage};
use crate::name::RegionName;
use crate::names::key::OwnerKey;
use crate::names::opening::check_key;
use crate::names::places::Places;
use crate::names::reader::RegionReader;
use crate::names::region::Region;
use crate::names::summary::{FileSummary, RegionSummary, file_summary, summarize};
use crate::store::base::open_base;
use crate::store::stored::{Stored, source_error};

/// All regions of one home.
#[derive(Debug, Clone)]
pub struct NameSpace {
    pub(crate) places: Arc<Places>,
    pub(crate) storage: Arc<dyn Storage>,
    /// Of new regions.
    pub(crate) medium: Medium,
    /// Whether it has regions for moments only, so that others wait for it.
    pub(crate) is_brief: bool,
}

impl NameSpace {
    /// The regions in these places.
    #[must_use]
    pub fn new(places: Places) -> NameSpace {
        NameSpace::with_storage(places, Arc::new(KernelStorage))
    }

    /// As [`NameSpace::new`], with every change to a file made through `storage`.
    #[must_use]
    pub fn with_storage(places: Places, storage: Arc<dyn Storage>) -> NameSpace {
        NameSpace::sharing(Arc::new(places), storage)
    }

    /// The same name space for somebody who has regions for moments only, to look after them: whoever wants to open one
    /// waits until it is free again, where another holder would be an error.
    #[must_use]
    pub fn for_moments(self) -> NameSpace {
        NameSpace { is_brief: true, ..self }
    }

    /// As [`NameSpace::with_storage`], with what a region of it has.
    pub(crate) fn sharing(places: Arc<Places>, storage: Arc<dyn Storage>) -> NameSpace {
        NameSpace { places, storage, medium: Medium::default(), is_brief: false }
    }

    /// Where everything is.
    #[must_use]
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Creates a region that may grow to `limit_bytes` (rounded up to 64 KiB, at least 1 MiB, at most 1 TiB).
    /// Its first 4 MiB, or all of it if it is smaller, are allocated.
    ///
    /// # Errors
    /// `AlreadyExists`, `Held`, `LimitOutOfRange`, `NoRoom`, `NoRoomOnDisk`, `StoreFull`, `AddressesExhausted`, `Io`;
    /// nothing is left behind.
    pub fn create(&self, name: &RegionName, key: &OwnerKey, limit_bytes: u64) -> Result<Region> {
        self.refuse_compartment(name)?;
        let lock = self.lock(name, LockMode::Exclusive)?;
        if self.exists(name) {
            return Err(RegionError::AlreadyExists { name: name.to_string() });
        }
        self.create_locked(name, key, limit_bytes, lock)
    }

    /// Opens a region for writing: warm from its image, or cold from the store. The key is the owner's, or one that the
    /// owner granted writing; then its quota bounds growth.
    ///
    /// # Errors
    /// `NotFound`, `Held`, `NotOwner` (and no grant either), `Access` (the key may only read, or the access table is
    /// damaged), one of the errors about a bad file, `NoRoom`, `Io`. No file is changed.
    pub fn open(&self, name: &RegionName, key: &OwnerKey) -> Result<Region> {
        // Asked first, so that opening a name that does not exist leaves no lock file behind.
        if !self.exists(name) {
            return Err(self.not_found(name));
        }
        let lock = self.lock(name, LockMode::Exclusive)?;
        match self.open_locked(name, key)? {
            Some((image, opened, access)) => {
                Ok(self.region(image, opened, lock).with_access(access).with_key(key))
            }
            None => Err(self.not_found(name)),
        }
    }

    /// Opens a region for reading, with a key that may at least read: a [`Region`] that is mapped read-only, is never
    /// dirty and writes to no file. Any number of readers may have a region at once, and no writer besides them: a
    /// reader sees the state that the last writer left, and it stays as it is.
    ///
    /// Without an image the data is read from the base file or, where a journal continues it, copied from both to
    /// memory of this process.
    ///
    /// # Errors
    /// As [`NameSpace::open`]; `Held` when a writer has the region.
    pub fn open_read_only(&self, name: &RegionName, key: &OwnerKey) -> Result<Region> {
        // Asked before anything is touched.
        self.access(name, key)?;
        let (image, opened, lock) = self.open_for_reading(name)?;
        self.admit(&image.header, key)?;
        Ok(self.region(image, opened, lock).into_read_only())
    }

    /// Opens a region, or creates it. One that exists keeps its limit.
    ///
    /// # Errors
    /// As [`NameSpace::open`] and [`NameSpace::create`].
    pub fn open_or_create(&self, name: &RegionName, key: &OwnerKey, limit_bytes: u64) -> Result<Region> {
        let lock = self.lock(name, LockMode::Exclusive)?;
        match self.open_locked(name, key)? {
            Some((image, opened, access)) => {
                Ok(self.region(image, opened, lock).with_access(access).with_key(key))
            }
            None => {
                self.refuse_compartment(name).and_then(|()| self.create_locked(name, key, limit_bytes, lock))
            }
        }
    }

    /// Opens a region for reading, from its image or, without one, from the store (whose checksums are
    /// verified). Writes nothing but an empty lock file; needs no key: who may read the files may read.
    ///
    /// # Errors
    /// As [`NameSpace::open`].
    pub fn open_read(&self, name: &RegionName) -> Result<RegionReader> {
        if !self.exists(name) {
            return Err(self.not_found(name));
        }
        let (image, _, lock) = self.open_for_reading(name)?;
        let mut summary = summarize(&self.places, name).ok_or_else(|| self.not_found(name))?;
        summary.backed_bytes = image.header.backed_bytes;
        RegionReader::new(image, summary, lock)
    }

    /// All regions, in the order of their names. Takes no locks.
    ///
    /// # Errors
    /// `Io` when a directory cannot be listed. A damaged file is reported in its region's summary.
    pub fn list(&self) -> Result<Vec<RegionSummary>> {
        Ok(self.names()?.iter().filter_map(|name| summarize(&self.places, name)).collect())
    }

    /// One region. Takes no locks.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn summary(&self, name: &RegionName) -> Result<RegionSummary> {
        summarize(&self.places, name).ok_or_else(|| self.not_found(name))
    }

    /// Removes a region: image, base, journal, rescue copy, access table and lock. A worker's key removes its compartment. If the
    /// machine stops in the middle, the region is whole, perhaps without its grants, or gone.
    ///
    /// # Errors
    /// `NotFound`, `Held`, `NotOwner`, `Io`; `Access` when it has compartments (see
    /// [`NameSpace::remove_with_compartments`]); one of the errors about a bad file if no file of the region tells
    /// whose it is (the message names the file; remove it by hand).
    pub fn remove(&self, name: &RegionName, key: &OwnerKey) -> Result<()> {
        if !self.exists(name) {
            return Err(self.not_found(name));
        }
        let lock = self.lock(name, LockMode::Exclusive)?;
        self.check_removable(name, key)?;
        // From here on no compartment can appear.
        let _names = self.lock_names()?;
        self.check_no_compartments(name)?;
        self.remove_locked(name, lock)
    }

    /// Removes a region of which neither image nor base tells whose it is, both being damaged or missing: no key could be
    /// asked for. What may be left of its data goes, too. Returns the files that were removed.
    ///
    /// # Errors
    /// `NotFound`, `Held`, `OwnerKnown`; `Access` when it has compartments; one of the errors about a bad file for one
    /// that is another region's or newer; `Io`.
    pub fn remove_damaged(&self, name: &RegionName) -> Result<Vec<FileSummary>> {
        if !self.exists(name) {
            return Err(self.not_found(name));
        }
        let lock = self.lock(name, LockMode::Exclusive)?;
        let [pool, disk] = image_paths(&self.places, name);
        let base = base_path(self.places.store(), name);
        let images = [&pool, &disk].map(|path| Image::open(path.clone(), name, false));
        let rescue = rescue_path(self.places.store(), name);
        let store = self.places.store();
        for (file, path) in images
            .into_iter()
            .zip([&pool, &disk])
            .chain([(open_base(store, name), &base), (open_rescue(store, name), &rescue)])
        {
            match file {
                Ok(_) => return Err(RegionError::OwnerKnown { name: name.to_string() }),
                Err(FileFault::Missing) => {}
                Err(fault) if fault.is_damage() => {}
                Err(fault) => return Err(fault.into_error(path, Remedy::RestoreFile { path: path.clone() })),
            }
        }
        // From here on no compartment can appear.
        let _names = self.lock_names()?;
        self.check_no_compartments(name)?;
        let [log, disk_log] = redo_paths(&self.places, name);
        let files =
            [pool, disk, log, disk_log, base, rescue, journal_path(store, name), grants_path(store, name)];
        let removed = files.iter().filter_map(|path| file_summary(path)).collect();
        self.remove_locked(name, lock)?;
        Ok(removed)
    }

    /// Whether this key may remove the region, and nobody has it. The caller holds its lock.
    pub(crate) fn check_removable(&self, name: &RegionName, key: &OwnerKey) -> Result<()> {
        let owner = match self.image(name, LockMode::Exclusive) {
            Ok(Some(image)) => image.header.owner_fingerprint,
            Ok(None) => self.base_or_rescue(name)?.header.owner_fingerprint,
            Err(held @ RegionError::Held { .. }) => return Err(held),
            // Somebody may want to remove a region because its image is bad.
            Err(error) => match open_base(self.places.store(), name) {
                Ok(base) => base.header.owner_fingerprint,
                Err(_) => return Err(error),
            },
        };
        check_key(name, owner, key)
    }

    pub(crate) fn remove_locked(&self, name: &RegionName, lock: FileLock) -> Result<()> {
        // Grants first: a region that comes back with a restore must not find them.
        self.remove_grants(name)?;
        // One that stayed would be the region again.
        self.remove_rescue(name)?;
        self.remove_file(&rescue_temporary_path(self.places.store(), name))?;
        // Then the base: the image alone is the whole region, the base alone would be an older one.
        self.remove_file(&base_path(self.places.store(), name))?;
        self.sync_store()?;
        // Only now: the base without its journal would be an older state.
        self.remove_file(&journal_path(self.places.store(), name))?;
        self.remove_images(name)?;
        remove_temporaries(&*self.storage, self.places.store(), name)?;
        lock.remove_file().map_err(RegionError::io("remove", lock_path(self.places.pool(), name)))
    }

    /// Removes only the image, damaged or not, so that the next open starts from the last commit. The store
    /// is verified first.
    ///
    /// # Errors
    /// `NotFound`, `Held`, `NotOwner`, `OnlyCopy` when there is no base, `StoreBehind`, one of the errors about a bad
    /// file when the base is bad.
    pub fn remove_image(&self, name: &RegionName, key: &OwnerKey) -> Result<()> {
        if !self.exists(name) {
            return Err(self.not_found(name));
        }
        let _lock = self.lock(name, LockMode::Exclusive)?;
        let stored = Stored::open(self.places.store(), name)?;
        let stored = stored.ok_or_else(|| RegionError::OnlyCopy { name: name.to_string() })?;
        check_key(name, stored.base.header.owner_fingerprint, key)?;
        stored.verify().map_err(|error| source_error(error, &stored.base.path))?;
        match self.image(name, LockMode::Exclusive) {
            Err(held @ RegionError::Held { .. }) => return Err(held),
            Ok(Some(image)) if is_behind(&stored, &image) => {
                return Err(RegionError::StoreBehind { name: name.to_string() });
            }
            _ => {}
        }
        // It may be newer than the last commit.
        self.remove_rescue(name)?;
        self.remove_images(name)
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

/// Whether what is stored is older than the last commit that an image knows of. A damaged header may be an older one, and
/// proves nothing.
pub(crate) fn is_behind(stored: &Stored, image: &Image) -> bool {
    let (base, header) = (&stored.base.header, &image.header);
    let known = (header.checkpoint_count, header.journal_sequence);
    base.uuid == header.uuid && !image.slot_damaged && last_commit(stored) < known
}

/// Whether what is stored has a commit that the header of an image does not know of.
pub(crate) fn knows_more(stored: &Stored, image: &Header) -> bool {
    last_commit(stored) > (image.checkpoint_count, image.journal_sequence)
}

/// The number of the base, and of the last commit after it.
fn last_commit(stored: &Stored) -> (u64, u64) {
    let commits = stored.journal.as_ref().map_or(0, |journal| journal.extent.commits());
    (stored.base.header.checkpoint_count, commits)
}
