//! `holdfast trace`: where the time of programs' system calls goes.
//!
//! [`measure`] makes traces, [`show`] prints them.

mod measure;
mod show;

use holdfast_trace::{Ending, Recording, RecordingError, TraceError};

use crate::exit::{BAD_FILE, DENIED, Failure, HOST_FAILED, NO_APPLET, NOT_FOUND, NOT_LOADABLE, OTHER, USAGE};
use crate::output::print;
use crate::trace_args::{TraceCommand, TraceReportArgs};

pub fn run(command: TraceCommand) -> Result<u8, Failure> {
    match command {
        TraceCommand::Run(options) => measure::run(options),
        TraceCommand::Attach(options) => measure::attach(options),
        TraceCommand::Report(options) => report(&options),
    }
}

/// Reads a recording as far as it is good.
fn report(options: &TraceReportArgs) -> Result<u8, Failure> {
    let mut recording = Recording::open(&options.file)?;
    let mut table = show::Table::new(options.show.by);
    for event in &mut recording {
        table.add(&event?);
    }
    let file = options.file.display();
    match recording.ending() {
        Some(Ending::Torn { at_byte }) => {
            eprintln!("holdfast: {file} is damaged from byte {at_byte} on; this is what is before that");
        }
        Some(Ending::Unfinished) => {
            eprintln!(
                "holdfast: {file} was not finished: its tracer was killed, or is still at work; this is what it has"
            );
        }
        _ => {}
    }
    show::write(&table, recording.about(), &options.show, print)?;
    Ok(0)
}

/// Exit codes of all but `run`.
impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Failure {
        let code = match &error {
            TraceError::NoProcess { .. } | TraceError::NoCgroup { .. } | TraceError::NoProgram { .. } => {
                NOT_FOUND
            }
            TraceError::AttachDenied { .. } => DENIED,
            TraceError::NoCpu { .. } => USAGE,
            _ => OTHER,
        };
        Failure::new(code, error)
    }
}

/// Exit codes of `run`, as shells have them.
fn failure_of_run(error: &TraceError) -> Failure {
    let code = match error {
        TraceError::NoProgram { .. } => NO_APPLET,
        TraceError::NotExecutable { .. } => NOT_LOADABLE,
        TraceError::NoCpu { .. } => USAGE,
        _ => HOST_FAILED,
    };
    Failure::new(code, error)
}

impl From<RecordingError> for Failure {
    fn from(error: RecordingError) -> Failure {
        let code = match &error {
            RecordingError::Foreign { .. }
            | RecordingError::Newer { .. }
            | RecordingError::Damaged { .. } => BAD_FILE,
            RecordingError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => NOT_FOUND,
            _ => OTHER,
        };
        Failure::new(code, error)
    }
}
