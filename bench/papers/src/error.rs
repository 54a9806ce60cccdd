//! What can go wrong between the request for a report and its files.

use std::io;
use std::path::PathBuf;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A suite that no step of a report belongs to.
    #[error(
        "the suite {name} has no part in a report (`cargo xtask bench {name}` runs it alone); these have: {known}"
    )]
    NoPart {
        /// As it was asked for.
        name: String,
        /// All that have a part.
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
    /// The report's directory is something else.
    #[error("{path} is not a directory")]
    NoDirectory {
        /// As it was named.
        path: PathBuf,
    },
    /// There is nothing to report.
    #[error("there are no results in {out}, so there is no report")]
    NoResults {
        /// The report's directory.
        out: PathBuf,
    },
    /// The report is written, and lacks what these steps should have measured.
    #[error("{} of {count} steps failed ({}); what there is is in {page}", failed.len(), failed.join(", "))]
    StepsFailed {
        /// Names of the steps.
        failed: Vec<String>,
        /// How many steps were asked for.
        count: usize,
        /// The report.
        page: PathBuf,
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
