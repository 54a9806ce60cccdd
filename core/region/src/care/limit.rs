//! Changing the limit of a region that no process has open. See [`crate::names::limits`] for what
//! must hold.

#![forbid(unsafe_code)]

use crate::error::Result;
use crate::name::RegionName;
use crate::names::key::OwnerKey;
use crate::names::limits::{rounded, write_limit, write_limit_to_base};
use crate::names::namespace::NameSpace;

impl NameSpace {
    /// Sets a region's limit (rounded up to 64 KiB) and says what it is now. The region's address
    /// stays. The limits of compartments count against that of their parent, and are set with the
    /// parent's key.
    ///
    /// # Errors
    /// `BelowSize`, `BelowCompartments`, `Blocked`, `LimitOutOfRange`; `Access` when a
    /// compartment's parent has no room for it, or the key is but the compartment's; as
    /// [`NameSpace::open`] (`Held` while it is in use: then the process that has it calls
    /// [`Region::set_limit`](crate::Region::set_limit)).
    pub fn set_limit(&self, name: &RegionName, key: &OwnerKey, asked_bytes: u64) -> Result<u64> {
        let limit_bytes = rounded(asked_bytes)?;
        self.check_sets_limit(name, key)?;
        let mut settled = self.settle(name, key)?;
        // No other process may take the addresses behind it meanwhile.
        let _names = self.lock_names()?;
        let header = &settled.image.as_ref().unwrap_or(&settled.base).header;
        self.check_limit(header, Some(header), asked_bytes, limit_bytes)?;
        write_limit_to_base(
            self.storage(),
            &mut settled.base.reopened_for_writing()?,
            limit_bytes,
        )?;
        if let Some(image) = &mut settled.image {
            write_limit(self.storage(), image, limit_bytes)?;
        }
        Ok(limit_bytes)
    }
}
