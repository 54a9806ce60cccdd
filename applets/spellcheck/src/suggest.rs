//! The nearest word of the dictionaries for one that is in none.
//!
//! Words at distance 1 with another first letter are found by looking up every word that an edit of
//! the first letter makes; all others in a walk over the stored words with the same first letter.
//! Only if that finds nothing, all stored words are walked over. Where there is a list by first
//! letters, only its groups that can have near words are (see [`crate::descent`]). Length and
//! letters in a word's prefix rule out nearly every one without a look at its text.
//!
//! Among the nearest the best is the one that looks most like it (see `Likeness`), then: same first
//! letter, no capital that the word lacks, in more dictionaries, of the nearest length, first in
//! the alphabet. Two words run together come last. What is found for a word depends on no other
//! word of the text.

use crate::descent::each_group;
use crate::distance::{DISTANCE_MAX, LETTERS_MAX, distance};
use crate::layout::{WIDE, initial, letters};
use crate::speller::{Case, Speller, titled, without_possessive};
use crate::summary::{List, OwnList};

/// Words of one run that get suggestions: the limit that keeps a file that is no text from taking
/// for ever.
pub const SUGGESTIONS_MAX: usize = 1000;
/// For so many words a list costs less than the walks over all words that it saves.
const LISTED_FROM: usize = 64;

/// Smaller is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    distance: u8,
    /// At distance 1 a capital that the word lacks counts for more than how alike they are.
    is_near_name: bool,
    likeness: Likeness,
    starts_other: bool,
    has_capital: bool,
    missing_in: usize,
    length_difference: usize,
}

/// What sets two words apart, the most likely slip first. All but the last leave the first letter
/// alone, unless it swaps place with the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Likeness {
    /// A blank is missing: "alot".
    Blank,
    /// Two neighbours are swapped, or letters doubled that should not be, or the other way round.
    Order,
    /// Vowels.
    Vowels,
    Other,
}

struct UnknownWord {
    /// In lower case, without possessive.
    word: String,
    letters: Vec<char>,
    undoubled: String,
    skeleton: String,
    bits: u32,
    case: Case,
    best: Option<(Rank, String)>,
}

/// A suggestion for each word, or none if nothing is within distance 2. Words beyond
/// [`SUGGESTIONS_MAX`] get none.
pub fn suggest(speller: &Speller<'_>, words: &[&str]) -> Vec<Option<String>> {
    let mut wanted: Vec<UnknownWord> =
        words.iter().take(SUGGESTIONS_MAX).map(|word| UnknownWord::new(word)).collect();
    for one in &mut wanted {
        one.try_edits(speller);
    }
    let mut open: Vec<&mut UnknownWord> =
        wanted.iter_mut().filter(|one| one.is_comparable()).collect();
    // At distance 2 a word with the same first letter outranks every other one, so where the first
    // walk finds one, the rest need not be looked at. (An accent more or less leaves it the same
    // here.)
    let kept = speller.summary().list();
    let own = match kept {
        None if open.len() >= LISTED_FROM => OwnList::new(speller.dictionaries()),
        _ => None,
    };
    let list = kept.or(own.as_ref().map(OwnList::list));
    walk(speller, list, |one| initial(one.word.as_bytes()), &mut open);
    open.retain(|one| one.best.is_none());
    if !open.is_empty() {
        walk(speller, list, |_| u32::MAX, &mut open);
        for one in open.iter_mut().filter(|one| one.best.is_none()) {
            one.try_split(speller);
        }
    }
    let mut found: Vec<_> = wanted
        .into_iter()
        .zip(words)
        .map(|(one, word)| one.best.map(|(_, best)| dressed(&best, word)))
        .collect();
    found.resize(words.len(), None);
    found
}

impl UnknownWord {
    fn new(word: &str) -> UnknownWord {
        let lower = without_possessive(word).unwrap_or(word).to_lowercase();
        UnknownWord {
            letters: lower.chars().collect(),
            undoubled: undoubled(&lower),
            skeleton: skeleton(&lower),
            bits: letters(lower.as_bytes()),
            case: Case::of(word),
            word: lower,
            best: None,
        }
    }

