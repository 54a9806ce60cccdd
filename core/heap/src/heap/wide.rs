//! Objects between small and large ones: slabs of a few large slots over several chunks.
//!
//! Invariants:
//! - As in `slabs`, a bit of the slab's bitmap is the one truth about a slot, and everything that
//!   [`WideRooms`] holds is volatile: a slab with a free slot is remembered, missed, or behind
//!   `scanned_to`.
//! - A wide slab is published and released as a run is, and released as soon as it is empty. A kill
//!   may leave an empty one, which the next allocation of its class finds, or one without other room
//!   releases.
//! - A heap of one segment has none: one object in a slab of six chunks would be a waste there.
//!
//! What it must not do: fail where one chunk would do. Without room for a slab there is none, and
//! the caller takes the next larger place.

use core::ops::Range;
use core::ptr::NonNull;

use crate::backing::Backing;
use crate::classes::{CLASS_BYTES, NARROW_BYTES_MAX, class_of};
use crate::error::HeapError;
use crate::heap::Heap;
use crate::heap::chunks::Run;
use crate::layout::*;
use crate::wide::{WIDE_CLASSES, wide_head, wide_index, wide_slab_around};

/// Slabs with room that a class remembers; others are found again by scanning.
const REMEMBERED: usize = 3;

/// Where each class may find room. Chunks by their number, of which 0 is none.
#[derive(Clone, Debug)]
pub(crate) struct WideRooms {
    classes: [WideRoom; WIDE_CLASSES.len()],
    /// By class: a slab behind the scan got room and was not remembered.
    missed: u16,
}

#[derive(Clone, Copy, Debug)]
struct WideRoom {
    slabs: [u32; REMEMBERED],
    /// Chunks before this one were scanned.
    scanned_to: u32,
}

const _: () = assert!(HEAP_BYTES_MAX / CHUNK_BYTES <= u32::MAX as u64 && WIDE_CLASSES.len() <= 16);

impl WideRooms {
    /// No slab is known.
    pub(crate) const fn new() -> WideRooms {
        let none = WideRoom { slabs: [0; REMEMBERED], scanned_to: 0 };
        WideRooms { classes: [none; WIDE_CLASSES.len()], missed: 0 }
    }

    fn remember(&mut self, index: usize, chunk: u32) {
        let WideRoom { slabs, scanned_to } = &mut self.classes[index];
        if slabs.contains(&chunk) {
            return;
        }
        match slabs.iter_mut().find(|slab| **slab == 0) {
            Some(place) => *place = chunk,
            None if chunk < *scanned_to => self.missed |= 1 << index,
            // The scan comes to it.
            None => {}
        }
    }

    /// See `Heap::forget_slabs_in`.
    pub(crate) fn forget_in(&mut self, object: &Range<u64>) {
        let is_inside = |chunk: u32| object.contains(&(u64::from(chunk) * CHUNK_BYTES));
        for room in &mut self.classes {
            room.slabs.iter_mut().filter(|slab| is_inside(**slab)).for_each(|slab| *slab = 0);
            if is_inside(room.scanned_to) {
                room.scanned_to = number(object.start);
            }
        }
    }

    fn forget(&mut self, index: usize, chunk: u32) {
        for slab in &mut self.classes[index].slabs {
            if *slab == chunk {
                *slab = 0;
            }
        }
    }
}

/// An allocated slot of a wide slab.
#[derive(Clone, Copy)]
pub(crate) struct WidePlace {
    index: usize,
    /// Offset of the slab.
    slab: u64,
    slot: u64,
}

impl WidePlace {
    pub(crate) fn usable_bytes(self) -> u64 {
        u64::from(WIDE_CLASSES[self.index].slot_bytes)
    }
}

const fn bitmap_of(slab: u64) -> u64 {
    descriptor_of(slab) + DESC_SLOTS
}

fn number(slab: u64) -> u32 {
    // Of a heap's chunk, see above.
    (slab / CHUNK_BYTES) as u32
}

impl<B: Backing> Heap<B> {
    /// As [`Heap::alloc`], of more than `SMALL_BYTES_MAX`.
    #[cold]
    pub(crate) fn alloc_medium(&mut self, bytes: u64) -> Result<NonNull<u8>, HeapError> {
        let index = WIDE_CLASSES.iter().position(|class| u64::from(class.slot_bytes) >= bytes);
        let narrow = (bytes <= NARROW_BYTES_MAX).then(|| class_of(bytes));
        let is_tighter = |index: &usize| {
            narrow.is_none_or(|narrow| CLASS_BYTES[narrow] > WIDE_CLASSES[*index].slot_bytes)
        };
        if let Some(index) = index.filter(is_tighter)
            && let Some(pointer) = self.alloc_wide(index)?
        {
            return Ok(pointer);
        }
        match narrow {
            Some(class) => {
                let latest =
                    (!self.log.open()).then(|| self.cursors[class].take_latest()).flatten();
                latest.map_or_else(|| self.alloc_small(class), Ok)
            }
            None => self.alloc_large(bytes, CHUNK_BYTES),
        }
    }

