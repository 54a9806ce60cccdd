//! Small objects: slabs of equal slots, one bit of one word per object.
//!
//! Invariants:
//! - The bitmap in the slab's descriptor is the one truth; setting or clearing one bit of it is the
//!   whole of an allocation or a free.
//! - Everything else here ([`Cursor`]) is volatile and built at each open, lazily, by looking
//!   at the descriptors. It holds no copy of the bitmap: which slots of its word are free is asked
//!   at each allocation.
//! - A slab with a free slot is found again: it is the current one, or behind `scanned_to` it is
//!   remembered or missed, or all its free slots are recent (see `recent`).
//! - An empty slab is the current one of its class, or was that in an earlier session; any other is
//!   given back with its last object. An allocation that finds no other room gives these back, too.

use core::ops::Range;

use crate::backing::Backing;
use crate::classes::{CLASS_BYTES, CLASS_SLOTS, CLASSES, slot_at, slot_mask, words_of};
use crate::error::HeapError;
use crate::heap::Heap;
use crate::heap::recent::{EarlierSlots, Latest};
use crate::layout::*;
use crate::memory::Memory;

/// How many partly filled slabs a class remembers; others are found again by scanning.
const REMEMBERED: usize = 8;

/// Where a class allocates next. Volatile; what each allocation and free looks at comes first, in
/// one cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Cursor {
    pub(crate) latest: Latest,
    /// Offset of the current slab, or 0.
    pub(crate) chunk: u64,
    /// The current word of the bitmap, the bits of it that stand for slots, and the address of its
    /// first slot.
    word_at: *mut u64,
    mask: u64,
    slots_at: *mut u8,
    /// No word of the current slab before this one has a free slot that is not among the recent
    /// ones.
    lowest: u64,
    pub(crate) earlier: EarlierSlots,
    partial: [u64; REMEMBERED],
    partial_len: u32,
    /// A slab behind the scan got room and was not remembered.
    missed: bool,
    /// Chunks (by offset) before this one were scanned in this session.
    scanned_to: u64,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Cursor>() == 256, "a class finds its cursor by a shift");

/// The cursors of all classes, which know no slab yet.
pub(crate) fn cursors() -> [Cursor; CLASSES] {
    core::array::from_fn(|_| Cursor {
        latest: Latest::NONE,
        chunk: 0,
        word_at: core::ptr::null_mut(),
        mask: 0,
        slots_at: core::ptr::null_mut(),
        lowest: 0,
        earlier: EarlierSlots::NONE,
        partial: [0; REMEMBERED],
        partial_len: 0,
        missed: false,
        scanned_to: 0,
    })
}

impl Cursor {
    /// See [`Heap::forget_slabs_in`].
    fn forget_in(&mut self, object: &Range<u64>) {
        let mut kept = 0;
        for index in 0..(self.partial_len as usize).min(REMEMBERED) {
            let chunk = self.partial[index];
            if !object.contains(&chunk) {
                self.partial[kept] = chunk;
                kept += 1;
            }
        }
        self.partial_len = kept as u32;
        if object.contains(&self.scanned_to) {
            self.scanned_to = object.start;
        }
    }

    /// Free slots of the current word, as bits.
    #[inline]
    fn free(&self) -> u64 {
        if self.chunk == 0 {
            return 0;
        }
        // SAFETY: with a current slab, `word_at` is a word of its bitmap, inside the heap and
        // aligned (`enter`).
        !unsafe { Memory::load_word(self.word_at) } & self.mask
    }

    /// The first of the slots whose bits are set in `free`.
    #[inline]
    fn slot(&self, class: usize, free: u64) -> Slot {
        let index = free.trailing_zeros();
        let pointer = self.slots_at.wrapping_add(index as usize * CLASS_BYTES[class] as usize);
        Slot { word_at: self.word_at, bit: 1 << index, pointer }
    }
}

