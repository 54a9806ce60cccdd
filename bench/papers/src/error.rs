//! What can go wrong between the request for a report and its files.

use std::io;
use std::path::PathBuf;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// Names a suite that no step of the run belongs to.
    #[error("there is no suite {name}; there are: {known}")]
    UnknownSuite {
        /// As it was asked for.
        name: String,
        /// All of them.
        known: String,
    },
    /// The suites are built from source.
    #[error(
        "{directory} is not in Holdfast's source tree, from which the suites are built; run this in it, or name it \
         with --source DIRECTORY"
    )]
    NoSource {
        /// Where it was looked for.
        directory: PathBuf,
    },
    /// The table of papers cannot be used.
    #[error("{path}: {reason}")]
    Papers {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file of an earlier run.
    #[error("{path} cannot be read ({reason}); remove it, or start over with --fresh")]
    Earlier {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Files and processes.
    #[error("{what}: {error}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system says.
        error: io::Error,
    },
}

/// Adds to an error of the system what was being done.
pub(crate) fn while_doing(what: impl Into<String>) -> impl FnOnce(io::Error) -> ReportError {
    let what = what.into();
    move |error| ReportError::Io { what, error }
}
