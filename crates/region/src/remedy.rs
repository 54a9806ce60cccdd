//! What a person can do about a file that cannot be used: the end of the messages that name one.
//!
//! Invariant: no remedy destroys the only copy of anything; what is bad and has no other copy is moved away.

#![forbid(unsafe_code)]

use std::fmt;
use std::path::PathBuf;

/// What a person can do about a file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// The image is bad, but a whole base file is in the store.
    DropImage {
        /// Name of the region.
        name: String,
        /// The good base file.
        base: PathBuf,
    },
    /// The journal is bad; the base alone is an older state.
    MoveJournal {
        /// The journal to bring back from a copy, or to move away.
        journal: PathBuf,
        /// The base file that it continues.
        base: PathBuf,
    },
    /// The file is a stream, which is not read in place.
    Import {
        /// The stream.
        path: PathBuf,
    },
    /// Somebody named a file that never was a region's.
    NameAnother,
    /// Nothing in reach replaces the file.
    RestoreFile {
        /// The file to bring back from a copy, or to move away.
        path: PathBuf,
    },
}

impl fmt::Display for Remedy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remedy::DropImage { name, base } => write!(
                formatter,
                "the checkpoint {} is whole: `holdfast heap rm --image {name}` drops the image and the next \
                 open starts from that checkpoint",
                base.display()
            ),
            Remedy::MoveJournal { journal, base } => write!(
                formatter,
                "put a copy back at {0}, or move {0} away and go on from the older checkpoint {1}, without what \
                 was committed since",
                journal.display(),
                base.display()
            ),
            Remedy::Import { path } => write!(
                formatter,
                "it is an exported heap: use `holdfast heap import {} NAME`",
                path.display()
            ),
            Remedy::NameAnother => formatter
                .write_str("name an image (NAME.image), a checkpoint (NAME.base) or a snapshot of a heap"),
            Remedy::RestoreFile { path } => write!(
                formatter,
                "no whole checkpoint replaces it: put a copy back at {0}, or move {0} away and start anew",
                path.display()
            ),
        }
    }
}
