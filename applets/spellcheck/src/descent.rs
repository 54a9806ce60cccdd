//! Which groups of the summary's list can have a word that is near another one: the groups are the
//! leaves of a tree over the first letters of words, and only branches are followed whose letters
//! are within the distance of the other word's first letters.
//!
//! Each step down the tree fills in one row of the matrix of the distance (see
//! [`crate::distance`]), of as many cells as matter. It is taken of classes of letters and not of
//! letters, where an accent makes no difference and [`OTHER`] equals everything: so it is never
//! more than the distance of the words.

use crate::distance::DISTANCE_MAX;
use crate::layout::{CLASSES, Listed, OTHER, key_classes};
use crate::summary::{Groups, KEY_LETTERS_MAX};

/// Cells of a row: more of a word's first letters do not matter for what a group's key has.
const CELLS: usize = KEY_LETTERS_MAX + DISTANCE_MAX as usize + 1;
/// More than any distance.
const FAR: u8 = DISTANCE_MAX + 1;
/// A class that no letter has.
const NONE: u32 = CLASSES;

type Row = [u8; CELLS];

/// State of one search.
struct Descent<'a, 'arena, V> {
    groups: Groups<'arena>,
    /// Classes of the word's first letters, at most [`CELLS`].
    word: &'a [u32],
    /// First letters that are followed, as bits of [`crate::layout::initial`].
    initials: u32,
    limit: u8,
    visit: V,
    rows: [Row; KEY_LETTERS_MAX + 1],
    /// Classes of the letters above the current node.
    path: [u32; KEY_LETTERS_MAX + 1],
}

/// Calls `visit` with all words of the groups, and some more, that start with one of `initials` and
/// are within `limit` of `word`, group by group. What it returns is the limit from there on.
pub(crate) fn each_group<'arena>(
    groups: Groups<'arena>,
    word: &[u8],
    initials: u32,
    limit: u8,
    visit: impl FnMut(&'arena [Listed]) -> u8,
) {
    let mut classes = [0; CELLS];
    let mut count = 0;
    for (place, class) in classes.iter_mut().zip(key_classes(word)) {
        *place = class;
        count += 1;
    }
    let word = &classes[..count];
    let mut first = [FAR; CELLS];
    for (distance, cell) in first.iter_mut().enumerate().take(count + 1) {
        *cell = FAR.min(distance as u8);
    }
    let mut descent = Descent {
        groups,
        word,
        initials,
        limit,
        visit,
        rows: [first; KEY_LETTERS_MAX + 1],
        path: [NONE; KEY_LETTERS_MAX + 1],
    };
    descent.follow_branches(0, 0);
}

impl<'arena, V: FnMut(&'arena [Listed]) -> u8> Descent<'_, 'arena, V> {
    /// Follows the branches of a node, which has so many letters above it.
    fn follow_branches(&mut self, depth: usize, key: u32) {
        let left = self.groups.key_letters - depth;
        if left == 0 {
            self.visit(self.groups.words_of(key, 0));
            return;
        }
        // Words that end here.
        let whole = self.rows[depth].get(self.word.len()).copied().unwrap_or(FAR);
        if depth > 0 && whole <= self.limit {
            self.visit(self.groups.words_of(key * CLASSES.pow(left as u32), 0));
        }
        // All letters that do not matter here give the same row.
        let other = self.row(depth + 1, NONE);
        let matter = self.matter(depth + 1);
        let mut branches = match nearest(&other) <= self.limit {
            true => (1 << CLASSES) - 2,
            false => matter & !1,
        };
        if depth == 0 {
            branches &= self.initials << 1;
        }
        while branches != 0 {
            let class = branches.trailing_zeros();
            branches &= branches - 1;
            let key = key * CLASSES + class;
            if self.groups.words_of(key, left - 1).is_empty() {
                continue;
            }
            let row = if matter >> class & 1 != 0 { self.row(depth + 1, class) } else { other };
            if nearest(&row) <= self.limit {
                self.rows[depth + 1] = row;
                self.path[depth + 1] = class;
                self.follow_branches(depth + 1, key);
            }
        }
    }

