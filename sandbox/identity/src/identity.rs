//! Who an applet is.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::applet_file::AppletFile;
use crate::names::{ApplicationName, GivenName, NameError, PublisherName};
use crate::publisher::{PublicKey, Publisher, from_hex, to_hex};

/// What the names of keys are derived under: another purpose would get another text.
const DOMAIN: &[u8] = b"holdfast applet identity 1\0";
/// Bytes of the hash in a key's name: 160 bits, so a second identity for one cannot be found.
const KEY_NAME_HASH_BYTES: usize = 20;
/// Letters of the application's name in a key's name, for people.
const KEY_NAME_LETTERS_MAX: usize = 16;

/// SHA-256 of a program's file. Its text is 64 hexadecimal digits; the alternate form (`{:#}`)
/// shows the first 16.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CodeHash([u8; 32]);

impl CodeHash {
    /// The hash with these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> CodeHash {
        CodeHash(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 32] {
        self.0
    }
}

impl fmt::Display for CodeHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = to_hex(&self.0);
        match formatter.alternate() {
            true => formatter.write_str(&digits[..16]),
            false => formatter.write_str(&digits),
        }
    }
}

impl fmt::Debug for CodeHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CodeHash({self})")
    }
}

/// Who an applet is. `Display` says it in plain words, for messages; [`Identity::to_text`] is the
/// short text that is stored and parsed, and stays the same in every version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Identity {
    /// An application of a publisher, whose signature the file has.
    Publisher {
        /// Who signed it.
        publisher: Publisher,
        /// The application.
        application: ApplicationName,
    },
    /// What the host calls the applet: an application, or the origin of a web page.
    Named(GivenName),
    /// A program without a signature and a name: it is its own code, and another version is another
    /// one.
    Code(CodeHash),
}

impl Identity {
    /// Who an applet is, in this order: its publisher's application, what its host calls it, its
    /// code. Whether the publisher may be trusted, [`crate::Publishers::identify`] says.
    #[must_use]
    pub fn of(file: &AppletFile, given: Option<&GivenName>) -> Identity {
        match (file.signature(), given) {
            (Some(signature), _) => Identity::Publisher {
                publisher: signature.publisher().clone(),
                application: signature.application().clone(),
            },
            (None, Some(name)) => Identity::Named(name.clone()),
            (None, None) => Identity::Code(file.hash()),
        }
    }

    /// The name of the owner key that this applet uses by default: `signed-`, `named-` or `code-`,
    /// some letters of the application's name, and 40 digits that follow from the identity. It
    /// depends on the publisher's key, not on the name that goes with it.
    #[must_use]
    pub fn key_name(&self) -> String {
        let hasher = Sha256::new().chain_update(DOMAIN);
        let (kind, name, hasher) = match self {
            Identity::Publisher { publisher, application } => (
                "signed",
                application.as_str(),
                hasher
                    .chain_update(b"publisher\0")
                    .chain_update(publisher.key().to_bytes())
                    .chain_update(application.as_str()),
            ),
            Identity::Named(name) => {
                let text = name.as_str();
                let shown = text.split_once("://").map_or(text, |(_, host)| host);
                ("named", shown, hasher.chain_update(b"name\0").chain_update(text))
            }
            Identity::Code(hash) => {
                ("code", "", hasher.chain_update(b"code\0").chain_update(hash.to_bytes()))
            }
        };
        let digits = to_hex(&hasher.finalize()[..KEY_NAME_HASH_BYTES]);
        let shown = name.chars().take(KEY_NAME_LETTERS_MAX).map(|letter| match letter {
            letter if letter.is_ascii_alphanumeric() => letter.to_ascii_lowercase(),
            _ => '-',
        });
        match shown.collect::<String>() {
            shown if shown.is_empty() => format!("{kind}-{digits}"),
            shown => format!("{kind}-{shown}-{digits}"),
        }
    }

    /// The short text of this identity: `publisher:KEY:PUBLISHER:APPLICATION`, `name:NAME` or
    /// `code:SHA256`. [`Identity::from_str`] reads it.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self {
            Identity::Publisher { publisher, application } => {
                format!("publisher:{}:{}:{application}", publisher.key(), publisher.name())
            }
            Identity::Named(name) => format!("name:{name}"),
            Identity::Code(hash) => format!("code:{hash}"),
        }
    }
}

/// Whether a key's name is one that [`Identity::key_name`] gives.
pub(crate) fn is_key_name(text: &str) -> bool {
    let Some((kind, rest)) = text.split_once('-') else { return false };
    let digits = rest.rsplit('-').next().unwrap_or(rest);
    matches!(kind, "signed" | "named" | "code")
        && digits.len() == 2 * KEY_NAME_HASH_BYTES
        && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Publisher { publisher, application } => write!(
                formatter,
                "application `{application}` of publisher `{}` (ed25519 {:#})",
                publisher.name(),
                publisher.key()
            ),
            Identity::Named(name) => write!(formatter, "the applet that its host names `{name}`"),
            Identity::Code(hash) => {
                write!(formatter, "the unsigned program with SHA-256 {hash:#}")
            }
        }
    }
}

