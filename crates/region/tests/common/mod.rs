//! What the behaviour tests share: a scratch home, a storage that fails on demand, children that are killed.

#![allow(dead_code, reason = "each test program uses a part of it")]

pub(crate) mod child;
pub(crate) mod faulty;
pub(crate) mod noted;
pub(crate) mod power;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_region::{NameSpace, OwnerKey, Places, Region, RegionName, Storage};
use holdfast_sys::mapping::Reservation;
use tempfile::TempDir;

pub(crate) const MIB: u64 = 1 << 20;
/// Where the data area starts, as docs/format.md says.
pub(crate) const DATA_OFFSET: u64 = 2 * MIB;

/// A home and a pool of a test's own, removed at the end.
pub(crate) struct Home {
    home: TempDir,
    pool_path: PathBuf,
    _pool: TempDir,
}

impl Home {
    pub(crate) fn new() -> Home {
        let pool = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        // Below the scratch directory, so that it is made by Places and is as private as it wants it.
        Home { home: tempfile::tempdir().unwrap(), pool_path: pool.path().join("pool"), _pool: pool }
    }

    pub(crate) fn path(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn pool(&self) -> &Path {
        &self.pool_path
    }

    pub(crate) fn places(&self) -> Places {
        Places::at(self.path(), self.pool()).unwrap()
    }

    pub(crate) fn names(&self) -> NameSpace {
        NameSpace::new(self.places())
    }

    pub(crate) fn names_over(&self, storage: Arc<dyn Storage>) -> NameSpace {
        NameSpace::with_storage(self.places(), storage)
    }

    pub(crate) fn image(&self, name: &str) -> PathBuf {
        self.pool().join(format!("{name}.image"))
    }

    pub(crate) fn base(&self, name: &str) -> PathBuf {
        self.path().join("store").join(format!("{name}.base"))
    }

    pub(crate) fn journal(&self, name: &str) -> PathBuf {
        self.path().join("store").join(format!("{name}.journal"))
    }

    /// A region of 8 MiB whose first pages hold `text`, closed in order.
    pub(crate) fn with_text(name: &str, text: &[u8]) -> Home {
        let home = Home::new();
        let mut region = home.names().create(&named(name), &key(), 8 * MIB).unwrap();
        store(&mut region, 0, text);
        region.close().unwrap();
        home
    }

    /// Files in pool and store that are no image, base, lock or note: what a crashed writer left.
    pub(crate) fn leftovers(&self) -> Vec<PathBuf> {
        let directories = [self.pool().to_owned(), self.path().join("store")];
        let entries = directories.iter().flat_map(|directory| std::fs::read_dir(directory).unwrap());
        entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.to_string_lossy().contains(".tmp-"))
            .collect()
    }
}

pub(crate) fn named(text: &str) -> RegionName {
    RegionName::parse(text).unwrap()
}

pub(crate) fn key() -> OwnerKey {
    OwnerKey::from_bytes([1; 32])
}

pub(crate) fn other_key() -> OwnerKey {
    OwnerKey::from_bytes([2; 32])
}

/// Maps a region wherever there is room, if it is not mapped yet. Tests run side by side in one process, and
/// regions of different homes may have the same native address.
pub(crate) fn map(region: &mut Region) -> *mut u8 {
    if let Some(base) = region.mapping() {
        return base.as_ptr();
    }
    let range = Reservation::anywhere(region.limit_bytes() as usize, 64 << 10).unwrap();
    // SAFETY: the range covers the limit, and is never given back.
    unsafe { region.map_into(range.base()).unwrap() };
    let base = range.base();
    std::mem::forget(range);
    base
}

/// Stores bytes through the region's mapping, mapping it first if needed.
pub(crate) fn store(region: &mut Region, offset: usize, bytes: &[u8]) {
    let base = map(region);
    assert!((offset + bytes.len()) as u64 <= region.backed_bytes());
    // SAFETY: the range lies in the backed part of the region's mapping, which no reference points into.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), base.add(offset), bytes.len()) };
}

/// Loads bytes through the region's mapping, mapping it first if needed.
pub(crate) fn load(region: &mut Region, offset: usize, len: usize) -> Vec<u8> {
    let base = map(region);
    assert!((offset + len) as u64 <= region.backed_bytes());
    let mut bytes = vec![0; len];
    // SAFETY: as in `store`; the bytes are copied out.
    unsafe { std::ptr::copy_nonoverlapping(base.add(offset), bytes.as_mut_ptr(), len) };
    bytes
}

pub(crate) fn read(region: &Region, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    region.read_at(offset, &mut bytes).unwrap();
    bytes
}

/// Flips one bit of a file.
pub(crate) fn flip(path: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}

pub(crate) fn truncate(path: &Path, len_bytes: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(len_bytes).unwrap();
}
