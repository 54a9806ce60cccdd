//! Regions that no process holds: bringing them to the store, and taking their images out of the
//! pool. A keeper of the pool needs no owner's key for it: who may write the files may do this, and
//! it changes no data.
//!
//! Invariants:
//! - Everything happens under the region's lock, so no holder is ever disturbed: a region that is
//!   held is left alone.
//! - An image goes only after the store has all that it had, and was read back and found whole.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use holdfast_sys::lock::{FileLock, LockMode};
use serde::Serialize;

use crate::error::room::RoomReport;
use crate::error::{RegionError, Result};
use crate::media::format::FileState;
use crate::media::storage::{KernelStorage, Storage};
use crate::name::RegionName;
use crate::names::namespace::NameSpace;
use crate::names::places::Places;
use crate::names::region::{CheckpointReport, Region};
use crate::names::room::{KEEPER, MARGIN_BYTES};
use crate::store::rescue::refuse_newer_rescue;
use crate::store::stored::{Stored, is_behind, source_error};

/// What an eviction did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct EvictionReport {
    /// What had to be written before.
    pub checkpoint: CheckpointReport,
    /// What the image took in the pool (or on the disk); 0 when there was none.
    pub freed_bytes: u64,
}

/// A name space knows from its beginning how to evict, so it is made here, above everything that
/// eviction needs.
impl NameSpace {
    /// The regions in these places.
    #[must_use]
    pub fn new(places: Places) -> NameSpace {
        NameSpace::with_storage(places, Arc::new(KernelStorage))
    }

    /// As [`NameSpace::new`], with every change to a file made through `storage`.
    #[must_use]
    pub fn with_storage(places: Places, storage: Arc<dyn Storage>) -> NameSpace {
        let evict = |names: &NameSpace, name: &RegionName| {
            names.evict_at_once(name).map(|done| done.freed_bytes)
        };
        NameSpace::with_evict(Arc::new(places), storage, evict)
    }
}

impl NameSpace {
    /// Brings a region that no process holds to the store, as its last writer would have done at
    /// its close: one that was closed in order has nothing to do. Needs no key. What a writer that
    /// died had not committed in its heap is rolled back by the next who opens it, as ever.
    ///
    /// # Errors
    /// `NotFound`, `Held`; as [`NameSpace::open`] for bad files, and as [`Region::close`].
    pub fn checkpoint_unheld(&self, name: &RegionName) -> Result<CheckpointReport> {
        const NOTHING: CheckpointReport = CheckpointReport { bytes: 0, pages: 0, skipped: true };
        if !self.exists(name) {
            return Err(self.not_found(name));
        }
        let lock = self.lock(name, LockMode::Exclusive)?;
        let Some(image) = self.image(name, LockMode::Exclusive)? else { return Ok(NOTHING) };
        if image.header.state == FileState::Clean && !image.slot_damaged {
            return Ok(NOTHING);
        }
        drop(image);
        match self.open_unheld(name)? {
            Some((image, opened)) => {
                self.region(image, opened, lock).close().map(|closed| closed.checkpoint)
            }
            None => Ok(NOTHING),
        }
    }

    /// Takes the image of a region that no process holds out of the pool: makes a checkpoint if one
    /// is due, verifies the store, and removes the image. The next open is cold. Needs no key.
    ///
    /// # Errors
    /// `NotFound`, `Held`; as [`NameSpace::checkpoint_unheld`]; `OnlyCopy`, `StoreBehind` and the
    /// errors about a bad file when the store does not hold it, or has a rescue copy of a newer
    /// program, beside which it could not be opened again: the image then stays.
    pub fn evict(&self, name: &RegionName) -> Result<EvictionReport> {
        let lock = |name: &RegionName| self.lock(name, LockMode::Exclusive);
        self.evict_locked(name, lock)
    }

    /// As [`NameSpace::evict`]; waits for no holder.
    pub(crate) fn evict_at_once(&self, name: &RegionName) -> Result<EvictionReport> {
        self.evict_locked(name, |name| self.lock_within(Duration::ZERO, name, LockMode::Exclusive))
    }

    fn evict_locked(
        &self,
        name: &RegionName,
        lock: impl FnOnce(&RegionName) -> Result<FileLock>,
    ) -> Result<EvictionReport> {
        if !self.exists(name) {
            return Err(self.not_found(name));
        }
        let lock = lock(name)?;
        refuse_newer_rescue(self.places().store(), name)?;
        let Some((image, opened)) = self.open_unheld(name)? else {
            return Ok(EvictionReport::default());
        };
        let freed_bytes = allocated_bytes(&image.file);
        // Looks at the store even where the image says that it has everything: files can be lost.
        let mut region = self.region(image, opened, lock);
        let checkpoint = region.checkpoint()?;
        // Nothing is given back: the image is about to go.
        region.settle_image()?;
        self.verify_evictable(&region)?;
        // The region, and with it the lock, lives until all is removed.
        self.remove_images(name)?;
        Ok(EvictionReport { checkpoint, freed_bytes })
    }

    fn verify_evictable(&self, region: &Region) -> Result<()> {
        let name = region.name();
        let stored = Stored::open(self.places().store(), name)?;
        let stored = stored.ok_or_else(|| RegionError::OnlyCopy { name: name.to_string() })?;
        stored.verify().map_err(|error| source_error(error, &stored.base.path))?;
        let is_same = stored.base.header.uuid == region.uuid();
        if !is_same || is_behind(&stored, region.image()) {
            return Err(RegionError::StoreBehind { name: name.to_string() });
        }
        Ok(())
    }
}

fn allocated_bytes(file: &std::fs::File) -> u64 {
    use std::os::unix::fs::MetadataExt;
    file.metadata().map_or(0, |found| found.blocks() * 512)
}

/// For an allocation in a pool without a region, such as the images of databases: makes room for so
/// many bytes, as an allocation of a region does.
///
/// # Errors
/// When the pool is not this home's any more, or cannot be listed.
pub fn make_room(places: &Places, needed_bytes: u64) -> Result<RoomReport> {
    let names = NameSpace::new(places.clone());
    let mut report = RoomReport::default();
    if let Some(made) = KEEPER.get().and_then(|ask| ask(places, needed_bytes + MARGIN_BYTES)) {
        report.add(made);
    }
    let turn = names.room_turn()?;
    report.missed_turn = turn.is_none();
    if !report.missed_turn {
        report.attempts = 1;
        report.add(names.make_room(needed_bytes, None)?);
    }
    Ok(report)
}
