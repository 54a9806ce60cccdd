//! The socket that users connect to: a path that all of them can reach, and that only the keeper
//! can have put there.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;

use holdfast_sys::file::effective_user;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::{DaemonError, Result};
use crate::serve::remove_old_socket;

/// Listens at a path, for everybody: who may ask is decided by who asks. What a keeper that was
/// killed left there is removed; anything else stays, and is an error.
pub(crate) fn bind(path: &Path) -> Result<UnixListener> {
    let failed = |step| DaemonError::io(step, path);
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.ok_or_else(|| DaemonError::Place {
        path: path.to_owned(),
        why: "it has no directory; give the whole path",
    })?;
    match DirBuilder::new().mode(0o755).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(DaemonError::io("make the directory", directory)(error));
        }
        _ => {}
    }
    check_directory(directory)?;
    remove_old_socket(path)?;
    let listener = UnixListener::bind(path).map_err(failed("listen at"))?;
    std::fs::set_permissions(path, Permissions::from_mode(0o666)).map_err(failed("open to all"))?;
    listener.set_nonblocking(true).map_err(failed("listen at"))?;
    Ok(listener)
}

/// A process that can write the directory could put a socket of their own there, and get what
/// programs store.
fn check_directory(directory: &Path) -> Result<()> {
    let found = directory.metadata().map_err(DaemonError::io("examine", directory))?;
    let refused = |why| Err(DaemonError::Place { path: directory.to_owned(), why });
    if found.uid() != effective_user() && found.uid() != 0 {
        return refused(
            "its directory belongs to another user, who could put another socket there",
        );
    }
    if found.mode() & 0o022 != 0 {
        return refused(
            "others can write its directory, and put another socket there; choose one of mode 0755",
        );
    }
    Ok(())
}

/// As many descriptors as this process may have, and how many these are.
pub(crate) fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, ..limit };
    match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => wanted.current.unwrap_or(u64::MAX),
        Err(_) => limit.current.unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: keeper/socket
    #[test]
    fn what_is_no_old_socket_of_ours_stays() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let path = directory.path().join("served.sock");
        drop(bind(&path).unwrap());
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o666);
        drop(bind(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "a letter").unwrap();
        assert!(matches!(bind(&path), Err(DaemonError::Place { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"a letter");
    }

    /// Guarantee: keeper/socket
    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), Permissions::from_mode(0o1777)).unwrap();
        let error = bind(&directory.path().join("s")).unwrap_err().to_string();
        assert!(error.contains("others can write"), "{error}");
        assert!(matches!(bind(Path::new("s")), Err(DaemonError::Place { .. })));
    }
}
