//! Moving a region's image between memory (the pool) and a file on the disk of the home, which is
//! for heaps that are larger than the pool.
//!
//! Invariants:
//! - The kernel writes a file's pages to the disk when it likes, so after a power cut such an image
//!   may be torn. It lies in a directory named after the boot, and one of another boot is never
//!   opened: the store has the truth then.
//! - A region on a disk has a checkpoint from its creation on, so there is always something to go
//!   back to.
//! - A move builds the whole new image before the old one goes. While both are there they hold the
//!   same: before a program stores, one of them is removed.

#![forbid(unsafe_code)]

use holdfast_sys::lock::LockMode;

use crate::error::{RegionError, Result};
use crate::media::format::{FileState, Header};
use crate::media::image::{BuildError, Image};
use crate::media::medium::Medium;
use crate::media::sparse::{CopyError, sum_and_copy};
use crate::name::RegionName;
use crate::names::key::{OwnerKey, check_key};
use crate::names::namespace::NameSpace;
use crate::names::region::Opened;
use crate::store::stored::Stored;

impl NameSpace {
    /// Moves a region's image to a medium, and makes a checkpoint that says so. On success nothing
    /// is left at the old place; killed in between, the region is whole on one of the two.
    ///
    /// # Errors
    /// As [`NameSpace::open`]; `NoRoom` or `NoRoomOnDisk` when the image does not fit there, and
    /// then nothing has changed; as [`Region::close`](crate::Region::close).
    pub fn set_medium(&self, name: &RegionName, key: &OwnerKey, medium: Medium) -> Result<()> {
        if !self.exists(name) {
            return Err(self.not_found(name));
        }
        let lock = self.lock(name, LockMode::Exclusive)?;
        if self.image(name, LockMode::Exclusive)?.is_none()
            && let stored = Stored::open(self.places().store(), name)?
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
                        // Nothing was stored: it is as it was, and needs no checkpoint. If this
                        // cannot be said, the next session makes one for nothing.
                        if how == Opened::Warm {
                            let _ = old.change_header(self.storage(), |header| {
                                header.state = FileState::Clean
                            });
                        }
                        return Err(error);
                    }
                }
            }
            None => {
                let stored = Stored::open(self.places().store(), name)?
                    .ok_or_else(|| self.not_found(name))?;
                check_key(name, stored.base.header.owner_fingerprint, key)?;
                if stored.base.header.medium == medium {
                    return Ok(());
                }
                let header = Header { medium, ..stored.image_header() };
                self.build_image(header, |file| stored.copy_to(self.storage(), file))?
            }
        };
        // The base says where the image of the next cold open goes.
        self.region(image, Opened::WarmAfterCrash, lock).close().map(drop)
    }

    fn move_image(&self, old: &Image, medium: Medium) -> Result<Image> {
        let header = Header { medium, state: FileState::Open, ..old.header.clone() };
        let data_bytes = header.backed_bytes;
        let new = self.build_image(header, |file| {
            sum_and_copy(&old.file, data_bytes, Some((self.storage(), file))).map(drop).map_err(
                |error| match error {
                    CopyError::Read(source) => BuildError::Source(RegionError::Io {
                        step: "read",
                        path: old.path.clone(),
                        source,
                    }),
                    CopyError::Write(source) => BuildError::Target { step: "write", source },
                },
            )
        })?;
        self.remove_file(&old.path)?;
        self.sync_pool()?;
        Ok(new)
    }
}
