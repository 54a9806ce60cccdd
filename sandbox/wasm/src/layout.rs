//! The layout of an applet's linear memory, as plain arithmetic.
//!
//! ```text
//! 0                volatile_low_bytes  -arena   HEAP_BASE      +backed       +limit            byte size
//! |  volatile (anonymous)  |  low hole  |  arena  |  region  |  high hole  |  volatile (anonymous)  |
//! ```
//!
//! The arena (memory shared with the host) and the region are attached together, in one growth;
//! either may be missing.
//!
//! Invariants: before attachment everything up to the byte size is volatile and there are no holes;
//! the region never moves and its limit never changes; volatile growth after attachment goes above
//! the limit. This module must not touch memory.
#![forbid(unsafe_code)]

use std::ops::Range;

/// Linear offset at which an attached heap starts.
pub const HEAP_BASE: u64 = 0x8000_0000;
/// Bytes that one 32-bit linear memory can address.
pub(crate) const LINEAR_MEMORY_BYTES: u64 = 1 << 32;
/// Address space above the heap that is kept for volatile growth after attachment.
pub(crate) const VOLATILE_RESERVE_BYTES: u64 = 256 << 20;
/// The largest heap limit that fits into a linear memory together with its volatile part.
pub const MAX_HEAP_LIMIT_BYTES: u64 = LINEAR_MEMORY_BYTES - HEAP_BASE - VOLATILE_RESERVE_BYTES;
/// One page of WebAssembly memory.
pub(crate) const WASM_PAGE_BYTES: u64 = 65_536;

/// The parts of one linear memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// What the applet sees as the size of its memory.
    pub(crate) size_bytes: u64,
    /// Present once heap and arena are attached.
    pub(crate) heap: Option<HeapPart>,
}

/// Where the attached heap and the arena below it are; what there is none of has no bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeapPart {
    /// Size of the volatile memory at the moment of attachment.
    pub(crate) volatile_low_bytes: u64,
    pub(crate) arena_bytes: u64,
    pub(crate) backed_bytes: u64,
    pub(crate) limit_bytes: u64,
    /// The applet may not store to it.
    pub(crate) read_only: bool,
}

impl HeapPart {
    pub(crate) fn backed_range(&self) -> Range<u64> {
        HEAP_BASE..HEAP_BASE + self.backed_bytes
    }

    pub(crate) fn low_hole(&self) -> Range<u64> {
        self.volatile_low_bytes..HEAP_BASE - self.arena_bytes
    }

    pub(crate) fn arena_range(&self) -> Range<u64> {
        HEAP_BASE - self.arena_bytes..HEAP_BASE
    }

    pub(crate) fn high_hole(&self) -> Range<u64> {
        HEAP_BASE + self.backed_bytes..self.end()
    }

    pub(crate) fn end(&self) -> u64 {
        HEAP_BASE + self.limit_bytes
    }
}

impl Layout {
    /// Volatile bytes in a memory of `size_bytes`; the region and the holes do not count.
    pub(crate) fn volatile_bytes_at(&self, size_bytes: u64) -> u64 {
        match &self.heap {
            None => size_bytes,
            Some(heap) => heap.volatile_low_bytes + size_bytes.saturating_sub(heap.end()),
        }
    }

    /// Whether all of `range` is memory that exists: volatile, shared, or backed by the region.
    pub(crate) fn is_present(&self, range: &Range<u64>) -> bool {
        range.is_empty() || self.first_absent(range) >= range.end
    }

    /// Where a range leaves what exists, going on from its start: at or past its end if it does
    /// not.
    pub(crate) fn first_absent(&self, range: &Range<u64>) -> u64 {
        let Some(heap) = &self.heap else {
            return if range.start < self.size_bytes { self.size_bytes } else { range.start };
        };
        let shared_and_backed = heap.arena_range().start..heap.backed_range().end;
        let parts = [0..heap.volatile_low_bytes, shared_and_backed, heap.end()..self.size_bytes];
        // One part may begin where another ends.
        parts
            .into_iter()
            .fold(range.start, |at, part| if part.contains(&at) { part.end } else { at })
    }

