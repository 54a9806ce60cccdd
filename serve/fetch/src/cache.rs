//! Applets by their content: files named by their SHA-256, in a directory of this user alone.
//!
//! Invariants:
//! - A file gets its name only when it is complete, durable and has the hash that the name says.
//! - [`AppletCache::find`] reads the whole file each time; one with other bytes is removed.
//! - A file that is good is not replaced, and using it changes its times once a minute at most:
//!   others hash it meanwhile, and take a new change time for a change.
//! - The cache never holds more than its limit for longer than one store takes; the file that was
//!   stored last stays.

use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use holdfast_region::Places;
use holdfast_sys::directory::{NotPrivate, PrivateDirectory};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use crate::hash::AppletHash;

/// How much the cache of a home holds.
pub const CACHE_BYTES_MAX: u64 = 1 << 30;
const FOLDER: &str = "applets";
const INCOMING: &str = "incoming-";
/// A file that is still incomplete after this time has lost its writer.
const INCOMING_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// A use is noted when the one noted before is older than this.
const TOUCH_AFTER: Duration = Duration::from_secs(60);
/// A native program is executed from here.
const MODE: u32 = 0o700;
const READ_BYTES: usize = 64 << 10;

/// Why an applet was not stored or found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The directory is not private.
    #[error(
        "cannot keep applets in {}: {reason}; make it a directory of this user that no other one can write to", path.display()
    )]
    NotPrivate {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The kernel refused a step.
    #[error("cannot {step} {}: {source}", path.display())]
    Io {
        /// The step, as a verb.
        step: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The applet is too large.
    #[error("the applet has more than {bytes_max} bytes; use a smaller one")]
    TooLarge {
        /// What it may have.
        bytes_max: u64,
    },
    /// The bytes have another hash.
    #[error(
        "the applet has SHA-256 {found}, not {asked} as it should; it was not kept, and nothing of it ran"
    )]
    WrongHash {
        /// What was asked for.
        asked: AppletHash,
        /// What the bytes have.
        found: AppletHash,
    },
}

/// The applets that a home keeps.
#[derive(Debug)]
pub struct AppletCache {
    path: PathBuf,
    directory: PrivateDirectory,
    limit_bytes: u64,
}

impl AppletCache {
    /// The cache of a home, made if there is none.
    ///
    /// # Errors
    /// `NotPrivate`; `Io`.
    pub fn of(places: &Places) -> Result<AppletCache, CacheError> {
        AppletCache::at(places.home().join(FOLDER), CACHE_BYTES_MAX)
    }

    /// The cache in a directory, made if there is none, with so much room.
    ///
    /// # Errors
    /// `NotPrivate`; `Io`.
    pub fn at(path: impl Into<PathBuf>, limit_bytes: u64) -> Result<AppletCache, CacheError> {
        let path = path.into();
        let not_private = |reason| Err(CacheError::NotPrivate { path: path.clone(), reason });
        match PrivateDirectory::open_or_create(&path) {
            Ok(directory) => Ok(AppletCache { path, directory, limit_bytes }),
            Err(NotPrivate::Refused(source)) => Err(CacheError::Io { step: "open", path, source }),
            Err(NotPrivate::NotADirectory) => not_private("it is no directory"),
            Err(NotPrivate::OfAnother) => not_private("it belongs to another user"),
            Err(NotPrivate::WritableByOthers) => not_private("other users may write to it"),
        }
    }

