//! Reading texts: every word that no table knows, with its place; each different one once.

use std::collections::BTreeMap;

use crate::dictionary::Query;
use crate::layout::first_slot;
use crate::speller::Speller;
use crate::text::{Compound, compounds, fold_into, folded, is_checked, parts};

/// One place of an unknown word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which text.
    pub file: usize,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Which of [`Checker::forms`].
    pub form: usize,
}

/// An unknown word as texts have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// The word.
    pub word: String,
    /// Which of [`Checker::unknown`].
    pub unknown: usize,
}

/// What has been found so far.
#[derive(Default)]
pub struct Checker {
    words: u64,
    findings: Vec<Finding>,
    forms: Vec<Form>,
    unknown: Vec<String>,
    /// Which of `forms` a word is.
    form_of: BTreeMap<String, usize>,
    /// Which of `unknown` a word is.
    number_of: BTreeMap<String, usize>,
    /// For words next to each other.
    phrase: String,
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

    /// The different ones, as the texts have them.
    #[must_use]
    pub fn forms(&self) -> &[Form] {
        &self.forms
    }

    /// The different ones, as dictionaries would spell them.
    #[must_use]
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }

    /// Reads one more text.
    pub fn read(&mut self, speller: &Speller<'_>, file: usize, text: &[u8]) {
        let mut memo = Memo::for_text(text);
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
                    following
                        .by_ref()
                        .take(READ_AHEAD)
                        .map(|compound| Read::new(text, compound, &memo)),
                );
                let new = row[new..].iter().filter(|it| it.compound.plain && it.verdict.is_none());
                speller.fetch(new.map(|it| it.hash));
            }
            if here >= row.len() {
                break;
            }
            self.check(speller, file, &WordContext { text, row: &row, here }, &mut memo);
            here += 1;
        }
    }

    #[inline]
    fn check(
        &mut self,
        speller: &Speller<'_>,
        file: usize,
        around: &WordContext<'_>,
        memo: &mut Memo,
    ) {
        match around.row[around.here].verdict {
            Some(Verdict::Known) => self.words += 1,
            Some(Verdict::Ignored) => {}
            _ => self.check_closely(speller, file, around, memo),
        }
    }

    fn check_closely(
        &mut self,
        speller: &Speller<'_>,
        file: usize,
        around: &WordContext<'_>,
        memo: &mut Memo,
    ) {
        let read = around.row[around.here];
        let Compound { line, column, plain, .. } = read.compound;
        let query = read.query(around.text);
        // What was found out since it was read counts, too.
        let verdict = match read.verdict.or_else(|| memo.verdict(query)) {
            Some(verdict) => verdict,
            None => {
                let verdict = judge(speller, query, around.word(read.compound), plain);
                memo.add(query, verdict);
                verdict
            }
        };
        if verdict == Verdict::Ignored {
            return;
        }
        self.words += 1;
        if verdict == Verdict::Known || around.is_collocation(speller, &mut self.phrase) {
            return;
        }
        if let Verdict::Unknown { form: Some(form) } = verdict {
            self.findings.push(Finding { file, line, column, form: form as usize });
            return;
        }
        for (_, columns, part) in parts(around.word(read.compound)) {
            let spelled = folded(part);
            if is_checked(&spelled) && (plain || !speller.knows(&spelled)) {
                let form = self.form(part, spelled);
                self.findings.push(Finding { file, line, column: column + columns, form });
                if plain {
                    memo.add(query, Verdict::Unknown { form: u32::try_from(form).ok() });
                }
            }
        }
    }

    /// The number of a form; `spelled` is how dictionaries would spell it.
    fn form(&mut self, word: &str, spelled: String) -> usize {
        if let Some(form) = self.form_of.get(word) {
            return *form;
        }
        let unknown = self.number(spelled);
        let form = self.forms.len();
        self.forms.push(Form { word: word.to_owned(), unknown });
        self.form_of.insert(word.to_owned(), form);
        form
    }

    fn number(&mut self, word: String) -> usize {
        if let Some(number) = self.number_of.get(&word) {
            return *number;
        }
        let number = self.unknown.len();
        self.unknown.push(word.clone());
        self.number_of.insert(word, number);
        number
    }
}

