//! The program's file: whether it is a native program, the loader that it names, and its notes.
//!
//! Invariants: the file is untrusted input, so it can only cause a refusal. A note decides nothing
//! about what the program may do, and reading the notes costs little whatever the file contains.

#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind::PermissionDenied};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use holdfast_sys::file::effective_user;
use holdfast_sys::memory_file;

use crate::error::JailError;
use crate::jail::Examined;

const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const PROGRAM_HEADERS_MAX: u16 = 256;
const INTERPRETER: u32 = 3;
const NOTES: u32 = 4;
const INTERPRETER_BYTES_MAX: u64 = 4096;
const X86_64: u16 = 62;
const EXECUTABLE: u16 = 2;
const SHARED: u16 = 3;

/// Where loaders and libraries are; a program that wants another loader is refused, because to let
/// it have that one would be to let its author choose a file to read.
pub(crate) const LIBRARY_DIRECTORIES: [&str; 6] =
    ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/alternatives"];
/// Files that loaders read.
pub(crate) const LOADER_FILES: [&str; 2] = ["/etc/ld.so.cache", "/etc/ld-musl-x86_64.path"];

/// Bytes of one segment of notes that are looked at.
const NOTES_BYTES_MAX: u64 = 64 << 10;
/// Notes that are looked at.
const NOTES_MAX: usize = 256;
const NOTE_HEAD_BYTES: usize = 12;

/// Bits that let others write.
const OTHERS_WRITE: u32 = 0o022;
/// The superuser, who needs no file to do as he likes.
const SUPERUSER: u32 = 0;
/// Bytes copied at once.
const COPY_PIECE_BYTES: usize = 256 << 10;
/// More than a program has; one that others may write to is copied into memory.
const COPY_BYTES_MAX: u64 = 1 << 30;

const BROKEN: &str = "an ELF file with a broken header";

/// An entry of the table of segments.
struct Segment {
    offset: u64,
    bytes: u64,
    alignment: u64,
}

/// An opened program.
#[derive(Debug)]
pub(crate) struct ElfProgram {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    /// It needs a loader, and so libraries.
    pub(crate) is_dynamic: bool,
    /// Everybody may run it.
    pub(crate) for_everybody: bool,
    /// The file is a copy in memory that nothing can change.
    pub(crate) is_sealed: bool,
}

impl ElfProgram {
    /// Opens the program at a path; with `examined`, only the one that was examined. Of a file that
    /// others may write to it is a copy that is opened, since they could change it after any look.
    pub(crate) fn open(path: &Path, examined: Option<&Examined>) -> Result<ElfProgram, JailError> {
        let program = ElfProgram::open_any(path, examined.is_some())?;
        program.check(examined)?;
        Ok(program)
    }

    /// Asks whether it is still the one that was examined.
    pub(crate) fn check(&self, examined: Option<&Examined>) -> Result<(), JailError> {
        let path = || self.path.clone();
        match examined.map(|is_that| is_that(&self.file)) {
            None | Some(Ok(true)) => Ok(()),
            Some(Ok(false)) => Err(JailError::Replaced { path: path() }),
            Some(Err(source)) => Err(JailError::Program { path: path(), source }),
        }
    }

    fn open_any(path: &Path, is_examined: bool) -> Result<ElfProgram, JailError> {
        let cannot = |source| JailError::Program { path: path.to_owned(), source };
        let not = |what| JailError::NotNative { path: path.to_owned(), what };
        // Does not wait for a process that may be at the other end of a pipe; of a file it means
        // nothing.
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let mut file = File::options().read(true).custom_flags(flags).open(path).map_err(cannot)?;
        let metadata = file.metadata().map_err(cannot)?;
        if !metadata.is_file() {
            return Err(not("not a file"));
        }
        let is_others = metadata.mode() & OTHERS_WRITE != 0
            || ![effective_user(), SUPERUSER].contains(&metadata.uid());
        let is_sealed = is_examined && is_others;
        if is_sealed {
            file = sealed_copy(&file).map_err(cannot)?;
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
            let known =
                LIBRARY_DIRECTORIES.iter().any(|directory| interpreter.starts_with(directory));
            let climbs =
                interpreter.components().any(|part| part == std::path::Component::ParentDir);
            if climbs || !known {
                return Err(not(
                    "a program with a loader outside of the system's library directories",
                ));
            }
            // The kernel would say of the program itself that it is not there.
            if matches!(interpreter.try_exists(), Ok(false)) {
                return Err(not(
                    "a program for another C library, whose loader this machine does not have: link it statically",
                ));
            }
        }
        if metadata.mode() & 0o111 == 0 {
            return Err(cannot(io::Error::new(PermissionDenied, "it is not executable")));
        }
        let for_everybody = metadata.mode() & 0o005 == 0o005;
        Ok(ElfProgram {
            file,
            path: path.to_owned(),
            is_dynamic: interpreter.is_some(),
            for_everybody,
            is_sealed,
        })
    }