/// A slot that is free and about to be taken.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    word_at: *mut u64,
    bit: u64,
    pub(crate) pointer: *mut u8,
}

/// A slot by its place in the metadata.
#[derive(Clone, Copy)]
pub(crate) struct SlotPlace {
    class: usize,
    chunk: u64,
    word: u64,
    bit: u64,
}

impl<B: Backing> Heap<B> {
    /// Forgets the slabs that were in the segments from `first` to before `end`, before these become
    /// one large object and their tables content. They are free, so no slab there is in use.
    pub(super) fn forget_slabs_in(&mut self, first: u64, end: u64) {
        let object = first * SEGMENT_BYTES..end * SEGMENT_BYTES;
        self.cursors.iter_mut().for_each(|cursor| cursor.forget_in(&object));
        self.wide.forget_in(&object);
    }

    /// Picks a free slot of the class; it is not taken before [`Heap::take_slot`].
    #[inline]
    pub(crate) fn pick_slot(&mut self, class: usize) -> Result<Slot, HeapError> {
        let mut free = self.cursors[class].free();
        if free == 0 {
            self.refill(class)?;
            free = self.cursors[class].free();
        }
        if free == 0 {
            return Err(HeapError::OutsideHeap);
        }
        Ok(self.cursors[class].slot(class, free))
    }

    /// As [`Heap::pick_slot`], if the current word has a free slot.
    #[inline]
    pub(crate) fn peek_slot(&self, class: usize) -> Option<Slot> {
        let cursor = self.cursors.get(class)?;
        let free = cursor.free();
        (free != 0).then(|| cursor.slot(class, free))
    }

    /// As [`Heap::peek_slot`], after a look at the other words of the slab.
    #[cold]
    #[inline(never)]
    pub(crate) fn peek_slot_near(&mut self, class: usize) -> Option<Slot> {
        let Cursor { chunk, lowest, .. } = *self.cursors.get(class)?;
        if chunk != 0 && self.enter(class, chunk, lowest) { self.peek_slot(class) } else { None }
    }

    /// Takes the slot that was picked: the allocation happens at this store.
    #[inline]
    pub(crate) fn take_slot(&mut self, slot: Slot) {
        // SAFETY: `word_at` is a word of the bitmap of a slab in use, inside the heap and aligned;
        // cursors point to nothing else (see `enter`).
        unsafe { Memory::store_word(slot.word_at, Memory::load_word(slot.word_at) | slot.bit) };
    }

    /// Brings a taken slot's bit to memory: at once, or in a transaction, whose log has it, by the
    /// commit.
    pub(crate) fn write_back_slot(&self, slot: Slot) {
        if let Some(offset) = self.memory.offset_of(slot.word_at.cast()) {
            self.memory.write_back(offset, 8);
        }
        if !self.log.open() {
            self.memory.drain();
        }
    }

    /// Moves the class's cursor to a word with a free slot: in its slab, in a remembered one, in
    /// one found by scanning, in a new one.
    #[cold]
    fn refill(&mut self, class: usize) -> Result<(), HeapError> {
        self.check_writable()?;
        let Cursor { chunk, lowest, .. } = self.cursors[class];
        if chunk != 0 && self.enter(class, chunk, lowest) {
            return Ok(());
        }
        while self.cursors[class].partial_len > 0 {
            self.cursors[class].partial_len -= 1;
            let chunk = self.cursors[class].partial[self.cursors[class].partial_len as usize];
            if self.slab_class(chunk) == Some(class) && self.enter(class, chunk, 0) {
                return Ok(());
            }
        }
        loop {
            if self.scan(class) {
                return Ok(());
            }
            if !core::mem::take(&mut self.cursors[class].missed) {
                break;
            }
            self.cursors[class].scanned_to = 0;
        }
        let run = match self.find_unclaimed_run(1, 1) {
            Ok(run) => run,
            // Threads and other classes may have room that they do not need.
            Err(error) => {
                return if self.give_back_unused() { self.refill(class) } else { Err(error) };
            }
        };
        self.memory.zero(run.descriptor() + DESC_SLOTS, words_of(class) * 8);
        self.describe_run(run, HeadKind::Slab, class as u8, 0);
        self.publish_run(run);
        if self.enter(class, run.offset(), 0) {
            return Ok(());
        }
        // A fresh slab has free slots unless the heap's bytes changed under us.
        Err(HeapError::OutsideHeap)
    }

