//! A storage whose machine is reset at the k-th step, with a pool that outlives that, and what
//! memory may hold afterwards.
//!
//! Durable is what was synced or written back: of a file its content then, of a directory its names
//! then. Of everything else memory may have kept nothing, all, or any lines; of the names in the
//! pool any.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use holdfast_region::{FileView, KernelStorage, NameSpace, Places, Storage};

use super::Home;
use super::power::Kept;

/// Both header slots.
const HEADERS_BYTES: usize = 8192;
/// In which memory keeps or loses what was stored.
const LINE_BYTES: usize = 64;

/// The regions of a home whose pool is treated as memory that survives a reset, in a made-up boot.
pub(crate) fn names_in_boot(home: &Home, boot: u8, storage: Arc<dyn Storage>) -> NameSpace {
    let places = Places::at_emulated_dax(home.path(), home.pool(), [boot; 16]).unwrap();
    NameSpace::with_storage(places, storage)
}

#[derive(Debug, Default)]
struct Durable {
    names: [BTreeMap<OsString, u64>; 2],
    contents: HashMap<u64, Vec<u8>>,
    /// Every file there ever was, so that no number is given to a second one.
    open: Vec<File>,
}

#[derive(Debug)]
pub(crate) struct ResetStorage {
    /// Pool and store.
    directories: [PathBuf; 2],
    steps_left: Mutex<i64>,
    durable: Mutex<Durable>,
    /// Write-backs and syncs of the pool are passed over: a canary.
    forgets: bool,
}

impl ResetStorage {
    /// Everything that is in the home now is durable.
    pub(crate) fn new(home: &Home) -> ResetStorage {
        home.places();
        let directories = [home.pool().to_owned(), home.path().join("store")];
        let mut durable = Durable::default();
        for (directory, names) in directories.iter().zip(0..) {
            for (name, path) in files(directory) {
                let file = File::open(path).unwrap();
                durable.names[names].insert(name, inode(&file));
                durable.contents.insert(inode(&file), content(&file));
                durable.open.push(file);
            }
        }
        let (steps_left, durable) = (Mutex::new(i64::MAX), Mutex::new(durable));
        ResetStorage { directories, steps_left, durable, forgets: false }
    }

    /// The same with a writer that forgets to write back.
    pub(crate) fn forgetful(home: &Home) -> ResetStorage {
        ResetStorage { forgets: true, ..ResetStorage::new(home) }
    }

    /// The step after `steps` more is the one in which the machine is reset.
    pub(crate) fn arm(&self, steps: usize) {
        *self.steps_left.lock().unwrap() = steps as i64;
    }

    pub(crate) fn struck(&self) -> bool {
        *self.steps_left.lock().unwrap() < 0
    }

    /// The home after the machine has started again.
    pub(crate) fn after_reset(&self, kept: Kept) -> Home {
        self.rebuilt(kept, 0)
    }

    /// As after a reset in which nothing arrived but what was written to the headers of images.
    pub(crate) fn after_reset_with_headers(&self) -> Home {
        self.rebuilt(Kept::Nothing, HEADERS_BYTES)
    }

    fn rebuilt(&self, kept: Kept, arrived_bytes: usize) -> Home {
        let home = Home::in_memory();
        home.places();
        let targets = [home.pool().to_owned(), home.path().join("store")];
        let durable = self.durable.lock().unwrap();
        let mut random = Random(if let Kept::Some(seed) = kept { seed * 2 + 1 } else { 1 });
        for (index, (directory, target)) in self.directories.iter().zip(&targets).enumerate() {
            let current: BTreeMap<OsString, (u64, PathBuf)> = files(directory)
                .into_iter()
                .map(|(name, path)| (name, (path.metadata().unwrap().ino(), path)))
                .collect();
            let old_names = &durable.names[index];
            let all: BTreeSet<&OsString> = old_names.keys().chain(current.keys()).collect();
            let new_store = random.bit();
            for name in all {
                let is_new = match kept {
                    Kept::Nothing => false,
                    Kept::Everything => true,
                    Kept::Some(_) if index == 0 => random.bit(),
                    Kept::Some(_) => new_store,
                };
                let inode = if is_new {
                    current.get(name).map(|found| found.0)
                } else {
                    old_names.get(name).copied()
                };
                let Some(inode) = inode else { continue };
                let now = durable.open.iter().find(|file| self::inode(file) == inode);
                let now = now.map(content).or_else(|| {
                    let (_, path) = current.values().find(|(found, _)| *found == inode)?;
                    Some(content(&File::open(path).ok()?))
                });
                let empty = Vec::new();
                let old = durable.contents.get(&inode).unwrap_or(&empty);
                let new = now.as_ref().unwrap_or(old);
                let bytes = match kept {
                    Kept::Nothing => {
                        let mut bytes = old.clone();
                        let end = arrived_bytes.min(bytes.len()).min(new.len());
                        bytes[..end].copy_from_slice(&new[..end]);
                        bytes
                    }
                    Kept::Everything => new.clone(),
                    Kept::Some(_) => mixed(old, new, &mut random),
                };
                write_sparse(&target.join(name), &bytes);
            }
        }
        home
    }

