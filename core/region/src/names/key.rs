//! Owner keys: 32 random bytes in a file of their own. A region belongs to the key that created it.
//!
//! Headers and access tables hold only the key's SHA-256, its *fingerprint*, so who can read them
//! cannot derive the key. Fingerprints are no secrets: how long it takes to compare two of them
//! tells nothing of use. A key file is made durable before anything is created with it: a region
//! whose key is lost cannot be opened.

#![forbid(unsafe_code)]

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit, Mac};
use holdfast_sys::file::{private_options, refused_link, sync_directory};
use sha2::{Digest, Sha256};

use crate::error::RegionError;
use crate::error::key::KeyError;
use crate::error::place::PlaceError;
use crate::name::{RegionName, near_names};
use crate::names::places::{Places, check_owner};

const KEY_BYTES: usize = 32;
/// What the keys of compartments are derived under: another purpose would get another text.
const COMPARTMENT_DOMAIN: &[u8] = b"holdfast compartment 1";

/// A secret that owns regions. Its `Debug` form shows the fingerprint only.
#[derive(Clone)]
pub struct OwnerKey {
    secret: [u8; KEY_BYTES],
    fingerprint: [u8; 32],
}

impl PartialEq for OwnerKey {
    /// By fingerprint: the secrets themselves are never compared.
    fn eq(&self, other: &OwnerKey) -> bool {
        self.fingerprint == other.fingerprint
    }
}

impl Eq for OwnerKey {}

/// SHA-256 of a key: names the key without giving it away. Its text is 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyFingerprint([u8; 32]);

impl KeyFingerprint {
    /// The fingerprint with these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> KeyFingerprint {
        KeyFingerprint(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// Reads 64 hexadecimal digits; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<KeyFingerprint> {
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(KeyFingerprint(bytes))
    }
}

impl fmt::Display for KeyFingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyFingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "KeyFingerprint({self})")
    }
}

impl serde::Serialize for KeyFingerprint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl OwnerKey {
    /// Loads the key of a name, or makes one.
    ///
    /// # Errors
    /// [`KeyError`] when the name is bad, the file is no private key file of this user, or the
    /// kernel refuses.
    pub fn load_or_create(places: &Places, key_name: &str) -> Result<OwnerKey, KeyError> {
        if let Some(key) = OwnerKey::load(places, key_name)? {
            return Ok(key);
        }
        let path = path_of(places, key_name)?;
        create_file(places.keys(), &path)?;
        let file = private_options().read(true).open(&path).map_err(io_error("open", &path))?;
        OwnerKey::read(&path, file)
    }

    /// Loads the key of a name that must be there: a mistyped name makes no key.
    ///
    /// # Errors
    /// `Missing`; as [`OwnerKey::load_or_create`].
    pub fn load_existing(places: &Places, key_name: &str) -> Result<OwnerKey, KeyError> {
        if let Some(key) = OwnerKey::load(places, key_name)? {
            return Ok(key);
        }
        // Near names are a courtesy: without a list there are none.
        let near =
            near_names(&RegionName::parse(key_name)?, &OwnerKey::names(places).unwrap_or_default());
        Err(KeyError::Missing { name: key_name.to_owned(), near, path: path_of(places, key_name)? })
    }

