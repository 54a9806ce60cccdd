//! Words of a text, with their places. UTF-8; invalid bytes separate words and count as one
//! character each.
//!
//! A word is a run of letters, with apostrophes inside; words joined by hyphens are one
//! [`Compound`]. Addresses (`https://...`, `name@host`) are passed over.

use core::ops::Range;
use core::str;

/// Words joined by hyphens, or, most often, one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compound {
    /// First byte in the text.
    pub start: usize,
    /// Byte after the last.
    pub end: usize,
    /// Line, from 1.
    pub line: u32,
    /// Column of the first character, from 1, in characters.
    pub column: u32,
    /// Whether it is one word of ASCII letters and apostrophes, at least two bytes: nearly all are.
    pub plain: bool,
}

impl Compound {
    /// Its bytes.
    pub fn range(&self) -> Range<usize> {
        self.start..self.end
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    Letter,
    /// Makes a word something else: an identifier, a version.
    Digit,
    Apostrophe,
    Hyphen,
    Newline,
    /// Blanks and brackets: where an address ends.
    Gap,
    Other,
}

const ASCII: [Class; 128] = {
    let mut classes = [Class::Other; 128];
    let mut byte = 0;
    while byte < 128 {
        classes[byte] = match byte as u8 {
            b'A'..=b'Z' | b'a'..=b'z' => Class::Letter,
            b'0'..=b'9' | b'_' => Class::Digit,
            b'\'' => Class::Apostrophe,
            b'-' => Class::Hyphen,
            b'\n' => Class::Newline,
            b' ' | b'\t' | b'\r' | 0x0B | 0x0C | b'<' | b'>' | b'(' | b')' | b'[' | b']' | b'{'
            | b'}' | b'"' | b'|' | b',' | b';' => Class::Gap,
            _ => Class::Other,
        };
        byte += 1;
    }
    classes
};

/// Class and length of the character at `at`, which must be inside the text.
#[inline]
fn classify(text: &[u8], at: usize) -> (Class, usize) {
    match ASCII.get(usize::from(text[at])) {
        Some(class) => (*class, 1),
        None => classify_wide(&text[at..]),
    }
}

#[cold]
fn classify_wide(text: &[u8]) -> (Class, usize) {
    let Some(wide) = first_char(text) else { return (Class::Other, 1) };
    let class = match wide {
        '\u{2019}' | '\u{2BC}' => Class::Apostrophe,
        '\u{2010}' | '\u{2011}' => Class::Hyphen,
        // A soft hyphen and marks that combine with the letter before them are part of the word.
        '\u{AD}' | '\u{300}'..='\u{36F}' => Class::Letter,
        _ if wide.is_alphabetic() => Class::Letter,
        _ if wide.is_numeric() => Class::Digit,
        _ if wide.is_whitespace() => Class::Gap,
        _ => Class::Other,
    };
    (class, wide.len_utf8())
}

fn first_char(text: &[u8]) -> Option<char> {
    let head = &text[..text.len().min(4)];
    let valid = match str::from_utf8(head) {
        Ok(valid) => valid,
        Err(error) => str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default(),
    };
    valid.chars().next()
}

/// Iterator over the compounds of a text.
#[derive(Clone)]
pub struct Compounds<'text> {
    text: &'text [u8],
    at: usize,
    line: u32,
    column: u32,
    /// Whether an address may start here.
    after_gap: bool,
}

/// The compounds of a text, in order. A byte order mark at its start is no character.
pub fn compounds(text: &[u8]) -> Compounds<'_> {
    let at = if text.starts_with("\u{FEFF}".as_bytes()) { 3 } else { 0 };
    Compounds { text, at, line: 1, column: 1, after_gap: true }
}

impl Iterator for Compounds<'_> {
    type Item = Compound;

    fn next(&mut self) -> Option<Compound> {
        while self.at < self.text.len() {
            let (class, length) = classify(self.text, self.at);
            match class {
                Class::Letter | Class::Digit => {
                    let compound = self.compound();
                    if self.after_gap && self.skip_address(compound.start) {
                        continue;
                    }
                    self.after_gap = false;
                    return Some(compound);
                }
                Class::Newline => {
                    self.line += 1;
                    self.column = 1;
                    self.at += 1;
                    self.after_gap = true;
                }
                Class::Gap | Class::Other | Class::Apostrophe | Class::Hyphen => {
                    self.after_gap |= class == Class::Gap;
                    self.at += length;
                    self.column += 1;
                }
            }
        }
        None
    }
}

