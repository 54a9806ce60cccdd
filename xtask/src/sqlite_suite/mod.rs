//! SQLite's own test suite, with our VFS as the default one: every file of its permutation
//! `atomic-batch-write`, and its other test programs.
//!
//! Many tests look at database files themselves, whose newest pages are in the pool: those are run
//! once more so that the database releases its file first. What passes is listed
//! (`sqlite/tests/passing.txt`), and the list never gets shorter: a listed file that fails, fails
//! the chore. What does not pass has its reason in `docs/sqlite-suite.md`. Logs are in
//! `sqlite/logs` of the target directory.
//!
//! Invariant: without the source of SQLite nothing is said to have passed.

mod build;
mod files;
mod list;
mod programs;

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;

use crate::failure::{Failure, Result};
use crate::outcome::Outcome;
use crate::workspace::Workspace;

use files::{FileResult, RunMode, Runner};
use list::{Listed, PASSING, REASONS, Verdict};

/// Arguments of `cargo xtask sqlite-suite`.
#[derive(Args, Default)]
pub(crate) struct Arguments {
    /// Runs SQLite without our VFS, for comparison
    #[arg(long)]
    pub(crate) stock: bool,
    /// Adds what passes to the list that never shrinks
    #[arg(long, conflicts_with = "stock")]
    pub(crate) write: bool,
    /// Runs this test file, such as select1; may be given several times
    #[arg(long, value_name = "FILE", value_parser = file_name)]
    pub(crate) only: Vec<String>,
}

fn file_name(text: &str) -> std::result::Result<String, Infallible> {
    Ok(text.trim_end_matches(".test").to_owned())
}

/// Runs the suite and prints what it came to.
pub(crate) fn sqlite_suite(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    match missing(workspace) {
        Some(missing) => Err(Failure::new(missing)),
        None => run(workspace, arguments)?.report(),
    }
}

/// What this machine lacks for it.
pub(crate) fn missing(workspace: &Workspace) -> Option<String> {
    build::missing(workspace)
}

/// The program `speedtest1`, and an optimised library that makes our VFS its default one.
pub(crate) fn speedtest(workspace: &Workspace) -> Result<(PathBuf, PathBuf)> {
    let built = build::build(workspace)?;
    let vfs = build::vfs(workspace, &built, build::Profile::Release)?;
    Ok((built.program("speedtest1"), vfs))
}

/// The same as a part of `./test`.
pub(crate) fn test(workspace: &Workspace) -> Result<Outcome> {
    match missing(workspace) {
        Some(missing) => {
            let not_run = vec![format!("SQLite's own test suite: {missing}")];
            Ok(Outcome { not_run, ..Outcome::default() })
        }
        None => run(workspace, &Arguments::default()),
    }
}

fn run(workspace: &Workspace, arguments: &Arguments) -> Result<Outcome> {
    let built = build::build(workspace)?;
    let vfs = if arguments.stock {
        None
    } else {
        Some(build::vfs(workspace, &built, build::Profile::Debug)?)
    };
    let logs = workspace.target.join("sqlite").join("logs").join(if arguments.stock {
        "stock"
    } else {
        "holdfast"
    });
    let runner = Runner { built: &built, vfs: vfs.as_deref(), logs };
    let mut files = files::selection(&built)?;
    if !arguments.only.is_empty() {
        files.retain(|file| arguments.only.contains(&files::name_of(file)));
    }
    if files.is_empty() {
        return Err(Failure::new("no file of SQLite's selection has such a name"));
    }
    let started = Instant::now();
    let show = |ran: &FileResult| {
        if let Some(why) = &ran.failed {
            println!("{}: {why}", ran.name);
        }
    };
    let listed = if arguments.stock { Listed::default() } else { list::read(&workspace.root)? };
    let ran = runner.run(&files, &|name| listed.get(name).copied().unwrap_or_default(), &show)?;
    let passed = ran.iter().filter(|ran| ran.failed.is_none()).count();
    let tests: u64 = ran.iter().map(|ran| ran.tests).sum();
    println!(
        "{passed} of {} files of SQLite {} pass ({} of them where the database releases its file first), with {tests} tests, in \
         {:.0} s",
        ran.len(),
        version(&built.source),
        ran.iter().filter(|ran| ran.failed.is_none() && ran.way == RunMode::Released).count(),
        started.elapsed().as_secs_f64()
    );
    let mut outcome = match arguments.stock {
        true => Outcome {
            passed: passed as u64,
            failed: (ran.len() - passed) as u64,
            ..Outcome::default()
        },
        false => judged(workspace, &runner, (&files, &listed), ran, arguments)?,
    };
    if arguments.only.is_empty() {
        for (name, failed) in programs::run(&runner, &built)? {
            outcome.passed += u64::from(failed.is_none());
            outcome.failed += u64::from(failed.is_some());
            if let Some(why) = failed {
                println!("FAILED: {name}: {why}");
            }
        }
    }
    Ok(outcome)
}

/// Measures what ran by the list. A listed file that failed gets a second chance, alone: some of
/// them have time limits of their own, which a busy machine does not keep.
fn judged(
    workspace: &Workspace,
    runner: &Runner<'_>,
    (files, listed): (&[PathBuf], &Listed),
    mut ran: Vec<FileResult>,
    arguments: &Arguments,
) -> Result<Outcome> {
    let first = Verdict::of(&ran, listed);
    // What is to be written is tried in the other way, too.
    let more = if arguments.write { first.failing } else { Vec::new() };
    let again = first.lost.into_iter().map(|name| {
        let way = listed.get(&name).copied().unwrap_or_default();
        (name, way)
    });
    for (name, way) in again.chain(more.into_iter().map(|name| (name, RunMode::Released))) {
        let file: Vec<PathBuf> =
            files.iter().filter(|file| files::name_of(file) == name).cloned().collect();
        println!("{name}: once more, alone");
        for again in runner.run(&file, &|_| way, &|_| {})? {
            ran.retain(|one| one.name != again.name);
            ran.push(again);
        }
    }
    let verdict = Verdict::of(&ran, listed);
    for name in &verdict.lost {
        println!("FAILED: {name} passed so far; {} has what it says", runner.logs.display());
    }
    let nameless = list::without_reason(&workspace.root, &verdict.failing)?;
    for name in &nameless {
        println!("FAILED: {name} does not pass, and {REASONS} does not say why");
    }
    if !verdict.gained.is_empty() {
        let names: Vec<&str> = verdict.gained.iter().map(|(name, _)| name.as_str()).collect();
        println!("pass, and are not in {PASSING}: {}", names.join(" "));
        if arguments.write {
            list::add(&workspace.root, listed, &verdict.gained)?;
        }
    }
    let failed = (verdict.lost.len() + nameless.len()) as u64;
    Ok(Outcome {
        passed: (verdict.kept + verdict.gained.len()) as u64,
        failed,
        ..Outcome::default()
    })
}

fn version(source: &Path) -> String {
    std::fs::read_to_string(source.join("VERSION")).unwrap_or_default().trim().to_owned()
}
