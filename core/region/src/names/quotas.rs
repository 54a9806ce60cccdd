//! The quota of a region and its compartments together, and who may change it.
//!
//! Invariant: what a region has backed and what its compartments may grow to are together at most
//! its limit. What compartments may have changes under the lock on the name space; a parent that
//! grows holds that, too, or takes its part in the word of its image (see
//! [`crate::media::allotment`]).

#![forbid(unsafe_code)]

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use holdfast_sys::file::private_options;
use holdfast_sys::lock::{LockMode, try_lock};

use crate::error::access::AccessError;
use crate::error::{FileRemedy, RegionError, Result};
use crate::media::allotment::Allotment;
use crate::media::files::is_missing;
use crate::media::format::Header;
use crate::media::image::{FileFault, Image, open_fault};
use crate::name::RegionName;
use crate::names::key::{OwnerKey, check_key};
use crate::names::namespace::{HEADER_ATTEMPTS_MAX, NameSpace};
use crate::names::places::current_image_path;
use crate::store::stored::{Stored, remedy_for_image};

/// The image of a region that another process may have open.
struct InUse {
    image: Image,
    is_held: bool,
    /// Keeps writers away while none has it.
    _lock: File,
}

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

    /// Gives a compartment, new or not, a limit of `limit_bytes` below that of its parent, if it
    /// fits there: a parent that grows meanwhile, in another process, sees it. The caller holds the
    /// lock on the name space.
    pub(crate) fn check_quota(
        &self,
        parent: &RegionName,
        compartment: &RegionName,
        limit_bytes: u64,
    ) -> Result<()> {
        let others_bytes = self.given_out_bytes(parent, Some(compartment))?;
        let found = self.parent_in_use(parent)?;
        let header = match &found {
            Some(found) => found.image.header.clone(),
            None => self.header_of(parent)?,
        };
        let no_quota_left = |used_bytes| {
            let (parent, asked_bytes) = (parent.to_string(), limit_bytes);
            let limit_bytes = header.limit_bytes;
            AccessError::NoQuotaLeft { parent, limit_bytes, used_bytes, asked_bytes }.into()
        };
        if let Some(InUse { image, is_held, .. }) = &found
            && Allotment::is_in(&image.file).map_err(RegionError::io("examine", &image.path))?
        {
            let allotment =
                Allotment::map(&image.file).map_err(RegionError::io("map", &image.path))?;
            // One that no process has may say what a process had taken that was killed.
            let backed = (header.backed_bytes, *is_held);
            let shares = (others_bytes, limit_bytes);
            return allotment.give_out(shares, backed, header.limit_bytes).map_err(no_quota_left);
        }
        // Without the word the parent counts, under the lock that is held here.
        let used_bytes = others_bytes.saturating_add(self.backed_bytes_of(&header)?);
        match used_bytes.saturating_add(limit_bytes) <= header.limit_bytes {
            true => Ok(()),
            false => Err(no_quota_left(used_bytes)),
        }
    }

    /// The image of a region that another process may have open; `None` where there is none, or
    /// where it is damaged and no process has it: the store then says how large the region is.
    fn parent_in_use(&self, parent: &RegionName) -> Result<Option<InUse>> {
        let path = current_image_path(self.places(), parent);
        let mut attempts = 1;
        loop {
            let lock = match private_options().read(true).open(&path) {
                Ok(file) => file,
                Err(error) => match open_fault(error, path.clone()) {
                    FileFault::Missing => return Ok(None),
                    fault => {
                        let remedy = FileRemedy::RestoreFile { path: path.clone() };
                        return Err(fault.into_error(&path, remedy));
                    }
                },
            };
            // Before the header is read, which no process changes once it is locked.
            let is_held =
                !try_lock(&lock, LockMode::Shared).map_err(RegionError::io("lock", &path))?;
            let fault = match Image::open(path.clone(), parent, true) {
                Ok(image) if is_same_file(&lock, &image.file) => {
                    return Ok(Some(InUse { image, is_held, _lock: lock }));
                }
                // Another process replaced the image after it was opened here.
                Ok(_) if attempts < HEADER_ATTEMPTS_MAX => {
                    attempts += 1;
                    continue;
                }
                Ok(_) => {
                    return Err(RegionError::Held { name: parent.to_string(), holder: None });
                }
                Err(FileFault::Missing) => return Ok(None),
                Err(fault) => fault,
            };
            // A writer may be changing one slot after the other while they are read.
            if fault.is_damage() && is_held && attempts < HEADER_ATTEMPTS_MAX {
                attempts += 1;
                continue;
            }
            if fault.is_damage() && !is_held {
                return Ok(None);
            }
            let remedy = match fault.is_damage() {
                true => remedy_for_image(self.places().store(), parent, &path),
                false => FileRemedy::RestoreFile { path: path.clone() },
            };
            return Err(fault.into_error(&path, remedy));
        }
    }

    /// How large a region is whose header in force this is. Without an image, only the journal may
    /// know how far it grew.
    fn backed_bytes_of(&self, header: &Header) -> Result<u64> {
        if !is_missing(&current_image_path(self.places(), &header.name)) {
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

fn is_same_file(one: &File, other: &File) -> bool {
    let of = |file: &File| file.metadata().map(|found| (found.dev(), found.ino())).ok();
    of(one).is_some() && of(one) == of(other)
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