    /// Points the cursor at the first word from `from` on that has a free slot.
    fn enter(&mut self, class: usize, chunk: u64, from: u64) -> bool {
        if self.is_claimed(chunk) {
            return false;
        }
        let bitmap = descriptor_of(chunk) + DESC_SLOTS;
        for word in from..words_of(class) {
            let free = !self.memory.load(bitmap + word * 8) & slot_mask(class, word);
            if free != 0 {
                let cursor = &mut self.cursors[class];
                cursor.chunk = chunk;
                cursor.lowest = word;
                cursor.mask = slot_mask(class, word);
                cursor.word_at = self.memory.at(bitmap + word * 8).cast();
                cursor.slots_at = self.memory.at(chunk + word * 64 * u64::from(CLASS_BYTES[class]));
                return true;
            }
        }
        false
    }

    /// Looks for a slab of the class with room, from where the last scan ended.
    fn scan(&mut self, class: usize) -> bool {
        let segments = self.segments();
        let mut segment = self.cursors[class].scanned_to / SEGMENT_BYTES;
        let mut chunk = (self.cursors[class].scanned_to / CHUNK_BYTES) % SEGMENT_CHUNKS;
        while segment < segments {
            let span = self.span_of(segment);
            while span == 1 && chunk < SEGMENT_CHUNKS {
                let offset = segment * SEGMENT_BYTES + chunk * CHUNK_BYTES;
                chunk += 1;
                if self.slab_class(offset) == Some(class) && self.enter(class, offset, 0) {
                    self.cursors[class].scanned_to = offset + CHUNK_BYTES;
                    return true;
                }
            }
            segment += span;
            chunk = 0;
        }
        self.cursors[class].scanned_to = segment * SEGMENT_BYTES;
        false
    }

    /// The class of the slab at a chunk's offset, if a slab is there.
    fn slab_class(&self, chunk: u64) -> Option<usize> {
        if (chunk / CHUNK_BYTES).is_multiple_of(SEGMENT_CHUNKS) || !self.chunk_in_use(chunk) {
            return None;
        }
        match Head::decode(self.memory.load(descriptor_of(chunk) + DESC_HEAD)) {
            Some(Head { kind: HeadKind::Slab, class, .. })
                if usize::from(class) < CLASSES && self.memory.holds(chunk, CHUNK_BYTES) =>
            {
                Some(usize::from(class))
            }
            _ => None,
        }
    }

    /// The slot that starts at `offset`, if it is allocated.
    pub(crate) fn slot_place(&self, offset: u64) -> Option<SlotPlace> {
        let chunk = offset & !(CHUNK_BYTES - 1);
        let class = self.slab_class(chunk)?;
        let within = offset - chunk;
        let slot = slot_at(class, within);
        let place = SlotPlace { class, chunk, word: slot / 64, bit: 1 << (slot % 64) };
        let starts =
            slot * u64::from(CLASS_BYTES[class]) == within && slot < u64::from(CLASS_SLOTS[class]);
        (starts && self.memory.load(place.word_offset()) & place.bit != 0).then_some(place)
    }

    /// Makes the slab of an allocated slot known, so that its frees take the short way; `false` if
    /// it is a thread's, or if the short way is not taken, because it writes nothing back.
    pub(crate) fn make_known(&mut self, place: SlotPlace) -> bool {
        let ours = !self.is_claimed(place.chunk) && !self.memory.is_ordered();
        if ours {
            self.known.insert(place.chunk, place.class);
        }
        ours
    }

