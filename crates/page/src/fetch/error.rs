//! Why there is nothing to be had at an address.

use std::io;

/// Why there is nothing to be had at an address.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The file cannot be read.
    #[error("{0}")]
    Read(io::Error),
    /// It is larger than is taken.
    #[error("it has more than {bytes_max} bytes")]
    TooLarge {
        /// What is taken.
        bytes_max: u64,
    },
    /// It is not asked for.
    #[error("{0}")]
    Refused(&'static str),
    /// Whoever is asked does not have it.
    #[error("there is nothing at this address")]
    NotFound,
}

impl FetchError {
    /// Whether there is nothing at the address, as far as can be told.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        match self {
            FetchError::Read(error) => error.kind() == io::ErrorKind::NotFound,
            FetchError::NotFound => true,
            _ => false,
        }
    }
}
