//! Dictionary files: which there are, and the words in them.
//!
//! Three formats: WordNet's `index.*` (the first field of a line is the lemma; the licence's lines
//! start with blanks), WordNet's `*.exc` (irregular forms; the first field), and plain lists with
//! one word a line. WordNet writes the blanks of a collocation as `_`.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::UNIX_EPOCH;

use crate::error::SpellError;
use crate::layout::WORD_BYTES_MAX;
use crate::table::Stamp;

/// All roots of this program start with it.
pub const ROOT_PREFIX: &str = "spellcheck/";

/// How the words stand in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The first field of each line.
    WordNet,
    /// Each line.
    WordList,
}

impl Format {
    /// The format that a file's name promises, if it is a dictionary's.
    pub fn of(name: &str) -> Option<Format> {
        const PARTS: [&str; 4] = ["noun", "verb", "adj", "adv"];
        match name.split_once('.') {
            Some(("index", part)) if PARTS.contains(&part) => Some(Format::WordNet),
            Some((part, "exc")) if PARTS.contains(&part) => Some(Format::WordNet),
            Some(_) => None,
            None => Some(Format::WordList),
        }
    }
}

/// A dictionary file.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its path.
    pub path: String,
    /// Name of its table's root.
    pub root: String,
    /// How its words stand.
    pub format: Format,
    /// What it is now.
    pub stamp: Stamp,
}

impl Source {
    /// The dictionaries at the given paths, each a directory or a file, ordered by name.
    ///
    /// # Errors
    /// A path that cannot be read or has no dictionary, and two files of the same name.
    pub fn find(paths: &[String]) -> Result<Vec<Source>, SpellError> {
        let mut found: Vec<Source> = Vec::new();
        for path in paths {
            let before = found.len();
            if stat(path)?.is_dir() {
                for name in names_in(path)? {
                    found.extend(Source::at(
                        &format!("{}/{name}", path.trim_end_matches('/')),
                        &name,
                    )?);
                }
            } else {
                let name =
                    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path);
                found.extend(Source::at(path, name)?);
            }
            if found.len() == before {
                return Err(SpellError::EmptyDirectory { path: path.clone() });
            }
        }
        found.sort_unstable_by(|a, b| a.root.cmp(&b.root));
        if let Some([first, second]) = found.array_windows().find(|[a, b]| a.root == b.root) {
            return Err(SpellError::SameName {
                name: first.root[ROOT_PREFIX.len()..].to_owned(),
                first: first.path.clone(),
                second: second.path.clone(),
            });
        }
        Ok(found)
    }

    fn at(path: &str, name: &str) -> Result<Option<Source>, SpellError> {
        let Some(format) = Format::of(name) else { return Ok(None) };
        let metadata = stat(path)?;
        let changed =
            metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let stamp = Stamp {
            bytes: metadata.len(),
            mtime_ns: changed.map_or(0, |since| since.as_nanos() as u64),
        };
        Ok(Some(Source {
            path: path.to_owned(),
            root: format!("{ROOT_PREFIX}{name}"),
            format,
            stamp,
        }))
    }

    /// The words from byte `start` on, which must be the start of a line.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn words(&self, start: u64) -> Result<Words<File>, SpellError> {
        let failed = |source| SpellError::Read { path: self.path.clone(), source };
        let mut file = File::open(&self.path).map_err(failed)?;
        if start > 0 {
            file.seek(SeekFrom::Start(start)).map_err(failed)?;
        }
        Ok(Words::new(file, self.format, start))
    }
}

fn stat(path: &str) -> Result<fs::Metadata, SpellError> {
    fs::metadata(path).map_err(|source| SpellError::Read { path: path.to_owned(), source })
}

/// Regular files only: a link in a directory of dictionaries is another name of one of them.
fn names_in(directory: &str) -> Result<Vec<String>, SpellError> {
    let failed = |source| SpellError::Read { path: directory.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_file()
            && let Ok(name) = entry.file_name().into_string()
        {
            names.push(name);
        }
    }
    Ok(names)
}

/// Bytes per read: large enough that the crossings into the host do not count, small enough to stay
/// cached.
const BUFFER_BYTES: usize = 256 << 10;

/// The words of a source, one by one.
pub struct Words<R> {
    input: R,
    format: Format,
    buffer: Vec<u8>,
    at: usize,
    end: usize,
    /// Offset in the source of the buffer's start.
    offset: u64,
    /// The word, where it must differ from the file's bytes.
    joined: [u8; WORD_BYTES_MAX],
}

impl<R: Read> Words<R> {
    /// Reads words from `input`, whose first byte is at `offset` of the source.
    pub fn new(input: R, format: Format, offset: u64) -> Self {
        let buffer = vec![0; BUFFER_BYTES];
        Words { input, format, buffer, at: 0, end: 0, offset, joined: [0; WORD_BYTES_MAX] }
    }

    /// Offset in the source after the line of the last word.
    pub fn bytes_done(&self) -> u64 {
        self.offset + self.at as u64
    }

