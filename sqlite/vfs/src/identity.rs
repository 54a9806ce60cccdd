//! The identity of a database, whatever its name: device, inode and time of birth. The name of its
//! image in the pool says the same.

#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The identity of a database's file: device, inode, and time of birth in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity([u64; 3]);

/// Whether a database has hard links: its log may be beside another of its names.
pub(crate) fn has_several_names(database: &Path) -> io::Result<bool> {
    Ok(database.metadata()?.nlink() > 1)
}

impl Identity {
    /// Of device, inode, and time of birth in nanoseconds.
    pub(crate) const fn new(words: [u64; 3]) -> Identity {
        Identity(words)
    }

    /// Device, inode, and time of birth in nanoseconds.
    pub(crate) const fn words(self) -> [u64; 3] {
        self.0
    }

    /// Whether it is the same file but for the number of its device, which a file system can change
    /// with every mount.
    pub(crate) fn is_but_for_device(self, other: Identity) -> bool {
        self.0[1..] == other.0[1..]
    }

    pub(crate) fn of(database: &Path) -> io::Result<Identity> {
        Ok(Identity::from_metadata(&std::fs::metadata(database)?))
    }

    /// That of an open file.
    pub(crate) fn of_file(file: &File) -> io::Result<Identity> {
        Ok(Identity::from_metadata(&file.metadata()?))
    }

    /// The database of an image's file.
    pub(crate) fn of_image(path: &Path) -> Option<Identity> {
        if path.extension() != Some(OsStr::new("sqlite")) {
            return None;
        }
        let mut parts =
            path.file_stem()?.to_str()?.split('-').map(|part| u64::from_str_radix(part, 16).ok());
        let identity = Identity([parts.next()??, parts.next()??, parts.next()??]);
        parts.next().is_none().then_some(identity)
    }

    fn from_metadata(found: &Metadata) -> Identity {
        let born = found.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let born = born.map_or(0, |since| since.as_nanos() as u64);
        Identity([found.dev(), found.ino(), born])
    }

    /// Its image's file in a pool.
    pub(crate) fn image_path(self, pool: &Path) -> PathBuf {
        let [device, inode, born] = self.0;
        pool.join(format!("{device:x}-{inode:x}-{born:x}.sqlite"))
    }
}