    /// A slot of a wide class; none, and nothing done, when there is no room for a slab.
    fn alloc_wide(&mut self, index: usize) -> Result<Option<NonNull<u8>>, HeapError> {
        self.check_writable()?;
        if self.segments() < 2 {
            return Ok(None);
        }
        if self.log.open() {
            // Before a place is chosen: making room can take a free run itself.
            self.make_room(RECORD_BYTES)?;
        }
        let Some(slab) = self.wide_slab_with_room(index).or_else(|| self.add_wide_slab(index))
        else {
            return Ok(None);
        };
        let class = WIDE_CLASSES[index];
        let taken = self.memory.load(bitmap_of(slab));
        let slot = (!taken & class.mask()).trailing_zeros();
        let pointer = self.memory.at(slab + u64::from(slot * class.slot_bytes));
        if self.log.open() {
            self.log_alloc(pointer)?;
        }
        self.memory.store(bitmap_of(slab), taken | 1 << slot);
        NonNull::new(pointer).map(Some).ok_or(HeapError::OutsideHeap)
    }

    /// A slab of the class that has room, remembered or found by scanning.
    fn wide_slab_with_room(&mut self, index: usize) -> Option<u64> {
        loop {
            for place in 0..REMEMBERED {
                let slab = u64::from(self.wide.classes[index].slabs[place]) * CHUNK_BYTES;
                if slab != 0 && self.has_room(index, slab) {
                    return Some(slab);
                }
                self.wide.classes[index].slabs[place] = 0;
            }
            if let Some(slab) = self.scan_wide(index) {
                self.wide.remember(index, number(slab));
                return Some(slab);
            }
            if self.wide.missed & 1 << index == 0 {
                return None;
            }
            self.wide.missed &= !(1 << index);
            self.wide.classes[index].scanned_to = 0;
        }
    }

    fn scan_wide(&mut self, index: usize) -> Option<u64> {
        let segments = self.segments();
        let from = u64::from(self.wide.classes[index].scanned_to);
        let (mut segment, mut chunk) = (from / SEGMENT_CHUNKS, from % SEGMENT_CHUNKS);
        while segment < segments {
            let span = self.span_of(segment);
            while span == 1 && chunk < SEGMENT_CHUNKS {
                let slab = segment * SEGMENT_BYTES + chunk * CHUNK_BYTES;
                chunk += 1;
                if self.has_room(index, slab) {
                    self.wide.classes[index].scanned_to = number(slab) + 1;
                    return Some(slab);
                }
            }
            segment += span;
            chunk = 0;
        }
        self.wide.classes[index].scanned_to = number(segment * SEGMENT_BYTES);
        None
    }

    /// Whether a wide slab of the class begins there and has a free slot.
    fn has_room(&self, index: usize, slab: u64) -> bool {
        let is_slab = self.wide_index_at(slab) == Some(index);
        is_slab && !self.memory.load(bitmap_of(slab)) & WIDE_CLASSES[index].mask() != 0
    }

    /// The class of the wide slab that begins with a chunk of a segment that is not spanned.
    fn wide_index_at(&self, slab: u64) -> Option<usize> {
        if (slab / CHUNK_BYTES).is_multiple_of(SEGMENT_CHUNKS) || !self.chunk_in_use(slab) {
            return None;
        }
        let head = Head::decode(self.memory.load(descriptor_of(slab) + DESC_HEAD))?;
        // With a head that holds it is a run, as long as its class says.
        wide_index(head).filter(|_| self.run_at(slab, HeadKind::Slab).is_some())
    }

    fn add_wide_slab(&mut self, index: usize) -> Option<u64> {
        let head = wide_head(index);
        // Threads keep their slabs: the caller can do with less room.
        let run = self.find_unclaimed_run(u64::from(head.span), 1).ok()?;
        self.raise_format();
        self.memory.store(bitmap_of(run.offset()), 0);
        self.describe_run(run, head.kind, head.class, 0);
        self.publish_run(run);
        self.wide.remember(index, number(run.offset()));
        Some(run.offset())
    }

    /// The slot of a wide slab that starts at `offset`, if it is allocated.
    pub(crate) fn wide_place(&self, offset: u64) -> Option<WidePlace> {
        let (slab, index) = wide_slab_around(|at| self.memory.load(at), offset)?;
        self.wide_index_at(slab).filter(|found| *found == index)?;
        let class = WIDE_CLASSES[index];
        let slot = class.slot_at(offset - slab)?;
        let starts = slot * u64::from(class.slot_bytes) == offset - slab;
        let taken = self.memory.load(bitmap_of(slab)) >> slot & 1 == 1;
        (starts && taken).then_some(WidePlace { index, slab, slot })
    }

    /// Gives the slot back: the free happens at the first store.
    pub(crate) fn release_wide(&mut self, place: WidePlace) {
        let WidePlace { index, slab, slot } = place;
        let left = self.memory.load(bitmap_of(slab)) & !(1 << slot);
        self.memory.store(bitmap_of(slab), left);
        if left & WIDE_CLASSES[index].mask() != 0 {
            self.wide.remember(index, number(slab));
            return;
        }
        self.release_wide_slab(index, slab);
    }

    /// Releases the slab that begins there, if it is a wide one and empty, as a kill may leave it.
    pub(crate) fn release_empty_wide(&mut self, slab: u64) -> bool {
        let Some(index) = self.wide_index_at(slab) else { return false };
        let is_empty = self.memory.load(bitmap_of(slab)) & WIDE_CLASSES[index].mask() == 0;
        if is_empty {
            self.release_wide_slab(index, slab);
        }
        is_empty
    }

    fn release_wide_slab(&mut self, index: usize, slab: u64) {
        // Before the chunks are something else.
        self.wide.forget(index, number(slab));
        let (segment, first) = (slab / SEGMENT_BYTES, slab / CHUNK_BYTES % SEGMENT_CHUNKS);
        let chunks = u64::from(WIDE_CLASSES[index].chunks);
        self.release_run(Run { segment, first, chunks });
    }
}
