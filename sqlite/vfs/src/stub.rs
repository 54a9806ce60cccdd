//! Commits over several databases (ATTACH). SQLite names the journals of all of them in a
//! *super-journal*; deleting that file is the commit of them all.
//!
//! Our journals are in memory. So that a crash is resolved as SQLite would, whatever else took
//! part, a database that is prepared leaves a stub beside it, by the name of its journal, which
//! refers to the super-journal in SQLite's format. It begins with a zero, so no process takes it
//! for a journal to roll back; and while it is there no process deletes the super-journal.
//!
//! Where the commit fails before that, SQLite rolls each database back, and deletes the super-journal
//! when no journal refers to it any more. One that could not be prepared has no stub, and so loses
//! the reference in its journal, too: SQLite would take the missing super-journal for the commit of
//! this one. The stub of one that was prepared goes with SQLite's `SQLITE_FCNTL_SYNC` at the end of
//! the rollback: in its exclusive mode no lock is given back, and what it writes next would be taken
//! for the prepared transaction if the process died.
//!
//! The stub is beside the name by which a process opened the database first, from which it is
//! removed. Where a connection has the database by another name, SQLite looks for its journal there,
//! finds none, and may delete the super-journal with the rollback of a database that comes before
//! this one. Then
//! - a process that dies before this one is rolled back, too, leaves it as if it were committed;
//! - SQLite leaves its cache as it is. What is written is dropped when the lock is given back; the
//!   cache is given up when SQLite asks whether it is of the database as it is. In the exclusive mode
//!   the next commit of this database takes along what it wrote.

#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use holdfast_sys::file::private_options;

use crate::error::{Result, SqliteError};
use crate::journal::{self, MAGIC as JOURNAL_MAGIC};

const MAGIC: &[u8; 16] = b"\0holdfast stub\0\0";
const SECTOR_BYTES: usize = 512;
const LOCK_PAGE: [u8; 4] = [0; 4];
/// What follows the name in a reference: its length, its sum, and SQLite's magic bytes.
const REFERENCE_END_BYTES: usize = 4 + 4 + JOURNAL_MAGIC.len();
const SUPER_BYTES_MAX: u64 = 1 << 20;
/// No stub is as long.
const BYTES_MAX: u64 = 16 << 10;

/// Whether SQLite writes with these bytes the end of a reference to a super-journal.
#[inline]
pub(crate) fn ends_reference(bytes: &[u8]) -> bool {
    bytes == JOURNAL_MAGIC
}

/// The journal that SQLite would have for a database.
pub(crate) fn journal_path(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-journal");
    PathBuf::from(name)
}

/// Whether there is a journal beside a database, or a stub. One that cannot be looked at is an
/// error: it may be one to roll back.
pub(crate) fn has_journal(database: &Path) -> Result<bool> {
    let path = journal_path(database);
    let found = path.try_exists();
    found.map_err(SqliteError::io("examine", &path))
}

/// Whether there is a journal beside a database that was not settled. One that cannot be read may
/// be such a one.
pub(crate) fn has_live_journal(database: &Path) -> Result<bool> {
    if !has_journal(database)? {
        return Ok(false);
    }
    let mut first = [0];
    let read = File::open(journal_path(database)).and_then(|mut file| file.read(&mut first));
    Ok(read.map_or(true, |bytes| bytes == 1 && first != [0]))
}

/// Writes the stub.
pub(crate) fn write(database: &Path, super_journal: &[u8]) -> io::Result<()> {
    let mut bytes = vec![0; SECTOR_BYTES];
    bytes[..MAGIC.len()].copy_from_slice(MAGIC);
    bytes.extend_from_slice(&LOCK_PAGE);
    bytes.extend_from_slice(super_journal);
    bytes.extend_from_slice(&(super_journal.len() as u32).to_be_bytes());
    // SQLite sums the bytes as its `char`s, which have signs.
    let sum = super_journal
        .iter()
        .fold(0_u32, |sum, byte| sum.wrapping_add(i32::from(*byte as i8) as u32));
    bytes.extend_from_slice(&sum.to_be_bytes());
    bytes.extend_from_slice(&JOURNAL_MAGIC);
    // With the rights of its database, as SQLite makes it.
    let mode = database.metadata().map_or(0o600, |found| found.mode() & 0o666);
    let path = journal_path(database);
    let mut options = private_options();
    let mut file = options.write(true).create(true).truncate(true).mode(mode).open(&path)?;
    let written = file.write_all(&bytes);
    if written.is_err() {
        // What is there of it may be too short to be known for one.
        let _ = std::fs::remove_file(path);
    }
    written
}

