//! `holdfast run --report`: how a run ended, as JSON in a file of its own.
//!
//! An exit code cannot say it: an applet may end with 124 by itself, and may write to standard
//! error whatever Holdfast would. So the report goes where the applet cannot write, and names what
//! ended the run.
//!
//! Invariants:
//! - The file is made before the applet starts: a report that cannot be written is known before
//!   there is something to report.
//! - No directory through which the report is reached is one that the applet may write to: there it
//!   could put a report of its own in its place.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use holdfast_applet::{
    AppletError, DirGrant, End, Failure as AppletFailure, FailureKind, Metrics, PathAccess,
};
use holdfast_sys::file::shown_options;
use serde::Serialize;

use holdfast_command::exit::{Failure, host, usage};
use holdfast_command::output::{json_text, shown};

/// Symbolic links that the kernel follows in one path.
const LINKS_MAX: u32 = 40;

/// What ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Cause {
    /// The applet itself; `status` is its own.
    Exited,
    /// A limit of time: `--timeout`, `--cpu-time`, or the time to compile.
    TimeLimit,
    /// A trap, a signal, or a limit other than of time.
    Crashed,
    /// A system call that it may not make.
    Violation,
    /// The caller stopped it.
    Cancelled,
    /// It was not started: there is no such file, it cannot be loaded, or what it was to get is
    /// refused.
    NotStarted,
    /// The host or the heap.
    HostFailed,
}

#[derive(Debug, Serialize)]
struct Report<'r> {
    end: Cause,
    /// Of this command.
    exit_code: u8,
    /// The applet's own.
    status: Option<i32>,
    /// What ended a native applet.
    signal: Option<&'static str>,
    /// What this command says on standard error.
    message: Option<&'r str>,
    cost: Option<Cost>,
}

#[derive(Debug, Serialize)]
struct Cost {
    start_seconds: f64,
    wall_seconds: f64,
    cpu_seconds: f64,
    peak_memory_bytes: u64,
    heap_backed_bytes: u64,
    network_refusals: u64,
}

impl Cost {
    fn of(metrics: &Metrics) -> Cost {
        Cost {
            start_seconds: metrics.start_time.as_secs_f64(),
            wall_seconds: metrics.wall_time.as_secs_f64(),
            cpu_seconds: metrics.cpu_time.as_secs_f64(),
            peak_memory_bytes: metrics.peak_memory_bytes,
            heap_backed_bytes: metrics.heap_backed_bytes,
            network_refusals: metrics.network_refusals,
        }
    }
}

/// The file for a report, if one was asked for.
pub struct EndReport(Option<(PathBuf, File)>);

impl EndReport {
    /// Makes the file, in place of one that is there. `granted` are the directories of the applet.
    pub fn create(path: Option<&Path>, granted: &[DirGrant]) -> Result<EndReport, Failure> {
        let Some(path) = path else { return Ok(EndReport(None)) };
        refuse_within(path, granted)?;
        let file = shown_options().write(true).create(true).truncate(true).open(path);
        match file {
            Ok(file) => Ok(EndReport(Some((path.to_owned(), file)))),
            Err(error) => Err(host(format!(
                "cannot make the report {}: {error}; choose another place after --report",
                path.display()
            ))),
        }
    }

    /// It ended by itself. An applet that only serves calls does so, too, with a message that says
    /// so.
    pub fn exited(
        self,
        exit_code: u8,
        status: i32,
        metrics: &Metrics,
        message: Option<&str>,
    ) -> Result<(), Failure> {
        let cost = Some(Cost::of(metrics));
        let end = Cause::Exited;
        self.write(&Report { end, exit_code, status: Some(status), signal: None, message, cost })
    }

    /// It ended by itself, and its heap could not be closed.
    pub fn not_kept(self, told: &Failure, status: i32, metrics: &Metrics) -> Result<(), Failure> {
        self.write(&Report {
            end: Cause::HostFailed,
            exit_code: told.code,
            status: Some(status),
            signal: None,
            message: Some(&told.message),
            cost: Some(Cost::of(metrics)),
        })
    }

    /// It was started, or nearly, and had another end.
    pub fn failed(self, told: &Failure, error: &AppletError) -> Result<(), Failure> {
        let end = match error.kind() {
            FailureKind::NotFound | FailureKind::CannotLoad => Cause::NotStarted,
            FailureKind::Trap if told.code == holdfast_command::exit::HOST_FAILED => {
                Cause::HostFailed
            }
            FailureKind::Trap => Cause::Crashed,
            FailureKind::PolicyViolation => Cause::Violation,
            FailureKind::TimeLimit => Cause::TimeLimit,
            FailureKind::Cancelled => Cause::Cancelled,
            _ => Cause::HostFailed,
        };
        let (signal, status) = match &error.failure {
            AppletFailure::Ended { end: End::Signal { name, .. } } => (Some(*name), None),
            AppletFailure::NotServing { status } => (None, Some(*status)),
            _ => (None, None),
        };
        let cost = Some(Cost::of(&error.metrics));
        let message = Some(told.message.as_str());
        self.write(&Report { end, exit_code: told.code, status, signal, message, cost })
    }