    /// The names of all keys of a home, in order.
    ///
    /// # Errors
    /// `Io` when their directory cannot be listed.
    pub fn names(places: &Places) -> Result<Vec<RegionName>, KeyError> {
        let failed = || io_error("list", places.keys());
        let mut names = Vec::new();
        for entry in std::fs::read_dir(places.keys()).map_err(failed())? {
            let file_name = entry.map_err(failed())?.file_name();
            let stem = file_name.to_str().and_then(|text| text.strip_suffix(".key"));
            names.extend(stem.and_then(|stem| RegionName::parse(stem).ok()));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Whether this key owns a region whose header has the fingerprint `owner`: it made it, or it
    /// owns the region of which `name` is a compartment.
    #[must_use]
    pub fn owns(&self, name: &RegionName, owner: KeyFingerprint) -> bool {
        is_owner(name, owner.to_bytes(), self)
    }

    /// Loads the key of a name; `None` when there is none.
    ///
    /// # Errors
    /// As [`OwnerKey::load_or_create`].
    pub fn load(places: &Places, key_name: &str) -> Result<Option<OwnerKey>, KeyError> {
        let path = path_of(places, key_name)?;
        match private_options().read(true).open(&path) {
            Ok(file) => OwnerKey::read(&path, file).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if refused_link(&error) => Err(PlaceError::SymbolicLink { path }.into()),
            Err(error) => Err(io_error("open", &path)(error)),
        }
    }

    /// A key from bytes that the caller keeps.
    #[must_use]
    pub fn from_bytes(secret: [u8; KEY_BYTES]) -> OwnerKey {
        OwnerKey { secret, fingerprint: Sha256::digest(secret).into() }
    }

    /// The key of a compartment of this key's region `parent`: a worker that has only this one can
    /// neither derive that of another compartment nor the owner's. The same each time.
    #[must_use]
    pub fn for_compartment(&self, parent: &RegionName, worker: &RegionName) -> OwnerKey {
        // Names have no zero bytes, so no two pairs give the same text.
        let parts: [&[u8]; 5] = [
            COMPARTMENT_DOMAIN,
            b"\0",
            parent.as_str().as_bytes(),
            b"\0",
            worker.as_str().as_bytes(),
        ];
        // HMAC fills a key that is shorter than a block up with zeros.
        let mut block = [0; 64];
        block[..KEY_BYTES].copy_from_slice(&self.secret);
        let mac = Hmac::<Sha256>::new(&block.into());
        let derived = parts.into_iter().fold(mac, |mac, part| mac.chain_update(part));
        OwnerKey::from_bytes(derived.finalize().into_bytes().into())
    }

    /// SHA-256 of the key: what headers hold.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }

    fn read(path: &Path, mut file: File) -> Result<OwnerKey, KeyError> {
        let found = file.metadata().map_err(io_error("examine", path))?;
        if !found.is_file() {
            return Err(
                PlaceError::WrongKind { path: path.to_owned(), expected: "regular file" }.into()
            );
        }
        check_owner(path, found.uid())?;
        let mode = found.permissions().mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(
                PlaceError::NotPrivate { path: path.to_owned(), mode, remedy_mode: 0o600 }.into()
            );
        }
        let mut secret = [0; KEY_BYTES];
        if found.len() != KEY_BYTES as u64 {
            return Err(KeyError::Damaged { path: path.to_owned(), found_bytes: found.len() });
        }
        file.read_exact(&mut secret).map_err(io_error("read", path))?;
        Ok(OwnerKey::from_bytes(secret))
    }
}

impl fmt::Debug for OwnerKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("OwnerKey(")?;
        for byte in &self.fingerprint[..8] {
            write!(formatter, "{byte:02x}")?;
        }
        formatter.write_str("…)")
    }
}

fn path_of(places: &Places, key_name: &str) -> Result<PathBuf, KeyError> {
    let key_name = RegionName::parse(key_name)?;
    Ok(places.keys().join(format!("{key_name}.key")))
}

/// Makes a key file, whole and durable or not at all. When another process is faster, its key
/// stays.
fn create_file(keys: &Path, path: &Path) -> Result<(), KeyError> {
    // Version 4 UUIDs come from the kernel's generator; two carry 244 random bits. Hashed to 32
    // bytes.
    let secret = Sha256::new()
        .chain_update(uuid::Uuid::new_v4())
        .chain_update(uuid::Uuid::new_v4())
        .finalize();
    let temporary = keys.join(format!(".tmp-{}", uuid::Uuid::new_v4().simple()));
    let written = (|| {
        let mut file = private_options().write(true).create_new(true).open(&temporary)?;
        file.write_all(&secret)?;
        file.sync_all()?;
        // Unlike rename, a hard link does not replace a key that appeared meanwhile.
        match std::fs::hard_link(&temporary, path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => sync_directory(keys),
        }
    })();
    let removed = std::fs::remove_file(&temporary);
    written.and(removed).map_err(io_error("create", path))
}

fn io_error(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> KeyError {
    move |source| KeyError::Io { step, path: path.to_owned(), source }
}

/// Whether a key owns a region: it made it, or it owns the region of which this one is a
/// compartment.
pub(crate) fn is_owner(name: &RegionName, owner: [u8; 32], key: &OwnerKey) -> bool {
    let owns_parent =
        |(parent, worker)| key.for_compartment(&parent, &worker).fingerprint() == owner;
    owner == key.fingerprint() || name.parent_and_worker().is_some_and(owns_parent)
}

pub(crate) fn check_key(
    name: &RegionName,
    owner: [u8; 32],
    key: &OwnerKey,
) -> Result<(), RegionError> {
    if is_owner(name, owner, key) {
        Ok(())
    } else {
        Err(RegionError::NotOwner { name: name.to_string() })
    }
}