/// What a compound is, whatever stands beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It is not looked up: a letter, a number.
    Ignored,
    /// It is right.
    Known,
    /// No table has it, or not all of it.
    Unknown {
        /// Which of [`Checker::forms`], if it has one part and has been found.
        form: Option<u32>,
    },
}

fn judge(speller: &Speller<'_>, query: Query<'_>, word: &str, plain: bool) -> Verdict {
    let known = if plain {
        speller.knows_as(query, word)
    } else if !parts(word).any(|(_, _, part)| is_checked(part)) {
        return Verdict::Ignored;
    } else {
        speller.knows_compound(&folded(word))
    };
    if known { Verdict::Known } else { Verdict::Unknown { form: None } }
}

/// Most compounds that are remembered while a text is read: 99 of 100 words of a text of 16 MB are
/// among so many different ones, which fit into a processor's cache.
const REMEMBERED_MAX: usize = 16 << 10;
/// Longest compound that is remembered.
const REMEMBERED_BYTES: usize = 19;

/// What compounds were found to be: most are repeated, and their tables' bytes lie far apart. A new
/// one takes the place of the last one with a similar hash.
struct Memo {
    /// At least one.
    entries: Vec<Remembered>,
}

#[derive(Clone, Copy)]
struct Remembered {
    hash: u32,
    bytes: [u8; REMEMBERED_BYTES],
    length: u8,
    verdict: Option<Verdict>,
}

const _: () = assert!(size_of::<Remembered>() == 32);

impl Memo {
    fn for_text(text: &[u8]) -> Memo {
        let none = Remembered { hash: 0, bytes: [0; REMEMBERED_BYTES], length: 0, verdict: None };
        Memo { entries: vec![none; (text.len() / 16).clamp(1, REMEMBERED_MAX)] }
    }

    #[inline]
    fn place(&self, query: Query<'_>) -> usize {
        first_slot(query.hash(), self.entries.len() as u32) as usize
    }

    #[inline]
    fn verdict(&self, query: Query<'_>) -> Option<Verdict> {
        let entry = &self.entries[self.place(query)];
        if entry.hash != query.hash() || !query.is(&entry.bytes[..usize::from(entry.length)]) {
            return None;
        }
        entry.verdict
    }

    fn add(&mut self, query: Query<'_>, verdict: Verdict) {
        let mut bytes = [0; REMEMBERED_BYTES];
        let Some(place) = bytes.get_mut(..query.word().len()) else { return };
        place.copy_from_slice(query.word());
        let length = query.word().len() as u8;
        let at = self.place(query);
        self.entries[at] = Remembered { hash: query.hash(), bytes, length, verdict: Some(verdict) };
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
    /// What it was found to be before it was read.
    verdict: Option<Verdict>,
}

impl Read {
    #[inline]
    fn new(text: &[u8], compound: Compound, memo: &Memo) -> Read {
        let query = Query::new(&text[compound.range()]);
        Read { compound, hash: query.hash(), verdict: memo.verdict(query) }
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
    /// nothing but blanks between them. `phrase` is for their text.
    fn is_collocation(&self, speller: &Speller<'_>, phrase: &mut String) -> bool {
        let (here, last) = (self.here, self.row.len() - 1);
        let is_joined = |at: usize| {
            let (one, next) = (self.row[at].compound, self.row[at + 1].compound);
            self.text[one.end..next.start].iter().all(u8::is_ascii_whitespace)
        };
        let first = (here.saturating_sub(NEIGHBOURS)..here).rev().take_while(|at| is_joined(*at));
        let before = first.count();
        let after = (here..last.min(here + NEIGHBOURS)).take_while(|at| is_joined(*at)).count();
        [(1, 0), (0, 1), (2, 0), (1, 1), (0, 2)].into_iter().any(|(back, on)| {
            if back > before || on > after {
                return false;
            }
            phrase.clear();
            for read in &self.row[here - back..=here + on] {
                if !phrase.is_empty() {
                    phrase.push(' ');
                }
                fold_into(phrase, self.word(read.compound));
            }
            speller.knows(phrase)
        })
    }
}
