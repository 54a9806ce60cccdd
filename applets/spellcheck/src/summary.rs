//! A Bloom filter over the words of all tables, which tells with one look at eight bytes that none
//! has a word (edits of an unknown word, capitals at the start of a sentence), and a list of all
//! words by first letter and length, so that one that is like another is soon found.
//!
//! Invariants:
//! - A summary exists only while all tables are finished and have not changed since it was made: it
//!   is made last, from whole tables, and the transaction that makes or removes a table removes the
//!   summary too. So a word that its filter does not have is in no table, and its list has every
//!   word of every table.
//! - It only saves time. Where there is none (no room, a killed build) the filter passes
//!   everything, and without the list (no room, or the arena ends with the run, which then would
//!   not get back what the list costs) the tables' blocks are walked.

use core::marker::PhantomData;

use holdfast_heap::HeapError;

use crate::arena::{Address, Arena, Place};
use crate::dictionary::stored_text;
use crate::error::SpellError;
use crate::layout::{
    GROUPS, LAYOUT_VERSION, Listed, SUMMARY_HEAD_BYTES, SUMMARY_MAGIC, SummaryHead, WIDE,
    filter_mask, first_slot, group, initial,
};
use crate::table::{Table, in_transaction};

/// Not one of the tables' roots, which all have a file's name behind a slash.
const SUMMARY_ROOT: &str = "spellcheck-summary";
/// One false "perhaps" in some eighty.
const BITS_PER_WORD: u64 = 12;
const CELL_BYTES: u32 = size_of::<u64>() as u32;
const END_BYTES: u32 = size_of::<u32>() as u32;
const LISTED_BYTES: u32 = size_of::<Listed>() as u32;

/// What passes everything.
static ALL: u64 = u64::MAX;

/// The summary to read from, for as long as nothing changes it.
#[derive(Clone, Copy, Debug)]
pub struct Summary<'arena> {
    cells: *const u64,
    cell_count: u32,
    list: Option<List<'arena>>,
    arena: PhantomData<&'arena [u64]>,
}

/// All words by group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List<'arena> {
    place: Place,
    /// For each group the number of entries up to its end.
    ends: &'arena [u32],
    words: &'arena [Listed],
}

impl<'arena> Summary<'arena> {
    /// The summary of an arena, or one that knows nothing if it has none.
    pub fn open<A: Arena>(arena: &'arena A) -> Summary<'arena> {
        let Some((at, head)) = find(arena) else {
            return Summary { cells: &ALL, cell_count: 1, list: None, arena: PhantomData };
        };
        let place = arena.place();
        // SAFETY: the root is as large as its head demands, and stays as it is for `'arena`.
        let list = (head.listed > 0).then(|| unsafe {
            List {
                place,
                ends: core::slice::from_raw_parts(
                    ends(place, at, head.cell_count),
                    GROUPS as usize,
                ),
                words: core::slice::from_raw_parts(
                    listed(place, at, head.cell_count),
                    head.listed as usize,
                ),
            }
        });
        let cells = place.pointer(cells_at(at)).cast();
        Summary { cells, cell_count: head.cell_count, list, arena: PhantomData }
    }

    /// The list of all words, if there is one.
    pub(crate) fn list(&self) -> Option<List<'arena>> {
        self.list
    }

    /// Whether some table may have a word with this hash; `false` is certain.
    #[inline]
    pub(crate) fn may_have(&self, hash: u32) -> bool {
        let mask = filter_mask(hash);
        // SAFETY: the index is below the count of cells, which stay for `'arena`.
        let cell = unsafe { *self.cells.add(first_slot(hash, self.cell_count) as usize) };
        cell & mask == mask
    }
}

impl<'arena> List<'arena> {
    /// The words of groups that follow each other.
    pub(crate) fn words(&self, first: u32, last: u32) -> &'arena [Listed] {
        let start = first.checked_sub(1).map_or(0, |before| self.ends[before as usize]);
        &self.words[start as usize..self.ends[last as usize] as usize]
    }

    /// The text of a listed word.
    #[inline]
    pub(crate) fn text(&self, word: &Listed) -> &'arena [u8] {
        // SAFETY: the list has addresses of stored words, which stay as long as it does.
        unsafe { stored_text(self.place, word.word) }
    }
}

fn cells_at(summary: Address) -> Address {
    summary + SUMMARY_HEAD_BYTES
}

fn ends(place: Place, summary: Address, cell_count: u32) -> *mut u32 {
    place.pointer(cells_at(summary) + cell_count * CELL_BYTES).cast()
}

fn listed(place: Place, summary: Address, cell_count: u32) -> *mut Listed {
    place.pointer(cells_at(summary) + cell_count * CELL_BYTES + GROUPS * END_BYTES).cast()
}

