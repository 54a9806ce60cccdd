//! Programs that belong together are installed together.

use std::ffi::OsStr;
use std::path::PathBuf;

/// The program of this name: the one beside this process's own, which has its version, else the
/// first one in PATH.
#[must_use]
pub fn find(name: &OsStr) -> Option<PathBuf> {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(name));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path: Vec<PathBuf> =
        std::env::split_paths(&path).map(|folder| folder.join(name)).collect();
    beside.into_iter().chain(in_path).find(|path| path.is_file())
}
