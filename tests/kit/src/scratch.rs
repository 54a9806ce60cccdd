//! A home and a pool of their own, removed with everything in them.
//!
//! Invariant: both lie in memory where there is a /dev/shm, so that a thousand checkpoints cost no
//! disk.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use holdfast_region::{NameSpace, Places};
use tempfile::TempDir;

use crate::programs::Programs;

/// A scratch home.
#[derive(Debug)]
pub struct Scratch {
    programs: Programs,
    directory: TempDir,
}

impl Scratch {
    /// An empty home for these programs.
    ///
    /// # Errors
    /// When there is no room for a temporary directory.
    pub fn new(programs: Programs) -> io::Result<Scratch> {
        let memory = Path::new("/dev/shm");
        let mut prefix = tempfile::Builder::new();
        prefix.prefix("holdfast-scratch-");
        let directory = if memory.is_dir() { prefix.tempdir_in(memory) } else { prefix.tempdir() };
        let scratch = Scratch { programs, directory: directory? };
        fs::create_dir(scratch.files())?;
        Ok(scratch)
    }

    /// The programs that run here.
    #[must_use]
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// `HOLDFAST_HOME`.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    /// `HOLDFAST_POOL`.
    #[must_use]
    pub fn pool(&self) -> PathBuf {
        self.directory.path().join("pool")
    }

    /// A directory for whatever a test writes, to be granted to applets.
    #[must_use]
    pub fn files(&self) -> PathBuf {
        self.directory.path().join("files")
    }

    /// A heap's image.
    #[must_use]
    pub fn image(&self, heap: &str) -> PathBuf {
        self.pool().join(format!("{heap}.image"))
    }

    /// A heap's checkpoint.
    #[must_use]
    pub fn base(&self, heap: &str) -> PathBuf {
        self.home().join("store").join(format!("{heap}.base"))
    }

    /// Writes a file below [`Scratch::files`].
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> io::Result<PathBuf> {
        let path = self.files().join(name);
        fs::write(&path, content)?;
        Ok(path)
    }

    /// `holdfast` in this home, with no input; arguments are added by the caller.
    #[must_use]
    pub fn holdfast(&self) -> Command {
        let mut command = Command::new(self.programs.holdfast());
        command.env("HOLDFAST_HOME", self.home()).env("HOLDFAST_POOL", self.pool());
        command.stdin(Stdio::null());
        command
    }

    /// The heaps of this home, in this process.
    ///
    /// # Errors
    /// When the directories cannot be used.
    pub fn names(&self) -> io::Result<NameSpace> {
        Places::at(self.home(), self.pool()).map(NameSpace::new).map_err(io::Error::other)
    }
}
