//! One pool at a time for a home: two would each have an image of the same region, and two writers.
//!
//! The home remembers the pool that is in use, and in which boot. Another one is refused for as
//! long as the one in use has images. A pool that is gone, or was memory before the last boot, has
//! none. Of a pool in persistent memory that is not known: while it is not mounted, every other
//! pool is refused, as its images are newer than the store.
//!
//! A home that comes back to a pool forgets which addresses were free there: regions that it made
//! elsewhere since are in none of the pool's notes.
//!
//! The record is replaced whole, and durable before a pool that outlives the boot, or one after it,
//! is used: after a reset it is believed.
//!
//! What this cannot see: another mount at the same path, such as the tmpfs of a container that
//! shares the home.

#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_sys::file::private_options;
use holdfast_sys::lock::{LockMode, try_lock};

use crate::error::place::PlaceError;
use crate::media::files::{addresses_path, is_missing};
use crate::media::pool_kind::PoolKind;
use crate::media::storage::{KernelStorage, Storage};

/// In the place of the boot, for a pool whose images outlive it.
const ANY_BOOT: &str = "persistent";
/// More than any path has.
const RECORD_BYTES_MAX: u64 = 16 << 10;
const LOCK_ATTEMPTS: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(1);

fn record_path(home: &Path) -> PathBuf {
    home.join("pool-in-use")
}

fn record(boot: &str, pool: &Path) -> Vec<u8> {
    [boot.as_bytes(), b"\n", pool.as_os_str().as_bytes(), b"\n"].concat()
}

/// Takes `pool` into use for a home; if it is on a disk, its images lie in the directory of the
/// boot in it.
///
/// # Errors
/// `OtherPool`, `PoolNotMounted`. A record that cannot be read or written, on a full or a read-only
/// disk, changes nothing, but for a pool that outlives the boot, of which something must tell:
/// `Io`. The note of free addresses cannot be removed: `Io`.
pub(crate) fn take_into_use(
    home: &Path,
    boot: &str,
    pool: &Path,
    kind: PoolKind,
) -> Result<(), PlaceError> {
    take_into_use_with(&KernelStorage, home, boot, pool, kind)
}

fn take_into_use_with(
    storage: &dyn Storage,
    home: &Path,
    boot: &str,
    pool: &Path,
    kind: PoolKind,
) -> Result<(), PlaceError> {
    let ours = record(if kind.outlives_boot() { ANY_BOOT } else { boot }, pool);
    let path = record_path(home);
    if read(&path) == ours {
        return Ok(());
    }
    // The record is replaced, so the lock is on what stays.
    let lock = File::open(home);
    // Of two who come at the same time one waits here; a holder needs milliseconds.
    for _ in 0..LOCK_ATTEMPTS {
        match lock.as_ref().map(|home| try_lock(home, LockMode::Exclusive)) {
            Ok(Ok(false)) => std::thread::sleep(PAUSE),
            _ => break,
        }
    }
    let found = read(&path);
    if found == ours {
        return Ok(());
    }
    check(home, boot, (pool, kind), &found)?;
    // Before the record says that the pool is in use: a kill in between leaves the note to be
    // removed by the next process.
    forget_addresses(storage, &images_of_boot(pool, kind, boot), kind)?;
    // After a reset a record about what outlives it is believed, so it must be there, and gone when
    // it is not true any more.
    let durable = kind.outlives_boot() || found.starts_with(ANY_BOOT.as_bytes());
    match replace(storage, home, &ours, durable) {
        Err(source) if kind.outlives_boot() => Err(PlaceError::Io { step: "write", path, source }),
        _ => Ok(()),
    }
}

/// Where the images of this boot are in a pool.
fn images_of_boot(pool: &Path, kind: PoolKind, boot: &str) -> PathBuf {
    if kind == PoolKind::Disk { pool.join(boot) } else { pool.to_owned() }
}

/// Which addresses are free was remembered before the home used another pool, or none.
fn forget_addresses(
    storage: &dyn Storage,
    images: &Path,
    kind: PoolKind,
) -> Result<(), PlaceError> {
    let path = addresses_path(images);
    // A read-only file system refuses to remove even what is not there.
    if is_missing(&path) {
        return Ok(());
    }
    let removed = match storage.remove(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ if kind.outlives_boot() => storage.sync_directory(images),
        _ => Ok(()),
    };
    removed.map_err(|source| PlaceError::Io { step: "remove", path, source })
}

