//! `spellcheck`: 16 dictionaries and four texts of 16 MB: tables in a heap, against the dictionaries
//! parsed on every start.
//!
//! In WebAssembly the applet parses into its ordinary memory. The native applet cannot (`--volatile`
//! is for addresses of four bytes), so its peer is the same checker without a sandbox. It reads each
//! file as a whole: there is no way with calls for each record, with a buffer, or with mapped files.
//!
//! Dictionaries: WordNet's four indexes and four lists of exceptions; English, British, German,
//! French, Spanish, Italian, Portuguese and Swedish words of Debian's packages. Texts: documentation
//! of Python, in its sources' form, over and over until there are 16 MB of each.

use std::fs;
use std::io::{self, Error};
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_testkit::{Programs, Scratch};

use super::job::Usage;
use super::slow_memory::SPELL_CHECK;
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
    let short =
        scratch.write("short.txt", "Some words of a short text, of which one is wronng.\n")?;
    let short = std::slice::from_ref(&short);
    let (wasm, native) =
        (scratch.programs().applet("spellcheck")?, scratch.programs().native_applet("spellcheck")?);
    let wasm = Job { scratch: &scratch, applet: &wasm, lists: &lists, texts: &texts };
    let native = Job { applet: &native, ..wasm };
    let answer = spell_check(wasm.parsed(&texts))?.out;
    for command in [wasm.kept(true), native.kept(false), native.unsandboxed()?] {
        if spell_check(command)?.out != answer {
            return Err(Error::other("tables in the heap find other words than those in memory"));
        }
    }
    for (key, command) in [
        ("posix_crossings", wasm.parsed(&texts)),
        ("heap_crossings", wasm.kept(false)),
        ("heap_crossings_native", native.kept(false)),
    ] {
        match crossings(&scratch, &command) {
            Ok(count) => {
                let series = Series::from_iter([count]);
                outcome.add(format!("spellcheck_{key}"), Some(series), "", None);
            }
            Err(error) => outcome.missing.push(format!("spellcheck_{key}: {error}")),
        }
    }
    let mut found = Found::default();
    for _ in 0..rounds(runs) {
        found.parsed.add(wasm.parsed(&texts))?;
        found.kept.add(wasm.kept(false))?;
        found.short_parsed.add(wasm.parsed(short))?;
        found.short_kept.add(Job { texts: short, ..wasm }.kept(false))?;
        found.kept_native.add(native.kept(false))?;
        found.unsandboxed.add(native.unsandboxed()?)?;
    }
    found.report(outcome);
    Ok(())
}

/// How often an applet leaves its sandbox in a run of this command: calls of imports in WebAssembly,
/// system calls of a native one. `holdfast trace` counts them.
fn crossings(scratch: &Scratch, command: &Command) -> io::Result<f64> {
    let report = scratch.files().join("crossings.json");
    let mut traced = scratch.holdfast();
    traced.args(["trace", "run", "--sandbox", "--json"]).arg(&report).arg("--");
    traced.arg(command.get_program()).args(command.get_args());
    spell_check(traced)?;
    let report: serde_json::Value = serde_json::from_slice(&fs::read(report)?)?;
    crossings_in(&report).ok_or_else(|| Error::other("the tracer's report has no crossings"))
}

/// The crossings of all applets of a tracer's report.
fn crossings_in(report: &serde_json::Value) -> Option<f64> {
    let mut count = 0.0;
    for applet in report.pointer("/crossings/applets")?.as_array()? {
        for function in applet.get("functions")?.as_array()? {
            count += function.get("crossings")?.as_f64()?;
        }
    }
    (count > 0.0).then_some(count)
}

/// Runs of one kind.
#[derive(Default)]
struct Runs {
    ms: Series,
    switches: Series,
}

impl Runs {
    /// Runs a command once more.
    fn add(&mut self, command: Command) -> io::Result<()> {
        let before = Usage::of_children();
        self.ms.push(spell_check(command)?.wall_ms);
        self.switches.push(Usage::of_children().since(before).switches);
        Ok(())
    }
}

