//! A Bloom filter over the words of all tables, which tells with one look at eight bytes that none
//! has a word (edits of an unknown word, capitals at the start of a sentence), and a list of all
//! words by their first letters, so that one that is like another is soon found.
//!
//! Invariants:
//! - A summary exists only while all tables are finished and have not changed since it was made: it
//!   is made last, from whole tables, and the transaction that makes or removes a table removes the
//!   summary too. So a word that its filter does not have is in no table, and its list has every
//!   word of every table.
//! - It only saves time. Where there is none (no room, a killed build) the filter passes
//!   everything, and without the list (no room, or the arena ends with the run) the tables' blocks
//!   are walked for a few words, and for many a list is made that is not kept.

use core::marker::PhantomData;

use holdfast_heap::HeapError;

use crate::arena::{Address, Arena, Place};
use crate::dictionary::{Block, Dictionary, stored_text};
use crate::error::SpellError;
use crate::layout::{
    CLASSES, Listed, SUMMARY_HEAD_BYTES, SUMMARY_MAGIC, SUMMARY_VERSION, SummaryHead, filter_mask,
    first_slot, key,
};
use crate::table::{Table, in_transaction};

/// Not one of the tables' roots, which all have a file's name behind a slash.
const SUMMARY_ROOT: &str = "spellcheck-summary";
/// One false "perhaps" in some eighty.
const BITS_PER_WORD: u64 = 12;
const CELL_BYTES: u32 = size_of::<u64>() as u32;
const END_BYTES: u32 = size_of::<u32>() as u32;
const LISTED_BYTES: u32 = size_of::<Listed>() as u32;
/// Most letters that a key has.
pub(crate) const KEY_LETTERS_MAX: usize = 4;

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

/// All words by their keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List<'arena> {
    place: Place,
    pub(crate) groups: Groups<'arena>,
}

/// Words that have the same key stand together, in the order of keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Groups<'arena> {
    /// Of how many letters keys are.
    pub(crate) key_letters: usize,
    /// For each key the number of words up to its last one.
    pub(crate) ends: &'arena [u32],
    pub(crate) words: &'arena [Listed],
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
                groups: Groups {
                    key_letters: head.key_letters as usize,
                    ends: core::slice::from_raw_parts(
                        ends(place, at, &head),
                        key_count(head.key_letters) as usize,
                    ),
                    words: core::slice::from_raw_parts(
                        listed(place, at, &head),
                        head.listed as usize,
                    ),
                },
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

impl<'arena> Groups<'arena> {
    /// The words whose keys begin with `key`; `lacking` is by how many letters it is shorter than a
    /// whole one.
    #[inline]
    pub(crate) fn words_of(&self, key: u32, lacking: usize) -> &'arena [Listed] {
        let below = CLASSES.pow(lacking as u32);
        let (first, end) = (key * below, (key + 1) * below);
        let start = first.checked_sub(1).map_or(0, |before| self.ends[before as usize]);
        &self.words[start as usize..self.ends[end as usize - 1] as usize]
    }
}

