//! The rollback journal of a connection: bytes in the memory of the process, as a crash rolls back
//! without them; or a file, for a transaction that outgrows the pool and for a journal that another
//! program left.
//!
//! A symbolic link in its place is an error, as it is to SQLite: it may lead to any file.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use holdfast_sys::file::{private_options, sync_directory};

/// At the beginning of a journal, and at the end of one that refers to a super-journal.
pub(crate) const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
/// What is in front of the super-journal's name: the number of a page that no database has.
const PAGE_NUMBER_BYTES: usize = 4;
/// Memory kept from one transaction to the next.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// A rollback journal: in memory, or in a file.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    bytes: Vec<u8>,
    disk: Option<File>,
    /// Written to the file and not yet durable.
    unsynced: bool,
    /// The folder in which its name is not durable yet.
    unsynced_in: Option<PathBuf>,
}

/// Opens a file beside a database, or makes it, with the rights of the database: it holds the same
/// pages.
fn open_like(path: &Path, database: &Path) -> io::Result<File> {
    let like = database.metadata()?;
    let mut options = private_options();
    options.read(true).write(true).create(true).truncate(false).mode(like.mode() & 0o777);
    let file = options.open(path)?;
    let found = file.metadata()?;
    if found.len() == 0 && found.mode() & 0o777 != like.mode() & 0o777 {
        file.set_permissions(like.permissions())?;
    }
    if (found.uid(), found.gid()) != (like.uid(), like.gid()) {
        // Only root may, as SQLite does; for others it is theirs.
        let _ = fchown(&file, Some(like.uid()), Some(like.gid()));
    }
    Ok(file)
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    sync_directory(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
}

/// Removes a journal, durably; a missing one is no error.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Ok(()) => path.parent().map_or(Ok(()), sync_folder),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes a journal that SQLite has settled. It is empty, durably, before its name goes: should the
/// name come back with a power cut, it undoes nothing.
pub(crate) fn remove_settled(path: &Path) -> io::Result<()> {
    let mut journal = Journal::default();
    journal.open(path)?;
    journal.discard(path)
}

impl Journal {
    /// As a new, empty one in memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes = Vec::new();
        }
        self.disk = None;
        self.unsynced = false;
        self.unsynced_in = None;
    }

    /// Uses the journal that is on the disk.
    pub(crate) fn open(&mut self, path: &Path) -> io::Result<()> {
        self.clear();
        let file = private_options().read(true).write(true).open(path);
        self.disk = Some(file.or_else(|_| private_options().read(true).open(path))?);
        Ok(())
    }

    /// Uses one on the disk, as SQLite does without us; it need not be there yet.
    pub(crate) fn create(&mut self, path: &Path, database: &Path) -> io::Result<()> {
        self.clear();
        self.unsynced_in = path.parent().map(Path::to_owned);
        self.disk = Some(open_like(path, database)?);
        Ok(())
    }

    pub(crate) fn is_on_disk(&self) -> bool {
        self.disk.is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes the reference to a super-journal, if there is one, out of a journal in memory; returns
    /// the name. SQLite rolls back with the rest, whether the super-journal is there or not.
    pub(crate) fn drop_reference(&mut self) -> Option<Vec<u8>> {
        let (rest, _sum) = self.bytes.strip_suffix(&MAGIC)?.split_last_chunk::<4>()?;
        let (rest, length) = rest.split_last_chunk::<4>()?;
        let start = rest.len().checked_sub(u32::from_be_bytes(*length) as usize)?;
        let name = rest[start..].to_vec();
        self.bytes.truncate(start.checked_sub(PAGE_NUMBER_BYTES)?);
        Some(name)
    }

    /// Moves to a file, which is durable with its name on return.
    pub(crate) fn spill(&mut self, path: &Path, database: &Path) -> io::Result<()> {
        let file = open_like(path, database)?;
        file.set_len(0)?;
        file.write_all_at(&self.bytes, 0)?;
        file.sync_all()?;
        if let Some(folder) = path.parent() {
            sync_folder(folder)?;
        }
        self.clear();
        self.disk = Some(file);
        Ok(())
    }

    /// Whether it has nothing to roll back, as SQLite tells that by its first byte. One that cannot
    /// be read may have something.
    pub(crate) fn is_settled(&self) -> bool {
        let mut first = [0];
        self.read(0, &mut first).is_ok() && first == [0]
    }

    /// Removes a journal on the disk that SQLite has settled and keeps open. It is empty, durably,
    /// before its name goes: should the name come back with a power cut, it undoes nothing.
    pub(crate) fn discard(&mut self, path: &Path) -> io::Result<()> {
        self.truncate(0)?;
        self.sync()?;
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => self.clear(),
        }
        Ok(())
    }

    /// Fills `target`; false when the journal ends before.
    pub(crate) fn read(&self, offset: u64, target: &mut [u8]) -> io::Result<bool> {
        if let Some(file) = &self.disk {
            let mut done = 0;
            while done < target.len() {
                match file.read_at(&mut target[done..], offset + done as u64)? {
                    0 => break,
                    read => done += read,
                }
            }
            target[done..].fill(0);
            return Ok(done == target.len());
        }
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.bytes.len());
        let bytes = target.len().min(self.bytes.len() - start);
        target[..bytes].copy_from_slice(&self.bytes[start..start + bytes]);
        target[bytes..].fill(0);
        Ok(bytes == target.len())
    }

    pub(crate) fn write(&mut self, offset: u64, source: &[u8]) -> io::Result<()> {
        if let Some(file) = &self.disk {
            self.unsynced = true;
            return file.write_all_at(source, offset);
        }
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let end = start.checked_add(source.len()).ok_or(io::ErrorKind::OutOfMemory)?;
        if start == self.bytes.len() {
            self.bytes.try_reserve(source.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
            self.bytes.extend_from_slice(source);
            return Ok(());
        }
        if end > self.bytes.len() {
            self.bytes
                .try_reserve(end - self.bytes.len())
                .map_err(|_| io::ErrorKind::OutOfMemory)?;
            self.bytes.resize(end, 0);
        }
        self.bytes[start..end].copy_from_slice(source);
        Ok(())
    }

    pub(crate) fn truncate(&mut self, size: u64) -> io::Result<()> {
        match &self.disk {
            Some(file) => {
                self.unsynced = true;
                file.set_len(size)
            }
            None => {
                self.bytes.truncate(usize::try_from(size).unwrap_or(usize::MAX));
                Ok(())
            }
        }
    }

    pub(crate) fn size(&self) -> io::Result<u64> {
        match &self.disk {
            Some(file) => Ok(file.metadata()?.len()),
            None => Ok(self.bytes.len() as u64),
        }
    }

    /// Waits until what was written to the file is durable.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if let (true, Some(file)) = (self.unsynced, &self.disk) {
            file.sync_data()?;
            self.unsynced = false;
        }
        if let Some(folder) = self.unsynced_in.take() {
            sync_folder(&folder)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;

    /// A journal that is removed has nothing in it that could undo a later commit, should its name
    /// come back; one whose name is gone already is no error.
    ///
    /// Guarantee: sqlite/outgrown-pool
    #[test]
    fn removed_journal_undoes_nothing_if_it_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let [database, path, other] =
            ["db", "db-journal", "other"].map(|name| folder.path().join(name));
        std::fs::write(&database, "").unwrap();
        let mut journal = Journal::default();
        for is_gone in [false, true] {
            journal.write(0, &[0xd9; 600]).unwrap();
            journal.spill(&path, &database).unwrap();
            std::fs::hard_link(&path, &other).unwrap();
            if is_gone {
                std::fs::remove_file(&path).unwrap();
            }
            assert!(!journal.is_settled());
            journal.discard(&path).unwrap();
            assert!(!path.exists() && !journal.is_on_disk() && journal.is_empty());
            assert_eq!(other.metadata().unwrap().len(), 0, "{is_gone}");
            std::fs::remove_file(&other).unwrap();
        }
    }

    /// What a link in a journal's place leads to is not written to, nor shortened.
    ///
    /// Guarantee: sqlite/same-results
    #[test]
    fn link_in_a_journals_place_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let [database, path, other] =
            ["db", "db-journal", "other"].map(|name| folder.path().join(name));
        std::fs::write(&database, "").unwrap();
        std::fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        let mut journal = Journal::default();
        journal.write(0, &[0xd9; 600]).unwrap();
        assert!(journal.spill(&path, &database).is_err());
        assert!(journal.open(&path).is_err());
        assert!(journal.create(&path, &database).is_err());
        assert!(crate::stub::write(&database, b"/db-mj1").is_err());
        assert_eq!(std::fs::read(&other).unwrap(), b"kept");
        assert!(path.is_symlink());
    }

    /// Only a reference that is whole, and within the journal, is taken out.
    #[test]
    fn reference_to_a_super_journal_is_taken_out() {
        let mut journal = Journal::default();
        journal.write(0, &[7; 600]).unwrap();
        assert_eq!(journal.drop_reference(), None);
        let name = b"/db-mj1".as_slice();
        let reference =
            [[0_u8; 4].as_slice(), name, &7_u32.to_be_bytes(), &[0; 4], &MAGIC].concat();
        journal.write(600, &reference).unwrap();
        assert_eq!(journal.drop_reference().as_deref(), Some(name));
        assert_eq!(journal.size().unwrap(), 600);
        journal.write(600, &[[0xff; 8], MAGIC].concat()).unwrap();
        assert_eq!(journal.drop_reference(), None);
        assert_eq!(journal.size().unwrap(), 616);
    }
}