    /// The file of an applet, if it is here and has its hash.
    ///
    /// # Errors
    /// `Io`.
    pub fn find(&self, hash: AppletHash) -> Result<Option<PathBuf>, CacheError> {
        let name = hash.to_string();
        let path = self.path.join(&name);
        let mut file = match self.directory.open_own(&name) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            // Another process put it there, or linked to it.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return self.remove(&name).map(|()| None);
            }
            Err(source) => return Err(CacheError::Io { step: "open", path, source }),
        };
        let found = hash_of(&mut file).map_err(|source| CacheError::Io {
            step: "read",
            path: path.clone(),
            source,
        })?;
        if found != hash {
            return self.remove(&name).map(|()| None);
        }
        if is_touch_due(&file) {
            // Used now, so evicted last. A home that cannot be written to has applets all the same.
            let _ = file.set_modified(SystemTime::now());
        }
        Ok(Some(path))
    }

    /// Takes in an applet of at most so many bytes, chunk by chunk.
    ///
    /// # Errors
    /// `Io`.
    pub fn receive(&self, hash: AppletHash, bytes_max: u64) -> Result<Incoming, CacheError> {
        let file = tempfile::Builder::new().prefix(INCOMING).tempfile_in(&self.path).map_err(
            |source| CacheError::Io { step: "write to", path: self.path.clone(), source },
        )?;
        Ok(Incoming { file, hasher: Sha256::new(), asked: hash, bytes: 0, bytes_max })
    }

    /// Gives a complete applet its name, unless it is here already, and returns its path.
    ///
    /// # Errors
    /// `WrongHash`; `Io`.
    pub fn store(&self, incoming: Incoming) -> Result<PathBuf, CacheError> {
        let Incoming { file, hasher, asked, .. } = incoming;
        let found = AppletHash::from_bytes(hasher.finalize().into());
        if found != asked {
            return Err(CacheError::WrongHash { asked, found });
        }
        let path = self.path.join(asked.to_string());
        let failed = |source| CacheError::Io { step: "write", path: path.clone(), source };
        file.as_file().set_permissions(Permissions::from_mode(MODE)).map_err(failed)?;
        file.as_file().sync_all().map_err(failed)?;
        // Another page stored it meanwhile, and may be starting it. One that cannot be read is
        // replaced.
        if let Ok(Some(kept)) = self.find(asked) {
            return Ok(kept);
        }
        file.persist(&path).map_err(|error| failed(error.error))?;
        self.evict(&path)?;
        Ok(path)
    }

    /// Removes what was used least recently until the rest has room; also what lost its writer.
    fn evict(&self, kept: &Path) -> Result<(), CacheError> {
        let failed = |source| CacheError::Io { step: "list", path: self.path.clone(), source };
        let mut entries = self.directory.entries().map_err(failed)?;
        entries.sort_by_key(|entry| entry.modified);
        let mut bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
        for entry in entries {
            let is_incoming = entry.name.starts_with(INCOMING.as_bytes());
            let age = entry.modified.elapsed().unwrap_or_default();
            let is_surplus = match is_incoming {
                true => age > INCOMING_MAX,
                false => {
                    bytes > self.limit_bytes && kept.file_name() != Some(entry.path().as_os_str())
                }
            };
            if is_surplus {
                self.remove(entry.path())?;
                bytes = bytes.saturating_sub(entry.bytes);
            }
        }
        Ok(())
    }

    fn remove(&self, name: impl AsRef<Path>) -> Result<(), CacheError> {
        match self.directory.remove(&name) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(CacheError::Io { step: "remove", path: self.path.join(name), source })
            }
            _ => Ok(()),
        }
    }
}

/// An applet on its way into the cache; dropped, it leaves nothing behind.
#[derive(Debug)]
pub struct Incoming {
    file: NamedTempFile,
    hasher: Sha256,
    asked: AppletHash,
    bytes: u64,
    bytes_max: u64,
}

impl Incoming {
    /// Adds the next bytes.
    ///
    /// # Errors
    /// `TooLarge`; `Io`.
    pub fn write(&mut self, chunk: &[u8]) -> Result<(), CacheError> {
        self.bytes = self.bytes.saturating_add(chunk.len() as u64);
        if self.bytes > self.bytes_max {
            return Err(CacheError::TooLarge { bytes_max: self.bytes_max });
        }
        self.hasher.update(chunk);
        self.file.write_all(chunk).map_err(|source| CacheError::Io {
            step: "write",
            path: self.file.path().to_owned(),
            source,
        })
    }
}

/// Whether the last use of a file was noted long ago, or in a time that the clock has left again.
fn is_touch_due(file: &fs::File) -> bool {
    let modified = file.metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| modified.elapsed().ok().is_none_or(|age| age > TOUCH_AFTER))
}