    fn is_comparable(&self) -> bool {
        (3..=LETTERS_MAX).contains(&self.letters.len())
    }

    /// Looks up words at distance 1 in the letters that English has: those that an edit of the
    /// first letter makes, and all of them for a word that is too short to be compared.
    fn try_edits(&mut self, speller: &Speller<'_>) {
        let positions = match self.letters.len() {
            2 => usize::MAX,
            _ if self.is_comparable() => 1,
            _ => return,
        };
        if self.word.is_ascii() {
            let word = self.word.clone().into_bytes();
            each_edit(&word, positions, |edited| self.consider(speller, edited));
        } else {
            let letters = self.letters.clone();
            each_edit(&letters, positions, |edited| {
                let mut bytes = edited.iter().collect::<String>().into_bytes();
                self.consider(speller, &mut bytes);
            });
        }
    }

    /// Takes a candidate at distance 1, if some table has it and it is better than the best so far.
    #[inline]
    fn consider(&mut self, speller: &Speller<'_>, candidate: &mut [u8]) {
        if speller.may_have(candidate)
            || self.case != Case::Plain && may_have_titled(speller, candidate)
        {
            self.consider_likely(speller, candidate);
        }
    }

    #[inline(never)]
    fn consider_likely(&mut self, speller: &Speller<'_>, candidate: &[u8]) {
        let Ok(candidate) = core::str::from_utf8(candidate) else { return };
        let case = self.case;
        self.rank(speller, candidate, 1, || match speller.count(candidate.as_bytes()) {
            0 if case != Case::Plain => speller.count(titled(candidate).as_bytes()),
            tables => tables,
        });
    }

    /// Takes the candidate if it is better than the best so far. `count` says how many tables have
    /// it; it is only asked when that matters.
    fn rank(
        &mut self,
        speller: &Speller<'_>,
        candidate: &str,
        distance: u8,
        count: impl FnOnce() -> usize,
    ) {
        let has_capital = self.case == Case::Plain && candidate.chars().any(char::is_uppercase);
        let mut rank = Rank {
            distance,
            is_near_name: has_capital && distance == 1,
            likeness: self.likeness(candidate),
            starts_other: candidate.chars().next().map(lower) != self.word.chars().next(),
            has_capital,
            missing_in: 0,
            length_difference: candidate.len().abs_diff(self.word.len()),
        };
        if !self.is_better(rank, candidate) {
            return;
        }
        let tables = count();
        if tables == 0 {
            return;
        }
        rank.missing_in = speller.dictionaries().len() - tables;
        if self.is_better(rank, candidate) {
            self.best = Some((rank, candidate.to_owned()));
        }
    }

    fn is_better(&self, rank: Rank, candidate: &str) -> bool {
        self.best.as_ref().is_none_or(|(best, text)| (rank, candidate) < (*best, text.as_str()))
    }

    fn likeness(&self, candidate: &str) -> Likeness {
        if candidate.contains(' ')
            && candidate.chars().filter(|it| *it != ' ').eq(self.word.chars())
        {
            Likeness::Blank
        } else if self.is_swapped(candidate) || undoubled(candidate) == self.undoubled {
            Likeness::Order
        } else if skeleton(candidate) == self.skeleton {
            Likeness::Vowels
        } else {
            Likeness::Other
        }
    }

    /// Whether two neighbours have swapped places and all else is the same.
    fn is_swapped(&self, candidate: &str) -> bool {
        let mut pairs = self.letters.iter().copied().zip(candidate.chars().map(lower));
        candidate.len() == self.word.len()
            && pairs.find(|(one, other)| one != other).is_some_and(|(one, other)| {
                pairs.next() == Some((other, one)) && pairs.all(|(one, other)| one == other)
            })
    }

    /// Two words that were run together.
    fn try_split(&mut self, speller: &Speller<'_>) {
        let word = self.word.clone();
        for (at, _) in word.char_indices().skip(1) {
            let (head, tail) = word.split_at(at);
            let stands = |part: &str| {
                (part.len() > 1 || matches!(part, "a" | "i")) && speller.contains(part.as_bytes())
            };
            if stands(head) && stands(tail) {
                let count = || speller.count(head.as_bytes()).min(speller.count(tail.as_bytes()));
                self.rank(speller, &format!("{head} {tail}"), DISTANCE_MAX, count);
            }
        }
    }
}

