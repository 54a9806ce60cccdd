//! The bytes of a table: its header (the named root's object), its slots, its words.
//!
//! ```text
//! header -> slots: (hash u32, word u32) ...            open addressing, linear probing
//!        -> newest block -> older block -> ... -> 0    each: a head that describes the older one, then words
//! word   = prefix u32 (length in the low byte, letters above), then the bytes in UTF-8, not padded
//! ```
//!
//! Places are 4 bytes: [`Address`]. Changing what is above, or [`hash`], [`letters`] or
//! [`initial`], changes the layout: raise [`LAYOUT_VERSION`], and old tables are refused. (Two has a
//! summary beside the tables, which a program that knows only one would not keep up to date; three
//! has another hash.) Changing the summary, or [`filter_mask`] or [`key`]: raise
//! [`SUMMARY_VERSION`], and old summaries are made again.

use crate::arena::Address;

/// First bytes of a header.
pub(crate) const MAGIC: [u8; 8] = *b"SPELLTBL";
/// Layout of header, slots and words.
pub(crate) const LAYOUT_VERSION: u32 = 3;
/// Longest word in bytes: its length has one byte.
pub(crate) const WORD_BYTES_MAX: usize = 255;
/// Bytes of a word before its text.
pub(crate) const PREFIX_BYTES: u32 = 4;
/// A block of words; a size class of the heap.
pub(crate) const BLOCK_BYTES: u32 = 32 << 10;
/// Bytes of a block before its first word.
pub(crate) const BLOCK_HEAD_BYTES: u32 = size_of::<BlockHead>() as u32;
/// Slots of the smallest table. Doubled often enough this fills a 4 MiB segment of the heap up to
/// the 64 KiB that the allocator keeps of it, where a power of two would need a second segment.
pub(crate) const SLOTS_FIRST: u32 = 63 * 16;
/// No table has more slots than this (some 360 million words).
pub(crate) const SLOTS_MAX: u32 = SLOTS_FIRST << 19;

/// The object of a table's root.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) magic: [u8; 8],
    pub(crate) layout_version: u32,
    /// 1 when the whole source has been read.
    pub(crate) complete: u32,
    pub(crate) source_bytes: u64,
    pub(crate) source_mtime_ns: u64,
    /// Words of the source, repeated ones included, that are in the table.
    pub(crate) words_done: u64,
    /// Offset in the source after the last of them.
    pub(crate) bytes_done: u64,
    pub(crate) slots: Address,
    pub(crate) slot_count: u32,
    /// Different words.
    pub(crate) word_count: u32,
    /// The newest block of words.
    pub(crate) block: Address,
    /// Bytes of it that are in use.
    pub(crate) block_used: u32,
    /// Of the words in it, see [`initial`].
    pub(crate) block_initials: u32,
}

/// Start of a block. It describes the block before it and not itself: so it is written once and
/// never changes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockHead {
    /// The block before this one, or 0.
    pub(crate) older: Address,
    /// Bytes in use of that one.
    pub(crate) older_used: u32,
    /// Initials of the words in that one.
    pub(crate) older_initials: u32,
    pub(crate) reserved: u32,
}

impl Header {
    /// The newest block as the head of the next one describes it.
    pub(crate) fn newest_block(&self) -> BlockHead {
        BlockHead {
            older: self.block,
            older_used: self.block_used,
            older_initials: self.block_initials,
            reserved: 0,
        }
    }
}

pub(crate) const HEADER_BYTES: u32 = size_of::<Header>() as u32;

/// One slot; free when `word` is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) hash: u32,
    pub(crate) word: Address,
}

pub(crate) const SLOT_BYTES: u32 = size_of::<Slot>() as u32;

/// Start of the summary's root; behind it the filter's 8-byte cells and, if `listed` is not 0, the
/// list: the end of each group of words (those with the same [`key`]) as a number of entries, then
/// the [`Listed`] words. See [`crate::summary`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct SummaryHead {
    pub(crate) magic: [u8; 8],
    pub(crate) layout_version: u32,
    pub(crate) cell_count: u32,
    pub(crate) listed: u32,
    /// Letters of a key.
    pub(crate) key_letters: u32,
}

/// A word in the summary's list.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    /// As it is stored before the word.
    pub(crate) prefix: u32,
    pub(crate) word: Address,
}

