//! The nearest word of the dictionaries for one that is in none.
//!
//! Distance 1 is found by looking up every word that one edit makes. What that leaves is looked for in a walk
//! over the stored words, one for all of them together: first over the blocks that have words with the same
//! first letter, then, if need be, over all. The letters in a word's prefix rule out nearly every one without
//! a look at its text.
//!
//! Among the nearest the best is the one that looks most like it (see `Likeness`), then: same first letter, no capital that the word lacks, in more dictionaries, of
//! the nearest length, first in the alphabet. Two words run together come last.

use crate::distance::{DISTANCE_MAX, LETTERS_MAX, distance};
use crate::layout::{WIDE, initial, letters};
use crate::speller::{Case, Speller, titled, without_possessive};

/// Words of one run that get suggestions: the limit that keeps a file that is no text from taking for ever.
pub const SUGGESTIONS_MAX: usize = 1000;

/// Smaller is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    distance: u8,
    likeness: Likeness,
    starts_other: bool,
    has_capital: bool,
    missing_in: usize,
    length_difference: usize,
}

/// What sets two words apart, the most likely slip first. All but the last leave the first letter alone,
/// unless it swaps place with the second.
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

struct Wanted {
    /// In lower case, without possessive.
    word: String,
    letters: Vec<char>,
    undoubled: String,
    skeleton: String,
    bits: u32,
    case: Case,
    best: Option<(Rank, String)>,
}

/// A suggestion for each word, or none if nothing is within distance 2. Words beyond [`SUGGESTIONS_MAX`] get
/// none.
pub fn suggest(speller: &Speller<'_>, words: &[&str]) -> Vec<Option<String>> {
    let mut wanted: Vec<Wanted> = words.iter().take(SUGGESTIONS_MAX).map(|word| Wanted::new(word)).collect();
    for one in &mut wanted {
        one.try_edits(speller);
    }
    let mut open: Vec<&mut Wanted> =
        wanted.iter_mut().filter(|one| one.best.is_none() && one.is_comparable()).collect();
    if !open.is_empty() {
        // At distance 2 a word with the same first letter outranks every other one, so where the first walk
        // finds one, the rest need not be looked at. (An accent more or less leaves it the same here.)
        let initials = open.iter().fold(0, |bits, one| bits | initial(one.word.as_bytes()));
        walk(speller, initials, &mut open);
        open.retain(|one| one.best.is_none());
    }
    if !open.is_empty() {
        walk(speller, u32::MAX, &mut open);
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

impl Wanted {
    fn new(word: &str) -> Wanted {
        let lower = without_possessive(word).unwrap_or(word).to_lowercase();
        Wanted {
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

    /// Looks up all words at distance 1 in the letters that English has.
    fn try_edits(&mut self, speller: &Speller<'_>) {
        if !self.is_comparable() && self.letters.len() != 2 {
            return;
        }
        let letters = core::mem::take(&mut self.letters);
        let mut edited = String::with_capacity(self.word.len() + 4);
        for at in 0..=letters.len() {
            let (head, tail) = letters.split_at(at);
            let mut try_word = |middle: &[char], rest: &[char], swapped: bool| {
                edited.clear();
                edited.extend(head.iter().chain(middle).chain(rest));
                self.consider(speller, &edited, 1, swapped);
            };
            if let [first, rest @ ..] = tail {
                try_word(&[], rest, false);
                if let [second, rest @ ..] = rest {
                    try_word(&[*second, *first], rest, true);
                }
            }
            for letter in ('a'..='z').chain(['\'', '-', ' ']) {
                try_word(&[letter], tail, false);
                if let [first, rest @ ..] = tail
                    && *first != letter
                {
                    try_word(&[letter], rest, false);
                }
            }
        }
        self.letters = letters;
    }

    /// Takes a candidate that some table has, if it is better than the best so far.
    fn consider(&mut self, speller: &Speller<'_>, candidate: &str, distance: u8, swapped: bool) {
        let mut tables = speller.count(candidate.as_bytes());
        if tables == 0 && self.case != Case::Plain {
            let name = titled(candidate);
            tables = speller.count(name.as_bytes());
        }
        if tables > 0 {
            self.rank(speller, candidate, distance, swapped, tables);
        }
    }

    fn rank(&mut self, speller: &Speller<'_>, candidate: &str, distance: u8, swapped: bool, tables: usize) {
        let rank = Rank {
            distance,
            likeness: self.likeness(candidate, swapped),
            starts_other: candidate.chars().next().map(lower) != self.word.chars().next(),
            has_capital: self.case == Case::Plain && candidate.chars().any(char::is_uppercase),
            missing_in: speller.dictionaries().len() - tables,
            length_difference: candidate.len().abs_diff(self.word.len()),
        };
        let better = match &self.best {
            Some((best, text)) => (rank, candidate) < (*best, text.as_str()),
            None => true,
        };
        if better {
            self.best = Some((rank, candidate.to_owned()));
        }
    }

    fn likeness(&self, candidate: &str, swapped: bool) -> Likeness {
        if candidate.contains(' ') && candidate.chars().filter(|it| *it != ' ').eq(self.word.chars()) {
            Likeness::Blank
        } else if swapped || undoubled(candidate) == self.undoubled {
            Likeness::Order
        } else if skeleton(candidate) == self.skeleton {
            Likeness::Vowels
        } else {
            Likeness::Other
        }
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
                let tables = speller.count(head.as_bytes()).min(speller.count(tail.as_bytes()));
                self.rank(speller, &format!("{head} {tail}"), DISTANCE_MAX, false, tables);
            }
        }
    }
}

/// Considers every word of the blocks with these initials for all words that have nothing yet.
fn walk(speller: &Speller<'_>, initials: u32, wanted: &mut [&mut Wanted]) {
    let targets: Vec<(u32, u32)> = wanted.iter().map(|one| (one.word.len() as u32, one.bits)).collect();
    for dictionary in speller.dictionaries() {
        dictionary.for_each(initials, |prefix, address| {
            for (index, (length, bits)) in targets.iter().enumerate() {
                if may_be_near(prefix, *length, *bits) {
                    compare(speller, wanted[index], dictionary.text(address));
                }
            }
        });
    }
}

/// Whether a word with this prefix can be within [`DISTANCE_MAX`] of one of this length with these letters.
#[inline]
fn may_be_near(prefix: u32, length: u32, bits: u32) -> bool {
    let (stored_length, stored_bits) = (prefix & 0xFF, prefix >> 8);
    // Letters that are not ASCII have two bytes or more.
    let bytes_max = if (stored_bits | bits) & WIDE == 0 { DISTANCE_MAX } else { 2 * DISTANCE_MAX };
    stored_length.abs_diff(length) <= u32::from(bytes_max)
        && (stored_bits & !bits & !WIDE).count_ones() <= u32::from(DISTANCE_MAX)
        && (bits & !stored_bits & !WIDE).count_ones() <= u32::from(DISTANCE_MAX)
}

fn compare(speller: &Speller<'_>, wanted: &mut Wanted, stored: &[u8]) {
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
        wanted.rank(speller, text, distance, false, speller.count(stored));
    }
}

fn lower(letter: char) -> char {
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
        for (a, b) in [("tommorow", "tomorrow"), ("seperate", "separate"), ("publically", "publicly")] {
            assert_eq!(skeleton(a), skeleton(b));
        }
        assert_ne!(skeleton("goverment"), skeleton("government"));
        assert_ne!(skeleton("edge"), skeleton("adage"));
    }

    #[test]
    fn a_suggestion_wears_the_capitals_and_the_possessive_of_the_word() {
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
