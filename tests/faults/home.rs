//! A home of a test's own, in memory, and what the tests ask of it.

use std::path::{Path, PathBuf};

use holdfast_region::{NameSpace, OwnerKey, Places, RegionError, RegionName};
use tempfile::TempDir;

pub(crate) const MIB: u64 = 1 << 20;
/// Where the data area starts, as docs/format.md says.
pub(crate) const DATA_OFFSET: u64 = 2 * MIB;

/// Home and pool, removed with the value.
pub(crate) struct Home {
    home: PathBuf,
    pool: PathBuf,
    _directory: Option<TempDir>,
}

impl Home {
    pub(crate) fn new() -> Home {
        let mut prefix = tempfile::Builder::new();
        prefix.prefix("holdfast-faults-");
        let directory = prefix.tempdir_in("/dev/shm").or_else(|_| prefix.tempdir()).unwrap();
        let mut home = Home::at(&directory.path().join("home"), &directory.path().join("pool"));
        home._directory = Some(directory);
        home
    }

    /// In directories of its own.
    pub(crate) fn at(home: &Path, pool: &Path) -> Home {
        Home { home: home.to_owned(), pool: pool.to_owned(), _directory: None }
    }

    pub(crate) fn names(&self) -> NameSpace {
        self.try_names().unwrap()
    }

    pub(crate) fn try_names(&self) -> Result<NameSpace, RegionError> {
        Ok(NameSpace::new(Places::at(&self.home, &self.pool)?))
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.pool.join("words.image")
    }

    pub(crate) fn redo(&self) -> PathBuf {
        self.pool.join("words.redo")
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.pool.join("words.lock")
    }

    pub(crate) fn base(&self) -> PathBuf {
        self.home.join("store/words.base")
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.home.join("store/words.journal")
    }
}

/// Every region here has this name.
pub(crate) fn name() -> RegionName {
    RegionName::parse("words").unwrap()
}

pub(crate) fn key() -> OwnerKey {
    OwnerKey::from_bytes([1; 32])
}
