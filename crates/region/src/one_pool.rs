//! One pool at a time for a home: two would each have an image of the same region, and two writers.
//!
//! The home remembers the pool that is in use, and in which boot. Another one is refused for as long as the one in use
//! has images. A pool that is gone, or was memory before the last boot, has none. Of a pool in persistent memory that is
//! not known: while it is not mounted, every other pool is refused, as its images are newer than the store.
//!
//! What this cannot see: another mount at the same path, such as the tmpfs of a container that shares the home.

#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use holdfast_sys::file::private_options;
use holdfast_sys::lock::{LockMode, try_lock};

use crate::places::PlaceError;
use crate::pool_kind::PoolKind;

/// In the place of the boot, for a pool whose images outlive it.
const ANY_BOOT: &str = "persistent";
/// More than any path has.
const RECORD_BYTES_MAX: u64 = 16 << 10;

fn record_path(home: &Path) -> PathBuf {
    home.join("pool-in-use")
}

fn record(boot: &str, pool: &Path) -> Vec<u8> {
    [boot.as_bytes(), b"\n", pool.as_os_str().as_bytes(), b"\n"].concat()
}

/// Takes `pool` into use for a home; if it is on a disk, its images lie in the directory of the boot in it.
///
/// # Errors
/// `OtherPool`, `PoolNotMounted`. A record that cannot be read or written, on a full or a read-only disk, changes nothing.
pub(crate) fn take_into_use(home: &Path, boot: &str, pool: &Path, kind: PoolKind) -> Result<(), PlaceError> {
    let ours = record(if kind.outlives_boot() { ANY_BOOT } else { boot }, pool);
    let path = record_path(home);
    let found = private_options().read(true).open(&path).map(|file| read(&file)).unwrap_or_default();
    if found == ours {
        return Ok(());
    }
    let Ok(file) = private_options().read(true).write(true).create(true).open(&path) else {
        return check(home, boot, (pool, kind), &found);
    };
    // Of two who come at the same time one waits here; a holder needs microseconds.
    for _ in 0..1000 {
        match try_lock(&file, LockMode::Exclusive) {
            Ok(false) => std::thread::sleep(std::time::Duration::from_millis(1)),
            _ => break,
        }
    }
    check(home, boot, (pool, kind), &read(&file))?;
    let written = file.set_len(0).and_then(|()| file.write_all_at(&ours, 0));
    if written.is_err() {
        // Half a record names no pool.
        let _ = file.set_len(0);
    }
    Ok(())
}

/// What is recorded; nothing when it cannot be read.
fn read(file: &File) -> Vec<u8> {
    let mut found = Vec::new();
    let _ = file.take(RECORD_BYTES_MAX).read_to_end(&mut found);
    found
}

fn check(home: &Path, boot: &str, (ours, kind): (&Path, PoolKind), found: &[u8]) -> Result<(), PlaceError> {
    let Some(end) = found.iter().position(|byte| *byte == b'\n') else { return Ok(()) };
    let (of_boot, rest) = (&found[..end], &found[end + 1..]);
    let in_use = Path::new(OsStr::from_bytes(rest.strip_suffix(b"\n").unwrap_or_default()));
    if of_boot == ANY_BOOT.as_bytes() {
        let is_mounted = if in_use == ours {
            kind.outlives_boot()
        } else {
            PoolKind::of(in_use).is_ok_and(PoolKind::outlives_boot)
        };
        if !is_mounted {
            let (home, in_use, record) = (home.to_owned(), in_use.to_owned(), record_path(home));
            return Err(PlaceError::PoolNotMounted { home, in_use, record });
        }
    } else if of_boot != boot.as_bytes() {
        return Ok(());
    }
    if in_use == ours || !has_images(in_use) && !has_images(&in_use.join(boot)) {
        return Ok(());
    }
    Err(PlaceError::OtherPool { home: home.to_owned(), in_use: in_use.to_owned(), ours: ours.to_owned() })
}

fn has_images(pool: &Path) -> bool {
    let is_image = |entry: std::fs::DirEntry| entry.path().extension() == Some(OsStr::new("image"));
    std::fs::read_dir(pool).is_ok_and(|entries| entries.flatten().any(is_image))
}
