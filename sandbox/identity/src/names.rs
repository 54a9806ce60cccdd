//! The names of publishers and applications, and those that hosts give: parsed once, then always
//! right.
//!
//! Invariants: a name is ASCII, has no control character, no quotation mark and none of the
//! characters that separate fields where names are stored or shown. So two names that are shown
//! alike differ in nothing but letters, digits and the separators that [`PublisherName::skeleton`]
//! folds.

use std::fmt;
use std::str::FromStr;

/// Longest name of a publisher or an application, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Longest name that a host gives, in bytes: an origin has a host name of up to 253.
pub const GIVEN_NAME_BYTES_MAX: usize = 300;

/// Why a text is no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// There is no text at all.
    #[error("the name of {kind} is empty; choose one")]
    Empty {
        /// What is named.
        kind: &'static str,
    },
    /// The text is too long.
    #[error("the name of {kind} has {found_bytes} bytes and may have {max_bytes}; shorten it")]
    TooLong {
        /// What is named.
        kind: &'static str,
        /// Bytes of the text.
        found_bytes: usize,
        /// How many it may have.
        max_bytes: usize,
    },
    /// A character is not allowed where it stands.
    #[error("the name of {kind} has {character:?} at byte {position}; {allowed}")]
    BadCharacter {
        /// What is named.
        kind: &'static str,
        /// The first character that is not allowed.
        character: char,
        /// Its byte position.
        position: usize,
        /// What is allowed.
        allowed: &'static str,
    },
}

struct Rules {
    kind: &'static str,
    max_bytes: usize,
    inner: &'static str,
    allowed: &'static str,
}

const PUBLISHER: Rules = Rules { kind: "a publisher", ..PLAIN };
const APPLICATION: Rules = Rules { kind: "an application", ..PLAIN };
const PLAIN: Rules = Rules {
    kind: "",
    max_bytes: NAME_BYTES_MAX,
    inner: " ._-",
    allowed: "use ASCII letters, digits, '.', '_', '-' and single spaces inside, with a letter or \
              digit first",
};
const GIVEN: Rules = Rules {
    kind: "an applet",
    max_bytes: GIVEN_NAME_BYTES_MAX,
    inner: "._-:/@+~%[]",
    allowed: "use ASCII letters, digits and any of . _ - : / @ + ~ % [ ], with a letter or digit first",
};

impl Rules {
    fn check(&self, text: &str) -> Result<String, NameError> {
        let kind = self.kind;
        if text.is_empty() {
            return Err(NameError::Empty { kind });
        }
        // Before anything is quoted from it.
        if text.len() > self.max_bytes {
            let (found_bytes, max_bytes) = (text.len(), self.max_bytes);
            return Err(NameError::TooLong { kind, found_bytes, max_bytes });
        }
        let mut before = None;
        for (position, character) in text.char_indices() {
            let is_lone_space = before != Some(' ') && position + 1 < text.len();
            let is_allowed = character.is_ascii_alphanumeric()
                || (before.is_some()
                    && self.inner.contains(character)
                    && (character != ' ' || is_lone_space));
            if !is_allowed {
                let allowed = self.allowed;
                return Err(NameError::BadCharacter { kind, character, position, allowed });
            }
            before = Some(character);
        }
        Ok(text.to_owned())
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $rules:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Parses a name.
            ///
            /// # Errors
            /// [`NameError`] says which rule the text breaks.
            pub fn parse(text: &str) -> Result<$name, NameError> {
                $rules.check(text).map($name)
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{}({:?})", stringify!($name), self.0)
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<$name, NameError> {
                $name::parse(text)
            }
        }
    };
}

name! {
    /// The name of a publisher: 1 to 64 bytes of `A-Z a-z 0-9 . _ -` and single spaces inside, the
    /// first one a letter or a digit.
    PublisherName, PUBLISHER
}
name! {
    /// The name of a publisher's application, under the rules of [`PublisherName`].
    ApplicationName, APPLICATION
}
name! {
    /// A name that the host gives an applet, such as `notes` or `https://example.org:8443`: 1 to
    /// 300 bytes of `A-Z a-z 0-9 . _ - : / @ + ~ % [ ]`, the first one a letter or a digit. Names
    /// that differ in case are different names.
    GivenName, GIVEN
}

impl PublisherName {
    /// What all names have in common that a person may take for this one: without case and
    /// separators, and with one form for the letters and digits that look alike: 0 and o; 1, i and
    /// l; 2 and z; 5 and s; 8 and b; 9, g and q; rn and m; vv and w; cl and d.
    #[must_use]
    pub fn skeleton(&self) -> String {
        let letters = self.0.chars().filter(char::is_ascii_alphanumeric);
        let folded = letters.map(|letter| match letter.to_ascii_lowercase() {
            '0' => 'o',
            '1' | 'i' => 'l',
            '2' => 'z',
            '5' => 's',
            '8' => 'b',
            '9' | 'q' => 'g',
            other => other,
        });
        folded.collect::<String>().replace("rn", "m").replace("vv", "w").replace("cl", "d")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_publishers_keep_to_the_alphabet() {
        for good in ["A", "7", "Acme Ltd.", "a_b-c.d", &"x".repeat(64)] {
            assert_eq!(PublisherName::parse(good).unwrap().as_str(), good);
            assert_eq!(ApplicationName::parse(good).unwrap().as_str(), good);
        }
        for bad in [
            "",
            " a",
            "a ",
            "a  b",
            ".a",
            "-a",
            "a:b",
            "a/b",
            "a\"b",
            "a`b",
            "a\nb",
            "a\u{0}b",
            "a\u{7f}",
            "Acm\u{e9}",
            "\u{410}cme",
            "a\u{202e}b",
            "a\u{a0}b",
            &"x".repeat(65),
        ] {
            assert!(PublisherName::parse(bad).is_err(), "{bad:?} was taken");
            assert!(ApplicationName::parse(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn names_of_hosts_can_be_origins() {
        for good in ["notes", "https://example.org", "http://localhost:8080", "https://u@[::1]:1"] {
            assert_eq!(GivenName::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "/etc", "a b", "a`b", "a\"b", "a\tb", "\u{fc}", &"x".repeat(301)] {
            assert!(GivenName::parse(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn names_that_look_alike_have_one_skeleton() {
        let skeleton = |text| PublisherName::parse(text).unwrap().skeleton();
        for other in ["acme ltd", "ACME-LTD", "Acme.Ltd", "AcmeLtd", "Acrne Ltd"] {
            assert_eq!(skeleton(other), skeleton("Acme Ltd"), "{other}");
        }
        assert_eq!(skeleton("Paypa1"), skeleton("PayPaI"));
        assert_eq!(skeleton("G00gle"), skeleton("Google"));
        for [one, other] in [
            ["Zenbase", "2en8a5e"],
            ["Gigaq", "9i9ag"],
            ["Delta Force", "cleIta-F0rce"],
            ["Vivid Modern", "Vivid-Moclern"],
            ["Swift Corner", "Svvift Comer"],
        ] {
            assert_eq!(skeleton(one), skeleton(other), "{one}, {other}");
        }
        assert_ne!(skeleton("Acme Ltd"), skeleton("Acme Inc"));
    }
}
