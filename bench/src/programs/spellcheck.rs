//! `spellcheck`: 16 dictionaries and four texts of 16 MB in WebAssembly: tables in a heap, against
//! the dictionaries parsed on every start.
//!
//! Dictionaries: WordNet's four indexes and four lists of exceptions; English, British, German,
//! French, Spanish, Italian, Portuguese and Swedish words of Debian's packages. Texts: documentation
//! of Python, in its sources' form, over and over until there are 16 MB of each.

use std::fs;
use std::io::{self, Error};
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_testkit::{Programs, Scratch};

use super::{folder, rounds};
use crate::report::{Goal, Outcome};
use crate::stats::Series;
use crate::timing::spell_check;

/// Names the folder with dictionaries.
const VARIABLE: &str = "HOLDFAST_WORD_LISTS";
/// Names the folder with files of a cache, of which one source has texts.
const TEXTS: &str = "HOLDFAST_CACHE_FILES";
const DICTIONARIES: usize = 16;
const TEXT_BYTES: usize = 16_000_000;
const TEXTS_CHECKED: usize = 4;
const HEAP: &str = "words";

/// The folders with dictionaries, and with the sources of texts; where one is not there, that is
/// said.
///
/// # Errors
/// There are other dictionaries than the suite's.
pub(super) fn folders(outcome: &mut Outcome) -> io::Result<Option<(PathBuf, PathBuf)>> {
    let (Some(lists), Some(sources)) = (folder(VARIABLE), folder(TEXTS)) else {
        outcome.missing.push(format!(
            "dictionaries and texts: `cargo xtask bench programs` gets them from apt, or {VARIABLE} and {TEXTS} name \
             folders"
        ));
        return Ok(None);
    };
    let count = fs::read_dir(&lists)?.count();
    if count != DICTIONARIES {
        return Err(Error::other(format!(
            "{} has {count} dictionaries, and {DICTIONARIES} are needed; remove it, and they are fetched again",
            lists.display()
        )));
    }
    Ok(Some((lists, sources)))
}

pub(super) fn run(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let Some((lists, sources)) = folders(outcome)? else { return Ok(()) };
    let scratch = Scratch::new(Programs::find()?)?;
    let texts = texts(&scratch, &sources, TEXTS_CHECKED, TEXT_BYTES)?;
    let applet = scratch.programs().applet("spellcheck")?;
    let job = Job { scratch: &scratch, applet: &applet, lists: &lists, texts: &texts };
    let answer = spell_check(job.parsed(&texts))?.out;
    if spell_check(job.kept(true))?.out != answer {
        return Err(Error::other("tables in the heap find other words than those in memory"));
    }
    let (mut parsed, mut kept, mut one_parsed, mut one_kept) =
        (Series::default(), Series::default(), Series::default(), Series::default());
    let short =
        scratch.write("short.txt", "Some words of a short text, of which one is wronng.\n")?;
    for _ in 0..rounds(runs) {
        parsed.push(spell_check(job.parsed(&texts))?.wall_ms);
        kept.push(spell_check(job.kept(false))?.wall_ms);
        let short = std::slice::from_ref(&short);
        one_parsed.push(spell_check(job.parsed(short))?.wall_ms);
        one_kept.push(spell_check(Job { texts: short, ..job }.kept(false))?.wall_ms);
    }
    outcome.add("spellcheck_vs_posix", Some(parsed.over(&kept)), "x", Some(Goal::AtLeast(5.0)));
    outcome.add("spellcheck_short_text_vs_posix", Some(one_parsed.over(&one_kept)), "x", None);
    outcome.add("spellcheck_posix_ms", Some(parsed), "ms", None);
    outcome.add("spellcheck_heap_ms", Some(kept), "ms", None);
    Ok(())
}

#[derive(Clone, Copy)]
pub(super) struct Job<'a> {
    pub(super) scratch: &'a Scratch,
    pub(super) applet: &'a Path,
    pub(super) lists: &'a Path,
    pub(super) texts: &'a [PathBuf],
}

impl Job<'_> {
    fn command(&self) -> Command {
        let mut command = self.scratch.holdfast();
        command.arg("run").arg(self.applet).args(["--memory", "2GiB", "--dir"]);
        command.arg(format!("{}:ro", self.scratch.files().display()));
        command
    }

    fn with_lists(&self, command: &mut Command) {
        command.arg("--dir").arg(format!("{}:ro", self.lists.display()));
    }

    /// The dictionaries into ordinary memory.
    pub(super) fn parsed(&self, texts: &[PathBuf]) -> Command {
        let mut command = self.command();
        self.with_lists(&mut command);
        command.args(["--", "--volatile", "--dict"]).arg(self.lists).args(texts);
        command
    }

    /// The tables in the heap, which are built first if that is wanted.
    pub(super) fn kept(&self, builds: bool) -> Command {
        let mut command = self.command();
        command.args(["--heap", HEAP, "--heap-size", "1GiB"]);
        if builds {
            self.with_lists(&mut command);
        }
        command.arg("--");
        if builds {
            command.arg("--dict").arg(self.lists);
        }
        command.args(self.texts);
        command
    }
}

/// So many texts of so many bytes.
pub(super) fn texts(
    scratch: &Scratch,
    sources: &Path,
    count: usize,
    bytes: usize,
) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    collect(&sources.join("python3.11-doc"), &mut files)?;
    files.sort();
    if files.is_empty() {
        return Err(Error::other(format!(
            "there are no texts (*.rst.txt) in {}",
            sources.display()
        )));
    }
    (0..count)
        .map(|number| {
            let mut text = Vec::with_capacity(bytes + (1 << 20));
            for path in files.iter().cycle().skip(number * files.len() / count) {
                if text.len() >= bytes {
                    break;
                }
                text.extend(fs::read(path)?);
            }
            text.truncate(bytes);
            scratch.write(&format!("text-{number}.txt"), text)
        })
        .collect()
}

fn collect(place: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(place)? {
        let entry = entry?;
        let (kind, path) = (entry.file_type()?, entry.path());
        if kind.is_dir() {
            collect(&path, files)?;
        } else if kind.is_file() && path.to_string_lossy().ends_with(".rst.txt") {
            files.push(path);
        }
    }
    Ok(())
}
