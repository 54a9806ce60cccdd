//! Room ahead of need: a program that is about to fill its heap says so, and growing costs it one
//! request instead of many.

use crate::backing::Backing;
use crate::error::HeapError;
use crate::heap::Heap;
use crate::layout::{CHUNK_BYTES, SEGMENT_BYTES, SEGMENT_CHUNKS};

/// What the objects in a segment can have together: the first chunk holds its tables.
const USABLE_BYTES: u64 = (SEGMENT_CHUNKS - 1) * CHUNK_BYTES;

impl<B: Backing> Heap<B> {
    /// Has the backing make room for `bytes` bytes of objects beyond the segments that are in use,
    /// in one growth. Nothing in the heap changes: allocations come to use it in time. Returns how
    /// many bytes are backed.
    ///
    /// An object that is larger than a segment has room for lies in whole segments: where the limit
    /// cuts the last one off, there may be room for `bytes` bytes, but not for one such object.
    ///
    /// # Errors
    /// [`HeapError::OutOfMemory`] beyond the limit, or when there is no room;
    /// [`HeapError::ReadOnly`]. Nothing has changed then, and the heap grows as it would have
    /// without.
    pub fn reserve(&mut self, bytes: u64) -> Result<u64, HeapError> {
        self.check_writable()?;
        let segments = bytes.div_ceil(USABLE_BYTES);
        let limit_bytes = self.limit_bytes() & !(CHUNK_BYTES - 1);
        let end =
            self.segments().checked_add(segments).and_then(|all| all.checked_mul(SEGMENT_BYTES));
        // The last segment of a heap may be shorter than the others: by the chunks that the objects
        // do not need.
        let spare_bytes =
            (segments.saturating_mul(USABLE_BYTES) - bytes) / CHUNK_BYTES * CHUNK_BYTES;
        let is_too_far = |end: &u64| bytes > 0 && *end - spare_bytes > limit_bytes;
        match end.filter(|end| !is_too_far(end)) {
            Some(end) => self.back(end.min(limit_bytes), bytes)?,
            None => return Err(self.limit_reached(bytes)),
        }
        Ok(self.backing.backed_bytes())
    }
}
