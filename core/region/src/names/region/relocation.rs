//! Giving a region another address, when its own is taken in this process.
//!
//! The caller, which knows what is in the region, rewrites its pointers; here the region is mapped
//! elsewhere meanwhile, and the change is made to count.
//!
//! Invariants:
//! - The rewriting happens in private pages. They are published in one step (the redo log); the new
//!   address is stored last. Killed before the publication, nothing has happened; killed between
//!   the two, the header has the old address and the data says itself that it was made for another,
//!   so the relocation is simply done again.
//! - The new range touches neither the old one nor that of another region of the home: the lock on
//!   all names is held from the choice to the end.
//! - A base with the old address must not be continued by a journal with new pointers: the next
//!   commit makes a base.

#![forbid(unsafe_code)]

use std::ptr::NonNull;

use crate::error::{RegionError, Result};
use crate::image::address::claim;
use crate::image::memory::{Consistency, MappedData};
use crate::names::region::publication::PublishReport;
use crate::names::region::{Region, Relocating, Session};

impl Region {
    /// Maps the region privately at a free address that it may get for its own, and says which. The
    /// caller rewrites what the region holds for that address, then calls
    /// [`Region::finish_relocation`]; or [`Region::abandon_relocation`], and nothing has changed.
    ///
    /// # Errors
    /// `AlreadyMapped`; `AddressesExhausted`; as [`Region::map_native`] and
    /// [`Region::set_consistency`].
    pub fn begin_relocation(&mut self) -> Result<(NonNull<u8>, u64)> {
        self.check_mappable()?;
        let limit_bytes = self.limit_bytes();
        let names = self.names.clone();
        let lock = names.lock_names()?;
        // The region's own range is among those that are not free.
        let address = names.free_address(limit_bytes)?;
        let consistency = self.consistency();
        self.set_consistency(Consistency::Atomic)?;
        let mapped = claim(address, limit_bytes).and_then(|range| {
            let (file, notify) = (&self.image.file, self.lost_notify.clone());
            MappedData::map_own(
                range,
                file,
                self.backed_bytes() as usize,
                self.atomic_mode(),
                notify,
            )
            .map_err(RegionError::io("map", &self.image.path))
        });
        let mapped = match mapped {
            Ok(mapped) => mapped,
            Err(error) => {
                self.set_consistency(consistency)?;
                return Err(error);
            }
        };
        let base =
            NonNull::new(mapped.base()).ok_or(RegionError::AddressesExhausted { limit_bytes })?;
        self.set_mapped(mapped)?;
        self.relocating = Some(Relocating { address, consistency, _names: lock });
        Ok((base, address))
    }

    /// Makes what was rewritten count, all of it, and gives the region its new address. It is
    /// unmapped then.
    ///
    /// # Errors
    /// As [`Region::publish`]; `Io` while the header is written poisons the region, and the next
    /// open does the relocation again. Without a relocation under way there is nothing to do.
    pub fn finish_relocation(&mut self) -> Result<PublishReport> {
        let (Some(Relocating { address, consistency, _names }), true) =
            (self.relocating.take(), self.attachment.mapped().is_some())
        else {
            return Ok(PublishReport::default());
        };
        let finished = self.publish().and_then(|report| {
            self.owe_base();
            self.session = Session::Poisoned;
            self.image
                .change_header(self.names.storage(), |header| header.address = address)
                .map_err(RegionError::io("write the header of", &self.image.path))?;
            self.session = Session::Writer;
            Ok(report)
        });
        self.unmap()?;
        let report = finished?;
        self.set_consistency(consistency)?;
        Ok(report)
    }

    /// Throws away what was rewritten; the region is unmapped and as it was.
    ///
    /// # Errors
    /// `Io`.
    pub fn abandon_relocation(&mut self) -> Result<()> {
        let Some(Relocating { consistency, .. }) = self.relocating.take() else { return Ok(()) };
        self.unmap()?;
        self.set_consistency(consistency)
    }
}
