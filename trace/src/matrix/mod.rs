//! One program on several platforms, again and again: which calls it makes and what they cost, on
//! each.
//!
//! Repetitions take turns, so that what changes on the machine over time meets all platforms alike.
//! Each run begins in a new, empty directory, with files out of memory where the kernel lets us.
//!
//! Invariants: a platform's preparation is not traced. What could not be done (caches, runs that
//! failed) is in the notes.

pub mod document;
mod machine;
mod platform;
mod show;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub use document::Matrix;
pub use platform::{MadeFileSystem, PlatformPlace, PlatformSpec};
pub use show::terminal;

use document::{FORMAT, Platform};
use holdfast_sys::counted::counted;
use machine::{ProcessorTime, Shares};
use platform::Ready;

use crate::diff::{Diff, Runs};
use crate::report::Report;
use crate::{End, TraceError};

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The platforms to run on.
    pub platforms: Vec<PlatformSpec>,
    /// How often on each.
    pub repetitions: u32,
    /// How often on each before that, without counting.
    pub warm_ups: u32,
    /// A command for the shell that fills the new directory before each run.
    pub set_up: Option<String>,
    /// Whether files are dropped from memory before each run.
    pub drop_caches: bool,
    /// How large a file system is that is made for the run.
    pub image_bytes: u64,
}

/// Why there is no matrix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MatrixError {
    /// A directory cannot be used.
    #[error("cannot use the directory {}: {source}; give one that is there and can be written to", path.display())]
    Directory {
        /// The path.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// Only root makes file systems.
    #[error(
        "only root can make a file system of kind {kind} for the run; run this as root, or give a directory on one: {kind}=DIRECTORY"
    )]
    NotRoot {
        /// The kind of file system.
        kind: &'static str,
    },
    /// A tool of the system failed.
    #[error("{program} failed for {kind}: {why}; it is in the package {package}")]
    Tool {
        /// The tool.
        program: String,
        /// For what kind of file system.
        kind: &'static str,
        /// Where the tool comes from.
        package: &'static str,
        /// What it said.
        why: String,
    },
    /// The set-up failed.
    #[error("the set-up `{command}` failed on {platform}: {why}; nothing was measured after that")]
    SetUp {
        /// As it was given.
        command: String,
        /// The name of the platform.
        platform: String,
        /// How it ended.
        why: String,
    },
    /// Something else of the disk.
    #[error("cannot {step} {}: {source}", path.display())]
    Io {
        /// The step, as a verb.
        step: &'static str,
        /// The path.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// The program cannot be traced.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A person stopped it.
    #[error("stopped; the runs so far are too few for a report")]
    Stopped,
}

