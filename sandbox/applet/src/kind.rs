//! Tells which of the two sandboxes a file is for.
#![forbid(unsafe_code)]

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::Serialize;

/// How a native executable starts.
const ELF_MAGIC: [u8; 4] = *b"\x7fELF";

/// The kind of an applet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SandboxKind {
    /// An ELF program, in a process of its own.
    Native,
    /// WebAssembly, in this process.
    Wasm,
}

impl SandboxKind {
    /// The kind of a file, by its first bytes; whatever is no ELF program the WebAssembly sandbox
    /// has to judge.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of(path: &Path) -> io::Result<SandboxKind> {
        // Asked before it is opened: a pipe without a writer would keep that waiting for ever.
        if !path.metadata()?.is_file() {
            let what = "it is not a file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let mut start = [0; ELF_MAGIC.len()];
        match File::open(path)?.read_exact(&mut start) {
            Ok(()) if start == ELF_MAGIC => Ok(SandboxKind::Native),
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
            _ => Ok(SandboxKind::Wasm),
        }
    }
}

impl fmt::Display for SandboxKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            SandboxKind::Native => "native",
            SandboxKind::Wasm => "WebAssembly",
        })
    }
}