fn hash_of(file: &mut fs::File) -> io::Result<AppletHash> {
    let (mut hasher, mut buffer) = (Sha256::new(), vec![0; READ_BYTES]);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(AppletHash::from_bytes(hasher.finalize().into())),
            Ok(count) => hasher.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn hash(bytes: &[u8]) -> AppletHash {
        AppletHash::from_bytes(Sha256::digest(bytes).into())
    }

    fn keep(cache: &AppletCache, bytes: &[u8]) -> PathBuf {
        let mut incoming = cache.receive(hash(bytes), 100).unwrap();
        bytes.chunks(3).for_each(|chunk| incoming.write(chunk).unwrap());
        cache.store(incoming).unwrap()
    }

    /// Applets are kept by their content, in files of this user alone.
    ///
    /// Guarantee: serve/content-addressed
    #[test]
    fn applet_is_found_by_its_hash() {
        let folder = tempfile::tempdir().unwrap();
        let cache = AppletCache::at(folder.path().join("applets"), 1000).unwrap();
        assert_eq!(cache.find(hash(b"applet")).unwrap(), None);
        let path = keep(&cache, b"applet");
        assert_eq!(fs::read(&path).unwrap(), b"applet");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(cache.find(hash(b"applet")).unwrap(), Some(path));
        assert_eq!(cache.find(hash(b"other")).unwrap(), None);
    }

    /// A file of the cache that was changed is not handed out.
    ///
    /// Guarantee: serve/content-addressed
    #[test]
    fn changed_file_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let cache = AppletCache::at(folder.path(), 1000).unwrap();
        let path = keep(&cache, b"applet");
        fs::write(&path, b"poison").unwrap();
        assert_eq!(cache.find(hash(b"applet")).unwrap(), None);
        assert!(!path.exists());
    }

    /// Bytes with another hash, or too many of them, leave nothing behind.
    ///
    /// Guarantee: serve/hash-mismatch
    #[test]
    fn wrong_or_oversized_bytes_are_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let cache = AppletCache::at(folder.path(), 1000).unwrap();
        let mut incoming = cache.receive(hash(b"asked"), 100).unwrap();
        incoming.write(b"found").unwrap();
        let error = cache.store(incoming).unwrap_err().to_string();
        for named in [hash(b"asked"), hash(b"found")] {
            assert!(error.contains(&named.to_string()), "{error}");
        }
        let mut incoming = cache.receive(hash(b"x"), 4).unwrap();
        assert!(matches!(incoming.write(b"12345"), Err(CacheError::TooLarge { bytes_max: 4 })));
        drop(incoming);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    /// A use right after another leaves the file's times as they are: a start that hashes it
    /// meanwhile would take it for changed.
    ///
    /// Guarantee: serve/content-addressed
    #[test]
    fn repeated_use_leaves_the_file_untouched() {
        let folder = tempfile::tempdir().unwrap();
        let cache = AppletCache::at(folder.path(), 1000).unwrap();
        let path = keep(&cache, b"applet");
        let now = SystemTime::now();
        for modified in [now - 2 * TOUCH_AFTER, now + 60 * TOUCH_AFTER] {
            fs::File::open(&path).unwrap().set_modified(modified).unwrap();
            assert!(cache.find(hash(b"applet")).unwrap().is_some());
            let touched = fs::metadata(&path).unwrap();
            assert!(touched.modified().unwrap() < now + 30 * TOUCH_AFTER);
            assert!(touched.modified().unwrap() > now - TOUCH_AFTER);
            // Longer than the steps of the file system's clock.
            std::thread::sleep(Duration::from_millis(50));
            assert!(cache.find(hash(b"applet")).unwrap().is_some());
            let found = fs::metadata(&path).unwrap();
            assert_eq!(found.modified().unwrap(), touched.modified().unwrap());
            let changed = |of: &fs::Metadata| (of.ctime(), of.ctime_nsec());
            assert_eq!(changed(&found), changed(&touched));
        }
    }

    /// A second store leaves the file that is there, unless its bytes were changed.
    ///
    /// Guarantee: serve/content-addressed
    #[test]
    fn second_store_keeps_the_first_file() {
        let folder = tempfile::tempdir().unwrap();
        let cache = AppletCache::at(folder.path(), 1000).unwrap();
        let path = keep(&cache, b"applet");
        let first = fs::File::open(&path).unwrap();
        assert_eq!(keep(&cache, b"applet"), path);
        let inode = |found: fs::Metadata| (found.dev(), found.ino());
        assert_eq!(inode(fs::metadata(&path).unwrap()), inode(first.metadata().unwrap()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        fs::write(&path, b"poison").unwrap();
        assert_eq!(keep(&cache, b"applet"), path);
        assert_eq!(fs::read(&path).unwrap(), b"applet");
    }

    /// A full cache gives up what was used least recently.
    #[test]
    fn least_recently_used_is_evicted() {
        let folder = tempfile::tempdir().unwrap();
        let cache = AppletCache::at(folder.path(), 20).unwrap();
        let old = SystemTime::now() - Duration::from_secs(1000);
        for (at, bytes) in [b"aaaaaaaa", b"bbbbbbbb"].into_iter().enumerate() {
            let file = fs::File::open(keep(&cache, bytes)).unwrap();
            file.set_modified(old + Duration::from_secs(at as u64)).unwrap();
        }
        assert!(cache.find(hash(b"aaaaaaaa")).unwrap().is_some());
        keep(&cache, b"cccccccc");
        assert!(cache.find(hash(b"bbbbbbbb")).unwrap().is_none());
        assert!(cache.find(hash(b"aaaaaaaa")).unwrap().is_some());
        assert!(cache.find(hash(b"cccccccc")).unwrap().is_some());
    }
}
