//! On what a region's image lies: memory (the pool), or a file on the disk of the home, for heaps that are larger than
//! the pool. Finding the image in force, and moving it from one to the other.
//!
//! Invariants:
//! - The kernel writes a file's pages to the disk when it likes, so after a power cut such an image may be torn. It
//!   lies in a directory named after the boot, and one of another boot is never opened: the store has the truth then.
//! - A region on a disk has a checkpoint from its creation on, so there is always something to go back to.
//! - A move builds the whole new image before the old one goes. While both are there they hold the same: before
//!   anybody stores, one of them is removed.

#![forbid(unsafe_code)]

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use holdfast_sys::lock::LockMode;
use serde::Serialize;

use crate::error::{RegionError, Result};
use crate::media::files::{image_path, lock_path, names_in, names_lock_path, redo_path};
use crate::media::format::{FileState, Header};
use crate::media::image::{BuildError, Image};
use crate::media::sparse::{CopyError, sum_and_copy};
use crate::name::RegionName;
use crate::names::key::OwnerKey;
use crate::names::namespace::NameSpace;
use crate::names::opening::check_key;
use crate::names::places::Places;
use crate::names::region::{Opened, Region};
use crate::store::stored::Stored;

/// Where a region's image lies. A property of the region: it is kept through every way of opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Medium {
    /// In the pool: never written back by the kernel, and as large as the pool allows.
    #[default]
    Memory,
    /// On the disk of the home, and in memory as far as the kernel likes. The levels promise the same; what is
    /// stored is written to the disk twice, once by the kernel and once by commits at level `power`.
    File,
}

impl fmt::Display for Medium {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Medium::Memory => "memory",
            Medium::File => "file",
        })
    }
}

/// A text that names no medium.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is nothing that a heap can lie on; say `memory` (the pool) or `file` (the disk of the home)"
)]
pub struct MediumError {
    /// The text.
    pub text: String,
}

impl FromStr for Medium {
    type Err = MediumError;

    fn from_str(text: &str) -> std::result::Result<Medium, MediumError> {
        [Medium::Memory, Medium::File]
            .into_iter()
            .find(|medium| medium.to_string() == text)
            .ok_or_else(|| MediumError { text: text.to_owned() })
    }
}

/// Where a region's image is, or would be, on each medium.
pub(crate) fn image_paths(places: &Places, name: &RegionName) -> [PathBuf; 2] {
    [Medium::Memory, Medium::File].map(|medium| image_path(places.images(medium), name))
}

/// Where the redo log of an image is, or would be, on each medium. It lies beside its image; writers of an earlier
/// version put that of an image on the disk into the pool.
pub(crate) fn redo_paths(places: &Places, name: &RegionName) -> [PathBuf; 2] {
    [Medium::Memory, Medium::File].map(|medium| redo_path(places.images(medium), name))
}

/// The path of the image in force; if there is none, one that leads nowhere.
pub(crate) fn current_image_path(places: &Places, name: &RegionName) -> PathBuf {
    let [pool, disk] = image_paths(places, name);
    // Both are there when a move was killed between its last two steps: they hold the same, and the next writer
    // removes one.
    let on_disk_only = pool.symlink_metadata().is_err() && disk.symlink_metadata().is_ok();
    if on_disk_only { disk } else { pool }
}

impl NameSpace {
    /// The same name space, in which new regions get this medium. Those that exist keep theirs.
    #[must_use]
    pub fn with_medium(self, medium: Medium) -> NameSpace {
        NameSpace { medium, ..self }
    }

