//! The files of a region and their names. The only module that builds such paths.

#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{RegionError, Result};
use crate::media::storage::Storage;
use crate::name::RegionName;

/// The lock under which native addresses are given out. No region can have this name: it starts
/// with a dot.
pub(crate) fn names_lock_path(pool: &Path) -> PathBuf {
    pool.join(".names.lock")
}

/// Where it is remembered which addresses no region has. No region can have this name either.
pub(crate) fn addresses_path(pool: &Path) -> PathBuf {
    pool.join(".addresses")
}

/// The lock of the process that makes room in a full pool. No region can have this name either.
pub(crate) fn room_lock_path(pool: &Path) -> PathBuf {
    pool.join(".room.lock")
}

/// The lock of a region.
pub(crate) fn lock_path(pool: &Path, name: &RegionName) -> PathBuf {
    pool.join(format!("{name}.lock"))
}

/// The base file of a region.
pub(crate) fn base_path(store: &Path, name: &RegionName) -> PathBuf {
    store.join(format!("{name}.base"))
}

/// The journal of a region.
pub(crate) fn journal_path(store: &Path, name: &RegionName) -> PathBuf {
    store.join(format!("{name}.journal"))
}

/// The access table of a region.
pub(crate) fn grants_path(store: &Path, name: &RegionName) -> PathBuf {
    store.join(format!("{name}.grants"))
}

/// The name under which an access table is built. The process that builds one holds the lock on the
/// name space, and not that of the region, so this is none of the region's temporary files.
pub(crate) fn grants_temporary_path(store: &Path, name: &RegionName) -> PathBuf {
    store.join(format!(".{name}.grants-tmp"))
}

/// The region whose access table is built under this name.
pub(crate) fn unnamed_grants_of(file_name: &OsStr) -> Option<RegionName> {
    let name = file_name.to_str()?.strip_prefix('.')?.strip_suffix(".grants-tmp")?;
    RegionName::parse_any(name).ok()
}

/// The rescue copy of a region.
pub(crate) fn rescue_path(store: &Path, name: &RegionName) -> PathBuf {
    store.join(format!("{name}.rescue"))
}

/// The name under which a rescue copy is built. The process that builds one need not hold the lock
/// of the region, so this is none of the region's temporary files.
pub(crate) fn rescue_temporary_path(store: &Path, name: &RegionName) -> PathBuf {
    store.join(format!(".{name}.rescue-tmp"))
}

/// The region whose rescue copy is built under this name.
pub(crate) fn unnamed_rescue_of(file_name: &OsStr) -> Option<RegionName> {
    let name = file_name.to_str()?.strip_prefix('.')?.strip_suffix(".rescue-tmp")?;
    RegionName::parse_any(name).ok()
}

/// The lock under which rescue copies are built.
pub(crate) fn rescue_lock_path(store: &Path) -> PathBuf {
    store.join(".rescue.lock")
}

/// The image of a region, in the pool or in another directory of images.
pub(crate) fn image_path(images: &Path, name: &RegionName) -> PathBuf {
    images.join(format!("{name}.image"))
}

/// Where the snapshots of a region are. No base file can have this name: it has no extension.
pub(crate) fn snapshots_path(store: &Path, name: &RegionName) -> PathBuf {
    store.join("snapshots").join(name.as_str())
}

/// A snapshot of a region.
pub(crate) fn snapshot_path(store: &Path, name: &RegionName, tag: &RegionName) -> PathBuf {
    snapshots_path(store, name).join(format!("{tag}.base"))
}

/// Where a region's files are copied to before they are mended, in this second.
pub(crate) fn copies_path(store: &Path, name: &RegionName, unix_s: u64) -> PathBuf {
    copies_directory(store).join(name.as_str()).join(unix_s.to_string())
}

/// Where all such copies are.
pub(crate) fn copies_directory(store: &Path) -> PathBuf {
    store.join("damaged")
}

/// The redo log of a region in `atomic` mode, beside its image: what loses one of the two loses
/// both.
pub(crate) fn redo_path(images: &Path, name: &RegionName) -> PathBuf {
    images.join(format!("{name}.redo"))
}

