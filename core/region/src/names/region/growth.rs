//! Growth in place: how far a region may grow, and how it does.
//!
//! Invariants:
//! - Bytes are allocated before the header speaks of them, and mapped after they were allocated.
//! - A region and its compartments stay below its limit together. Where the word in its image says
//!   how the limit is shared out (see [`crate::media::allotment`]), the region takes its part
//!   there and asks no file; elsewhere, and before a growth is refused, the compartments are
//!   counted under the lock on the name space.
//!
//! A growth that the word allows costs three system calls: one allocates, one maps, one writes the
//! header. In memory some more come first, which allocate huge pages. It looks neither for the
//! pool's owner nor for the image's name: it changes nothing but the file that this process has
//! locked, and a commit looks for both.

#![forbid(unsafe_code)]

use crate::error::access::AccessError;
use crate::error::{RegionError, Result};
use crate::image::memory::Consistency;
use crate::media::allotment::{Allotment, Shares};
use crate::media::format::{
    ALLOTMENT_BYTES, ALLOTMENT_OFFSET, DATA_OFFSET, GROWTH_HINT_BYTES_MAX, GROWTH_STEP_BYTES,
    LIMIT_UNIT_BYTES,
};
use crate::media::rest::REST_BYTES_MAX;
use crate::media::storage::is_full;
use crate::names::namespace::NameSpace;
use crate::names::region::{AllotmentSlot, Holder, Region, Session};

impl Region {
    /// Grow in steps of `bytes`, rounded to 4 MiB and kept between 4 and 16 MiB.
    pub fn set_growth_hint(&mut self, bytes: u64) {
        let bytes = bytes.clamp(GROWTH_STEP_BYTES, GROWTH_HINT_BYTES_MAX);
        self.growth_hint_bytes = bytes.next_multiple_of(GROWTH_STEP_BYTES);
    }

    /// How far its key may let it grow.
    fn quota_bytes(&self) -> Option<u64> {
        if let Holder::Grantee { quota_bytes } = self.holder { quota_bytes } else { None }
    }

    /// How far [`Region::grow`] can get as far as limit and quota are concerned: what to tell an
    /// applet. Compartments may take of it.
    #[must_use]
    pub fn growth_limit_bytes(&self) -> u64 {
        let bound = if self.is_read_only() {
            self.backed_bytes()
        } else {
            self.quota_bytes().unwrap_or(u64::MAX)
        };
        bound.min(self.limit_bytes()).max(self.backed_bytes())
    }

    /// Makes at least `at_least_bytes` accessible, in place, and says how many are. Growth goes in
    /// steps of the growth hint, up to the limit; new bytes are zero and allocated.
    ///
    /// # Errors
    /// `LimitReached`, `NoRoom`, `NamesBusy` and `Access` (the key's quota, the quotas of
    /// compartments, or a region that may only be read) change nothing. `Io` while the header is
    /// written poisons the region.
    pub fn grow(&mut self, at_least_bytes: u64) -> Result<u64> {
        self.check_usable()?;
        let (backed_bytes, limit_bytes) = (self.backed_bytes(), self.limit_bytes());
        if at_least_bytes <= backed_bytes {
            return Ok(backed_bytes);
        }
        self.check_writable()?;
        if at_least_bytes > limit_bytes {
            return Err(RegionError::LimitReached { limit_bytes, asked_bytes: at_least_bytes });
        }
        let names = self.names.clone();
        names.with_room(|| self.grow_once(&names, at_least_bytes))
    }

    fn grow_once(&mut self, names: &NameSpace, at_least_bytes: u64) -> Result<u64> {
        if let Some(bytes) = self.take_share(at_least_bytes) {
            return self.grow_within(at_least_bytes, bytes);
        }
        // No compartment can be given what is taken here.
        let _names = names.lock_names()?;
        let bytes = self.count_shares(names, at_least_bytes)?;
        self.grow_within(at_least_bytes, bytes)
    }

    /// Allocates and maps between `at_least_bytes` and `most_bytes`, which this region may have.
    fn grow_within(&mut self, at_least_bytes: u64, most_bytes: u64) -> Result<u64> {
        let backed_bytes = self.backed_bytes();
        let generous = most_bytes;
        let frugal = at_least_bytes.next_multiple_of(GROWTH_STEP_BYTES).min(most_bytes);
        let grown = match self.allocate(backed_bytes, generous) {
            Err(RegionError::NoRoom { .. }) if frugal < generous => {
                self.allocate(backed_bytes, frugal).map(|()| frugal)
            }
            other => other.map(|()| generous),
        };
        if !matches!(grown, Ok(grown) if grown == most_bytes)
            && let AllotmentSlot::Mapped(allotment) = &self.allotment
        {
            allotment.take_no_more_than(*grown.as_ref().unwrap_or(&backed_bytes));
        }
        let grown = grown?;
        // From here on a failure leaves more allocated than the header says, and perhaps mapped:
        // unknown.
        self.session = Session::Poisoned;
        self.map_growth(grown).map_err(RegionError::io("map", &self.image.path))?;
        self.image
            .change_header(self.names.storage(), |header| header.backed_bytes = grown)
            .map_err(RegionError::io("write the header of", &self.image.path))?;
        self.session = Session::Writer;
        self.debt.note_growth();
        Ok(grown)
    }

