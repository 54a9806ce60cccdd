//! Reading texts: every word that no table knows, with its place; each different one once.

use std::collections::BTreeMap;

use crate::dictionary::Query;
use crate::layout::first_slot;
use crate::speller::Speller;
use crate::text::{Compound, compounds, folded, is_checked, parts};

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
    words: u64,
    findings: Vec<Finding>,
    unknown: Vec<String>,
    numbers: BTreeMap<String, usize>,
}

impl Checker {
    /// How many words were looked up.
    #[must_use]
    pub fn words(&self) -> u64 {
        self.words
    }

    /// Unknown words in the order of the texts.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The different ones, as dictionaries would spell them.
    #[must_use]
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }

    /// Reads one more text.
    pub fn read(&mut self, speller: &Speller<'_>, file: usize, text: &[u8]) {
        let mut seen = LastPlaces::for_text(text);
        let mut following = compounds(text);
        let mut row = Vec::with_capacity(NEIGHBOURS + READ_AHEAD);
        let mut here = 0;
        loop {
            if here + NEIGHBOURS >= row.len() {
                // The neighbours before stay.
                let passed = here.saturating_sub(NEIGHBOURS);
                row.drain(..passed);
                here -= passed;
                let new = row.len();
                row.extend(
                    following.by_ref().take(READ_AHEAD).map(|compound| Read::new(text, compound)),
                );
                let new = row[new..].iter().filter(|it| it.compound.plain).map(|it| it.query(text));
                speller
                    .fetch(new.filter(|query| !seen.has(text, *query)).map(|query| query.hash()));
            }
            if here >= row.len() {
                break;
            }
            self.check(speller, file, &WordContext { text, row: &row, here }, &mut seen);
            here += 1;
        }
    }

    fn check(
        &mut self,
        speller: &Speller<'_>,
        file: usize,
        around: &WordContext<'_>,
        seen: &mut LastPlaces,
    ) {
        let read = around.row[around.here];
        let Compound { line, column, plain, .. } = read.compound;
        if plain {
            self.words += 1;
            let query = read.query(around.text);
            if seen.has(around.text, query) {
                return;
            }
            if speller.knows_as(query, || around.word(read.compound)) {
                seen.add(read.compound, query);
                return;
            }
        }
        let raw = around.word(read.compound);
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

/// Where known words last stood in the text: most words are repeated, and their tables' bytes lie
/// far apart.
struct LastPlaces {
    /// Hash, first byte and byte after the last; at least one.
    places: Vec<(u32, u32, u32)>,
}

impl LastPlaces {
    fn for_text(text: &[u8]) -> LastPlaces {
        LastPlaces { places: vec![(0, 0, 0); (text.len() / 16).clamp(1, SEEN_MAX)] }
    }

    #[inline]
    fn place(&self, query: Query<'_>) -> usize {
        first_slot(query.hash(), self.places.len() as u32) as usize
    }

    #[inline]
    fn has(&self, text: &[u8], query: Query<'_>) -> bool {
        let (hash, start, end) = self.places[self.place(query)];
        hash == query.hash() && query.is(&text[start as usize..end as usize])
    }

    #[inline]
    fn add(&mut self, here: Compound, query: Query<'_>) {
        // A text of more than 4 GiB is read without, from there on.
        if let Ok(end) = u32::try_from(here.end) {
            let place = self.place(query);
            self.places[place] = (query.hash(), here.start as u32, end);
        }
    }
}

/// How many compounds are read at a time, before the first is checked: what the tables have for
/// them lies far apart and is fetched together.
const READ_AHEAD: usize = 48;
/// How many on either side belong to a collocation.
const NEIGHBOURS: usize = 2;

/// A compound that has been read.
#[derive(Clone, Copy)]
struct Read {
    compound: Compound,
    /// Of its bytes.
    hash: u32,
}

impl Read {
    #[inline]
    fn new(text: &[u8], compound: Compound) -> Read {
        Read { compound, hash: Query::new(&text[compound.range()]).hash() }
    }

    #[inline]
    fn query<'a>(&self, text: &'a [u8]) -> Query<'a> {
        Query::with_hash(&text[self.compound.range()], self.hash)
    }
}

/// A word and its neighbours.
struct WordContext<'a> {
    text: &'a [u8],
    row: &'a [Read],
    /// Which of the row.
    here: usize,
}

impl<'a> WordContext<'a> {
    /// The text of a compound. It consists of whole letters, so it is valid UTF-8.
    fn word(&self, compound: Compound) -> &'a str {
        core::str::from_utf8(&self.text[compound.range()]).unwrap_or_default()
    }

    /// Whether the word is right in its company: "in vitro", "de facto". Two or three words with
    /// nothing but blanks between them.
    fn is_collocation(&self, speller: &Speller<'_>) -> bool {
        [(1, 0), (0, 1), (2, 0), (1, 1), (0, 2)].into_iter().any(|(before, after)| {
            self.joined(before, after).is_some_and(|phrase| speller.knows(&phrase))
        })
    }

    /// The word with so many before and after it, if there are as many.
    fn joined(&self, before: usize, after: usize) -> Option<String> {
        let row = self.row.get(self.here.checked_sub(before)?..=self.here + after)?;
        let mut phrase = String::new();
        let mut last: Option<Compound> = None;
        for Read { compound, .. } in row.iter().copied() {
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