/// Why a text is no identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityTextError {
    /// It has none of the three forms.
    #[error(
        "it is no identity; write `publisher:KEY:PUBLISHER:APPLICATION`, `name:NAME` or `code:SHA256`, with \
         key and hash as 64 hexadecimal digits"
    )]
    Malformed,
    /// A name in it breaks the rules.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl FromStr for Identity {
    type Err = IdentityTextError;

    fn from_str(text: &str) -> Result<Identity, IdentityTextError> {
        let malformed = IdentityTextError::Malformed;
        match text.split_once(':') {
            Some(("publisher", rest)) => {
                let mut parts = rest.splitn(3, ':');
                let (Some(key), Some(publisher), Some(application)) =
                    (parts.next(), parts.next(), parts.next())
                else {
                    return Err(malformed);
                };
                let key = PublicKey::parse(key).ok_or(malformed)?;
                Ok(Identity::Publisher {
                    publisher: Publisher::new(PublisherName::parse(publisher)?, key),
                    application: ApplicationName::parse(application)?,
                })
            }
            Some(("name", name)) => Ok(Identity::Named(GivenName::parse(name)?)),
            Some(("code", digits)) => {
                Ok(Identity::Code(CodeHash(from_hex(digits).ok_or(malformed)?)))
            }
            _ => Err(malformed),
        }
    }
}

impl serde::Serialize for Identity {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_text())
    }
}

#[cfg(test)]
mod tests {
    use holdfast_region::RegionName;

    use super::*;
    use crate::publisher::PublisherKey;

    fn signed(secret: u8, publisher: &str, application: &str) -> Identity {
        let name = PublisherName::parse(publisher).unwrap();
        Identity::Publisher {
            publisher: PublisherKey::from_bytes([secret; 32], name).publisher(),
            application: ApplicationName::parse(application).unwrap(),
        }
    }

    fn named(text: &str) -> Identity {
        Identity::Named(GivenName::parse(text).unwrap())
    }

    fn all() -> Vec<Identity> {
        vec![
            signed(1, "Acme Ltd", "notes"),
            signed(1, "Acme Ltd", &"N".repeat(64)),
            signed(2, "Acme Ltd", "notes"),
            named("notes"),
            named("https://example.org:8443"),
            named(&"x".repeat(300)),
            Identity::Code(CodeHash([1; 32])),
            Identity::Code(CodeHash([2; 32])),
        ]
    }

    #[test]
    fn names_of_keys_are_allowed_and_differ() {
        let mut names: Vec<_> = all().iter().map(Identity::key_name).collect();
        for name in &names {
            assert_eq!(RegionName::parse(name).unwrap().as_str(), name);
            assert!(is_key_name(name), "{name}");
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all().len());
        for other in ["default", "alice", "code", "code-1", "signed-notes", "key-notes"] {
            assert!(!is_key_name(other), "{other}");
        }
    }

    /// What is on disks already must be found again.
    #[test]
    fn names_of_keys_stay_the_same() {
        assert_eq!(
            signed(1, "Acme Ltd", "notes").key_name(),
            "signed-notes-a227705105b26bc8da81acf5d114ded4dae107fe"
        );
        assert_eq!(
            named("https://example.org").key_name(),
            "named-example-org-b3474afc2ccb907ed8ebc14e6d4e992843024611"
        );
        assert_eq!(
            Identity::Code(CodeHash([1; 32])).key_name(),
            "code-5cfb01b756d8933f5094a2a119a3576f5f773c53"
        );
    }

    #[test]
    fn renamed_publisher_keeps_its_key() {
        let name = |publisher| signed(1, publisher, "notes").key_name();
        assert_eq!(name("Acme Ltd"), name("Acme Holding"));
        assert_ne!(signed(1, "Acme", "notes").key_name(), signed(1, "Acme", "Notes").key_name());
    }

    #[test]
    fn text_is_read_as_it_was_written() {
        for identity in all() {
            assert_eq!(identity.to_text().parse::<Identity>().unwrap(), identity);
        }
        let good = signed(1, "Acme", "notes").to_text();
        for bad in [
            "",
            "notes",
            "name:",
            "name:a b",
            "code:00",
            "publisher:00:Acme:notes",
            "file:x",
            &format!("{good}:more"),
            &good.to_uppercase(),
            &format!(" {good}"),
            &format!("{good}\n"),
        ] {
            assert!(bad.parse::<Identity>().is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn words_name_publisher_and_application() {
        let words = signed(1, "Acme", "notes").to_string();
        assert!(words.starts_with("application `notes` of publisher `Acme` (ed25519 "), "{words}");
        assert_eq!(named("notes").to_string(), "the applet that its host names `notes`");
        let words = Identity::Code(CodeHash([0x91; 32])).to_string();
        assert_eq!(words, "the unsigned program with SHA-256 9191919191919191");
    }
}
