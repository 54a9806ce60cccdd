//! The layout of the shared file: `[ boot page | ring host to applet | ring applet to host | arena
//! ]`.
//!
//! Invariant: a [`Layout`] that exists fits in its file, its parts are page-aligned and do not
//! overlap, and a ring's data is a power of two; so the holder of one need not check again.

#![forbid(unsafe_code)]

use core::fmt;
use core::ops::Range;

/// Everything begins at a multiple of it, whatever the machine's pages are: those of all platforms
/// are multiples or equal.
pub const PAGE_BYTES: u64 = 4096;
/// What comes before the data of a ring: a page with what the consumer says and with the words of
/// sleepers, and a page with the lines with which records begin.
pub const CONTROL_BYTES: u64 = 2 * PAGE_BYTES;
/// The smallest ring.
pub const RING_BYTES_MIN: u32 = 4096;
/// The largest ring.
pub const RING_BYTES_MAX: u32 = 64 << 20;
/// What a ring has by default.
pub const RING_BYTES_DEFAULT: u32 = 256 << 10;
/// What an arena has by default: address space, of which a page is backed when a
/// buffer needs it.
pub const ARENA_BYTES_DEFAULT: u64 = 64 << 20;
/// The largest arena.
pub const ARENA_BYTES_MAX: u64 = 1 << 40;

/// Offsets and sizes, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    ring_bytes: u32,
    arena_bytes: u64,
}

/// Sizes that make no channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutError {
    /// Not a power of two between [`RING_BYTES_MIN`] and [`RING_BYTES_MAX`].
    RingBytes {
        /// What was asked for.
        bytes: u32,
    },
    /// Not a multiple of [`PAGE_BYTES`], or more than [`ARENA_BYTES_MAX`].
    ArenaBytes {
        /// What was asked for.
        bytes: u64,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RingBytes { bytes } => write!(
                f,
                "a ring of {bytes} bytes cannot be; take a power of two from {RING_BYTES_MIN} to {RING_BYTES_MAX}"
            ),
            Self::ArenaBytes { bytes } => write!(
                f,
                "an arena of {bytes} bytes cannot be; take a multiple of {PAGE_BYTES} up to {ARENA_BYTES_MAX}"
            ),
        }
    }
}

impl core::error::Error for LayoutError {}

impl Layout {
    /// The layout with rings of `ring_bytes` data bytes each, and an arena.
    ///
    /// # Errors
    /// When a size cannot be.
    pub const fn new(ring_bytes: u32, arena_bytes: u64) -> Result<Layout, LayoutError> {
        let ring_fits = ring_bytes >= RING_BYTES_MIN && ring_bytes <= RING_BYTES_MAX;
        if !ring_bytes.is_power_of_two() || !ring_fits {
            return Err(LayoutError::RingBytes { bytes: ring_bytes });
        }
        if !arena_bytes.is_multiple_of(PAGE_BYTES) || arena_bytes > ARENA_BYTES_MAX {
            return Err(LayoutError::ArenaBytes { bytes: arena_bytes });
        }
        Ok(Layout { ring_bytes, arena_bytes })
    }

    /// Data bytes of each ring.
    #[must_use]
    pub const fn ring_bytes(&self) -> u32 {
        self.ring_bytes
    }

    /// Control pages of the ring that the host writes to; its data follows.
    #[must_use]
    pub const fn host_ring_offset(&self) -> u64 {
        PAGE_BYTES
    }

    /// Control pages of the ring that the applet writes to.
    #[must_use]
    pub const fn applet_ring_offset(&self) -> u64 {
        self.host_ring_offset() + self.ring_total_bytes()
    }

    /// Bytes of each ring, control pages included.
    #[must_use]
    pub const fn ring_total_bytes(&self) -> u64 {
        CONTROL_BYTES + self.ring_bytes as u64
    }

    /// First byte of the arena.
    #[must_use]
    pub const fn arena_offset(&self) -> u64 {
        self.applet_ring_offset() + self.ring_total_bytes()
    }

    /// Bytes of the arena.
    #[must_use]
    pub const fn arena_bytes(&self) -> u64 {
        self.arena_bytes
    }

    /// Bytes of the whole file.
    #[must_use]
    pub const fn total_bytes(&self) -> u64 {
        self.arena_offset() + self.arena_bytes
    }

    /// Where in the file a buffer is, if it lies in the arena.
    #[must_use]
    pub fn locate(&self, handle: Handle) -> Option<Range<u64>> {
        let end = handle.offset.checked_add(handle.bytes).filter(|end| *end <= self.arena_bytes)?;
        Some(self.arena_offset() + handle.offset..self.arena_offset() + end)
    }
}

impl Default for Layout {
    fn default() -> Layout {
        Layout { ring_bytes: RING_BYTES_DEFAULT, arena_bytes: ARENA_BYTES_DEFAULT }
    }
}

/// A part of the arena, as it travels in messages. It says nothing about whether the part is
/// in the arena: the receiver of one asks [`Layout::locate`] or the buffer itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Handle {
    /// From the first byte of the arena.
    pub offset: u64,
    /// How many; 0 for no buffer.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_on_page_boundaries() {
        for layout in [Layout::default(), Layout::new(RING_BYTES_MIN, 0).unwrap()] {
            assert_eq!(layout.host_ring_offset(), PAGE_BYTES);
            let ring = CONTROL_BYTES + u64::from(layout.ring_bytes());
            assert_eq!(layout.applet_ring_offset(), PAGE_BYTES + ring);
            assert_eq!(layout.arena_offset(), PAGE_BYTES + 2 * ring);
            assert_eq!(layout.arena_offset() % PAGE_BYTES, 0);
            assert_eq!(layout.total_bytes(), layout.arena_offset() + layout.arena_bytes());
        }
    }

    #[test]
    fn sizes_that_make_no_channel_are_refused() {
        for ring_bytes in [0, 2048, 4097, RING_BYTES_MAX * 2, u32::MAX] {
            assert_eq!(
                Layout::new(ring_bytes, 0),
                Err(LayoutError::RingBytes { bytes: ring_bytes })
            );
        }
        for arena_bytes in [1, 4095, ARENA_BYTES_MAX + PAGE_BYTES, u64::MAX] {
            assert!(Layout::new(RING_BYTES_MIN, arena_bytes).is_err());
        }
    }

    #[test]
    fn a_handle_outside_of_the_arena_is_nowhere() {
        let layout = Layout::new(RING_BYTES_MIN, 2 * PAGE_BYTES).unwrap();
        let start = layout.arena_offset();
        let at = |offset, bytes| layout.locate(Handle { offset, bytes });
        assert_eq!(at(0, 2 * PAGE_BYTES), Some(start..start + 2 * PAGE_BYTES));
        assert_eq!(at(PAGE_BYTES, 7), Some(start + PAGE_BYTES..start + PAGE_BYTES + 7));
        assert_eq!(at(1, 2 * PAGE_BYTES), None);
        assert_eq!(at(u64::MAX, 2), None);
        assert_eq!(at(2, u64::MAX), None);
    }
}
