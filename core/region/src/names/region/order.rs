//! Images that outlive the boot (pools of the kind [`PoolKind::Dax`]): whose stores arrive in an
//! order that a reset may cut off anywhere, and making what was stored durable without the store.
//!
//! A reset takes what is in the processor's caches, and until then lines reach memory in any order.
//! A writer is *ordered* if it sees to it by itself that a prefix of its commits can be restored
//! from whatever arrived: it writes its log back before what the log protects, and all of it before
//! it says that the commit is done. The mode `atomic` is, through the redo log; in the mode
//! `direct` the program must promise it.
//!
//! Invariants:
//! - A header says `ordered` only while every store to the image since the last one that was known
//!   to be durable was made by an ordered writer. It stops to say so, in both slots, before another
//!   writer can store.
//! - A promise is one writer's: it ends with the mapping or the loan for which it was given.
//! - What an earlier writer left in the caches is in memory before an ordered one begins: its order
//!   is among its own stores.
//! - Before it stops to say so the store has everything: after a reset it is all there is.
//! - What a commit at level `power` acknowledges is written back, too: after a reset the image is
//!   believed, not the store.

#![forbid(unsafe_code)]

use holdfast_types::Durability;

use crate::error::{RegionError, Result};
use crate::image::dirty::Tracking;
use crate::image::memory::Consistency;
use crate::media::format::DATA_OFFSET;
use crate::media::pool_kind::{PoolKind, Survives};
use crate::media::sparse::PAGE_BYTES;
use crate::names::region::commit::{CommitReport, Written};
use crate::names::region::{Region, Session};

impl Region {
    /// What the region's pool is made of; for one on the disk ([`crate::Medium::File`]) `Disk`.
    #[must_use]
    pub fn pool_kind(&self) -> PoolKind {
        match self.medium() {
            crate::Medium::Memory => self.names.places().pool_kind(),
            crate::Medium::File => PoolKind::Disk,
        }
    }

    /// Whether the level `system` is cheaper for a program that orders its stores: its pool
    /// outlives the boot, and in the mode `direct` only the program can order them. See
    /// [`Region::promise_order`].
    #[must_use]
    pub fn needs_order(&self) -> bool {
        self.image.outlives_boot && !self.is_read_only() && self.consistency == Consistency::Direct
    }

