//! The rules that decide whether a word is right, given the tables.

use crate::dictionary::{Block, Dictionary, Query};
use crate::summary::Summary;
use crate::text::{is_checked, parts};

/// Longest words that are folded without allocation.
const SHORT_BYTES: usize = 64;

/// All tables, largest first, because that is where most words are.
pub struct Speller<'arena> {
    dictionaries: Vec<Dictionary<'arena>>,
    /// Of all of them.
    summary: Summary<'arena>,
}

impl<'arena> Speller<'arena> {
    /// A speller over these tables; the summary must be of all of them.
    pub fn new(mut dictionaries: Vec<Dictionary<'arena>>, summary: Summary<'arena>) -> Self {
        dictionaries.sort_unstable_by_key(|dictionary| core::cmp::Reverse(dictionary.word_count()));
        Speller { dictionaries, summary }
    }

    /// The tables.
    pub fn dictionaries(&self) -> &[Dictionary<'arena>] {
        &self.dictionaries
    }

    /// Of all tables.
    pub(crate) fn summary(&self) -> &Summary<'arena> {
        &self.summary
    }

    /// The blocks of words of all tables.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Block<'arena>> {
        self.dictionaries.iter().flat_map(Dictionary::blocks)
    }

    /// Brings what will be looked up soon nearer: most of it is in the largest table.
    #[inline]
    pub(crate) fn fetch(&self, hashes: impl Iterator<Item = u32>) {
        if let Some(largest) = self.dictionaries.first() {
            largest.fetch(hashes);
        }
    }

    /// Whether a table has exactly this word.
    #[inline]
    pub fn contains(&self, word: &[u8]) -> bool {
        self.has(Query::new(word))
    }

    #[inline]
    fn has(&self, query: Query<'_>) -> bool {
        // The filter has few bytes, the tables have many.
        self.summary.may_have(query.hash())
            && self.dictionaries.iter().any(|dictionary| dictionary.contains(query))
    }

    /// Whether a table may have exactly this word; `false` is certain.
    #[inline]
    pub(crate) fn may_have(&self, word: &[u8]) -> bool {
        self.summary.may_have(Query::new(word).hash())
    }

    /// How many tables have exactly this word.
    pub fn count(&self, word: &[u8]) -> usize {
        let query = Query::new(word);
        if !self.summary.may_have(query.hash()) {
            return 0;
        }
        self.dictionaries.iter().filter(|dictionary| dictionary.contains(query)).count()
    }

    /// Whether a word is right: as it stands, in lower case (the start of a sentence, emphasis), as
    /// a name written in capitals, and all that without a possessive `'s`.
    #[inline]
    pub fn knows(&self, word: &str) -> bool {
        self.knows_as(Query::new(word.as_bytes()), word)
    }

    /// The same for who has taken the word's hash already.
    #[inline]
    pub(crate) fn knows_as(&self, query: Query<'_>, word: &str) -> bool {
        self.has(query) || self.knows_otherwise(word)
    }

    #[inline(never)]
    fn knows_otherwise(&self, word: &str) -> bool {
        self.knows_in_other_case(word)
            || without_possessive(word).is_some_and(|word| {
                self.contains(word.as_bytes()) || self.knows_in_other_case(word)
            })
    }

    fn knows_in_other_case(&self, word: &str) -> bool {
        let mut short = [0; SHORT_BYTES];
        if word.is_ascii()
            && let Some(short) = short.get_mut(..word.len())
        {
            return self.knows_short_in_other_case(word, short);
        }
        if !word.chars().any(char::is_uppercase) {
            return false;
        }
        let lower = word.to_lowercase();
        if self.contains(lower.as_bytes()) {
            return true;
        }
        Case::of(word) == Case::Upper && self.contains(titled(&lower).as_bytes())
    }

    /// The same for short words of ASCII, without allocation: every sentence starts with one.
    fn knows_short_in_other_case(&self, word: &str, lower: &mut [u8]) -> bool {
        for (to, from) in lower.iter_mut().zip(word.bytes()) {
            *to = from.to_ascii_lowercase();
        }
        if *lower == *word.as_bytes() {
            return false;
        }
        if self.contains(lower) {
            return true;
        }
        let Some(first) = lower.first_mut() else { return false };
        first.make_ascii_uppercase();
        Case::of(word) == Case::Upper && self.contains(lower)
    }

    /// Whether a compound is right: the whole, or every part that is looked up.
    pub fn knows_compound(&self, compound: &str) -> bool {
        self.knows(compound)
            || parts(compound).all(|(_, _, part)| !is_checked(part) || self.knows(part))
    }
}

/// The word without `'s`, if it has it.
pub(crate) fn without_possessive(word: &str) -> Option<&str> {
    word.strip_suffix("'s").or_else(|| word.strip_suffix("'S"))
}

/// How a word is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// As it comes: all lower, or mixed inside.
    Plain,
    /// The first letter is a capital, the others are not.
    Title,
    /// More than one letter, all of them capitals.
    Upper,
}

impl Case {
    pub(crate) fn of(word: &str) -> Case {
        let mut letters = word.chars().filter(|letter| letter.is_alphabetic());
        if !letters.next().is_some_and(char::is_uppercase) {
            return Case::Plain;
        }
        let (mut upper, mut lower) = (0, 0);
        for letter in letters {
            if letter.is_uppercase() { upper += 1 } else { lower += 1 }
        }
        match (upper, lower) {
            (0, _) => Case::Title,
            (_, 0) => Case::Upper,
            _ => Case::Plain,
        }
    }
}

/// The word with a capital first letter.
pub(crate) fn titled(word: &str) -> String {
    let mut letters = word.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_of_a_word_is_seen() {
        let cases = [
            ("word", Case::Plain),
            ("Word", Case::Title),
            ("WORD", Case::Upper),
            ("McDonald", Case::Plain),
            ("I", Case::Title),
            ("Ärger", Case::Title),
            ("DON'T", Case::Upper),
        ];
        for (word, case) in cases {
            assert_eq!(Case::of(word), case, "{word}");
        }
        assert_eq!(titled("élan"), "Élan");
    }

    #[test]
    fn a_possessive_loses_its_ending() {
        assert_eq!(without_possessive("applet's"), Some("applet"));
        assert_eq!(without_possessive("GPL'S"), Some("GPL"));
        assert_eq!(without_possessive("it'd"), None);
    }
}
