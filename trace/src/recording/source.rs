//! The bytes of a recording, in order, with a look ahead: pipes can be read, too.

use std::fmt::{self, Debug, Formatter};
use std::io::{self, Read};

/// Read at a time, and kept behind the place at most before it is moved.
const CHUNK_BYTES: usize = 64 << 10;

/// A reader with look-ahead over a file or pipe.
pub(super) struct Source {
    file: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// Where the place is in the buffer.
    start: usize,
    /// Where the place is in the file.
    at_byte: u64,
    is_at_end: bool,
}

impl Debug for Source {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("at_byte", &self.at_byte).finish_non_exhaustive()
    }
}

impl Source {
    pub(super) fn new(file: Box<dyn Read + Send>) -> Source {
        Source { file, buffer: Vec::new(), start: 0, at_byte: 0, is_at_end: false }
    }

    /// Where the place is, in bytes from the beginning.
    pub(super) fn at_byte(&self) -> u64 {
        self.at_byte
    }

    /// Up to so many bytes from the place on: fewer only at the end of the file. An error leaves
    /// what was read before it for a call that asks for less.
    pub(super) fn peek(&mut self, bytes: usize) -> io::Result<&[u8]> {
        while self.buffer.len() - self.start < bytes && !self.is_at_end {
            if self.start >= CHUNK_BYTES {
                self.buffer.drain(..self.start);
                self.start = 0;
            }
            let missing = bytes - (self.buffer.len() - self.start);
            let filled = self.buffer.len();
            self.buffer.resize(filled + missing.max(CHUNK_BYTES), 0);
            let read = match self.file.read(&mut self.buffer[filled..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
                read => read.map(Some),
            };
            self.buffer.truncate(filled + read.as_ref().map_or(0, |read| read.unwrap_or(0)));
            self.is_at_end = read? == Some(0);
        }
        let end = self.buffer.len().min(self.start.saturating_add(bytes));
        Ok(&self.buffer[self.start..end])
    }

    /// Bytes that can be had without reading.
    pub(super) fn at_hand(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Moves the place over bytes that were seen.
    pub(super) fn skip(&mut self, bytes: usize) {
        let bytes = bytes.min(self.buffer.len() - self.start);
        self.start += bytes;
        self.at_byte += bytes as u64;
    }
}
