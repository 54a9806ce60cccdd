//! Slots freed last, and slabs known as such: the short way of most allocations and frees.
//!
//! Programs mostly free in slabs that were seen before and allocate soon what they freed. So the
//! heap keeps, per size class, the slots freed last, and for some chunks the class of the slab
//! there.
//!
//! Invariants:
//! - All of it is volatile and only a hint about slots: the bitmap decides. A recent slot that is
//!   taken meanwhile (a transaction allocates without looking here) is passed over; freeing one
//!   twice is refused, because its bit is clear.
//! - A chunk is known, and its slots are recent, only while it is a slab in use of that class,
//!   inside the heap, and no thread's own: [`Heap::forget_slab`] comes before it becomes anything
//!   else.
//! - A slot that is neither recent nor taken belongs to a slab that [`Heap::note_room`] noted
//!   of.
//! - An allocation is still the one store that sets a bit, a free the one that clears it.
//!
//! What it must not do: anything in a transaction, where slots freed count as taken until the
//! commit; give an empty slab back, which is the long way's work; anything in an ordered heap,
//! where no slab becomes known and so no slot recent, because its stores are not written back.

use core::ptr::NonNull;

use crate::backing::Backing;
use crate::classes::{CLASS_RECIPROCAL, CLASS_SLOTS, CLASSES, slot_at, slot_starting_at};
use crate::heap::Heap;
use crate::heap::slabs::Cursor;
use crate::layout::*;
use crate::memory::Memory;

/// Chunks that can be known: 16 MiB of them in a row.
const KNOWN: usize = 256;
/// Slots that are recent besides the latest one.
const RECENT: usize = 12;

/// Some slabs, by chunk; each chunk has one place, which it shares with others.
#[derive(Debug)]
pub(crate) struct KnownSlabs {
    entries: [Known; KNOWN],
}

/// What a free has to know of a slab.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
struct Known {
    /// Offset of the chunk + class + 1, or 0: the offset is a multiple of more than there are
    /// classes.
    chunk_and_class: u64,
    /// Of the class, see [`CLASS_RECIPROCAL`] and [`CLASS_SLOTS`]; here, so that they need not wait
    /// for it.
    reciprocal: u32,
    slots: u16,
    /// Of a thread's slab: no other thread clears bits there.
    is_private: bool,
}

impl Known {
    const NONE: Known = Known { chunk_and_class: 0, reciprocal: 0, slots: 0, is_private: false };

    /// The class of the slab in `chunk`, if this is the entry of that; any multiple of a chunk may
    /// be asked for.
    #[inline]
    fn class_of(self, chunk: u64) -> Option<usize> {
        let class = self.chunk_and_class.wrapping_sub(chunk).wrapping_sub(1);
        (class < CLASSES as u64).then_some(class as usize)
    }
}

impl KnownSlabs {
    pub(crate) const fn new() -> KnownSlabs {
        KnownSlabs { entries: [Known::NONE; KNOWN] }
    }

    #[inline]
    const fn index(offset: u64) -> usize {
        (offset / CHUNK_BYTES) as usize % KNOWN
    }

    /// Class and slot that start at `offset`, if it is in a known slab; any number may be asked
    /// for.
    #[inline]
    pub(crate) fn slot_at(&self, offset: u64) -> Option<(usize, u64)> {
        let known = self.entries[Self::index(offset)];
        let class = known.class_of(offset & !(CHUNK_BYTES - 1))?;
        let slot = slot_starting_at(known.reciprocal, offset % CHUNK_BYTES)?;
        (slot < u64::from(known.slots)).then_some((class, slot))
    }

    /// As [`KnownSlabs::slot_at`], in a thread's slab, with whether that is private.
    #[cfg(feature = "std")]
    #[inline(always)]
    pub(crate) fn claimed_slot_at(&self, offset: u64) -> Option<(usize, u64, bool)> {
        let (class, slot) = self.slot_at(offset)?;
        Some((class, slot, self.entries[Self::index(offset)].is_private))
    }

    pub(crate) fn insert(&mut self, chunk: u64, class: usize) {
        self.entries[Self::index(chunk)] = Known {
            chunk_and_class: chunk + class as u64 + 1,
            reciprocal: CLASS_RECIPROCAL[class],
            // At most 4,096.
            slots: CLASS_SLOTS[class] as u16,
            is_private: false,
        };
    }

    /// As [`KnownSlabs::insert`], of a thread's slab, if there is a place for it.
    #[cfg(feature = "std")]
    pub(crate) fn insert_claimed(&mut self, chunk: u64, class: usize, is_private: bool) {
        if self.has_place(chunk) {
            self.insert(chunk, class);
            self.entries[Self::index(chunk)].is_private = is_private;
        }
    }

    /// Whether no slab is known in the place of this one.
    #[cfg(feature = "std")]
    pub(crate) fn has_place(&self, chunk: u64) -> bool {
        self.entries[Self::index(chunk)].chunk_and_class == 0
    }

    /// Whether this slab is known and no other thread clears bits there.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) fn is_private(&self, chunk: u64) -> bool {
        let entry = self.entries[Self::index(chunk)];
        entry.is_private && entry.class_of(chunk).is_some()
    }

    /// Others clear bits in this slab from now on.
    #[cfg(feature = "std")]
    pub(crate) fn set_common(&mut self, chunk: u64) {
        let entry = &mut self.entries[Self::index(chunk)];
        entry.is_private &= entry.class_of(chunk).is_none();
    }

    pub(crate) fn remove(&mut self, chunk: u64) {
        let entry = &mut self.entries[Self::index(chunk)];
        if entry.class_of(chunk).is_some() {
            *entry = Known::NONE;
        }
    }
}

