//! The errors of a keeper as a whole. What goes wrong with one heap is in the reports.

use std::io;
use std::path::PathBuf;

use holdfast_region::RegionError;

/// Short for results of this crate.
pub type Result<T> = std::result::Result<T, DaemonError>;

/// Why a keeper cannot start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// The home has a keeper.
    #[error(
        "the home {} has a keeper already{}; ask it (`holdfast keeper status`), or end it first",
        home.display(),
        holder.map_or_else(String::new, |pid| format!(" (process {pid})"))
    )]
    Running {
        /// The home.
        home: PathBuf,
        /// The other keeper.
        holder: Option<u32>,
    },
    /// A socket for other users cannot be there.
    #[error("cannot serve at {}: {why}", path.display())]
    Place {
        /// The path.
        path: PathBuf,
        /// Why, and what to do.
        why: &'static str,
    },
    /// The heaps cannot be looked at.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The databases cannot be looked at.
    #[error(transparent)]
    Sqlite(#[from] holdfast_sqlite::SqliteError),
    /// The kernel refused a step.
    #[error("cannot {step} {}: {source}; check permissions and room there", path.display())]
    Io {
        /// The step, as a verb.
        step: &'static str,
        /// The path.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl DaemonError {
    pub(crate) fn io(
        step: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> DaemonError {
        let path = path.into();
        move |source| DaemonError::Io { step, path, source }
    }
}
