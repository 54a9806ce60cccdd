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

use crate::backing::Backing;
use crate::classes::{CLASS_BYTES, CLASS_SLOTS, CLASSES, slot_at, slot_mask, words_of};
use crate::error::HeapError;
use crate::heap::Heap;
use crate::heap::recent::{EarlierSlots, Latest};
use crate::heap::wide::WideRooms;
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
    /// See [`Heap::forget_slabs_elsewhere`].
    fn forget_elsewhere(&mut self) {
        self.partial_len = 0;
        self.scanned_to = 0;
        self.missed = false;
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
    /// Forgets every slab but those with objects or recent slots (they are in use, so their
    /// segments stay what they are).
    pub(super) fn forget_slabs_elsewhere(&mut self) {
        self.cursors.iter_mut().for_each(Cursor::forget_elsewhere);
        self.wide = WideRooms::new();
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
            // Threads may have room that they do not need.
            Err(error) => {
                return if self.take_back_slabs() { self.refill(class) } else { Err(error) };
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
