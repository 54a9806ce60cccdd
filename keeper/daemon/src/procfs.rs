//! Processes in `/proc`: their state, their parents, and which files they may store to through
//! memory.
//!
//! Every answer was true at some moment; a process that goes away while it is looked at is simply
//! not there. One that cannot be looked at, as no descriptor or no memory is left, is not taken for
//! one that is gone: that is an error, or unknown.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// A file, told apart from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId {
    device: (u32, u32),
    inode: u64,
}

/// What `/proc/PID/stat` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) state: char,
    pub(crate) parent: u32,
    /// Whether it has a controlling terminal.
    pub(crate) on_terminal: bool,
}

/// What a process may store to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Maps {
    /// For each of the files whether it may store to that.
    Stores(Vec<bool>),
    /// It may not, or cannot, be looked at.
    Unknown,
    /// It has ended, or is a thread of the kernel.
    NoMemory,
}

impl FileId {
    pub(crate) fn of(path: &Path) -> Option<FileId> {
        Some(FileId::from_metadata(&path.symlink_metadata().ok()?))
    }

    /// Of a file that has no path.
    pub(crate) fn of_open(file: &fs::File) -> Option<FileId> {
        Some(FileId::from_metadata(&file.metadata().ok()?))
    }

    fn from_metadata(found: &fs::Metadata) -> FileId {
        let device = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
        FileId { device, inode: found.ino() }
    }
}

/// All processes.
///
/// # Errors
/// When they cannot be listed: there may be any.
pub(crate) fn processes() -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        found.extend(name.to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(found)
}

pub(crate) fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The states of a process's threads; empty when it is gone.
///
/// # Errors
/// When one of them cannot be looked at: it may be in any state.
pub(crate) fn thread_states(pid: u32) -> io::Result<Vec<char>> {
    let mut states = Vec::new();
    for thread in threads(pid)? {
        match fs::read(thread.join("stat")) {
            Ok(text) => states.push(parse_stat(&text).ok_or(ErrorKind::InvalidData)?.state),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(states)
}

fn threads(pid: u32) -> io::Result<Vec<PathBuf>> {
    let mut threads = Vec::new();
    let entries = match fs::read_dir(format!("/proc/{pid}/task")) {
        Err(error) if is_gone(&error) => return Ok(threads),
        entries => entries?,
    };
    for entry in entries {
        match entry {
            Ok(entry) => threads.push(entry.path()),
            Err(error) if is_gone(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(threads)
}

/// Whether this says that a process or a thread has ended.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

/// Which of the files a process may store to.
pub(crate) fn maps(pid: u32, files: &[FileId]) -> Maps {
    let of_first_thread = maps_of(Path::new(&format!("/proc/{pid}")), files);
    if of_first_thread != Maps::NoMemory {
        return of_first_thread;
    }
    // The first thread has ended, and others may go on with the memory.
    let Ok(others) = threads(pid) else { return Maps::Unknown };
    let mut others = others.iter().map(|thread| maps_of(thread, files));
    others.find(|found| *found != Maps::NoMemory).unwrap_or(Maps::NoMemory)
}

fn maps_of(process: &Path, files: &[FileId]) -> Maps {
    match fs::read(process.join("maps")) {
        Ok(text) if text.is_empty() => Maps::NoMemory,
        Ok(text) => {
            // Paths may hold any byte.
            let text = String::from_utf8_lossy(&text);
            let mapped: Vec<FileId> = text.lines().filter_map(shared_file).collect();
            Maps::Stores(files.iter().map(|file| mapped.contains(file)).collect())
        }
        Err(error) if is_gone(&error) => Maps::NoMemory,
        Err(_) => Maps::Unknown,
    }
}

/// The second field is the program's name in parentheses and may hold any byte.
fn parse_stat(stat: &[u8]) -> Option<Stat> {
    let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let mut fields = std::str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let terminal: i64 = fields.nth(2)?.parse().ok()?;
    Some(Stat { state, parent, on_terminal: terminal != 0 })
}

/// The file of a mapping that is shared. Also one that is not writable now: a region's pages become
/// so at their first store.
fn shared_file(line: &str) -> Option<FileId> {
    let mut fields = line.split_ascii_whitespace();
    let (_, permissions, _, device, inode) =
        (fields.next()?, fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let (major, minor) = device.split_once(':')?;
    let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let file = FileId { device, inode: inode.parse().ok()? };
    permissions.ends_with('s').then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of stat is read whatever the program is called.
    #[test]
    fn stat_line_is_read_for_any_program_name() {
        let stat = parse_stat(b"17 (a) b (c) T 4 17 17 34816 17 4194560 0").unwrap();
        assert_eq!(stat, Stat { state: 'T', parent: 4, on_terminal: true });
        let stat = parse_stat(b"17 (x) S 1 17 17 0 -1 0 0").unwrap();
        assert_eq!(stat, Stat { state: 'S', parent: 1, on_terminal: false });
        assert_eq!(parse_stat(b"17 (x"), None);
    }

    #[test]
    fn only_shared_mappings_of_the_file_count() {
        let line = "100010000000-100010400000 rw-s 00200000 00:1a 2049   /dev/shm/p/words.image";
        let file = FileId { device: (0, 0x1a), inode: 2049 };
        assert_eq!(shared_file(line), Some(file));
        assert_eq!(shared_file(&line.replace("rw-s", "rw-p")), None);
        assert_eq!(shared_file("nonsense"), None);
    }

    /// A program that maps a file whose name is no text may store to heaps as every other one.
    ///
    /// Guarantee: keeper/stopped-programs
    #[test]
    fn mapped_file_without_a_text_name_hides_no_writer() {
        let process = tempfile::tempdir().unwrap();
        let text = b"100010000000-100010400000 rw-s 00200000 00:1a 2049   /dev/shm/p/words.image\n\
            7f0000000000-7f0000001000 r--p 00000000 00:1a 7   /tmp/caf\xe9\n";
        fs::write(process.path().join("maps"), text).unwrap();
        let file = FileId { device: (0, 0x1a), inode: 2049 };
        assert_eq!(maps_of(process.path(), &[file]), Maps::Stores(vec![true]));
        // What is no answer is not that it stores to nothing.
        fs::remove_file(process.path().join("maps")).unwrap();
        assert_eq!(maps_of(process.path(), &[file]), Maps::NoMemory);
        fs::create_dir(process.path().join("maps")).unwrap();
        assert_eq!(maps_of(process.path(), &[file]), Maps::Unknown);
    }
}
