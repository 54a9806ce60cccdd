//! Why a keeper gave no answer, or none that helps.

use std::io;
use std::path::PathBuf;

use crate::served_wire::RefusedKind;

/// Short for results of this crate.
pub type Result<T> = std::result::Result<T, KeeperError>;

/// Why a keeper gave no answer, or none that helps.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeeperError {
    /// No process answers at the socket.
    #[error("no keeper answers at {}: {source}; start one with `holdfast keeper run`", path.display())]
    NoKeeper {
        /// The socket.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// The other side says something that cannot be understood.
    #[error(
        "the keeper and this program do not understand each other: {what}; use the same version of both"
    )]
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
}