/// First bytes of a summary.
pub(crate) const SUMMARY_MAGIC: [u8; 8] = *b"SPELLSUM";
/// Layout of a summary. One of another version, which was that of the tables up to three, is made
/// again.
pub(crate) const SUMMARY_VERSION: u32 = 4;

pub(crate) const SUMMARY_HEAD_BYTES: u32 = size_of::<SummaryHead>() as u32;

/// The bits of a word in its cell of the filter: up to four, of the hash's low end, because its
/// high end chooses the cell.
#[inline]
pub(crate) fn filter_mask(hash: u32) -> u64 {
    let mixed = hash.wrapping_mul(0x9E37_79B1);
    1 << (mixed >> 26) | 1 << (mixed >> 20 & 63) | 1 << (mixed >> 14 & 63) | 1 << (mixed >> 8 & 63)
}

const _: () = assert!(HEADER_BYTES == 72 && SLOT_BYTES == 8 && BLOCK_HEAD_BYTES == 16);
const _: () = assert!(SUMMARY_HEAD_BYTES == 24);

/// Whether a table of so many slots must grow before it takes one more word: at 70 % load.
pub(crate) fn is_full(word_count: u32, slot_count: u32) -> bool {
    u64::from(word_count + 1) * 10 > u64::from(slot_count) * 7
}

/// Where probing starts: the hash's share of the slots. Keeps the order of hashes, whatever the
/// size.
#[inline]
pub(crate) fn first_slot(hash: u32, slot_count: u32) -> u32 {
    ((u64::from(hash) * u64::from(slot_count)) >> 32) as u32
}

const MULTIPLIER: u64 = 0x9FB2_1C65_1E98_DF25;

/// Hash of a word. Eight bytes at a time; its upper bits matter most.
#[inline]
pub(crate) fn hash(word: &[u8]) -> u32 {
    let mut state = (word.len() as u64).wrapping_mul(MULTIPLIER);
    let mut rest = word;
    while let Some((eight, after)) = rest.split_first_chunk::<8>() {
        state = mix(state, u64::from_le_bytes(*eight));
        rest = after;
    }
    if let Some((four, after)) = rest.split_first_chunk::<4>() {
        state = mix(state, u64::from(u32::from_le_bytes(*four)));
        rest = after;
    }
    // Without a loop: how often it would turn is hard to foretell.
    let tail = match *rest {
        [] => 0,
        [first, .., last] => {
            u64::from(first) | u64::from(rest[rest.len() / 2]) << 8 | u64::from(last) << 16
        }
        [only] => u64::from(only),
    };
    state = mix(state, tail);
    (state.wrapping_mul(MULTIPLIER) >> 32) as u32
}

#[inline]
fn mix(state: u64, bits: u64) -> u64 {
    // A product carries differences upwards only; without the shift later bytes could undo them.
    let product = (state ^ bits).wrapping_mul(MULTIPLIER);
    product ^ product >> 32
}

/// Which letters a word has, as 23 bits (rare letters share some): no edit changes more than one of
/// them each way, so words that differ in many are far apart. Case does not count. One more bit,
/// [`WIDE`], says that there are letters which are not ASCII.
#[inline]
pub(crate) fn letters(word: &[u8]) -> u32 {
    word.iter().fold(0, |bits, byte| bits | LETTER_BITS[usize::from(*byte)])
}

/// Among the bits of [`letters`]: the word's bytes are more than its letters.
pub(crate) const WIDE: u32 = 1 << 23;

const LETTER_BITS: [u32; 256] = {
    let mut bits = [0; 256];
    let mut letter = 0;
    while letter < 26 {
        let bit = match letter {
            // v and z share the bit of j, x that of q.
            21 | 25 => 9,
            23 => 16,
            24 => 21,
            other => other,
        };
        bits[b'a' as usize + letter] = 1 << bit;
        bits[b'A' as usize + letter] = 1 << bit;
        letter += 1;
    }
    let mut byte = 0x80;
    while byte < 256 {
        bits[byte] = WIDE;
        byte += 1;
    }
    bits
};

/// The bit of a word's first letter, whatever its case and its accent; all others have
/// [`INITIAL_OTHER`].
#[inline]
pub(crate) fn initial(word: &[u8]) -> u32 {
    match word {
        [byte, ..] if byte.is_ascii_alphabetic() => 1 << ((byte | 0x20) - b'a'),
        // U+00C0 to U+00FF, in UTF-8; the small letters follow the capitals at a distance of 32.
        [0xC3, byte, ..] => match LATIN_1_BASES[usize::from(byte & 0x1F)] {
            0 => INITIAL_OTHER,
            base => 1 << (base - b'a'),
        },
        _ => INITIAL_OTHER,
    }
}

