//! Compartments: private regions of the workers (threads or processes) of one applet, below a region of its owner.
//!
//! A compartment is a region like any other, with files, an address and a limit of its own. What sets it apart is its
//! name, `PARENT+WORKER`, and its key, derived from the owner's and from both names: a worker that is handed its own
//! compartment, or even its own key, can reach no other.
//!
//! Invariants:
//! - Compartments are never merged, with each other or with their parent: there is no operation that does it, none
//!   that copies into one, and none that grants one to another key. A plain name cannot name one.
//! - What a region has backed and what its compartments may grow to are together at most its limit. Both sides change
//!   under the lock on the name space.
//! - A worker may use its compartment, and remove it with its own key: the data are its own. How large it may get is up to
//!   the key of the parent, also for a worker that has a [`Region`] of its compartment; and so is making it.
//! - No compartment outlives its parent: a region is removed with its compartments or not at all.

#![forbid(unsafe_code)]

use holdfast_sys::lock::LockMode;

use crate::care::medium::current_image_path;
use crate::error::{RegionError, Result};
use crate::media::format::Header;
use crate::name::RegionName;
use crate::names::access::AccessError;
use crate::names::key::OwnerKey;
use crate::names::namespace::NameSpace;
use crate::names::opening::check_key;
use crate::names::region::Region;
use crate::names::summary::{RegionSummary, summarize};
use crate::store::stored::Stored;

impl NameSpace {
    /// Opens the compartment of a worker, or makes it with a limit of `quota_bytes` (rounded as in
    /// [`NameSpace::create`]), which counts against the limit of `parent`. One that exists keeps its limit. The
    /// parent itself is not opened: it may be in use, by its compartments' workers or by anybody else.
    ///
    /// # Errors
    /// `NotFound` and `NotOwner` about the parent; `Access` when its limit leaves no room; `Name`; and those of
    /// [`NameSpace::open_or_create`].
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
            Some((image, opened, access)) => Ok(self.region(image, opened, lock).with_access(access)),
            None => self.create_locked(&name, &key, quota_bytes, lock),
        }
    }

    /// The compartments of a region, in the order of their names. Takes no locks.
    ///
    /// # Errors
    /// `Io` when a directory cannot be listed.
    pub fn compartments(&self, parent: &RegionName) -> Result<Vec<RegionSummary>> {
        let names = self.compartment_names(parent)?;
        Ok(names.iter().filter_map(|name| summarize(&self.places, name)).collect())
    }

    /// Removes a region and all its compartments, if nobody has one of them. If the machine stops in the middle, each
    /// is whole or gone, the parent last.
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

    pub(crate) fn compartment_names(&self, parent: &RegionName) -> Result<Vec<RegionName>> {
        let is_child = |name: &RegionName| name.parent_and_worker().is_some_and(|(of, _)| of == *parent);
        Ok(self.names()?.into_iter().filter(is_child).collect())
    }

    /// Refuses to leave compartments behind. The caller holds the lock on the name space.
    pub(crate) fn check_no_compartments(&self, name: &RegionName) -> Result<()> {
        let compartments = self.compartment_names(name)?;
        match compartments.first() {
            None => Ok(()),
            Some(first) => Err(AccessError::HasCompartments {
                name: name.to_string(),
                count: compartments.len(),
                first: first.to_string(),
            }
            .into()),
        }
    }

    /// What the compartments of a region may grow to, in bytes, all or all but one. The caller holds the lock on the name
    /// space.
    pub(crate) fn given_out_bytes(&self, parent: &RegionName, but: Option<&RegionName>) -> Result<u64> {
        let mut bytes = 0_u64;
        for name in self.compartment_names(parent)?.iter().filter(|name| Some(*name) != but) {
            bytes = bytes.saturating_add(self.header_of(name)?.limit_bytes);
        }
        Ok(bytes)
    }

    /// Whether a compartment, new or not, fits below its parent's limit with one of `limit_bytes`. The caller holds the
    /// lock on the name space.
    pub(crate) fn check_quota(
        &self,
        parent: &RegionName,
        compartment: &RegionName,
        limit_bytes: u64,
    ) -> Result<()> {
        let header = self.header_of(parent)?;
        let backed_bytes = self.backed_bytes_of(&header)?;
        let given_out_bytes = self.given_out_bytes(parent, Some(compartment))?;
        let used_bytes = given_out_bytes.saturating_add(backed_bytes);
        if used_bytes.saturating_add(limit_bytes) <= header.limit_bytes {
            return Ok(());
        }
        Err(AccessError::NoQuotaLeft {
            parent: parent.to_string(),
            limit_bytes: header.limit_bytes,
            used_bytes,
            asked_bytes: limit_bytes,
        }
        .into())
    }

    /// How large a region is whose header in force this is. Without an image, only the journal may know how far it grew.
    fn backed_bytes_of(&self, header: &Header) -> Result<u64> {
        if current_image_path(&self.places, &header.name).exists() {
            return Ok(header.backed_bytes);
        }
        let stored = Stored::open(self.places.store(), &header.name)?;
        Ok(stored.map_or(header.backed_bytes, |stored| stored.backed_bytes().max(header.backed_bytes)))
    }

    /// Lets only the key of the parent set what a compartment may have.
    pub(crate) fn check_sets_limit(&self, name: &RegionName, key: &OwnerKey) -> Result<()> {
        if name.parent_and_worker().is_none() {
            return Ok(());
        }
        let header = self.header_of(name)?;
        check_key(name, header.owner_fingerprint, key)?;
        if is_workers_key(&header, key) { Err(parent_only(name)) } else { Ok(()) }
    }

    /// What takes plain names only.
    pub(crate) fn refuse_compartment(&self, name: &RegionName) -> Result<()> {
        match name.parent_and_worker() {
            Some(_) => Err(RegionError::from(AccessError::Compartment { name: name.to_string() })),
            None => Ok(()),
        }
    }
}

/// Whether a key that may use the region is but that of a compartment's worker.
pub(crate) fn is_workers_key(header: &Header, key: &OwnerKey) -> bool {
    let is_not_derived =
        |(parent, worker)| key.for_compartment(&parent, &worker).fingerprint() != header.owner_fingerprint;
    header.name.parent_and_worker().is_some_and(is_not_derived)
}

pub(crate) fn parent_only(name: &RegionName) -> RegionError {
    let parent = name.parent_and_worker().map_or_else(|| name.to_string(), |(parent, _)| parent.to_string());
    AccessError::ParentOnly { name: name.to_string(), parent }.into()
}
