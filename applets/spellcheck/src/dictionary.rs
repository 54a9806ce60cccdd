//! A finished (or growing) table as a reader sees it: look-ups and a walk over all words, straight
//! from the stored structures. Nothing is parsed, copied or written.
//!
//! Invariant: every address in a table was stored by [`crate::table`] in a committed transaction
//! and refers to memory of the same arena. The applet trusts its own heap as a C program trusts its
//! own; the sandbox around it is what contains a damaged one.

use core::marker::PhantomData;

use crate::arena::{Address, Place};
use crate::layout::{
    BLOCK_HEAD_BYTES, BlockHead, Header, PREFIX_BYTES, SLOT_BYTES, Slot, first_slot, hash,
};

/// A word that is looked for: its bytes and their hash, taken once for all tables.
#[derive(Clone, Copy)]
pub struct Query<'a> {
    word: &'a [u8],
    hash: u32,
}

impl<'a> Query<'a> {
    /// Of a word whose hash is known.
    #[inline]
    pub(crate) fn with_hash(word: &'a [u8], hash: u32) -> Self {
        Query { word, hash }
    }

    #[inline]
    pub(crate) fn word(&self) -> &'a [u8] {
        self.word
    }

    #[inline]
    pub(crate) fn hash(&self) -> u32 {
        self.hash
    }

    /// Takes the hash.
    #[inline]
    pub fn new(word: &'a [u8]) -> Self {
        Query { word, hash: hash(word) }
    }

    /// Whether these are its bytes: eight at a time, because words are too short for a call.
    #[inline]
    pub(crate) fn is(&self, bytes: &[u8]) -> bool {
        if bytes.len() != self.word.len() {
            return false;
        }
        let (mine, my_rest) = self.word.as_chunks::<8>();
        let (others, rest) = bytes.as_chunks::<8>();
        mine.iter()
            .zip(others)
            .all(|(one, other)| u64::from_le_bytes(*one) == u64::from_le_bytes(*other))
            && my_rest.iter().zip(rest).all(|(one, other)| one == other)
    }
}

/// Most words that are fetched together.
const FETCH_MAX: usize = 48;
/// Slots where a word that is fetched is looked for.
const FETCH_PROBES: u32 = 8;

/// A table to read from, for as long as nothing changes it.
#[derive(Clone, Copy)]
pub struct Dictionary<'arena> {
    place: Place,
    slots: *const Slot,
    slot_count: u32,
    word_count: u32,
    /// As the head of the next block would describe it.
    newest: BlockHead,
    words: PhantomData<&'arena [u8]>,
}

impl<'arena> Dictionary<'arena> {
    /// # Safety
    /// `header` must be that of a table in the arena of `place`, which stays as it is for `'arena`.
    pub(crate) unsafe fn new(place: Place, header: &Header) -> Self {
        Dictionary {
            place,
            slots: place.pointer(header.slots).cast::<Slot>(),
            slot_count: header.slot_count,
            word_count: header.word_count,
            newest: header.newest_block(),
            words: PhantomData,
        }
    }

    /// Different words.
    pub fn word_count(&self) -> u32 {
        self.word_count
    }

    /// How addresses of its words become pointers.
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Whether the word is in the table.
    #[inline]
    pub fn contains(&self, query: Query<'_>) -> bool {
        self.find(query).is_ok()
    }

    /// The index of the word's slot, or of the free slot where it belongs.
    #[inline]
    pub(crate) fn find(&self, query: Query<'_>) -> Result<u32, u32> {
        let mut index = first_slot(query.hash, self.slot_count);
        loop {
            // SAFETY: `index` is below `slot_count`, and the table's slots are live (contract of
            // `new`).
            let slot = unsafe { *self.slots.add(index as usize) };
            if slot.word == 0 {
                return Err(index);
            }
            if slot.hash == query.hash && query.is(self.text(slot.word)) {
                return Ok(index);
            }
            index += 1;
            if index == self.slot_count {
                index = 0;
            }
        }
    }

