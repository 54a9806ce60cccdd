//! The command line.

use std::path::PathBuf;

use crate::error::ProgramError;

/// What `--help` prints.
pub const HELP: &str = "\
programs: the programs of the first paper's evaluation, over several kinds of storage

usage: programs PROGRAM [OPTION...] [NAME...]

  chunks OUTPUT          --bytes N: writes N bytes in chunks of 512
  fasta OUTPUT           --n N: writes DNA sequences of 2N, 3N and 5N characters
  revcomp INPUT OUTPUT   reverses and complements the sequences of a FASTA file
  knucleotide INPUT      counts the frames of the sequence THREE of a FASTA file
  compress               --count N: compresses file-0000 and so on with Snappy, each to snappy-0000 and so on
  verify                 --count N: decompresses them, and compares them with the files
  mail-learn             parses the mails of mails-0 to mails-9 into the structure `model`
  mail-parsed            parses these mails, and prints the category of each mail of `new`
  mail-kept              does the same with the structure, as it lies there
  import NAME...         copies files of --dir into the storage
  digest NAME...         prints size and XXH3 of objects of the storage

  --storage KIND   files, mapped (files that are mapped, or in WebAssembly read, as a whole), heap, or
                   volatile (ordinary memory, into which the inputs are copied from --dir before the time counts)
  --dir DIR        the directory of the files (.)
  --buffer BYTES   of `files`: how much is read and written with a call; 0: each record, or 61 bytes (0)
  --rounds N       does it so often, and prints the time of each (1)

Prints `ns N` for each round: from before the input is opened until the output is finished; `reading_ns N`,
the part of knucleotide in which it reads; `encoding_ns N`, the part of compress in Snappy; `bytes N`, the
size of the output; `crossings N`, the calls that left the program.
";

/// Where objects are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Files.
    Files,
    /// Mapped files.
    Mapped,
    /// The heap.
    Heap,
    /// Ordinary memory.
    Volatile,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// See [`crate::chunks`].
    Chunks,
    /// See [`crate::fasta`].
    Fasta,
    /// See [`crate::revcomp`].
    Revcomp,
    /// See [`crate::knucleotide`].
    Knucleotide,
    /// See [`crate::compress`].
    Compress,
    /// See [`crate::compress::verify`].
    Verify,
    /// See [`crate::mail::learn`].
    MailLearn,
    /// See [`crate::mail::classify_parsed`].
    MailParsed,
    /// See [`crate::mail::classify_kept`].
    MailKept,
    /// Copies files.
    Import,
    /// Prints sums.
    Digest,
}

/// The command line, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What to do.
    pub program: Program,
    /// With which objects.
    pub names: Vec<String>,
    /// Where they are.
    pub kind: Kind,
    /// Of files.
    pub directory: PathBuf,
    /// Of files.
    pub buffer_bytes: usize,
    /// How often.
    pub rounds: usize,
    /// Of `chunks`.
    pub bytes: u64,
    /// Of `fasta`.
    pub n: u64,
    /// Of `compress` and `verify`.
    pub count: u64,
}

/// More than any of these programs needs, and less than overflows.
const NUMBER_MAX: u64 = 1 << 32;

impl Options {
    /// Reads the arguments behind the program's name; `None` when help is wanted.
    ///
    /// # Errors
    /// [`ProgramError::Usage`].
    pub fn parse(
        arguments: impl IntoIterator<Item = String>,
    ) -> Result<Option<Options>, ProgramError> {
        let mut arguments = arguments.into_iter();
        let program = match arguments.next().as_deref() {
            Some("chunks") => Program::Chunks,
            Some("fasta") => Program::Fasta,
            Some("revcomp") => Program::Revcomp,
            Some("knucleotide") => Program::Knucleotide,
            Some("compress") => Program::Compress,
            Some("verify") => Program::Verify,
            Some("mail-learn") => Program::MailLearn,
            Some("mail-parsed") => Program::MailParsed,
            Some("mail-kept") => Program::MailKept,
            Some("import") => Program::Import,
            Some("digest") => Program::Digest,
            Some("--help") => return Ok(None),
            Some(other) => return Err(usage(format!("there is no program {other}"))),
            None => return Err(usage("a program is needed".to_owned())),
        };
        let mut options = Options {
            program,
            names: Vec::new(),
            kind: Kind::Files,
            directory: ".".into(),
            buffer_bytes: 0,
            rounds: 1,
            bytes: 0,
            n: 0,
            count: 0,
        };
        while let Some(argument) = arguments.next() {
            if argument == "--help" {
                return Ok(None);
            }
            if !argument.starts_with("--") {
                check_name(&argument)?;
                options.names.push(argument);
                continue;
            }
            let value =
                arguments.next().ok_or_else(|| usage(format!("{argument} needs a value")))?;
            options.take(&argument, value)?;
        }
        options.agree()?;
        Ok(Some(options))
    }

