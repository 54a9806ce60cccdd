//! The layout of an applet's linear memory, as plain arithmetic.
//!
//! ```text
//! 0          volatile_low_bytes  -arena   HEAP_BASE                +backed       next heap      end       byte size
//! |  volatile (anonymous)  |  hole  |  arena  |  hole  |  heap  |  hole  |  heap  |  hole  |  volatile (anonymous)  |
//! ```
//!
//! The arena (memory shared with the host) and all heaps are attached together, in one growth; any
//! of them may be missing. Each heap lies where its pointers refer to. [`place`] chooses for those
//! that have none yet, so that heaps made one after the other seldom want the same place.
//!
//! Invariants: before attachment everything up to the byte size is volatile and there are no holes;
//! heaps are kept in the order of their places and never overlap; none moves and no limit changes;
//! volatile growth after attachment goes above the last limit. This module must not touch memory.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

/// Linear offset from which on attached heaps lie.
pub const HEAP_BASE: u64 = 0x8000_0000;
/// Bytes that one 32-bit linear memory can address.
pub(crate) const LINEAR_MEMORY_BYTES: u64 = 1 << 32;
/// Address space above the heaps that is kept for volatile growth after attachment.
pub(crate) const VOLATILE_RESERVE_BYTES: u64 = 256 << 20;
/// Where the last heap must end.
const HEAPS_END: u64 = LINEAR_MEMORY_BYTES - VOLATILE_RESERVE_BYTES;
/// The largest heap limit that fits into a linear memory together with its volatile part.
pub const MAX_HEAP_LIMIT_BYTES: u64 = HEAPS_END - HEAP_BASE;
/// One page of WebAssembly memory.
pub(crate) const WASM_PAGE_BYTES: u64 = 65_536;
/// New heaps begin at multiples of it, so that the kernel can map huge pages where the image has
/// them.
const PLACE_ALIGN_BYTES: u64 = 2 << 20;
/// New heaps of up to [`SMALL_BYTES_MAX`] are spread over so much, from [`HEAP_BASE`] on; larger
/// ones of up to 1 GiB lie above.
const SMALL_SPAN_BYTES: u64 = 768 << 20;
const SMALL_BYTES_MAX: u64 = 256 << 20;
const SMALL_STEP_BYTES: u64 = 64 << 20;

/// The parts of one linear memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    /// What the applet sees as the size of its memory.
    pub(crate) size_bytes: u64,
    /// Present once heaps and arena are attached.
    pub(crate) attached: Option<AttachedPart>,
}

/// Where the attached heaps and the arena below them are; an arena that there is not has no bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AttachedPart {
    /// Size of the volatile memory at the moment of attachment.
    pub(crate) volatile_low_bytes: u64,
    pub(crate) arena_bytes: u64,
    /// In the order of their places.
    pub(crate) heaps: Arc<[HeapPart]>,
}

/// Where an attached heap is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeapPart {
    /// Which of the grants it is.
    pub(crate) index: usize,
    pub(crate) base: u64,
    pub(crate) backed_bytes: u64,
    pub(crate) limit_bytes: u64,
    /// The applet may not store to it.
    pub(crate) read_only: bool,
}

impl HeapPart {
    pub(crate) fn backed_range(&self) -> Range<u64> {
        self.base..self.base + self.backed_bytes
    }

    pub(crate) fn end(&self) -> u64 {
        self.base + self.limit_bytes
    }
}

impl AttachedPart {
    pub(crate) fn arena_range(&self) -> Range<u64> {
        HEAP_BASE - self.arena_bytes..HEAP_BASE
    }

    pub(crate) fn low_hole(&self) -> Range<u64> {
        self.volatile_low_bytes..HEAP_BASE - self.arena_bytes
    }

    /// Where the attached part ends, and volatile memory goes on.
    pub(crate) fn end(&self) -> u64 {
        self.heaps.last().map_or(HEAP_BASE, HeapPart::end)
    }

    /// What lies behind each heap, up to the next one or to the end.
    fn holes_behind(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let starts = self.heaps.iter().skip(1).map(|next| next.base);
        self.heaps
            .iter()
            .zip(starts.chain([self.end()]))
            .map(|(heap, next)| heap.backed_range().end..next)
    }

    /// All holes, of which some may be empty: one below the arena, one above it, and one behind
    /// each heap. As many as there were before, whatever grows.
    pub(crate) fn holes(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.heaps.first().map_or(HEAP_BASE, |heap| heap.base);
        [self.low_hole(), HEAP_BASE..first].into_iter().chain(self.holes_behind())
    }

    /// The heap of a grant.
    pub(crate) fn heap(&self, index: usize) -> Option<&HeapPart> {
        self.heaps.iter().find(|heap| heap.index == index)
    }

