//! Changing the limit of a region that is open, mapped or not.
//!
//! Invariant: what a mapped region may grow to is reserved in this process before any header says
//! it.

#![forbid(unsafe_code)]

use crate::error::limit::LimitError;
use crate::error::remedy::FileRemedy;
use crate::error::{RegionError, Result};
use crate::image::address::{address_space, occupant_or_refusal};
use crate::image::dirty::Tracking;
use crate::media::files::base_path;
use crate::media::image::{FileFault, Image};
use crate::names::limits::{rounded, write_limit, write_limit_to_base};
use crate::names::quotas::parent_only;
use crate::names::region::{Holder, Region, Session};

impl Region {
    /// As [`NameSpace::set_limit`](crate::NameSpace::set_limit), for the process that has the
    /// region open with its owner's key, mapped or not. The mapping stays where it is. No thread
    /// may store to the region meanwhile.
    ///
    /// A mapping made by [`Region::map_into`] keeps the range that it was given: its limit shrinks,
    /// and grows again, within that.
    ///
    /// # Errors
    /// `BelowSize`, `BelowCompartments`, `Blocked`, `TakenHere`, `Placed`, `LimitOutOfRange`,
    /// `AddressSpace`, `NamesBusy`, `NotOwner`, `Access` (the region may only be read; a
    /// compartment's parent has no room; or it is a compartment that was not opened by its name
    /// with the parent's key) and `AlreadyMapped` (a relocation is under way) change nothing.
    /// `BackingLost` and `Displaced` as for [`Region::commit`]. `Io` keeps the old limit, or
    /// poisons the region if it comes while the image's header is written.
    pub fn set_limit(&mut self, asked_bytes: u64) -> Result<u64> {
        self.check_usable()?;
        self.check_writable()?;
        match self.holder {
            Holder::Owner => {}
            Holder::Worker => return Err(parent_only(self.name())),
            Holder::Grantee { .. } => {
                return Err(RegionError::NotOwner { name: self.name().to_string() });
            }
        }
        if self.relocating.is_some() {
            return Err(RegionError::AlreadyMapped);
        }
        let limit_bytes = rounded(asked_bytes)?;
        self.check_backing()?;
        let names = self.names.clone();
        let _names = names.lock_names()?;
        let header = &self.image.header;
        names.check_limit(header, Some(header), asked_bytes, limit_bytes)?;
        let mut base = self.base_for_limit(limit_bytes)?;
        let written = self
            .reserve_behind(asked_bytes, limit_bytes)
            .and_then(|()| self.write_limit(base.as_mut(), limit_bytes));
        // Another region may be given the rest, of this home or of another one.
        let limit_bytes = self.limit_bytes();
        if let Some(mapped) = self.attachment.mapped_mut() {
            mapped.give_up(limit_bytes as usize);
        }
        written.map(|()| limit_bytes)
    }

    fn write_limit(&mut self, base: Option<&mut Image>, limit_bytes: u64) -> Result<()> {
        let storage = self.names.storage();
        if let Some(base) = base
            && let Err(error) = write_limit_to_base(storage, base, limit_bytes)
        {
            // It is not known which limit it has.
            self.owe()?;
            return Err(error);
        }
        self.session = Session::Poisoned;
        write_limit(storage, &mut self.image, limit_bytes)?;
        self.session = Session::Writer;
        Ok(())
    }

    /// The base file, to be written to. If it is missing, or is not what the image goes on from,
    /// the next commit makes one with the image's limit.
    fn base_for_limit(&mut self, limit_bytes: u64) -> Result<Option<Image>> {
        let path = base_path(self.names.places().store(), self.name());
        let header = &self.image.header;
        match Image::open(path.clone(), &header.name, true) {
            Ok(base)
                if (base.header.uuid, base.header.address) == (header.uuid, header.address)
                    && base.header.backed_bytes <= limit_bytes =>
            {
                Ok(Some(base))
            }
            Err(fault) if !fault.is_damage() && !matches!(fault, FileFault::Missing) => {
                let remedy = FileRemedy::RestoreFile { path: path.clone() };
                Err(fault.into_error(&path, remedy))
            }
            _ => self.owe().map(|()| None),
        }
    }

    /// Makes the mapping, if there is one, ready to grow to a limit.
    fn reserve_behind(&mut self, asked_bytes: u64, limit_bytes: u64) -> Result<()> {
        let Some(mapped) = self.attachment.mapped_mut() else { return Ok(()) };
        let (reserved, is_own) = mapped.reserved();
        let (name, range_bytes) = (self.image.header.name.to_string(), reserved as u64);
        if limit_bytes <= range_bytes {
            return Ok(());
        }
        if !is_own {
            return Err(LimitError::Placed { name, asked_bytes, range_bytes }.into());
        }
        mapped.reserve(limit_bytes as usize).map_err(|error| match occupant_or_refusal(error) {
            Ok(by) => LimitError::TakenHere { name, asked_bytes, by }.into(),
            Err(source) => address_space(limit_bytes, source),
        })?;
        if mapped.is_tracked() {
            // The tracker begins anew.
            let stored = self.take_dirty(Tracking::AsIs)?;
            self.note_pending(&stored);
        }
        let fitted = self
            .attachment
            .mapped_mut()
            .map_or(Ok(()), |mapped| mapped.fit_reserved(&self.image.file));
        if let Err(source) = fitted {
            // Perhaps it is not tracked any more.
            self.owe()?;
            return Err(RegionError::Io { step: "watch", path: self.image.path.clone(), source });
        }
        Ok(())
    }
}
