//! What can go wrong with a keeper as a whole. What goes wrong with one heap is in the reports.

use std::io;
use std::path::PathBuf;

use holdfast_region::RegionError;

use crate::served::RefusedKind;

/// Short for results of this crate.
pub type Result<T> = std::result::Result<T, KeeperError>;

/// See the module.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeeperError {
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
    /// Nobody answers at the socket.
    #[error("no keeper answers at {}: {source}; start one with `holdfast keeper run`", path.display())]
    NoKeeper {
        /// The socket.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// The other side says something that cannot be understood.
    #[error("the keeper and this program do not understand each other: {what}; use the same version of both")]
    Protocol {
        /// What it is.
        what: String,
    },
    /// The keeper refused a request.
    #[error("the keeper refused: {why}")]
    Refused {
        /// Its words, which say what to do.
        why: String,
    },
    /// The keeper does not serve this.
    #[error("the keeper refused: {why}")]
    NotServed {
        /// Which kind of refusal it is.
        kind: RefusedKind,
        /// Its words, which say what to do.
        why: String,
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
        /// Where.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl KeeperError {
    pub(crate) fn io(step: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> KeeperError {
        let path = path.into();
        move |source| KeeperError::Io { step, path, source }
    }
}
