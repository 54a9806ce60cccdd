//! Whether a marked database without its image is refused: while the image may exist in another
//! pool, its commits are not given up.

#![forbid(unsafe_code)]

use std::io;
use std::path::Path;

use holdfast_region::{Places, PoolKind};
use holdfast_sys::file::private_options;

use super::{ANY_BOOT, Owner, Sight, Whereabouts, image_of};
use crate::copy;
use crate::error::{Result, SqliteError};
use crate::identity::Identity;
use crate::log::{Log, log_path};
use crate::mark::Mark;

/// What is known of the pool of a database.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is the one in use.
    Ours,
    /// It is gone, and what it had with it.
    Gone,
    /// Its image may exist.
    Elsewhere(Option<Box<Owner>>, Whereabouts),
}

/// What the log beside a database says of its owner; `None` where it is missing, cannot be read, is
/// of another database or says nothing.
fn owner_in_log(database: &Path, mark: Mark) -> Option<Owner> {
    let log = Log::read_only(&log_path(database)).ok()??;
    let generation = log.generation().ok()??;
    log.owner().ok()?.filter(|_| generation.nonce == mark.nonce)
}

/// Where the pool of a marked database is, as seen by one who has no image of it.
pub(crate) fn standing(database: &Path, mark: Mark, ours: &Owner) -> Standing {
    let Some(tag) = mark.tag else { return Standing::Ours };
    let Some(owner) = owner_in_log(database, mark) else {
        let is_of_boot = tag.boot == ANY_BOOT
            || tag.boot == Owner { outlives_boot: false, ..ours.clone() }.tag().boot;
        return match () {
            () if !is_of_boot => Standing::Gone,
            () if tag.pool == ours.tag().pool => Standing::Ours,
            () => Standing::Elsewhere(None, Whereabouts::Unknown),
        };
    };
    if owner.is_pool_of(ours) {
        return Standing::Ours;
    }
    let sight = match owner.boot == ours.boot {
        true => owner.look(mark.nonce),
        false if owner.outlives_boot => {
            let is_persistent = |pool: &Path| PoolKind::of(pool).is_ok_and(PoolKind::outlives_boot);
            owner.look_later(mark.nonce, is_persistent)
        }
        false => Sight::Gone,
    };
    let whereabouts = match sight {
        Sight::SeenFile => Whereabouts::Present,
        Sight::Hidden => Whereabouts::Hidden,
        Sight::Gone if owner.home != ours.home && may_have_copy(&owner, mark.nonce) => {
            Whereabouts::Saved
        }
        Sight::Gone => return Standing::Gone,
    };
    Standing::Elsewhere(Some(Box::new(owner)), whereabouts)
}

/// Refuses to go on without the image that the mark of a database speaks of, while that may exist.
///
/// # Errors
/// `Elsewhere`, `Orphaned`.
pub(crate) fn refuse_if_elsewhere(
    (database, identity): (&Path, Identity),
    mark: Mark,
    places: &Places,
    ours: &Owner,
) -> Result<()> {
    match standing(database, mark, ours) {
        Standing::Elsewhere(owner, whereabouts) => {
            let (database, log) = (database.to_owned(), log_path(database));
            return Err(SqliteError::Elsewhere { database, log, owner, whereabouts });
        }
        Standing::Gone => return Ok(()),
        Standing::Ours => {}
    }
    let pool = places.pool();
    let found = image_of(pool, mark.nonce).map_err(SqliteError::io("list", pool))?;
    match found {
        Some(image) if !is_of_snapshot(&image, identity) && !has_database(&image) => {
            Err(SqliteError::Orphaned { database: database.to_owned(), image })
        }
        // Of a copy the original has the image.
        _ => Ok(()),
    }
}

/// Whether an image is of the same file of another device, of which this one is a snapshot; or of
/// this very file.
fn is_of_snapshot(image: &Path, identity: Identity) -> bool {
    Identity::of_image(image).is_some_and(|of_image| of_image.is_but_for_device(identity))
}

