//! A storage whose plug is pulled at the k-th step, and what a disk may hold afterwards.
//!
//! Durable is what was synced: a file's content at its last sync, a directory's names at its last
//! sync. Of what was written since, a disk may have kept nothing, everything, or any sectors.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use holdfast_region::{KernelStorage, Storage};

use super::Home;

const SECTOR_BYTES: usize = 512;

/// What the disk kept of that which was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    Nothing,
    Everything,
    /// Each sector that differs, and the names, or not, by a generator with this seed.
    Some(u64),
}

#[derive(Debug, Default)]
struct Durable {
    names: BTreeMap<OsString, u64>,
    contents: HashMap<u64, Vec<u8>>,
    /// Every file there ever was, so that no number is given to a second one.
    open: Vec<File>,
}

#[derive(Debug)]
pub(crate) struct PowerStorage {
    store: PathBuf,
    steps_left: Mutex<i64>,
    durable: Mutex<Durable>,
}

impl PowerStorage {
    /// Everything that is in the home's store now is durable.
    pub(crate) fn new(home: &Home) -> PowerStorage {
        let store = home.path().join("store");
        let mut durable = Durable::default();
        for (name, path) in files(&store) {
            let file = File::open(path).unwrap();
            durable.names.insert(name, inode(&file));
            durable.contents.insert(inode(&file), content(&file));
            durable.open.push(file);
        }
        PowerStorage { store, steps_left: Mutex::new(i64::MAX), durable: Mutex::new(durable) }
    }

    /// The step after `steps` more is the one in which the power goes.
    pub(crate) fn arm(&self, steps: usize) {
        *self.steps_left.lock().unwrap() = steps as i64;
    }

    pub(crate) fn struck(&self) -> bool {
        *self.steps_left.lock().unwrap() < 0
    }

    /// The home after the power is back: the pool is empty.
    pub(crate) fn after_cut(&self, kept: Kept) -> Home {
        let home = Home::new();
        home.places();
        let store = home.path().join("store");
        let durable = self.durable.lock().unwrap();
        let mut random = Random(if let Kept::Some(seed) = kept { seed } else { 1 });
        let current: BTreeMap<OsString, (u64, Vec<u8>)> = files(&self.store)
            .into_iter()
            .map(|(name, path)| {
                let file = File::open(path).unwrap();
                (name, (inode(&file), content(&file)))
            })
            .collect();
        let by_inode: HashMap<u64, &Vec<u8>> =
            current.values().map(|(inode, bytes)| (*inode, bytes)).collect();
        let new_names = match kept {
            Kept::Nothing => false,
            Kept::Everything => true,
            Kept::Some(_) => random.bit(),
        };
        let names: Vec<(OsString, u64)> = if new_names {
            current.iter().map(|(name, (inode, _))| (name.clone(), *inode)).collect()
        } else {
            durable.names.clone().into_iter().collect()
        };
        for (name, inode) in names {
            let empty = Vec::new();
            let old = durable.contents.get(&inode).unwrap_or(&empty);
            let new = by_inode.get(&inode).copied().unwrap_or(old);
            let bytes = match kept {
                Kept::Nothing => old.clone(),
                Kept::Everything => new.clone(),
                Kept::Some(_) => mixed(old, new, &mut random),
            };
            write_sparse(&store.join(name), &bytes);
        }
        home
    }

    fn step(&self) -> io::Result<()> {
        let mut left = self.steps_left.lock().unwrap();
        *left -= 1;
        if *left < 0 { Err(io::Error::other("the power is gone")) } else { Ok(()) }
    }

    fn synced(&self, file: &File) {
        self.durable.lock().unwrap().contents.insert(inode(file), content(file));
    }
}

impl Storage for PowerStorage {
    fn create(&self, path: &Path) -> io::Result<File> {
        self.step()?;
        let file = KernelStorage.create(path)?;
        self.durable.lock().unwrap().open.push(file.try_clone()?);
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
        if *self.steps_left.lock().unwrap() == 0 {
            KernelStorage.write_at(file, &bytes[..bytes.len() / 2], offset)?;
        }
        self.step()?;
        KernelStorage.write_at(file, bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.step()?;
        self.synced(file);
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        if path == self.store {
            let names =
                files(path).into_iter().map(|(name, path)| (name, path.metadata().unwrap().ino()));
            self.durable.lock().unwrap().names = names.collect();
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        KernelStorage.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        KernelStorage.remove(path)
    }

    fn available_bytes(&self, path: &Path) -> io::Result<u64> {
        KernelStorage.available_bytes(path)
    }
}

fn files(store: &Path) -> Vec<(OsString, PathBuf)> {
    let entries = std::fs::read_dir(store).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name(), entry.path())).collect()
}

fn inode(file: &File) -> u64 {
    file.metadata().unwrap().ino()
}

fn content(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Sector by sector the old or the new content, and the length of either.
fn mixed(old: &[u8], new: &[u8], random: &mut Random) -> Vec<u8> {
    let len = if random.bit() { old.len() } else { new.len() };
    let mut bytes = vec![0; len];
    for (index, sector) in bytes.chunks_mut(SECTOR_BYTES).enumerate() {
        let start = index * SECTOR_BYTES;
        let part = |from: &[u8]| -> Vec<u8> {
            let found = from.get(start..from.len().min(start + sector.len())).unwrap_or_default();
            let mut part = found.to_vec();
            part.resize(sector.len(), 0);
            part
        };
        let (was, is) = (part(old), part(new));
        sector.copy_from_slice(if was == is || random.bit() { &is } else { &was });
    }
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
