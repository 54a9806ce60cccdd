//! Changing how far a region may grow.
//!
//! Invariants: the limit never goes below what is backed, and never over the address of another region. Killed
//! anywhere, the region has the old limit or the new one.

#![forbid(unsafe_code)]

use crate::error::{RegionError, Result};
use crate::format::{LIMIT_BYTES_MAX, LIMIT_UNIT_BYTES, WINDOW_END, limit_for};
use crate::key::OwnerKey;
use crate::name::RegionName;
use crate::namespace::NameSpace;

/// Why a limit cannot be changed to what was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The region has more than that.
    #[error(
        "the heap {name:?} has {backed_bytes} bytes already and its limit cannot go below (to {asked_bytes}); \
         choose a larger one"
    )]
    BelowSize {
        /// Name of the region.
        name: String,
        /// What was asked for.
        asked_bytes: u64,
        /// Backed bytes of the region.
        backed_bytes: u64,
    },
    /// It and what its compartments may grow to would not fit.
    #[error(
        "the heap {name:?} and its compartments take {used_bytes} bytes of its limit; a limit of {asked_bytes} is \
         too small: choose one of at least {used_bytes}, or remove a compartment (`holdfast heap rm`)"
    )]
    BelowCompartments {
        /// Name of the region.
        name: String,
        /// What was asked for.
        asked_bytes: u64,
        /// The region's size, and the limits of its compartments.
        used_bytes: u64,
    },
    /// The addresses behind the region are another's.
    #[error(
        "the heap {name:?} may grow to {possible_bytes} bytes at its address, not to {asked_bytes}: {behind} \
         comes next; choose a smaller limit"
    )]
    Blocked {
        /// Name of the region.
        name: String,
        /// What was asked for.
        asked_bytes: u64,
        /// The largest limit that is possible.
        possible_bytes: u64,
        /// What the addresses behind it belong to.
        behind: String,
    },
}

impl NameSpace {
    /// Sets a region's limit (rounded up to 64 KiB) and says what it is now. The region's address stays. The limits of
    /// compartments count against that of their parent.
    ///
    /// # Errors
    /// `BelowSize`, `BelowCompartments`, `Blocked`, `LimitOutOfRange`; `Access` when a compartment's parent has no room
    /// for it; as [`NameSpace::open`] (`Held` while it is in use).
    pub fn set_limit(&self, name: &RegionName, key: &OwnerKey, asked_bytes: u64) -> Result<u64> {
        let limit_bytes = limit_for(asked_bytes)
            .ok_or(RegionError::LimitOutOfRange { asked_bytes, max_bytes: LIMIT_BYTES_MAX })?;
        let mut settled = self.settle(name, key)?;
        let header = &settled.base.header;
        if limit_bytes < header.backed_bytes {
            let (name, backed_bytes) = (name.to_string(), header.backed_bytes);
            return Err(LimitError::BelowSize { name, asked_bytes, backed_bytes }.into());
        }
        // Nobody else may take the addresses behind it meanwhile.
        let _names = self.lock_names()?;
        if let Some((parent, _)) = name.parent_and_worker() {
            // Its limit until now is counted already.
            self.check_quota(&parent, limit_bytes.saturating_sub(header.limit_bytes))?;
        }
        let used_bytes = self.given_out_bytes(name)?.saturating_add(header.backed_bytes);
        if limit_bytes < used_bytes {
            return Err(
                LimitError::BelowCompartments { name: name.to_string(), asked_bytes, used_bytes }.into()
            );
        }
        let (end, behind) = self.end_of_gap(name, header.address, header.limit_bytes)?;
        let possible_bytes =
            (end - header.address).min(LIMIT_BYTES_MAX) / LIMIT_UNIT_BYTES * LIMIT_UNIT_BYTES;
        if limit_bytes > possible_bytes {
            let name = name.to_string();
            return Err(LimitError::Blocked { name, asked_bytes, possible_bytes, behind }.into());
        }
        // The base first: the image decides, and its next checkpoint writes the limit that it has.
        let mut base = settled.base.reopened_for_writing()?;
        base.change_header(&*self.storage, |header| header.limit_bytes = limit_bytes)
            .and_then(|()| self.storage.sync(&base.file))
            .map_err(RegionError::io("write the header of", &base.path))?;
        if let Some(image) = &mut settled.image {
            image
                .change_header(&*self.storage, |header| header.limit_bytes = limit_bytes)
                .map_err(RegionError::io("write the header of", &image.path))?;
        }
        Ok(limit_bytes)
    }

    /// Where the next region's addresses start, and whose they are. Copies have the address of their original;
    /// they are beside it, not behind it.
    fn end_of_gap(&self, name: &RegionName, address: u64, limit_bytes: u64) -> Result<(u64, String)> {
        let mut next = (WINDOW_END, "the end of the range for heaps".to_owned());
        for other in self.list()? {
            let behind = other.address >= address + limit_bytes && other.address < next.0;
            if other.name != *name && behind {
                next = (other.address, format!("the heap {:?}", other.name.as_str()));
            }
        }
        Ok(next)
    }
}