impl Compounds<'_> {
    fn compound(&mut self) -> Compound {
        let (start, line, column) = (self.at, self.line, self.column);
        // Nearly all words are nothing but ASCII letters.
        let letters = ascii_letters(&self.text[start..]);
        self.at += letters;
        self.column += letters as u32;
        let mut plain = true;
        while self.at < self.text.len() {
            let (class, length) = classify(self.text, self.at);
            let joins = match class {
                Class::Letter | Class::Digit => true,
                Class::Apostrophe | Class::Hyphen => {
                    self.text.get(self.at + length).is_some_and(|_| {
                        matches!(
                            classify(self.text, self.at + length).0,
                            Class::Letter | Class::Digit
                        )
                    })
                }
                _ => false,
            };
            if !joins {
                break;
            }
            plain &= length == 1 && matches!(class, Class::Letter | Class::Apostrophe);
            self.at += length;
            self.column += 1;
        }
        Compound { start, end: self.at, line, column, plain: plain && self.at - start > 1 }
    }

    /// Passes over the rest of a web or mail address that starts at `start`, where a compound has
    /// just been read; `false` when it is none.
    #[inline]
    fn skip_address(&mut self, start: usize) -> bool {
        // An address goes on behind the compound.
        match self.text.get(self.at) {
            Some(byte) if !ends_address(byte) => self.skip_address_of_more(start),
            _ => false,
        }
    }

    fn skip_address_of_more(&mut self, start: usize) -> bool {
        let rest = &self.text[start..];
        let length = rest.iter().position(ends_address).unwrap_or(rest.len());
        let run = &rest[..length];
        let at_sign = memchr::memchr(b'@', run)
            .is_some_and(|at| at > 0 && run.get(at + 1).is_some_and(u8::is_ascii_alphanumeric));
        let is_address =
            at_sign || run.starts_with(b"www.") || run.windows(3).any(|three| three == b"://");
        if is_address {
            let more = &self.text[self.at..start + length];
            self.at = start + length;
            self.column += more.iter().filter(|byte| **byte & 0xC0 != 0x80).count() as u32;
        }
        is_address
    }
}

/// How many ASCII letters a text starts with.
#[inline]
fn ascii_letters(text: &[u8]) -> usize {
    let (chunks, _) = text.as_chunks::<8>();
    let mut count = 0;
    for chunk in chunks {
        let others = not_ascii_letters(u64::from_le_bytes(*chunk));
        if others != 0 {
            return count + others.trailing_zeros() as usize / 8;
        }
        count += 8;
    }
    count + text[count..].iter().take_while(|byte| byte.is_ascii_alphabetic()).count()
}

/// The top bit of each byte that is no ASCII letter. All eight at once: where a word ends is hard
/// to foretell.
#[inline]
fn not_ascii_letters(bytes: u64) -> u64 {
    const EACH: u64 = u64::from_le_bytes([1; 8]);
    let small = bytes | (EACH * 0x20);
    // Without its top bit no byte of a sum reaches the next one.
    let low = small & (EACH * 0x7F);
    let from_a = low + EACH * (0x80 - b'a' as u64);
    let after_z = low + EACH * (0x7F - b'z' as u64);
    !(from_a & !after_z & !small) & (EACH * 0x80)
}

/// Whether an address, if there is one, ends before this byte.
#[inline]
fn ends_address(byte: &u8) -> bool {
    matches!(ASCII.get(usize::from(*byte)), Some(Class::Gap | Class::Newline))
}

/// The word as dictionaries spell it: plain apostrophes and hyphens, no soft hyphens.
pub fn folded(word: &str) -> String {
    let mut plain = String::with_capacity(word.len());
    fold_into(&mut plain, word);
    plain
}

/// The same behind a text.
pub(crate) fn fold_into(text: &mut String, word: &str) {
    if word.is_ascii() {
        text.push_str(word);
        return;
    }
    for letter in word.chars() {
        match letter {
            '\u{2019}' | '\u{2BC}' => text.push('\''),
            '\u{2010}' | '\u{2011}' => text.push('-'),
            '\u{AD}' => {}
            letter => text.push(letter),
        }
    }
}