    fn visit(&mut self, words: &'arena [Listed]) {
        if !words.is_empty() {
            self.limit = (self.visit)(words);
        }
    }

    /// Letters, as bits, whose row below the path may have cells within the limit that those of all
    /// other letters do not have: what such a cell comes from is within the limit, too, and a letter
    /// of the word stands there. (See [`Self::row`], which has a line for each line here.)
    #[inline]
    fn matter(&self, depth: usize) -> u32 {
        let mut bits = 1 << OTHER;
        let mut add = |at: usize, from: u8| {
            if from <= self.limit {
                bits |= 1 << self.word[at];
            }
        };
        for at in 0..self.word.len().min(CELLS - 1) {
            add(at, self.rows[depth - 1][at]);
            if depth >= 2 && at >= 1 {
                add(at - 1, self.rows[depth - 2][at - 1] + 1);
                if depth >= 3 {
                    add(at - 1, self.rows[depth - 3][at - 1] + 2);
                }
                if at >= 2 {
                    add(at - 2, self.rows[depth - 2][at - 2] + 2);
                }
            }
        }
        bits
    }

    /// The row of a letter below those of the path.
    #[inline]
    fn row(&self, depth: usize, letter: u32) -> Row {
        let mut row = [FAR; CELLS];
        row[0] = FAR.min(depth as u8);
        let above = &self.rows[depth - 1];
        for (at, mine) in self.word.iter().copied().enumerate().take(CELLS - 1) {
            let replaced = above[at] + u8::from(!alike(letter, mine));
            let mut least = replaced.min(above[at + 1] + 1).min(row[at] + 1);
            // Two letters that swapped places, with nothing or one letter in between on either side.
            if depth >= 2 && at >= 1 {
                let (last, rows) = (self.path[depth - 1], &self.rows);
                if alike(letter, self.word[at - 1]) {
                    if alike(last, mine) {
                        least = least.min(rows[depth - 2][at - 1] + 1);
                    }
                    if depth >= 3 && alike(self.path[depth - 2], mine) {
                        least = least.min(rows[depth - 3][at - 1] + 2);
                    }
                }
                if at >= 2 && alike(letter, self.word[at - 2]) && alike(last, mine) {
                    least = least.min(rows[depth - 2][at - 2] + 2);
                }
            }
            row[at + 1] = FAR.min(least);
        }
        row
    }
}

/// Whether letters of these classes can be the same.
#[inline]
fn alike(one: u32, other: u32) -> bool {
    one == other || one == OTHER || other == OTHER
}

