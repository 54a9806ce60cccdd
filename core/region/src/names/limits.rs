//! Computes and writes the limit of a region: at rest ([`crate::care`]) or while it is open.
//!
//! Invariants:
//! - The limit never goes below what is backed, and never over the address of another region.
//! - Killed anywhere, the region has the old limit or the new one. The base in the store is changed
//!   first, the image last, and the image decides. Where the two differ no journal is continued,
//!   which could add more to the base than that may have: the next commit makes a base with the
//!   image's limit.

#![forbid(unsafe_code)]

use holdfast_types::Remedy;

use crate::error::access::AccessError;
use crate::error::limit::LimitError;
use crate::error::{RegionError, Result};
use crate::media::format::{Header, LIMIT_BYTES_MAX, LIMIT_UNIT_BYTES, WINDOW_END, limit_for};
use crate::media::image::Image;
use crate::media::storage::Storage;
use crate::name::RegionName;
use crate::names::namespace::NameSpace;

impl NameSpace {
    /// Whether a region of this size and address may have a limit; `current` is the region as it
    /// is, if it is there. The caller holds the region's lock and the one on the name space.
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
            return Err(LimitError::BelowCompartments {
                name: name.to_string(),
                asked_bytes,
                used_bytes,
            }
            .into());
        }
        let held_bytes = current
            .filter(|current| current.address == header.address)
            .map_or(0, |_| current_bytes);
        let (end, behind) = self.end_of_gap(name, header.address, held_bytes)?;
        let possible_bytes =
            (end - header.address).min(LIMIT_BYTES_MAX) / LIMIT_UNIT_BYTES * LIMIT_UNIT_BYTES;
        if limit_bytes > possible_bytes {
            let name = name.to_string();
            return Err(LimitError::Blocked { name, asked_bytes, possible_bytes, behind }.into());
        }
        if limit_bytes < current_bytes {
            // What it gives up may be free; a copy can have it still.
            return self.forget_stretch();
        }
        self.note_range(&(header.address..header.address + limit_bytes))
    }

    /// The first of some limits that a region of this size and address may have, or the smallest
    /// one that holds it and its compartments. For data that is to come back; `current` and the
    /// locks are as for [`NameSpace::check_limit`].
    ///
    /// # Errors
    /// `NoPlace` when there is none.
    pub(crate) fn limit_for_data(
        &self,
        header: &Header,
        current: Option<&Header>,
        wanted_bytes: &[u64],
    ) -> Result<u64> {
        let taken_bytes =
            self.given_out_bytes(&header.name, None)?.saturating_add(header.backed_bytes);
        let needed_bytes = rounded(taken_bytes)?;
        for limit_bytes in wanted_bytes {
            match self.check_limit(header, current, *limit_bytes, *limit_bytes) {
                Ok(()) => return Ok(*limit_bytes),
                Err(
                    RegionError::Limit(_) | RegionError::Access(AccessError::NoQuotaLeft { .. }),
                ) => {}
                Err(error) => return Err(error),
            }
        }
        let why = match self.check_limit(header, current, needed_bytes, needed_bytes) {
            Ok(()) => return Ok(needed_bytes),
            Err(RegionError::Limit(LimitError::Blocked { behind, .. })) => {
                format!(
                    "{behind} took the addresses; copy that one, then {}",
                    Remedy::Remove { heap: None }
                )
            }
            Err(RegionError::Access(AccessError::NoQuotaLeft {
                parent,
                limit_bytes,
                used_bytes,
                ..
            })) => format!(
                "of the limit of {parent:?} ({limit_bytes} bytes), {used_bytes} are given out; {}",
                Remedy::RaiseLimit { heap: Some(&parent) }
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

    /// Where the next region's addresses start behind those that are held already, and whose they
    /// are. Copies have the address of their original; they are beside it, not behind it.
    fn end_of_gap(
        &self,
        name: &RegionName,
        address: u64,
        held_bytes: u64,
    ) -> Result<(u64, String)> {
        let mut next = (WINDOW_END, "the end of the range for heaps".to_owned());
        for other in self.list()? {
            // One that comes back finds others also where it was.
            let covers = held_bytes == 0
                && other.address < address
                && address < other.address + other.limit_bytes;
            let start = if covers { address } else { other.address };
            let behind =
                covers || (other.address > address && other.address >= address + held_bytes);
            if other.name != *name && behind && start < next.0 {
                next = (start, format!("the heap {:?}", other.name.as_str()));
            }
        }
        Ok(next)
    }
}

pub(crate) fn rounded(asked_bytes: u64) -> Result<u64> {
    limit_for(asked_bytes)
        .ok_or(RegionError::LimitOutOfRange { asked_bytes, max_bytes: LIMIT_BYTES_MAX })
}

pub(crate) fn write_limit(storage: &dyn Storage, file: &mut Image, limit_bytes: u64) -> Result<()> {
    file.change_header(storage, |header| header.limit_bytes = limit_bytes)
        .map_err(RegionError::io("write the header of", &file.path))
}

/// Writes both headers, one durably after the other: with the old limit in the other one, the loss
/// of the one in force would make a journal that goes on to the new limit one that does not fit.
pub(crate) fn write_limit_to_base(
    storage: &dyn Storage,
    base: &mut Image,
    limit_bytes: u64,
) -> Result<()> {
    for _ in 0..2 {
        write_limit(storage, base, limit_bytes)?;
        storage.sync(&base.file).map_err(RegionError::io("make durable", &base.path))?;
    }
    Ok(())
}
