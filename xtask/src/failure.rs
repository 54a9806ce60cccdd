//! Why a chore failed, in words that say what to do.

use std::fmt;
use std::process::ExitCode;

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// A failed chore. The text is complete (what failed, and what to do about it), or empty if that was told.
#[derive(Debug)]
pub(crate) struct Failure {
    text: String,
    usage: bool,
}

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Failure {
        Failure { text: text.into(), usage: false }
    }

    /// The caller asked for something that does not exist; exit status 2.
    pub(crate) fn usage(text: impl fmt::Display, usage: &str) -> Failure {
        Failure { text: format!("{text}\n\n{usage}"), usage: true }
    }

    /// The reader knows already.
    pub(crate) fn told() -> Failure {
        Failure::new("")
    }

    pub(crate) fn is_told(&self) -> bool {
        self.text.is_empty()
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(if self.usage { 2 } else { 1 })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}