    fn take(&mut self, option: &str, value: String) -> Result<(), ProgramError> {
        match option {
            "--storage" => {
                self.kind = match value.as_str() {
                    "files" => Kind::Files,
                    "mapped" => Kind::Mapped,
                    "heap" => Kind::Heap,
                    "volatile" => Kind::Volatile,
                    other => return Err(usage(format!("there is no storage {other}"))),
                }
            }
            "--dir" => self.directory = value.into(),
            "--buffer" => self.buffer_bytes = number(option, &value)? as usize,
            "--rounds" => self.rounds = number(option, &value)? as usize,
            "--bytes" => self.bytes = number(option, &value)?,
            "--count" => self.count = number(option, &value)?,
            "--n" => self.n = number(option, &value)?,
            other => return Err(usage(format!("there is no option {other}"))),
        }
        Ok(())
    }

    fn agree(&self) -> Result<(), ProgramError> {
        let (wanted, what) = match self.program {
            Program::Chunks | Program::Fasta => (1, "one name, of the output"),
            Program::Knucleotide => (1, "one name, of the input"),
            Program::Revcomp => (2, "two names, of input and output"),
            Program::Compress | Program::Verify => (0, "no names"),
            Program::MailLearn | Program::MailParsed | Program::MailKept => (0, "no names"),
            Program::Import | Program::Digest if self.names.is_empty() => (1, "names"),
            Program::Import | Program::Digest => (self.names.len(), ""),
        };
        if self.names.len() != wanted {
            return Err(usage(format!("this program takes {what}")));
        }
        match self.program {
            Program::Chunks if self.bytes == 0 => Err(usage("chunks needs --bytes".to_owned())),
            Program::Fasta if self.n == 0 => Err(usage("fasta needs --n".to_owned())),
            Program::Compress | Program::Verify if self.count == 0 => {
                Err(usage("this program needs --count".to_owned()))
            }
            Program::Revcomp if self.names[0] == self.names[1] => {
                Err(usage("input and output must have different names".to_owned()))
            }
            _ if self.rounds == 0 => Err(usage("--rounds must be greater than zero".to_owned())),
            _ => Ok(()),
        }
    }
}

fn usage(complaint: String) -> ProgramError {
    ProgramError::Usage(complaint)
}

/// Names are those of files in the directory, and no paths.
fn check_name(name: &str) -> Result<(), ProgramError> {
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(usage(format!(
            "`{name}` is no name of a file; name one in --dir, without `/`"
        )));
    }
    Ok(())
}

fn number(option: &str, value: &str) -> Result<u64, ProgramError> {
    value.parse().ok().filter(|number| *number <= NUMBER_MAX).ok_or_else(|| {
        usage(format!("{option} takes a number from 0 to {NUMBER_MAX}, and not {value}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Option<Options>, String> {
        Options::parse(text.split_whitespace().map(str::to_owned))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn command_lines_are_understood() {
        let options = parsed("revcomp --storage heap in --rounds 3 out").unwrap().unwrap();
        assert_eq!(options.names, ["in", "out"]);
        assert_eq!((options.kind, options.rounds), (Kind::Heap, 3));
        assert!(parsed("--help").unwrap().is_none() && parsed("fasta --help").unwrap().is_none());
    }

    #[test]
    fn mistakes_are_named() {
        for (line, complaint) in [
            ("", "a program is needed"),
            ("fast", "there is no program fast"),
            ("fasta out", "fasta needs --n"),
            ("fasta --n", "--n needs a value"),
            ("fasta --n -3 out", "--n takes a number from 0 to 4294967296, and not -3"),
            ("fasta --n 5", "this program takes one name, of the output"),
            ("revcomp a a", "input and output must have different names"),
            ("knucleotide ../a", "`../a` is no name of a file"),
            ("chunks a", "chunks needs --bytes"),
            ("compress", "this program needs --count"),
            ("verify a --count 3", "this program takes no names"),
            ("digest", "this program takes names"),
            ("digest a --rounds 0", "--rounds must be greater than zero"),
            ("digest a --storage disk", "there is no storage disk"),
            ("digest a --speed 9", "there is no option --speed"),
        ] {
            let said = parsed(line).unwrap_err();
            assert!(
                said.starts_with(complaint) && said.ends_with("see `programs --help`"),
                "{said}"
            );
        }
    }
}
