//! The file that a path names, as it can be compared later: its identity, and when its inode
//! changed last.

#![forbid(unsafe_code)]

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use holdfast_sys::file::FileId;

/// A file, and when its inode changed last: a rename changes it, too.
///
/// To ask for this time makes the next write to the file dearer, see [`FileId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
