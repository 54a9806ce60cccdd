//! A table as its builder sees it: made, filled batch by batch, doubled, removed.
//!
//! Invariants:
//! - What a transaction did not commit never happened: new slots are announced before they are
//!   stored, words are written to room that no committed header counts as used, and the header
//!   itself changes last.
//! - `words_done` and `bytes_done` of a committed header tell exactly which part of the source is
//!   in the table, so that a killed build goes on from there.

use crate::arena::{Address, Arena};
use crate::dictionary::{Dictionary, Query};
use crate::error::SpellError;
use crate::layout::*;
use crate::summary;

/// What identifies the content of a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Its size.
    pub bytes: u64,
    /// When it was last changed, since 1970.
    pub mtime_ns: u64,
}

/// How far a build has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Words of the source that are in the table.
    pub words: u64,
    /// Offset in the source after the last of them.
    pub bytes: u64,
    /// Whether that is all.
    pub complete: bool,
}

/// A table in an arena, by the address of its header.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    at: Address,
    header: Header,
}

impl Table {
    /// Opens the table at a root, if there is one.
    ///
    /// # Errors
    /// [`SpellError::ForeignRoot`] when something else is there.
    pub fn open<A: Arena>(arena: &A, root: &str) -> Result<Option<Table>, SpellError> {
        let Some((at, bytes)) = arena.root(root) else { return Ok(None) };
        if bytes != HEADER_BYTES {
            return Err(SpellError::ForeignRoot { root: root.to_owned(), layout: None });
        }
        // SAFETY: the root has as many bytes as a header, all of whose bit patterns are valid.
        let header = unsafe { arena.place().pointer(at).cast::<Header>().read() };
        if header.magic != MAGIC {
            return Err(SpellError::ForeignRoot { root: root.to_owned(), layout: None });
        }
        let sound = header.slot_count >= SLOTS_FIRST
            && header.slot_count <= SLOTS_MAX
            && header.word_count < header.slot_count
            && header.block_used <= BLOCK_BYTES
            && header.slots != 0;
        if header.layout_version != LAYOUT_VERSION || !sound {
            return Err(SpellError::ForeignRoot {
                root: root.to_owned(),
                layout: Some(header.layout_version),
            });
        }
        Ok(Some(Table { at, header }))
    }

    /// Makes an empty table for a source, with root.
    ///
    /// # Errors
    /// No room; then there is no table.
    pub fn create<A: Arena>(arena: &mut A, root: &str, stamp: Stamp) -> Result<Table, SpellError> {
        in_transaction(arena, |arena| {
            summary::remove(arena)?;
            let slot_count = first_size(stamp.bytes);
            let header = Header {
                magic: MAGIC,
                layout_version: LAYOUT_VERSION,
                complete: 0,
                source_bytes: stamp.bytes,
                source_mtime_ns: stamp.mtime_ns,
                words_done: 0,
                bytes_done: 0,
                slots: arena.alloc_zeroed(slot_count * SLOT_BYTES)?,
                slot_count,
                word_count: 0,
                block: 0,
                block_used: BLOCK_BYTES,
                block_initials: 0,
            };
            let table = Table { at: arena.create_root(root, HEADER_BYTES)?, header };
            table.store_header(arena);
            Ok(table)
        })
    }

    /// Removes the table of a root, words and all; or whatever else is at that root.
    ///
    /// # Errors
    /// No such root, or no room for the log.
    pub fn remove<A: Arena>(arena: &mut A, root: &str) -> Result<(), SpellError> {
        let table = Table::open(arena, root).unwrap_or(None);
        in_transaction(arena, |arena| {
            summary::remove(arena)?;
            if let Some(table) = table {
                arena.free(table.header.slots, table.header.slot_count * SLOT_BYTES)?;
                let mut block = table.header.block;
                while block != 0 {
                    // SAFETY: a block starts with the address of the one before it; a free in a
                    // transaction leaves the bytes alone, and the volatile arena's is called after
                    // the read.
                    let older = unsafe { arena.place().pointer(block).cast::<u32>().read() };
                    arena.free(block, BLOCK_BYTES)?;
                    block = older;
                }
            }
            arena.remove_root(root)?;
            Ok(())
        })
    }

    /// What the table was built from.
    pub fn stamp(&self) -> Stamp {
        Stamp { bytes: self.header.source_bytes, mtime_ns: self.header.source_mtime_ns }
    }

    /// How far its build has come.
    pub fn progress(&self) -> Progress {
        Progress {
            words: self.header.words_done,
            bytes: self.header.bytes_done,
            complete: self.header.complete == 1,
        }
    }

    /// Different words.
    pub(crate) fn word_count(&self) -> u32 {
        self.header.word_count
    }