    /// Gives the slot back: the free happens at the first store. Where order is kept the caller
    /// drains.
    pub(crate) fn release_slot(&mut self, place: SlotPlace) {
        let SlotPlace { class, chunk, word, bit } = place;
        #[cfg(feature = "std")]
        if self.is_claimed(chunk) {
            self.make_common(chunk);
            self.memory.clear_bits(place.word_offset(), bit);
            return;
        }
        let left = self.memory.load(place.word_offset()) & !bit;
        self.memory.store_cached(place.word_offset(), left);
        self.memory.write_back(place.word_offset(), 8);
        if left == 0 && self.cursors[class].chunk != chunk && self.slab_is_empty(class, chunk) {
            self.release_slab(class, chunk);
            return;
        }
        self.note_room(class, chunk, word);
    }

    /// Gives an empty slab back from which nothing is allocated.
    fn release_slab(&mut self, class: usize, chunk: u64) {
        // Before the chunk is something else.
        self.forget_slab(class, chunk);
        let (segment, first) = (chunk / SEGMENT_BYTES, chunk / CHUNK_BYTES % SEGMENT_CHUNKS);
        self.release_run(crate::heap::chunks::Run { segment, first, chunks: 1 });
    }

    /// Gives back the slabs that threads have claimed, and those that hold no object: for an
    /// allocation that finds no other room. Whether there were any. The caller has picked no slot
    /// that is not taken yet: its slab may be one of them.
    pub(crate) fn give_back_unused(&mut self) -> bool {
        let of_threads = self.take_back_slabs();
        self.release_empty_slabs() || of_threads
    }

    fn release_empty_slabs(&mut self) -> bool {
        let mut released = false;
        for class in 0..CLASSES {
            let chunk = self.cursors[class].chunk;
            if chunk != 0 && self.slab_is_empty(class, chunk) {
                self.cursors[class].chunk = 0;
                self.release_slab(class, chunk);
                released = true;
            }
        }
        if core::mem::replace(&mut self.is_swept, true) {
            return released;
        }
        let (mut segment, segments) = (0, self.segments());
        while segment < segments {
            let span = self.span_of(segment);
            for chunk in 1..SEGMENT_CHUNKS {
                let chunk = segment * SEGMENT_BYTES + chunk * CHUNK_BYTES;
                released |= span == 1 && self.release_if_empty(chunk);
            }
            segment += span;
        }
        released
    }

    /// Gives back the slab that begins with a chunk of a segment that is not spanned, if one does
    /// that is empty and no thread's.
    fn release_if_empty(&mut self, chunk: u64) -> bool {
        let Some(class) = self.slab_class(chunk) else { return self.release_empty_wide(chunk) };
        let is_unused = !self.is_claimed(chunk) && self.slab_is_empty(class, chunk);
        if is_unused {
            self.release_slab(class, chunk);
        }
        is_unused
    }

    /// Notes that a slot of this word of a slab is free and not among the recent ones.
    #[inline(never)]
    pub(crate) fn note_room(&mut self, class: usize, chunk: u64, word: u64) {
        let cursor = &mut self.cursors[class];
        if cursor.chunk == chunk {
            cursor.lowest = cursor.lowest.min(word);
        } else {
            self.remember(class, chunk);
        }
    }

    /// Notes a slab that has room.
    fn remember(&mut self, class: usize, chunk: u64) {
        let cursor = &mut self.cursors[class];
        let count = cursor.partial_len as usize;
        if count == REMEMBERED {
            cursor.missed |= chunk < cursor.scanned_to;
        } else if !cursor.partial[..count].contains(&chunk) {
            cursor.partial[count] = chunk;
            cursor.partial_len += 1;
        }
    }

    /// Whether a thread allocates from this slab on its own.
    #[cfg(not(feature = "std"))]
    #[inline]
    fn is_claimed(&self, _chunk: u64) -> bool {
        false
    }

