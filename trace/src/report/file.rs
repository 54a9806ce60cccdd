//! Writing a report to a file: whole, or not at all.
//!
//! Invariant: a file that was there before is as it was until the new one is complete and on the
//! disk. A full disk is an error, and nothing of what did not fit stays. What is no file of its own
//! is never replaced: standard output, other open descriptors (`/dev/stdout`, `/proc/self/fd/3`),
//! pipes and devices are written to, behind what is in them. A reader of standard output that went
//! away (`| head`) has what it wants: the rest goes nowhere, and that is no error.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
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

/// What is written to as it is.
#[derive(Debug)]
struct Direct {
    file: File,
    is_output: bool,
}

impl Direct {
    fn output() -> io::Result<Direct> {
        Ok(Direct { file: io::stdout().as_fd().try_clone_to_owned()?.into(), is_output: true })
    }
}

impl From<File> for Direct {
    fn from(file: File) -> Direct {
        Direct { file, is_output: false }
    }
}

impl Write for Direct {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.file.write(bytes) {
            Err(error) if self.is_output && error.kind() == io::ErrorKind::BrokenPipe => {
                Ok(bytes.len())
            }
            done => done,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A file that is being written.
#[derive(Debug)]
pub struct WholeFile {
    path: PathBuf,
    out: Destination,
    old_stays: bool,
}

#[derive(Debug)]
enum Destination {
    /// Takes the place of the old one when it is complete: with the path behind all links.
    Beside(BufWriter<NamedTempFile>, PathBuf),
    /// Descriptors, pipes and devices.
    Direct(BufWriter<Direct>),
}

impl WholeFile {
    /// Begins a file.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn create(path: &Path) -> Result<WholeFile, WriteError> {
        let failed = |source, old_stays| WriteError { path: path.to_owned(), source, old_stays };
        let real = match behind_links(path).map_err(|error| failed(error, false))? {
            PathTarget::Descriptor(path) => {
                let file = open_descriptor(&path).map_err(|error| failed(error, false))?;
                return Ok(WholeFile::direct(path, file));
            }
            PathTarget::File(real) => real,
        };
        let there = fs::metadata(&real);
        if there.as_ref().is_ok_and(|file| !file.is_file()) {
            let file =
                File::options().write(true).open(&real).map_err(|error| failed(error, false))?;
            return Ok(WholeFile::direct(path.to_owned(), file.into()));
        }
        let old_stays = there.is_ok();
        // As any new file: what the process's mask leaves of it.
        let mode =
            there.map_or_else(|_| fs::Permissions::from_mode(0o666), |old| old.permissions());
        let out = new_file(&real, mode).map_err(|error| failed(error, old_stays))?;
        Ok(WholeFile {
            path: path.to_owned(),
            out: Destination::Beside(BufWriter::new(out), real),
            old_stays,
        })
    }

    /// Standard output, whatever it leads to.
    ///
    /// # Errors
    /// Those of a process that has none, or no number for one more descriptor.
    pub fn standard_output() -> Result<WholeFile, WriteError> {
        let path = PathBuf::from("standard output");
        match Direct::output() {
            Ok(output) => Ok(WholeFile::direct(path, output)),
            Err(source) => Err(WriteError { path, source, old_stays: false }),
        }
    }

    fn direct(path: PathBuf, file: Direct) -> WholeFile {
        WholeFile { path, out: Destination::Direct(BufWriter::new(file)), old_stays: false }
    }