    /// The table to read from.
    pub fn dictionary<'arena, A: Arena>(&self, arena: &'arena A) -> Dictionary<'arena> {
        // SAFETY: the header is that of a table in this arena, which is borrowed for as long.
        unsafe { Dictionary::new(arena.place(), &self.header) }
    }

    /// Whether one more word fits; otherwise [`Table::grow`] comes first.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        !is_full(self.header.word_count, self.header.slot_count)
    }

    /// Adds a word (at most [`WORD_BYTES_MAX`] bytes, and with room) in the open transaction; one
    /// that is there already is left alone.
    #[inline]
    pub(crate) fn insert<A: Arena>(
        &mut self,
        arena: &mut A,
        word: &[u8],
    ) -> Result<(), SpellError> {
        let query = Query::new(word);
        let Err(index) = self.dictionary(arena).find(query) else { return Ok(()) };
        let bytes = PREFIX_BYTES + word.len() as u32;
        if self.header.block_used + bytes > BLOCK_BYTES {
            self.add_block(arena)?;
        }
        let stored = self.header.block + self.header.block_used;
        let slot = Dictionary::slot_address(self.header.slots, index);
        arena.add_range(slot, SLOT_BYTES)?;
        let place = arena.place();
        // SAFETY: the block has room for the word behind what is used; the slot is one of the
        // table's own.
        unsafe {
            place.pointer(stored).cast::<u32>().write_unaligned(prefix(word));
            let text = place.pointer(stored + PREFIX_BYTES);
            text.copy_from_nonoverlapping(word.as_ptr(), word.len());
            place.pointer(slot).cast::<Slot>().write(Slot { hash: query.hash(), word: stored });
        }
        self.header.block_used += bytes;
        self.header.block_initials |= initial(word);
        self.header.word_count += 1;
        Ok(())
    }

    #[cold]
    fn add_block<A: Arena>(&mut self, arena: &mut A) -> Result<(), SpellError> {
        let block = arena.alloc_zeroed(BLOCK_BYTES)?;
        // SAFETY: a fresh block, aligned to 16.
        unsafe {
            arena.place().pointer(block).cast::<BlockHead>().write(self.header.newest_block())
        };
        self.header.block = block;
        self.header.block_used = BLOCK_HEAD_BYTES;
        self.header.block_initials = 0;
        Ok(())
    }

    /// Ends a batch: the header says how far the build has come, and the transaction commits.
    pub(crate) fn commit_batch<A: Arena>(
        &mut self,
        arena: &mut A,
        now: Progress,
    ) -> Result<(), SpellError> {
        self.header.words_done = now.words;
        self.header.bytes_done = now.bytes;
        self.header.complete = u32::from(now.complete);
        arena.add_range(self.at, HEADER_BYTES)?;
        self.store_header(arena);
        Ok(arena.commit()?)
    }

    /// Doubles the slots, in a transaction of its own: the new ones are filled, then the header
    /// switches.
    pub(crate) fn grow<A: Arena>(&mut self, arena: &mut A) -> Result<(), SpellError> {
        let old = self.header;
        if old.slot_count >= SLOTS_MAX {
            return Err(SpellError::TooManyWords { words: old.word_count });
        }
        let mut grown = *self;
        in_transaction(arena, |arena| {
            grown.header.slot_count = old.slot_count * 2;
            grown.header.slots = arena.alloc_zeroed(grown.header.slot_count * SLOT_BYTES)?;
            let place = arena.place();
            let from = place.pointer(old.slots).cast::<Slot>();
            let to = place.pointer(grown.header.slots).cast::<Slot>();
            for index in 0..old.slot_count as usize {
                // SAFETY: both arrays have as many slots as their count says; at most half of the
                // new ones are in use, so the inner loop ends.
                unsafe {
                    let slot = *from.add(index);
                    if slot.word == 0 {
                        continue;
                    }
                    let mut target = first_slot(slot.hash, grown.header.slot_count);
                    while (*to.add(target as usize)).word != 0 {
                        target = if target + 1 == grown.header.slot_count { 0 } else { target + 1 };
                    }
                    to.add(target as usize).write(slot);
                }
            }
            arena.add_range(grown.at, HEADER_BYTES)?;
            grown.store_header(arena);
            Ok(arena.free(old.slots, old.slot_count * SLOT_BYTES)?)
        })?;
        *self = grown;
        Ok(())
    }

    fn store_header<A: Arena>(&self, arena: &A) {
        // SAFETY: `at` is the table's own root, of the size and alignment of a header.
        unsafe { arena.place().pointer(self.at).cast::<Header>().write(self.header) };
    }
}

/// A size that the words of a source of so many bytes will certainly fill, so that a table doubles
/// a few times and not ten: lines of word lists have about 10 bytes, those of WordNet's index up to
/// 45.
fn first_size(source_bytes: u64) -> u32 {
    let mut slots = SLOTS_FIRST;
    while u64::from(slots) * 64 < source_bytes && slots < SLOTS_FIRST << 12 {
        slots *= 2;
    }
    slots
}

/// Runs `work` in a transaction; an error rolls back.
pub(crate) fn in_transaction<A: Arena, R>(
    arena: &mut A,
    work: impl FnOnce(&mut A) -> Result<R, SpellError>,
) -> Result<R, SpellError> {
    arena.begin()?;
    let result =
        work(arena).and_then(|value| arena.commit().map(|()| value).map_err(SpellError::from));
    if result.is_err() {
        arena.abort();
    }
    result
}