    #[cfg(not(feature = "std"))]
    pub(crate) fn take_back_slabs(&mut self) -> bool {
        false
    }

    /// A slab with room, which the heap does not use from now on: it is about to be claimed.
    #[cfg(feature = "std")]
    pub(crate) fn pick_slab(&mut self, class: usize) -> Result<u64, HeapError> {
        if self.cursors[class].free() == 0 {
            self.refill(class)?;
        }
        Ok(core::mem::take(&mut self.cursors[class].chunk))
    }

    /// The class of the object that is allocated at `offset`, if it is a slot.
    #[cfg(feature = "std")]
    pub(crate) fn slot_class(&self, offset: u64) -> Option<usize> {
        self.slot_place(offset).map(|place| place.class)
    }

    /// Whether a slab is unused, by any thread and by the heap itself.
    #[cfg(feature = "std")]
    pub(crate) fn may_be_claimed(&self, class: usize, chunk: u64) -> bool {
        !self.is_claimed(chunk) && self.cursors[class].chunk != chunk
    }

    /// Uses a slab again that was claimed.
    #[cfg(feature = "std")]
    pub(crate) fn return_slab(&mut self, class: usize, chunk: u64) {
        if self.slab_is_empty(class, chunk) {
            self.release_slab(class, chunk);
        } else {
            self.remember(class, chunk);
        }
    }

    pub(crate) fn slab_is_empty(&self, class: usize, chunk: u64) -> bool {
        let bitmap = descriptor_of(chunk) + DESC_SLOTS;
        (0..words_of(class))
            .all(|word| self.memory.load(bitmap + word * 8) & slot_mask(class, word) == 0)
    }
}

impl SlotPlace {
    fn word_offset(self) -> u64 {
        descriptor_of(self.chunk) + DESC_SLOTS + self.word * 8
    }

    pub(crate) fn usable_bytes(self) -> u64 {
        u64::from(CLASS_BYTES[self.class])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backing::Fixed;
    use crate::classes::class_of;
    use crate::heap::OpenOptions;
    use std::vec::Vec;

    /// Each large object had every class look at all slabs of the heap again.
    #[test]
    fn large_object_leaves_scans_where_they_are() {
        const BYTES: u64 = 4096;
        let mut words: Vec<u64> = std::vec![0; (8 * SEGMENT_BYTES / 8) as usize];
        let bytes = size_of_val(words.as_slice()) as u64;
        // SAFETY: the memory is this function's, aligned to 8, and outlives the heap.
        let backing = unsafe { Fixed::new(words.as_mut_ptr().cast(), bytes) };
        let options = OpenOptions { pointers: None, format_if_empty: true };
        let mut heap = Heap::open(backing, options).unwrap();
        // Slabs in the first two segments.
        let objects: Vec<_> = (0..100 * 16).map(|_| heap.alloc(BYTES).unwrap()).collect();
        let scanned_to = heap.cursors[class_of(BYTES)].scanned_to;
        assert_eq!(scanned_to, 2 * SEGMENT_BYTES);
        // More than are recent, so that a slab is remembered.
        objects[..16].iter().for_each(|object| heap.free(*object).unwrap());
        objects[16..31].iter().for_each(|object| heap.free(*object).unwrap());
        let large = heap.alloc(6 << 20).unwrap();
        assert_eq!(heap.offset_of(large), Some(scanned_to + CHUNK_BYTES));
        assert_eq!(heap.cursors[class_of(BYTES)].scanned_to, scanned_to);
        // What was freed is found, all of it before a new slab.
        let used = heap.usage();
        let again: Vec<_> = (0..15).map(|_| heap.alloc(BYTES).unwrap()).collect();
        assert!(again.iter().all(|object| objects[16..31].contains(object)));
        assert_eq!(heap.usage(), used);
    }
}