    /// The next word, or `None` at the end. Lines without a word and words of more than 255 bytes
    /// are passed over.
    ///
    /// # Errors
    /// Reading.
    #[inline]
    pub fn next_word(&mut self) -> std::io::Result<Option<&[u8]>> {
        loop {
            let line = match memchr::memchr(b'\n', &self.buffer[self.at..self.end]) {
                Some(length) => {
                    let line = self.at..self.at + length;
                    self.at = line.end + 1;
                    line
                }
                None => match self.refill()? {
                    Some(line) => line,
                    None => return Ok(None),
                },
            };
            let word = match self.format {
                Format::WordList => {
                    line.start..line.start + self.buffer[line].trim_ascii_end().len()
                }
                Format::WordNet => {
                    let length =
                        memchr::memchr(b' ', &self.buffer[line.clone()]).unwrap_or(line.len());
                    line.start..line.start + length
                }
            };
            if word.is_empty() || word.len() > WORD_BYTES_MAX {
                continue;
            }
            if self.format == Format::WordNet && self.buffer[word.clone()].contains(&b'_') {
                let joined = &mut self.joined[..word.len()];
                for (to, from) in joined.iter_mut().zip(&self.buffer[word]) {
                    *to = if *from == b'_' { b' ' } else { *from };
                }
                return Ok(Some(joined));
            }
            return Ok(Some(&self.buffer[word]));
        }
    }

    /// Reads until the buffer holds a whole line and returns it; the last one may lack its newline.
    /// A line that fills the buffer is returned in pieces.
    #[cold]
    fn refill(&mut self) -> std::io::Result<Option<core::ops::Range<usize>>> {
        self.buffer.copy_within(self.at..self.end, 0);
        self.offset += self.at as u64;
        self.end -= self.at;
        self.at = 0;
        loop {
            let read = match self.input.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            let fresh = self.end;
            self.end += read;
            if let Some(length) = memchr::memchr(b'\n', &self.buffer[fresh..self.end]) {
                self.at = fresh + length + 1;
                return Ok(Some(0..fresh + length));
            }
            if read == 0 || self.end == self.buffer.len() {
                self.at = self.end;
                return Ok((self.end > 0).then_some(0..self.end));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands out a few bytes at a time.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn words(text: &str, format: Format, step: usize) -> Vec<(String, u64)> {
        let mut words = Words::new(Trickle(text.as_bytes(), step), format, 0);
        let mut all = Vec::new();
        while let Some(word) = words.next_word().unwrap() {
            let word = String::from_utf8(word.to_vec()).unwrap();
            all.push((word, words.bytes_done()));
        }
        all
    }

    /// A WordNet line gives its first field, with blanks for underscores.
    #[test]
    fn wordnet_line_gives_its_first_field() {
        let text = "  1 This software\n  2 \n'tween_decks r 1 0\nabbey n 3\nad_hoc";
        for step in [1, 7, 1000] {
            let expected = [("'tween decks", 42), ("abbey", 52), ("ad hoc", 58)]
                .map(|(word, at)| (word.to_owned(), at));
            assert_eq!(words(text, Format::WordNet, step), expected);
        }
    }

    /// A word list gives whole lines without carriage returns and skips empty lines.
    #[test]
    fn list_gives_whole_nonempty_lines() {
        let text = "A\r\n\nBöhm's\nzoo_zoo\n";
        let expected =
            [("A", 3), ("Böhm's", 12), ("zoo_zoo", 20)].map(|(word, at)| (word.to_owned(), at));
        assert_eq!(words(text, Format::WordList, 3), expected);
    }

    #[test]
    fn reading_from_any_word_on_gives_the_rest() {
        let text = "one\ntwo\n\nthree\nfour";
        let all = words(text, Format::WordList, 4);
        for (index, (_, offset)) in all.iter().enumerate() {
            let rest = words(&text[*offset as usize..], Format::WordList, 4);
            let rest: Vec<_> = rest.into_iter().map(|(word, at)| (word, at + offset)).collect();
            assert_eq!(rest, all[index + 1..]);
        }
    }

    /// A line longer than the buffer is no word and does no harm.
    #[test]
    fn overlong_line_is_no_word() {
        let text = format!("short\n{}\nafter\n", "x".repeat(BUFFER_BYTES + 1000));
        let found: Vec<_> =
            words(&text, Format::WordList, 100_000).into_iter().map(|word| word.0).collect();
        assert_eq!(found.first().map(String::as_str), Some("short"));
        assert_eq!(found.last().map(String::as_str), Some("after"));
    }

    #[test]
    fn names_tell_what_is_a_dictionary() {
        let cases = [
            ("index.noun", Some(Format::WordNet)),
            ("adv.exc", Some(Format::WordNet)),
            ("american-english-huge", Some(Format::WordList)),
            ("data.noun", None),
            ("index.sense", None),
            ("cntlist.rev", None),
            ("README.select-wordlist", None),
        ];
        for (name, format) in cases {
            assert_eq!(Format::of(name), format, "{name}");
        }
    }
}