    fn step(&self) -> io::Result<()> {
        let mut left = self.steps_left.lock().unwrap();
        *left -= 1;
        if *left < 0 { Err(io::Error::other("the machine is reset")) } else { Ok(()) }
    }

    fn is_last(&self) -> bool {
        *self.steps_left.lock().unwrap() == 0
    }
}

impl Storage for ResetStorage {
    fn create(&self, path: &Path) -> io::Result<File> {
        self.step()?;
        let file = KernelStorage.create(path)?;
        // Not a copy of the descriptor: it would keep the locks that are taken with it.
        self.durable.lock().unwrap().open.push(File::open(path)?);
        Ok(file)
    }

    fn allocate(&self, file: &File, range: Range<u64>) -> io::Result<()> {
        self.step()?;
        KernelStorage.allocate(file, range)
    }

    fn set_len(&self, file: &File, len_bytes: u64) -> io::Result<()> {
        self.step()?;
        KernelStorage.set_len(file, len_bytes)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.is_last() {
            KernelStorage.write_at(file, &bytes[..bytes.len() / 2], offset)?;
        }
        self.step()?;
        KernelStorage.write_at(file, bytes, offset)
    }

    fn store(&self, view: &mut FileView, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.is_last() {
            view.store(offset, &bytes[..bytes.len() / 2])?;
        }
        self.step()?;
        view.store(offset, bytes)
    }

    fn write_back(&self, file: &File, offset: u64, memory: &[u8]) -> io::Result<()> {
        self.step()?;
        if self.forgets {
            return Ok(());
        }
        let mut durable = self.durable.lock().unwrap();
        let bytes = durable.contents.entry(inode(file)).or_default();
        let (start, end) = (offset as usize, offset as usize + memory.len());
        bytes.resize(bytes.len().max(end), 0);
        bytes[start..end].copy_from_slice(memory);
        Ok(())
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.step()?;
        self.durable.lock().unwrap().contents.insert(inode(file), content(file));
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        if let Some(index) = self.directories.iter().position(|directory| directory == path) {
            let names =
                files(path).into_iter().map(|(name, path)| (name, path.metadata().unwrap().ino()));
            self.durable.lock().unwrap().names[index] = names.collect();
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        KernelStorage.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        // The number must stay the file's.
        let file = File::open(path)?;
        KernelStorage.remove(path)?;
        self.durable.lock().unwrap().open.push(file);
        Ok(())
    }

    fn available_bytes(&self, path: &Path) -> io::Result<u64> {
        KernelStorage.available_bytes(path)
    }
}

/// Images, logs and temporary files; locks and notes mean nothing after a reset.
fn files(directory: &Path) -> Vec<(OsString, PathBuf)> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let found =
        entries.map(|entry| (entry.file_name(), entry.path())).filter(|(_, path)| path.is_file());
    found.filter(|(name, _)| !name.to_string_lossy().ends_with("lock") && name != "home").collect()
}

fn inode(file: &File) -> u64 {
    file.metadata().unwrap().ino()
}

fn content(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Line by line the old or the new content, and the length of either.
fn mixed(old: &[u8], new: &[u8], random: &mut Random) -> Vec<u8> {
    let len = if random.bit() { old.len() } else { new.len() };
    let mut bytes = new.to_vec();
    bytes.resize(old.len().max(new.len()), 0);
    for (index, page) in bytes.chunks_mut(4096).enumerate() {
        let start = index * 4096;
        if old.get(start..start + page.len()).is_some_and(|was| was == page) {
            continue;
        }
        for (index, line) in page.chunks_mut(LINE_BYTES).enumerate() {
            let start = start + index * LINE_BYTES;
            let was = old.get(start..old.len().min(start + line.len())).unwrap_or_default();
            if line.starts_with(was) && line[was.len()..].iter().all(|byte| *byte == 0)
                || random.bit()
            {
                continue;
            }
            line.fill(0);
            line[..was.len()].copy_from_slice(was);
        }
    }
    bytes.truncate(len);
    bytes
}

fn write_sparse(path: &Path, bytes: &[u8]) {
    use std::os::unix::fs::OpenOptionsExt;
    let file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    for (index, page) in bytes.chunks(4096).enumerate() {
        if page.iter().any(|&byte| byte != 0) {
            file.write_all_at(page, (index * 4096) as u64).unwrap();
        }
    }
}

/// xorshift64.
struct Random(u64);

impl Random {
    fn bit(&mut self) -> bool {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 & (1 << 20) != 0
    }
}
