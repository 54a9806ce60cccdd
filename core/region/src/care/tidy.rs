//! Leftovers that no region needs: files that writers were building when they died, and the copies
//! that repairs kept.
//!
//! Invariants:
//! - Listing changes nothing and takes no locks. Removing takes the lock under which such a file is
//!   built, so what is being built stays.
//! - Nothing that a region reads is ever listed: only names that start with a dot, and what lies in
//!   `store/damaged`.

#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_sys::lock::{LockMode, recorded_holder};
use serde::Serialize;

use crate::error::{RegionError, Result};
use crate::media::files::{
    builder_of, copies_directory, lock_path, names_lock_path, rescue_lock_path, unnamed_grants_of,
    unnamed_rescue_of,
};
use crate::media::medium::Medium;
use crate::name::RegionName;
use crate::names::namespace::NameSpace;

/// How long a process that makes rescue copies may take to be done.
const RESCUES_PATIENCE: Duration = Duration::from_millis(500);

/// What a leftover is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum LeftoverKind {
    /// A file that a dead process was building.
    Temporary,
    /// The files of a region as they were before a repair: a directory.
    RepairCopy,
}

/// Something that no region needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Leftover {
    /// What it is.
    pub kind: LeftoverKind,
    /// The region that it was for, which may never have been.
    pub name: RegionName,
    /// The file, or the directory of the copies.
    pub path: PathBuf,
    /// What it takes in memory or on the disk.
    pub allocated_bytes: u64,
    /// When it was last written, in seconds since 1970.
    pub modified_unix_s: u64,
}

impl NameSpace {
    /// Everything in pool and store that no region needs. Takes no locks.
    ///
    /// # Errors
    /// `Io` when a directory cannot be listed.
    pub fn leftovers(&self) -> Result<Vec<Leftover>> {
        let (pool, store) = (self.places().pool(), self.places().store());
        let mut found = Vec::new();
        let mut directories =
            vec![pool.to_owned(), self.places().images(Medium::File).to_owned(), store.to_owned()];
        directories.extend(entries(&store.join("snapshots"))?);
        for path in directories.iter().filter(|path| path.is_dir()).map(|path| entries(path)) {
            for path in path? {
                let Some((name, pid)) = path.file_name().and_then(builder_of) else { continue };
                let is_being_built = Path::new("/proc").join(pid).exists()
                    && recorded_holder(&lock_path(pool, &name)).is_some();
                if !is_being_built {
                    found.extend(leftover(LeftoverKind::Temporary, name, path, &[]));
                }
            }
        }
        // Each kind is built under a lock of its own.
        let is_making_rescues = recorded_holder(&rescue_lock_path(store)).is_some();
        let is_making_grants = recorded_holder(&names_lock_path(pool)).is_some();
        for path in entries(store)? {
            let Some(file_name) = path.file_name() else { continue };
            let rescue = unnamed_rescue_of(file_name).filter(|_| !is_making_rescues);
            let grants = unnamed_grants_of(file_name).filter(|_| !is_making_grants);
            if let Some(name) = rescue.or(grants) {
                found.extend(leftover(LeftoverKind::Temporary, name, path, &[]));
            }
        }
        for of_name in entries(&copies_directory(store))? {
            let name = of_name
                .file_name()
                .and_then(OsStr::to_str)
                .and_then(|text| RegionName::parse_any(text).ok());
            let Some(name) = name else { continue };
            for copies in entries(&of_name)? {
                let files = entries(&copies)?;
                found.extend(leftover(LeftoverKind::RepairCopy, name.clone(), copies, &files));
            }
        }
        Ok(found)
    }

    /// Removes what [`NameSpace::leftovers`] found; what is gone by now is no error.
    ///
    /// # Errors
    /// `Held` when a process has the region, and may be building, or makes a rescue copy;
    /// `NamesBusy` when one may be replacing an access table; `Io`.
    pub fn remove_leftover(&self, leftover: &Leftover) -> Result<()> {
        let path = &leftover.path;
        if path.file_name().and_then(unnamed_rescue_of).is_some() {
            // Who builds such a file need not have the region's lock.
            let _only = self.lock_rescues_within(RESCUES_PATIENCE, &leftover.name)?;
            return self.remove_file(path);
        }
        if path.file_name().and_then(unnamed_grants_of).is_some() {
            // Nor who replaces an access table, while a program has the region.
            let _names = self.lock_names()?;
            return self.remove_file(path);
        }
        let lock = self.lock(&leftover.name, LockMode::Exclusive)?;
        match leftover.kind {
            LeftoverKind::Temporary => self.remove_file(path)?,
            LeftoverKind::RepairCopy => {
                entries(path)?.iter().try_for_each(|file| self.remove_file(file))?;
                std::fs::remove_dir(path)
                    .or_else(is_gone)
                    .map_err(RegionError::io("remove", path))?;
                // Succeeds with the last copy of the region.
                let _ = path.parent().map(std::fs::remove_dir);
            }
        }
        if self.exists(&leftover.name) {
            return Ok(());
        }
        // The lock file is new, or as needless as what it was for.
        lock.remove_file()
            .map_err(RegionError::io("remove", lock_path(self.places().pool(), &leftover.name)))
    }
}

/// `None` when it is gone by now.
fn leftover(
    kind: LeftoverKind,
    name: RegionName,
    path: PathBuf,
    parts: &[PathBuf],
) -> Option<Leftover> {
    let found = path.symlink_metadata().ok()?;
    let parts = parts.iter().filter_map(|part| part.symlink_metadata().ok());
    let blocks: u64 = found.blocks() + parts.map(|part| part.blocks()).sum::<u64>();
    let modified_unix_s = u64::try_from(found.mtime()).unwrap_or(0);
    Some(Leftover { kind, name, path, allocated_bytes: blocks * 512, modified_unix_s })
}

/// What a directory holds, in order; nothing when there is none.
fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let failed = || RegionError::io("list", directory);
    let listed = match std::fs::read_dir(directory) {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Ok(Vec::new());
        }
        other => other.map_err(failed())?,
    };
    let mut paths = Vec::new();
    for entry in listed {
        paths.push(entry.map_err(failed())?.path());
    }
    paths.sort_unstable();
    Ok(paths)
}

fn is_gone(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}
