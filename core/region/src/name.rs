//! Names of regions and keys: parsed once, then always right.
//!
//! A name is also the stem of file names in the pool and the store, so the alphabet is narrow:
//! nothing that a shell, a path or a terminal would read as something else, and no leading dot or
//! dash.

#![forbid(unsafe_code)]

use std::fmt;
use std::str::FromStr;

/// Longest name in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Longest name of a worker in bytes: with its parent's and the sign between them it fills a
/// header's field.
pub const WORKER_BYTES_MAX: usize = 63;
/// Stands between the name of a region and that of a worker in the name of a compartment. No other
/// name has it, and it sorts before every character that one can have: compartments are listed
/// right behind their parent.
const COMPARTMENT_SIGN: char = '+';

/// The name of a region: 1 to 64 bytes of `A-Z a-z 0-9 . _ -`, the first one a letter or a digit.
/// That of a compartment is two of them, `PARENT+WORKER`; only [`RegionName::compartment`] and
/// [`RegionName::parse_any`] make one, so what takes a plain name cannot be given a compartment.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionName(String);

/// Why a text is no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// There is no text at all.
    #[error(
        "a name is empty; choose one of 1 to {NAME_BYTES_MAX} letters, digits, '.', '_' or '-'"
    )]
    Empty,
    /// The text is too long.
    #[error("a name has {found_bytes} bytes and may have {NAME_BYTES_MAX}; choose a shorter one")]
    TooLong {
        /// Bytes of the text.
        found_bytes: usize,
    },
    /// The name of a worker is too long.
    #[error(
        "a worker's name has {found_bytes} bytes and may have {WORKER_BYTES_MAX}; choose a shorter one"
    )]
    WorkerTooLong {
        /// Bytes of the name.
        found_bytes: usize,
    },
    /// A character outside the alphabet, or one that may not come first.
    #[error(
        "the name {name:?} has {character:?} at byte {position}; use letters, digits, '.', '_' or '-', \
         with a letter or digit first"
    )]
    BadCharacter {
        /// The text as given.
        name: String,
        /// The first character that is not allowed where it stands.
        character: char,
        /// Its byte position.
        position: usize,
    },
}

impl RegionName {
    /// Parses a name.
    ///
    /// # Errors
    /// [`NameError`] says which rule the text breaks.
    pub fn parse(text: &str) -> Result<RegionName, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong { found_bytes: text.len() });
        }
        for (position, character) in text.char_indices() {
            let allowed =
                character.is_ascii_alphanumeric() || (position > 0 && "._-".contains(character));
            if !allowed {
                return Err(NameError::BadCharacter { name: text.to_owned(), character, position });
            }
        }
        Ok(RegionName(text.to_owned()))
    }

    /// The name of the compartment that `worker` has in the region of this name.
    ///
    /// # Errors
    /// [`NameError`] when this is a compartment itself, or the worker's name is no plain one of 1
    /// to 63 bytes.
    pub fn compartment(&self, worker: &RegionName) -> Result<RegionName, NameError> {
        for part in [self, worker] {
            if let Some(position) = part.0.find(COMPARTMENT_SIGN) {
                let (name, character) = (part.0.clone(), COMPARTMENT_SIGN);
                return Err(NameError::BadCharacter { name, character, position });
            }
        }
        if worker.0.len() > WORKER_BYTES_MAX {
            return Err(NameError::WorkerTooLong { found_bytes: worker.0.len() });
        }
        Ok(RegionName(format!("{self}{COMPARTMENT_SIGN}{worker}")))
    }

    /// Parses a plain name or that of a compartment.
    ///
    /// # Errors
    /// As [`RegionName::parse`].
    pub fn parse_any(text: &str) -> Result<RegionName, NameError> {
        match text.split_once(COMPARTMENT_SIGN) {
            Some((parent, worker)) => {
                RegionName::parse(parent)?.compartment(&RegionName::parse(worker)?)
            }
            None => RegionName::parse(text),
        }
    }

    /// Region and worker, if this is the name of a compartment.
    #[must_use]
    pub fn parent_and_worker(&self) -> Option<(RegionName, RegionName)> {
        let (parent, worker) = self.0.split_once(COMPARTMENT_SIGN)?;
        Some((RegionName(parent.to_owned()), RegionName(worker.to_owned())))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RegionName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for RegionName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RegionName({})", self.0)
    }
}