/// Removes the stub, if it is one.
pub(crate) fn remove(database: &Path) {
    let path = journal_path(database);
    let mut start = [0; MAGIC.len()];
    let is_stub = File::open(&path)
        .is_ok_and(|file| file.read_exact_at(&mut start, 0).is_ok() && &start == MAGIC);
    if is_stub {
        let _ = std::fs::remove_file(path);
    }
}

/// Cleans up after a stub that is left though no transaction is prepared: its process died just
/// before it was, or after. So it does after a journal that was settled, whose process died before it
/// was removed: `are_ours` says that no journal there is of a process without the VFS.
pub(crate) fn clean_up_stale(database: &Path, are_ours: bool) {
    let path = journal_path(database);
    let mut bytes = Vec::new();
    // One that is no stub may be of any length.
    let read = File::open(&path).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes));
    if read.is_err() {
        return;
    }
    let start = SECTOR_BYTES + LOCK_PAGE.len();
    let end = bytes.len().saturating_sub(REFERENCE_END_BYTES);
    if bytes.is_empty() {
        // It died before it wrote the stub's first byte. A process without the VFS makes its
        // journal empty, too.
        if are_ours {
            let _ = std::fs::remove_file(path);
        }
    } else if bytes.starts_with(MAGIC) {
        clean_up(database, bytes.get(start..end).unwrap_or_default());
    } else if are_ours
        && bytes.starts_with(&[0])
        && path.symlink_metadata().is_ok_and(|found| found.is_file())
    {
        // SQLite has settled it, so no process rolls it back, and it is in the way of the file.
        let _ = journal::remove_settled(&path);
    }
}

