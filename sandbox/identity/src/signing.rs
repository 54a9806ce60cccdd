//! Signing an applet's file: in place, whole or not at all.
//!
//! The signature is made over what is written, while it is written: a source file that changes
//! meanwhile gives a file that is refused, never a signature for other bytes.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use holdfast_sys::file::{open_regular, private_options, sync_directory};
use sha2::{Digest, Sha256};

use crate::block::{Block, Content};
use crate::container::{Format, is_other_elf, own_parts, section_of};
use crate::names::ApplicationName;
use crate::publisher::{PublisherKey, directory_of, to_hex};

const PIECE_BYTES: usize = 256 << 10;

/// Why a file was not signed. It is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignError {
    /// The file is the text form of a module, which has no place for a signature.
    #[error(
        "{} is WebAssembly text, which cannot carry a signature; make a module of it (`wat2wasm`, `wasm-tools parse`) \
         and sign that",
        path.display()
    )]
    Text {
        /// The file.
        path: PathBuf,
    },
    /// The file is no program that can carry a signature.
    #[error(
        "{} cannot carry a signature: it is {found}; sign a WebAssembly module or a 64-bit little-endian ELF program",
        path.display()
    )]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// The module's last section is cut off, or a part of another signature is in the program.
    #[error(
        "{} is cut off, or a part of another signature is in it; build it again", path.display()
    )]
    CutOff {
        /// The file.
        path: PathBuf,
    },
    /// The kernel refused.
    #[error("cannot {step} {}: {source}", path.display())]
    Io {
        /// The step, as a verb.
        step: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

fn io_error(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SignError {
    move |source| SignError::Io { step, path: path.to_owned(), source }
}

/// Signs the program at a path as a version of an application. A signature that it has already is
/// replaced. The file gets a new inode with the same permission bits; set-user-ID bits, extended
/// attributes and other hard links do not follow. A symbolic link stays, and what it leads to is
/// signed.
///
/// # Errors
/// [`SignError`]; the file is then as it was.
pub fn sign(
    path: &Path,
    key: &PublisherKey,
    application: &ApplicationName,
) -> Result<(), SignError> {
    let path = path.canonicalize().map_err(io_error("find", path))?;
    let source =
        open_regular(OpenOptions::new().read(true), &path).map_err(io_error("open", &path))?;
    let found = source.metadata().map_err(io_error("examine", &path))?;
    let (format, parts) = match own_parts(&source, found.len()) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(SignError::CutOff { path });
        }
        other => other.map_err(io_error("read", &path))?,
    };
    if format == Format::Other {
        return Err(unsupported(path, &source));
    }
    let mut suffix = [0; 8];
    rustix::rand::getrandom(&mut suffix, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| io_error("sign", &path)(error.into()))?;
    let temporary = path.with_added_extension(format!("tmp-{}", to_hex(&suffix)));
    let mut target = private_options()
        .write(true)
        .create_new(true)
        .open(&temporary)
        .map_err(io_error("create", &temporary))?;
    let written = (|| {
        let content = copy(&source, &parts, &mut target).map_err(io_error("write", &temporary))?;
        let block = Block::sign(key, application, &content);
        let signature = match format {
            Format::Wasm => section_of(&block),
            _ => block.encode(),
        };
        target.write_all(&signature).map_err(io_error("write", &temporary))?;
        let mode = found.permissions().mode() & 0o777;
        target
            .set_permissions(Permissions::from_mode(mode))
            .map_err(io_error("set the permissions of", &temporary))?;
        target.sync_all().map_err(io_error("make durable", &temporary))?;
        std::fs::rename(&temporary, &path).map_err(io_error("replace", &path))
    })();
    if written.is_err() {
        // The error is what counts.
        let _ = std::fs::remove_file(&temporary);
    }
    written?;
    let directory = directory_of(&path);
    sync_directory(directory).map_err(io_error("make durable", directory))
}

/// Copies parts of a file, and hashes what it writes.
fn copy(source: &File, parts: &[Range<u64>], target: &mut File) -> io::Result<Content> {
    let mut hasher = Sha256::new();
    let mut piece = vec![0; PIECE_BYTES];
    let mut len_bytes = 0;
    for part in parts {
        let mut at = part.start;
        while at < part.end {
            let wanted = (part.end - at).min(PIECE_BYTES as u64) as usize;
            source.read_exact_at(&mut piece[..wanted], at)?;
            hasher.update(&piece[..wanted]);
            target.write_all(&piece[..wanted])?;
            at += wanted as u64;
        }
        len_bytes += part.end - part.start;
    }
    Ok(Content { len_bytes, sha256: hasher.finalize().into() })
}

fn unsupported(path: PathBuf, source: &File) -> SignError {
    let mut head = [0; 4096];
    // What cannot be read is said to be something else.
    let len = source.read_at(&mut head, 0).unwrap_or(0);
    let head = &head[..len];
    let is_text = std::str::from_utf8(head).is_ok_and(|text| {
        let start = text.trim_start();
        start.starts_with("(module") || start.starts_with("(component") || start.starts_with(";;")
    });
    if is_text || path.extension().is_some_and(|extension| extension == "wat") {
        return SignError::Text { path };
    }
    let found = match head {
        [] => "empty",
        [b'#', b'!', ..] => "a script",
        _ if is_other_elf(head) => "an ELF file of another kind",
        _ => "no program",
    };
    SignError::Unsupported { path, found }
}
