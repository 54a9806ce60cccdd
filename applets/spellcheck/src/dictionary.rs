//! A finished (or growing) table as a reader sees it: look-ups and a walk over all words, straight from the
//! stored structures. Nothing is parsed, copied or written.
//!
//! Invariant: every address in a table was stored by [`crate::table`] in a committed transaction and refers to
//! memory of the same arena. The applet trusts its own heap as a C program trusts its own; the sandbox around
//! it is what contains a damaged one.

use core::marker::PhantomData;

use crate::arena::{Address, Place};
use crate::layout::{BLOCK_HEAD_BYTES, BlockHead, Header, PREFIX_BYTES, SLOT_BYTES, Slot, first_slot, hash};

/// A word that is looked for: its bytes and their hash, taken once for all tables.
#[derive(Clone, Copy)]
pub struct Query<'a> {
    pub(crate) word: &'a [u8],
    pub(crate) hash: u32,
}

impl<'a> Query<'a> {
    /// Takes the hash.
    #[inline]
    pub fn new(word: &'a [u8]) -> Self {
        Query { word, hash: hash(word) }
    }
}

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
            // SAFETY: `index` is below `slot_count`, and the table's slots are live (contract of `new`).
            let slot = unsafe { *self.slots.add(index as usize) };
            if slot.word == 0 {
                return Err(index);
            }
            if slot.hash == query.hash && self.text(slot.word) == query.word {
                return Ok(index);
            }
            index += 1;
            if index == self.slot_count {
                index = 0;
            }
        }
    }

    pub(crate) fn slot_address(slots: Address, index: u32) -> Address {
        slots + index * SLOT_BYTES
    }

    #[inline]
    fn prefix(&self, word: Address) -> u32 {
        // SAFETY: `word` is the address of a stored word, which starts with its prefix.
        unsafe { self.place.pointer(word).cast::<u32>().read_unaligned() }
    }

    /// The text of a stored word.
    #[inline]
    pub(crate) fn text(&self, word: Address) -> &'arena [u8] {
        let length = self.prefix(word) & 0xFF;
        // SAFETY: a stored word has as many bytes as its prefix says, and stays for `'arena`.
        unsafe { core::slice::from_raw_parts(self.place.pointer(word + PREFIX_BYTES), length as usize) }
    }

    /// Calls `visit` with the prefix (see [`crate::layout::prefix`]) and the address of every word in blocks
    /// that have words with one of these initials.
    #[inline]
    pub(crate) fn for_each(&self, initials: u32, mut visit: impl FnMut(u32, Address)) {
        let mut block = self.newest;
        while block.older != 0 {
            if block.older_initials & initials != 0 {
                let mut word = block.older + BLOCK_HEAD_BYTES;
                let end = block.older + block.older_used;
                while word < end {
                    let prefix = self.prefix(word);
                    visit(prefix, word);
                    word += PREFIX_BYTES + (prefix & 0xFF);
                }
            }
            // SAFETY: a block starts with its head.
            block = unsafe { self.place.pointer(block.older).cast::<BlockHead>().read() };
        }
    }
}