/// Runs of all kinds.
#[derive(Default)]
struct Found {
    parsed: Runs,
    kept: Runs,
    short_parsed: Runs,
    short_kept: Runs,
    kept_native: Runs,
    unsandboxed: Runs,
}

impl Found {
    fn report(self, outcome: &mut Outcome) {
        let mut add = |key: &'static str, series: Series, unit, goal| {
            outcome.add(format!("spellcheck_{key}"), Some(series), unit, goal);
        };
        let Found { parsed, kept, short_parsed, short_kept, kept_native, unsandboxed } = self;
        add("vs_posix", parsed.ms.over(&kept.ms), "x", Some(Goal::AtLeast(5.0)));
        add("short_text_vs_posix", short_parsed.ms.over(&short_kept.ms), "x", None);
        let in_heap = less(&kept.ms, &short_kept.ms);
        let in_memory = less(&parsed.ms, &short_parsed.ms);
        add("vs_ideal", in_heap.over(&in_memory), "x", Some(Goal::AtMost(1.05)));
        let against_unsandboxed = unsandboxed.ms.over(&kept_native.ms);
        add("native_vs_posix_unsandboxed", against_unsandboxed, "x", None);
        for (way, suffix, runs) in [
            ("posix", "", parsed),
            ("heap", "", kept),
            ("heap", "_native", kept_native),
            ("posix", "_unsandboxed", unsandboxed),
        ] {
            let mut add = |what, series, unit| {
                outcome.add(format!("spellcheck_{way}_{what}{suffix}"), Some(series), unit, None);
            };
            add("ms", runs.ms, "ms");
            add("switches", runs.switches, "");
        }
    }
}

/// What a check takes beyond that of a text of one line, which has to find its tables, too: the
/// look-ups and the report.
fn less(texts: &Series, short: &Series) -> Series {
    texts.values().iter().zip(short.values()).map(|(texts, short)| texts - short).collect()
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

    /// The dictionaries into ordinary memory, without a sandbox.
    fn unsandboxed(&self) -> io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(SPELL_CHECK).arg(self.lists).args(self.texts);
        Ok(command)
    }

    /// The tables in the heap, which are built first if that is wanted.
    pub(super) fn kept(&self, builds: bool) -> Command {
        let mut command = self.command();
        // The heap is portable, and this name's: both kinds of the applet may open it.
        command.args(["--heap", HEAP, "--heap-size", "1GiB", "--app", HEAP]);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crossings_of_all_functions_count() {
        let report = serde_json::json!({ "crossings": { "applets": [
            { "functions": [{ "name": "_start", "crossings": 91 }] },
            { "functions": [{ "name": "(start)", "crossings": 5 }, { "name": "add", "crossings": 4 }] },
        ] } });
        assert_eq!(crossings_in(&report), Some(100.0));
        assert_eq!(crossings_in(&serde_json::json!({ "crossings": null })), None);
    }

    /// The ideal run is what the texts take beyond a short one, and no parsing.
    #[test]
    fn parsing_is_not_in_the_ideal_run() {
        let runs =
            |ms: f64| Runs { ms: Series::from_iter([ms]), switches: Series::from_iter([1.0]) };
        let found = Found {
            parsed: runs(900.0),
            kept: runs(600.0),
            short_parsed: runs(400.0),
            short_kept: runs(50.0),
            kept_native: runs(300.0),
            unsandboxed: runs(450.0),
        };
        let mut outcome = Outcome::default();
        found.report(&mut outcome);
        let value = |key: &str| {
            let found = outcome.measurements.iter().find(|found| found.key == key);
            found.map(|found| found.series.median())
        };
        assert_eq!(value("spellcheck_vs_posix"), Some(1.5));
        assert_eq!(value("spellcheck_vs_ideal"), Some(1.1));
        assert_eq!(value("spellcheck_native_vs_posix_unsandboxed"), Some(1.5));
        assert_eq!(value("spellcheck_heap_ms_native"), Some(300.0));
        assert_eq!(value("spellcheck_posix_switches_unsandboxed"), Some(1.0));
    }
}