    /// The part of `range` that lies in the backed heap, if any.
    pub(crate) fn heap_part_of(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let backed = self.heap?.backed_range();
        let part = range.start.max(backed.start)..range.end.min(backed.end);
        (!part.is_empty()).then_some(part)
    }

    /// Whether a linear address lies in a heap that may only be read: what faults there was a
    /// store.
    pub(crate) fn is_read_only_at(&self, address: u64) -> bool {
        self.heap.is_some_and(|heap| heap.read_only && heap.backed_range().contains(&address))
    }

    /// What lies at a linear address, for messages.
    pub(crate) fn describe(&self, address: u64) -> &'static str {
        match &self.heap {
            Some(heap) if heap.low_hole().contains(&address) => {
                "between the applet's memory and its heap"
            }
            Some(heap) if heap.high_hole().contains(&address) => {
                "past the backed part of the heap; the applet must call holdfast.grow before it stores there"
            }
            Some(heap) if heap.backed_range().contains(&address) => "in the heap",
            Some(heap) if heap.arena_range().contains(&address) => {
                "in the memory shared with the host"
            }
            _ if address < self.size_bytes => "in the applet's memory",
            _ => "past the end of the applet's memory",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn attached() -> Layout {
        let heap = HeapPart {
            volatile_low_bytes: 2 * MIB,
            arena_bytes: 16 * MIB,
            backed_bytes: 4 * MIB,
            limit_bytes: 64 * MIB,
            read_only: false,
        };
        Layout { size_bytes: heap.end() + MIB, heap: Some(heap) }
    }

    /// The region and the holes around it do not count as volatile memory.
    #[test]
    fn region_and_holes_are_not_volatile_memory() {
        assert_eq!(attached().volatile_bytes_at(attached().size_bytes), 3 * MIB);
        assert_eq!(Layout { size_bytes: 5 * MIB, heap: None }.volatile_bytes_at(5 * MIB), 5 * MIB);
    }

    #[test]
    fn holes_are_not_present_and_everything_else_is() {
        let layout = attached();
        for present in [
            0..2 * MIB,
            HEAP_BASE..HEAP_BASE + 4 * MIB,
            HEAP_BASE - 16 * MIB..HEAP_BASE + 4 * MIB,
            HEAP_BASE + 64 * MIB..HEAP_BASE + 65 * MIB,
            HEAP_BASE - 17 * MIB..HEAP_BASE - 17 * MIB,
        ] {
            assert!(layout.is_present(&present), "{present:?}");
        }
        for absent in [
            2 * MIB - 1..2 * MIB + 1,
            HEAP_BASE - 16 * MIB - 1..HEAP_BASE,
            HEAP_BASE - 17 * MIB..HEAP_BASE - 16 * MIB,
            HEAP_BASE + 4 * MIB - 1..HEAP_BASE + 4 * MIB + 1,
            HEAP_BASE + 64 * MIB - 1..HEAP_BASE + 64 * MIB + 1,
            HEAP_BASE + 65 * MIB..HEAP_BASE + 65 * MIB + 1,
        ] {
            assert!(!layout.is_present(&absent), "{absent:?}");
        }
    }

    /// A fully backed heap and the memory above it form one present range.
    #[test]
    fn full_heap_and_memory_above_are_one_range() {
        let heap = HeapPart {
            volatile_low_bytes: MIB,
            arena_bytes: 0,
            backed_bytes: 4 * MIB,
            limit_bytes: 4 * MIB,
            read_only: false,
        };
        let layout = Layout { size_bytes: heap.end() + MIB, heap: Some(heap) };
        assert!(layout.is_present(&(heap.end() - 1..heap.end() + 1)));
    }

    /// The heap part of a range is cut to the backed bytes.
    #[test]
    fn heap_range_is_cut_to_the_backed_bytes() {
        let layout = attached();
        let range = HEAP_BASE - MIB..HEAP_BASE + 6 * MIB;
        assert_eq!(layout.heap_part_of(&range), Some(HEAP_BASE..HEAP_BASE + 4 * MIB));
        assert_eq!(layout.heap_part_of(&(0..MIB)), None);
        assert_eq!(layout.heap_part_of(&(HEAP_BASE - MIB..HEAP_BASE)), None);
    }
}