/// Address and head of the summary, if there is a sound one.
fn find<A: Arena>(arena: &A) -> Option<(Address, SummaryHead)> {
    let (at, bytes) = arena.root(SUMMARY_ROOT).filter(|root| root.1 >= SUMMARY_HEAD_BYTES)?;
    // SAFETY: the root has at least as many bytes as a head, all of whose bit patterns are valid.
    let head = unsafe { arena.place().pointer(at).cast::<SummaryHead>().read() };
    let sound = head.magic == SUMMARY_MAGIC
        && head.layout_version == LAYOUT_VERSION
        && head.cell_count > 0
        && summary_bytes(head.cell_count, head.listed) == Some(bytes);
    sound.then_some((at, head))
}

fn summary_bytes(cell_count: u32, listed: u32) -> Option<u32> {
    let filter = SUMMARY_HEAD_BYTES.checked_add(cell_count.checked_mul(CELL_BYTES)?)?;
    if listed == 0 {
        return Some(filter);
    }
    filter.checked_add(GROUPS * END_BYTES)?.checked_add(listed.checked_mul(LISTED_BYTES)?)
}

/// Makes the summary of these tables, which must be all there are and finished, if the arena has
/// none.
///
/// # Errors
/// The arena fails in another way than having no room, which only leaves the summary or its list
/// out.
pub fn ensure<A: Arena>(arena: &mut A, tables: &[Table]) -> Result<(), SpellError> {
    if find(arena).is_some() {
        return Ok(());
    }
    let words: u64 = tables.iter().map(|table| u64::from(table.word_count())).sum();
    // More than fits in 4-byte pointers leaves no room for it beside the tables anyway.
    let Ok(cell_count) = u32::try_from(words * BITS_PER_WORD / 64 + 1) else { return Ok(()) };
    let lists = if arena.is_kept() && words > 0 { &[words as u32, 0][..] } else { &[0] };
    for list in lists {
        match make(arena, tables, cell_count, *list) {
            Err(SpellError::Heap(HeapError::OutOfMemory { .. })) => {}
            made => return made,
        }
    }
    Ok(())
}

fn make<A: Arena>(
    arena: &mut A,
    tables: &[Table],
    cell_count: u32,
    list_count: u32,
) -> Result<(), SpellError> {
    let Some(bytes) = summary_bytes(cell_count, list_count) else { return Ok(()) };
    in_transaction(arena, |arena| {
        remove(arena)?;
        let at = arena.create_root(SUMMARY_ROOT, bytes)?;
        let place = arena.place();
        let cells = place.pointer(cells_at(at)).cast::<u64>();
        for table in tables {
            table.dictionary(arena).for_each_hash(|hash| {
                // SAFETY: the index is below the count of cells that the fresh root has behind its
                // head.
                unsafe { *cells.add(first_slot(hash, cell_count) as usize) |= filter_mask(hash) };
            });
        }
        if list_count > 0 {
            // SAFETY: the fresh root is of zeroes and has room for the ends and as many words
            // behind the cells.
            let (ends, words) = unsafe {
                (
                    core::slice::from_raw_parts_mut(ends(place, at, cell_count), GROUPS as usize),
                    core::slice::from_raw_parts_mut(
                        listed(place, at, cell_count),
                        list_count as usize,
                    ),
                )
            };
            fill(arena, tables, ends, words);
        }
        let head = SummaryHead {
            magic: SUMMARY_MAGIC,
            layout_version: LAYOUT_VERSION,
            cell_count,
            listed: list_count,
            reserved: 0,
        };
        // SAFETY: a fresh root, aligned to 16, with room for the head.
        unsafe { place.pointer(at).cast::<SummaryHead>().write(head) };
        Ok(())
    })
}

/// Sorts all words into their groups, by counting: `ends`, of zeroes, first counts each group's
/// words, then has its start, which moves up to its end while the words are stored.
fn fill<A: Arena>(arena: &A, tables: &[Table], ends: &mut [u32], words: &mut [Listed]) {
    for_each_word(arena, tables, |group, _| ends[group as usize] += 1);
    let mut start = 0;
    for end in ends.iter_mut() {
        start += core::mem::replace(end, start);
    }
    for_each_word(arena, tables, |group, word| {
        let next = &mut ends[group as usize];
        words[*next as usize] = word;
        *next += 1;
    });
}

/// Calls `visit` with every word and its group.
fn for_each_word<A: Arena>(arena: &A, tables: &[Table], mut visit: impl FnMut(u32, Listed)) {
    for table in tables {
        for block in table.dictionary(arena).blocks() {
            for (prefix, word) in block.words() {
                let initial = initial(block.text(word)).trailing_zeros();
                visit(
                    group(prefix >> 8 & WIDE != 0, initial, prefix & 0xFF),
                    Listed { prefix, word },
                );
            }
        }
    }
}

/// Removes the summary, if there is one, in the open transaction of what changes a table.
pub(crate) fn remove<A: Arena>(arena: &mut A) -> Result<(), SpellError> {
    if arena.root(SUMMARY_ROOT).is_some() {
        arena.remove_root(SUMMARY_ROOT)?;
    }
    Ok(())
}
