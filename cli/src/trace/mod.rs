//! `holdfast trace`: where the time of programs' system calls goes.
//!
//! [`measure`] makes traces, [`collect`] sums them up and shows them, [`compare`] sets them beside each other.

mod collect;
mod compare;
mod crossing;
mod measure;
mod terminal;

use holdfast_trace::{RecordingError, StopFlag, TraceError};

use crate::exit::{BAD_FILE, DENIED, Failure, HOST_FAILED, NO_APPLET, NOT_FOUND, NOT_LOADABLE, OTHER, USAGE};
use crate::trace_args::TraceCommand;

pub fn run(command: TraceCommand) -> Result<u8, Failure> {
    // A limit on the size of files is an error of the file that reaches it, told with the rest, and not the end of the
    // tracer. Programs that are started have the signal as usual.
    measure::catch(&[signal_hook::consts::SIGXFSZ], &StopFlag::default(), OTHER)?;
    match command {
        TraceCommand::Run(options) => measure::run(options),
        TraceCommand::Attach(options) => measure::attach(options),
        TraceCommand::Report(options) => compare::report(&options),
        TraceCommand::Diff(options) => compare::diff(&options),
        TraceCommand::Matrix(options) => compare::matrix(options),
        TraceCommand::Import(options) => compare::import(&options),
    }
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
            RecordingError::Io { source, .. }
            | RecordingError::Incomplete { source, .. }
            | RecordingError::Unconfirmed { source, .. } => collect::code_of_write(source),
            _ => OTHER,
        };
        Failure::new(code, error)
    }
}