/// Whether a journal refers to a super-journal. One that cannot be read may do so, and would be
/// taken for committed without it.
fn refers_to(journal: &Path, super_journal: &[u8]) -> bool {
    // A journal may be as long as its database: no more of it is read.
    let mut end = vec![0; super_journal.len() + REFERENCE_END_BYTES];
    let read = File::open(journal).and_then(|file| {
        let Some(start) = file.metadata()?.len().checked_sub(end.len() as u64) else {
            return Ok(false);
        };
        file.read_exact_at(&mut end, start).map(|()| true)
    });
    match read {
        Ok(is_read) => is_read && end.starts_with(super_journal) && end.ends_with(&JOURNAL_MAGIC),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Whether a prepared transaction whose process died is committed: its super-journal is gone. One
/// that cannot be looked at is not.
pub(crate) fn is_committed(super_journal: &[u8]) -> bool {
    let found = Path::new(OsStr::from_bytes(super_journal)).symlink_metadata();
    found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Removes the stub, and the super-journal when no other process refers to it. What became of the
/// transaction must be noted before.
pub(crate) fn clean_up(database: &Path, super_journal: &[u8]) {
    remove(database);
    let path = Path::new(OsStr::from_bytes(super_journal));
    let is_small = path.metadata().is_ok_and(|found| found.len() <= SUPER_BYTES_MAX);
    if let (true, Ok(names)) = (is_small, std::fs::read(path)) {
        let mut journals = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        if !journals.any(|name| refers_to(Path::new(OsStr::from_bytes(name)), super_journal)) {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{OwnFile, read_mark};
    use crate::testing::{attached, hot};

    /// A super journal stays as long as a journal refers to it.
    ///
    /// Guarantee: sqlite/attached
    #[test]
    fn super_journal_stays_while_referred_to() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        let name = folder.path().join("one-mj0");
        let name_bytes = name.as_os_str().as_bytes();
        let list = [journal_path(&one), journal_path(&two)]
            .map(|path| path.into_os_string().into_encoded_bytes());
        std::fs::write(&name, list.join(&0)).unwrap();
        write(&one, name_bytes).unwrap();
        write(&two, name_bytes).unwrap();
        assert!(!is_committed(name_bytes));
        clean_up(&one, name_bytes);
        assert!(name.exists() && !journal_path(&one).exists());
        // A symbolic link to itself: the kernel answers ELOOP.
        let (hidden, aside) = (journal_path(&two), folder.path().join("aside"));
        std::fs::rename(&hidden, &aside).unwrap();
        std::os::unix::fs::symlink(&hidden, &hidden).unwrap();
        clean_up(&one, name_bytes);
        assert!(name.exists(), "a journal that cannot be read counts as none");
        std::fs::rename(&aside, &hidden).unwrap();
        clean_up(&two, name_bytes);
        assert!(!name.exists() && is_committed(name_bytes));
        let beneath_a_file = [journal_path(&one).as_os_str().as_bytes(), b"/mj"].concat();
        write(&one, name_bytes).unwrap();
        assert!(!is_committed(&beneath_a_file), "one that cannot be looked at counts as gone");
    }

    /// Of a journal no more is read than its end: it may be longer than what memory holds.
    ///
    /// Guarantee: sqlite/attached
    #[test]
    fn journal_of_any_length_is_asked_by_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let (database, name) = (folder.path().join("one"), b"/one-mj0".as_slice());
        write(&database, name).unwrap();
        let journal = journal_path(&database);
        assert!(refers_to(&journal, name) && !refers_to(&journal, b"/one-mj1"));
        let stub = std::fs::read(&journal).unwrap();
        // Without a block on the disk.
        let long_bytes = 1_u64 << 40;
        let file = File::options().write(true).open(&journal).unwrap();
        file.set_len(long_bytes).unwrap();
        assert!(!refers_to(&journal, name), "what is not at its end counts");
        file.write_all_at(&stub, long_bytes).unwrap();
        assert!(refers_to(&journal, name));
        file.set_len(3).unwrap();
        assert!(!refers_to(&journal, name), "it is too short");
    }

    /// Before the file has its mark, a journal that begins with zeros may be in the making, by a
    /// process without the VFS.
    ///
    /// Guarantee: sqlite/outgrown-pool
    #[test]
    fn journal_of_others_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("db");
        for bytes in [0, 600] {
            std::fs::write(journal_path(&database), vec![0; bytes]).unwrap();
            assert!(has_journal(&database).unwrap() && !has_live_journal(&database).unwrap());
            clean_up_stale(&database, false);
            assert!(has_journal(&database).unwrap(), "{bytes}");
            clean_up_stale(&database, true);
            assert!(!has_journal(&database).unwrap(), "{bytes}");
        }
    }

    /// A process dies between SQLite's settling of a journal and its removal: the journal is not held
    /// for one to roll back, which would keep the database in the pool; one that is to be rolled back
    /// stays, and the database.
    ///
    /// Guarantee: sqlite/outgrown-pool
    #[test]
    fn settled_journal_of_a_dead_process_is_removed() {
        for (journal, stays) in [(vec![], false), (vec![0_u8; 600], false), (vec![0xd9; 600], true)]
        {
            let folder = tempfile::tempdir_in("/dev/shm").unwrap();
            let pool = hot(folder.path(), 3);
            let (database, path) = (pool.database.clone(), journal_path(&pool.database));
            pool.image.mode().note_journal(true);
            std::fs::write(&path, &journal).unwrap();
            drop(pool);
            drop(attached(folder.path()).detach().unwrap());
            let is_marked = read_mark(&OwnFile::open(&database).unwrap()).unwrap().0.is_some();
            let first = journal.first();
            assert_eq!((path.exists(), is_marked), (stays, stays), "first byte {first:?}");
        }
    }

    #[test]
    fn a_journal_of_somebody_else_is_no_stub_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("one");
        std::fs::write(journal_path(&database), [0xd9; 600]).unwrap();
        remove(&database);
        assert!(journal_path(&database).exists());
    }
}
