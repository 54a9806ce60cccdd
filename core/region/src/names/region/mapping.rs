//! Mapping a region: at its own address, at any, or where the caller has reserved room.

#![allow(unsafe_code, reason = "the caller of `map_into` answers for the range")]

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use holdfast_sys::mapping::Reservation;

use crate::error::{RegionError, Result};
use crate::image::address::{address_space, claim};
use crate::image::memory::{Consistency, MappedData, Mode};
use crate::media::sharing::Sharing;
use crate::names::region::Region;

impl Region {
    /// Maps the region at its own address, [`Region::address`], which is the same in every process,
    /// so data may hold plain pointers. The first such mapping of a process reserves the addresses
    /// of all regions ([`reserve_addresses`](crate::reserve_addresses)). A store to a region that
    /// may only be read is a SIGSEGV.
    ///
    /// # Errors
    /// `AddressTaken` names what sits there; `AddressSpace`; `AlreadyMapped`; `Io`.
    pub fn map_native(&mut self) -> Result<NonNull<u8>> {
        self.check_mappable()?;
        self.expect_stores()?;
        let limit_bytes = self.limit_bytes();
        let range = claim(self.address(), limit_bytes)?;
        self.map_range(range)
    }

    fn map_range(&mut self, range: Reservation) -> Result<NonNull<u8>> {
        let limit_bytes = self.limit_bytes();
        let (file, notify) = (&self.image.file, self.lost_notify.clone());
        let mapped = MappedData::map_own(range, file, self.backed(), self.mode(), notify)
            .map_err(RegionError::io("map", &self.image.path))?;
        let base =
            NonNull::new(mapped.base()).ok_or(RegionError::AddressesExhausted { limit_bytes })?;
        self.set_mapped(mapped)?;
        Ok(base)
    }

    /// As [`Region::map_native`], at any free address, for a program that follows no pointers in
    /// the region: a region that is open for reading may be mapped any number of times in one
    /// process, and one that is a copy of another beside that.
    ///
    /// # Errors
    /// As [`Region::map_native`]; but never `AddressTaken`.
    pub fn map_anywhere(&mut self) -> Result<NonNull<u8>> {
        self.check_mappable()?;
        self.expect_stores()?;
        let limit_bytes = self.limit_bytes();
        let len = usize::try_from(limit_bytes)
            .map_err(|_| RegionError::AddressesExhausted { limit_bytes })?;
        let range =
            Reservation::anywhere(len, 1).map_err(|source| address_space(limit_bytes, source))?;
        self.map_range(range)
    }

    /// Maps the region at `base`: its backed bytes, shared, readable and (from the first store on,
    /// which is noticed) writable. The rest of the limit stays inaccessible until [`Region::grow`].
    ///
    /// # Safety
    /// `base` is page-aligned and starts [`Region::limit_bytes`] bytes of reserved, inaccessible
    /// address space of the caller's (a later [`Region::set_limit`] wants no more of it). It stays
    /// reserved, and nothing else is mapped there, until the region is unmapped or dropped; the
    /// range is then reserved and inaccessible again. No reference into it may outlive that.
    ///
    /// # Errors
    /// `AlreadyMapped`, `Io`.
    pub unsafe fn map_into(&mut self, base: *mut u8) -> Result<()> {
        self.check_mappable()?;
        self.expect_stores()?;
        // SAFETY: the caller's contract is that of `MappedData::map`, and growth is bounded by the
        // limit.
        let mapped = unsafe {
            let (file, notify) = (&self.image.file, self.lost_notify.clone());
            let limit = self.limit_bytes() as usize;
            MappedData::map(base, file, self.backed(), limit, self.mode(), notify)
                .map_err(RegionError::io("map", &self.image.path))?
        };
        self.set_mapped(mapped)
    }

    /// Maps what was allocated by growth, if the region is mapped at all.
    pub(crate) fn map_growth(&mut self, backed_bytes: u64) -> io::Result<()> {
        debug_assert!(backed_bytes <= self.limit_bytes());
        match self.attachment.mapped_mut() {
            Some(mapped) => mapped.grow(&self.image.file, backed_bytes as usize),
            None => Ok(()),
        }
    }

    /// What was stored to since the last call, if the region is mapped and was tracked before.
    pub(crate) fn take_tracked(&mut self, begin: bool) -> io::Result<Option<Vec<Range<u64>>>> {
        self.attachment.mapped_mut().map_or(Ok(None), |mapped| mapped.take_dirty(begin))
    }

    fn mode(&self) -> (Mode, Sharing) {
        // What only the store has is read from there, or from a copy of it.
        let synchronous =
            !self.is_read_only() && self.names.places().maps_synchronously(self.medium());
        let sharing = if synchronous { Sharing::Synchronous } else { Sharing::Ordinary };
        (
            if self.is_read_only() { Mode::ReadOnly } else { Mode::Stores(self.consistency()) },
            sharing,
        )
    }

    /// How the mode `atomic` maps it.
    pub(crate) fn atomic_mode(&self) -> (Mode, Sharing) {
        (Mode::Stores(Consistency::Atomic), self.mode().1)
    }

    fn backed(&self) -> usize {
        // At most the limit, whose reservation proves that it fits.
        self.backed_bytes() as usize
    }
}
