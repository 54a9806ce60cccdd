//! The identity of a key in words: `KEY.identity` beside the key's file.
//!
//! The record is for people: access never depends on it. It names the fingerprint of its key, so
//! that one that was left, or copied to another key's name, does not count.

use std::io;
use std::path::{Path, PathBuf};

use holdfast_region::text_file::{self, StepError};
use holdfast_region::{KernelStorage, KeyFingerprint, Places};

use crate::identity::Identity;

const TITLE: &str = "holdfast identity 1";
const EXTENSION: &str = "identity";
/// Held while a record changes.
const LOCK: &str = "identities.lock";
/// More than a whole record has.
const FILE_BYTES_MAX: u64 = 1024;

fn path_of(places: &Places, key_name: &str) -> PathBuf {
    places.keys().join(format!("{key_name}.{EXTENSION}"))
}

/// Records whose key this is, unless it is recorded so already.
pub(crate) fn write(
    places: &Places,
    key_name: &str,
    fingerprint: KeyFingerprint,
    identity: &Identity,
) -> Result<(), StepError> {
    let path = path_of(places, key_name);
    if read(&path).as_ref() == Some(&(fingerprint, identity.clone())) {
        return Ok(());
    }
    let lock = places.keys().join(LOCK);
    let _held = match text_file::lock(&lock) {
        Ok(Some(held)) => held,
        Ok(None) => return Err(("lock", lock, io::ErrorKind::TimedOut.into())),
        Err(error) => return Err(("lock", lock, error)),
    };
    let text = format!("{TITLE}\nkey {fingerprint}\nidentity {}\n", identity.to_text());
    text_file::replace(&KernelStorage, &path, &text)
}

/// Whose key one of this name and fingerprint is; `None` without a record that is whole.
pub(crate) fn of_key(
    places: &Places,
    key_name: &str,
    fingerprint: KeyFingerprint,
) -> Option<Identity> {
    let (recorded, identity) = read(&path_of(places, key_name))?;
    (recorded == fingerprint).then_some(identity)
}

/// Whose key one of this fingerprint is, by all records: the key's file may be gone.
pub(crate) fn of_fingerprint(places: &Places, fingerprint: KeyFingerprint) -> Option<Identity> {
    // Without a list there are no words.
    let entries = std::fs::read_dir(places.keys()).ok()?.flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION))
        .filter_map(|path| read(&path))
        .find_map(|(recorded, identity)| (recorded == fingerprint).then_some(identity))
}

fn read(path: &Path) -> Option<(KeyFingerprint, Identity)> {
    let text = text_file::read(path, FILE_BYTES_MAX).ok()??;
    let mut lines = text.strip_suffix('\n')?.split('\n');
    if lines.next()? != TITLE {
        return None;
    }
    let fingerprint = KeyFingerprint::parse(lines.next()?.strip_prefix("key ")?)?;
    let identity = lines.next()?.strip_prefix("identity ")?.parse().ok()?;
    lines.next().is_none().then_some((fingerprint, identity))
}
