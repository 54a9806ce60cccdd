//! The quota of a region and its compartments together, and who may change it.
//!
//! Invariant: what a region has backed and what its compartments may grow to are together at most
//! its limit. Both sides change under the lock on the name space.

#![forbid(unsafe_code)]

use crate::error::access::AccessError;
use crate::error::{RegionError, Result};
use crate::media::format::Header;
use crate::name::RegionName;
use crate::names::key::{OwnerKey, check_key};
use crate::names::namespace::NameSpace;
use crate::names::places::current_image_path;
use crate::store::stored::Stored;

impl NameSpace {
    pub(crate) fn compartment_names(&self, parent: &RegionName) -> Result<Vec<RegionName>> {
        let is_child =
            |name: &RegionName| name.parent_and_worker().is_some_and(|(of, _)| of == *parent);
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

    /// What the compartments of a region may grow to, in bytes, all or all but one. The caller
    /// holds the lock on the name space.
    pub(crate) fn given_out_bytes(
        &self,
        parent: &RegionName,
        but: Option<&RegionName>,
    ) -> Result<u64> {
        let mut bytes = 0_u64;
        for name in self.compartment_names(parent)?.iter().filter(|name| Some(*name) != but) {
            bytes = bytes.saturating_add(self.header_of(name)?.limit_bytes);
        }
        Ok(bytes)
    }

    /// Whether a compartment, new or not, fits below its parent's limit with one of `limit_bytes`.
    /// The caller holds the lock on the name space.
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

    /// How large a region is whose header in force this is. Without an image, only the journal may
    /// know how far it grew.
    fn backed_bytes_of(&self, header: &Header) -> Result<u64> {
        if current_image_path(self.places(), &header.name).exists() {
            return Ok(header.backed_bytes);
        }
        let stored = Stored::open(self.places().store(), &header.name)?;
        Ok(stored
            .map_or(header.backed_bytes, |stored| stored.backed_bytes().max(header.backed_bytes)))
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
    let is_not_derived = |(parent, worker)| {
        key.for_compartment(&parent, &worker).fingerprint() != header.owner_fingerprint
    };
    header.name.parent_and_worker().is_some_and(is_not_derived)
}

pub(crate) fn parent_only(name: &RegionName) -> RegionError {
    let parent =
        name.parent_and_worker().map_or_else(|| name.to_string(), |(parent, _)| parent.to_string());
    AccessError::ParentOnly { name: name.to_string(), parent }.into()
}
