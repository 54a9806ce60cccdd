//! Why an owner's key cannot be used.

#![forbid(unsafe_code)]

use std::io;
use std::path::PathBuf;

use holdfast_types::Remedy;

use crate::error::kind::ErrorKind;
use crate::error::place::PlaceError;
use crate::error::remedy::{io_remedy, near_text};
use crate::name::NameError;

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The key's name breaks the rules for names.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The key file's owner, kind or mode is wrong.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// There is no key of this name, and nothing is made that it could own.
    #[error(
        "there is no key {name:?}{}; {}. If it was lost, put {} back from a copy. A heap of it can still be copied: {}",
        near_text(near),
        Remedy::ListKeys,
        path.display(),
        Remedy::Copy { heap: None }
    )]
    Missing {
        /// The name asked for.
        name: String,
        /// Names that are close to it, best first.
        near: Vec<String>,
        /// Where its file would be.
        path: PathBuf,
    },
    /// The file is no key.
    #[error("{} is no key: {found_bytes} bytes, 32 expected; put it back from a copy", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Its length.
        found_bytes: u64,
    },
    /// The kernel refused.
    #[error("cannot {step} the key {}: {source}{}", path.display(), key_remedy(source))]
    Io {
        /// The step, as a verb.
        step: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl KeyError {
    /// What kind of failure this is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            KeyError::Name(_) => ErrorKind::Usage,
            KeyError::Missing { .. } => ErrorKind::NotFound,
            KeyError::Damaged { .. } => ErrorKind::BadFile,
            KeyError::Io { source, .. }
                if matches!(
                    source.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                ) =>
            {
                ErrorKind::NoRoom
            }
            KeyError::Place(error) => error.kind(),
            KeyError::Io { .. } => ErrorKind::Io,
        }
    }
}

fn key_remedy(source: &io::Error) -> &'static str {
    match io_remedy(source) {
        "" => "; check the permissions of its directory",
        remedy => remedy,
    }
}
