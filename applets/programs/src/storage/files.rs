//! Files of a directory. With a buffer of 0 bytes each record is a call, and what is read comes in
//! pieces of one line of FASTA; the C library's `stdio` has 1,024 (newlib, musl, wasi-libc) or 4,096
//! (glibc).

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;

use super::{Crossings, Reader, Storage, Writer};
use crate::error::ProgramError;

/// A line of 60 characters and its end.
const LINE_BYTES: usize = 61;

/// A directory of files.
#[derive(Debug)]
pub struct Files {
    directory: PathBuf,
    buffer_bytes: usize,
    crossings: Crossings,
}

impl Files {
    /// Files of this directory, read and written through a buffer of so many bytes, or none.
    #[must_use]
    pub fn new(directory: PathBuf, buffer_bytes: usize) -> Files {
        Files { directory, buffer_bytes, crossings: Crossings::default() }
    }
}

/// What an error says.
pub(super) fn failed(act: &'static str, name: &str) -> impl Fn(std::io::Error) -> ProgramError {
    move |source| ProgramError::File { act, name: name.to_owned(), source }
}

impl Storage for Files {
    type Reader = FileReader;
    type Writer = FileWriter;

    fn open(&mut self, name: &str) -> Result<FileReader, ProgramError> {
        let file = File::open(self.directory.join(name)).map_err(failed("read", name))?;
        let size_bytes = file.metadata().map_err(failed("read", name))?.len();
        // Opened, asked for its size, and closed by the reader.
        self.crossings.add(3);
        let crossings = self.crossings.clone();
        let piece_bytes = if self.buffer_bytes == 0 { LINE_BYTES } else { self.buffer_bytes };
        let (name, buffer) = (name.to_owned(), Vec::with_capacity(2 * piece_bytes));
        Ok(FileReader { file, name, size_bytes, piece_bytes, buffer, at: 0, crossings })
    }

    fn create(&mut self, name: &str, _capacity_bytes: u64) -> Result<FileWriter, ProgramError> {
        let file = File::create(self.directory.join(name)).map_err(failed("create", name))?;
        // Opened, and closed by the writer.
        self.crossings.add(2);
        let (buffer, crossings) = (Vec::with_capacity(self.buffer_bytes), self.crossings.clone());
        Ok(FileWriter { file, name: name.to_owned(), written_bytes: 0, buffer, crossings })
    }

    fn finish(&mut self, mut writer: FileWriter) -> Result<u64, ProgramError> {
        writer.flush()?;
        Ok(writer.written_bytes)
    }

    fn crossings(&self) -> u64 {
        self.crossings.get()
    }
}

/// An open file.
#[derive(Debug)]
pub struct FileReader {
    file: File,
    name: String,
    size_bytes: u64,
    piece_bytes: usize,
    /// What was read; `at` is how much of it was handed out.
    buffer: Vec<u8>,
    at: usize,
    crossings: Crossings,
}

impl FileReader {
    /// Reads a piece more; whether there was one.
    fn fill(&mut self) -> Result<bool, ProgramError> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let kept = self.buffer.len();
        self.buffer.resize(kept + self.piece_bytes, 0);
        self.crossings.add(1);
        let read = self.file.read(&mut self.buffer[kept..]).map_err(failed("read", &self.name))?;
        self.buffer.truncate(kept + read);
        Ok(read > 0)
    }
}

impl Reader for FileReader {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn line(&mut self) -> Result<Option<&[u8]>, ProgramError> {
        let mut searched = 0;
        loop {
            let known = &self.buffer[self.at..];
            if let Some(length) = memchr::memchr(b'\n', &known[searched..]) {
                let (start, end) = (self.at, self.at + searched + length);
                self.at = end + 1;
                return Ok(Some(&self.buffer[start..end]));
            }
            searched = known.len();
            if !self.fill()? {
                self.at = self.buffer.len();
                return Ok(if self.at > 0 { Some(&self.buffer) } else { None });
            }
        }
    }

    fn rest(&mut self) -> Result<&[u8], ProgramError> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let mut known = self.buffer.len();
        self.buffer.resize(self.size_bytes as usize, 0);
        while known < self.buffer.len() {
            let end = (known + self.piece_bytes).min(self.buffer.len());
            self.crossings.add(1);
            let read =
                self.file.read(&mut self.buffer[known..end]).map_err(failed("read", &self.name))?;
            if read == 0 {
                self.buffer.truncate(known);
            }
            known += read;
        }
        self.at = self.buffer.len();
        Ok(&self.buffer)
    }
}

/// A file that is made.
#[derive(Debug)]
pub struct FileWriter {
    file: File,
    name: String,
    written_bytes: u64,
    /// As large as its capacity says; without one there is no buffer.
    buffer: Vec<u8>,
    crossings: Crossings,
}

impl FileWriter {
    fn flush(&mut self) -> Result<(), ProgramError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.crossings.add(1);
        self.file.write_all(&self.buffer).map_err(failed("write", &self.name))?;
        self.buffer.clear();
        Ok(())
    }
}

impl Writer for FileWriter {
    #[inline]
    fn write(&mut self, mut record: &[u8]) -> Result<(), ProgramError> {
        self.written_bytes += record.len() as u64;
        if self.buffer.capacity() == 0 {
            self.crossings.add(1);
            return self.file.write_all(record).map_err(failed("write", &self.name));
        }
        while record.len() > self.buffer.capacity() - self.buffer.len() {
            let (fits, rest) = record.split_at(self.buffer.capacity() - self.buffer.len());
            self.buffer.extend_from_slice(fits);
            self.flush()?;
            record = rest;
        }
        self.buffer.extend_from_slice(record);
        Ok(())
    }
}
