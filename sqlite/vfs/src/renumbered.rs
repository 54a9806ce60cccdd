//! An image whose database is on a device that has another number since the machine started anew:
//! numbers are given out as devices are found, and the images of a pool that outlives the boot have
//! them in their names.
//!
//! Invariants:
//! - Within one boot a device's number tells it from all others, also from a snapshot of it, and an
//!   image is no other process's.
//! - The image of another boot is the database's if inode, time of birth and the nonce of the mark
//!   are the same. It gets its new name behind the gates of both names, in one step.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use holdfast_region::Places;
use holdfast_sys::file::{path_names_file, private_options};
use holdfast_sys::lock::{LockMode, try_lock};

use crate::identity::Identity;
use crate::image::HeaderCopy;
use crate::locking::{is_anybody_there, pid_space};
use crate::mark::Mark;

/// The image that the database had in an earlier boot, under its old name.
pub(crate) fn find(places: &Places, identity: Identity, mark: Mark) -> io::Result<Option<PathBuf>> {
    if !places.pool_kind().outlives_boot() {
        return Ok(None);
    }
    let [_, inode, born] = identity.words();
    let ending = format!("-{inode:x}-{born:x}.sqlite");
    for entry in std::fs::read_dir(places.pool())? {
        let path = entry?.path();
        let is_alike = path
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.ends_with(&ending));
        if is_alike
            && path != identity.image_path(places.pool())
            && is_of(&path, mark, places.boot())?
        {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Whether an image holds pages of the marked database, and was used in another boot last.
fn is_of(path: &Path, mark: Mark, boot: [u8; 16]) -> io::Result<bool> {
    let file = match private_options().read(true).open(path) {
        // It was closed meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    let header = HeaderCopy::read(&file)?;
    Ok(header.is_some_and(|header| header.holds(mark.nonce) && !header.names_boot(boot)))
}

/// What became of the search for an image of an earlier boot.
#[derive(Debug)]
pub(crate) enum Adopted {
    /// There is none.
    Nothing,
    /// There is one, and a process is at it: what is in it is not lost.
    Busy,
    /// Its file, with its gate, under the name that the database has now.
    Image(File),
}

/// Gives that image the name that the database has it by now; a process that calls has the gate of
/// that name.
pub(crate) fn adopt(
    places: &Places,
    identity: Identity,
    mark: Mark,
    name: &Path,
) -> io::Result<Adopted> {
    let Some(old) = find(places, identity, mark)? else { return Ok(Adopted::Nothing) };
    let file = match private_options().read(true).write(true).open(&old) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Adopted::Busy),
        file => file?,
    };
    let is_free = try_lock(&file, LockMode::Exclusive)?
        && path_names_file(&old, &file)?
        && !is_anybody_there(&file, pid_space())?;
    if !is_free {
        return Ok(Adopted::Busy);
    }
    std::fs::rename(&old, name)?;
    Ok(Adopted::Image(file))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;
    use crate::attach::attach_at;
    use crate::base::OwnFile;
    use crate::error::Result;
    use crate::pool::Pool;

    struct Machine {
        folder: tempfile::TempDir,
        database: PathBuf,
    }

    impl Machine {
        fn new() -> Machine {
            let folder = tempfile::tempdir_in("/dev/shm").unwrap();
            let database = folder.path().join("db");
            File::create(&database).unwrap();
            Machine { folder, database }
        }

        fn places(&self, boot: u8) -> Places {
            let at = |name: &str| self.folder.path().join(name);
            Places::at_emulated_dax(at("home"), at("pool"), [boot; 16]).unwrap()
        }

        /// The identity of the database, on a device of this number.
        fn identity(&self, device: u64) -> Identity {
            let [_, inode, born] = Identity::of(&self.database).unwrap().words();
            Identity::new([device, inode, born])
        }

        fn attach(&self, boot: u8, device: u64) -> Result<Pool> {
            let base = Box::new(OwnFile::open(&self.database).unwrap());
            attach_at(&self.places(boot), (&self.database, self.identity(device)), base, None)
        }

        /// A process that has committed, and dies with the machine.
        fn commit(&self, boot: u8, device: u64, transaction: u64) {
            let pool = self.attach(boot, device).unwrap();
            if !pool.is_hot() {
                pool.heat(pool.base()).unwrap();
            }
            let commits = pool.image.commits();
            commits.set_size(transaction, transaction);
            commits.publish(transaction);
        }

        fn images(&self) -> Vec<String> {
            let entries = std::fs::read_dir(self.folder.path().join("pool")).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.filter(|name| name.ends_with(".sqlite")).collect()
        }
    }

    /// A database whose device has another number after a reset finds its image.
    ///
    /// Guarantee: sqlite/surviving-pool
    #[test]
    fn renumbered_device_finds_its_image_after_reset() {
        let machine = Machine::new();
        machine.commit(1, 0xfe00, 40);
        let pool = machine.attach(2, 0xfe10).unwrap();
        assert_eq!((pool.size(), pool.is_hot()), (40, true), "what only the pool had is lost");
        drop(pool);
        assert!(
            machine.images().iter().all(|name| name.starts_with("fe10-")),
            "{:?}",
            machine.images()
        );
        // And once more, and back.
        machine.commit(2, 0xfe10, 41);
        assert_eq!(machine.attach(3, 0xfe00).unwrap().size(), 41);
        assert_eq!(machine.images().len(), 1);
    }

    /// In one boot a database of another device gets no other database's image.
    ///
    /// Guarantee: sqlite/surviving-pool
    #[test]
    fn other_device_in_one_boot_gets_no_image() {
        let machine = Machine::new();
        machine.commit(1, 0xfe00, 40);
        // As a snapshot of the device would be.
        let pool = machine.attach(1, 0xfe10).unwrap();
        assert_eq!((pool.size(), pool.is_hot()), (0, false));
        assert_eq!(machine.images().len(), 2);
    }
}