    /// How far this growth goes in steps of the growth hint, below a bound.
    fn wanted_bytes(&self, at_least_bytes: u64, bound_bytes: u64) -> u64 {
        at_least_bytes.next_multiple_of(self.growth_hint_bytes).min(bound_bytes)
    }

    /// Takes what a growth wants on the word of the image; `None` where that says too little, or
    /// nothing.
    fn take_share(&mut self, at_least_bytes: u64) -> Option<u64> {
        let limit_bytes = self.limit_bytes();
        let quota_bytes = self.whole_quota_bytes();
        if self.name().parent_and_worker().is_some() {
            // A compartment has none of its own.
            let bytes = self.wanted_bytes(at_least_bytes, limit_bytes.min(quota_bytes));
            return (at_least_bytes <= bytes).then_some(bytes);
        }
        if matches!(self.allotment, AllotmentSlot::Unmapped) && !self.image.outlives_boot {
            // Without it growing takes longer, no more.
            self.allotment =
                Allotment::map(&self.image.file).map_or(AllotmentSlot::None, AllotmentSlot::Mapped);
        }
        let AllotmentSlot::Mapped(allotment) = &self.allotment else { return None };
        let left_bytes = limit_bytes.saturating_sub(allotment.shares()?.given_out_bytes);
        let bytes = self.wanted_bytes(at_least_bytes, left_bytes.min(quota_bytes));
        (at_least_bytes <= bytes && allotment.take(bytes, limit_bytes)).then_some(bytes)
    }

    /// The same by counting what the compartments have, under the lock on the name space; the word
    /// says then what was counted.
    fn count_shares(&mut self, names: &NameSpace, at_least_bytes: u64) -> Result<u64> {
        let (bound_bytes, given_out_bytes) = self.bounded(names, at_least_bytes)?;
        let taken_bytes = self.wanted_bytes(at_least_bytes, bound_bytes);
        self.prepare_allotment();
        if let AllotmentSlot::Mapped(allotment) = &self.allotment {
            allotment.set(Shares { taken_bytes, given_out_bytes });
        }
        Ok(taken_bytes)
    }

    /// Makes sure that the image has a word, if there is room for one. What an image that outlives
    /// the boot says is of this session only: a reset may have taken what a compartment was given.
    fn prepare_allotment(&mut self) {
        let page = ALLOTMENT_OFFSET..ALLOTMENT_OFFSET + ALLOTMENT_BYTES;
        if matches!(self.allotment, AllotmentSlot::Mapped(_))
            && Allotment::is_in(&self.image.file).unwrap_or(false)
        {
            return;
        }
        let mapped = self
            .names
            .storage()
            .allocate(&self.image.file, page)
            .and_then(|()| Allotment::map(&self.image.file));
        self.allotment = mapped.map_or(AllotmentSlot::None, AllotmentSlot::Mapped);
    }

    /// The quota of its key, in whole units.
    fn whole_quota_bytes(&self) -> u64 {
        self.quota_bytes().unwrap_or(u64::MAX) / LIMIT_UNIT_BYTES * LIMIT_UNIT_BYTES
    }

    /// The limit, less what the compartments may take and what the key may not; and what the
    /// compartments may take.
    fn bounded(&self, names: &NameSpace, asked_bytes: u64) -> Result<(u64, u64)> {
        let (limit_bytes, quota_bytes) = (self.limit_bytes(), self.whole_quota_bytes());
        if asked_bytes > quota_bytes {
            let name = self.name().to_string();
            return Err(AccessError::QuotaReached { name, quota_bytes, asked_bytes }.into());
        }
        let given_out_bytes = names.given_out_bytes(self.name(), None)?;
        let left_bytes = limit_bytes.saturating_sub(given_out_bytes);
        if asked_bytes > left_bytes {
            let (parent, used_bytes) =
                (self.name().to_string(), given_out_bytes + self.backed_bytes());
            let asked_bytes = asked_bytes - self.backed_bytes();
            return Err(
                AccessError::NoQuotaLeft { parent, limit_bytes, used_bytes, asked_bytes }.into()
            );
        }
        Ok((left_bytes.min(quota_bytes), given_out_bytes))
    }

    fn allocate(&mut self, from_bytes: u64, to_bytes: u64) -> Result<()> {
        let range = DATA_OFFSET + from_bytes..DATA_OFFSET + to_bytes;
        let storage = self.names.storage();
        // A smaller region gives back what it did not use; in the mode `atomic` stores go to copies.
        let in_huge_pages = self.has_huge_pages
            && to_bytes > REST_BYTES_MAX
            && self.is_in_volatile_memory()
            && self.consistency() == Consistency::Direct;
        if in_huge_pages {
            self.has_huge_pages = storage.allocate_huge_pages(&self.image.file, range.clone());
        }
        let allocated = storage.allocate(&self.image.file, range.clone()).and_then(|()| {
            // The header must not speak of what a reset can take.
            if self.image.outlives_boot { storage.sync(&self.image.file) } else { Ok(()) }
        });
        if allocated.is_err() && in_huge_pages {
            // Others need it, and the file must not be longer than what is backed. What stays all the
            // same, the next open cuts off.
            let _ = storage.set_len(&self.image.file, range.start);
        }
        allocated.map_err(|source| {
            if is_full(&source) {
                let cause = Some(source.kind());
                self.names.no_room(self.medium(), to_bytes - from_bytes, cause)
            } else {
                RegionError::Io { step: "allocate", path: self.image.path.clone(), source }
            }
        })
    }
}
