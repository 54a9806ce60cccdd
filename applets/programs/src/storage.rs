//! Named byte sequences that a program reads and writes, on four backends:
//!
//! - [`files`]: POSIX files, or WASI's, with a buffer of any size or none;
//! - [`mapped`]: files that are mapped as a whole (in WebAssembly, which cannot map files, read as
//!   a whole), and written from memory with one call;
//! - [`heap`]: objects of the persistent heap, read and written where they lie;
//! - [`volatile`]: ordinary memory of the same sandbox, the least that any of these can cost.
//!
//! Invariant: an object that is written replaces the one of its name when it is finished.

pub mod files;
#[allow(unsafe_code, reason = "objects of the heap are slices of its memory")]
pub mod heap;
#[cfg_attr(not(target_family = "wasm"), allow(unsafe_code, reason = "maps files"))]
pub mod mapped;
#[cfg_attr(not(target_family = "wasm"), allow(unsafe_code, reason = "asks for huge pages"))]
pub mod volatile;

use std::cell::Cell;
use std::rc::Rc;

use crate::error::ProgramError;

/// Where objects are.
pub trait Storage {
    /// Reads one object.
    type Reader: Reader;
    /// Writes one object.
    type Writer: Writer;

    /// Opens an object from its start.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    fn open(&mut self, name: &str) -> Result<Self::Reader, ProgramError>;

    /// Begins an object of at most `capacity_bytes` bytes; finished, it takes no more room than what
    /// was written. One is written at a time.
    ///
    /// # Errors
    /// No room.
    fn create(&mut self, name: &str, capacity_bytes: u64) -> Result<Self::Writer, ProgramError>;

    /// Finishes an object; returns how many bytes it has.
    ///
    /// # Errors
    /// The last bytes cannot be written.
    fn finish(&mut self, writer: Self::Writer) -> Result<u64, ProgramError>;

    /// How many calls have left the program so far, to the system or the sandbox's host: opening,
    /// asking for the size, reading, writing, closing; or making a heap grow.
    fn crossings(&self) -> u64;
}

/// An object that is read.
pub trait Reader {
    /// How many bytes it has.
    fn size_bytes(&self) -> u64;

    /// The next line without its end; `None` behind the last one.
    ///
    /// # Errors
    /// It cannot be read.
    fn line(&mut self) -> Result<Option<&[u8]>, ProgramError>;

    /// All of it that was not read yet.
    ///
    /// # Errors
    /// It cannot be read.
    fn rest(&mut self) -> Result<&[u8], ProgramError>;
}

/// An object that is written.
pub trait Writer {
    /// Appends a record.
    ///
    /// # Errors
    /// No room.
    fn write(&mut self, record: &[u8]) -> Result<(), ProgramError>;

    /// Appends what `make` writes, of at most `bytes_max` bytes, and returns the length of: made
    /// where it stays if the storage is memory, else in `scratch`.
    ///
    /// # Errors
    /// No room; those of `make`.
    fn write_made(
        &mut self,
        bytes_max: usize,
        scratch: &mut Vec<u8>,
        make: impl FnOnce(&mut [u8]) -> Result<usize, ProgramError>,
    ) -> Result<(), ProgramError> {
        let length = make(room_in(scratch, bytes_max))?;
        self.write(&scratch[..length])
    }
}

/// So many bytes of memory that is used again, whatever they are.
pub(crate) fn room_in(scratch: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    if scratch.len() < bytes {
        scratch.resize(bytes, 0);
    }
    &mut scratch[..bytes]
}

/// Counts calls that leave the program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Crossings(Rc<Cell<u64>>);

impl Crossings {
    #[inline]
    pub(crate) fn add(&self, calls: u64) {
        self.0.set(self.0.get() + calls);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.get()
    }
}

/// Lines of bytes that are in memory.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    at: usize,
}

impl Lines {
    #[inline]
    pub(crate) fn next<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let rest = bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        self.at += end + 1;
        rest.get(..end)
    }

    pub(crate) fn rest<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let rest = bytes.get(self.at..).unwrap_or_default();
        self.at = bytes.len();
        rest
    }
}

#[cfg(test)]
mod tests;
