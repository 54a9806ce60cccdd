//! What spares a reader most looks at the tables: a Bloom filter over the words of all of them, which tells with
//! one look at eight bytes that none has a word (edits of an unknown word, capitals at the start of a sentence),
//! and a list of their blocks of words, so that those with other initials stay untouched.
//!
//! Invariants:
//! - A summary exists only while all tables are finished and have not changed since it was made: it is made
//!   last, from whole tables, and the transaction that makes or removes a table removes the summary too. So a
//!   word that its filter does not have is in no table, and its blocks are all there are.
//! - It only saves time. Where there is none (no room, a killed build) the filter passes everything and the
//!   blocks are found from the tables.

use core::marker::PhantomData;

use holdfast_heap::HeapError;

use crate::arena::{Address, Arena};
use crate::dictionary::{Block, Dictionary};
use crate::error::SpellError;
use crate::layout::{
    BlockHead, LAYOUT_VERSION, SUMMARY_HEAD_BYTES, SUMMARY_MAGIC, SummaryHead, filter_mask, first_slot,
};
use crate::table::{Table, in_transaction};

/// Not one of the tables' roots, which all have a file's name behind a slash.
const SUMMARY_ROOT: &str = "spellcheck-summary";
/// One false "perhaps" in some eighty.
const BITS_PER_WORD: u64 = 12;
const CELL_BYTES: u32 = size_of::<u64>() as u32;
const BLOCK_ENTRY_BYTES: u32 = size_of::<BlockHead>() as u32;

/// What passes everything.
static ALL: u64 = u64::MAX;

/// The summary to read from, for as long as nothing changes it.
#[derive(Clone, Copy, Debug)]
pub struct Summary<'arena> {
    cells: *const u64,
    cell_count: u32,
    /// Each as the head of a next block would describe it; as many as `block_count` says if there is a summary.
    blocks: Option<*const BlockHead>,
    block_count: u32,
    arena: PhantomData<&'arena [u64]>,
}

impl<'arena> Summary<'arena> {
    /// The summary of an arena, or one that knows nothing if it has none.
    pub fn open<A: Arena>(arena: &'arena A) -> Summary<'arena> {
        let place = arena.place();
        match find(arena) {
            Some((at, head)) => Summary {
                cells: place.pointer(cells_at(at)).cast(),
                cell_count: head.cell_count,
                blocks: Some(place.pointer(blocks_at(at, head.cell_count)).cast()),
                block_count: head.block_count,
                arena: PhantomData,
            },
            None => Summary { cells: &ALL, cell_count: 1, blocks: None, block_count: 0, arena: PhantomData },
        }
    }

    /// Whether some table may have a word with this hash; `false` is certain.
    #[inline]
    pub(crate) fn may_have(&self, hash: u32) -> bool {
        let mask = filter_mask(hash);
        // SAFETY: the index is below the count of cells, which stay for `'arena`.
        let cell = unsafe { *self.cells.add(first_slot(hash, self.cell_count) as usize) };
        cell & mask == mask
    }

    /// The blocks of all tables, which must be those that the summary was made from.
    pub(crate) fn blocks(&self, tables: &[Dictionary<'arena>]) -> Vec<Block<'arena>> {
        let Some(blocks) = self.blocks else { return tables.iter().flat_map(Dictionary::blocks).collect() };
        let Some(table) = tables.first() else { return Vec::new() };
        // SAFETY: the list has as many entries as its count says; they stay for `'arena`.
        (0..self.block_count as usize).map(|index| table.block(unsafe { *blocks.add(index) })).collect()
    }
}

fn cells_at(summary: Address) -> Address {
    summary + SUMMARY_HEAD_BYTES
}

fn blocks_at(summary: Address, cell_count: u32) -> Address {
    cells_at(summary) + cell_count * CELL_BYTES
}

/// Address and head of the summary, if there is a sound one.
fn find<A: Arena>(arena: &A) -> Option<(Address, SummaryHead)> {
    let (at, bytes) = arena.root(SUMMARY_ROOT).filter(|root| root.1 >= SUMMARY_HEAD_BYTES)?;
    // SAFETY: the root has at least as many bytes as a head, all of whose bit patterns are valid.
    let head = unsafe { arena.place().pointer(at).cast::<SummaryHead>().read() };
    let sound = head.magic == SUMMARY_MAGIC
        && head.layout_version == LAYOUT_VERSION
        && head.cell_count > 0
        && summary_bytes(head.cell_count, head.block_count) == Some(bytes);
    sound.then_some((at, head))
}

fn summary_bytes(cell_count: u32, block_count: u32) -> Option<u32> {
    let cells = cell_count.checked_mul(CELL_BYTES)?;
    let blocks = block_count.checked_mul(BLOCK_ENTRY_BYTES)?;
    SUMMARY_HEAD_BYTES.checked_add(cells)?.checked_add(blocks)
}

/// Makes the summary of these tables, which must be all there are and finished, if the arena has none.
///
/// # Errors
/// The arena fails in another way than having no room, which only leaves the summary out.
pub fn ensure<A: Arena>(arena: &mut A, tables: &[Table]) -> Result<(), SpellError> {
    if find(arena).is_some() {
        return Ok(());
    }
    let words: u64 = tables.iter().map(|table| u64::from(table.word_count())).sum();
    let mut blocks = Vec::new();
    for table in tables {
        blocks.extend(table.dictionary(arena).block_heads());
    }
    let block_count = blocks.len() as u32;
    let size = u32::try_from(words * BITS_PER_WORD / 64 + 1)
        .ok()
        .and_then(|cell_count| Some((cell_count, summary_bytes(cell_count, block_count)?)));
    // More than fits in 4-byte pointers, which leave no room for it beside the tables anyway.
    let Some((cell_count, bytes)) = size else { return Ok(()) };
    let made = in_transaction(arena, |arena| {
        remove(arena)?;
        let at = arena.create_root(SUMMARY_ROOT, bytes)?;
        let place = arena.place();
        let cells = place.pointer(cells_at(at)).cast::<u64>();
        for table in tables {
            table.dictionary(arena).for_each_hash(|hash| {
                // SAFETY: the index is below the count of cells that the fresh root has behind its head.
                unsafe { *cells.add(first_slot(hash, cell_count) as usize) |= filter_mask(hash) };
            });
        }
        let head = SummaryHead {
            magic: SUMMARY_MAGIC,
            layout_version: LAYOUT_VERSION,
            cell_count,
            block_count,
            reserved: 0,
        };
        // SAFETY: a fresh root, aligned to 16, with room for the head, the cells and as many entries.
        unsafe {
            let entries = place.pointer(blocks_at(at, cell_count)).cast::<BlockHead>();
            entries.copy_from_nonoverlapping(blocks.as_ptr(), blocks.len());
            place.pointer(at).cast::<SummaryHead>().write(head);
        }
        Ok(())
    });
    match made {
        Err(SpellError::Heap(HeapError::OutOfMemory { .. })) => Ok(()),
        made => made,
    }
}

/// Removes the summary, if there is one, in the open transaction of what changes a table.
pub(crate) fn remove<A: Arena>(arena: &mut A) -> Result<(), SpellError> {
    if arena.root(SUMMARY_ROOT).is_some() {
        arena.remove_root(SUMMARY_ROOT)?;
    }
    Ok(())
}