    /// Moves a region's image to a medium, and makes a checkpoint that says so. On success nothing is left at the old
    /// place; killed in between, the region is whole on one of the two.
    ///
    /// # Errors
    /// As [`NameSpace::open`]; `NoRoom` or `NoRoomOnDisk` when the image does not fit there, and then nothing has
    /// changed; as [`Region::close`].
    pub fn set_medium(&self, name: &RegionName, key: &OwnerKey, medium: Medium) -> Result<()> {
        if !self.exists(name) {
            return Err(self.not_found(name));
        }
        let lock = self.lock(name, LockMode::Exclusive)?;
        if self.image(name, LockMode::Exclusive)?.is_none()
            && let stored = Stored::open(self.places.store(), name)?
            && let Some(rescue) = self.rescue_that_counts(name, stored.as_ref())?
        {
            check_key(name, rescue.header.owner_fingerprint, key)?;
            self.open_rescued(&rescue, stored.as_ref())?;
        }
        let image = match self.image(name, LockMode::Exclusive)? {
            Some(old) => {
                check_key(name, old.header.owner_fingerprint, key)?;
                if old.header.medium == medium {
                    return Ok(());
                }
                drop(old);
                // Opening knows what a crash and a damaged slot mean for the header.
                let opened = self.open_locked(name, key)?;
                let (mut old, how, _) = opened.ok_or_else(|| self.not_found(name))?;
                match self.move_image(&old, medium) {
                    Ok(new) => new,
                    Err(error) => {
                        // Nothing was stored: it is as it was, and needs no checkpoint. If this cannot be said, the next
                        // session makes one for nothing.
                        if how == Opened::Warm {
                            let _ =
                                old.change_header(&*self.storage, |header| header.state = FileState::Clean);
                        }
                        return Err(error);
                    }
                }
            }
            None => {
                let stored = Stored::open(self.places.store(), name)?.ok_or_else(|| self.not_found(name))?;
                check_key(name, stored.base.header.owner_fingerprint, key)?;
                if stored.base.header.medium == medium {
                    return Ok(());
                }
                let header = Header { medium, ..stored.image_header() };
                self.build_image(header, |file| stored.copy_to(&*self.storage, file))?
            }
        };
        // The base says where the image of the next cold open goes.
        self.region(image, Opened::WarmAfterCrash, lock).close().map(drop)
    }

    fn move_image(&self, old: &Image, medium: Medium) -> Result<Image> {
        let header = Header { medium, state: FileState::Open, ..old.header.clone() };
        let data_bytes = header.backed_bytes;
        let new = self.build_image(header, |file| {
            sum_and_copy(&old.file, data_bytes, Some((&*self.storage, file))).map(drop).map_err(|error| {
                match error {
                    CopyError::Read(source) => {
                        BuildError::Source(RegionError::Io { step: "read", path: old.path.clone(), source })
                    }
                    CopyError::Write(source) => BuildError::Target { step: "write", source },
                }
            })
        })?;
        self.remove_file(&old.path)?;
        self.sync_pool()?;
        Ok(new)
    }

    /// Removes redo logs whose image is gone, or has all that they say. One that stayed could be of the generation that
    /// the next image gets.
    pub(crate) fn remove_redo_logs(&self, name: &RegionName) -> Result<()> {
        let mut removed = false;
        for path in redo_paths(&self.places, name) {
            if path.symlink_metadata().is_ok() {
                self.remove_file(&path)?;
                removed = true;
            }
        }
        if removed { self.sync_pool() } else { Ok(()) }
    }

    /// Removes images that are not in force any more: that of a move which was killed, and all of earlier boots. The
    /// caller holds the name's lock; images of earlier boots are nobody's.
    pub(crate) fn remove_stale_images(&self, name: &RegionName) -> Result<()> {
        let current = current_image_path(&self.places, name);
        let is_there = |path: &PathBuf| path.symlink_metadata().is_ok();
        for path in image_paths(&self.places, name) {
            if path != current && is_there(&path) {
                self.remove_file(&path)?;
                self.sync_pool()?;
            }
        }
        for directory in self.places.images_of_other_boots() {
            // A pool on a disk has locks and logs in it, too.
            for path in
                [image_path(&directory, name), redo_path(&directory, name), lock_path(&directory, name)]
            {
                if is_there(&path) {
                    self.remove_file(&path)?;
                }
            }
            if names_in(&directory, "image").is_ok_and(|names| names.is_empty()) {
                let _ = self.remove_file(&names_lock_path(&directory));
                let _ = std::fs::remove_dir(&directory);
            }
        }
        Ok(())
    }
}

impl Region {
    /// Where its image lies.
    #[must_use]
    pub fn medium(&self) -> Medium {
        self.image.header.medium
    }

    pub(crate) fn redo_path(&self) -> PathBuf {
        redo_path(self.places.images(self.medium()), self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_medium_is_read_as_it_is_written_and_nonsense_is_told_the_choices() {
        for medium in [Medium::Memory, Medium::File] {
            assert_eq!(medium.to_string().parse(), Ok(medium));
        }
        let error = "tape".parse::<Medium>().unwrap_err().to_string();
        assert!(error.contains("memory") && error.contains("file"), "{error}");
    }
}