    /// Whether the region's stores count as ordered now.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        let by_mode = self.order_promised || self.consistency == Consistency::Atomic;
        by_mode && self.image_counts_after_reset()
    }

    /// Whether the image would be believed if the machine were reset now.
    fn image_counts_after_reset(&self) -> bool {
        self.image.outlives_boot && self.image.header.ordered && !self.is_read_only()
    }

    /// Promises that every store through the next mapping, or by whom the region is lent to next,
    /// is ordered, in the sense of PMDK: before a store that relies on an earlier one is made, the
    /// earlier one was written back and drained (`holdfast_persist`), so that a reset at any moment
    /// leaves something that can be restored. The promise ends with that mapping or loan. Without
    /// it, commits at level `system` go to the store, and after a reset the region is rebuilt from
    /// there. Where the pool does not outlive the boot there is nothing to do.
    ///
    /// # Errors
    /// `AlreadyMapped`; `Access` when the region may only be read; `Io` poisons the region.
    pub fn promise_order(&mut self) -> Result<()> {
        self.check_mappable()?;
        self.check_writable()?;
        self.order_promised = true;
        self.claim_order()
    }

    /// Makes the header say that stores are ordered, once all that was stored so far is durable.
    pub(crate) fn claim_order(&mut self) -> Result<()> {
        if !self.image.outlives_boot {
            return Ok(());
        }
        if self.image.header.ordered {
            // A writer that was killed had not written all of it back, and no writer after it
            // would.
            return self.write_back_stores().map(drop);
        }
        self.change_order(true)?;
        self.unwritten.clear();
        Ok(())
    }

    /// Before the region is mapped for stores, or lent: unless these are ordered, the header stops
    /// to say so.
    pub(crate) fn expect_stores(&mut self) -> Result<()> {
        if !self.needs_order() || self.order_promised || !self.image.header.ordered {
            return Ok(());
        }
        if self.lacks() {
            self.commit_to_store()?;
        }
        // Twice: with the other slot saying that they are, damage to the one in force would be
        // believed.
        self.change_order(false)?;
        self.change_order(false)
    }

    fn change_order(&mut self, ordered: bool) -> Result<()> {
        self.session = Session::Poisoned;
        let written =
            self.image.change_header(self.names.storage(), |header| header.ordered = ordered);
        written.map_err(RegionError::io("write the header of", &self.image.path))?;
        self.session = Session::Writer;
        Ok(())
    }

    /// Whether a commit at this level needs no store: what is written back survives what the level
    /// names.
    pub(crate) fn commits_to_memory(&self, durability: Durability) -> bool {
        let survives = match self.pool_kind() {
            PoolKind::Dax { survives: Survives::Reset } => Durability::System,
            PoolKind::Dax { survives: Survives::PowerCut } => Durability::Power,
            _ => Durability::Process,
        };
        Durability::Process < durability && durability <= survives && self.is_ordered()
    }

    /// Writes back what was stored since the last commit of any level above `process`, and waits
    /// for it.
    pub(crate) fn commit_to_memory(&mut self, published_bytes: u64) -> Result<CommitReport> {
        self.check_usable()?;
        self.check_backing()?;
        self.suspect_unwritten();
        self.take_stores()?;
        let bytes = self.write_back_stores()? + published_bytes;
        let level = match self.pool_kind() {
            PoolKind::Dax { survives: Survives::PowerCut } => Durability::Power,
            _ => Durability::System,
        };
        let written = if bytes > 0 { Written::Memory } else { Written::Nothing };
        Ok(CommitReport { written, pages: bytes.div_ceil(PAGE_BYTES), bytes, level })
    }

    /// Notes what was stored since the last time, as lacking in the store and in memory.
    pub(crate) fn take_stores(&mut self) -> Result<()> {
        match self.take_dirty(Tracking::Begin) {
            Ok(found) => {
                self.note_pending(&found);
                Ok(())
            }
            Err(error) => {
                self.unwritten.note_all();
                Err(error)
            }
        }
    }

    /// It was not noticed what a borrower stored, and what of it has reached memory.
    pub(crate) fn suspect_unwritten(&mut self) {
        if self.is_lent() {
            self.unwritten.note_all();
        }
    }

    /// Writes back what is noted, if the image counts after a reset; returns how many bytes that
    /// were.
    pub(crate) fn write_back_stores(&mut self) -> Result<u64> {
        if !self.image_counts_after_reset() {
            return Ok(0);
        }
        if self.unwritten.is_empty() {
            return Ok(0);
        }
        let (noted_bytes, backed_bytes) = (self.unwritten.noted_bytes(), self.backed_bytes());
        let storage = self.names.storage();
        let written = match (self.attachment.mapped(), self.unwritten.ranges()) {
            (Some(mapped), Some(ranges)) if noted_bytes < backed_bytes => {
                ranges.into_iter().try_for_each(|range| {
                    let memory = mapped.shared_bytes(range.clone());
                    storage.write_back(&self.image.file, DATA_OFFSET + range.start, memory)
                })
            }
            // The kernel knows which pages were stored to since it was asked last.
            _ => storage.sync_data(&self.image.file),
        };
        if let Err(source) = written {
            // What did not arrive is not known, and need not be tried again by the kernel.
            self.session = Session::Poisoned;
            return Err(RegionError::Io {
                step: "write back",
                path: self.image.path.clone(),
                source,
            });
        }
        self.unwritten.clear();
        Ok(if noted_bytes == 0 { backed_bytes } else { noted_bytes })
    }
}
