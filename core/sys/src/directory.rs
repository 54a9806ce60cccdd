//! A directory that is opened once and then used by its descriptor: what is checked is what is
//! used, whatever its path leads to by then.
//!
//! Invariant: no symbolic link is followed, neither to the directory nor in it.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};

use crate::file::effective_user;

/// Permission to write for others than the owner.
const WRITE_OF_OTHERS: u32 = 0o022;

/// A directory of this user that no other process may write to.
#[derive(Debug)]
pub struct PrivateDirectory(OwnedFd);

/// Why a directory is not private, or not there.
#[derive(Debug)]
pub enum NotPrivate {
    /// The kernel's answer.
    Refused(io::Error),
    /// Something else has the name, or a symbolic link.
    NotADirectory,
    /// It belongs to another user.
    OfAnother,
    /// Others than its owner may write to it.
    WritableByOthers,
}

/// An entry of a directory.
#[derive(Debug)]
pub struct Entry {
    /// Its name.
    pub name: Vec<u8>,
    /// Size of the file.
    pub bytes: u64,
    /// When its content was last changed.
    pub modified: SystemTime,
}

impl Entry {
    /// Its name, as one of a file in the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.name))
    }
}

impl PrivateDirectory {
    /// Opens a directory, making it (and what is missing above it) for this user alone.
    ///
    /// # Errors
    /// [`NotPrivate`] says why it is not to be trusted.
    pub fn open_or_create(path: &Path) -> Result<PrivateDirectory, NotPrivate> {
        match DirBuilder::new().recursive(true).mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(NotPrivate::Refused(error));
            }
            _ => {}
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(directory) => directory,
            Err(rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {
                return Err(NotPrivate::NotADirectory);
            }
            Err(error) => return Err(NotPrivate::Refused(error.into())),
        };
        let found =
            rustix::fs::fstat(&directory).map_err(|error| NotPrivate::Refused(error.into()))?;
        if found.st_uid != effective_user() {
            return Err(NotPrivate::OfAnother);
        }
        if found.st_mode & WRITE_OF_OTHERS != 0 {
            return Err(NotPrivate::WritableByOthers);
        }
        Ok(PrivateDirectory(directory))
    }

    /// Opens a file of it for reading, if it is one that only this user can have written: a regular
    /// file of theirs, closed to others' writing, of which there is no other link, through which it
    /// may have been put here.
    ///
    /// # Errors
    /// `PermissionDenied` for any other file; else what `openat` reports.
    pub fn open_own(&self, name: impl AsRef<Path>) -> io::Result<File> {
        // A pipe that a process put there must not make the opening wait.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.0, name.as_ref(), flags, Mode::empty())?;
        let found = rustix::fs::fstat(&file)?;
        if is_own(&found) {
            Ok(File::from(file))
        } else {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }

    /// Makes a file that only this user can read and write; its name must be free.
    ///
    /// # Errors
    /// What `openat` reports.
    pub fn create_new(&self, name: impl AsRef<Path>) -> io::Result<File> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(File::from(rustix::fs::openat(&self.0, name.as_ref(), flags, mode)?))
    }

    /// Gives a file another name, which may be another file's until then.
    ///
    /// # Errors
    /// What `renameat` reports.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, from.as_ref(), &self.0, to.as_ref())?)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// What `unlinkat` reports.
    pub fn remove(&self, name: impl AsRef<Path>) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name.as_ref(), AtFlags::empty())?)
    }

    /// Its regular files; one that vanishes meanwhile is left out.
    ///
    /// # Errors
    /// What `getdents` reports.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.0)? {
            let name = entry?.file_name().to_bytes().to_vec();
            let path = Path::new(OsStr::from_bytes(&name));
            let Ok(found) = rustix::fs::statat(&self.0, path, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
                continue;
            }
            let since = Duration::new(
                u64::try_from(found.st_mtime).unwrap_or(0),
                found.st_mtime_nsec as u32,
            );
            let modified = SystemTime::UNIX_EPOCH + since;
            entries.push(Entry {
                name,
                bytes: u64::try_from(found.st_size).unwrap_or(0),
                modified,
            });
        }
        Ok(entries)
    }
}

fn is_own(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
        && found.st_uid == effective_user()
        && found.st_mode & WRITE_OF_OTHERS == 0
        && found.st_nlink == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    /// A directory that others may write to or a link to one is refused.
    #[test]
    fn writable_or_linked_directories_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made/with/parents");
        PrivateDirectory::open_or_create(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        for bits in [0o720, 0o702, 0o777] {
            mode(&path, bits);
            let refused = PrivateDirectory::open_or_create(&path).unwrap_err();
            assert!(matches!(refused, NotPrivate::WritableByOthers), "{bits:o}: {refused:?}");
        }
        mode(&path, 0o755);
        PrivateDirectory::open_or_create(&path).unwrap();
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        let refused = PrivateDirectory::open_or_create(&link).unwrap_err();
        assert!(matches!(refused, NotPrivate::NotADirectory), "{refused:?}");
        std::fs::write(folder.path().join("file"), "").unwrap();
        PrivateDirectory::open_or_create(&folder.path().join("file")).unwrap_err();
    }

    /// Only a file that no other user can have written is opened.
    ///
    /// Guarantee: sandbox/compile-cache
    #[test]
    fn only_files_safe_from_others_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let directory = PrivateDirectory::open_or_create(folder.path()).unwrap();
        directory.create_new("new").unwrap().write_all(b"mine").unwrap();
        directory.create_new("new").unwrap_err();
        directory.rename("new", "own").unwrap();
        let mut text = String::new();
        directory.open_own("own").unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "mine");

        let own = folder.path().join("own");
        for bits in [0o660, 0o602] {
            mode(&own, bits);
            directory.open_own("own").unwrap_err();
        }
        mode(&own, 0o644);
        directory.open_own("own").unwrap();
        std::fs::hard_link(&own, folder.path().join("second")).unwrap();
        directory.open_own("own").unwrap_err();
        directory.remove("second").unwrap();
        directory.open_own("own").unwrap();
        symlink(&own, folder.path().join("link")).unwrap();
        directory.open_own("link").unwrap_err();
        std::fs::create_dir(folder.path().join("inner")).unwrap();
        directory.open_own("inner").unwrap_err();
        let names: Vec<_> =
            directory.entries().unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, [b"own"]);
    }
}