/// Whether some table may have the word as a name; `false` is certain.
#[inline]
fn may_have_titled(speller: &Speller<'_>, word: &mut [u8]) -> bool {
    match word.first().copied() {
        Some(first) if first.is_ascii_lowercase() => {
            word[0] = first.to_ascii_uppercase();
            let may_have = speller.may_have(word);
            word[0] = first;
            may_have
        }
        Some(first) => !first.is_ascii(),
        None => false,
    }
}

/// Calls `visit` with every word that one edit at the first so many positions makes with the
/// letters that English has. `visit` leaves the word as it is. Each word is made from the one
/// before.
#[inline]
fn each_edit<T: Copy + PartialEq + From<u8>>(
    word: &[T],
    positions: usize,
    mut visit: impl FnMut(&mut [T]),
) {
    let letters = || (b'a'..=b'z').chain(*b"'- ").map(T::from);
    let mut same = word.to_vec();
    let mut shorter = word.get(1..).unwrap_or_default().to_vec();
    let mut longer = word.to_vec();
    longer.insert(0, T::from(b' '));
    for at in 0..(word.len() + 1).min(positions) {
        for letter in letters() {
            longer[at] = letter;
            visit(&mut longer);
        }
        let Some(here) = word.get(at).copied() else { break };
        longer[at] = here;
        for letter in letters().filter(|letter| *letter != here) {
            same[at] = letter;
            visit(&mut same);
        }
        same[at] = here;
        visit(&mut shorter);
        if at + 1 < word.len() {
            shorter[at] = here;
            same.swap(at, at + 1);
            visit(&mut same);
            same.swap(at, at + 1);
        }
    }
}

/// What the walk knows of a wanted word.
struct Target {
    length: u32,
    bits: u32,
}

impl Target {
    /// How many bytes longer or shorter a word within [`DISTANCE_MAX`] can be. Letters that are not
    /// ASCII, on either side, have two bytes or more.
    #[inline]
    fn bytes_max(&self, other_is_wide: bool) -> u32 {
        let wide = other_is_wide | (self.bits & WIDE != 0);
        u32::from(if wide { 2 * DISTANCE_MAX } else { DISTANCE_MAX })
    }

    /// Whether a word with this prefix can be within [`DISTANCE_MAX`] of it.
    #[inline]
    fn may_be_near(&self, prefix: u32) -> bool {
        let (stored_length, stored_bits) = (prefix & 0xFF, prefix >> 8);
        let bytes_max = self.bytes_max(stored_bits & WIDE != 0);
        // Without branches in between: each alone would be hard to foretell.
        (stored_length.wrapping_sub(self.length).wrapping_add(bytes_max) <= 2 * bytes_max)
            & ((stored_bits & !self.bits & !WIDE).count_ones() <= u32::from(DISTANCE_MAX))
            & ((self.bits & !stored_bits & !WIDE).count_ones() <= u32::from(DISTANCE_MAX))
    }
}

/// Considers, for each word that has nothing yet, the stored words with one of its initials.
fn walk(
    speller: &Speller<'_>,
    list: Option<List<'_>>,
    initials: impl Fn(&UnknownWord) -> u32,
    wanted: &mut [&mut UnknownWord],
) {
    let targets: Vec<(u32, Target)> = wanted
        .iter()
        .map(|one| (initials(one), Target { length: one.word.len() as u32, bits: one.bits }))
        .collect();
    if let Some(list) = list {
        for (one, (initials, target)) in wanted.iter_mut().zip(&targets) {
            walk_list(speller, list, *initials, target, one);
        }
        return;
    }
    for block in speller.blocks() {
        for (one, (initials, target)) in wanted.iter_mut().zip(&targets) {
            if block.initials & initials == 0 {
                continue;
            }
            for (prefix, address) in block.words() {
                if target.may_be_near(prefix) && initial(block.text(address)) & initials != 0 {
                    compare(speller, one, block.text(address));
                }
            }
        }
    }
}

