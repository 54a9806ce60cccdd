//! The command line.

use crate::builder::DEFAULT_BATCH_WORDS;
use crate::error::SpellError;

/// What `--help` prints.
pub const HELP: &str = "\
spellcheck: reports the words of a text that are in no dictionary, with the nearest one that is

usage: spellcheck [--dict PATH]... [--volatile] [--format text|json] TEXT...

  TEXT             a file in UTF-8, or - for standard input; without one, tables are built and that is all
  --dict PATH      a directory of dictionaries, or one file: WordNet's index.{noun,verb,adj,adv} and *.exc, and
                   word lists (files without a dot in their names). Each file becomes a table in the heap, once;
                   it is made anew when the file changes, and a build that was cut off goes on. When all tables
                   are finished, no --dict is needed.
  --volatile       keep no heap: parse the dictionaries into ordinary memory, in every run
  --format FORMAT  text: FILE:LINE:COLUMN: word -> suggestion (columns in characters, from 1); json: one object
  --forget ROOT    remove a table (or whatever is at that root) from the heap
  --help, --version

for tests and benchmarks:
  --batch N           words per transaction of the build (default 1000)
  --ack               print `ack ROOT WORDS_DONE` after each committed batch
  --verify FILE       build nothing; read the dictionaries again and look up the first WORDS_DONE words of each
                      ROOT that FILE names (lines `ROOT WORDS_DONE` or those of --ack); print `verified N`, or the
                      missing words
  --bench-lookups N   look up N words of the texts and N words that are in no table, in a fixed pseudo-random
                      order, after a pass that is not timed; print `lookup_ns X`, the mean

exit status: 0 no unknown word, 1 some (or missing words), 2 an error
";

/// How the report looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReportFormat {
    /// One line per unknown word.
    #[default]
    Text,
    /// One JSON document.
    Json,
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Check the texts.
    #[default]
    Check,
    /// See `--verify`.
    Verify {
        /// The file with the counts.
        file: String,
    },
    /// See `--bench-lookups`.
    BenchLookups {
        /// Look-ups of each kind.
        count: u32,
    },
    /// See `--forget`.
    Forget {
        /// The root.
        root: String,
    },
    /// See `--help`.
    Help,
    /// See `--version`.
    Version,
}

/// The command line, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What to do.
    pub mode: Mode,
    /// Directories and files with dictionaries.
    pub dictionaries: Vec<String>,
    /// Keep no heap.
    pub volatile: bool,
    /// How the report looks.
    pub format: ReportFormat,
    /// Whether committed batches are printed.
    pub ack: bool,
    /// Words per transaction.
    pub batch_words: u64,
    /// The texts.
    pub texts: Vec<String>,
}

impl Options {
    /// Reads the arguments after the program's name.
    ///
    /// # Errors
    /// [`SpellError::Usage`].
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Options, SpellError> {
        let mut options = Options {
            mode: Mode::Check,
            dictionaries: Vec::new(),
            volatile: false,
            format: ReportFormat::Text,
            ack: false,
            batch_words: DEFAULT_BATCH_WORDS,
            texts: Vec::new(),
        };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            if argument == "--" {
                options.texts.extend(arguments);
                break;
            }
            if argument == "-" || !argument.starts_with('-') {
                options.texts.push(argument);
                continue;
            }
            let (name, attached) = match argument.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (argument.as_str(), None),
            };
            options.take(name, attached, &mut arguments)?;
        }
        options.agree()?;
        Ok(options)
    }

    fn take(
        &mut self,
        name: &str,
        attached: Option<String>,
        arguments: &mut impl Iterator<Item = String>,
    ) -> Result<(), SpellError> {
        let has_value = matches!(
            name,
            "--dict" | "--format" | "--forget" | "--batch" | "--verify" | "--bench-lookups"
        );
        if !has_value && attached.is_some() {
            return Err(SpellError::usage(["option ", name, " takes no value"].concat()));
        }
        let value = if has_value {
            attached
                .or_else(|| arguments.next())
                .ok_or_else(|| SpellError::usage([name, " needs a value"].concat()))?
        } else {
            String::new()
        };
        match name {
            "--dict" => self.dictionaries.push(value),
            "--volatile" => self.volatile = true,
            "--ack" => self.ack = true,
            "--batch" => self.batch_words = number(name, &value)?,
            "--format" => {
                self.format = match value.as_str() {
                    "text" => ReportFormat::Text,
                    "json" => ReportFormat::Json,
                    _ => return Err(SpellError::usage(["unknown format ", &value].concat())),
                }
            }
            "--forget" => self.mode = Mode::Forget { root: value },
            "--verify" => self.mode = Mode::Verify { file: value },
            "--bench-lookups" => {
                self.mode = Mode::BenchLookups {
                    count: number(name, &value)?.min(u64::from(u32::MAX)) as u32,
                };
            }
            "--help" | "-h" => self.mode = Mode::Help,
            "--version" => self.mode = Mode::Version,
            _ => return Err(SpellError::usage(["unknown option ", name].concat())),
        }
        Ok(())
    }

    /// Whether what was asked for goes together.
    fn agree(&self) -> Result<(), SpellError> {
        let problem = match self.mode {
            Mode::Check if self.texts.is_empty() && self.dictionaries.is_empty() => {
                "no TEXT is given"
            }
            Mode::BenchLookups { .. } if self.texts.is_empty() => "--bench-lookups needs a TEXT",
            Mode::Verify { .. } if self.dictionaries.is_empty() => "--verify needs --dict",
            Mode::Verify { .. } | Mode::Forget { .. } if self.volatile => {
                "--volatile keeps nothing that could be verified or forgotten"
            }
            Mode::Check | Mode::BenchLookups { .. }
                if self.volatile && self.dictionaries.is_empty() =>
            {
                "--volatile needs --dict in every run"
            }
            _ => return Ok(()),
        };
        Err(SpellError::usage(problem))
    }
}

fn number(name: &str, value: &str) -> Result<u64, SpellError> {
    match value.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(SpellError::usage([name, " needs a number above 0, not ", value].concat())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(str::to_owned))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn options_and_texts_may_mix() {
        let options =
            parse("a.txt --dict /d --dict=/e --format json - --batch 7 --ack -- --b").unwrap();
        assert_eq!(options.texts, ["a.txt", "-", "--b"]);
        assert_eq!(options.dictionaries, ["/d", "/e"]);
        assert_eq!(
            (options.format, options.batch_words, options.ack),
            (ReportFormat::Json, 7, true)
        );
    }

    #[test]
    fn conflicting_options_are_refused_with_a_reason() {
        for (line, reason) in [
            ("", "no TEXT is given"),
            ("--volatile x", "--volatile needs --dict"),
            ("--verify f", "--verify needs --dict"),
            ("--bench-lookups 5", "needs a TEXT"),
            ("--batch 0 x", "a number above 0"),
            ("--dict", "--dict needs a value"),
            ("--frob x", "unknown option --frob"),
            ("--ack=1 x", "takes no value"),
            ("--format xml x", "unknown format xml"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(reason) && error.contains("--help"), "{line}: {error}");
        }
    }
}
