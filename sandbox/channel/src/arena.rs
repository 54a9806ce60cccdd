//! Buffers in the arena, which both sides can read and write: for data that is too large to copy
//! twice.
//!
//! Invariants:
//! - A buffer's pages are its own: page-aligned, backed with memory before it exists, so that
//!   touching them cannot fail; given back when it is dropped.
//! - The applet may write to a buffer, and to all of the arena, at any time; so bytes are copied in
//!   and out, and no reference to them is made. A user of the raw pointer reckons with that.

#![forbid(unsafe_code)]

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::layout::Handle;
use crate::memory::ChannelMemory;
use crate::shared::Shared;

/// Why there is no buffer, or nothing was copied.
#[derive(Debug)]
#[non_exhaustive]
pub enum BufferError {
    /// A buffer has at least one byte.
    Empty,
    /// No free range of the arena is long enough.
    ArenaFull {
        /// What was asked for.
        wanted_bytes: u64,
        /// What the arena has in all.
        arena_bytes: u64,
    },
    /// What was to be copied does not lie in the buffer.
    OutOfRange {
        /// Where it begins.
        at: u64,
        /// How much it is.
        bytes: u64,
        /// What the buffer has.
        buffer_bytes: u64,
    },
    /// The kernel has no memory.
    System(io::Error),
}

impl fmt::Display for BufferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a shared buffer has at least one byte; ask for some"),
            Self::ArenaFull { wanted_bytes, arena_bytes } => write!(
                f,
                "the arena of {arena_bytes} bytes has no free range of {wanted_bytes}; drop buffers, or start the \
                 applet with a larger arena"
            ),
            Self::OutOfRange { at, bytes, buffer_bytes } => {
                write!(
                    f,
                    "{bytes} bytes at {at} do not lie in a buffer of {buffer_bytes}; copy what does"
                )
            }
            Self::System(error) => {
                write!(
                    f,
                    "the machine has no memory for a shared buffer ({error}); free some, and try again"
                )
            }
        }
    }
}

impl std::error::Error for BufferError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System(error) => Some(error),
            _ => None,
        }
    }
}

/// A range of the arena that host and applet share.
#[derive(Debug)]
pub struct ArenaBuffer {
    memory: Arc<ChannelMemory>,
    shared: Shared,
    handle: Handle,
    /// Whole pages of the arena, to be given back; none for a buffer that the peer has given.
    taken: Option<Range<u64>>,
}

impl ArenaBuffer {
    pub(crate) fn new(memory: Arc<ChannelMemory>, bytes: u64) -> Result<ArenaBuffer, BufferError> {
        let range = memory.take(bytes)?;
        let handle = Handle { offset: range.start, bytes };
        let Some(shared) = memory.part(handle) else {
            memory.give_back(&range);
            return Err(BufferError::OutOfRange { at: range.start, bytes, buffer_bytes: bytes });
        };
        Ok(ArenaBuffer { memory, shared, handle, taken: Some(range) })
    }

    pub(crate) fn given(memory: Arc<ChannelMemory>, handle: Handle) -> Option<ArenaBuffer> {
        let shared = memory.part(handle).filter(|_| handle.bytes > 0)?;
        Some(ArenaBuffer { memory, shared, handle, taken: None })
    }

    /// Where it is, for messages.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Its bytes; at least one.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a buffer is never empty")]
    pub fn len(&self) -> u64 {
        self.handle.bytes
    }

    /// Where in this buffer a part of the arena is that the peer has named; `None` if it is not a
    /// part of this buffer.
    #[must_use]
    pub fn locate(&self, part: Handle) -> Option<Range<u64>> {
        let start = part.offset.checked_sub(self.handle.offset)?;
        let end = start.checked_add(part.bytes).filter(|end| *end <= self.len())?;
        Some(start..end)
    }

    /// Copies bytes into the buffer.
    ///
    /// # Errors
    /// When they do not fit; nothing was copied then.
    pub fn copy_in(&self, at: u64, from: &[u8]) -> Result<(), BufferError> {
        let place = usize::try_from(at).ok();
        place
            .and_then(|at| self.shared.write(at, from))
            .ok_or_else(|| self.out_of_range(at, from.len()))
    }

