//! Why a chore failed, in words that say what to do.

use std::fmt;

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// A failed chore. The text is complete (what failed, and what to do about it), or empty if the
/// chore has printed the reason itself.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Failure {
        Failure(text.into())
    }

    /// The chore has printed the reason.
    pub(crate) fn reported() -> Failure {
        Failure::new("")
    }

    pub(crate) fn is_reported(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
