//! `holdfast run --report`: how a run ended, as JSON in a file of its own.
//!
//! An exit code cannot say it: an applet may end with 124 by itself, and may write to standard
//! error whatever Holdfast would. So the report goes where the applet cannot write, and names what
//! ended the run.
//!
//! The file is made before the applet starts: a report that cannot be written is known before there
//! is something to report.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use holdfast_applet::{AppletError, End, Failure as AppletFailure, FailureKind, Metrics};
use holdfast_sys::file::shown_options;
use serde::Serialize;

use holdfast_command::exit::{Failure, host};
use holdfast_command::output::json_text;

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
    /// Makes the file, in place of one that is there.
    pub fn create(path: Option<&Path>) -> Result<EndReport, Failure> {
        let Some(path) = path else { return Ok(EndReport(None)) };
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
