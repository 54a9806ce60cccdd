//! Stores that say which pages they change, and the source that tells the region.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use holdfast_region::{DirtySource, Region};

use super::store;

/// What was stored to since the region asked last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<Vec<Range<u64>>>>);

impl Notes {
    /// Makes the region ask these notes.
    pub(crate) fn of(region: &mut Region) -> Notes {
        let notes = Notes::default();
        region.set_dirty_source(Box::new(notes.clone()));
        notes
    }

    pub(crate) fn add(&self, offset: usize, len: usize) {
        self.0.lock().unwrap().push(offset as u64..(offset + len) as u64);
    }

    /// Stores and takes a note of it.
    pub(crate) fn store(&self, region: &mut Region, offset: usize, bytes: &[u8]) {
        self.add(offset, bytes.len());
        store(region, offset, bytes);
    }
}

impl DirtySource for Notes {
    fn take(&mut self) -> io::Result<Vec<Range<u64>>> {
        Ok(std::mem::take(&mut self.0.lock().unwrap()))
    }
}