/// The name under which this process builds a file for a region.
pub(crate) fn temporary_path(directory: &Path, name: &RegionName) -> PathBuf {
    directory.join(format!(".{name}.tmp-{}", std::process::id()))
}

/// The region and the process that a temporary file is named after. After the mark there are digits
/// and nothing else: a region named `NAME.tmp-b` has temporary files of its own.
pub(crate) fn builder_of(file_name: &OsStr) -> Option<(RegionName, &str)> {
    let (name, pid) = file_name.to_str()?.strip_prefix('.')?.rsplit_once(".tmp-")?;
    let is_pid = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
    Some((RegionName::parse_any(name).ok().filter(|_| is_pid)?, pid))
}

/// Removes what writers that died left for this name. The caller holds the name's lock, so no
/// process builds now.
pub(crate) fn remove_temporaries(
    storage: &dyn Storage,
    directory: &Path,
    name: &RegionName,
) -> Result<()> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(RegionError::io("list", directory)(error)),
    };
    for entry in entries {
        let entry = entry.map_err(RegionError::io("list", directory))?;
        if builder_of(&entry.file_name()).is_some_and(|(of, _)| of == *name) {
            storage.remove(&entry.path()).map_err(RegionError::io("remove", entry.path()))?;
        }
    }
    Ok(())
}

/// Whether nothing has this path. What cannot be looked at may be there.
pub(crate) fn is_missing(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| {
        matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
    })
}

/// The regions that have a file with this extension in a directory. Other files are none of ours.
pub(crate) fn names_in(directory: &Path, extension: &str) -> Result<Vec<RegionName>> {
    let mut names = Vec::new();
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(names),
        Err(error) => return Err(RegionError::io("list", directory)(error)),
    };
    for entry in entries {
        let file_name = entry.map_err(RegionError::io("list", directory))?.file_name();
        let stem =
            file_name.to_str().and_then(|text| text.strip_suffix(extension)?.strip_suffix('.'));
        names.extend(stem.and_then(|stem| RegionName::parse_any(stem).ok()));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_named_like_a_temporary_file_is_one() {
        let name = |text: &str| {
            builder_of(OsStr::new(text)).map(|(name, pid)| (name.to_string(), pid.to_owned()))
        };
        assert_eq!(name(".words.tmp-17"), Some(("words".to_owned(), "17".to_owned())));
        assert_eq!(name(".words.tmp-b.tmp-17"), Some(("words.tmp-b".to_owned(), "17".to_owned())));
        assert_eq!(name(".jobs+w1.tmp-1"), Some(("jobs+w1".to_owned(), "1".to_owned())));
        for other in [
            "words.tmp-17",
            ".words.tmp-",
            ".words.tmp-x",
            ".tmp-17",
            ".words.grants-tmp",
            ".words.rescue-tmp",
            ".names.lock",
            "..",
        ] {
            assert_eq!(name(other), None, "{other}");
        }
    }

    #[test]
    fn only_what_is_named_like_an_unnamed_rescue_is_one() {
        let name = |text: &str| unnamed_rescue_of(OsStr::new(text)).map(|name| name.to_string());
        assert_eq!(name(".words.rescue-tmp").as_deref(), Some("words"));
        assert_eq!(name(".jobs+w1.rescue-tmp").as_deref(), Some("jobs+w1"));
        for other in [
            "words.rescue-tmp",
            ".rescue-tmp",
            ".words.rescue-tmp.tmp-1",
            ".words.grants-tmp",
            ".rescue.lock",
            "words.rescue",
        ] {
            assert_eq!(name(other), None, "{other}");
        }
    }

    #[test]
    fn only_what_is_named_like_unnamed_grants_is_such() {
        let name = |text: &str| unnamed_grants_of(OsStr::new(text)).map(|name| name.to_string());
        assert_eq!(name(".words.grants-tmp").as_deref(), Some("words"));
        for other in [
            "words.grants-tmp",
            ".grants-tmp",
            ".words.grants-tmp.tmp-1",
            ".words.rescue-tmp",
            "words.grants",
        ] {
            assert_eq!(name(other), None, "{other}");
        }
    }
}