fn walk_list(
    speller: &Speller<'_>,
    list: List<'_>,
    initials: u32,
    target: &Target,
    wanted: &mut UnknownWord,
) {
    let word = wanted.word.clone();
    let limit =
        |wanted: &UnknownWord| wanted.best.as_ref().map_or(DISTANCE_MAX, |it| it.0.distance);
    each_group(list.groups, word.as_bytes(), initials, limit(wanted), |words| {
        for word in words.iter().filter(|word| target.may_be_near(word.prefix)) {
            compare(speller, wanted, list.text(word));
        }
        limit(wanted)
    });
}

#[inline(never)]
fn compare(speller: &Speller<'_>, wanted: &mut UnknownWord, stored: &[u8]) {
    let limit = wanted.best.as_ref().map_or(DISTANCE_MAX, |(rank, _)| rank.distance);
    let near = if stored.is_ascii() && wanted.bits & WIDE == 0 {
        let mut small = [0; LETTERS_MAX];
        let Some(small) = small.get_mut(..stored.len()) else { return };
        for (to, from) in small.iter_mut().zip(stored) {
            *to = from.to_ascii_lowercase();
        }
        distance(wanted.word.as_bytes(), small, limit)
    } else {
        let mut small = ['\0'; LETTERS_MAX];
        let mut count = 0;
        for letter in core::str::from_utf8(stored).unwrap_or_default().chars() {
            let Some(place) = small.get_mut(count) else { return };
            *place = lower(letter);
            count += 1;
        }
        distance(&wanted.letters, &small[..count], limit)
    };
    let Ok(text) = core::str::from_utf8(stored) else { return };
    if let Some(distance) = near
        && wanted.best.as_ref().is_none_or(|(_, best)| best != text)
    {
        wanted.rank(speller, text, distance, || speller.count(stored));
    }
}

pub(crate) fn lower(letter: char) -> char {
    if letter.is_ascii() {
        letter.to_ascii_lowercase()
    } else {
        letter.to_lowercase().next().unwrap_or(letter)
    }
}

/// The word in lower case and without doubled letters.
fn undoubled(word: &str) -> String {
    let mut last = None;
    word.chars().map(lower).filter(|letter| last.replace(*letter) != Some(*letter)).collect()
}

/// The same without what is no ASCII consonant, but with its first letter.
fn skeleton(word: &str) -> String {
    let consonant = |letter: char| letter.is_ascii_alphabetic() && !"aeiouy".contains(letter);
    let undoubled = undoubled(word);
    let kept = undoubled.chars().enumerate().filter(|(at, letter)| *at == 0 || consonant(*letter));
    kept.map(|(_, letter)| letter).collect()
}

/// The suggestion as the word was written: with its capitals and its possessive.
fn dressed(suggestion: &str, word: &str) -> String {
    let mut dressed = match Case::of(word) {
        Case::Plain => suggestion.to_owned(),
        Case::Title => titled(suggestion),
        Case::Upper => suggestion.to_uppercase(),
    };
    if let Some(stem) = without_possessive(word) {
        dressed.push_str(&word[stem.len()..]);
    }
    dressed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skeletons_ignore_vowels_and_doubling() {
        for (a, b) in
            [("tommorow", "tomorrow"), ("seperate", "separate"), ("publically", "publicly")]
        {
            assert_eq!(skeleton(a), skeleton(b));
        }
        assert_ne!(skeleton("goverment"), skeleton("government"));
        assert_ne!(skeleton("edge"), skeleton("adage"));
    }

    /// A suggestion takes over the capitals and the possessive ending of the word.
    #[test]
    fn suggestion_copies_capitals_and_possessive() {
        for (suggestion, word, dressed_as) in [
            ("the", "Teh", "The"),
            ("the", "TEH", "THE"),
            ("London", "lundon", "London"),
            ("guest", "geust's", "guest's"),
        ] {
            assert_eq!(dressed(suggestion, word), dressed_as);
        }
    }
}
