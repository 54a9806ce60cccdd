//! Reading texts: every word that no table knows, with its place; each different one once.

use std::collections::BTreeMap;

use crate::speller::Speller;
use crate::text::{Compound, Compounds, compounds, folded, is_checked, parts};

/// One place of an unknown word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which text.
    pub file: usize,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Which of [`Checker::unknown`].
    pub unknown: usize,
    /// The word as the text has it.
    pub word: String,
}

/// What has been found so far.
#[derive(Default)]
pub struct Checker {
    /// Words that were looked up.
    pub words: u64,
    /// Unknown words in the order of the texts.
    pub findings: Vec<Finding>,
    /// The different ones, as dictionaries would spell them.
    pub unknown: Vec<String>,
    numbers: BTreeMap<String, usize>,
}

impl Checker {
    /// Reads one more text.
    pub fn read(&mut self, speller: &Speller<'_>, file: usize, text: &[u8]) {
        let mut before = [None; 2];
        let mut following = compounds(text);
        while let Some(compound) = following.next() {
            let around = Around { text, before, here: compound, following: &following };
            self.check(speller, file, &around);
            before = [before[1], Some(compound)];
        }
    }

    fn check(&mut self, speller: &Speller<'_>, file: usize, around: &Around<'_>) {
        let Compound { line, column, plain, .. } = around.here;
        let raw = around.word(around.here);
        if plain {
            self.words += 1;
            if speller.knows(raw) {
                return;
            }
        } else {
            if !parts(raw).any(|(_, _, part)| is_checked(part)) {
                return;
            }
            self.words += 1;
            if speller.knows_compound(&folded(raw)) {
                return;
            }
        }
        if around.is_collocation(speller) {
            return;
        }
        for (_, columns, part) in parts(raw) {
            let spelled = folded(part);
            if is_checked(&spelled) && !speller.knows(&spelled) {
                let unknown = self.number(spelled);
                self.findings.push(Finding {
                    file,
                    line,
                    column: column + columns,
                    unknown,
                    word: part.to_owned(),
                });
            }
        }
    }

    fn number(&mut self, word: String) -> usize {
        if let Some(number) = self.numbers.get(&word) {
            return *number;
        }
        let number = self.unknown.len();
        self.unknown.push(word.clone());
        self.numbers.insert(word, number);
        number
    }
}

/// A word and its neighbours.
struct Around<'a> {
    text: &'a [u8],
    before: [Option<Compound>; 2],
    here: Compound,
    following: &'a Compounds<'a>,
}

impl<'a> Around<'a> {
    /// The text of a compound. It consists of whole letters, so it is valid UTF-8.
    fn word(&self, compound: Compound) -> &'a str {
        core::str::from_utf8(&self.text[compound.range()]).unwrap_or_default()
    }

    /// Whether the word is right in its company: "in vitro", "de facto". Two or three words with nothing but
    /// blanks between them.
    fn is_collocation(&self, speller: &Speller<'_>) -> bool {
        let mut after = self.following.clone();
        let row = [self.before[0], self.before[1], Some(self.here), after.next(), after.next()];
        [(1, 3), (2, 4), (0, 3), (1, 4), (2, 5)]
            .into_iter()
            .any(|(first, end)| self.joined(&row[first..end]).is_some_and(|phrase| speller.knows(&phrase)))
    }

    fn joined(&self, row: &[Option<Compound>]) -> Option<String> {
        let mut phrase = String::new();
        let mut last: Option<Compound> = None;
        for compound in row {
            let compound = (*compound)?;
            if let Some(last) = last {
                if !self.text[last.end..compound.start].iter().all(u8::is_ascii_whitespace) {
                    return None;
                }
                phrase.push(' ');
            }
            phrase.push_str(&folded(self.word(compound)));
            last = Some(compound);
        }
        Some(phrase)
    }
}
