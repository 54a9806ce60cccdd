//! Publishers: a name and an ed25519 key. The secret half is in a file of the publisher, the public
//! half is one line of text.
//!
//! A key file has no password: whoever can read it can sign as the publisher. So one that other
//! users may read is refused, as ssh does, and not warned about: a warning in the log of a build
//! machine is not read, and the key may have been copied long ago. It is written whole and durable
//! or not at all, and never over another file.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use holdfast_sys::file::{effective_user, open_regular, private_options, sync_directory};

use crate::names::{NameError, PublisherName};

const KEY_BYTES: usize = 32;
const SIGNATURE_BYTES: usize = 64;
/// First line of a key file.
const TITLE: &str = "holdfast publisher key 1";
/// Before the hexadecimal digits of a key.
const ALGORITHM: &str = "ed25519";
/// More than a whole key file has.
const KEY_FILE_BYTES_MAX: u64 = 512;
/// Digits of a key that are shown where it only has to be told from others.
const SHORT_DIGITS: usize = 16;

/// A publisher's public key. Its text is 64 hexadecimal digits; the alternate form (`{:#}`) shows
/// the first 16.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; KEY_BYTES]);

impl PublicKey {
    /// The key with these bytes; `None` when they are no point of the curve, or one of the few
    /// under which a signature proves nothing.
    #[must_use]
    pub fn from_bytes(bytes: [u8; KEY_BYTES]) -> Option<PublicKey> {
        let key = VerifyingKey::from_bytes(&bytes).ok()?;
        (!key.is_weak()).then_some(PublicKey(bytes))
    }

    /// Its bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; KEY_BYTES] {
        self.0
    }

    /// Reads 64 hexadecimal digits; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<PublicKey> {
        PublicKey::from_bytes(from_hex(text)?)
    }

    /// Whether this key signed the message, by the strict rules: one message and key have one
    /// signature.
    pub(crate) fn verifies(self, message: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool {
        VerifyingKey::from_bytes(&self.0)
            .is_ok_and(|key| key.verify_strict(message, &Signature::from_bytes(signature)).is_ok())
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = to_hex(&self.0);
        match formatter.alternate() {
            true => formatter.write_str(&digits[..SHORT_DIGITS]),
            false => formatter.write_str(&digits),
        }
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PublicKey({self})")
    }
}

/// Reads 32 bytes as 64 hexadecimal digits, lower case only: one value has one text.
pub(crate) fn from_hex(text: &str) -> Option<[u8; 32]> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 64 || !text.bytes().all(is_digit) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A publisher: a name, and the key that signs under it. Its text, `ed25519 KEY NAME`, is what a
/// publisher makes known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Publisher {
    name: PublisherName,
    key: PublicKey,
}

impl Publisher {
    /// The publisher of this name and key.
    #[must_use]
    pub fn new(name: PublisherName, key: PublicKey) -> Publisher {
        Publisher { name, key }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &PublisherName {
        &self.name
    }

    /// Its public key.
    #[must_use]
    pub fn key(&self) -> PublicKey {
        self.key
    }
}

impl fmt::Display for Publisher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{ALGORITHM} {} {}", self.key, self.name)
    }
}

/// Why a text names no publisher.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublisherTextError {
    /// It does not have the three parts, or the key is none.
    #[error("it is no publisher; write `ed25519 KEY NAME`, with the key as 64 hexadecimal digits")]
    Malformed,
    /// The name breaks the rules.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl FromStr for Publisher {
    type Err = PublisherTextError;

    fn from_str(text: &str) -> Result<Publisher, PublisherTextError> {
        let mut parts = text.splitn(3, ' ');
        let (Some(ALGORITHM), Some(key), Some(name)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(PublisherTextError::Malformed);
        };
        let key = PublicKey::parse(key).ok_or(PublisherTextError::Malformed)?;
        Ok(Publisher { name: PublisherName::parse(name)?, key })
    }
}

/// The secret half of a publisher's key, with the publisher's name. Its `Debug` form shows the
/// public half only.
#[derive(Clone)]
pub struct PublisherKey {
    name: PublisherName,
    key: SigningKey,
}

impl fmt::Debug for PublisherKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PublisherKey({})", self.publisher())
    }
}