    /// Its segments of notes, each with the alignment of what is in it; those that are too long or
    /// cut off are left out.
    pub(crate) fn note_segments(&self) -> Vec<(Vec<u8>, usize)> {
        let mut header = [0; HEADER_BYTES];
        if self.file.read_exact_at(&mut header, 0).is_err() {
            return Vec::new();
        }
        let found = segments(&self.file, &header, NOTES).unwrap_or_default();
        let read = found.iter().filter_map(|segment| {
            let bytes = content(&self.file, segment, NOTES_BYTES_MAX)?;
            Some((bytes, if segment.alignment == 8 { 8 } else { 4 }))
        });
        read.collect()
    }
}

/// A copy of a program's file that nothing can change, not even through a mapping that somebody has
/// of the file.
fn sealed_copy(file: &File) -> io::Result<File> {
    let error = |text: &'static str| io::Error::new(PermissionDenied, text);
    let copy = memory_file::create_program("holdfast program").map_err(|source| {
        match source.kind() {
            PermissionDenied => error(
                "others may write to it, and this machine runs no copies in memory (vm.memfd_noexec); \
                 make it a file of yours that only you can write to",
            ),
            _ => source,
        }
    })?;
    let room_bytes = memory_file::size_limit_bytes().unwrap_or(COPY_BYTES_MAX).min(COPY_BYTES_MAX);
    if file.metadata()?.len() > room_bytes {
        return Err(error(
            "others may write to it, and it is too large to be copied; make it a file of yours that only \
             you can write to",
        ));
    }
    let mut at = 0;
    let mut piece = vec![0; COPY_PIECE_BYTES];
    loop {
        let wanted = (room_bytes - at).min(COPY_PIECE_BYTES as u64) as usize;
        match file.read_at(&mut piece[..wanted], at) {
            Ok(0) => break,
            Ok(more) => {
                copy.write_all_at(&piece[..more], at)?;
                at += more as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    memory_file::seal(&copy)?;
    // No file runs while a descriptor is open for writing it.
    memory_file::for_reading(copy)
}

/// The entries of one kind in the table of a program's segments.
fn segments(
    file: &File,
    header: &[u8; HEADER_BYTES],
    kind: u32,
) -> Result<Vec<Segment>, &'static str> {
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

/// One note of an ELF program.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElfNote {
    /// The organisation or tool that defines its meaning, without the NUL at the end.
    pub owner: Vec<u8>,
    /// Its type, among the notes of this owner.
    pub kind: u32,
    /// Its bytes; their meaning depends on owner and kind.
    pub content: Vec<u8>,
}

/// The notes of a program's file, in its order. What is broken ends them. With `examined`, they are
/// those of the file that was examined.
///
/// # Errors
/// Those of a file that is no native program; `Replaced`.
pub fn notes(path: &Path, examined: Option<&Examined>) -> Result<Vec<ElfNote>, JailError> {
    let mut found = Vec::new();
    let program = ElfProgram::open_any(path, examined.is_some())?;
    for (bytes, alignment) in program.note_segments() {
        parse_notes(&bytes, alignment, &mut found);
    }
    // What was read before counts only then.
    program.check(examined)?;
    Ok(found)
}

/// System V Application Binary Interface, "Note Section"; an alignment of 8 is that of newer
/// linkers' properties.
fn parse_notes(mut bytes: &[u8], alignment: usize, found: &mut Vec<ElfNote>) {
    while let Some((head, rest)) = bytes.split_first_chunk::<NOTE_HEAD_BYTES>()
        && found.len() < NOTES_MAX
    {
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (owner_bytes, content_bytes) = (word(0) as usize, word(4) as usize);
        let content_at =
            (NOTE_HEAD_BYTES + owner_bytes).next_multiple_of(alignment) - NOTE_HEAD_BYTES;
        let (Some(owner), Some(content)) = (
            rest.get(..owner_bytes),
            content_at.checked_add(content_bytes).and_then(|end| rest.get(content_at..end)),
        ) else {
            return;
        };
        let owner = owner.strip_suffix(b"\0").unwrap_or(owner).to_vec();
        found.push(ElfNote { owner, kind: word(8), content: content.to_vec() });
        let end = (NOTE_HEAD_BYTES + content_at + content_bytes).next_multiple_of(alignment)
            - NOTE_HEAD_BYTES;
        bytes = rest.get(end..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_is_a_dynamic_program() {
        let program = ElfProgram::open(&std::env::current_exe().unwrap(), None).unwrap();
        assert!(program.is_dynamic);
    }

    #[test]
    fn what_is_not_a_native_program_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let refused = |name: &str, bytes: &[u8]| {
            let path = directory.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            matches!(ElfProgram::open(&path, None), Err(JailError::NotNative { .. }))
        };
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(refused("script", b"#!/bin/sh\n"));
        assert!(refused("empty", b""));
        assert!(refused("half", &own[..80]));
        let mut other_machine = own[..4096].to_vec();
        other_machine[18] = 183;
        assert!(refused("aarch64", &other_machine));
        assert!(matches!(
            ElfProgram::open(directory.path(), None),
            Err(JailError::NotNative { .. })
        ));
        let missing = ElfProgram::open(&directory.path().join("missing"), None);
        assert!(matches!(missing, Err(JailError::Program { .. })));
    }

    /// Guarantee: sandbox/supervisor
    #[test]
    fn a_pipe_in_a_programs_place_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || tell.send(ElfProgram::open(&path, None).map(drop)));
        let opened =
            told.recv_timeout(std::time::Duration::from_secs(10)).expect("it waits for a writer");
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
        assert!(matches!(ElfProgram::open(&path, None), Err(JailError::NotNative { .. })));
    }

    /// A program that was built for another C library is refused with what it lacks.
    ///
    /// Guarantee: sandbox/own-status
    #[test]
    fn program_whose_loader_is_missing_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let mut bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let loader = b"/lib64/ld-linux-x86-64.so.2";
        let at = bytes.windows(loader.len()).position(|window| window == loader).unwrap();
        bytes[at + loader.len() - 1] = b'x';
        let path = directory.path().join("foreign");
        std::fs::write(&path, bytes).unwrap();
        let error = ElfProgram::open(&path, None).unwrap_err();
        assert!(matches!(error, JailError::NotNative { .. }), "{error}");
        assert!(error.to_string().contains("loader this machine does not have"), "{error}");
    }

    fn note(owner: &[u8], kind: u32, content: &[u8], alignment: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = [owner.len() as u32, content.len() as u32, kind]
            .into_iter()
            .flat_map(u32::to_le_bytes)
            .collect();
        for part in [owner, content] {
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(alignment), 0);
        }
        bytes
    }

    fn parsed(bytes: &[u8], alignment: usize) -> Vec<(Vec<u8>, u32, Vec<u8>)> {
        let mut found = Vec::new();
        parse_notes(bytes, alignment, &mut found);
        found.into_iter().map(|note| (note.owner, note.kind, note.content)).collect()
    }

    /// Guarantee: heap/order-promises
    #[test]
    fn notes_are_found_in_either_alignment() {
        for alignment in [4, 8] {
            let mut bytes = note(b"GNU\0", 3, b"twenty bytes of hash", alignment);
            bytes.extend(note(b"", 9, b"", alignment));
            bytes.extend(note(b"Holdfast\0", 1, &[1, 0, 0, 0], alignment));
            let expected = [
                (b"GNU".to_vec(), 3, b"twenty bytes of hash".to_vec()),
                (Vec::new(), 9, Vec::new()),
                (b"Holdfast".to_vec(), 1, vec![1, 0, 0, 0]),
            ];
            assert_eq!(parsed(&bytes, alignment), expected);
        }
    }

    /// Guarantee: heap/order-promises
    #[test]
    fn a_broken_note_ends_the_list() {
        let whole = note(b"GNU\0", 3, b"content", 4);
        for cut in 0..whole.len() - 1 {
            assert_eq!(parsed(&whole[..cut], 4), [], "{cut}");
        }
        for lie in [u32::MAX, u32::MAX - 11, 1 << 31, 5000] {
            for at in [0, 4] {
                let mut bytes = whole.clone();
                bytes[at..at + 4].copy_from_slice(&lie.to_le_bytes());
                assert_eq!(parsed(&bytes, 4), [], "{lie:#x} at {at}");
            }
        }
        assert_eq!(parsed(&vec![0; NOTES_BYTES_MAX as usize], 4).len(), NOTES_MAX);
    }

    #[test]
    fn linked_programs_have_notes() {
        let own = notes(&std::env::current_exe().unwrap(), None).unwrap();
        assert!(own.iter().any(|note| note.owner == b"GNU"), "{own:?}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"no program").unwrap();
        assert!(matches!(notes(file.path(), None), Err(JailError::NotNative { .. })));
    }
}