    /// Notes how much of a heap is backed.
    pub(crate) fn set_backed(&mut self, index: usize, backed_bytes: u64) {
        let heaps = self.heaps.iter().map(|heap| match heap.index == index {
            true => HeapPart { backed_bytes, ..*heap },
            false => *heap,
        });
        self.heaps = heaps.collect();
    }
}

impl Layout {
    /// Volatile bytes in a memory of `size_bytes`; heaps and holes do not count.
    pub(crate) fn volatile_bytes_at(&self, size_bytes: u64) -> u64 {
        match &self.attached {
            None => size_bytes,
            Some(part) => part.volatile_low_bytes + size_bytes.saturating_sub(part.end()),
        }
    }

    /// How much exists from address 0 on.
    pub(crate) fn low_bytes(&self) -> u64 {
        self.attached.as_ref().map_or(self.size_bytes, |part| part.volatile_low_bytes)
    }

    /// Whether all of `range` is memory that exists: volatile, shared, or backed by a heap.
    pub(crate) fn is_present(&self, range: &Range<u64>) -> bool {
        range.is_empty() || self.first_absent(range) >= range.end
    }

    /// Where a range leaves what exists, going on from its start: at or past its end if it does
    /// not.
    pub(crate) fn first_absent(&self, range: &Range<u64>) -> u64 {
        let Some(part) = &self.attached else {
            return if range.start < self.size_bytes { self.size_bytes } else { range.start };
        };
        let backed = part.heaps.iter().map(HeapPart::backed_range);
        // In their order, and one part may begin where another ends.
        [0..part.volatile_low_bytes, part.arena_range()]
            .into_iter()
            .chain(backed)
            .chain([part.end()..self.size_bytes])
            .fold(range.start, |at, part| if part.contains(&at) { part.end } else { at })
    }

    /// The parts of `range` that lie in backed heaps: which grant, and what of it.
    pub(crate) fn heap_parts_of<'a>(
        &'a self,
        range: &'a Range<u64>,
    ) -> impl Iterator<Item = (&'a HeapPart, Range<u64>)> {
        let heaps = self.attached.iter().flat_map(|part| part.heaps.iter());
        heaps.filter_map(move |heap| {
            let backed = heap.backed_range();
            let part = range.start.max(backed.start)..range.end.min(backed.end);
            (!part.is_empty()).then_some((heap, part))
        })
    }

    /// Whether a linear address lies in a heap that may only be read: what faults there was a
    /// store.
    pub(crate) fn is_read_only_at(&self, address: u64) -> bool {
        let mut heaps = self.attached.iter().flat_map(|part| part.heaps.iter());
        heaps.any(|heap| heap.read_only && heap.backed_range().contains(&address))
    }

    /// What lies at a linear address, for messages.
    pub(crate) fn describe(&self, address: u64) -> &'static str {
        let part = self.attached.as_ref();
        let in_heap = |is_there: fn(&HeapPart) -> Range<u64>| {
            part.is_some_and(|part| part.heaps.iter().any(|heap| is_there(heap).contains(&address)))
        };
        match part {
            Some(part) if part.holes().take(2).any(|hole| hole.contains(&address)) => {
                "between the applet's memory and its heap"
            }
            Some(part) if part.arena_range().contains(&address) => {
                "in the memory shared with the host"
            }
            _ if in_heap(HeapPart::backed_range) => "in the heap",
            _ if in_heap(|heap| heap.base..heap.end()) => {
                "past the backed part of the heap; the applet must call holdfast.grow before it stores there"
            }
            Some(part) if (HEAP_BASE..part.end()).contains(&address) => "between two heaps",
            _ if address < self.size_bytes => "in the applet's memory",
            _ => "past the end of the applet's memory",
        }
    }
}

/// A heap that needs a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placing {
    pub(crate) limit_bytes: u64,
    /// Where its pointers refer to.
    pub(crate) base: Option<u64>,
    /// One more for each heap that is made: where a new one would best lie follows from it.
    pub(crate) number: u64,
}

/// Heaps that cannot lie in one linear memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlaceConflict {
    /// The pointers of both refer to the same addresses.
    Overlap { earlier: usize, later: usize },
    /// From where its pointers refer to on there is less room than its limit.
    Short { index: usize, base: u64 },
    /// There is no gap for it.
    NoGap { index: usize },
}

