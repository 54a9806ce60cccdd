//! Why an applet has no identity, or its identity no heap: for hosts that do not tell the steps
//! apart.

use std::path::PathBuf;

use holdfast_region::{KeyError, RegionError};

use crate::applet_file::SignatureError;
use crate::ownership::OwnershipError;
use crate::trust::TrustError;

/// Any error between an applet's file and the key of its heap.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The file tells nothing, or its signature is not good.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: SignatureError,
    },
    /// Its publisher is not accepted.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The heap is not its.
    #[error(transparent)]
    Ownership(#[from] OwnershipError),
}

impl From<RegionError> for IdentityError {
    fn from(error: RegionError) -> IdentityError {
        OwnershipError::from(error).into()
    }
}

impl From<KeyError> for IdentityError {
    fn from(error: KeyError) -> IdentityError {
        OwnershipError::from(error).into()
    }
}
