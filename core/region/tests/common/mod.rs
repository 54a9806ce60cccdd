//! The kit of the behaviour tests: a scratch home, a storage that fails on demand, children that
//! are killed.

#![allow(dead_code, reason = "each test program uses a part of it")]

pub(crate) mod child;
pub(crate) mod faulty;
pub(crate) mod hooked;
pub(crate) mod noted;
pub(crate) mod power;
pub(crate) mod reset;
pub(crate) mod small;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_region::{Consistency, NameSpace, OwnerKey, Places, Region, RegionName, Storage};
use holdfast_sys::mapping::Reservation;
use tempfile::TempDir;

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const PAGE_BYTES: usize = 4096;
/// Neighbours and others.
const NUMBERED_PAGES: [usize; 6] = [0, 1, 2, 40, 300, 1000];
const LIST_OFFSET: usize = 400 * PAGE_BYTES;
/// Where the data area starts, as docs/format.md says.
pub(crate) const DATA_OFFSET: u64 = 2 * MIB;

/// Where a packed base file has its packed part.
pub(crate) const PACKED_OFFSET: u64 = 8192;
/// A place in the data far from its start.
pub(crate) const FAR: usize = 3 << 20;

/// A home and a pool of a test's own, removed at the end.
pub(crate) struct Home {
    home: TempDir,
    pool_path: PathBuf,
    _pool: TempDir,
}

impl Home {
    pub(crate) fn new() -> Home {
        let pool = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        // Below the scratch directory, so that it is made by Places and is as private as it wants
        // it.
        Home {
            home: tempfile::tempdir().unwrap(),
            pool_path: pool.path().join("pool"),
            _pool: pool,
        }
    }

    /// The store is in memory as well: for many homes, where nothing depends on what is durable.
    pub(crate) fn in_memory() -> Home {
        let home = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Home { home, ..Home::new() }
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

    /// The same with `text` at [`FAR`] as well, which makes its base file a packed one.
    pub(crate) fn with_packed_text(name: &str, text: &[u8]) -> Home {
        let home = Home::new();
        let mut region = home.names().create(&named(name), &key(), 8 * MIB).unwrap();
        store(&mut region, 0, text);
        store(&mut region, FAR, text);
        region.close().unwrap();
        assert!(is_packed(&home.base(name)));
        home
    }

    /// Files in pool and store that are no image, base, lock or note: what a crashed writer left.
    pub(crate) fn leftovers(&self) -> Vec<PathBuf> {
        let directories = [self.pool().to_owned(), self.path().join("store")];
        let entries =
            directories.iter().flat_map(|directory| std::fs::read_dir(directory).unwrap());
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

/// The region `words`, in the mode `atomic`.
pub(crate) fn open_atomic(names: &NameSpace) -> Region {
    let mut region = names.open(&named("words"), &key()).unwrap();
    region.set_consistency(Consistency::Atomic).unwrap();
    region
}

/// Maps a region wherever there is room, if it is not mapped yet. Tests run side by side in one
/// process, and regions of different homes may have the same native address.
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
    // SAFETY: the range lies in the backed part of the region's mapping, which no reference points
    // into.
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

/// Stores a number on pages far apart.
pub(crate) fn store_number(region: &mut Region, number: u64) {
    for page in NUMBERED_PAGES {
        store(region, page * PAGE_BYTES + 8, &number.to_le_bytes());
    }
}

/// The number, which must be the same everywhere.
pub(crate) fn number(region: &mut Region) -> u64 {
    let numbers = NUMBERED_PAGES.map(|page| load_word(region, page * PAGE_BYTES + 8));
    assert!(numbers.iter().all(|number| *number == numbers[0]), "torn: {numbers:?}");
    numbers[0]
}

/// Puts a node in front of a linked list that knows nothing of transactions: a word with the offset
/// of the first node, one with the nodes so far, and nodes of a value and the offset of the next.
pub(crate) fn push(region: &mut Region, value: u64) {
    let (first, count) = (load_word(region, LIST_OFFSET), load_word(region, LIST_OFFSET + 8));
    let node = LIST_OFFSET + 16 + count as usize * 200;
    for (offset, word) in
        [(LIST_OFFSET, node as u64), (LIST_OFFSET + 8, count + 1), (node + 8, first), (node, value)]
    {
        store(region, offset, &word.to_le_bytes());
    }
}

/// The values of the list.
pub(crate) fn list(region: &mut Region) -> Vec<u64> {
    let count = load_word(region, LIST_OFFSET + 8) as usize;
    let mut node = load_word(region, LIST_OFFSET) as usize;
    let mut values = Vec::new();
    while node != 0 && values.len() <= count {
        values.push(load_word(region, node));
        node = load_word(region, node + 8) as usize;
    }
    assert_eq!(values.len(), count);
    values
}

fn load_word(region: &mut Region, offset: usize) -> u64 {
    u64::from_le_bytes(load(region, offset, 8).try_into().unwrap())
}

/// Whether a base file has no data area.
pub(crate) fn is_packed(base: &Path) -> bool {
    base.metadata().unwrap().len() < DATA_OFFSET
}

/// Flips one bit of a file.
pub(crate) fn flip(path: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}

/// Makes a file say that a newer program wrote it: an image, a base file, or a journal.
pub(crate) fn make_newer(path: &Path) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let is_journal = path.extension().is_some_and(|extension| extension == "journal");
    let slots = if is_journal { 1 } else { 2 };
    for slot in 0..slots {
        let mut header = [0; 4096];
        file.read_exact_at(&mut header, slot * 4096).unwrap();
        header[8..12].copy_from_slice(&2_u32.to_le_bytes());
        let sum = xxhash_rust::xxh3::xxh3_64(&header[..4088]);
        header[4088..].copy_from_slice(&sum.to_le_bytes());
        file.write_all_at(&header, slot * 4096).unwrap();
    }
}

pub(crate) fn truncate(path: &Path, len_bytes: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(len_bytes).unwrap();
}
