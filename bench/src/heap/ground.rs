//! The directories of the suite: one in memory (tmpfs) and one on the disk of the build, both
//! removed with everything in them.
//!
//! Invariant: regions of one process share the address window, and each home hands out addresses
//! from its start; so the code that opens a region closes it before the next home is used.

use std::fs::{self, DirBuilder};
use std::io::{self, Error};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use holdfast_region::{NameSpace, OwnerKey, Places, RegionName};
use tempfile::TempDir;

const MEMORY: &str = "/dev/shm";

/// Where checkpoints go. Images are always in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    /// For measurements that have no disk in them.
    Memory,
    /// A real disk.
    Disk,
}

/// Scratch directories.
#[derive(Debug)]
pub(crate) struct Ground {
    memory: TempDir,
    disk: TempDir,
}

impl Ground {
    pub(crate) fn new() -> io::Result<Ground> {
        if !Path::new(MEMORY).is_dir() {
            return Err(Error::other(format!("{MEMORY} is missing; mount a tmpfs there")));
        }
        let program = std::env::current_exe()?;
        let disk =
            program.parent().ok_or_else(|| Error::other("the program lies in no directory"))?;
        let mut prefix = tempfile::Builder::new();
        prefix.prefix("holdfast-bench-");
        Ok(Ground { memory: prefix.tempdir_in(MEMORY)?, disk: prefix.tempdir_in(disk)? })
    }

    /// An empty private directory in memory; what was there is gone.
    pub(crate) fn in_memory(&self, name: &str) -> io::Result<PathBuf> {
        fresh(self.memory.path().join(name))
    }

    /// An empty private directory on the disk; what was there is gone.
    pub(crate) fn on_disk(&self, name: &str) -> io::Result<PathBuf> {
        fresh(self.disk.path().join(name))
    }

    /// A home without regions, and its key.
    pub(crate) fn home(&self, store: Store) -> io::Result<Home> {
        let home = match store {
            Store::Memory => self.in_memory("home"),
            Store::Disk => self.on_disk("home"),
        }?;
        Home::at(home, self.in_memory("pool")?)
    }

    /// One whose pool is on the disk, too.
    pub(crate) fn home_on_disk(&self) -> io::Result<Home> {
        Home::at(self.on_disk("home")?, self.on_disk("pool")?)
    }
}

fn fresh(path: PathBuf) -> io::Result<PathBuf> {
    if path.exists() {
        fs::remove_dir_all(&path)?;
    }
    DirBuilder::new().mode(0o700).create(&path)?;
    Ok(path)
}

/// A name space and the key to it.
pub(crate) struct Home {
    pub(crate) names: NameSpace,
    pub(crate) key: OwnerKey,
}

impl Home {
    /// One in two directories.
    pub(crate) fn at(home: PathBuf, pool: PathBuf) -> io::Result<Home> {
        Home::of(Places::at(home, pool).map_err(Error::other)?)
    }

    /// One in places of one's choice.
    pub(crate) fn of(places: Places) -> io::Result<Home> {
        let key = OwnerKey::load_or_create(&places, "default").map_err(Error::other)?;
        Ok(Home { names: NameSpace::new(places), key })
    }

    /// Where the region's image lies.
    pub(crate) fn image(&self, name: &str) -> PathBuf {
        self.names.places().pool().join(format!("{name}.image"))
    }

    /// Where the region's last checkpoint lies.
    pub(crate) fn base(&self, name: &str) -> PathBuf {
        self.names.places().store().join(format!("{name}.base"))
    }
}

pub(crate) fn name(text: &str) -> io::Result<RegionName> {
    RegionName::parse(text).map_err(Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_empty_each_time_it_is_asked_for() {
        let Ok(ground) = Ground::new() else { return println!("not run: no {MEMORY}") };
        let first = ground.in_memory("a").unwrap();
        fs::write(first.join("file"), "text").unwrap();
        assert_eq!(fs::read_dir(ground.in_memory("a").unwrap()).unwrap().count(), 0);
    }
}
