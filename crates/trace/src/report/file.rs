//! Writing a report to a file: whole, or not at all.
//!
//! Invariant: a file that was there before is as it was until the new one is complete and on the disk. A full disk is an error,
//! and nothing of what did not fit stays.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Why a report is not in its file.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}; make room or choose another place{}", path.display(), kept(*old_stays))]
pub struct WriteError {
    /// The file.
    pub path: PathBuf,
    /// What the kernel says.
    pub source: io::Error,
    /// Whether there is an older file there, which stayed as it was.
    pub old_stays: bool,
}

fn kept(old_stays: bool) -> &'static str {
    if old_stays { ". The file that was there is as it was" } else { "" }
}

/// Writes a file with what `fill` writes. Pipes and devices are written to directly.
///
/// # Errors
/// Those of the disk, and those of `fill`.
pub fn write_whole(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), WriteError> {
    let there = fs::metadata(path);
    let special = there.as_ref().is_ok_and(|file| !file.is_file());
    let done = if special { directly(path, fill) } else { beside(path, fill) };
    done.map_err(|source| WriteError { path: path.to_owned(), source, old_stays: there.is_ok() && !special })
}

fn directly(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(fs::OpenOptions::new().write(true).open(path)?);
    fill(&mut out)?;
    out.flush()
}

/// A new file takes the place of the old one when it is complete.
fn beside(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    // Through a link, as a plain write would.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // As any new file: what the process's mask leaves of it.
    let mut mode = fs::Permissions::from_mode(0o666);
    if let Ok(old) = fs::metadata(&path) {
        mode = old.permissions();
    }
    let file = tempfile::Builder::new().prefix(".holdfast-").permissions(mode).tempfile_in(folder)?;
    let mut out = BufWriter::new(file);
    fill(&mut out)?;
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.as_file().sync_all()?;
    file.persist(&path).map(drop).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn a_report_that_does_not_fit_leaves_the_old_one_and_nothing_beside_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("report.html");
        write_whole(&path, |out| out.write_all(b"old")).unwrap();
        let full = || io::Error::from_raw_os_error(28);
        let error = write_whole(&path, |out| out.write_all(b"half").and(Err(full()))).unwrap_err();
        assert!(
            error.to_string().contains("is as it was") && error.to_string().contains("make room"),
            "{error}"
        );
        assert_eq!(text(&path), "old");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
        write_whole(&path, |out| out.write_all(b"new")).unwrap();
        assert_eq!(text(&path), "new");
    }

    #[test]
    fn a_full_device_is_an_error_and_not_replaced() {
        let error = write_whole(Path::new("/dev/full"), |out| out.write_all(b"x")).unwrap_err();
        assert!(error.to_string().contains("No space left") && !error.old_stays, "{error}");
    }

    #[test]
    fn a_link_stays_one_and_a_folder_that_is_not_there_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let (link, target) = (place.path().join("link"), place.path().join("target"));
        fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write_whole(&link, |out| out.write_all(b"new")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink() && text(&target) == "new");
        assert!(write_whole(Path::new("/no/such/folder/x"), |_| Ok(())).is_err());
    }
}
