//! How a run fails, and what became of the heap.
#![forbid(unsafe_code)]

use std::fmt;
use std::io;
use std::path::PathBuf;

use holdfast_region::{CloseReport, RegionError};
use holdfast_wasm::{Metrics, WasmError};

use crate::heap_recovery::{Recovery, RecoveryError};

/// A run without an exit status. The heap, if there was one, is closed.
#[derive(Debug)]
#[non_exhaustive]
pub struct AppletError {
    /// Why there is no exit status.
    pub failure: Failure,
    /// What the run cost up to there.
    pub metrics: Metrics,
    /// What became of the heap; `None` when the applet had none.
    pub heap: Option<HeapAfterFailure>,
    /// Captured standard output.
    pub stdout: Vec<u8>,
    /// Captured standard error.
    pub stderr: Vec<u8>,
}

/// Why an applet has no exit status.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The file is a native program.
    #[error("{}: native applets are not supported by this build yet; build it for wasm32-wasip1", path.display())]
    Native {
        /// The file.
        path: PathBuf,
    },
    /// The WebAssembly sandbox says why.
    #[error(transparent)]
    Wasm(#[from] WasmError),
}

/// What failed, for callers that only branch (exit codes, retries).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// The applet's file does not exist.
    NotFound,
    /// It cannot be loaded: another format, a missing import, no entry point.
    CannotLoad,
    /// It did something forbidden, or used up what it was given other than time.
    Trap,
    /// It ran longer than it was allowed to.
    TimeLimit,
    /// The host or the heap failed.
    Host,
}

/// What became of the heap after a failed run.
#[derive(Debug)]
#[non_exhaustive]
pub struct HeapAfterFailure {
    /// The name of the heap.
    pub name: String,
    /// Whether unfinished changes were rolled back; `None` when the run had changed nothing.
    pub recovery: Option<Result<Recovery, RecoveryError>>,
    /// The checkpoint that closing makes.
    pub close: Result<CloseReport, RegionError>,
    /// A failure of the heap that the applet was told only as a number.
    pub error: Option<RegionError>,
}

impl AppletError {
    /// What failed, for callers that only branch.
    pub fn kind(&self) -> FailureKind {
        match &self.failure {
            Failure::Native { .. } => FailureKind::CannotLoad,
            Failure::Wasm(error) => match error {
                WasmError::CannotRead { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                    FailureKind::NotFound
                }
                WasmError::CannotRead { .. }
                | WasmError::NotWasm { .. }
                | WasmError::Invalid { .. }
                | WasmError::TooComplex { .. }
                | WasmError::UnknownImport { .. }
                | WasmError::NoStart { .. }
                | WasmError::MemoryLimit { .. }
                | WasmError::TableLimit { .. } => FailureKind::CannotLoad,
                WasmError::Trap(_)
                | WasmError::OutOfFuel { .. }
                | WasmError::HostAccess { .. }
                | WasmError::ReadOnlyHeap { .. } => FailureKind::Trap,
                WasmError::TimeLimit { .. } | WasmError::CompileTimeLimit { .. } => FailureKind::TimeLimit,
                _ => FailureKind::Host,
            },
        }
    }
}

impl fmt::Display for AppletError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.failure)?;
        if let Some(heap) = &self.heap {
            if let Some(Err(error)) = &heap.recovery {
                write!(formatter, "; the heap {:?} was left as it is: {error}", heap.name)?;
            }
            if let Err(error) = &heap.close {
                write!(formatter, "; the heap {:?} could not be closed in order: {error}", heap.name)?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for AppletError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.failure)
    }
}
