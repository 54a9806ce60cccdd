//! Removing regions, whole or only their images.

#![forbid(unsafe_code)]

use holdfast_sys::lock::{FileLock, LockMode};

use crate::error::remedy::FileRemedy;
use crate::error::{RegionError, Result};
use crate::media::files::{
    base_path, grants_path, grants_temporary_path, is_missing, journal_path, lock_path,
    remove_temporaries, rescue_path,
};
use crate::media::image::{FileFault, Image};
use crate::name::RegionName;
use crate::names::key::{OwnerKey, check_key};
use crate::names::namespace::NameSpace;
use crate::names::places::{image_paths, redo_paths};
use crate::names::summary::{FileSummary, file_summary};
use crate::store::base::open_base;
use crate::store::rescue::{open_rescue, refuse_newer_rescue};
use crate::store::stored::{Stored, is_behind, source_error};

impl NameSpace {
    /// Removes a region: image, base, journal, rescue copy, access table and lock. A worker's key
    /// removes its compartment. If the machine stops in the middle, the region is whole, perhaps
    /// without its grants, or gone.
    ///
    /// # Errors
    /// `NotFound`, `Held`, `NotOwner`, `Io`; `Access` when it has compartments (see
    /// [`NameSpace::remove_with_compartments`]); one of the errors about a bad file if no file of
    /// the region tells whose it is (the message names the file; remove it by hand).
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

    /// Removes a region of which neither image nor base tells whose it is, both being damaged or
    /// missing: no key could be asked for. What may be left of its data goes, too. Returns the
    /// files that were removed.
    ///
    /// # Errors
    /// `NotFound`, `Held`, `OwnerKnown`; `Access` when it has compartments; one of the errors about
    /// a bad file for one that is another region's or newer; `Io`.
    pub fn remove_damaged(&self, name: &RegionName) -> Result<Vec<FileSummary>> {
        if !self.exists(name) {
            return Err(self.not_found(name));
        }
        let lock = self.lock(name, LockMode::Exclusive)?;
        let [pool, disk] = image_paths(self.places(), name);
        let base = base_path(self.places().store(), name);
        let images = [&pool, &disk].map(|path| Image::open(path.clone(), name, false));
        let rescue = rescue_path(self.places().store(), name);
        let store = self.places().store();
        for (file, path) in images
            .into_iter()
            .zip([&pool, &disk])
            .chain([(open_base(store, name), &base), (open_rescue(store, name), &rescue)])
        {
            match file {
                Ok(_) => return Err(RegionError::OwnerKnown { name: name.to_string() }),
                Err(FileFault::Missing) => {}
                Err(fault) if fault.is_damage() => {}
                Err(fault) => {
                    return Err(
                        fault.into_error(path, FileRemedy::RestoreFile { path: path.clone() })
                    );
                }
            }
        }
        // From here on no compartment can appear.
        let _names = self.lock_names()?;
        self.check_no_compartments(name)?;
        let [log, disk_log] = redo_paths(self.places(), name);
        let files = [
            pool,
            disk,
            log,
            disk_log,
            base,
            rescue,
            journal_path(store, name),
            grants_path(store, name),
        ];
        let removed = files.iter().filter_map(|path| file_summary(path)).collect();
        self.remove_locked(name, lock)?;
        Ok(removed)
    }

    /// Whether this key may remove the region, and no process has it. The caller holds its lock.
    pub(crate) fn check_removable(&self, name: &RegionName, key: &OwnerKey) -> Result<()> {
        let owner = match self.image(name, LockMode::Exclusive) {
            Ok(Some(image)) => image.header.owner_fingerprint,
            Ok(None) => self.base_or_rescue(name)?.header.owner_fingerprint,
            Err(held @ RegionError::Held { .. }) => return Err(held),
            // A user may want to remove a region because its image is bad.
            Err(error) => match open_base(self.places().store(), name) {
                Ok(base) => base.header.owner_fingerprint,
                Err(_) => return Err(error),
            },
        };
        check_key(name, owner, key)
    }

    /// Removes what there is of a region. The caller has checked that it may, and holds the lock on
    /// the name space, too.
    pub(crate) fn remove_locked(&self, name: &RegionName, lock: FileLock) -> Result<()> {
        // Grants first: a region that comes back with a restore must not find them.
        self.remove_grants(name)?;
        let half = grants_temporary_path(self.places().store(), name);
        if !is_missing(&half) {
            self.remove_file(&half)?;
        }
        // One that stayed would be the region again.
        self.remove_rescue(name)?;
        // Then the base: the image alone is the whole region, the base alone would be an older one.
        self.remove_file(&base_path(self.places().store(), name))?;
        self.sync_store()?;
        // Only now: the base without its journal would be an older state.
        self.remove_file(&journal_path(self.places().store(), name))?;
        self.remove_images(name)?;
        // A keeper, which need not wait for the lock, may have made one meanwhile; without an image
        // it makes no more.
        self.remove_rescue(name)?;
        remove_temporaries(self.storage(), self.places().store(), name)?;
        lock.remove_file().map_err(RegionError::io("remove", lock_path(self.places().pool(), name)))
    }

    /// Removes only the image, damaged or not, so that the next open starts from the last commit.
    /// The store is verified first.
    ///
    /// # Errors
    /// `NotFound`, `Held`, `NotOwner`, `OnlyCopy` when there is no base, `StoreBehind`, one of the
    /// errors about a bad file when the base is bad, or a newer program wrote the rescue copy.
    pub fn remove_image(&self, name: &RegionName, key: &OwnerKey) -> Result<()> {
        if !self.exists(name) {
            return Err(self.not_found(name));
        }
        let _lock = self.lock(name, LockMode::Exclusive)?;
        let stored = Stored::open(self.places().store(), name)?;
        let stored = stored.ok_or_else(|| RegionError::OnlyCopy { name: name.to_string() })?;
        check_key(name, stored.base.header.owner_fingerprint, key)?;
        stored.verify().map_err(|error| source_error(error, &stored.base.path))?;
        refuse_newer_rescue(self.places().store(), name)?;
        match self.image(name, LockMode::Exclusive) {
            Err(held @ RegionError::Held { .. }) => return Err(held),
            Ok(Some(image)) if is_behind(&stored, &image) => {
                return Err(RegionError::StoreBehind { name: name.to_string() });
            }
            _ => {}
        }
        // It may be newer than the last commit.
        self.remove_rescue(name)?;
        self.remove_images(name)?;
        // As in `remove_locked`.
        self.remove_rescue(name)
    }
}
