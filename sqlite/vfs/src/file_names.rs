//! The file that a path names, as it can be compared later: its identity, and when its inode
//! changed last.

#![forbid(unsafe_code)]

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file, and when its inode changed last: a rename changes it, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeenFile {
    pub(crate) file: FileId,
    changed: (i64, i64),
}

/// Device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId(u64, u64);

impl FileId {
    /// Of the file that a path names; `None` where there is none.
    pub(crate) fn of(path: &Path) -> Option<FileId> {
        path.metadata().ok().map(|found| FileId::from_metadata(&found))
    }

    fn from_metadata(found: &Metadata) -> FileId {
        FileId(found.dev(), found.ino())
    }
}

impl SeenFile {
    pub(crate) fn of(found: &Metadata) -> SeenFile {
        SeenFile {
            file: FileId::from_metadata(found),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }

    /// What a path names, or that it names nothing.
    pub(crate) fn at(path: &Path) -> io::Result<Option<SeenFile>> {
        match path.symlink_metadata() {
            Ok(found) => Ok(Some(SeenFile::of(&found))),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Database, log and their folder as they were when their names were last known to be durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) database: SeenFile,
    pub(crate) log: SeenFile,
    pub(crate) folder: SeenFile,
}

/// The folder in which a file is.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => Path::new("/"),
    }
}
