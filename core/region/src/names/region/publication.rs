//! The consistency mode `atomic`: stores count when they are published, all of them at once.
//!
//! The region is mapped privately: the kernel gives each page that is stored to its own copy.
//! Publishing writes what changed in the copies to the image through the redo log
//! ([`crate::media::redo`]); rolling back drops the copies. So code that knows nothing of
//! transactions (a plain `std::map`, an unmodified C library) is left as of the last publication by
//! a crash at any instruction.
//!
//! Invariants:
//! - The image never holds a part of what was stored since the last publication, but while a
//!   publication runs, and then the redo log has all of it.
//! - No thread stores to the region while it is published or rolled back (the caller's duty).
//! - After a failure that leaves the image half written the region is poisoned; the next open
//!   finishes the publication.

#![forbid(unsafe_code)]

use std::io;
use std::ops::Range;

use serde::Serialize;

use crate::error::{RegionError, Result};
use crate::image::memory::{Consistency, MappedData};
use crate::image::private::PrivateMapping;
use crate::media::format::DATA_OFFSET;
use crate::media::redo::Redo;
use crate::media::storage::is_full;
use crate::names::region::{Region, Session};

/// What a publication did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct PublishReport {
    /// Bytes of the pages that had been stored to.
    pub bytes: u64,
    /// Ranges of pages that are neighbours.
    pub ranges: u64,
}

impl Region {
    /// The consistency mode, [`Consistency::Direct`] unless it was changed.
    #[must_use]
    pub fn consistency(&self) -> Consistency {
        self.consistency
    }

    /// Chooses the consistency mode of the next mapping. The same region may be opened in one mode
    /// today and in the other tomorrow.
    ///
    /// # Errors
    /// `AlreadyMapped`; `NoRoom`, `NoRoomOnDisk` or `Io` when the redo log cannot be made; `Access`
    /// for the mode `atomic` of a region that may only be read.
    pub fn set_consistency(&mut self, consistency: Consistency) -> Result<()> {
        self.check_mappable()?;
        if consistency == Consistency::Atomic {
            self.check_writable()?;
        }
        if consistency == Consistency::Atomic && self.redo.is_none() {
            let path = self.redo_path();
            let names = self.names.clone();
            let opened = names.with_room(|| {
                let opened =
                    Redo::open(self.names.storage(), path.clone(), self.image.outlives_boot);
                opened.map_err(|source| {
                    if is_full(&source) {
                        let cause = Some(source.kind());
                        self.names.no_room(self.medium(), DATA_OFFSET, cause)
                    } else {
                        RegionError::Io { step: "make the redo log", path: path.clone(), source }
                    }
                })
            });
            self.redo = Some(opened?);
        }
        if consistency == Consistency::Atomic {
            // Only publications reach the image, and these are ordered.
            self.claim_order()?;
        }
        self.consistency = consistency;
        Ok(())
    }