/// Whether the database of an image is where it was when it was opened last.
fn has_database(image: &Path) -> bool {
    let Some(identity) = Identity::of_image(image) else { return false };
    let Ok(file) = private_options().read(true).open(image) else { return false };
    let head = crate::snapshot::Head::read(&file, identity).ok().flatten();
    let path = head.and_then(|(head, _)| head.header().database());
    path.is_some_and(|path| Identity::of(&path).is_ok_and(|found| found == identity))
}

/// Whether a keeper of its home has saved the database, as far as can be seen: a home that is
/// not there may be elsewhere.
fn may_have_copy(owner: &Owner, nonce: u64) -> bool {
    let copies = owner.home.join("store/databases");
    match copy::path_of(&copies, nonce).symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => !owner.home.join("store").is_dir(),
        _ => true,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use std::os::unix::fs::FileExt;

    use xxhash_rust::xxh3::xxh3_64;

    use super::super::{ID_BYTES, OWNER_AT, OWNER_BYTES, describe, pool_id};
    use super::*;
    use crate::base::OwnFile;
    use crate::base::read_mark;
    use crate::testing::{commit, hot, places};

    struct Ground {
        folder: tempfile::TempDir,
        mark: Mark,
        owner: Owner,
    }

    /// A database whose newest commit is in the pool of the folder, and the owner that its log
    /// names.
    fn ground() -> Ground {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let pool = hot(folder.path(), 3);
        commit(&pool, &[(1, 2)], 3).unwrap();
        drop(pool);
        let database = folder.path().join("db");
        let mark = read_mark(&OwnFile::open(&database).unwrap()).unwrap().0.unwrap();
        let owner = owner_in_log(&database, mark).unwrap();
        Ground { folder, mark, owner }
    }

    impl Ground {
        fn others(&self) -> Owner {
            let at = |name: &str| self.folder.path().join(name);
            Owner::of(&Places::at(at("other home"), at("other pool")).unwrap()).unwrap()
        }

        /// As it stands for another home, if the log said this.
        fn standing(&self, owner: &Owner) -> Standing {
            let path = log_path(&self.folder.path().join("db"));
            let log = private_options().write(true).open(path).unwrap();
            log.write_all_at(&owner.to_bytes(), OWNER_AT as u64).unwrap();
            standing(
                &self.folder.path().join("db"),
                Mark { tag: Some(owner.tag()), ..self.mark },
                &self.others(),
            )
        }
    }

    fn whereabouts(standing: &Standing) -> Option<Whereabouts> {
        match standing {
            Standing::Elsewhere(_, whereabouts) => Some(*whereabouts),
            _ => None,
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_or_not_at_all() {
        let Ground { folder, owner, .. } = ground();
        assert_eq!(owner, Owner::of(&places(folder.path())).unwrap());
        let bytes = owner.to_bytes();
        assert_eq!(Owner::from_bytes(&bytes).as_ref(), Some(&owner));
        for at in (0..OWNER_BYTES).step_by(41).chain([8, 48, 56, 60, 64, 67]) {
            let mut bad = bytes;
            bad[at] ^= 0xff;
            assert_eq!(Owner::from_bytes(&bad), None, "byte {at}");
            // With a sum that fits it is bounded all the same.
            let sum = xxh3_64(&bad[16..]);
            bad[8..16].copy_from_slice(&sum.to_le_bytes());
            let _ = Owner::from_bytes(&bad);
        }
        // What does not fit is left out, and nothing is believed to be gone.
        let long = Owner { pool: "/x".repeat(1750).into(), ..owner };
        let read = Owner::from_bytes(&long.to_bytes()).unwrap();
        assert_eq!(read.directories.len(), 0);
        assert_eq!(read.look(1), Sight::Hidden);
    }

    /// Guarantee: sqlite/lost-pool
    #[test]
    fn a_pool_that_ends_with_the_boot_is_gone_after_it() {
        let ground = ground();
        let owner = &ground.owner;
        assert_eq!(whereabouts(&ground.standing(owner)), Some(Whereabouts::Present));
        let of_before = Owner { boot: [9; 16], ..owner.clone() };
        assert_eq!(ground.standing(&of_before), Standing::Gone);
        let outlives = Owner { outlives_boot: true, ..of_before.clone() };
        assert_eq!(whereabouts(&ground.standing(&outlives)), Some(Whereabouts::Hidden));
        // Where such memory is mounted it is looked into: it may have been lost, and the pool made
        // anew.
        assert_eq!(outlives.look_later(ground.mark.nonce, |_| true), Sight::SeenFile);
        assert_eq!(outlives.look_later(1, |_| true), Sight::Gone);
        let anew = Owner { id: [1; ID_BYTES], ..outlives };
        assert_eq!(anew.look_later(ground.mark.nonce, |_| true), Sight::Gone);
        assert_eq!(anew.look_later(ground.mark.nonce, |_| false), Sight::Hidden);
        let missing = Owner { pool: ground.folder.path().join("none"), ..anew };
        assert_eq!(missing.look_later(ground.mark.nonce, |_| true), Sight::Hidden);
        // But not what a keeper saved, nor a home in which that cannot be seen.
        let copies = ground.folder.path().join("home/store/databases");
        std::fs::create_dir_all(&copies).unwrap();
        std::fs::write(copy::path_of(&copies, ground.mark.nonce), "").unwrap();
        assert_eq!(whereabouts(&ground.standing(&of_before)), Some(Whereabouts::Saved));
        let far = Owner { home: "/no/such/home".into(), ..of_before };
        assert_eq!(whereabouts(&ground.standing(&far)), Some(Whereabouts::Saved));
    }

    /// Without the log the mark tells pools and boots apart.
    ///
    /// Guarantee: sqlite/lost-pool
    #[test]
    fn mark_alone_tells_pools_and_boots_apart() {
        let ground = ground();
        let (owner, database) = (&ground.owner, ground.folder.path().join("db"));
        std::fs::remove_file(log_path(&database)).unwrap();
        let stands = |tag, ours: &Owner| standing(&database, Mark { tag, ..ground.mark }, ours);
        let others = ground.others();
        let tag = Some(owner.tag());
        assert_eq!(ground.mark.tag, tag);
        assert_eq!(stands(tag, owner), Standing::Ours);
        assert_eq!(whereabouts(&stands(tag, &others)), Some(Whereabouts::Unknown));
        let of_before = Owner { boot: [9; 16], ..owner.clone() };
        assert_eq!(stands(Some(of_before.tag()), &others), Standing::Gone);
        let outlives = Owner { outlives_boot: true, ..of_before };
        assert_eq!(whereabouts(&stands(Some(outlives.tag()), &others)), Some(Whereabouts::Unknown));
        assert_eq!(stands(None, &others), Standing::Ours, "an earlier version does not say");
    }

    #[test]
    fn a_pool_has_one_number_whoever_asks() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let ids: Vec<_> = std::thread::scope(|scope| {
            let asked: Vec<_> =
                (0..8).map(|_| scope.spawn(|| pool_id(folder.path()).unwrap())).collect();
            asked.into_iter().map(|asked| asked.join().unwrap()).collect()
        });
        assert!(ids.iter().all(|id| *id == ids[0] && *id != [0; ID_BYTES]), "{ids:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_message_has_no_control_characters() {
        let owner = Owner { home: "/h\x1b[2J".into(), ..ground().owner };
        let text = describe(
            Path::new("/db"),
            Path::new("/db-holdfast"),
            Some(&owner),
            Whereabouts::Present,
        );
        assert!(text.contains("HOLDFAST_HOME=/h") && !text.contains(char::is_control), "{text}");
    }
}