    /// Copies bytes out of the buffer. What the applet stores meanwhile may be among them or not.
    ///
    /// # Errors
    /// When the buffer has not that many; nothing was copied then.
    pub fn copy_out(&self, at: u64, into: &mut [u8]) -> Result<(), BufferError> {
        let bytes = into.len();
        let place = usize::try_from(at).ok();
        place.and_then(|at| self.shared.read(at, into)).ok_or_else(|| self.out_of_range(at, bytes))
    }

    /// The first byte, mapped for loads and stores as long as the buffer lives. The applet may
    /// store there at any time, so use atomic or volatile accesses, or what is indifferent to that
    /// (a system call, other languages' views).
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.shared.base().as_ptr()
    }

    fn out_of_range(&self, at: u64, bytes: usize) -> BufferError {
        BufferError::OutOfRange { at, bytes: bytes as u64, buffer_bytes: self.len() }
    }
}

impl Drop for ArenaBuffer {
    fn drop(&mut self) {
        if let Some(range) = &self.taken {
            self.memory.give_back(range);
        }
    }
}

/// The first free range for so many bytes, in whole pages, and where it belongs among those that
/// are taken, in order.
pub(crate) fn first_fit(
    taken: &[Range<u64>],
    arena_bytes: u64,
    bytes: u64,
) -> Result<(usize, Range<u64>), BufferError> {
    if bytes == 0 {
        return Err(BufferError::Empty);
    }
    let full = BufferError::ArenaFull { wanted_bytes: bytes, arena_bytes };
    let page_bytes = holdfast_sys::shared_memory::page_bytes();
    let Some(bytes) = bytes.checked_next_multiple_of(page_bytes) else { return Err(full) };
    let mut start = 0;
    for (index, range) in taken.iter().enumerate() {
        if range.start - start >= bytes {
            return Ok((index, start..start + bytes));
        }
        start = range.end;
    }
    if arena_bytes - start < bytes {
        return Err(full);
    }
    Ok((taken.len(), start..start + bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use proptest::prelude::*;
    use std::os::unix::fs::MetadataExt;
    use std::vec;
    use std::vec::Vec;

    const ARENA_BYTES: u64 = 1 << 20;

    fn channel() -> Arc<ChannelMemory> {
        ChannelMemory::create(Layout::new(4096, ARENA_BYTES).unwrap(), &[], true).unwrap()
    }

    #[test]
    fn bytes_go_in_and_come_out_and_nothing_past_the_end() {
        let channel = channel();
        let buffer = channel.buffer(10_000).unwrap();
        let bytes: Vec<u8> = (0..10_000).map(|at| (at * 7) as u8).collect();
        buffer.copy_in(0, &bytes).unwrap();
        let mut found = vec![0; 10_000];
        buffer.copy_out(0, &mut found).unwrap();
        assert_eq!(found, bytes);
        buffer.copy_out(9_997, &mut found[..3]).unwrap();
        assert_eq!(found[..3], bytes[9_997..]);
        for (at, bytes) in [(9_998, 3), (10_000, 1), (u64::MAX, 1), (0, 10_001)] {
            let refused = buffer.copy_in(at, &vec![0; bytes]);
            assert!(matches!(refused, Err(BufferError::OutOfRange { .. })), "{at} {bytes}");
            assert!(buffer.copy_out(at, &mut vec![0; bytes]).is_err());
        }
    }

    /// The peer finds a buffer at the offset of its handle; invalid handles are refused.
    #[test]
    fn handle_locates_the_buffer_for_the_peer() {
        let channel = channel();
        let applet = ChannelMemory::open(channel.descriptor().unwrap()).unwrap();
        let _first = channel.buffer(1).unwrap();
        let buffer = channel.buffer(5000).unwrap();
        buffer.copy_in(4990, b"from host").unwrap();
        let given = applet.given(buffer.handle()).unwrap();
        let mut found = [0; 9];
        given.copy_out(4990, &mut found).unwrap();
        assert_eq!(&found, b"from host");
        given.copy_in(0, b"from applet").unwrap();
        drop(given);
        assert!(applet.given(Handle { offset: ARENA_BYTES, bytes: 1 }).is_none());
        assert!(applet.given(Handle::default()).is_none());
        let mut found = [0; 11];
        buffer.copy_out(0, &mut found).unwrap();
        assert_eq!(&found, b"from applet");
    }

    /// Guarantee: applets/buffers
    #[test]
    fn only_parts_of_a_buffer_are_located_in_it() {
        let channel = channel();
        let _first = channel.buffer(1).unwrap();
        let buffer = channel.buffer(100).unwrap();
        let Handle { offset, bytes } = buffer.handle();
        assert_eq!((offset % 4096, bytes, buffer.len()), (0, 100, 100));
        let at = |offset, bytes| buffer.locate(Handle { offset, bytes });
        assert_eq!(at(offset + 10, 90), Some(10..100));
        assert_eq!(at(offset + 10, 91), None);
        assert_eq!(at(offset - 1, 1), None);
        assert_eq!(at(offset + 1, u64::MAX), None);
        assert_eq!(at(0, 0), None);
    }

    /// A dropped buffer returns its memory, and a new buffer contains only zeros.
    ///
    /// Guarantee: applets/buffers
    #[test]
    fn dropped_buffer_is_freed_and_new_one_is_zero() {
        let channel = channel();
        let file = std::fs::File::from(channel.descriptor().unwrap());
        let blocks = || file.metadata().unwrap().blocks();
        let before = blocks();
        let buffer = channel.buffer(65_536).unwrap();
        assert_eq!(blocks() - before, 128);
        buffer.copy_in(0, &[7; 65_536]).unwrap();
        let handle = buffer.handle();
        drop(buffer);
        assert_eq!(blocks(), before);
        // The applet goes on writing to what it no longer has.
        channel.part(handle).unwrap().write(0, &[9; 4096]).unwrap();
        let again = channel.buffer(65_536).unwrap();
        assert_eq!(again.handle(), handle);
        let mut found = vec![1; 65_536];
        again.copy_out(0, &mut found).unwrap();
        assert!(found.iter().all(|byte| *byte == 0));
    }

    /// A full arena gives an error, and gaps between buffers are allocated again.
    #[test]
    fn full_arena_is_an_error_and_gaps_are_reused() {
        let channel = channel();
        assert!(matches!(channel.buffer(0), Err(BufferError::Empty)));
        assert!(matches!(channel.buffer(ARENA_BYTES + 1), Err(BufferError::ArenaFull { .. })));
        assert!(matches!(channel.buffer(u64::MAX), Err(BufferError::ArenaFull { .. })));
        let mut all: Vec<_> = (0..4).map(|_| channel.buffer(ARENA_BYTES / 4).unwrap()).collect();
        assert!(matches!(channel.buffer(1), Err(BufferError::ArenaFull { .. })));
        let gap = all.remove(1).handle();
        assert_eq!(channel.buffer(100).unwrap().handle().offset, gap.offset);
        drop(all);
        assert_eq!(channel.buffer(ARENA_BYTES).unwrap().handle().offset, 0);
    }

    proptest! {
        /// Guarantee: applets/buffers
        #[test]
        fn buffers_never_overlap(sizes in prop::collection::vec((1_u64..200_000, any::<bool>()), 1..60)) {
            let mut taken: Vec<Range<u64>> = Vec::new();
            for (bytes, drops) in sizes {
                if drops && !taken.is_empty() {
                    taken.remove(bytes as usize % taken.len());
                } else if let Ok((index, range)) = first_fit(&taken, ARENA_BYTES, bytes) {
                    prop_assert!(range.end <= ARENA_BYTES && range.end - range.start >= bytes);
                    taken.insert(index, range);
                }
                prop_assert!(taken.windows(2).all(|pair| pair[0].end <= pair[1].start));
            }
        }
    }
}
