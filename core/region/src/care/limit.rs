//! Changing how far a region may grow, at rest or while this process has it open.
//!
//! Invariants:
//! - The limit never goes below what is backed, and never over the address of another region.
//! - Killed anywhere, the region has the old limit or the new one. The base in the store is changed first, the image last,
//!   and the image decides. Where the two differ no journal is continued, which could add more to the base than that may
//!   have: the next commit makes a base with the image's limit.
//! - What a mapped region may grow to is reserved in this process before any header says it.

#![forbid(unsafe_code)]

use holdfast_sys::process::Occupant;

use crate::error::{RegionError, Remedy, Result};
use crate::image::address::{address_space, occupant_or_refusal};
use crate::image::dirty::Tracking;
use crate::media::files::base_path;
use crate::media::format::{Header, LIMIT_BYTES_MAX, LIMIT_UNIT_BYTES, WINDOW_END, limit_for};
use crate::media::image::{FileFault, Image};
use crate::media::storage::Storage;
use crate::name::RegionName;
use crate::names::access::AccessError;
use crate::names::compartments::parent_only;
use crate::names::key::OwnerKey;
use crate::names::namespace::NameSpace;
use crate::names::region::Region;

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
    /// The addresses behind the mapped region are somebody else's in this process.
    #[error(
        "the heap {name:?} cannot grow to {asked_bytes} bytes where it is mapped: {by} comes next in this process; set \
         the limit while no process has the heap open (`holdfast heap limit`)"
    )]
    TakenHere {
        /// Name of the region.
        name: String,
        /// What was asked for.
        asked_bytes: u64,
        /// What sits there.
        by: Occupant,
    },
    /// Data that is to come back finds no room any more.
    #[error(
        "the heap {name:?} needs {needed_bytes} bytes for that data and cannot have them now: {why}; nothing was changed"
    )]
    NoPlace {
        /// Name of the region.
        name: String,
        /// What its data and its compartments take.
        needed_bytes: u64,
        /// What is in the way, and what to do about it.
        why: String,
    },
    /// It is mapped where somebody else made room for it.
    #[error(
        "the heap {name:?} is mapped into the {range_bytes} bytes of a sandbox and cannot pass them (to {asked_bytes}); \
         set the limit while the applet is not running (`holdfast heap limit`)"
    )]
    Placed {
        /// Name of the region.
        name: String,
        /// What was asked for.
        asked_bytes: u64,
        /// The range that it was given.
        range_bytes: u64,
    },
}

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
        write_to_base(&*self.storage, &mut settled.base.reopened_for_writing()?, limit_bytes)?;
        if let Some(image) = &mut settled.image {
            write(&*self.storage, image, limit_bytes)?;
        }
        Ok(limit_bytes)
    }

    /// Whether a region of this size and address may have a limit; `current` is the region as it is, if it is there. The
    /// caller holds the region's lock and the one on the name space.
    pub(crate) fn check_limit(
        &self,
        header: &Header,
        current: Option<&Header>,
        asked_bytes: u64,
        limit_bytes: u64,
    ) -> Result<()> {
        let name = &header.name;
        if limit_bytes < header.backed_bytes {
            let (name, backed_bytes) = (name.to_string(), header.backed_bytes);
            return Err(LimitError::BelowSize { name, asked_bytes, backed_bytes }.into());
        }
        let current_bytes = current.map_or(0, |current| current.limit_bytes);
        if let Some((parent, _)) = name.parent_and_worker()
            && limit_bytes > current_bytes
        {
            self.check_quota(&parent, name, limit_bytes)?;
        }
        let used_bytes = self.given_out_bytes(name, None)?.saturating_add(header.backed_bytes);
        if limit_bytes < used_bytes {
            return Err(
                LimitError::BelowCompartments { name: name.to_string(), asked_bytes, used_bytes }.into()
            );
        }
        let held_bytes =
            current.filter(|current| current.address == header.address).map_or(0, |_| current_bytes);
        let (end, behind) = self.end_of_gap(name, header.address, held_bytes)?;
        let possible_bytes =
            (end - header.address).min(LIMIT_BYTES_MAX) / LIMIT_UNIT_BYTES * LIMIT_UNIT_BYTES;
        if limit_bytes > possible_bytes {
            let name = name.to_string();
            return Err(LimitError::Blocked { name, asked_bytes, possible_bytes, behind }.into());
        }
        Ok(())
    }

    /// The first of some limits that a region of this size and address may have, or the smallest one that holds it and
    /// its compartments. For data that is to come back; `current` and the locks are as for [`NameSpace::check_limit`].
    ///
    /// # Errors
    /// `NoPlace` when there is none.
    pub(crate) fn limit_for_data(
        &self,
        header: &Header,
        current: Option<&Header>,
        wanted_bytes: &[u64],
    ) -> Result<u64> {
        let taken_bytes = self.given_out_bytes(&header.name, None)?.saturating_add(header.backed_bytes);
        let needed_bytes = rounded(taken_bytes)?;
        for limit_bytes in wanted_bytes {
            match self.check_limit(header, current, *limit_bytes, *limit_bytes) {
                Ok(()) => return Ok(*limit_bytes),
                Err(RegionError::Limit(_) | RegionError::Access(AccessError::NoQuotaLeft { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        let why = match self.check_limit(header, current, needed_bytes, needed_bytes) {
            Ok(()) => return Ok(needed_bytes),
            Err(RegionError::Limit(LimitError::Blocked { behind, .. })) => {
                format!("{behind} took the addresses; copy that one and remove it (`holdfast heap rm`)")
            }
            Err(RegionError::Access(AccessError::NoQuotaLeft {
                parent, limit_bytes, used_bytes, ..
            })) => format!(
                "of the limit of {parent:?} ({limit_bytes} bytes), {used_bytes} are given out; raise that limit \
                 (`holdfast heap limit`)"
            ),
            Err(error) => return Err(error),
        };
        Err(LimitError::NoPlace { name: header.name.to_string(), needed_bytes, why }.into())
    }

    /// The header of a base whose journal goes on to more bytes than the limit in it.
    pub(crate) fn header_for_journal(&self, base: &Header, backed_bytes: u64) -> Result<Header> {
        let needed = Header { backed_bytes, ..base.clone() };
        let _names = self.lock_names()?;
        let limit_bytes = self.limit_for_data(&needed, Some(base), &[])?;
        Ok(Header { limit_bytes, ..base.clone() })
    }

    /// Where the next region's addresses start behind those that are held already, and whose they are. Copies have the
    /// address of their original; they are beside it, not behind it.
    fn end_of_gap(&self, name: &RegionName, address: u64, held_bytes: u64) -> Result<(u64, String)> {
        let mut next = (WINDOW_END, "the end of the range for heaps".to_owned());
        for other in self.list()? {
            // One that comes back finds others also where it was.
            let covers =
                held_bytes == 0 && other.address < address && address < other.address + other.limit_bytes;
            let start = if covers { address } else { other.address };
            let behind = covers || (other.address > address && other.address >= address + held_bytes);
            if other.name != *name && behind && start < next.0 {
                next = (start, format!("the heap {:?}", other.name.as_str()));
            }
        }
        Ok(next)
    }
}

impl Region {
    /// As [`NameSpace::set_limit`], for the process that has the region open with its owner's key, mapped or not. The
    /// mapping stays where it is. No thread may store to the region meanwhile.
    ///
    /// A mapping made by [`Region::map_into`] keeps the range that it was given: its limit shrinks, and grows again,
    /// within that.
    ///
    /// # Errors
    /// `BelowSize`, `BelowCompartments`, `Blocked`, `TakenHere`, `Placed`, `LimitOutOfRange`, `AddressSpace`,
    /// `NamesBusy`, `NotOwner`, `Access` (the region may only be read; a compartment's parent has no room; or it is a
    /// compartment that was not opened by its name with the parent's key) and `AlreadyMapped` (a relocation is under
    /// way) change nothing. `BackingLost` and `Displaced` as for [`Region::commit`]. `Io` keeps the old limit, or
    /// poisons the region if it comes while the image's header is written.
    pub fn set_limit(&mut self, asked_bytes: u64) -> Result<u64> {
        self.check_usable()?;
        self.check_writable()?;
        if !self.is_owner {
            return Err(RegionError::NotOwner { name: self.name().to_string() });
        }
        if self.is_workers {
            return Err(parent_only(self.name()));
        }
        if self.relocating.is_some() {
            return Err(RegionError::AlreadyMapped);
        }
        let limit_bytes = rounded(asked_bytes)?;
        self.check_backing()?;
        let names = NameSpace::sharing(self.places.clone(), self.storage.clone());
        let _names = names.lock_names()?;
        let header = &self.image.header;
        names.check_limit(header, Some(header), asked_bytes, limit_bytes)?;
        let mut base = self.base_for_limit(limit_bytes)?;
        let written = self
            .reserve_behind(asked_bytes, limit_bytes)
            .and_then(|()| self.write_limit(base.as_mut(), limit_bytes));
        // Another region may be given the rest, of this home or of another one.
        let limit_bytes = self.limit_bytes();
        if let Some(mapped) = &mut self.mapped {
            mapped.give_up(limit_bytes as usize);
        }
        written.map(|()| limit_bytes)
    }

    fn write_limit(&mut self, base: Option<&mut Image>, limit_bytes: u64) -> Result<()> {
        let storage = self.storage.clone();
        if let Some(base) = base
            && let Err(error) = write_to_base(&*storage, base, limit_bytes)
        {
            // Nobody knows which limit it has.
            self.owe()?;
            return Err(error);
        }
        self.poisoned = true;
        write(&*storage, &mut self.image, limit_bytes)?;
        self.poisoned = false;
        Ok(())
    }

    /// The base file, to be written to. If it is missing, or is not what the image goes on from, the next commit makes
    /// one with the image's limit.
    fn base_for_limit(&mut self, limit_bytes: u64) -> Result<Option<Image>> {
        let path = base_path(self.places.store(), self.name());
        let header = &self.image.header;
        match Image::open(path.clone(), &header.name, true) {
            Ok(base)
                if (base.header.uuid, base.header.address) == (header.uuid, header.address)
                    && base.header.backed_bytes <= limit_bytes =>
            {
                Ok(Some(base))
            }
            Err(fault) if !fault.is_damage() && !matches!(fault, FileFault::Missing) => {
                let remedy = Remedy::RestoreFile { path: path.clone() };
                Err(fault.into_error(&path, remedy))
            }
            _ => self.owe().map(|()| None),
        }
    }

    /// Makes the mapping, if there is one, ready to grow to a limit.
    fn reserve_behind(&mut self, asked_bytes: u64, limit_bytes: u64) -> Result<()> {
        let Some(mapped) = &mut self.mapped else { return Ok(()) };
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
        let fitted = self.mapped.as_mut().map_or(Ok(()), |mapped| mapped.fit_reserved(&self.image.file));
        if let Err(source) = fitted {
            // Perhaps nobody tracks it any more.
            self.owe()?;
            return Err(RegionError::Io { step: "watch", path: self.image.path.clone(), source });
        }
        Ok(())
    }
}

fn rounded(asked_bytes: u64) -> Result<u64> {
    limit_for(asked_bytes).ok_or(RegionError::LimitOutOfRange { asked_bytes, max_bytes: LIMIT_BYTES_MAX })
}

fn write(storage: &dyn Storage, file: &mut Image, limit_bytes: u64) -> Result<()> {
    file.change_header(storage, |header| header.limit_bytes = limit_bytes)
        .map_err(RegionError::io("write the header of", &file.path))
}

/// Writes both headers, one durably after the other: with the old limit in the other one, the loss of the one in force
/// would make a journal that goes on to the new limit one that does not fit.
fn write_to_base(storage: &dyn Storage, base: &mut Image, limit_bytes: u64) -> Result<()> {
    for _ in 0..2 {
        write(storage, base, limit_bytes)?;
        storage.sync(&base.file).map_err(RegionError::io("make durable", &base.path))?;
    }
    Ok(())
}