/// Where each heap lies. `is_first_low` keeps a new heap that is the first grant at [`HEAP_BASE`],
/// for programs that rely on it.
pub(crate) fn place(heaps: &[Placing], is_first_low: bool) -> Result<Vec<u64>, PlaceConflict> {
    let mut taken: Vec<(usize, Range<u64>)> = Vec::new();
    let overlaps = |taken: &[(usize, Range<u64>)], range: &Range<u64>| {
        let hit =
            taken.iter().find(|(_, other)| range.start < other.end && other.start < range.end);
        hit.map(|(index, _)| *index)
    };
    for (index, heap) in heaps.iter().enumerate() {
        let Some(base) = heap.base else { continue };
        let room = HEAPS_END.saturating_sub(base);
        if base < HEAP_BASE || !base.is_multiple_of(WASM_PAGE_BYTES) || heap.limit_bytes > room {
            return Err(PlaceConflict::Short { index, base });
        }
        let range = base..base + heap.limit_bytes;
        if let Some(earlier) = overlaps(&taken, &range) {
            return Err(PlaceConflict::Overlap { earlier, later: index });
        }
        taken.push((index, range));
    }
    for (index, heap) in heaps.iter().enumerate().filter(|(_, heap)| heap.base.is_none()) {
        let wished = if is_first_low && index == 0 { HEAP_BASE } else { wish(heap) };
        let behind = taken.iter().map(|(_, range)| range.end);
        let mut gaps: Vec<u64> = behind.chain([HEAP_BASE]).collect();
        gaps.sort_unstable();
        let found = [wished].into_iter().chain(gaps).find_map(|start| {
            let start = start.next_multiple_of(PLACE_ALIGN_BYTES);
            let range = start..start + heap.limit_bytes;
            (range.end <= HEAPS_END && overlaps(&taken, &range).is_none()).then_some(range)
        });
        taken.push((index, found.ok_or(PlaceConflict::NoGap { index })?));
    }
    taken.sort_unstable_by_key(|(index, _)| *index);
    Ok(taken.into_iter().map(|(_, range)| range.start).collect())
}