/// The slot of a class that was freed last.
#[derive(Clone, Debug)]
pub(crate) struct Latest {
    slot: Option<NonNull<u8>>,
    /// The word of the bitmap, and the slot's number, whose lowest six bits are the place in the
    /// word.
    word_at: *mut u64,
    number: u64,
}

impl Latest {
    pub(crate) const NONE: Latest =
        Latest { slot: None, word_at: core::ptr::null_mut(), number: 0 };
}

/// Offsets of the slots of a class that were freed before the latest one, in this order.
#[derive(Clone, Debug)]
pub(crate) struct EarlierSlots {
    count: usize,
    offsets: [u64; RECENT],
}

impl EarlierSlots {
    pub(crate) const NONE: EarlierSlots = EarlierSlots { count: 0, offsets: [0; RECENT] };
}

impl Cursor {
    /// Takes the slot that was freed last, if it is still free: the allocation happens at the
    /// store.
    #[inline]
    pub(crate) fn take_latest(&mut self) -> Option<NonNull<u8>> {
        let slot = self.latest.slot.take()?;
        let bit = 1 << (self.latest.number % 64);
        // SAFETY: with a slot, `word_at` is a word of the bitmap of a slab in use, inside the heap
        // and aligned.
        let word = unsafe { Memory::load_word(self.latest.word_at) };
        if word & bit != 0 {
            return None;
        }
        // SAFETY: as above.
        unsafe { Memory::store_word(self.latest.word_at, word | bit) };
        Some(slot)
    }
}

impl<B: Backing> Heap<B> {
    /// Frees the object at `pointer` if it lies in a known slab and the slab is not empty then.
    /// `false`, and nothing done, otherwise; any pointer may be asked for.
    #[inline]
    pub(crate) fn free_known(&mut self, pointer: NonNull<u8>) -> bool {
        // Of a pointer outside of the heap this is an offset that no known slab has.
        let offset =
            (pointer.as_ptr() as usize as u64).wrapping_sub(self.memory.at(0) as usize as u64);
        let Some((class, slot)) = self.known.slot_at(offset) else { return false };
        let cursor = &mut self.cursors[class];
        let chunk = offset & !(CHUNK_BYTES - 1);
        let word_at =
            self.memory.at(descriptor_of(offset) + DESC_SLOTS + slot / 64 * 8).cast::<u64>();
        let bit = 1 << (slot % 64);
        // SAFETY: a known slab lies inside the heap, and so does its descriptor; a bitmap has a
        // word for each of the class's slots.
        let word = unsafe { Memory::load_word(word_at) };
        let left = word & !bit;
        if word & bit == 0 || (left == 0 && cursor.chunk != chunk) {
            return false;
        }
        // SAFETY: as above.
        unsafe { Memory::store_word(word_at, left) };
        if let Some(before) = cursor.latest.slot {
            // It becomes an earlier one; the latest stays what it is when there is no room.
            let Some(place) = cursor.earlier.offsets.get_mut(cursor.earlier.count) else {
                self.note_room(class, chunk, slot / 64);
                return true;
            };
            *place =
                (before.as_ptr() as usize as u64).wrapping_sub(self.memory.at(0) as usize as u64);
            cursor.earlier.count += 1;
        }
        cursor.latest = Latest { slot: Some(pointer), word_at, number: slot };
        true
    }

    /// Takes one of the slots of the class that were freed before the latest one.
    #[inline]
    pub(crate) fn take_recent(&mut self, class: usize) -> Option<NonNull<u8>> {
        let earlier = &mut self.cursors[class].earlier;
        while let Some(last) = earlier.count.checked_sub(1) {
            earlier.count = last;
            let offset = *earlier.offsets.get(last)?;
            let slot = slot_at(class, offset % CHUNK_BYTES);
            let bit = 1 << (slot % 64);
            let word_at =
                self.memory.at(descriptor_of(offset) + DESC_SLOTS + slot / 64 * 8).cast::<u64>();
            // SAFETY: recent slots lie in slabs in use of their class, inside the heap.
            let word = unsafe { Memory::load_word(word_at) };
            if word & bit == 0 {
                // SAFETY: as above.
                unsafe { Memory::store_word(word_at, word | bit) };
                return NonNull::new(self.memory.at(offset));
            }
        }
        None
    }

    /// Forgets a slab and its slots, before the chunk becomes something else or a thread's own.
    pub(crate) fn forget_slab(&mut self, class: usize, chunk: u64) {
        self.known.remove(chunk);
        let Cursor { latest, earlier, .. } = &mut self.cursors[class];
        let inside = |offset: u64| offset & !(CHUNK_BYTES - 1) == chunk;
        if latest.slot.and_then(|slot| self.memory.offset_of(slot.as_ptr())).is_some_and(inside) {
            *latest = Latest::NONE;
        }
        let EarlierSlots { count, offsets } = earlier;
        let mut kept = 0;
        for index in 0..(*count).min(RECENT) {
            if !inside(offsets[index]) {
                offsets[kept] = offsets[index];
                kept += 1;
            }
        }
        *count = kept;
    }
}
