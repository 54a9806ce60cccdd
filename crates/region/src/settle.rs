//! A region at rest: its name locked, its newest data in a whole base file. What snapshots, copies of files and
//! changes of the limit start from, and how they write files into the store.
//!
//! Invariants:
//! - While a [`Settled`] lives nobody else writes the region, and its base holds what the image holds.
//! - A file of the store gets its name only after its bytes are durable.

#![forbid(unsafe_code)]

use std::fs::File;
use std::path::{Path, PathBuf};

use holdfast_sys::lock::{FileLock, LockMode};

use crate::base::{is_full, open_base, verify_base, write_base};
use crate::error::{RegionError, Result};
use crate::files::{remove_temporaries, temporary_path};
use crate::format::{FileState, Header};
use crate::image::{Backing, BuildError, Image};
use crate::key::OwnerKey;
use crate::name::RegionName;
use crate::namespace::NameSpace;
use crate::opening::check_key;
use crate::sparse::PAGE_BYTES;
use crate::storage::Storage;

/// A region that nobody writes, with a base that is up to date.
pub(crate) struct Settled {
    pub(crate) base: Image,
    /// The image, if there is one, with its lock.
    pub(crate) image: Option<Image>,
    _lock: FileLock,
}

impl NameSpace {
    /// Locks a region and brings its base up to date: a checkpoint, if the base lacks something.
    ///
    /// # Errors
    /// As [`NameSpace::open`] and a checkpoint.
    pub(crate) fn settle(&self, name: &RegionName, key: &OwnerKey) -> Result<Settled> {
        if !self.exists(name) {
            return Err(self.not_found(name));
        }
        let lock = self.lock(name, LockMode::Exclusive)?;
        let (image, base) = self.settle_locked(name, key)?;
        Ok(Settled { base, image, _lock: lock })
    }

    /// As [`NameSpace::settle`], under a lock that the caller holds.
    pub(crate) fn settle_locked(&self, name: &RegionName, key: &OwnerKey) -> Result<(Option<Image>, Image)> {
        let Some(image) = self.image(name, LockMode::Exclusive)? else {
            let base = self.base(name)?.ok_or_else(|| self.not_found(name))?;
            check_key(name, base.header.owner_fingerprint, key)?;
            return Ok((None, base));
        };
        check_key(name, image.header.owner_fingerprint, key)?;
        let in_order = image.header.state == FileState::Clean && !image.slot_damaged;
        if in_order && let Ok(base) = open_base(self.places.store(), name) {
            return Ok((Some(image), base));
        }
        drop(image);
        // Opening knows what a crash and a damaged slot mean for the header.
        let (mut image, _) = self.open_locked(name, key)?.ok_or_else(|| self.not_found(name))?;
        write_base(&*self.storage, &image.file, &image.header, self.places.store())?;
        let written = image.change_header(&*self.storage, |header| {
            header.checkpoint_count += 1;
            header.state = FileState::Clean;
        });
        written.map_err(RegionError::io("write the header of", &image.path))?;
        let base = self.base(name)?.ok_or_else(|| self.not_found(name))?;
        Ok((Some(image), base))
    }

    /// Writes a file of the store: built under a temporary name beside `path`, durable, not yet named.
    pub(crate) fn build_in_store(
        &self,
        directory: &Path,
        header: Header,
        fill: impl FnOnce(&File, &mut Header) -> std::result::Result<(), BuildError>,
    ) -> Result<Image> {
        remove_temporaries(&*self.storage, directory, &header.name)?;
        let temporary = temporary_path(directory, &header.name);
        let data_bytes = header.backed_bytes;
        let failed = |error| store_error(&*self.storage, error, &temporary, directory, data_bytes);
        let built = Image::build(&*self.storage, temporary.clone(), header, Backing::Holes, fill);
        let built = built.map_err(failed)?;
        if let Err(source) = self.storage.sync(&built.file) {
            let _ = self.storage.remove(&temporary);
            return Err(failed(BuildError::Target { step: "make durable", source }));
        }
        Ok(built)
    }

    /// Gives a built file its name, durably.
    pub(crate) fn publish_in_store(
        &self,
        mut built: Image,
        directory: &Path,
        path: PathBuf,
    ) -> Result<Image> {
        if let Err(source) = built.rename(&*self.storage, path.clone()) {
            let _ = self.storage.remove(&built.path);
            return Err(RegionError::Io { step: "rename", path, source });
        }
        self.storage.sync_directory(directory).map_err(RegionError::io("make durable", directory))?;
        Ok(built)
    }

    /// Fills a new file with the verified data of a base file: by sharing its blocks where the file system can,
    /// else by a copy that keeps the holes.
    pub(crate) fn fill_from(&self, base: &Image, target: &File) -> std::result::Result<(), BuildError> {
        match self.storage.share_blocks(&base.file, target) {
            Ok(()) => verify_base(base, None),
            Err(_) => verify_base(base, Some((&*self.storage, target))),
        }
    }
}

fn store_error(
    storage: &dyn Storage,
    error: BuildError,
    path: &Path,
    directory: &Path,
    data_bytes: u64,
) -> RegionError {
    match error {
        BuildError::Source(error) => error,
        BuildError::Target { source, .. } if is_full(&source) => RegionError::StoreFull {
            needed_bytes: data_bytes + 2 * PAGE_BYTES,
            available_bytes: storage.available_bytes(directory).unwrap_or(0),
            store: directory.to_owned(),
        },
        BuildError::Target { step, source } => RegionError::Io { step, path: path.to_owned(), source },
    }
}
