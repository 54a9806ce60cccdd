//! Reading texts: every word that no table knows, with its place; each different one once.

use std::collections::BTreeMap;

use crate::dictionary::Query;
use crate::layout::first_slot;
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
        let mut seen = Seen::for_text(text);
        let mut following = compounds(text);
        while let Some(compound) = following.next() {
            let around = Around { text, before, here: compound, following: &following };
            self.check(speller, file, &around, &mut seen);
            before = [before[1], Some(compound)];
        }
    }

    fn check(&mut self, speller: &Speller<'_>, file: usize, around: &Around<'_>, seen: &mut Seen) {
        let Compound { line, column, plain, .. } = around.here;
        if plain {
            self.words += 1;
            let query = Query::new(&around.text[around.here.range()]);
            if seen.has(around.text, query) {
                return;
            }
            if speller.knows_as(query, around.word(around.here)) {
                seen.add(around.here, query);
                return;
            }
        }
        let raw = around.word(around.here);
        if !plain {
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

/// Most known words that are remembered while a text is read.
const SEEN_MAX: usize = 2048;

/// Where known words last stood in the text: most words are repeated, and their tables' bytes lie far apart.
struct Seen {
    /// Hash, first byte and byte after the last; at least one.
    places: Vec<(u32, u32, u32)>,
}

impl Seen {
    fn for_text(text: &[u8]) -> Seen {
        Seen { places: vec![(0, 0, 0); (text.len() / 16).clamp(1, SEEN_MAX)] }
    }

    #[inline]
    fn place(&self, query: Query<'_>) -> usize {
        first_slot(query.hash, self.places.len() as u32) as usize
    }

    #[inline]
    fn has(&self, text: &[u8], query: Query<'_>) -> bool {
        let (hash, start, end) = self.places[self.place(query)];
        hash == query.hash && query.is(&text[start as usize..end as usize])
    }

    #[inline]
    fn add(&mut self, here: Compound, query: Query<'_>) {
        // A text of more than 4 GiB is read without, from there on.
        if let Ok(end) = u32::try_from(here.end) {
            let place = self.place(query);
            self.places[place] = (query.hash, here.start as u32, end);
        }
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
