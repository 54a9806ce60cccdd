//! A storage whose k-th step fails once, fails with all that follow (as if the process had died
//! there), or stops for ever (so that a parent can kill the process there). Its syncs are steps and
//! take time, but do not reach the disk: whether they do, no test here can tell.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use holdfast_region::{FileView, KernelStorage, Storage};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// One step reports this error number and has no effect, but for half of a write.
    Once(i32),
    /// That step and all after it report this error number, half of each write done.
    Always(i32),
    /// That step and all after it fail, half of a write done.
    Dead,
    /// That step says so on the standard output and never ends.
    Hang,
}

#[derive(Debug)]
pub(crate) struct FaultyStorage {
    steps_left: AtomicI64,
    fault: Fault,
    log: Mutex<Vec<&'static str>>,
    sync_time: Duration,
    room_bytes: Option<u64>,
}

impl FaultyStorage {
    /// Healthy until [`FaultyStorage::arm`].
    pub(crate) fn new(fault: Fault) -> FaultyStorage {
        FaultyStorage {
            steps_left: AtomicI64::new(i64::MAX),
            fault,
            log: Mutex::default(),
            sync_time: Duration::ZERO,
            room_bytes: None,
        }
    }

    /// Healthy until armed, with syncs that take at least this long.
    pub(crate) fn with_slow_syncs(fault: Fault, sync_time: Duration) -> FaultyStorage {
        FaultyStorage { sync_time, ..FaultyStorage::new(fault) }
    }

    /// Healthy until armed, and says of every file system that it has this much room.
    pub(crate) fn with_room(fault: Fault, room_bytes: u64) -> FaultyStorage {
        FaultyStorage { room_bytes: Some(room_bytes), ..FaultyStorage::new(fault) }
    }

    /// The step after `steps` more fails.
    pub(crate) fn arm(&self, steps: usize) {
        self.steps_left.store(steps as i64, Ordering::SeqCst);
    }

    /// Whether the fault has struck.
    pub(crate) fn struck(&self) -> bool {
        self.steps_left.load(Ordering::SeqCst) < 0
    }

    /// The names of all steps so far, in order; starts anew.
    pub(crate) fn take_log(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.log.lock().unwrap())
    }

    fn step(&self, name: &'static str) -> io::Result<()> {
        self.log.lock().unwrap().push(name);
        let left = self.steps_left.fetch_sub(1, Ordering::SeqCst);
        match self.fault {
            _ if left > 0 => Ok(()),
            Fault::Once(_) if left < 0 => Ok(()),
            Fault::Once(number) | Fault::Always(number) => {
                Err(io::Error::from_raw_os_error(number))
            }
            Fault::Dead => Err(io::Error::other("the process is as good as dead")),
            Fault::Hang => {
                println!("@@ hanging");
                loop {
                    std::thread::park();
                }
            }
        }
    }
}

impl Storage for FaultyStorage {
    fn create(&self, path: &Path) -> io::Result<File> {
        self.step("create")?;
        KernelStorage.create(path)
    }

    fn allocate(&self, file: &File, range: Range<u64>) -> io::Result<()> {
        self.step("allocate")?;
        KernelStorage.allocate(file, range)
    }

    fn allocate_huge_pages(&self, file: &File, range: Range<u64>) -> bool {
        // A hint that fails is no error: the step after it has that.
        let is_counted = matches!(self.fault, Fault::Dead | Fault::Hang);
        if is_counted && self.step("allocate_huge_pages").is_err() {
            return false;
        }
        KernelStorage.allocate_huge_pages(file, range);
        // Whatever the kernel says of its speed: what is done next must depend on no time.
        true
    }

    fn set_len(&self, file: &File, len_bytes: u64) -> io::Result<()> {
        self.step("set_len")?;
        KernelStorage.set_len(file, len_bytes)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let left = self.steps_left.load(Ordering::SeqCst);
        if left == 0 || (left < 0 && matches!(self.fault, Fault::Always(_))) {
            KernelStorage.write_at(file, &bytes[..bytes.len() / 2], offset)?;
        }
        self.step("write_at")?;
        KernelStorage.write_at(file, bytes, offset)
    }

    fn store(&self, view: &mut FileView, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let left = self.steps_left.load(Ordering::SeqCst);
        if left == 0 || (left < 0 && matches!(self.fault, Fault::Always(_))) {
            view.store(offset, &bytes[..bytes.len() / 2])?;
        }
        self.step("store")?;
        view.store(offset, bytes)
    }

    fn sync(&self, _: &File) -> io::Result<()> {
        self.step("sync")?;
        std::thread::sleep(self.sync_time);
        Ok(())
    }

    fn sync_data(&self, _: &File) -> io::Result<()> {
        self.step("sync_data")?;
        std::thread::sleep(self.sync_time);
        Ok(())
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        self.step("sync_directory")
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step("rename")?;
        KernelStorage.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step("remove")?;
        KernelStorage.remove(path)
    }

    fn available_bytes(&self, path: &Path) -> io::Result<u64> {
        self.room_bytes.map_or_else(|| KernelStorage.available_bytes(path), Ok)
    }
}
