//! Exit codes of the tracer's errors.

use std::io::{self, ErrorKind};

use holdfast_command::exit::{
    BAD_FILE, DENIED, Failure, HOST_FAILED, NO_APPLET, NO_ROOM, NOT_FOUND, NOT_LOADABLE, OTHER,
    USAGE,
};
use holdfast_trace::matrix::MatrixError;
use holdfast_trace::report::WriteError;
use holdfast_trace::{RecordingError, TraceError};

/// Exit codes of all but `run`.
pub(crate) fn of_trace(error: TraceError) -> Failure {
    let code = match &error {
        TraceError::NoProcess { .. }
        | TraceError::NoCgroup { .. }
        | TraceError::NoProgram { .. } => NOT_FOUND,
        TraceError::AttachDenied { .. } => DENIED,
        TraceError::NoCpu { .. } => USAGE,
        _ => OTHER,
    };
    Failure::new(code, error)
}

/// Exit codes of `run`, as shells have them.
pub(crate) fn of_run(error: &TraceError) -> Failure {
    let code = match error {
        TraceError::NoProgram { .. } => NO_APPLET,
        TraceError::NotExecutable { .. } => NOT_LOADABLE,
        TraceError::NoCpu { .. } => USAGE,
        _ => HOST_FAILED,
    };
    Failure::new(code, error)
}

pub(crate) fn of_recording(error: RecordingError) -> Failure {
    let code = match &error {
        RecordingError::Foreign { .. }
        | RecordingError::Newer { .. }
        | RecordingError::Damaged { .. } => BAD_FILE,
        RecordingError::Io { source, .. } if source.kind() == ErrorKind::NotFound => NOT_FOUND,
        RecordingError::Io { source, .. }
        | RecordingError::Incomplete { source, .. }
        | RecordingError::Unconfirmed { source, .. } => code_of_write(source),
        _ => OTHER,
    };
    Failure::new(code, error)
}

pub(crate) fn of_write(error: WriteError) -> Failure {
    Failure::new(code_of_write(&error.source), error)
}

/// The exit code of a write that failed.
pub(crate) fn code_of_write(error: &io::Error) -> u8 {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => NO_ROOM,
        _ => OTHER,
    }
}

pub(crate) fn of_matrix(error: MatrixError) -> Failure {
    match error {
        MatrixError::Trace(error) => of_trace(error),
        MatrixError::Directory { .. } => Failure::new(NOT_FOUND, error),
        MatrixError::NotRoot { .. } => Failure::new(DENIED, error),
        other => Failure::new(OTHER, other),
    }
}