impl MatrixError {
    fn io(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> MatrixError {
        let path = path.to_owned();
        move |source| MatrixError::Io { step, path, source }
    }
}

/// One traced run.
#[derive(Debug)]
pub struct Run {
    /// What it came to.
    pub report: Report,
    /// How the program ended.
    pub end: Option<End>,
}

/// Does it. `trace` runs the program in the directory that it is given; it is called on this
/// thread, whose mounts no other process sees. `told` gets a line before each run.
///
/// # Errors
/// A platform cannot be made, the set-up fails, or the program cannot be traced.
pub fn run(
    plan: &Plan,
    trace: &mut dyn FnMut(&Path) -> Result<Run, MatrixError>,
    told: &mut dyn FnMut(&str),
) -> Result<Matrix, MatrixError> {
    if plan.platforms.iter().any(|spec| matches!(spec.place, PlatformPlace::Made(_)))
        && rustix::process::geteuid().is_root()
    {
        holdfast_sys::mounts::leave_shared()
            .map_err(MatrixError::io("have mounts of its own", Path::new("/proc/self/ns/mnt")))?;
    }
    let platforms = plan.platforms.iter().map(|spec| Ready::prepare(spec, plan.image_bytes));
    let platforms = platforms.collect::<Result<Vec<_>, _>>()?;
    let mut runs: Vec<_> = platforms
        .iter()
        .map(|ready| Runs { name: ready.name.clone(), reports: Vec::new() })
        .collect();
    let mut around: Vec<Vec<Around>> = vec![Vec::new(); runs.len()];
    let mut notes = Notes::default();
    for round in 0..plan.warm_ups + plan.repetitions {
        for turn in 0..platforms.len() {
            // Another one begins in each round.
            let index = (turn + round as usize) % platforms.len();
            let counts = round >= plan.warm_ups;
            let what = if counts { round - plan.warm_ups + 1 } else { round + 1 };
            let of = if counts { plan.repetitions } else { plan.warm_ups };
            let kind = if counts { "run" } else { "warm-up" };
            told(&format!("{}: {kind} {what} of {of}", platforms[index].name));
            let (report, of_run) = once(plan, &platforms[index], trace, &mut notes)?;
            if counts {
                runs[index].reports.push(report);
                around[index].push(of_run);
            }
        }
    }
    Ok(evaluate(plan, &platforms, &runs, &around, notes))
}

#[derive(Default)]
struct Notes {
    caches: Option<String>,
    failed: Vec<(String, End)>,
}

/// What is kept of a run besides its calls.
#[derive(Clone, Copy, Debug)]
struct Around {
    threads: u64,
    /// Where the machine's processors were meanwhile; `None` where the kernel does not tell.
    shares: Option<Shares>,
}

fn once(
    plan: &Plan,
    platform: &Ready,
    trace: &mut dyn FnMut(&Path) -> Result<Run, MatrixError>,
    notes: &mut Notes,
) -> Result<(Report, Around), MatrixError> {
    let directory = platform.fresh_directory()?;
    if let Some(command) = &plan.set_up {
        set_up(command, platform, directory.path())?;
    }
    let mut dropped = false;
    if plan.drop_caches {
        match drop_caches() {
            Ok(()) => dropped = true,
            Err(error) => {
                notes.caches.get_or_insert(format!(
                    "Files were not dropped from memory before the runs ({error}); only root can have that done."
                ));
            }
        }
    }
    let before = ProcessorTime::now();
    let Run { mut report, end } = trace(directory.path())?;
    let shares = ProcessorTime::now().zip(before).and_then(|(now, before)| now.since(before));
    let around = Around { threads: report.threads.iter().map(|row| row.threads).sum(), shares };
    if let Some(end @ (End::Exited(1..) | End::Killed(_))) = end {
        notes.failed.push((platform.name.clone(), end));
    }
    if dropped {
        "dropped".clone_into(&mut report.source.cache);
    }
    // Nothing of this is compared, and it is most of what a report has.
    report.threads = Vec::new();
    report.processes = Vec::new();
    report.stacks = Vec::new();
    report.unfinished = Vec::new();
    Ok((report, around))
}

fn set_up(command: &str, platform: &Ready, directory: &Path) -> Result<(), MatrixError> {
    let failed = |why| MatrixError::SetUp {
        command: command.to_owned(),
        platform: platform.name.clone(),
        why,
    };
    let mut shell = Command::new("/bin/sh");
    shell.arg("-ec").arg(command).current_dir(directory).stdin(Stdio::null());
    // What it prints is about the preparation, and not the result of this.
    let output = shell.output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(failed(format!(
        "{}: {}",
        output.status,
        text.trim().lines().last().unwrap_or("without a word")
    )))
}

/// Writes back what is not on the disk yet, and has the kernel forget what is.
fn drop_caches() -> io::Result<()> {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3")
}

fn evaluate(
    plan: &Plan,
    platforms: &[Ready],
    runs: &[Runs],
    around: &[Vec<Around>],
    notes: Notes,
) -> Matrix {
    let made = platforms
        .iter()
        .zip(runs)
        .zip(around)
        .map(|((ready, runs), around)| Platform::of(&ready.kind, runs, around));
    let comparisons = match runs.split_first() {
        Some((first, others)) => others.iter().map(|other| Diff::of(first, other)).collect(),
        None => Vec::new(),
    };
    let (scheme, sleep) = runs
        .iter()
        .flat_map(|runs| &runs.reports)
        .map(|report| (report.scheme, report.sleep))
        .next()
        .unwrap_or_default();
    let mut told: Vec<_> = notes.caches.into_iter().collect();
    for runs in runs {
        let failed: Vec<_> = notes.failed.iter().filter(|(name, _)| *name == runs.name).collect();
        if let Some((name, end)) = failed.first() {
            let how = match end {
                End::Exited(status) => format!("with status {status}"),
                End::Killed(signal) => format!("by {}", crate::names::signal(*signal)),
            };
            told.push(format!(
                "{} on {name} ended {how} or the like.",
                counted(failed.len(), "run")
            ));
        }
    }
    let lost: u64 =
        runs.iter().flat_map(|runs| &runs.reports).map(|report| report.source.events_lost).sum();
    if lost > 0 {
        told.push(format!("{} lost; sums are too small by that.", counted(lost, "event")));
    }
    if plan.repetitions < 6 {
        told.push(
            "Fewer than 6 repetitions: medians, of which no interval can be given.".to_owned(),
        );
    }
    Matrix {
        format: FORMAT,
        scheme,
        sleep,
        repetitions: plan.repetitions,
        platforms: made.collect(),
        comparisons,
        notes: told,
    }
}

#[cfg(test)]
mod tests;
