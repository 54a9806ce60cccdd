//! Closing a region: what is owed goes to the store, and then the image counts as clean.
//!
//! Invariants:
//! - The header says `Clean` only after everything that the image holds is durable in the store.
//! - What fails leaves the image `Open`: the next session owes what this one could not bring to the
//!   store.

#![forbid(unsafe_code)]

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use holdfast_sys::mapping::gather_huge_pages;
use serde::Serialize;

use crate::error::{RegionError, Result};
use crate::media::format::{DATA_OFFSET, FileState};
use crate::media::medium::Medium;
use crate::media::rest;
use crate::names::region::commit::Written;
use crate::names::region::{CheckpointReport, Opened, Region};
use crate::store::journal_slot::JournalSlot;

/// Gathering huge pages at a close may always take this long; after a longer checkpoint, a quarter
/// of what that took.
const GATHERING_TIME_MIN: Duration = Duration::from_millis(50);

/// What closing did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct CloseReport {
    /// The last checkpoint.
    pub checkpoint: CheckpointReport,
}

impl Region {
    /// Unmaps, checkpoints if dirty, marks the image clean and releases the name. One that may only
    /// be read is unmapped and released, no more.
    ///
    /// # Errors
    /// As [`Region::checkpoint`]. The region is released all the same; what it holds stays in the
    /// image, and the next open is `WarmAfterCrash`.
    pub fn close(mut self) -> Result<CloseReport> {
        let closed = self.settle_image()?;
        self.lay_to_rest();
        Ok(closed)
    }

    /// Gives back what the image never used, once it was settled and is to stay in the pool. Costs
    /// memory only if it fails.
    pub(crate) fn lay_to_rest(&mut self) {
        if self.may_rest() {
            let _ = rest::lay_to_rest(&mut self.image, self.names.storage());
        }
    }

    /// What closing does but for giving memory back, with the name still locked afterwards.
    pub(crate) fn settle_image(&mut self) -> Result<CloseReport> {
        self.unmap()?;
        if self.is_read_only() {
            return Ok(CloseReport {
                checkpoint: CheckpointReport { skipped: true, ..Default::default() },
            });
        }
        let begun = Instant::now();
        let committed = self.commit_to_store()?;
        if committed.written == Written::Base
            || matches!(self.opened, Opened::Cold | Opened::Rescued)
        {
            self.gather_huge_pages(GATHERING_TIME_MIN.max(begun.elapsed() / 4));
        }
        if let Some(redo) = self.redo.take() {
            match self.names.storage().remove(redo.path()) {
                // The pool was emptied; the commit has everything.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                other => other.map_err(RegionError::io("remove", redo.path()))?,
            }
        }
        let durable_sequence = match &*JournalSlot::lock(&self.journal) {
            JournalSlot::Ready(journal) => {
                // Only helps to tell damage from a torn end; nothing relies on it.
                let _ = journal.mark_end(self.names.storage(), self.image.header.backed_bytes);
                journal.last_sequence
            }
            // Not looked at, so as it was. Broken it cannot be: the commit mended it.
            JournalSlot::Unread | JournalSlot::Broken => self.image.header.journal_sequence,
        };
        self.image
            .change_header(self.names.storage(), |header| {
                header.state = FileState::Clean;
                header.journal_sequence = durable_sequence;
            })
            .map_err(RegionError::io("write the header of", &self.image.path))?;
        // With the record in the lock goes what tells the next session to look for them.
        let _ = self.remove_leftovers();
        // Older than the last commit, or the same. One that stays does not count, and is removed by
        // the next session, or is a newer program's.
        let _ = self.names.drop_rescue(self.name());
        Ok(CloseReport { checkpoint: committed.into() })
    }

    /// Whether the image is in memory that a reset takes, and this process wrote it.
    fn may_rest(&self) -> bool {
        !self.is_read_only() && self.is_in_volatile_memory()
    }

    /// Whether the image is in memory that a reset takes.
    pub(crate) fn is_in_volatile_memory(&self) -> bool {
        self.medium() == Medium::Memory
            && self.names.places().pool_is_volatile_memory()
            && !self.image.outlives_boot
    }

    /// Makes the next sessions' page faults few, as far as it comes in `time`, from the beginning
    /// on: a heap has its oldest objects there, and what all of its calls read. Done when a session
    /// has paid for a checkpoint or a cold open anyway; a kernel that refuses costs speed only.
    fn gather_huge_pages(&self, time: Duration) {
        // In huge pages nothing would be unused.
        if self.may_rest() && !rest::has_unused(&self.image, self.names.storage()).unwrap_or(false)
        {
            let bytes = self.image.header.backed_bytes as usize;
            let _ = gather_huge_pages(time, &self.image.file, DATA_OFFSET, bytes);
        }
    }
}
