//! An applet's code as it was given: bytes, or a file that is read when its bytes are needed, and a name for
//! messages. Nothing is compiled here.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use holdfast_sys::file::FileStamp;
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
    code: Code,
    sha256: OnceLock<[u8; 32]>,
}

/// What tells the code of one program from that of any other in this boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Identity {
    Sha256([u8; 32]),
    File([u8; 56]),
}

#[derive(Debug)]
enum Code {
    Bytes(Vec<u8>),
    /// A binary module in a file that has been at rest since before it was opened.
    File {
        path: PathBuf,
        file: File,
        stamp: FileStamp,
    },
}

impl Program {
    /// Opens a `.wasm` or `.wat` file. A binary module in an ordinary file is read only when it turns out that
    /// it has to be compiled; it should not be changed before that, and a change is noticed.
    ///
    /// # Errors
    /// [`WasmError::CannotRead`], [`WasmError::Invalid`] for a file that is too large, and what
    /// [`Program::from_bytes`] reports.
    pub fn open(path: &Path) -> Result<Self, WasmError> {
        let name = path.display().to_string();
        let cannot_read = |source| WasmError::CannotRead { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(cannot_read)?;
        if let Some(stamp) = FileStamp::of_settled(&file).map_err(cannot_read)? {
            let mut start = [0; MAGIC.len() + CORE_VERSION.len()];
            let is_module = match file.read_exact(&mut start) {
                Ok(()) => start.starts_with(MAGIC) && start.ends_with(CORE_VERSION),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => false,
                Err(error) => return Err(cannot_read(error)),
            };
            if is_module {
                return Ok(Program::new(name, Code::File { path: path.to_owned(), file, stamp }));
            }
        }
        Self::from_bytes(name, read_all(path, &file)?)
    }

    /// Takes a program from memory; `name` stands for it in messages.
    ///
    /// # Errors
    /// [`WasmError::NotWasm`] for anything that is neither the binary nor the text format,
    /// [`WasmError::Invalid`] for a component.
    pub fn from_bytes(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Result<Self, WasmError> {
        let (name, bytes) = (name.into(), bytes.into());
        match bytes.strip_prefix(MAGIC) {
            Some(rest) if rest.starts_with(CORE_VERSION) => Ok(Program::new(name, Code::Bytes(bytes))),
            Some(rest) => {
                let reason = if rest.len() < CORE_VERSION.len() {
                    "the file is cut off"
                } else {
                    "it is a component or of an unknown version, not a core module"
                };
                Err(WasmError::Invalid { applet: name, reason: reason.to_owned() })
            }
            None if looks_like_text(&bytes) => Ok(Program::new(name, Code::Bytes(bytes))),
            None => Err(WasmError::NotWasm { applet: name, start: bytes.into_iter().take(8).collect() }),
        }
    }

    fn new(name: String, code: Code) -> Program {
        Program { name, code, sha256: OnceLock::new() }
    }

    /// Taken once for each program.
    pub(crate) fn identity(&self) -> Identity {
        match &self.code {
            Code::Bytes(bytes) => Identity::Sha256(*self.sha256.get_or_init(|| Sha256::digest(bytes).into())),
            Code::File { stamp, .. } => Identity::File(stamp.to_bytes()),
        }
    }

    /// Whether what was read of it is what [`Program::identity`] stands for.
    pub(crate) fn is_unchanged(&self) -> bool {
        match &self.code {
            Code::Bytes(_) => true,
            Code::File { file, stamp, .. } => {
                FileStamp::of_settled(file).is_ok_and(|now| now == Some(*stamp))
            }
        }
    }

    /// The name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All of it; read now, if it is in a file.
    pub(crate) fn bytes(&self) -> Result<Cow<'_, [u8]>, WasmError> {
        match &self.code {
            Code::Bytes(bytes) => Ok(Cow::Borrowed(bytes)),
            Code::File { path, file, .. } => read_all(path, file).map(Cow::Owned),
        }
    }

    /// The file of a module and its stamp when it was opened.
    pub(crate) fn file(&self) -> Option<(&File, FileStamp)> {
        match &self.code {
            Code::Bytes(_) => None,
            Code::File { file, stamp, .. } => Some((file, *stamp)),
        }
    }
}

/// Reads a file from its start.
fn read_all(path: &Path, mut file: &File) -> Result<Vec<u8>, WasmError> {
    let mut bytes = Vec::new();
    let mut read = || {
        let metadata = file.metadata()?;
        // What the file says of its size only saves copies; it may be wrong, as for devices.
        bytes.reserve(metadata.len().min(PROGRAM_BYTES_MAX) as usize + 1);
        if metadata.is_file() {
            file.rewind()?;
        }
        // One byte more than allowed tells a file that is too large, or endless, from one that just fits.
        file.take(PROGRAM_BYTES_MAX + 1).read_to_end(&mut bytes)
    };
    read().map_err(|source| WasmError::CannotRead { path: path.to_owned(), source })?;
    if bytes.len() as u64 > PROGRAM_BYTES_MAX {
        let reason = format!("it is larger than {PROGRAM_BYTES_MAX} bytes");
        return Err(WasmError::Invalid { applet: path.display().to_string(), reason });
    }
    Ok(bytes)
}

/// The text format starts with an expression or a comment, after blanks.
fn looks_like_text(bytes: &[u8]) -> bool {
    let trimmed = bytes.trim_ascii_start();
    (trimmed.starts_with(b"(") || trimmed.starts_with(b";;")) && std::str::from_utf8(bytes).is_ok()
}
