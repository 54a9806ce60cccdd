//! The file that a path names, as it can be compared later: its identity, and when its inode
//! changed last.

#![forbid(unsafe_code)]

use std::fs::Metadata;
use std::hash::Hash;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use holdfast_sys::file::FileId;
use xxhash_rust::xxh3::Xxh3;

/// Longer than any step of a kernel's clock for the times of inodes.
const SETTLED: Duration = Duration::from_secs(2);

/// A file, and when its inode changed last: a rename changes it, too.
///
/// To ask for this time makes the next write to the file dearer, see [`FileId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SeenFile {
    file: FileId,
    changed: (i64, i64),
}

impl SeenFile {
    pub(crate) fn of(found: &Metadata) -> SeenFile {
        SeenFile {
            file: FileId::from_metadata(found),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }

    /// Whether it would have another time by now if it changed again, also where the kernel's clock
    /// for that is coarse.
    pub(crate) fn is_settled(&self) -> bool {
        let seconds = u64::try_from(self.changed.0).unwrap_or_default();
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        changed.elapsed().is_ok_and(|since| since >= SETTLED)
    }

    /// A sum over it, and a file in it; never 0.
    pub(crate) fn sum_with(&self, file: FileId) -> u64 {
        let mut hasher = Xxh3::new();
        (self, file).hash(&mut hasher);
        hasher.digest().max(1)
    }
}

/// The file that a path names, but for symbolic links; `None` where there is none, or it cannot be
/// looked at.
pub(crate) fn file_of(path: &Path) -> Option<FileId> {
    path.metadata().ok().map(|found| FileId::from_metadata(&found))
}

/// What was seen when the names of database and log were last known to be durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) folder: SeenFile,
    /// Database and log; only while files come and go in their folder, see `names.rs`.
    pub(crate) files: Option<[SeenFile; 2]>,
}

/// The folder in which a file is.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => Path::new("/"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;

    /// A session believes that its log's name is durable only in a folder that has not changed since
    /// it was synced, and not just before either, and only of the log that was there.
    #[test]
    fn folder_that_changed_has_another_sum() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let [log, other] = ["log", "other"].map(|name| folder.path().join(name));
        std::fs::write(&log, []).unwrap();
        let seen = || SeenFile::of(&folder.path().metadata().unwrap());
        let before = seen();
        let id = file_of(&log).unwrap();
        assert!(!before.is_settled(), "it changed just now");
        assert_eq!(before.sum_with(id), seen().sum_with(id));
        let long_ago = SeenFile { changed: (before.changed.0 - 3, 0), ..before };
        assert!(long_ago.is_settled());
        std::thread::sleep(Duration::from_millis(20));
        std::fs::rename(&log, &other).unwrap();
        std::fs::rename(&other, &log).unwrap();
        assert_ne!(before.sum_with(id), seen().sum_with(id));
        std::fs::copy(&log, &other).unwrap();
        assert_ne!(seen().sum_with(id), seen().sum_with(file_of(&other).unwrap()));
    }
}