const LATIN_1_BASES: [u8; 32] = *b"aaaaaaaceeeeiiii\0nooooo\0ouuuuy\0s";

/// See [`initial`].
pub(crate) const INITIAL_OTHER: u32 = 1 << 26;

/// Classes of letters: 0 for the end of a word, then one for each bit of [`initial`].
pub(crate) const CLASSES: u32 = 28;
/// The class of all letters that have none of their own.
pub(crate) const OTHER: u32 = CLASSES - 1;

/// The class of each letter of a word.
#[inline]
pub(crate) fn key_classes(word: &[u8]) -> impl Iterator<Item = u32> {
    // A byte inside of a letter starts none.
    let starts = (0..word.len()).filter(|at| word[*at] & 0xC0 != 0x80);
    starts.map(|at| initial(&word[at..]).trailing_zeros() + 1)
}

/// The classes of the first so many letters of a word as one number, the first of them highest.
#[inline]
pub(crate) fn key(word: &[u8], letters: usize) -> u32 {
    let mut classes = key_classes(word);
    (0..letters).fold(0, |key, _| key * CLASSES + classes.next().unwrap_or(0))
}

/// The prefix that is stored before a word.
#[inline]
pub(crate) fn prefix(word: &[u8]) -> u32 {
    letters(word) << 8 | word.len() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_similar_words_differ_and_fill_the_range() {
        let mut hashes = std::collections::BTreeSet::new();
        let mut upper = [0_u32; 64];
        for number in 0..40_000_u32 {
            for word in [format!("w{number}"), format!("prefix{number}s"), format!("{number:08}'s")]
            {
                let hash = hash(word.as_bytes());
                upper[first_slot(hash, 64) as usize] += 1;
                hashes.insert(hash);
            }
        }
        assert!(hashes.len() > 119_980, "{}", hashes.len());
        assert!(upper.iter().all(|count| (1_600..2_150).contains(count)), "{upper:?}");
    }

    #[test]
    fn the_first_slot_is_in_range_and_keeps_the_order() {
        for slots in [SLOTS_FIRST, SLOTS_FIRST << 9, SLOTS_MAX] {
            assert_eq!(first_slot(0, slots), 0);
            assert_eq!(first_slot(u32::MAX, slots), slots - 1);
            assert!(first_slot(1 << 31, slots) <= first_slot((1 << 31) + 9999, slots));
        }
    }

    /// A key has the first letters, without case and accents; a shorter word ends in zeros.
    #[test]
    fn keys_are_of_first_letters() {
        let number = |classes: [u32; 3]| classes.iter().fold(0, |key, class| key * CLASSES + class);
        assert_eq!(key(b"Abcde", 3), number([1, 2, 3]));
        assert_eq!(key("\u{E9}t\u{E9}".as_bytes(), 3), number([5, 20, 5]));
        assert_eq!(key("o'\u{3C9}".as_bytes(), 3), number([15, OTHER, OTHER]));
        assert_eq!(key(b"zz", 3), number([26, 26, 0]));
        assert_eq!(key(b"", 3), 0);
    }

    /// Letter sets ignore case and order and fit next to the length.
    #[test]
    fn letter_sets_ignore_case_and_order() {
        assert_eq!(letters(b"Stale"), letters(b"LEAST"));
        assert_ne!(letters(b"stale"), letters(b"stalk"));
        assert_eq!(letters(b"abcdefghijklmnopqrstuvwxyz"), WIDE - 1);
        assert_eq!(letters("naïve".as_bytes()) & WIDE, WIDE);
        assert_eq!((initial(b"zoo"), initial(b"Zoo")), (1 << 25, 1 << 25));
        assert_eq!((initial("Über".as_bytes()), initial("über".as_bytes())), (1 << 20, 1 << 20));
        assert_eq!((initial("Ångström".as_bytes()), initial("éclair".as_bytes())), (1, 1 << 4));
        assert_eq!((initial("Ω".as_bytes()), initial(b"'tween")), (INITIAL_OTHER, INITIAL_OTHER));
        assert_eq!(prefix("naïve".as_bytes()) & 0xFF, 6);
    }
}