/// The parts of a compound between its hyphens: where each starts in bytes and in characters, and
/// its text.
pub fn parts(compound: &str) -> impl Iterator<Item = (usize, u32, &str)> {
    let mut column = 0;
    compound.split(['-', '\u{2010}', '\u{2011}']).map(move |part| {
        let start = part.as_ptr() as usize - compound.as_ptr() as usize;
        let here = column;
        column += part.chars().count() as u32 + 1;
        (start, here, part)
    })
}

/// Whether a part is looked up at all: single letters and what has digits are not.
pub fn is_checked(part: &str) -> bool {
    let mut letters = part.chars();
    letters.next().is_some()
        && letters.next().is_some()
        && !part.chars().any(|it| it == '_' || it.is_numeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &[u8]) -> Vec<(String, u32, u32)> {
        compounds(text)
            .map(|it| (String::from_utf8_lossy(&text[it.range()]).into_owned(), it.line, it.column))
            .collect()
    }

    fn expect(text: &[u8], words: &[(&str, u32, u32)]) {
        let words: Vec<_> =
            words.iter().map(|(word, line, column)| (word.to_string(), *line, *column)).collect();
        assert_eq!(found(text), words);
    }

    #[test]
    fn words_are_found_with_line_and_column_in_characters() {
        expect(
            "Grüße an\r\n  Böhm’s 'friend', don't.\n".as_bytes(),
            &[("Grüße", 1, 1), ("an", 1, 7), ("Böhm’s", 2, 3), ("friend", 2, 11), ("don't", 2, 20)],
        );
    }

    #[test]
    fn letters_are_counted_eight_at_a_time_as_one_by_one() {
        for byte in 0..=255_u8 {
            let alone = not_ascii_letters(u64::from_le_bytes([
                b'a', byte, b'Z', 0xFF, b'm', byte, b'@', b'z',
            ]));
            let bit = if byte.is_ascii_alphabetic() { 0 } else { 0x80 };
            assert_eq!(alone.to_le_bytes(), [0, bit, 0, 0x80, 0, bit, 0x80, 0], "{byte}");
        }
        for length in 0..30 {
            let word = "abcdefghijklmnopqrstuvwxyzABCD".get(..length).unwrap();
            for end in ["", " and more words", "-"] {
                assert_eq!(ascii_letters(format!("{word}{end}").as_bytes()), length);
            }
        }
    }

    #[test]
    fn hyphens_join_only_between_letters() {
        expect(
            b"well-known -- pre- and post-war",
            &[("well-known", 1, 1), ("pre", 1, 15), ("and", 1, 20), ("post-war", 1, 24)],
        );
    }

    /// Invalid bytes separate words and count as characters.
    #[test]
    fn invalid_bytes_separate_words() {
        expect(b"one\xFF\xFEtwo \xE2\x82 three", &[("one", 1, 1), ("two", 1, 6), ("three", 1, 13)]);
        expect(b"\xC3", &[]);
        expect(b"ab\xC3", &[("ab", 1, 1)]);
    }

    #[test]
    fn addresses_are_passed_over_and_columns_stay_right() {
        expect(
            "see <https://fsf.org/gpl-3> or jöe.doe@example.org, not @home".as_bytes(),
            &[("see", 1, 1), ("or", 1, 29), ("not", 1, 53), ("home", 1, 58)],
        );
    }

    #[test]
    fn a_byte_order_mark_is_no_character() {
        expect("\u{FEFF}first".as_bytes(), &[("first", 1, 1)]);
    }

    #[test]
    fn parts_know_where_they_start() {
        let all: Vec<_> = parts("über\u{2011}all-x").collect();
        assert_eq!(all, [(0, 0, "über"), (8, 5, "all"), (12, 9, "x")]);
    }

    #[test]
    fn digits_and_single_letters_are_not_looked_up() {
        for (part, checked) in
            [("a", false), ("v3", false), ("x_y", false), ("ad", true), ("é", false), ("", false)]
        {
            assert_eq!(is_checked(part), checked, "{part}");
        }
    }

    /// Folding replaces typographic apostrophes and drops soft hyphens.
    #[test]
    fn folding_normalises_apostrophes_and_soft_hyphens() {
        assert_eq!(folded("don’t\u{2010}co\u{AD}operate"), "don't-cooperate");
    }
}
