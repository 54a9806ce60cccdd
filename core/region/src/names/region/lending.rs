//! Lending a region to a process of its own, which maps it by itself: a native applet in its
//! sandbox.
//!
//! The borrower gets a descriptor. In the mode `direct` it maps the data area shared and stores to
//! it, and no tracker here notices, so what the store lacks is found by comparing. In the mode
//! `atomic` its descriptor is for reading only and its mapping private; what it stored is copied
//! into this process's own private mapping and published from there.
//!
//! Invariants:
//! - The borrower's descriptor is a file description of its own: no flag or position that it sets
//!   is seen here.
//! - A borrower that only reads, or whose stores count when published, gets no descriptor to write
//!   with.
//! - A region counts as stored to everywhere while it is lent in the mode `direct`, and from its
//!   end on until the next commit has compared. Where the image outlives the boot, all of it counts
//!   as not written back for as long.
//! - A borrower's promise of order ([`Region::promise_order`]) is about its own stores, and ends
//!   with the loan.
//!
//! What it must not do: trust the borrower. It can write the whole file where it has a descriptor
//! to write with; its sandbox keeps it from the header (see `docs/threat-model.md`).

#![forbid(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;

use crate::error::{RegionError, Result};
use crate::image::memory::Consistency;
use crate::media::format::DATA_OFFSET;
use crate::names::region::{Attachment, Opened, Region};
use crate::store::journal_slot::JournalSlot;

/// What a process needs to map a region that was lent to it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Lent {
    /// The image, for writing only in the mode `direct`.
    pub file: File,
    /// Where the data begins in the file; a multiple of the page size.
    pub data_offset: u64,
    /// Where the data must be mapped, so that pointers in it are valid.
    pub address: u64,
    /// How much is allocated: what lies behind must not be touched until [`Region::grow`] says so.
    pub backed_bytes: u64,
    /// How much address space to map, so that growth needs no further mapping.
    pub limit_bytes: u64,
    /// Map it for reading only.
    pub is_read_only: bool,
    /// Map it privately.
    pub is_private: bool,
    /// A promise of order was given for the borrower, and the image counts after a reset: the
    /// borrower has to keep it.
    pub is_ordered: bool,
    /// Then map it with `MAP_SYNC`, or not at all: otherwise what leads to a page may be lost with
    /// a reset, and the page with it, whatever was written back.
    pub is_synchronous: bool,
    /// The region was made just now.
    pub is_new: bool,
}

impl Region {
    /// Lends the region to another process. In the mode `atomic` it is mapped here, too, for
    /// [`Region::copy_in`] and [`Region::publish`]; in the mode `direct` it must not be mapped here
    /// until [`Region::end_lending`]. A lender to a process that orders its stores calls
    /// [`Region::promise_order`] before.
    ///
    /// # Errors
    /// `AlreadyMapped`, `Poisoned`; `Io` where there is no `/proc` to make the descriptor with;
    /// those of [`Region::map_native`] in the mode `atomic`.
    pub fn lend(&mut self) -> Result<Lent> {
        self.check_mappable()?;
        let is_private = self.consistency() == Consistency::Atomic;
        let writes = !is_private && !self.is_read_only();
        self.expect_stores()?;
        let own = format!("/proc/self/fd/{}", self.image.file.as_raw_fd());
        let file = OpenOptions::new().read(true).write(writes).open(own);
        let file = file.map_err(RegionError::io("open once more", &self.image.path))?;
        if is_private {
            self.map_native()?;
        }
        if writes {
            self.attachment = Attachment::Lent;
        }
        let is_ordered = writes && self.is_ordered();
        Ok(Lent {
            file,
            data_offset: DATA_OFFSET,
            address: self.address(),
            backed_bytes: self.backed_bytes(),
            limit_bytes: self.growth_limit_bytes(),
            is_read_only: self.is_read_only(),
            is_private,
            is_ordered,
            is_synchronous: is_ordered && self.names.places().maps_synchronously(self.medium()),
            is_new: self.opened() == Opened::Created,
        })
    }

    /// The other process has ended, and every mapping of it is gone. The region may be mapped here
    /// again.
    ///
    /// # Errors
    /// Those of [`Region::unmap`], in the mode `atomic`; what was copied in and not published is
    /// dropped.
    pub fn end_lending(&mut self) -> Result<()> {
        self.suspect_stores();
        if self.is_lent() {
            self.attachment = Attachment::None;
        }
        self.unmap()
    }

    /// In the mode `atomic`: stores bytes on behalf of the process that the region is lent to. They
    /// count with the next [`Region::publish`].
    ///
    /// # Errors
    /// `OutOfBounds`; `NotAtomic`; `Io` when it is not mapped.
    pub fn copy_in(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let (len_bytes, backed_bytes) = (bytes.len() as u64, self.backed_bytes());
        if offset.checked_add(len_bytes).is_none_or(|end| end > backed_bytes) {
            return Err(RegionError::OutOfBounds { offset, len_bytes, backed_bytes });
        }
        if self.consistency() == Consistency::Direct {
            return Err(RegionError::NotAtomic { name: self.name().to_string() });
        }
        let not_mapped = || Err(std::io::ErrorKind::NotConnected.into());
        let copied = self
            .attachment
            .mapped_mut()
            .map_or_else(not_mapped, |mapped| mapped.copy_in(offset, bytes));
        copied.map_err(RegionError::io("store to", &self.image.path))
    }

    /// It was not noticed what the borrower stored: the next commit has to compare.
    pub(crate) fn suspect_stores(&mut self) {
        if !self.is_lent() {
            return;
        }
        self.suspect_unwritten();
        self.debt.set_unknown();
        let mut slot = JournalSlot::lock(&self.journal);
        if matches!(*slot, JournalSlot::Ready(_)) {
            *slot = JournalSlot::Unread;
        }
    }
}