impl<'arena> List<'arena> {
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

fn ends(place: Place, summary: Address, head: &SummaryHead) -> *mut u32 {
    place.pointer(cells_at(summary) + head.cell_count * CELL_BYTES).cast()
}

fn listed(place: Place, summary: Address, head: &SummaryHead) -> *mut Listed {
    let ends = key_count(head.key_letters) * END_BYTES;
    place.pointer(cells_at(summary) + head.cell_count * CELL_BYTES + ends).cast()
}

fn key_count(letters: u32) -> u32 {
    CLASSES.pow(letters)
}

/// Of how many letters keys are in a list of so many words: the more words, the more letters, so
/// that a key has few words, and the keys' ends take less room than the words.
fn key_letters(words: u32) -> u32 {
    let fits = |letters: &u32| key_count(*letters) <= words;
    (1..=KEY_LETTERS_MAX as u32).rev().find(fits).unwrap_or(1)
}

/// Address and head of the summary, if there is a sound one.
fn find<A: Arena>(arena: &A) -> Option<(Address, SummaryHead)> {
    let (at, bytes) = arena.root(SUMMARY_ROOT).filter(|root| root.1 >= SUMMARY_HEAD_BYTES)?;
    // SAFETY: the root has at least as many bytes as a head, all of whose bit patterns are valid.
    let head = unsafe { arena.place().pointer(at).cast::<SummaryHead>().read() };
    let sound = head.magic == SUMMARY_MAGIC
        && head.layout_version == SUMMARY_VERSION
        && head.cell_count > 0
        && head.key_letters == key_letters(head.listed)
        && summary_bytes(head.cell_count, head.listed) == Some(bytes);
    sound.then_some((at, head))
}

fn summary_bytes(cell_count: u32, listed: u32) -> Option<u32> {
    let filter = SUMMARY_HEAD_BYTES.checked_add(cell_count.checked_mul(CELL_BYTES)?)?;
    if listed == 0 {
        return Some(filter);
    }
    let ends = key_count(key_letters(listed)) * END_BYTES;
    filter.checked_add(ends)?.checked_add(listed.checked_mul(LISTED_BYTES)?)
}

/// Makes the summary of these tables, which must be all there are and finished, if the arena has
/// none.
///
/// # Errors
/// The arena fails in another way than having no room or being there for reading only, which leaves
/// the summary or its list out.
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
            // The tables can be read all the same.
            Err(SpellError::Heap(HeapError::ReadOnly)) => return Ok(()),
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
    let head = SummaryHead {
        magic: SUMMARY_MAGIC,
        layout_version: SUMMARY_VERSION,
        cell_count,
        listed: list_count,
        key_letters: key_letters(list_count),
    };
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
                    core::slice::from_raw_parts_mut(
                        ends(place, at, &head),
                        key_count(head.key_letters) as usize,
                    ),
                    core::slice::from_raw_parts_mut(listed(place, at, &head), list_count as usize),
                )
            };
            let blocks = || tables.iter().flat_map(|table| table.dictionary(arena).blocks());
            fill(blocks, head.key_letters as usize, ends, words);
        }
        // SAFETY: a fresh root, aligned to 16, with room for the head.
        unsafe { place.pointer(at).cast::<SummaryHead>().write(head) };
        Ok(())
    })
}

/// Sorts all words by their keys, by counting: `ends`, of zeroes, first counts each key's words,
/// then has the start of them, which moves up to their end while the words are stored.
fn fill<'arena, I: Iterator<Item = Block<'arena>>>(
    blocks: impl Fn() -> I,
    key_letters: usize,
    ends: &mut [u32],
    words: &mut [Listed],
) {
    for_each_word(blocks(), |text, _| ends[key(text, key_letters) as usize] += 1);
    let mut start = 0;
    for end in ends.iter_mut() {
        start += core::mem::replace(end, start);
    }
    for_each_word(blocks(), |text, word| {
        let next = &mut ends[key(text, key_letters) as usize];
        words[*next as usize] = word;
        *next += 1;
    });
}

/// Calls `visit` with every word's text and with what a list has of it.
fn for_each_word<'arena>(
    blocks: impl Iterator<Item = Block<'arena>>,
    mut visit: impl FnMut(&[u8], Listed),
) {
    for block in blocks {
        for (prefix, word) in block.words() {
            visit(block.text(word), Listed { prefix, word });
        }
    }
}

/// A list that ends with the run, for many words that are looked for where none is kept.
pub(crate) struct OwnList {
    place: Place,
    key_letters: usize,
    ends: Vec<u32>,
    words: Vec<Listed>,
}

impl OwnList {
    /// The list of all words of these tables; `None` where there is no room.
    pub(crate) fn new(dictionaries: &[Dictionary<'_>]) -> Option<OwnList> {
        let count = dictionaries.iter().map(Dictionary::word_count).sum();
        let key_letters = key_letters(count);
        let (mut ends, mut words) = (Vec::new(), Vec::new());
        let key_count = key_count(key_letters) as usize;
        ends.try_reserve_exact(key_count).ok()?;
        words.try_reserve_exact(count as usize).ok()?;
        ends.resize(key_count, 0);
        words.resize(count as usize, Listed { prefix: 0, word: 0 });
        let key_letters = key_letters as usize;
        fill(
            || dictionaries.iter().flat_map(Dictionary::blocks),
            key_letters,
            &mut ends,
            &mut words,
        );
        Some(OwnList { place: dictionaries.first()?.place(), key_letters, ends, words })
    }

    /// To search, for as long as the tables stay.
    pub(crate) fn list(&self) -> List<'_> {
        let OwnList { place, key_letters, ends, words } = self;
        List { place: *place, groups: Groups { key_letters: *key_letters, ends, words } }
    }
}

/// Removes the summary, if there is one, in the open transaction of what changes a table.
pub(crate) fn remove<A: Arena>(arena: &mut A) -> Result<(), SpellError> {
    if arena.root(SUMMARY_ROOT).is_some() {
        arena.remove_root(SUMMARY_ROOT)?;
    }
    Ok(())
}
