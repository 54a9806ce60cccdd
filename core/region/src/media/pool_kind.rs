//! The kind of memory of a pool, and so what an image in it survives.
//!
//! Invariants:
//! - A kind is found by trying, not by names. Where a trial says nothing the weaker kind counts:
//!   nothing is promised that was not seen.
//! - A pool that may keep its bytes over a reset counts as such only if stores can be written back
//!   to it on this processor.

#![forbid(unsafe_code)]

use std::path::Path;
use std::{fmt, io};

use holdfast_sys::file::is_volatile_memory;
use holdfast_sys::probe::{Persistence, maps_synchronously, persistence};
use serde::Serialize;

/// What persistent memory survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Survives {
    /// A panic, a reboot, a hard reset: ordinary RAM that was set aside and that the firmware does
    /// not clear.
    Reset,
    /// The plug, too: a module that keeps its bytes.
    PowerCut,
}

/// What the directory of a pool is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum PoolKind {
    /// Memory of the kernel, which ends with the boot.
    Tmpfs,
    /// A file system on persistent memory whose files are mapped directly (DAX): images outlive the
    /// boot, and what is written back from the processor's caches is durable.
    Dax {
        /// What its memory survives.
        survives: Survives,
    },
    /// Any other file system: pages are written to it when the kernel likes, so images are of one
    /// boot.
    Disk,
}

impl PoolKind {
    /// What a directory is made of.
    ///
    /// # Errors
    /// What the kernel reports for the directory, or for a trial file in it.
    pub fn of(directory: &Path) -> io::Result<PoolKind> {
        if is_volatile_memory(directory)? {
            return Ok(PoolKind::Tmpfs);
        }
        if holdfast_persist::instruction().is_none() || !maps_synchronously(directory)? {
            return Ok(PoolKind::Disk);
        }
        let survives = match persistence(directory)? {
            Persistence::Reset => Survives::Reset,
            Persistence::PowerCut => Survives::PowerCut,
        };
        Ok(PoolKind::Dax { survives })
    }

    /// Whether images in it count after the machine has started again.
    #[must_use]
    pub fn outlives_boot(self) -> bool {
        matches!(self, PoolKind::Dax { .. })
    }
}

impl fmt::Display for PoolKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            PoolKind::Tmpfs => "tmpfs",
            PoolKind::Dax { survives: Survives::Reset } => "DAX, survives a reset",
            PoolKind::Dax { survives: Survives::PowerCut } => "DAX, survives a power cut",
            PoolKind::Disk => "disk",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tmpfs and a disk are distinguished, and neither is called persistent.
    ///
    /// Guarantee: heap/level-never-weaker
    #[test]
    fn tmpfs_and_disk_are_told_apart() {
        let disk = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let kind = PoolKind::of(disk.path()).unwrap();
        assert_eq!(kind, PoolKind::Disk);
        assert!(!kind.outlives_boot());
        if is_volatile_memory(Path::new("/dev/shm")).unwrap_or(false) {
            assert_eq!(PoolKind::of(Path::new("/dev/shm")).unwrap(), PoolKind::Tmpfs);
        }
        assert!(PoolKind::of(Path::new("/none")).is_err());
        assert_eq!(std::fs::read_dir(disk.path()).unwrap().count(), 0);
    }
}