/// Where a new heap lies best.
fn wish(heap: &Placing) -> u64 {
    let step = heap.limit_bytes.next_power_of_two().max(SMALL_STEP_BYTES);
    let (from, span) = match heap.limit_bytes {
        0..=SMALL_BYTES_MAX => (HEAP_BASE, SMALL_SPAN_BYTES),
        // Such a large one leaves room for no other.
        _ if step > MAX_HEAP_LIMIT_BYTES - SMALL_SPAN_BYTES => (HEAP_BASE, step),
        _ => (HEAP_BASE + SMALL_SPAN_BYTES, MAX_HEAP_LIMIT_BYTES - SMALL_SPAN_BYTES),
    };
    from + heap.number % (span / step) * step
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn heap(index: usize, base: u64, backed_bytes: u64, limit_bytes: u64) -> HeapPart {
        HeapPart { index, base, backed_bytes, limit_bytes, read_only: false }
    }

    fn layout(volatile_low_bytes: u64, arena_bytes: u64, heaps: &[HeapPart]) -> Layout {
        let part = AttachedPart { volatile_low_bytes, arena_bytes, heaps: heaps.into() };
        Layout { size_bytes: part.end() + MIB, attached: Some(part) }
    }

    fn attached() -> Layout {
        layout(2 * MIB, 16 * MIB, &[heap(0, HEAP_BASE, 4 * MIB, 64 * MIB)])
    }

    /// Two heaps with a gap between them, the first grant above the second.
    fn with_two() -> Layout {
        let low = heap(1, HEAP_BASE + 32 * MIB, 4 * MIB, 16 * MIB);
        let high = HeapPart { read_only: true, ..heap(0, HEAP_BASE + 64 * MIB, 8 * MIB, 8 * MIB) };
        layout(2 * MIB, 16 * MIB, &[low, high])
    }

    /// The region and the holes around it do not count as volatile memory.
    #[test]
    fn region_and_holes_are_not_volatile_memory() {
        assert_eq!(attached().volatile_bytes_at(attached().size_bytes), 3 * MIB);
        assert_eq!(with_two().volatile_bytes_at(with_two().size_bytes), 3 * MIB);
        let bare = Layout { size_bytes: 5 * MIB, attached: None };
        assert_eq!(bare.volatile_bytes_at(5 * MIB), 5 * MIB);
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

    /// What lies before, between and behind two heaps is absent, and each byte of both is present.
    #[test]
    fn two_heaps_have_holes_around_them() {
        let layout = with_two();
        for (offset, is_present) in [
            (-1, true),
            (0, false),
            (31, false),
            (32, true),
            (35, true),
            (36, false),
            (48, false),
            (63, false),
            (64, true),
            (71, true),
            (72, true),
            (73, false),
        ] {
            let at = HEAP_BASE.wrapping_add_signed(offset * MIB as i64);
            assert_eq!(layout.is_present(&(at..at + 1)), is_present, "{offset}");
        }
        let holes: Vec<_> = layout.attached.as_ref().unwrap().holes().collect();
        assert_eq!(holes.len(), 4);
        assert!(holes.iter().all(|hole| hole.is_empty() || !layout.is_present(hole)), "{holes:?}");
        assert!(layout.is_read_only_at(HEAP_BASE + 64 * MIB));
        assert!(!layout.is_read_only_at(HEAP_BASE + 32 * MIB));
        assert_eq!(layout.describe(HEAP_BASE + 50 * MIB), "between two heaps");
        let below = "between the applet's memory and its heap";
        assert_eq!((layout.describe(3 * MIB), layout.describe(HEAP_BASE + MIB)), (below, below));
    }

    /// A fully backed heap and the memory above it form one present range.
    #[test]
    fn full_heap_and_memory_above_are_one_range() {
        let layout = layout(MIB, 0, &[heap(0, HEAP_BASE, 4 * MIB, 4 * MIB)]);
        let end = layout.attached.as_ref().unwrap().end();
        assert!(layout.is_present(&(end - 1..end + 1)));
    }

    /// The heap part of a range is cut to the backed bytes, heap by heap.
    #[test]
    fn heap_range_is_cut_to_the_backed_bytes() {
        let parts = |layout: &Layout, range: Range<u64>| -> Vec<(usize, Range<u64>)> {
            layout.heap_parts_of(&range).map(|(heap, part)| (heap.index, part)).collect()
        };
        let layout = attached();
        let range = HEAP_BASE - MIB..HEAP_BASE + 6 * MIB;
        assert_eq!(parts(&layout, range), [(0, HEAP_BASE..HEAP_BASE + 4 * MIB)]);
        assert!(parts(&layout, 0..MIB).is_empty());
        assert!(parts(&layout, HEAP_BASE - MIB..HEAP_BASE).is_empty());
        let all = parts(&with_two(), 0..LINEAR_MEMORY_BYTES);
        assert_eq!(all.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [1, 0]);
    }

    #[test]
    fn growth_moves_one_hole_only() {
        let mut part = with_two().attached.unwrap();
        let before: Vec<_> = part.holes().collect();
        part.set_backed(1, 6 * MIB);
        let after: Vec<_> = part.holes().collect();
        assert_eq!(after[2].start, before[2].start + 2 * MIB);
        assert_eq!((&after[..2], after[3].clone()), (&before[..2], before[3].clone()));
    }

    fn new(limit_bytes: u64, number: u64) -> Placing {
        Placing { limit_bytes, base: None, number }
    }

    /// New heaps that were made one after the other want different places, until all are taken.
    #[test]
    fn new_heaps_are_spread() {
        let alone = |number| place(&[new(64 * MIB, number)], false).unwrap()[0];
        let places: std::collections::BTreeSet<_> = (100..112).map(alone).collect();
        assert_eq!(places.len(), 12);
        assert_eq!(alone(7), alone(7));
        assert_eq!(place(&[new(64 * MIB, 7)], true).unwrap(), [HEAP_BASE]);
        let dictionary = place(&[new(1024 * MIB, 7)], false).unwrap()[0];
        assert!(places.iter().all(|small| small + 64 * MIB <= dictionary));
    }

    /// A heap with pointers lies where they refer to, and a new one gives way.
    #[test]
    fn pointers_decide_where_a_heap_lies() {
        let fixed = Placing { base: Some(HEAP_BASE), ..new(64 * MIB, 0) };
        let found = place(&[new(64 * MIB, 0), fixed, new(64 * MIB, 0)], true).unwrap();
        assert_eq!(found[1], HEAP_BASE);
        assert_eq!(found[0], HEAP_BASE + 64 * MIB);
        assert_eq!(found[2], HEAP_BASE + 128 * MIB);
    }

    #[test]
    fn heaps_that_cannot_lie_together_are_named() {
        let fixed = Placing { base: Some(HEAP_BASE + MIB), ..new(64 * MIB, 0) };
        let conflict = place(&[fixed, new(MIB, 1), fixed], false);
        assert_eq!(conflict, Err(PlaceConflict::Overlap { earlier: 0, later: 2 }));
        let full = [new(MAX_HEAP_LIMIT_BYTES, 0), new(MIB, 0)];
        assert_eq!(place(&full, false), Err(PlaceConflict::NoGap { index: 1 }));
        for base in [0, HEAP_BASE + 1, HEAPS_END, u64::MAX] {
            let short = place(&[Placing { base: Some(base), ..new(MIB, 0) }], false);
            assert_eq!(short, Err(PlaceConflict::Short { index: 0, base }));
        }
    }
}
