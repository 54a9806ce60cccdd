//! The rollback journal of a connection: bytes in the memory of the process, as a crash rolls back without them; or a file, for
//! a transaction that outgrows the pool and for a journal that another program left.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use holdfast_sys::file::sync_directory;

/// Memory kept from one transaction to the next.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    bytes: Vec<u8>,
    disk: Option<File>,
    /// Written to the file and not yet durable.
    unsynced: bool,
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
    }

    /// Uses the journal that is on the disk.
    pub(crate) fn open(&mut self, path: &Path) -> io::Result<()> {
        self.clear();
        let file = File::options().read(true).write(true).open(path).or_else(|_| File::open(path));
        self.disk = Some(file?);
        Ok(())
    }

    pub(crate) fn is_on_disk(&self) -> bool {
        self.disk.is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Moves to a file, which is durable with its name on return.
    pub(crate) fn spill(&mut self, path: &Path) -> io::Result<()> {
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(true).open(path)?;
        file.write_all_at(&self.bytes, 0)?;
        file.sync_all()?;
        if let Some(folder) = path.parent() {
            sync_directory(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })?;
        }
        self.clear();
        self.disk = Some(file);
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
            self.bytes.try_reserve(end - self.bytes.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
            self.bytes.resize(end, 0);
        }
        self.bytes[start..end].copy_from_slice(source);
        Ok(())
    }

    pub(crate) fn truncate(&mut self, size: u64) -> io::Result<()> {
        match &self.disk {
            Some(file) => file.set_len(size),
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
        Ok(())
    }
}