    /// Makes everything that was stored since the last publication count, all or nothing, also
    /// under SIGKILL at any instruction (level `process`). In the mode `direct` there is nothing to
    /// do. No thread may store to the region meanwhile.
    ///
    /// # Errors
    /// `NoRoom`, `NoRoomOnDisk` and `Io` before it counts: nothing is lost, try again or roll back.
    /// An error afterwards, while the image is written, poisons the region: what was stored counts,
    /// the next open finishes it, and everything else here is refused (`Poisoned`). `BackingLost`
    /// when the image was cut off meanwhile: then no open can finish it.
    pub fn publish(&mut self) -> Result<PublishReport> {
        self.check_usable()?;
        let pages = self.stored_to()?;
        if pages.is_empty() {
            return Ok(PublishReport::default());
        }
        self.check_backing()?;
        let report = report(&pages);
        let (Some(private), Some(redo)) =
            (self.attachment.mapped_mut().and_then(MappedData::private), &mut self.redo)
        else {
            return Ok(PublishReport::default());
        };
        let changes = private.changes(&pages);
        if private.lost_backing() {
            return Err(self.backing_lost());
        }
        if !changes.is_empty() {
            let bytes = changes.iter().map(|range| range.end - range.start).sum();
            let names = self.names.clone();
            let written = names.with_room(|| {
                let written =
                    redo.write(self.names.storage(), &self.image.header, &changes, |range| {
                        private.bytes(range)
                    });
                written.map_err(|source| {
                    // One that may count is not written again.
                    if is_full(&source) && !redo.may_count() {
                        let (medium, cause) = (self.image.header.medium, Some(source.kind()));
                        self.names.no_room(medium, bytes, cause)
                    } else {
                        RegionError::Io { step: "write", path: redo.path().to_owned(), source }
                    }
                })
            });
            if redo.may_count() {
                self.session = Session::Poisoned;
            }
            written?;
            // It counts from here on, and the store lacks it; the image has to follow.
            self.session = Session::Poisoned;
            changes.iter().for_each(|range| self.debt.note(range.clone()));
            private
                .put(self.names.storage(), &changes)
                .map_err(RegionError::io("write", &self.image.path))?;
            if self.image.outlives_boot {
                let written = private.write_back(self.names.storage(), &self.image.file, &changes);
                written.map_err(RegionError::io("write back", &self.image.path))?;
            }
            if private.lost_backing() {
                // What stood in for a page took its bytes, and of the files only the log has them.
                return Err(self.publication_unfinished());
            }
            redo.clear(self.names.storage()).map_err(RegionError::io("write", redo.path()))?;
            self.session = Session::Writer;
        }
        private.settle();
        Ok(report)
    }

    /// Undoes everything that was stored since the last publication: the region shows it again.
    /// Growth stays. No thread may use the region meanwhile, and what it had cached of the region's
    /// bytes is void.
    ///
    /// # Errors
    /// `NotAtomic` in the mode `direct`, where stores count at once. `Poisoned` when a publication
    /// broke off half-way: it counts, and the next open finishes it. `BackingLost`, `BackingFailed`
    /// and `Displaced`: the last publication is not there any more. `Io`: some pages may be rolled
    /// back and some not, so nothing may be published any more.
    pub fn rollback(&mut self) -> Result<PublishReport> {
        self.check_usable()?;
        if self.consistency == Consistency::Direct {
            return Err(RegionError::NotAtomic { name: self.name().to_string() });
        }
        self.check_backing()?;
        let pages = self.stored_to()?;
        if let Some(private) = self.attachment.mapped_mut().and_then(MappedData::private) {
            // Until it is done, what is mapped is neither the last publication nor what was stored.
            self.session = Session::Poisoned;
            private.discard().map_err(RegionError::io("drop the changes of", &self.image.path))?;
            self.session = Session::Writer;
        }
        Ok(report(&pages))
    }

    /// The error of a publication that counts, while the image was lost under it.
    fn publication_unfinished(&self) -> RegionError {
        match self.backing_lost() {
            // The next open writes it from the log, so the image is not to be dropped.
            RegionError::BackingFailed { path, .. } => {
                let source = io::Error::other("its disk failed, or has no room");
                RegionError::Io { step: "write", path, source }
            }
            lost => lost,
        }
    }

    /// The pages that are neither published nor dropped; none in the mode `direct`.
    fn stored_to(&mut self) -> Result<Vec<Range<u64>>> {
        let private = self.attachment.mapped_mut().and_then(MappedData::private);
        let pages = private.map_or(Ok(Vec::new()), PrivateMapping::stored_to);
        pages.map_err(RegionError::io("find the changes of", &self.image.path))
    }
}

fn report(pages: &[Range<u64>]) -> PublishReport {
    let bytes = pages.iter().map(|range| range.end - range.start).sum();
    PublishReport { bytes, ranges: pages.len() as u64 }
}