/// The least distance that a word can have which goes on from here.
#[inline]
fn nearest(row: &Row) -> u8 {
    row.iter().copied().fold(FAR, u8::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distance::distance;
    use crate::layout::{initial, prefix};
    use crate::suggest::lower;
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    /// Letters with and without case and accents, in no class of their own, and one such (Kelvin's)
    /// whose small letter has a class.
    const LETTERS: [&str; 10] =
        ["a", "b", "c", "A", "\u{E1}", "\u{C1}", "'", "\u{3C9}", "k", "\u{212A}"];

    fn word(random: &mut SmallRng, letters: core::ops::Range<usize>) -> String {
        (0..random.random_range(letters))
            .map(|_| LETTERS[random.random_range(0..LETTERS.len())])
            .collect()
    }

    /// After up to two edits.
    fn edited(random: &mut SmallRng, text: &str) -> String {
        let mut letters: Vec<char> = text.chars().collect();
        for _ in 0..random.random_range(0..3) {
            let at = random.random_range(0..=letters.len());
            let letter = LETTERS[random.random_range(0..LETTERS.len())].chars().next();
            match random.random_range(0..4) {
                0 => letters.splice(at..at, letter).for_each(drop),
                1 if at < letters.len() => drop(letters.remove(at)),
                2 if at + 1 < letters.len() => letters.swap(at, at + 1),
                _ if at < letters.len() => letters.splice(at..=at, letter).for_each(drop),
                _ => {}
            }
        }
        letters.into_iter().collect()
    }

    fn near(one: &str, other: &str) -> Option<u8> {
        let letters = |text: &str| text.chars().map(lower).collect::<Vec<_>>();
        distance(&letters(one), &letters(other), DISTANCE_MAX)
    }

    /// No word that is near is left out, for keys of each length, for all initials and for one, and
    /// far words are.
    #[test]
    fn words_that_are_near_are_in_the_groups() {
        let random = &mut SmallRng::seed_from_u64(7);
        let stored: Vec<String> = (0..2000).map(|_| word(random, 1..9)).collect();
        for key_letters in 1..=KEY_LETTERS_MAX {
            let keyed = Keyed::new(&stored, key_letters);
            let mut visited = 0;
            for round in 0..400 {
                let near_one = &stored[random.random_range(0..stored.len())];
                let wanted = match round % 4 {
                    0 | 1 => word(random, 1..9),
                    _ => edited(random, near_one),
                };
                let wanted: String = wanted.chars().map(lower).collect();
                let initials = if round % 2 == 0 { u32::MAX } else { initial(wanted.as_bytes()) };
                let mut seen = vec![false; stored.len()];
                each_group(keyed.groups(), wanted.as_bytes(), initials, DISTANCE_MAX, |group| {
                    for it in group {
                        seen[it.word as usize] = true;
                    }
                    DISTANCE_MAX
                });
                visited += seen.iter().filter(|seen| **seen).count();
                for (text, seen) in stored.iter().zip(&seen) {
                    let starts = initial(text.as_bytes()) & initials != 0;
                    assert!(*seen || !starts || near(&wanted, text).is_none(), "{wanted} {text}");
                    assert!(!*seen || starts, "{wanted} {text}");
                }
            }
            if key_letters == KEY_LETTERS_MAX {
                assert!(visited < 400 * stored.len() / 2, "{visited}");
            }
        }
    }

    /// A limit that a visit returns counts from there on.
    #[test]
    fn a_smaller_limit_leaves_groups_out() {
        let random = &mut SmallRng::seed_from_u64(8);
        let stored: Vec<String> = (0..2000).map(|_| word(random, 1..9)).collect();
        let keyed = Keyed::new(&stored, KEY_LETTERS_MAX);
        let visits = |limit| {
            let mut visits = 0;
            each_group(keyed.groups(), b"abba", u32::MAX, DISTANCE_MAX, |_| {
                visits += 1;
                limit
            });
            visits
        };
        assert!(visits(0) < visits(1) && visits(1) < visits(2));
    }

    /// A list whose words are known by their numbers and have no text.
    struct Keyed {
        key_letters: usize,
        ends: Vec<u32>,
        words: Vec<Listed>,
    }

    impl Keyed {
        fn new(stored: &[String], key_letters: usize) -> Keyed {
            let mut ends = vec![0; CLASSES.pow(key_letters as u32) as usize];
            let listed = |(at, text): (usize, &String)| {
                let key = crate::layout::key(text.as_bytes(), key_letters);
                (key, Listed { prefix: prefix(text.as_bytes()), word: at as u32 })
            };
            let mut words: Vec<_> = stored.iter().enumerate().map(listed).collect();
            words.sort_by_key(|(key, _)| *key);
            for (count, (key, _)) in words.iter().enumerate() {
                ends[*key as usize] = count as u32 + 1;
            }
            for at in 1..ends.len() {
                ends[at] = ends[at].max(ends[at - 1]);
            }
            Keyed { key_letters, ends, words: words.into_iter().map(|(_, word)| word).collect() }
        }

        fn groups(&self) -> Groups<'_> {
            Groups { key_letters: self.key_letters, ends: &self.ends, words: &self.words }
        }
    }
}
