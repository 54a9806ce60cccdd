//! The destination of a recording. Apart from the writer, so that tests can have every write fail.
//!
//! Invariant: a write that failed is never half done as far as the reader goes: what it left is cut
//! off, or told by its sum.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use rustix::process::{Resource, getrlimit};

/// A destination of bytes that can fail.
pub(super) trait Medium: Debug + Send {
    /// Whether bytes that were written can be written over.
    fn can_overwrite(&self) -> bool;
    /// Writes at `at_byte`, which is the end of what was appended successfully.
    fn append(&mut self, at_byte: u64, bytes: &[u8]) -> io::Result<()>;
    /// Writes over bytes that are there.
    fn overwrite(&mut self, at_byte: u64, bytes: &[u8]) -> io::Result<()>;
    /// Cuts off what is behind `length` bytes.
    fn cut(&mut self, length: u64) -> io::Result<()>;
    /// Has all of it on the disk, where there is one.
    fn sync(&mut self) -> io::Result<()>;
}

/// A file, or whatever else has a name that can be written to.
#[derive(Debug)]
pub(super) struct FileMedium {
    file: File,
    is_regular: bool,
}

impl FileMedium {
    pub(super) fn new(file: File) -> io::Result<FileMedium> {
        let is_regular = file.metadata()?.is_file();
        Ok(FileMedium { file, is_regular })
    }
}

/// Refuses what the limit on the size of files does not allow. The kernel would send a signal that
/// ends the process, and a library does not change what signals do.
fn within_limit(end_byte: u64) -> io::Result<()> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if end_byte > limit => Err(io::ErrorKind::FileTooLarge.into()),
        _ => Ok(()),
    }
}

impl Medium for FileMedium {
    fn can_overwrite(&self) -> bool {
        self.is_regular
    }

    fn append(&mut self, at_byte: u64, bytes: &[u8]) -> io::Result<()> {
        if !self.is_regular {
            return self.file.write_all(bytes);
        }
        within_limit(at_byte.saturating_add(bytes.len() as u64))?;
        self.file.write_all_at(bytes, at_byte)
    }

    fn overwrite(&mut self, at_byte: u64, bytes: &[u8]) -> io::Result<()> {
        within_limit(at_byte.saturating_add(bytes.len() as u64))?;
        self.file.write_all_at(bytes, at_byte)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        if self.is_regular { self.file.set_len(length) } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.is_regular { self.file.sync_data() } else { Ok(()) }
    }
}
