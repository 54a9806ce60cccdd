//! Compartments: private regions of the workers (threads or processes) of one applet, below a
//! region of its owner.
//!
//! A compartment is a region like any other, with files, an address and a limit of its own. What
//! sets it apart is its name, `PARENT+WORKER`, and its key, derived from the owner's and from both
//! names: a worker that is handed its own compartment, or even its own key, can reach no other.
//!
//! Invariants:
//! - Compartments are never merged, with each other or with their parent: there is no operation
//!   that does it, none that copies into one, and none that grants one to another key. A plain name
//!   cannot name one.
//! - A worker may use its compartment, and remove it with its own key: the data are its own. How
//!   large it may get is up to the key of the parent, also for a worker that has a [`Region`] of
//!   its compartment; and so is making it.
//! - No compartment outlives its parent: a region is removed with its compartments or not at all.

#![forbid(unsafe_code)]

use holdfast_sys::lock::LockMode;

use crate::error::Result;
use crate::name::RegionName;
use crate::names::key::{OwnerKey, check_key};
use crate::names::namespace::NameSpace;
use crate::names::region::Region;
use crate::names::summary::{RegionSummary, summarize};

impl NameSpace {
    /// Opens the compartment of a worker, or makes it with a limit of `quota_bytes` (rounded as in
    /// [`NameSpace::create`]), which counts against the limit of `parent`. One that exists keeps
    /// its limit. The parent itself is not opened: it may be in use, by its compartments' workers
    /// or by another process.
    ///
    /// # Errors
    /// `NotFound` and `NotOwner` about the parent; `Access` when its limit leaves no room; `Name`;
    /// and those of [`NameSpace::open_or_create`].
    pub fn open_compartment(
        &self,
        parent: &RegionName,
        worker: &RegionName,
        owner: &OwnerKey,
        quota_bytes: u64,
    ) -> Result<Region> {
        let name = parent.compartment(worker)?;
        let header = self.header_of(parent)?;
        check_key(parent, header.owner_fingerprint, owner)?;
        let key = owner.for_compartment(parent, worker);
        let lock = self.lock(&name, LockMode::Exclusive)?;
        match self.open_locked(&name, &key)? {
            Some((image, opened, access)) => {
                Ok(self.region(image, opened, lock).with_access(access))
            }
            None => self.create_locked(&name, &key, quota_bytes, lock),
        }
    }

    /// The compartments of a region, in the order of their names. Takes no locks.
    ///
    /// # Errors
    /// `Io` when a directory cannot be listed.
    pub fn compartments(&self, parent: &RegionName) -> Result<Vec<RegionSummary>> {
        let names = self.compartment_names(parent)?;
        Ok(names.iter().filter_map(|name| summarize(self.places(), name)).collect())
    }

    /// Removes a region and all its compartments, if no process has one of them. If the machine
    /// stops in the middle, each is whole or gone, the parent last.
    ///
    /// # Errors
    /// As [`NameSpace::remove`], about the region or one of its compartments.
    pub fn remove_with_compartments(&self, name: &RegionName, key: &OwnerKey) -> Result<()> {
        if !self.exists(name) {
            return Err(self.not_found(name));
        }
        let lock = self.lock(name, LockMode::Exclusive)?;
        self.check_removable(name, key)?;
        // From here on no compartment can appear.
        let _names = self.lock_names()?;
        let mut compartments = Vec::new();
        for compartment in self.compartment_names(name)? {
            let lock = self.lock(&compartment, LockMode::Exclusive)?;
            self.check_removable(&compartment, key)?;
            compartments.push((compartment, lock));
        }
        for (compartment, lock) in compartments {
            self.remove_locked(&compartment, lock)?;
        }
        self.remove_locked(name, lock)
    }
}
