//! A region at rest: its name locked, its newest data in a whole base file without a journal. What
//! snapshots, restores and changes of the limit start from, and how they write files into the
//! store.
//!
//! Invariants:
//! - While a [`Settled`] lives no other process writes the region. Its base alone holds everything
//!   that counts: what was published is in it, and what a journal added.
//! - A file of the store gets its name only after its bytes are durable.
//! - No two bases of a region have the same number, so a journal that is still there is stale
//!   beside a newer base.

#![forbid(unsafe_code)]

use std::fs::File;
use std::path::{Path, PathBuf};

use holdfast_sys::lock::{FileLock, LockMode};

use crate::error::{RegionError, Result};
use crate::media::files::{base_path, journal_path, remove_temporaries, temporary_path};
use crate::media::format::{FileState, Header};
use crate::media::image::{Backing, BuildError, Image};
use crate::media::journal::continued_checkpoint;
use crate::media::sparse::{CopyError, DataSum, sum_and_copy};
use crate::name::RegionName;
use crate::names::key::{OwnerKey, check_key};
use crate::names::namespace::NameSpace;
use crate::store::base::{open_base, target_error, verify_base, write_base};
use crate::store::stored::{Stored, adoptable, next_base_header};

/// A region that no process writes, with a base that is up to date.
pub(crate) struct Settled {
    pub(crate) base: Image,
    /// The image, if there is one, with its lock.
    pub(crate) image: Option<Image>,
    _lock: FileLock,
}

impl NameSpace {
    /// Locks a region and brings its base up to date: a new one, if the base alone lacks something.
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
    pub(crate) fn settle_locked(
        &self,
        name: &RegionName,
        key: &OwnerKey,
    ) -> Result<(Option<Image>, Image)> {
        let Some(image) = self.image(name, LockMode::Exclusive)? else {
            let stored = Stored::open(self.places().store(), name)?;
            if let Some(rescue) = self.rescue_that_counts(name, stored.as_ref())? {
                check_key(name, rescue.header.owner_fingerprint, key)?;
                return self.settle_image(name, key, rescue.header.uuid);
            }
            let stored = stored.ok_or_else(|| self.not_found(name))?;
            check_key(name, stored.base.header.owner_fingerprint, key)?;
            let base =
                if stored.is_continued() { self.fold_in_store(&stored)? } else { stored.base };
            return Ok((None, base));
        };
        check_key(name, image.header.owner_fingerprint, key)?;
        let in_order = image.header.state == FileState::Clean && !image.slot_damaged;
        // Bad files of the store are mended by a new base: the image has everything.
        if in_order
            // A record that is known to be durable was appended to a journal: without it the base
            // is an older state.
            && image.header.journal_sequence == 0
            && let Some(stored) = adoptable(self.places().store(), &image.header)
            && !stored.is_continued()
            && stored.backed_bytes() == image.header.backed_bytes
            && !stored.base.slot_damaged
        {
            return Ok((Some(image), stored.base));
        }
        let uuid = image.header.uuid;
        drop(image);
        self.settle_image(name, key, uuid)
    }

    /// Opens the image, which has this identity, as a writer would, and makes a base of it.
    fn settle_image(
        &self,
        name: &RegionName,
        key: &OwnerKey,
        uuid: [u8; 16],
    ) -> Result<(Option<Image>, Image)> {
        let store = self.places().store();
        self.check_store_of(name, uuid)?;
        // Opening knows what a crash and a damaged slot mean for the header, and finishes
        // publications.
        let (mut image, _, _) = self.open_locked(name, key)?.ok_or_else(|| self.not_found(name))?;
        let header = next_base_header(store, &image.header);
        remove_temporaries(self.storage(), store, name)?;
        let (_, base) = write_base(self.storage(), &image.file, header, store)?;
        self.remove_file(&journal_path(store, name))?;
        let written = image.change_header(self.storage(), |image| {
            image.checkpoint_count = base.header.checkpoint_count;
            image.journal_sequence = 0;
            image.state = FileState::Clean;
        });
        written.map_err(RegionError::io("write the header of", &image.path))?;
        let base = self.base(name)?.ok_or_else(|| self.not_found(name))?;
        Ok((Some(image), base))
    }

    /// Makes one base of a base and the journal that continues it, without going through the pool.
    pub(crate) fn fold_in_store(&self, stored: &Stored) -> Result<Image> {
        let (store, old) = (self.places().store(), &stored.base.header);
        // Also one that is not folded, because it is no use, must be stale beside the new base.
        let journal = continued_checkpoint(&journal_path(store, &old.name));
        let header = Header {
            checkpoint_count: old.checkpoint_count.max(journal.unwrap_or(0)) + 1,
            image_generation: old.image_generation,
            state: FileState::Clean,
            continued: true,
            ..stored.image_header()
        };
        let data_bytes = header.backed_bytes;
        let built = self.build_in_store(store, header, |file, header| {
            stored.copy_to(self.storage(), file)?;
            header.data_checksum = checksum_of(file, data_bytes)?.checksum;
            Ok(())
        })?;
        self.publish_in_store(built, store, base_path(store, &old.name))?;
        self.remove_file(&journal_path(store, &old.name))?;
        open_base(store, &old.name).map_err(|fault| self.base_error(&old.name, fault))
    }

    /// Writes a file of the store: built under a temporary name beside `path`, durable, not yet
    /// named.
    pub(crate) fn build_in_store(
        &self,
        directory: &Path,
        header: Header,
        fill: impl FnOnce(&File, &mut Header) -> std::result::Result<(), BuildError>,
    ) -> Result<Image> {
        remove_temporaries(self.storage(), directory, &header.name)?;
        let temporary = temporary_path(directory, &header.name);
        let data_bytes = header.backed_bytes;
        let failed = |error| target_error(self.storage(), error, &temporary, directory, data_bytes);
        let built = Image::build(self.storage(), temporary.clone(), header, Backing::Packed, fill);
        let built = built.map_err(failed)?;
        if let Err(source) = self.storage().sync(&built.file) {
            let _ = self.storage().remove(&temporary);
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
        if let Err(source) = built.rename(self.storage(), path.clone()) {
            let _ = self.storage().remove(&built.path);
            return Err(RegionError::Io { step: "rename", path, source });
        }
        self.storage()
            .sync_directory(directory)
            .map_err(RegionError::io("make durable", directory))?;
        Ok(built)
    }

    /// Fills a new file with the verified data of a base file: by sharing its blocks where the file
    /// system can, else by a copy that keeps the holes.
    pub(crate) fn fill_from(
        &self,
        base: &Image,
        target: &File,
    ) -> std::result::Result<(), BuildError> {
        let is_packed = base.header.packed_bytes > 0;
        if !is_packed && self.storage().share_blocks(&base.file, target).is_ok() {
            verify_base(base, None)
        } else {
            verify_base(base, Some((self.storage(), target)))
        }
    }
}

/// Sums what is in a new file now: that is what counts, not what was meant to be written.
pub(crate) fn checksum_of(
    file: &File,
    data_bytes: u64,
) -> std::result::Result<DataSum, BuildError> {
    sum_and_copy(file, data_bytes, None).map_err(|error| match error {
        CopyError::Read(source) | CopyError::Write(source) => {
            BuildError::Target { step: "read back", source }
        }
    })
}