/// Why a publisher's key file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublisherKeyError {
    /// There is a file where the key was to be written.
    #[error("{} exists already and is not overwritten; choose another path", path.display())]
    Exists {
        /// The path.
        path: PathBuf,
    },
    /// Other users may read or write it.
    #[error(
        "{} can be used by others (mode {mode:03o}), who may have copied the key; make a new key, or, if no other \
         user could reach the file, run `chmod 600` on it",
        path.display()
    )]
    NotPrivate {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It belongs to another user.
    #[error("{} belongs to user {uid}; use a key file of your own", path.display())]
    OtherUser {
        /// The file.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// It is no key file, or a part of one.
    #[error("{} is no publisher's key file, or damaged; put it back from a copy", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The kernel refused.
    #[error("cannot {step} the key {}: {source}", path.display())]
    Io {
        /// The step, as a verb.
        step: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

fn io_error(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PublisherKeyError {
    move |source| PublisherKeyError::Io { step, path: path.to_owned(), source }
}

impl PublisherKey {
    /// Makes a key from the kernel's random numbers, and its file, which only this user can read.
    ///
    /// # Errors
    /// `Exists`; `Io` when the kernel refuses. There is then no new file.
    pub fn generate(path: &Path, name: PublisherName) -> Result<PublisherKey, PublisherKeyError> {
        let mut secret = [0; KEY_BYTES];
        let mut filled = 0;
        while filled < secret.len() {
            let flags = rustix::rand::GetRandomFlags::empty();
            match rustix::rand::getrandom(&mut secret[filled..], flags) {
                Ok(more) => filled += more,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(io_error("make", path)(error.into())),
            }
        }
        let key = PublisherKey::from_bytes(secret, name);
        key.write(path)?;
        Ok(key)
    }

    /// A key from bytes that the caller keeps.
    #[must_use]
    pub fn from_bytes(secret: [u8; KEY_BYTES], name: PublisherName) -> PublisherKey {
        PublisherKey { name, key: SigningKey::from_bytes(&secret) }
    }

    /// Reads a key file.
    ///
    /// # Errors
    /// [`PublisherKeyError`] when it is no private key file of this user.
    pub fn load(path: &Path) -> Result<PublisherKey, PublisherKeyError> {
        let file =
            open_regular(OpenOptions::new().read(true), path).map_err(io_error("open", path))?;
        let found = file.metadata().map_err(io_error("examine", path))?;
        let path = path.to_owned();
        if found.uid() != effective_user() {
            return Err(PublisherKeyError::OtherUser { path, uid: found.uid() });
        }
        let mode = found.permissions().mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(PublisherKeyError::NotPrivate { path, mode });
        }
        let mut text = String::new();
        match file.take(KEY_FILE_BYTES_MAX).read_to_string(&mut text) {
            Err(error) if error.kind() != io::ErrorKind::InvalidData => {
                Err(io_error("read", &path)(error))
            }
            _ => parse_file(&text).ok_or(PublisherKeyError::Damaged { path }),
        }
    }

    /// The public half.
    #[must_use]
    pub fn publisher(&self) -> Publisher {
        Publisher { name: self.name.clone(), key: PublicKey(self.key.verifying_key().to_bytes()) }
    }

    pub(crate) fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        self.key.sign(message).to_bytes()
    }

    fn write(&self, path: &Path) -> Result<(), PublisherKeyError> {
        if path.symlink_metadata().is_ok() {
            return Err(PublisherKeyError::Exists { path: path.to_owned() });
        }
        let directory = directory_of(path);
        let public = self.publisher();
        // The public key is there to find a damaged file.
        let text = format!(
            "{TITLE}\nname {}\nsecret {}\npublic {}\n",
            self.name,
            to_hex(self.key.as_bytes()),
            public.key()
        );
        let temporary = path.with_added_extension(format!("tmp-{}", &to_hex(&public.key.0)[..16]));
        let written = (|| {
            let mut file = private_options().write(true).create_new(true).open(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            // Unlike rename, a hard link replaces nothing.
            std::fs::hard_link(&temporary, path)?;
            sync_directory(directory)
        })();
        let removed = std::fs::remove_file(&temporary);
        match written {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(PublisherKeyError::Exists { path: path.to_owned() })
            }
            written => written.and(removed).map_err(io_error("create", path)),
        }
    }
}

/// The directory of a path, also of one without any.
pub(crate) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn parse_file(text: &str) -> Option<PublisherKey> {
    let mut lines = text.strip_suffix('\n')?.split('\n');
    if lines.next()? != TITLE {
        return None;
    }
    let name = PublisherName::parse(lines.next()?.strip_prefix("name ")?).ok()?;
    let secret = from_hex(lines.next()?.strip_prefix("secret ")?)?;
    let public = PublicKey::parse(lines.next()?.strip_prefix("public ")?)?;
    let key = PublisherKey::from_bytes(secret, name);
    (key.publisher().key() == public && lines.next().is_none()).then_some(key)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    fn name(text: &str) -> PublisherName {
        PublisherName::parse(text).unwrap()
    }

    #[test]
    fn key_file_is_private_and_read_as_written() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("acme.key");
        let key = PublisherKey::generate(&path, name("Acme Ltd")).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(PublisherKey::load(&path).unwrap().publisher(), key.publisher());
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
        let other = PublisherKey::generate(&scratch.path().join("b"), name("Acme Ltd")).unwrap();
        assert_ne!(other.publisher(), key.publisher());
        let secret = to_hex(key.key.as_bytes());
        assert!(!format!("{key:?}").contains(&secret));
    }

    #[test]
    fn existing_file_is_not_overwritten() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("acme.key");
        std::fs::write(&path, "precious").unwrap();
        let made = PublisherKey::generate(&path, name("Acme"));
        assert!(matches!(made, Err(PublisherKeyError::Exists { .. })), "{made:?}");
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        // A link that leads nowhere is something, too.
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink(scratch.path().join("nowhere"), &link).unwrap();
        let made = PublisherKey::generate(&link, name("Acme"));
        assert!(matches!(made, Err(PublisherKeyError::Exists { .. })), "{made:?}");
    }

    #[test]
    fn key_that_others_can_reach_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("acme.key");
        PublisherKey::generate(&path, name("Acme")).unwrap();
        for mode in [0o640, 0o604, 0o660, 0o610, 0o601] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let loaded = PublisherKey::load(&path);
            let is_refused = matches!(loaded, Err(PublisherKeyError::NotPrivate { mode: found, .. }) if found == mode);
            assert!(is_refused, "{mode:o}: {loaded:?}");
        }
        std::fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        PublisherKey::load(&path).unwrap();
    }

    #[test]
    fn damaged_key_file_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("acme.key");
        PublisherKey::generate(&path, name("Acme")).unwrap();
        let text = std::fs::read(&path).unwrap();
        let refused = |bytes: &[u8], what: &str| {
            std::fs::write(&path, bytes).unwrap();
            let loaded = PublisherKey::load(&path);
            assert!(matches!(loaded, Err(PublisherKeyError::Damaged { .. })), "{what}: {loaded:?}");
        };
        for len in 0..text.len() {
            refused(&text[..len], &format!("{len} bytes"));
        }
        refused(&[&text[..], b"\n"].concat(), "one more line");
        let secret = text.windows(7).position(|bytes| bytes == b"secret ").unwrap() + 7;
        for at in secret..secret + 64 {
            let mut flipped = text.clone();
            flipped[at] = if flipped[at] == b'0' { b'1' } else { b'0' };
            refused(&flipped, &format!("byte {at}"));
        }
    }

    #[test]
    fn public_text_is_read_as_written() {
        let key = PublisherKey::from_bytes([7; 32], name("Acme Ltd"));
        let text = key.publisher().to_string();
        assert_eq!(text.parse::<Publisher>().unwrap(), key.publisher());
        for bad in ["", "ed25519", "ed25519 00 Acme", &text.replace("ed25519", "rsa"), &text[..73]]
        {
            assert!(bad.parse::<Publisher>().is_err(), "{bad:?} was taken");
        }
        // The neutral element: under it, one signature fits every message.
        assert_eq!(PublicKey::parse(&format!("01{}", "00".repeat(31))), None);
    }
}
