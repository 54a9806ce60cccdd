//! Files that are mapped as a whole. An object that is written is collected in memory and goes to
//! its file with one call, because no sandbox here lets a program map a file to write to it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::files::failed;
use super::{Crossings, Lines, Reader, Storage, Writer, room_in};
use crate::error::ProgramError;

/// A directory of files.
#[derive(Debug)]
pub struct Mapped {
    directory: PathBuf,
    crossings: Crossings,
}

impl Mapped {
    /// Files of this directory.
    #[must_use]
    pub fn new(directory: PathBuf) -> Mapped {
        Mapped { directory, crossings: Crossings::default() }
    }
}

impl Storage for Mapped {
    type Reader = MappedReader;
    type Writer = MappedWriter;

    fn open(&mut self, name: &str) -> Result<MappedReader, ProgramError> {
        let content = Content::of(&self.directory.join(name)).map_err(failed("map", name))?;
        self.crossings.add(Content::CROSSINGS);
        Ok(MappedReader { content, lines: Lines::default() })
    }

    fn create(&mut self, name: &str, capacity_bytes: u64) -> Result<MappedWriter, ProgramError> {
        let file = File::create(self.directory.join(name)).map_err(failed("create", name))?;
        // Opened, written and closed.
        self.crossings.add(3);
        // Reserved at the first record: what is made as a whole needs none.
        let (content, capacity_bytes) = (Vec::new(), capacity_bytes as usize);
        Ok(MappedWriter { file, name: name.to_owned(), content, capacity_bytes, written_bytes: 0 })
    }

    fn finish(&mut self, mut writer: MappedWriter) -> Result<u64, ProgramError> {
        if !writer.content.is_empty() {
            writer.file.write_all(&writer.content).map_err(failed("write", &writer.name))?;
        }
        Ok(writer.written_bytes + writer.content.len() as u64)
    }

    fn crossings(&self) -> u64 {
        self.crossings.get()
    }
}

/// A mapped file.
#[derive(Debug)]
pub struct MappedReader {
    content: Content,
    lines: Lines,
}

impl Reader for MappedReader {
    fn size_bytes(&self) -> u64 {
        self.content.bytes().len() as u64
    }

    #[inline]
    fn line(&mut self) -> Result<Option<&[u8]>, ProgramError> {
        Ok(self.lines.next(self.content.bytes()))
    }

    fn rest(&mut self) -> Result<&[u8], ProgramError> {
        Ok(self.lines.rest(self.content.bytes()))
    }
}

/// What becomes the content of a file.
#[derive(Debug)]
pub struct MappedWriter {
    file: File,
    name: String,
    /// Behind the first `written_bytes` bytes, which are in the file.
    content: Vec<u8>,
    capacity_bytes: usize,
    written_bytes: u64,
}

impl Writer for MappedWriter {
    #[inline]
    fn write(&mut self, record: &[u8]) -> Result<(), ProgramError> {
        if self.content.capacity() == 0 {
            self.content.reserve_exact(self.capacity_bytes);
        }
        self.content.extend_from_slice(record);
        Ok(())
    }

    /// What is made before anything else goes to the file from where it is made.
    fn write_made(
        &mut self,
        bytes_max: usize,
        scratch: &mut Vec<u8>,
        make: impl FnOnce(&mut [u8]) -> Result<usize, ProgramError>,
    ) -> Result<(), ProgramError> {
        let length = make(room_in(scratch, bytes_max))?;
        if !self.content.is_empty() {
            return self.write(&scratch[..length]);
        }
        self.file.write_all(&scratch[..length]).map_err(failed("write", &self.name))?;
        self.written_bytes += length as u64;
        Ok(())
    }
}

/// WASI maps no files: wasi-libc's emulation of `mmap` reads them, as is done here.
#[cfg(target_family = "wasm")]
#[derive(Debug)]
struct Content(Vec<u8>);

#[cfg(target_family = "wasm")]
impl Content {
    /// Opened, asked for its size, read to its end and once more, and closed.
    const CROSSINGS: u64 = 5;

    fn of(path: &Path) -> std::io::Result<Content> {
        std::fs::read(path).map(Content)
    }

    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(not(target_family = "wasm"))]
use mapping::Content;

#[cfg(not(target_family = "wasm"))]
mod mapping {
    use super::*;
    use std::ptr::{NonNull, null_mut, slice_from_raw_parts_mut};

    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

    /// A private mapping of a whole file.
    #[derive(Debug)]
    pub(super) struct Content(NonNull<[u8]>);

    impl Content {
        /// Opened, asked for its size, mapped, closed and unmapped.
        pub(super) const CROSSINGS: u64 = 5;

        pub(super) fn of(path: &Path) -> std::io::Result<Content> {
            let file = File::open(path)?;
            let bytes = file.metadata()?.len() as usize;
            if bytes == 0 {
                return Ok(Content(NonNull::from(&mut [])));
            }
            // SAFETY: a new place, which nothing else refers to.
            let address =
                unsafe { mmap(null_mut(), bytes, ProtFlags::READ, MapFlags::PRIVATE, &file, 0)? };
            NonNull::new(slice_from_raw_parts_mut(address.cast::<u8>(), bytes))
                .map(Content)
                .ok_or_else(|| std::io::Error::other("the system maps at address 0"))
        }

        pub(super) fn bytes(&self) -> &[u8] {
            // SAFETY: mapped for as long as this lives. No other program writes to the file
            // meanwhile: the programs replace no object that they read.
            unsafe { self.0.as_ref() }
        }
    }

    impl Drop for Content {
        fn drop(&mut self) {
            if !self.0.is_empty() {
                // SAFETY: the mapping is this value's own.
                let _ = unsafe { munmap(self.0.as_ptr().cast(), self.0.len()) };
            }
        }
    }
}