    /// It was not started.
    pub fn not_started(self, told: &Failure) -> Result<(), Failure> {
        let message = Some(told.message.as_str());
        self.write(&Report {
            end: Cause::NotStarted,
            exit_code: told.code,
            status: None,
            signal: None,
            message,
            cost: None,
        })
    }

    fn write(self, report: &Report<'_>) -> Result<(), Failure> {
        let Some((path, mut file)) = self.0 else { return Ok(()) };
        let text = json_text(report)?;
        file.write_all(text.as_bytes()).map_err(|error| {
            host(format!(
                "cannot write the report {}: {error}; free some room there",
                path.display()
            ))
        })
    }
}

/// Refuses a report that the applet could replace or write to. Nothing is made or changed.
fn refuse_within(path: &Path, granted: &[DirGrant]) -> Result<(), Failure> {
    let writable = |grant: &&DirGrant| grant.access == PathAccess::ReadWrite;
    for grant in granted.iter().filter(writable) {
        // A directory that is not there is refused with the other arguments.
        let Ok(directory) = grant.host.canonicalize() else { continue };
        let passed = directories_to(path).map_err(|error| {
            host(format!("cannot find where the report {} would be: {error}", path.display()))
        })?;
        if passed.iter().any(|passed| passed.starts_with(&directory)) {
            return Err(usage(format!(
                "the applet could replace the report {}: it is in the directory {}, or reached through it, and --dir lets the \
                 applet write there; choose a place outside of it after --report, or grant reading only (`:ro`)",
                shown(path),
                shown(&directory)
            )));
        }
    }
    Ok(())
}

/// The directories, without symbolic links, in which the kernel looks for the parts of a path: in
/// each of them another file or link could be put in the place of the next part.
fn directories_to(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut at = if path.is_absolute() {
        PathBuf::from("/")
    } else {
        std::env::current_dir()?.canonicalize()?
    };
    let mut passed = Vec::new();
    walk(path, &mut at, &mut passed, &mut 0);
    Ok(passed)
}

/// Goes on from the directory `at`, along what need not exist.
fn walk(path: &Path, at: &mut PathBuf, passed: &mut Vec<PathBuf>, links: &mut u32) {
    for part in path.components() {
        match part {
            Component::RootDir => *at = PathBuf::from("/"),
            Component::ParentDir => _ = at.pop(),
            Component::Normal(name) => {
                passed.push(at.clone());
                let named = at.join(name);
                match named.read_link() {
                    Ok(target) if *links < LINKS_MAX => {
                        *links += 1;
                        walk(&target, at, passed, links);
                    }
                    _ => *at = named,
                }
            }
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use holdfast_command::exit::USAGE;

    use super::*;

    /// A report that the applet could replace is refused before the file is touched, however it is
    /// reached.
    ///
    /// Guarantee: sandbox/own-status
    #[test]
    fn report_in_a_writable_directory_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        for directory in ["in", "in/deep", "out", "in-front"] {
            std::fs::create_dir(at(directory)).unwrap();
        }
        std::fs::write(at("in/old"), "as it was").unwrap();
        // A link into it, one out of it, and ones that lead nowhere yet.
        symlink(at("in/old"), at("out/to-old")).unwrap();
        symlink("../in/new", at("out/to-new")).unwrap();
        symlink(at("out"), at("in/out")).unwrap();
        symlink(at("in"), at("alias")).unwrap();
        symlink("loop", at("out/loop")).unwrap();
        let grant = |directory: &str, access: &str| {
            format!("{}::/d{access}", at(directory).display()).parse::<DirGrant>().unwrap()
        };
        let refused = [
            "in/new",
            "in/old",
            "in/deep/new",
            "out/../in/new",
            "alias/new",
            "out/to-old",
            "out/to-new",
            "in/out/new",
        ];
        for granted in ["in", "alias"] {
            for path in refused {
                let created = EndReport::create(Some(&at(path)), &[grant(granted, "")]);
                let Err(failure) = created else { panic!("{path}") };
                assert_eq!(failure.code, USAGE, "{path}: {}", failure.message);
                assert!(failure.message.contains("--report"), "{path}: {}", failure.message);
            }
        }
        assert!(!at("in/new").exists() && !at("out/new").exists());
        assert_eq!(std::fs::read_to_string(at("in/old")).unwrap(), "as it was");
        for path in ["out/end.json", "in/../end.json", "in-front/end.json"] {
            let granted = [grant("in", ""), grant("out", ":ro"), grant("none", "")];
            assert!(EndReport::create(Some(&at(path)), &granted).is_ok(), "{path}");
            assert!(at(path).exists(), "{path}");
        }
        assert!(EndReport::create(Some(&at("in/new")), &[grant("in", ":ro")]).is_ok());
        let looping = EndReport::create(Some(&at("out/loop")), &[grant("in", "")]);
        assert!(looping.is_err_and(|failure| failure.code != USAGE));
    }
}
