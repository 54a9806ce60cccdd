//! An applet's code as it was given: bytes and a name for messages. Nothing is compiled here.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::WasmError;

/// The largest file that is read as a program.
const PROGRAM_BYTES_MAX: u64 = 128 << 20;
/// How a WebAssembly binary starts.
const MAGIC: &[u8] = b"\0asm";
/// The version after the magic: a core module. Components carry another one.
const CORE_VERSION: &[u8] = &[1, 0, 0, 0];

/// A WebAssembly program in binary or text form.
#[derive(Debug, Clone)]
pub struct Program {
    name: String,
    bytes: Vec<u8>,
}

impl Program {
    /// Reads a `.wasm` or `.wat` file.
    ///
    /// # Errors
    /// [`WasmError::CannotRead`], [`WasmError::Invalid`] for a file that is too large, and what
    /// [`Program::from_bytes`] reports.
    pub fn read(path: &Path) -> Result<Self, WasmError> {
        let name = path.display().to_string();
        let mut bytes = Vec::new();
        let mut read = || {
            let file = File::open(path)?;
            // What the file says of its size only saves copies; it may be wrong, as for devices.
            bytes.reserve(file.metadata()?.len().min(PROGRAM_BYTES_MAX) as usize + 1);
            // One byte more than allowed tells a file that is too large, or endless, from one that just fits.
            file.take(PROGRAM_BYTES_MAX + 1).read_to_end(&mut bytes)
        };
        read().map_err(|source| WasmError::CannotRead { path: path.to_owned(), source })?;
        if bytes.len() as u64 > PROGRAM_BYTES_MAX {
            let reason = format!("it is larger than {PROGRAM_BYTES_MAX} bytes");
            return Err(WasmError::Invalid { applet: name, reason });
        }
        Self::from_bytes(name, bytes)
    }

    /// Takes a program from memory; `name` stands for it in messages.
    ///
    /// # Errors
    /// [`WasmError::NotWasm`] for anything that is neither the binary nor the text format,
    /// [`WasmError::Invalid`] for a component.
    pub fn from_bytes(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Result<Self, WasmError> {
        let (name, bytes) = (name.into(), bytes.into());
        match bytes.strip_prefix(MAGIC) {
            Some(rest) if rest.starts_with(CORE_VERSION) => Ok(Program { name, bytes }),
            Some(rest) => {
                let reason = if rest.len() < CORE_VERSION.len() {
                    "the file is cut off"
                } else {
                    "it is a component or of an unknown version, not a core module"
                };
                Err(WasmError::Invalid { applet: name, reason: reason.to_owned() })
            }
            None if looks_like_text(&bytes) => Ok(Program { name, bytes }),
            None => Err(WasmError::NotWasm { applet: name, start: bytes.into_iter().take(8).collect() }),
        }
    }

    /// The name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The text format starts with an expression or a comment, after blanks.
fn looks_like_text(bytes: &[u8]) -> bool {
    let trimmed = bytes.trim_ascii_start();
    (trimmed.starts_with(b"(") || trimmed.starts_with(b";;")) && std::str::from_utf8(bytes).is_ok()
}
