//! Changing how far a region may grow, at rest or while this process has it open.
//!
//! Invariants:
//! - The limit never goes below what is backed, and never over the address of another region.
//! - Killed anywhere, the region has the old limit or the new one. The base in the store is changed first, the image last,
//!   and the image decides. Where the two differ no journal is continued, which could add more to the base than that may
//!   have: the next commit makes a base with the image's limit.
//! - What a mapped region may grow to is reserved in this process before any header says it.

#![forbid(unsafe_code)]

use crate::error::Result;
use crate::name::RegionName;
use crate::names::key::OwnerKey;
use crate::names::limits::rounded;
use crate::names::limits::write_limit;
use crate::names::limits::write_limit_to_base;
use crate::names::namespace::NameSpace;

impl NameSpace {
    /// Sets a region's limit (rounded up to 64 KiB) and says what it is now. The region's address stays. The limits of
    /// compartments count against that of their parent, and are set with the parent's key.
    ///
    /// # Errors
    /// `BelowSize`, `BelowCompartments`, `Blocked`, `LimitOutOfRange`; `Access` when a compartment's parent has no room
    /// for it, or the key is but the compartment's; as [`NameSpace::open`] (`Held` while it is in use: then whoever has
    /// it calls [`Region::set_limit`]).
    pub fn set_limit(&self, name: &RegionName, key: &OwnerKey, asked_bytes: u64) -> Result<u64> {
        let limit_bytes = rounded(asked_bytes)?;
        self.check_sets_limit(name, key)?;
        let mut settled = self.settle(name, key)?;
        // Nobody else may take the addresses behind it meanwhile.
        let _names = self.lock_names()?;
        let header = &settled.image.as_ref().unwrap_or(&settled.base).header;
        self.check_limit(header, Some(header), asked_bytes, limit_bytes)?;
        write_limit_to_base(self.storage(), &mut settled.base.reopened_for_writing()?, limit_bytes)?;
        if let Some(image) = &mut settled.image {
            write_limit(self.storage(), image, limit_bytes)?;
        }
        Ok(limit_bytes)
    }
}
