//! A place to run on: a directory of the user's, or a file system that is made for the run and is
//! gone after it.
//!
//! Invariants: what is made is gone when this is dropped. Of what takes room on the machine nothing
//! is left by SIGKILL either: images have no name once they are mounted, and mounts are in a name
//! space of this process alone; but an image that was being made stays, and so do empty
//! directories. In a directory of the user's, all is in one new directory, which SIGKILL leaves.
//! All are named `holdfast-trace-*`.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;

use tempfile::TempDir;

use super::MatrixError;

/// What a platform is made of.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PlatformPlace {
    /// A directory that is there.
    Directory(PathBuf),
    /// A file system of this kind, made for the run.
    Made(MadeFileSystem),
}

/// File systems that can be made for a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MadeFileSystem {
    /// Without a journal.
    Ext2,
    /// With one.
    Ext4,
    /// With one.
    Xfs,
    /// In memory.
    Tmpfs,
}

impl MadeFileSystem {
    const ALL: [MadeFileSystem; 4] =
        [MadeFileSystem::Ext2, MadeFileSystem::Ext4, MadeFileSystem::Xfs, MadeFileSystem::Tmpfs];

    fn name(self) -> &'static str {
        match self {
            MadeFileSystem::Ext2 => "ext2",
            MadeFileSystem::Ext4 => "ext4",
            MadeFileSystem::Xfs => "xfs",
            MadeFileSystem::Tmpfs => "tmpfs",
        }
    }
}

/// A platform as it is asked for: `NAME=DIRECTORY`, or `KIND=loop`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PlatformSpec {
    /// What the report calls it.
    pub name: String,
    /// What it is made of.
    pub place: PlatformPlace,
}

impl FromStr for PlatformSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<PlatformSpec, String> {
        const FORM: &str = "write NAME=DIRECTORY, or ext2=loop, ext4=loop, xfs=loop, tmpfs=loop for one that is made for the run";
        let (name, place) = text.split_once('=').ok_or(FORM)?;
        if name.is_empty() || place.is_empty() || name.chars().any(char::is_control) {
            return Err(FORM.to_owned());
        }
        let place = if place == "loop" {
            let kind = MadeFileSystem::ALL.into_iter().find(|kind| kind.name() == name);
            PlatformPlace::Made(
                kind.ok_or_else(|| format!("{name} cannot be made for a run; {FORM}"))?,
            )
        } else {
            PlatformPlace::Directory(PathBuf::from(place))
        };
        Ok(PlatformSpec { name: name.to_owned(), place })
    }
}

/// A platform that is there.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) name: String,
    /// Of its file system, as the kernel has it.
    pub(super) kind: String,
    directory: PathBuf,
    /// Unmounted before it is removed.
    mounted: bool,
    _place: Option<TempDir>,
}

impl Ready {
    /// Makes it, or looks whether it is there.
    pub(super) fn prepare(spec: &PlatformSpec, image_bytes: u64) -> Result<Ready, MatrixError> {
        let (directory, place, mounted) = match &spec.place {
            PlatformPlace::Directory(directory) => {
                let directory = fs::canonicalize(directory)
                    .map_err(|source| MatrixError::Directory { path: directory.clone(), source })?;
                (directory, None, false)
            }
            PlatformPlace::Made(kind) => {
                let place = temporary(None)?;
                let point = place.path().join("mounted");
                fs::create_dir(&point).map_err(MatrixError::io("make a directory", &point))?;
                make(*kind, place.path(), &point, image_bytes)?;
                (point, Some(place), true)
            }
        };
        let kind = crate::machine::kind_of(&directory);
        Ok(Ready { name: spec.name.clone(), kind, directory, mounted, _place: place })
    }

    /// A new, empty directory on it.
    pub(super) fn fresh_directory(&self) -> Result<TempDir, MatrixError> {
        temporary(Some(&self.directory))
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        if self.mounted {
            // No other process sees it; a program that is still in there keeps it until it ends.
            let _ = quiet(Command::new("umount").arg("--lazy").arg(&self.directory));
        }
    }
}

fn temporary(inside: Option<&Path>) -> Result<TempDir, MatrixError> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("holdfast-trace-");
    let made = match inside {
        Some(inside) => builder.tempdir_in(inside),
        None => builder.tempdir(),
    };
    let place = || inside.map_or_else(std::env::temp_dir, Path::to_owned);
    made.map_err(|source| MatrixError::Directory { path: place(), source })
}

fn make(
    kind: MadeFileSystem,
    place: &Path,
    point: &Path,
    image_bytes: u64,
) -> Result<(), MatrixError> {
    if !rustix::process::geteuid().is_root() {
        return Err(MatrixError::NotRoot { kind: kind.name() });
    }
    let mut mount = Command::new("mount");
    if kind == MadeFileSystem::Tmpfs {
        mount
            .args(["-t", "tmpfs", "-o", &format!("size={image_bytes},mode=0755"), "holdfast-trace"])
            .arg(point);
        return tool(&mut mount, kind);
    }
    let image = place.join("image");
    let file = File::create_new(&image).map_err(MatrixError::io("make", &image))?;
    file.set_len(image_bytes).map_err(MatrixError::io("make", &image))?;
    drop(file);
    let mut format = match kind {
        MadeFileSystem::Xfs => Command::new("mkfs.xfs"),
        _ => Command::new("mkfs.ext4"),
    };
    match kind {
        // Nothing is left for later that would run beside the measurement.
        MadeFileSystem::Ext4 => {
            format.args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
        }
        MadeFileSystem::Ext2 => format.args(["-q", "-F", "-t", "ext2", "-E", "lazy_itable_init=0"]),
        _ => format.arg("-q"),
    };
    // Tools of the system may be where only root's PATH leads.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    tool(format.arg(&image).env("PATH", &path), kind)?;
    tool(mount.args(["-o", "loop"]).arg(&image).arg(point).env("PATH", &path), kind)?;
    // The mount keeps it; and so nothing is left of it when this process is killed.
    fs::remove_file(&image).map_err(MatrixError::io("remove", &image))
}

fn quiet(command: &mut Command) -> io::Result<std::process::Output> {
    command.stdin(Stdio::null()).output()
}

fn tool(command: &mut Command, kind: MadeFileSystem) -> Result<(), MatrixError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let package = match (kind, program.as_str()) {
        (_, "mount") => "mount",
        (MadeFileSystem::Xfs, _) => "xfsprogs",
        _ => "e2fsprogs",
    };
    let failed = |why: String| MatrixError::Tool {
        program: program.clone(),
        kind: kind.name(),
        package,
        why,
    };
    let output = quiet(command).map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A platform is a directory or the type of a file system that can be created.
    #[test]
    fn platform_is_a_directory_or_a_file_system() {
        let parse = |text: &str| text.parse::<PlatformSpec>();
        assert_eq!(parse("ext4=loop").unwrap().place, PlatformPlace::Made(MadeFileSystem::Ext4));
        assert_eq!(
            parse("fast disk=/mnt/a=b").unwrap().place,
            PlatformPlace::Directory("/mnt/a=b".into())
        );
        for wrong in ["ext4", "=x", "x=", "zfs=loop", "a\n=/tmp"] {
            assert!(parse(wrong).unwrap_err().contains("ext4=loop"), "{wrong}");
        }
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let spec = "gone=/no/such/directory".parse().unwrap();
        let error = Ready::prepare(&spec, 1 << 20).unwrap_err().to_string();
        assert!(error.contains("/no/such/directory"), "{error}");
    }
}