impl FromStr for RegionName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<RegionName, NameError> {
        RegionName::parse(text)
    }
}

impl serde::Serialize for RegionName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// The names of `known` that a person may have meant by `wanted`, best first, at most three.
///
/// A name counts as near when a third of its letters or fewer differ (edit distance), when one is a
/// prefix of the other, or when only the case differs.
#[must_use]
pub(crate) fn near_names(wanted: &RegionName, known: &[RegionName]) -> Vec<String> {
    let wanted_lower = wanted.as_str().to_ascii_lowercase();
    let mut scored: Vec<(usize, &str)> = known
        .iter()
        .filter_map(|candidate| {
            let lower = candidate.as_str().to_ascii_lowercase();
            let distance = edit_distance(wanted_lower.as_bytes(), lower.as_bytes());
            let allowed = wanted_lower.len().max(lower.len()).div_ceil(3).min(4);
            let prefix = lower.starts_with(&wanted_lower) || wanted_lower.starts_with(&lower);
            (distance <= allowed || prefix).then_some((distance, candidate.as_str()))
        })
        .collect();
    scored.sort_unstable();
    scored.into_iter().take(3).map(|(_, name)| name.to_owned()).collect()
}

/// Levenshtein distance with one row of state; names are at most 64 bytes, so this is small.
fn edit_distance(left: &[u8], right: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, left_byte) in left.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right_byte) in right.iter().enumerate() {
            let substituted = diagonal + usize::from(left_byte != right_byte);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> RegionName {
        RegionName::parse(text).unwrap()
    }

    #[test]
    fn a_name_is_made_of_the_allowed_alphabet() {
        for good in ["a", "7", "words-2.v_1", &"x".repeat(64)] {
            assert_eq!(RegionName::parse(good).unwrap().as_str(), good);
        }
    }

    /// A name that a path or shell would misread is refused.
    #[test]
    fn ambiguous_names_are_refused() {
        for bad in ["", ".hidden", "-rf", "a/b", "a b", "..", "ü", "a\n", "a\0", &"x".repeat(65)] {
            assert!(RegionName::parse(bad).is_err(), "{bad:?} was taken");
        }
    }

    /// Guarantee: heap/compartments
    #[test]
    fn only_what_asks_for_a_compartment_gets_its_name() {
        let compartment = name("words").compartment(&name("worker-3")).unwrap();
        assert_eq!(compartment.as_str(), "words+worker-3");
        assert_eq!(compartment.parent_and_worker(), Some((name("words"), name("worker-3"))));
        assert_eq!(RegionName::parse_any("words+worker-3"), Ok(compartment.clone()));
        assert_eq!(RegionName::parse_any("words"), Ok(name("words")));
        assert_eq!(name("words").parent_and_worker(), None);
        assert!(RegionName::parse("words+worker-3").is_err());
        assert!(
            compartment.compartment(&name("a")).is_err()
                && name("a").compartment(&compartment).is_err()
        );
        for bad in ["+", "words+", "+w", "a+b+c", "a+-b", "a+../b"] {
            assert!(RegionName::parse_any(bad).is_err(), "{bad:?} was taken");
        }
        let longest = name(&"x".repeat(64)).compartment(&name(&"y".repeat(63))).unwrap();
        assert_eq!(longest.as_str().len(), 128);
        assert!(name("a").compartment(&name(&"y".repeat(64))).is_err());
    }

    #[test]
    fn compartments_sort_right_behind_their_parent() {
        let mut names = ["a-1", "a+w", "a", "a.b", "a0", "aa", "a+x"]
            .map(|text| RegionName::parse_any(text).unwrap());
        names.sort_unstable();
        assert_eq!(names.map(|name| name.0), ["a", "a+w", "a+x", "a-1", "a.b", "a0", "aa"]);
    }

    /// A mistyped name finds its neighbours and nothing else.
    #[test]
    fn mistyped_name_finds_its_neighbours() {
        let known = [name("spelling"), name("words"), name("spell"), name("zoo")];
        assert_eq!(near_names(&name("spel"), &known), ["spell", "spelling"]);
        assert_eq!(near_names(&name("Wrods"), &known), ["words"]);
        assert!(near_names(&name("quantum"), &known).is_empty());
    }
}
