//! A storage whose pool has a size of its own, smaller than the file system's, and whose store can
//! be full. What it allows goes through a [`FaultyStorage`].

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_region::{FileView, Storage};
use holdfast_sys::mapping::HUGE_PAGE_BYTES;

use crate::common::faulty::{Fault, FaultyStorage};

#[derive(Debug)]
pub(crate) struct SmallPool {
    pool: PathBuf,
    bytes: u64,
    pub(crate) faulty: FaultyStorage,
    /// What is to be written to the store finds no room.
    pub(crate) is_store_full: AtomicBool,
    /// What the pool refuses is told as a quota, and statfs knows nothing of it.
    pub(crate) is_quota: AtomicBool,
    /// One step at a time, as in a file system: what another thread takes for a moment and gives
    /// back is nobody else's.
    turn: Mutex<()>,
}

impl SmallPool {
    pub(crate) fn new(pool: &Path, bytes: u64, fault: Fault) -> SmallPool {
        let (pool, faulty) = (pool.to_owned(), FaultyStorage::new(fault));
        SmallPool {
            pool,
            bytes,
            faulty,
            is_store_full: AtomicBool::new(false),
            is_quota: AtomicBool::new(false),
            turn: Mutex::new(()),
        }
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        let entries = std::fs::read_dir(&self.pool).unwrap();
        let blocks = entries.flatten().filter_map(|entry| entry.path().symlink_metadata().ok());
        blocks.map(|found| found.blocks() * 512).sum()
    }

    fn is_in_pool(&self, file: &File) -> bool {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        path.starts_with(&self.pool)
    }

    /// Does a step that may take room, and takes it back if that is more than there is.
    fn bounded(&self, file: &File, step: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if !self.is_in_pool(file) {
            return if self.is_store_full.load(Ordering::SeqCst) {
                Err(io::ErrorKind::StorageFull.into())
            } else {
                step()
            };
        }
        let _turn = self.turn.lock().unwrap();
        let (len_before, used_before) = (file.metadata()?.len(), self.used_bytes());
        step()?;
        if self.used_bytes() <= self.bytes.max(used_before) {
            return Ok(());
        }
        file.set_len(len_before)?;
        let is_quota = self.is_quota.load(Ordering::SeqCst);
        Err(if is_quota { io::ErrorKind::QuotaExceeded } else { io::ErrorKind::StorageFull }.into())
    }
}

impl Storage for SmallPool {
    fn create(&self, path: &Path) -> io::Result<File> {
        if !path.starts_with(&self.pool) && self.is_store_full.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.faulty.create(path)
    }

    fn allocate(&self, file: &File, range: Range<u64>) -> io::Result<()> {
        self.bounded(file, || self.faulty.allocate(file, range))
    }

    fn allocate_huge_pages(&self, file: &File, range: Range<u64>) -> bool {
        // One after the other, and what there was room for stays.
        let pages = range.clone().step_by(HUGE_PAGE_BYTES);
        let mut made = pages.map(|start| {
            let end = range.end.min(start + HUGE_PAGE_BYTES as u64);
            self.bounded(file, || match self.faulty.allocate_huge_pages(file, start..end) {
                true => Ok(()),
                false => Err(io::ErrorKind::Other.into()),
            })
        });
        // Room may be made.
        match made.find(Result::is_err) {
            Some(Err(error)) => error.kind() != io::ErrorKind::Other,
            _ => true,
        }
    }

    fn set_len(&self, file: &File, len_bytes: u64) -> io::Result<()> {
        self.faulty.set_len(file, len_bytes)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.is_store_full.load(Ordering::SeqCst) && !self.is_in_pool(file) {
            // A disk takes what it has room for.
            self.faulty.write_at(file, &bytes[..bytes.len() / 2], offset)?;
        }
        self.bounded(file, || self.faulty.write_at(file, bytes, offset))
    }

    fn store(&self, view: &mut FileView, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.faulty.store(view, offset, bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.faulty.sync(file)
    }

    fn sync_data(&self, file: &File) -> io::Result<()> {
        self.faulty.sync_data(file)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.faulty.sync_directory(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.faulty.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.faulty.remove(path)
    }

    fn available_bytes(&self, path: &Path) -> io::Result<u64> {
        if path == self.pool && !self.is_quota.load(Ordering::SeqCst) {
            return Ok(self.bytes.saturating_sub(self.used_bytes()));
        }
        self.faulty.available_bytes(path)
    }
}
