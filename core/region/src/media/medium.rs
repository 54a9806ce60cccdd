//! The medium of a region's image: memory (the pool), or a file on the disk of the home.

#![forbid(unsafe_code)]

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// Where a region's image lies. A property of the region: it is kept through every way of opening
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Medium {
    /// In the pool: never written back by the kernel, and as large as the pool allows.
    #[default]
    Memory,
    /// On the disk of the home, and in memory as far as the kernel likes. The levels promise the
    /// same; what is stored is written to the disk twice, once by the kernel and once by commits at
    /// level `power`.
    File,
}

impl fmt::Display for Medium {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Medium::Memory => "memory",
            Medium::File => "file",
        })
    }
}

/// A text that names no medium.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is nothing that a heap can lie on; say `memory` (the pool) or `file` (the disk of the home)"
)]
pub struct MediumError {
    /// The text.
    pub text: String,
}

impl FromStr for Medium {
    type Err = MediumError;

    fn from_str(text: &str) -> Result<Medium, MediumError> {
        [Medium::Memory, Medium::File]
            .into_iter()
            .find(|medium| medium.to_string() == text)
            .ok_or_else(|| MediumError { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A medium is read as it is written and nonsense is refused with the choices.
    #[test]
    fn medium_parses_its_own_text_and_lists_choices() {
        for medium in [Medium::Memory, Medium::File] {
            assert_eq!(medium.to_string().parse(), Ok(medium));
        }
        let error = "tape".parse::<Medium>().unwrap_err().to_string();
        assert!(error.contains("memory") && error.contains("file"), "{error}");
    }
}