/// Half a record would name no pool: it is replaced whole.
fn replace(storage: &dyn Storage, home: &Path, record: &[u8], durable: bool) -> io::Result<()> {
    let (path, temporary) = (record_path(home), home.join("pool-in-use.new"));
    match storage.remove(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = storage.create(&temporary)?;
    storage.write_at(&file, record, 0)?;
    if durable {
        storage.sync(&file)?;
    }
    storage.rename(&temporary, &path)?;
    if durable { storage.sync_directory(home) } else { Ok(()) }
}

/// What is recorded; nothing when it cannot be read.
fn read(path: &Path) -> Vec<u8> {
    let mut found = Vec::new();
    if let Ok(file) = private_options().read(true).open(path) {
        let _ = file.take(RECORD_BYTES_MAX).read_to_end(&mut found);
    }
    found
}

fn check(
    home: &Path,
    boot: &str,
    (ours, kind): (&Path, PoolKind),
    found: &[u8],
) -> Result<(), PlaceError> {
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
    Err(PlaceError::OtherPool {
        home: home.to_owned(),
        in_use: in_use.to_owned(),
        ours: ours.to_owned(),
    })
}

/// Whether the home at a path has another pool in use than this one.
pub(crate) fn uses_another(home: &Path, pool: &Path) -> bool {
    let found = read(&record_path(home));
    let in_use =
        found.splitn(2, |byte| *byte == b'\n').nth(1).and_then(|rest| rest.strip_suffix(b"\n"));
    in_use.is_some_and(|in_use| in_use != pool.as_os_str().as_bytes())
}

fn has_images(pool: &Path) -> bool {
    let is_image = |entry: std::fs::DirEntry| entry.path().extension() == Some(OsStr::new("image"));
    std::fs::read_dir(pool).is_ok_and(|entries| entries.flatten().any(is_image))
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Mutex;

    use super::*;
    use crate::media::pool_kind::Survives;

    /// The kernel's files, and a list of the steps to them.
    #[derive(Debug, Default)]
    struct Listed(Mutex<Vec<&'static str>>);

    impl Listed {
        fn note(&self, step: &'static str) {
            self.0.lock().unwrap().push(step);
        }

        fn take(&self) -> Vec<&'static str> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    impl Storage for Listed {
        fn create(&self, path: &Path) -> io::Result<File> {
            KernelStorage.create(path)
        }
        fn allocate(&self, file: &File, range: Range<u64>) -> io::Result<()> {
            KernelStorage.allocate(file, range)
        }
        fn set_len(&self, file: &File, len_bytes: u64) -> io::Result<()> {
            KernelStorage.set_len(file, len_bytes)
        }
        fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
            self.note("write");
            KernelStorage.write_at(file, bytes, offset)
        }
        fn sync(&self, file: &File) -> io::Result<()> {
            self.note("sync");
            KernelStorage.sync(file)
        }
        fn sync_directory(&self, path: &Path) -> io::Result<()> {
            self.note("sync directory");
            KernelStorage.sync_directory(path)
        }
        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.note("rename");
            KernelStorage.rename(from, to)
        }
        fn remove(&self, path: &Path) -> io::Result<()> {
            KernelStorage.remove(path)
        }
        fn available_bytes(&self, path: &Path) -> io::Result<u64> {
            KernelStorage.available_bytes(path)
        }
    }

    const DAX: PoolKind = PoolKind::Dax { survives: Survives::Reset };

    /// That a pool outlives the boot is durable before the pool is used.
    ///
    /// Guarantee: heap/one-home
    #[test]
    fn pool_lifetime_is_durable_before_first_use() {
        let home = tempfile::tempdir().unwrap();
        let (pool, steps) = (home.path().join("pool"), Listed::default());
        let take = |pool: &Path, kind| take_into_use_with(&steps, home.path(), "boot", pool, kind);
        take(&pool, DAX).unwrap();
        assert_eq!(steps.take(), ["write", "sync", "rename", "sync directory"]);
        take(&pool, DAX).unwrap();
        assert_eq!(steps.take(), [""; 0], "it is known already");
        std::fs::remove_file(record_path(home.path())).unwrap();
        take(&pool, PoolKind::Tmpfs).unwrap();
        assert_eq!(steps.take(), ["write", "rename"], "a record of this boot only needs no disk");
        take(&pool, DAX).unwrap();
        assert!(steps.take().contains(&"sync directory"));
    }

    /// A home that cannot remember a pool that outlives the boot refuses it.
    ///
    /// Guarantee: heap/one-home
    #[test]
    fn home_refuses_a_pool_that_it_cannot_remember() {
        let home = tempfile::tempdir().unwrap();
        // In the way of the new record.
        std::fs::create_dir_all(home.path().join("pool-in-use.new/x")).unwrap();
        let pool = home.path().join("pool");
        let refused = take_into_use(home.path(), "boot", &pool, DAX).unwrap_err();
        assert!(matches!(refused, PlaceError::Io { .. }), "{refused}");
        take_into_use(home.path(), "boot", &pool, PoolKind::Tmpfs).unwrap();
    }

    /// A reader finds a whole record while it is replaced.
    ///
    /// Guarantee: heap/one-home
    #[test]
    fn record_is_always_read_whole() {
        let home = tempfile::tempdir().unwrap();
        let pools = ["one", "other"].map(|name| home.path().join(name));
        take_into_use(home.path(), "boot", &pools[0], PoolKind::Tmpfs).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 0..500 {
                    take_into_use(home.path(), "boot", &pools[round % 2], PoolKind::Tmpfs).unwrap();
                }
            });
            while !writer.is_finished() {
                assert!(read(&record_path(home.path())).ends_with(b"\n"), "half a record");
            }
        });
    }
}
