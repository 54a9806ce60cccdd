//! The errors of the lab, and what a machine lacks that would run it.

use std::io;
use std::path::PathBuf;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// Something is not installed, or not for this kind of machine.
    #[error("{what}; ./test sees to it on Debian for x86-64")]
    Missing {
        /// What, in words.
        what: String,
    },
    /// A step on the host failed.
    #[error("cannot {step} {}: {source}; look whether there is room and permission", path.display())]
    Host {
        /// As a verb.
        step: &'static str,
        /// What it was about.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A program of the host failed.
    #[error("{program} failed: {said}; try it by hand")]
    Program {
        /// Its name.
        program: &'static str,
        /// What it said.
        said: String,
    },
    /// The machine did not answer in time, or not as it should.
    #[error("the machine {what}; the end of what it said:\n{console}")]
    Machine {
        /// What it did or did not do.
        what: String,
        /// The last lines of its console.
        console: String,
    },
}

/// What most functions of the lab return.
pub type Result<T> = std::result::Result<T, LabError>;

pub(crate) fn host(
    step: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(io::Error) -> LabError {
    let path = path.into();
    move |source| LabError::Host { step, path, source }
}
