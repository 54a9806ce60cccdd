//! An applet's code as it was given: bytes, or a file that is read when its bytes are needed, and a
//! name for messages. Nothing is parsed or compiled here.
//!
//! Invariant: a program in a file is not held in this process's memory. It is read in pieces, for
//! its SHA-256 and for the copy that the compiler gets ([`Source`]). The exception is a process
//! whose files may not become that large.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use holdfast_sys::file::FileStamp;
use holdfast_sys::memory_file;
use sha2::{Digest, Sha256};

use crate::error::WasmError;

/// The largest file that is read as a program.
const PROGRAM_BYTES_MAX: u64 = 128 << 20;
/// How a WebAssembly binary starts.
const MAGIC: &[u8] = b"\0asm";
/// The version after the magic: a core module. Components carry another one.
const CORE_VERSION: &[u8] = &[1, 0, 0, 0];

/// A WebAssembly program in binary or text form.
#[derive(Debug)]
pub struct Program {
    name: String,
    code: ProgramBytes,
    sha256: OnceLock<[u8; 32]>,
    /// What its bytes must have.
    expected: Option<[u8; 32]>,
}

/// What tells the code of one program from that of any other in this boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Identity {
    Sha256([u8; 32]),
    File([u8; 56]),
}

/// How much is read at a time.
const PIECE_BYTES: usize = 64 << 10;

#[derive(Debug)]
enum ProgramBytes {
    Bytes(Vec<u8>),
    /// A copy of a file that was written just now, or is none: text, a pipe.
    Copied(Source),
    /// A binary module in a file that has been at rest since before it was opened.
    File {
        path: PathBuf,
        file: File,
        stamp: FileStamp,
    },
}

/// A program as the compiler gets it: a sealed file in memory, which nothing can change any more.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) file: File,
    pub(crate) bytes: u64,
    pub(crate) sha256: [u8; 32],
    /// Whether it is in the text format.
    pub(crate) is_text: bool,
}

impl Source {
    /// All of it.
    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.bytes as usize];
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    fn try_clone(&self) -> io::Result<Source> {
        Ok(Source { file: self.file.try_clone()?, ..*self })
    }
}