    /// The file is complete.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn finish(self) -> Result<(), WriteError> {
        let failed =
            |source| WriteError { path: self.path.clone(), source, old_stays: self.old_stays };
        match self.out {
            Destination::Direct(mut out) => out.flush().map_err(failed),
            Destination::Beside(out, real) => {
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

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.out {
            Destination::Beside(out, _) => out.write(bytes),
            Destination::Direct(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.out {
            Destination::Beside(out, _) => out.flush(),
            Destination::Direct(out) => out.flush(),
        }
    }
}

/// What a path leads to.
enum PathTarget {
    /// The name of an open descriptor, below `/proc`.
    Descriptor(PathBuf),
    /// Anything else, also what is not there yet: a path without links.
    File(PathBuf),
}

/// As many as the kernel follows.
const LINKS_MAX: usize = 40;

/// Follows links as a plain write would, and no further than to the name of a descriptor: the
/// kernel shows that as a link to a file, which is another file's name by now, or no name at all.
fn behind_links(path: &Path) -> io::Result<PathTarget> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Some(name) = path.file_name() else { return Ok(PathTarget::File(path)) };
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.canonicalize()?,
            _ => Path::new(".").canonicalize()?,
        };
        let at = folder.join(name);
        if folder.starts_with("/proc") && folder.ends_with("fd") {
            return Ok(PathTarget::Descriptor(at));
        }
        match fs::read_link(&at) {
            Ok(target) => path = folder.join(target),
            // No link, or nothing there.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::InvalidInput | io::ErrorKind::NotFound
                ) =>
            {
                return Ok(PathTarget::File(at));
            }
            Err(error) => return Err(error),
        }
    }
    Err(rustix::io::Errno::LOOP.into())
}

/// The standard ones are shared with whatever else has them, the place to write at included. To
/// open another one anew would begin at its file's start; the end loses nothing.
fn open_descriptor(path: &Path) -> io::Result<Direct> {
    let own = fs::read_link("/proc/self")?;
    let is_own = path.starts_with(Path::new("/proc").join(own));
    match path.file_name().and_then(|name| name.to_str()) {
        Some("1") if is_own => Direct::output(),
        Some("2") if is_own => Ok(File::from(io::stderr().as_fd().try_clone_to_owned()?).into()),
        _ => Ok(File::options().append(true).open(path)?.into()),
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
    let mut file = WholeFile::create(path)?;
    fill(&mut file).map_err(|source| file.failed(source))?;
    file.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    /// A report that does not fit leaves the old file and no temporary file next to it.
    ///
    /// Guarantee: trace/whole-files
    #[test]
    fn failed_write_leaves_only_the_old_report() {
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

    /// Guarantee: trace/whole-files
    #[test]
    fn a_full_device_is_an_error_and_not_replaced() {
        let error = write_whole(Path::new("/dev/full"), |out| out.write_all(b"x")).unwrap_err();
        assert!(error.to_string().contains("No space left") && !error.old_stays, "{error}");
    }

    /// Writing through a symbolic link keeps the link; a missing directory is an error.
    #[test]
    fn link_stays_and_missing_folder_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let (link, target) = (place.path().join("link"), place.path().join("target"));
        fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write_whole(&link, |out| out.write_all(b"new")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink() && text(&target) == "new");
        assert!(write_whole(Path::new("/no/such/folder/x"), |_| Ok(())).is_err());
    }

    /// A link to a missing file creates that file; a loop of links is an error.
    ///
    /// Guarantee: trace/whole-files
    #[test]
    fn dangling_link_is_followed_and_a_loop_fails() {
        let place = tempfile::tempdir().unwrap();
        let (link, target) = (place.path().join("link"), place.path().join("target"));
        std::os::unix::fs::symlink("target", &link).unwrap();
        write_whole(&link, |out| out.write_all(b"new")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink() && text(&target) == "new");
        let ring = place.path().join("ring");
        std::os::unix::fs::symlink("ring", &ring).unwrap();
        assert!(write_whole(&ring, |out| out.write_all(b"new")).is_err());
        assert!(fs::symlink_metadata(&ring).unwrap().is_symlink());
    }

    /// Output to a file descriptor is appended and does not replace its file.
    ///
    /// Guarantee: trace/whole-files
    #[test]
    fn descriptor_is_appended_to_not_replaced() {
        use std::os::fd::AsRawFd;
        use std::os::unix::fs::MetadataExt;
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let mut file = File::create_new(&path).unwrap();
        file.write_all(b"before, ").unwrap();
        let number = file.as_raw_fd();
        let link = place.path().join("link");
        std::os::unix::fs::symlink(format!("/dev/fd/{number}"), &link).unwrap();
        for name in [
            format!("/proc/self/fd/{number}").into(),
            format!("/dev/fd/{number}").into(),
            link.clone(),
        ] {
            write_whole(&name, |out| out.write_all(b"report, ")).unwrap();
        }
        assert_eq!(text(&path), "before, report, report, report, ");
        assert_eq!(fs::metadata(&path).unwrap().ino(), file.metadata().unwrap().ino());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
    }
}
