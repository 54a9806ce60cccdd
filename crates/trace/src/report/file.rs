//! Writing a report to a file: whole, or not at all.
//!
//! Invariant: a file that was there before is as it was until the new one is complete and on the disk. A full disk is an error,
//! and nothing of what did not fit stays.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

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

/// A file that is being written.
#[derive(Debug)]
pub struct Whole {
    path: PathBuf,
    out: Out,
    old_stays: bool,
}

#[derive(Debug)]
enum Out {
    /// Takes the place of the old one when it is complete: with the path behind all links.
    Beside(BufWriter<NamedTempFile>, PathBuf),
    /// Pipes and devices.
    Direct(BufWriter<File>),
}

impl Whole {
    /// Begins a file.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn create(path: &Path) -> Result<Whole, WriteError> {
        let there = fs::metadata(path);
        let special = there.as_ref().is_ok_and(|file| !file.is_file());
        let old_stays = there.is_ok() && !special;
        let failed = |source| WriteError { path: path.to_owned(), source, old_stays };
        let out = if special {
            let file = fs::OpenOptions::new().write(true).open(path).map_err(failed)?;
            Out::Direct(BufWriter::new(file))
        } else {
            // Through a link, as a plain write would.
            let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            // As any new file: what the process's mask leaves of it.
            let mode = there.map_or_else(|_| fs::Permissions::from_mode(0o666), |old| old.permissions());
            Out::Beside(BufWriter::new(new_file(&real, mode).map_err(failed)?), real)
        };
        Ok(Whole { path: path.to_owned(), out, old_stays })
    }

    /// The file is complete.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn finish(self) -> Result<(), WriteError> {
        let failed = |source| WriteError { path: self.path.clone(), source, old_stays: self.old_stays };
        match self.out {
            Out::Direct(mut out) => out.flush().map_err(failed),
            Out::Beside(out, real) => {
                let file = out.into_inner().map_err(|error| failed(error.into_error()))?;
                file.as_file().sync_all().map_err(failed)?;
                file.persist(&real).map(drop).map_err(|error| failed(error.error))
            }
        }
    }

    /// The error of a write, with its file.
    #[must_use]
    pub fn failed(&self, source: io::Error) -> WriteError {
        WriteError { path: self.path.clone(), source, old_stays: self.old_stays }
    }
}

impl Write for Whole {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.out {
            Out::Beside(out, _) => out.write(bytes),
            Out::Direct(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.out {
            Out::Beside(out, _) => out.flush(),
            Out::Direct(out) => out.flush(),
        }
    }
}

fn new_file(path: &Path, mode: fs::Permissions) -> io::Result<NamedTempFile> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    tempfile::Builder::new().prefix(".holdfast-").permissions(mode).tempfile_in(folder)
}

/// Writes a file with what `fill` writes.
///
/// # Errors
/// Those of the disk, and those of `fill`.
pub fn write_whole(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), WriteError> {
    let mut file = Whole::create(path)?;
    fill(&mut file).map_err(|source| file.failed(source))?;
    file.finish()
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