impl Program {
    /// Opens a `.wasm` or `.wat` file. A binary module in an ordinary file is read only when it
    /// is loaded; it should not be changed before that, and a change is noticed.
    ///
    /// # Errors
    /// [`WasmError::CannotRead`], [`WasmError::Invalid`] for a file that is too large, and what
    /// [`Program::from_bytes`] reports.
    pub fn open(path: &Path) -> Result<Self, WasmError> {
        let name = path.display().to_string();
        let cannot_read = |source| WasmError::CannotRead { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(cannot_read)?;
        let mut start = Vec::new();
        if let Some(stamp) = FileStamp::of_settled(&file).map_err(cannot_read)? {
            let header_bytes = MAGIC.len() + CORE_VERSION.len();
            (&mut file).take(header_bytes as u64).read_to_end(&mut start).map_err(cannot_read)?;
            if start.starts_with(MAGIC)
                && start.ends_with(CORE_VERSION)
                && start.len() == header_bytes
            {
                return Ok(Program::new(
                    name,
                    ProgramBytes::File { path: path.to_owned(), file, stamp },
                ));
            }
        }
        let mut rest = start.chain(&file);
        let mut start = Vec::new();
        (&mut rest).take(PIECE_BYTES as u64).read_to_end(&mut start).map_err(cannot_read)?;
        let is_text = is_text(&name, &start)?;
        let rest = start.chain(rest);
        if has_room(PROGRAM_BYTES_MAX) {
            return Ok(Program::new(name, ProgramBytes::Copied(copy(path, rest, is_text)?)));
        }
        let mut bytes = Vec::new();
        read_pieces(path, rest, |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(Program::new(name, ProgramBytes::Bytes(bytes)))
    }

    /// Takes a program from memory; `name` stands for it in messages.
    ///
    /// # Errors
    /// [`WasmError::NotWasm`] for anything that is neither the binary nor the text format,
    /// [`WasmError::Invalid`] for a component.
    pub fn from_bytes(
        name: impl Into<String>,
        bytes: impl Into<Vec<u8>>,
    ) -> Result<Self, WasmError> {
        let (name, bytes) = (name.into(), bytes.into());
        is_text(&name, &bytes)?;
        Ok(Program::new(name, ProgramBytes::Bytes(bytes)))
    }

    fn new(name: String, code: ProgramBytes) -> Program {
        Program { name, code, sha256: OnceLock::new(), expected: None }
    }

    /// Loads it only if what is compiled has this SHA-256: what the host learned of these bytes is
    /// true of no others. A file may change at any moment before.
    #[must_use]
    pub fn expecting(mut self, sha256: [u8; 32]) -> Program {
        self.expected = Some(sha256);
        self
    }

    /// Asked of the bytes from which the code that is going to run was made.
    pub(crate) fn check(&self, sha256: [u8; 32]) -> Result<(), WasmError> {
        match self.expected {
            Some(expected) if expected != sha256 => {
                Err(WasmError::Replaced { path: PathBuf::from(&self.name) })
            }
            _ => Ok(()),
        }
    }

    /// Taken once for each program.
    pub(crate) fn identity(&self) -> Identity {
        match &self.code {
            ProgramBytes::Bytes(bytes) => {
                Identity::Sha256(*self.sha256.get_or_init(|| Sha256::digest(bytes).into()))
            }
            ProgramBytes::Copied(source) => Identity::Sha256(source.sha256),
            ProgramBytes::File { stamp, .. } => Identity::File(stamp.to_bytes()),
        }
    }

    /// Whether what was read of it is what [`Program::identity`] stands for.
    pub(crate) fn is_unchanged(&self) -> bool {
        match &self.code {
            ProgramBytes::Bytes(_) | ProgramBytes::Copied(_) => true,
            ProgramBytes::File { file, stamp, .. } => {
                FileStamp::of_settled(file).is_ok_and(|now| now == Some(*stamp))
            }
        }
    }

    /// The name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The SHA-256 of what it holds now.
    ///
    /// # Errors
    /// [`WasmError::CannotRead`].
    pub fn sha256(&self) -> Result<[u8; 32], WasmError> {
        match (&self.code, self.identity()) {
            (_, Identity::Sha256(sha256)) => Ok(sha256),
            (ProgramBytes::File { path, file, .. }, _) => {
                let mut sum = Sha256::new();
                read_pieces(path, whole(file), |piece| {
                    sum.update(piece);
                    Ok(())
                })?;
                Ok(sum.finalize().into())
            }
            // Only files have another identity.
            (ProgramBytes::Bytes(_) | ProgramBytes::Copied(_), Identity::File(_)) => {
                Err(WasmError::host("tell the program's identity", "it has none"))
            }
        }
    }

    /// What the compiler gets of it; a program in a file is read now.
    pub(crate) fn source(&self) -> Result<Source, WasmError> {
        match &self.code {
            ProgramBytes::Copied(source) => source.try_clone().map_err(cannot_copy),
            ProgramBytes::File { path, file, stamp } => {
                room_for(stamp.bytes)?;
                copy(path, whole(file), false)
            }
            ProgramBytes::Bytes(bytes) => {
                room_for(bytes.len() as u64)?;
                copy(Path::new(&self.name), bytes.as_slice(), !bytes.starts_with(MAGIC))
            }
        }
    }
}

/// A file from its start.
fn whole(file: &File) -> FromStart<'_> {
    FromStart { file, at: 0 }
}

/// Reads a file from its start, wherever its offset is, and leaves that alone: several threads may
/// read one program at a time.
struct FromStart<'a> {
    file: &'a File,
    at: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(piece, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// Reads to the end, in pieces.
fn read_pieces(
    path: &Path,
    mut from: impl Read,
    mut take: impl FnMut(&[u8]) -> Result<(), WasmError>,
) -> Result<u64, WasmError> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut bytes: u64 = 0;
    loop {
        let count = match from.read(&mut piece) {
            Ok(0) => return Ok(bytes),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(source) => return Err(WasmError::CannotRead { path: path.to_owned(), source }),
        };
        bytes += count as u64;
        // A file that is too large, or endless, is not read on.
        if bytes > PROGRAM_BYTES_MAX {
            let reason = format!("it is larger than {PROGRAM_BYTES_MAX} bytes");
            return Err(WasmError::Invalid { applet: path.display().to_string(), reason });
        }
        take(&piece[..count])?;
    }
}

/// Whether this process may write a file of that size; one byte more would end it.
pub(crate) fn has_room(bytes: u64) -> bool {
    memory_file::size_limit_bytes().is_none_or(|limit_bytes| bytes <= limit_bytes)
}

fn room_for(bytes: u64) -> Result<(), WasmError> {
    if has_room(bytes) {
        Ok(())
    } else {
        Err(WasmError::CompilerStart { reason: FILES_LIMITED.to_owned() })
    }
}

/// What is said where files in memory cannot become large enough.
pub(crate) const FILES_LIMITED: &str = "the size of this process's files is limited (`ulimit -f`), and program and code are handed over in files in memory";

fn copy(path: &Path, from: impl Read, is_text: bool) -> Result<Source, WasmError> {
    let mut file = memory_file::create("holdfast program").map_err(cannot_copy)?;
    let mut sum = Sha256::new();
    let bytes = read_pieces(path, from, |piece| {
        sum.update(piece);
        file.write_all(piece).map_err(cannot_copy)
    })?;
    memory_file::seal(&file).map_err(cannot_copy)?;
    Ok(Source { file, bytes, sha256: sum.finalize().into(), is_text })
}

fn cannot_copy(error: io::Error) -> WasmError {
    WasmError::host("copy the program for the compiler", error)
}

/// Which of the two formats a program is in, by its beginning.
fn is_text(name: &str, start: &[u8]) -> Result<bool, WasmError> {
    match start.strip_prefix(MAGIC) {
        Some(rest) if rest.starts_with(CORE_VERSION) => Ok(false),
        Some(rest) => {
            let reason = if rest.len() < CORE_VERSION.len() {
                "the file is cut off"
            } else {
                "it is a component or of an unknown version, not a core module"
            };
            Err(WasmError::Invalid { applet: name.to_owned(), reason: reason.to_owned() })
        }
        None if looks_like_text(start) => Ok(true),
        None => {
            let start = start.iter().copied().take(8).collect();
            Err(WasmError::NotWasm { applet: name.to_owned(), start })
        }
    }
}

/// The text format starts with an expression or a comment, after blanks.
fn looks_like_text(start: &[u8]) -> bool {
    let trimmed = start.trim_ascii_start();
    let is_utf8 = match std::str::from_utf8(start) {
        Ok(_) => true,
        // A character that the piece has cut.
        Err(error) => error.error_len().is_none() && start.len() == PIECE_BYTES,
    };
    (trimmed.starts_with(b"(") || trimmed.starts_with(b";;")) && is_utf8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of two readers of one open file gets all of it, however their reads alternate.
    #[test]
    fn readers_of_one_file_do_not_meet() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("module.wasm");
        let bytes: Vec<u8> = (0..3 * PIECE_BYTES).map(|at| (at / 7) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = File::open(&path).unwrap();
        let (mut one, mut other) = (whole(&file), whole(&file));
        let mut found = vec![0; PIECE_BYTES];
        one.read_exact(&mut found).unwrap();
        let mut all = Vec::new();
        other.read_to_end(&mut all).unwrap();
        one.read_to_end(&mut found).unwrap();
        assert!(all == bytes && found == bytes);
    }
}
