//! The program's file: that it is a native program, and which loader it wants.
//!
//! The file is the program's author's, so nothing in it is believed further than to refuse it.

#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind::PermissionDenied;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::JailError;
use crate::note;

const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const PROGRAM_HEADERS_MAX: u16 = 256;
const INTERPRETER: u32 = 3;
const NOTES: u32 = 4;
const INTERPRETER_BYTES_MAX: u64 = 4096;
const X86_64: u16 = 62;
const EXECUTABLE: u16 = 2;
const SHARED: u16 = 3;

/// Where loaders and libraries are; a program that wants another loader is refused, because to let it have that one
/// would be to let its author choose a file to read.
pub(crate) const LIBRARY_DIRECTORIES: [&str; 6] =
    ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/alternatives"];
/// Files that loaders read.
pub(crate) const LOADER_FILES: [&str; 2] = ["/etc/ld.so.cache", "/etc/ld-musl-x86_64.path"];

const BROKEN: &str = "an ELF file with a broken header";

/// An entry of the table of segments.
struct Segment {
    offset: u64,
    bytes: u64,
    alignment: u64,
}

/// An opened program.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    /// It needs a loader, and so libraries.
    pub(crate) is_dynamic: bool,
    /// Everybody may run it.
    pub(crate) for_everybody: bool,
}

impl Program {
    pub(crate) fn open(path: &Path) -> Result<Program, JailError> {
        let cannot = |source| JailError::Program { path: path.to_owned(), source };
        let not = |what| JailError::NotNative { path: path.to_owned(), what };
        // Does not wait for whoever may be at the other end of a pipe; of a file it means nothing.
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = File::options().read(true).custom_flags(flags).open(path).map_err(cannot)?;
        let metadata = file.metadata().map_err(cannot)?;
        if !metadata.is_file() {
            return Err(not("not a file"));
        }
        let mut header = [0; HEADER_BYTES];
        if file.read_exact_at(&mut header, 0).is_err() || !header.starts_with(b"\x7fELF") {
            return Err(not("not an ELF file"));
        }
        let kind = u16::from_le_bytes([header[16], header[17]]);
        let machine = u16::from_le_bytes([header[18], header[19]]);
        // Class 2 is 64 bits, data 1 is little-endian.
        if header[4] != 2 || header[5] != 1 || machine != X86_64 {
            return Err(not("a program for another kind of machine"));
        }
        if kind != EXECUTABLE && kind != SHARED {
            return Err(not("an object file, not a program"));
        }
        let interpreter = interpreter(&file, &header).map_err(not)?;
        if let Some(interpreter) = &interpreter {
            let known = LIBRARY_DIRECTORIES.iter().any(|directory| interpreter.starts_with(directory));
            let climbs = interpreter.components().any(|part| part == std::path::Component::ParentDir);
            if climbs || !known {
                return Err(not("a program with a loader outside of the system's library directories"));
            }
        }
        if metadata.mode() & 0o111 == 0 {
            return Err(cannot(std::io::Error::new(PermissionDenied, "it is not executable")));
        }
        let for_everybody = metadata.mode() & 0o005 == 0o005;
        Ok(Program { file, path: path.to_owned(), is_dynamic: interpreter.is_some(), for_everybody })
    }

    /// Its segments of notes, each with the alignment of what is in it; those that are too long or cut off are left out.
    pub(crate) fn note_segments(&self) -> Vec<(Vec<u8>, usize)> {
        let mut header = [0; HEADER_BYTES];
        if self.file.read_exact_at(&mut header, 0).is_err() {
            return Vec::new();
        }
        let found = segments(&self.file, &header, NOTES).unwrap_or_default();
        let read = found.iter().filter_map(|segment| {
            let bytes = content(&self.file, segment, note::SEGMENT_BYTES_MAX)?;
            Some((bytes, if segment.alignment == 8 { 8 } else { 4 }))
        });
        read.collect()
    }
}

/// The entries of one kind in the table of a program's segments.
fn segments(file: &File, header: &[u8; HEADER_BYTES], kind: u32) -> Result<Vec<Segment>, &'static str> {
    let table = u64_at(header, 32).ok_or(BROKEN)?;
    let entry_bytes = u16::from_le_bytes([header[54], header[55]]);
    let entries = u16::from_le_bytes([header[56], header[57]]);
    if usize::from(entry_bytes) != PROGRAM_HEADER_BYTES || entries > PROGRAM_HEADERS_MAX {
        return Err(BROKEN);
    }
    let mut found = Vec::new();
    for index in 0..u64::from(entries) {
        let mut entry = [0; PROGRAM_HEADER_BYTES];
        let at = table.checked_add(index * PROGRAM_HEADER_BYTES as u64).ok_or(BROKEN)?;
        file.read_exact_at(&mut entry, at).map_err(|_| BROKEN)?;
        if u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]) == kind {
            let field = |at| u64_at(&entry, at).ok_or(BROKEN);
            found.push(Segment { offset: field(8)?, bytes: field(32)?, alignment: field(48)? });
        }
    }
    Ok(found)
}

/// What a segment has in the file.
fn content(file: &File, segment: &Segment, bytes_max: u64) -> Option<Vec<u8>> {
    if segment.bytes == 0 || segment.bytes > bytes_max {
        return None;
    }
    let mut bytes = vec![0; segment.bytes as usize];
    file.read_exact_at(&mut bytes, segment.offset).ok()?;
    Some(bytes)
}

fn interpreter(file: &File, header: &[u8; HEADER_BYTES]) -> Result<Option<PathBuf>, &'static str> {
    let segments = segments(file, header, INTERPRETER)?;
    let Some(segment) = segments.first() else { return Ok(None) };
    let mut path = content(file, segment, INTERPRETER_BYTES_MAX).ok_or(BROKEN)?;
    let end = path.iter().position(|&byte| byte == 0).ok_or(BROKEN)?;
    path.truncate(end);
    Ok(Some(PathBuf::from(OsStr::from_bytes(&path))))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_is_a_dynamic_program() {
        let program = Program::open(&std::env::current_exe().unwrap()).unwrap();
        assert!(program.is_dynamic);
    }

    #[test]
    fn what_is_not_a_native_program_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let refused = |name: &str, bytes: &[u8]| {
            let path = directory.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            matches!(Program::open(&path), Err(JailError::NotNative { .. }))
        };
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(refused("script", b"#!/bin/sh\n"));
        assert!(refused("empty", b""));
        assert!(refused("half", &own[..80]));
        let mut other_machine = own[..4096].to_vec();
        other_machine[18] = 183;
        assert!(refused("aarch64", &other_machine));
        assert!(matches!(Program::open(directory.path()), Err(JailError::NotNative { .. })));
        let missing = Program::open(&directory.path().join("missing"));
        assert!(matches!(missing, Err(JailError::Program { .. })));
    }

    #[test]
    fn a_pipe_in_a_programs_place_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || tell.send(Program::open(&path).map(drop)));
        let opened = told.recv_timeout(std::time::Duration::from_secs(10)).expect("it waits for a writer");
        assert!(matches!(opened, Err(JailError::NotNative { .. })), "{opened:?}");
    }

    #[test]
    fn a_loader_of_the_programs_own_choice_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let mut bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let loader = b"/lib64/ld-linux-x86-64.so.2";
        let at = bytes.windows(loader.len()).position(|window| window == loader).unwrap();
        bytes[at..at + 12].copy_from_slice(b"/root/.ssh/x");
        let path = directory.path().join("reads");
        std::fs::write(&path, bytes).unwrap();
        assert!(matches!(Program::open(&path), Err(JailError::NotNative { .. })));
    }
}