    /// Reads the slots and the words that have these hashes (of a few dozen words, more are left
    /// alone), each kind in a row without anything in between: so the processor waits for all of
    /// them at once, where a look-up waits for its slot and then for its word.
    #[inline]
    pub(crate) fn fetch(&self, hashes: impl Iterator<Item = u32>) {
        let mut places = [(0, 0); FETCH_MAX];
        let mut count = 0;
        for (place, hash) in places.iter_mut().zip(hashes) {
            *place = (first_slot(hash, self.slot_count), hash);
            count += 1;
        }
        let mut read = 0;
        for (slot, _) in &places[..count] {
            // SAFETY: a first slot is below `slot_count`, and the table's slots are live (contract
            // of `new`).
            read ^= unsafe { (*self.slots.add(*slot as usize)).word };
        }
        let mut words = [0; FETCH_MAX];
        for (word, (first, hash)) in words.iter_mut().zip(&places[..count]) {
            *word = self.first_of_hash(*first, *hash);
        }
        for word in words.iter().filter(|word| **word != 0) {
            read ^= self.text(*word).len() as u32;
        }
        core::hint::black_box(read);
    }

    /// The first word with this hash near its first slot, or 0.
    #[inline]
    fn first_of_hash(&self, first: u32, hash: u32) -> Address {
        for index in first..self.slot_count.min(first + FETCH_PROBES) {
            // SAFETY: `index` is below `slot_count`.
            let slot = unsafe { *self.slots.add(index as usize) };
            if slot.word == 0 || slot.hash == hash {
                return slot.word;
            }
        }
        0
    }

    pub(crate) fn slot_address(slots: Address, index: u32) -> Address {
        slots + index * SLOT_BYTES
    }

    #[inline]
    fn text(&self, word: Address) -> &'arena [u8] {
        // SAFETY: `word` is the address of a stored word of this table, which stays for `'arena`.
        unsafe { stored_text(self.place, word) }
    }

    /// Calls `visit` with the hash of every word.
    #[inline]
    pub(crate) fn for_each_hash(&self, mut visit: impl FnMut(u32)) {
        for index in 0..self.slot_count as usize {
            // SAFETY: the table has as many slots, and they are live (contract of `new`).
            let slot = unsafe { *self.slots.add(index) };
            if slot.word != 0 {
                visit(slot.hash);
            }
        }
    }

    /// Its blocks as their next ones describe them, newest first.
    pub(crate) fn block_heads(&self) -> impl Iterator<Item = BlockHead> + use<> {
        let (place, mut next) = (self.place, self.newest);
        core::iter::from_fn(move || {
            let head = next;
            if head.older == 0 {
                return None;
            }
            // SAFETY: a block starts with its head.
            next = unsafe { place.pointer(head.older).cast::<BlockHead>().read() };
            Some(head)
        })
    }

    /// Its blocks of words.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Block<'arena>> + use<'arena> {
        let table = *self;
        self.block_heads().map(move |head| table.block(head))
    }

    /// A block by what describes it.
    fn block(&self, head: BlockHead) -> Block<'arena> {
        Block {
            place: self.place,
            initials: head.older_initials,
            start: head.older + BLOCK_HEAD_BYTES,
            end: head.older + head.older_used,
            arena: PhantomData,
        }
    }
}

/// A block of words.
pub(crate) struct Block<'arena> {
    place: Place,
    /// Of its words, see [`crate::layout::initial`].
    pub(crate) initials: u32,
    start: Address,
    end: Address,
    arena: PhantomData<&'arena [u8]>,
}

impl<'arena> Block<'arena> {
    /// The prefix (see [`crate::layout::prefix`]) and the address of each word.
    #[inline]
    pub(crate) fn words(&self) -> impl Iterator<Item = (u32, Address)> + use<> {
        let (place, mut next, end) = (self.place, self.start, self.end);
        core::iter::from_fn(move || {
            if next >= end {
                return None;
            }
            let word = next;
            // SAFETY: words follow each other up to the end, and each starts with its prefix.
            let prefix = unsafe { place.pointer(word).cast::<u32>().read_unaligned() };
            next = word + PREFIX_BYTES + (prefix & 0xFF);
            Some((prefix, word))
        })
    }
    /// The text of a stored word.
    #[inline]
    pub(crate) fn text(&self, word: Address) -> &'arena [u8] {
        // SAFETY: `word` comes from `words`, and stays for `'arena`.
        unsafe { stored_text(self.place, word) }
    }
}

/// # Safety
/// `word` must be the address of a stored word that stays as it is for `'arena`.
#[inline]
pub(crate) unsafe fn stored_text<'arena>(place: Place, word: Address) -> &'arena [u8] {
    // SAFETY: a stored word starts with its prefix, and has as many bytes behind it as that says.
    unsafe {
        let length = place.pointer(word).cast::<u32>().read_unaligned() & 0xFF;
        core::slice::from_raw_parts(place.pointer(word + PREFIX_BYTES), length as usize)
    }
}
