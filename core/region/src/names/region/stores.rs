//! The pages of an open region that were stored to, and those that the store lacks.

#![forbid(unsafe_code)]

use std::ops::Range;

use crate::error::{RegionError, Result};
use crate::image::dirty::{DirtySource, Tracking, merged};
use crate::names::region::Region;

impl Region {
    /// From now on, ask `source` which pages were stored to, instead of the kernel. It must know of
    /// all stores since the last checkpoint, or the caller must not have stored yet.
    pub fn set_dirty_source(&mut self, source: Box<dyn DirtySource>) {
        self.dirty_source = Some(source);
    }

    /// The byte ranges of the data area (page-aligned, in order, apart from each other) that may
    /// have been stored to since the last call. Where they were not tracked that is nothing, or
    /// everything.
    ///
    /// # Errors
    /// `Io`; the region then counts as stored to everywhere.
    pub(crate) fn take_dirty(&mut self, tracking: Tracking) -> Result<Vec<Range<u64>>> {
        let Some(mapped) = self.attachment.mapped_mut() else { return Ok(Vec::new()) };
        // To protect the whole mapping would cost more than to look through it.
        if self.dirty_source.is_some() || !mapped.tracks_by_itself() {
            if !mapped.is_dirty() {
                return Ok(Vec::new());
            }
            // A store that slips in after this makes the region dirty again; one before it is in
            // the answer.
            if let Err(source) = mapped.rearm() {
                self.debt.set_unknown();
                return Err(RegionError::Io {
                    step: "watch",
                    path: self.image.path.clone(),
                    source,
                });
            }
        }
        let taken = match &mut self.dirty_source {
            Some(source) => source.take().map(Some),
            None => self.take_tracked(tracking == Tracking::Begin),
        };
        let backed_bytes = self.backed_bytes();
        match taken {
            Ok(Some(ranges)) => Ok(merged(ranges, backed_bytes)),
            Ok(None) => Ok(std::iter::once(0..backed_bytes).collect()),
            Err(source) => {
                self.debt.set_unknown();
                Err(RegionError::Io {
                    step: "find the changed pages of",
                    path: self.image.path.clone(),
                    source,
                })
            }
        }
    }
}
