//! Row H12: files that older versions wrote. Database, redo log, image and saved copy of a set are
//! of one database: block 1 was committed to its file, block 2 to the log, block 3 to image and
//! copy. In set 1 each is of the version 1 of its format; in set 2 mark and log name boot and pool
//! (`owner/`); in set 3 the log has compressed blocks, in set 4 what changed in one, too.
//!
//! `HOLDFAST_GOLDEN=$PWD/sqlite/vfs/golden cargo test -p holdfast-sqlite golden_files_are_made`
//! writes them anew, of the versions that the code has now; a change that raises a version adds the
//! result beside the old ones.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::path::{Path, PathBuf};

use holdfast_region::Places;
use holdfast_testkit::golden;

use crate::attach::attach_at;
use crate::base::OwnFile;
use crate::base::read_mark;
use crate::copy;
use crate::databases::Databases;
use crate::error::{Result, SqliteError};
use crate::identity::Identity;
use crate::image::{BLOCK_BYTES, HeaderCopy};
use crate::log::log_path;
use crate::pool::Pool;
use crate::recovery::{Lost, Source};
use crate::testing::{first_page, put};

/// Files that are of one database.
#[derive(Clone, Copy)]
struct Set {
    database: &'static str,
    log: &'static str,
    image: &'static str,
    copy: &'static str,
}

const SETS: [Set; 4] = [
    Set {
        database: include_str!("../golden/database-1.txt"),
        log: include_str!("../golden/log-1.txt"),
        image: include_str!("../golden/image-1.txt"),
        copy: include_str!("../golden/copy-1.txt"),
    },
    Set {
        database: include_str!("../golden/database-2.txt"),
        log: include_str!("../golden/log-2.txt"),
        image: include_str!("../golden/image-2.txt"),
        copy: include_str!("../golden/copy-2.txt"),
    },
    Set {
        database: include_str!("../golden/database-3.txt"),
        log: include_str!("../golden/log-3.txt"),
        image: include_str!("../golden/image-3.txt"),
        copy: include_str!("../golden/copy-3.txt"),
    },
    Set {
        database: include_str!("../golden/database-4.txt"),
        log: include_str!("../golden/log-4.txt"),
        image: include_str!("../golden/image-4.txt"),
        copy: include_str!("../golden/copy-4.txt"),
    },
];
/// Of the sets that the code makes now.
const NEWEST: usize = 4;

/// Of the database in the golden files, which no file system gave it.
const IDENTITY: Identity = Identity::new([0xfe00, 42, 1_700_000_000_000_000_000]);

struct Machine {
    folder: tempfile::TempDir,
    places: Places,
}

impl Machine {
    fn new() -> Machine {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let at = |name: &str| folder.path().join(name);
        // Its pool outlives boots, as the images in it must.
        let places = Places::at_emulated_dax(at("home"), at("pool"), [1; 16]).unwrap();
        Machine { folder, places }
    }

    fn database(&self) -> PathBuf {
        self.folder.path().join("db")
    }

    fn copies(&self) -> PathBuf {
        Databases::of(&self.places).copies()
    }

    fn attach(&self) -> Result<Pool> {
        let base = Box::new(OwnFile::open(&self.database()).unwrap());
        attach_at(&self.places, (&self.database(), IDENTITY), base, None)
    }

    /// The database and its log, as they are beside each other.
    fn lay_files(&self, set: Set) {
        golden::lay(set.database, &self.database()).unwrap();
        golden::lay(set.log, &log_path(&self.database())).unwrap();
    }

    fn recover(&self) -> Source {
        let (database, base) = (self.database(), OwnFile::open(&self.database()).unwrap());
        let mark = read_mark(&base).unwrap().0.unwrap();
        let lost = Lost {
            base: &base,
            database: &database,
            identity: IDENTITY,
            mark,
            copies: &self.copies(),
        };
        lost.recover_locked().unwrap()
    }

    /// What is at the beginning of each block of the database file.
    fn says(&self) -> Vec<u8> {
        let bytes = std::fs::read(self.database()).unwrap();
        bytes.chunks(BLOCK_BYTES).map(|block| block[0]).collect()
    }
}

/// A block that says this, and is short as text.
fn block(says: u8) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    block[0] = says;
    block
}

fn commit(pool: &Pool, number: u32, says: u8) {
    pool.commit(&[put(pool, number, &block(says))], 4 * BLOCK_BYTES as u64).unwrap();
}

/// Databases that every version so far left open and say what they said.
///
/// Guarantee: sqlite/old-versions
/// Guarantee: heap/old-formats
#[test]
fn databases_of_every_version_open_unchanged() {
    for set in SETS {
        let machine = Machine::new();
        machine.lay_files(set);
        golden::lay(set.image, &IDENTITY.image_path(machine.places.pool())).unwrap();
        let pool = machine.attach().unwrap();
        assert!(pool.is_hot(), "the commits in the image are lost");
        // It is marked anew, as this version does it, and that is taken away again.
        pool.checkpoint().unwrap();
        pool.hand_over(false).unwrap();
        assert_eq!(machine.says(), [b'S', 11, 12, 13]);

        let machine = Machine::new();
        machine.lay_files(set);
        assert_eq!((machine.recover(), machine.says()), (Source::Log, vec![b'S', 11, 12, 0]));

        let machine = Machine::new();
        machine.lay_files(set);
        let mark = read_mark(&OwnFile::open(&machine.database()).unwrap()).unwrap().0.unwrap();
        std::fs::create_dir_all(machine.copies()).unwrap();
        golden::lay(set.copy, &copy::path_of(&machine.copies(), mark.nonce)).unwrap();
        assert_eq!((machine.recover(), machine.says()), (Source::Copy, vec![b'S', 11, 12, 13]));
    }
}

/// A mark and a log that do not say whose the pool is are those of the pool in use.
///
/// Guarantee: sqlite/old-versions
#[test]
fn an_old_mark_opens_without_its_image() {
    let machine = Machine::new();
    machine.lay_files(SETS[0]);
    let pool = machine.attach().unwrap();
    assert!(!pool.is_hot());
    assert_eq!(machine.says(), [b'S', 11, 12, 0]);
}

/// A log that an earlier version began gets no record of this one, which that version would take for
/// its end: it is begun again before.
///
/// Guarantee: sqlite/old-versions
#[test]
fn an_old_log_is_begun_again_before_the_next_record() {
    for set in SETS {
        let machine = Machine::new();
        machine.lay_files(set);
        let image = IDENTITY.image_path(machine.places.pool());
        golden::lay(set.image, &image).unwrap();
        let pool = machine.attach().unwrap();
        pool.flush_and_tidy().unwrap();
        drop(pool);
        assert_eq!(std::fs::read(log_path(&machine.database())).unwrap()[7], 4);
        std::fs::remove_file(image).unwrap();
        assert_eq!((machine.recover(), machine.says()), (Source::Log, vec![b'S', 11, 12, 13]));
    }
}

/// An image or a log of a newer version is refused and left as it was.
///
/// Guarantee: heap/old-formats
/// Guarantee: sqlite/old-versions
#[test]
fn newer_image_or_log_is_refused_untouched() {
    let refused = |machine: &Machine| machine.attach().map(drop).unwrap_err();
    let machine = Machine::new();
    machine.lay_files(SETS[0]);
    let image = IDENTITY.image_path(machine.places.pool());
    golden::lay(SETS[0].image, &image).unwrap();
    let before = HeaderCopy::as_of_version(&std::fs::read(&image).unwrap(), 99, IDENTITY);
    std::fs::write(&image, &before).unwrap();
    let error = refused(&machine);
    assert!(matches!(&error, SqliteError::Newer { file, .. } if *file == image), "{error}");
    assert!(std::fs::read(&image).unwrap() == before);

    let machine = Machine::new();
    machine.lay_files(SETS[0]);
    let log = log_path(&machine.database());
    let mut before = std::fs::read(&log).unwrap();
    before[7] = 99;
    std::fs::write(&log, &before).unwrap();
    let error = refused(&machine);
    assert!(matches!(&error, SqliteError::Newer { file, .. } if *file == log), "{error}");
    assert!(std::fs::read(&log).unwrap() == before);
}

/// Not a test of its own: see the module.
#[test]
fn golden_files_are_made_on_demand() {
    let machine = Machine::new();
    std::fs::write(machine.database(), [first_page(), block(1), block(0), block(0)].concat())
        .unwrap();
    let pool = machine.attach().unwrap();
    assert!(pool.heat(pool.base()).unwrap());
    commit(&pool, 1, 11);
    pool.checkpoint().unwrap();
    // In a record each; the second has what changed.
    pool.settings.set("level", "power").unwrap();
    commit(&pool, 2, 10);
    commit(&pool, 2, 12);
    pool.settings.set("level", "process").unwrap();
    commit(&pool, 3, 13);
    let databases = Databases::of(&machine.places);
    databases.save(&databases.list().unwrap()[0]).unwrap();
    let nonce = read_mark(pool.base()).unwrap().0.unwrap().nonce;
    let image = pool.image.path().to_owned();
    drop(pool);
    let made = [
        ("database", machine.database()),
        ("log", log_path(&machine.database())),
        ("image", image),
        ("copy", copy::path_of(&databases.copies(), nonce)),
    ]
    .map(|(kind, path)| (kind, std::fs::read(path).unwrap()));
    assert!(made.iter().all(|(_, bytes)| bytes.iter().any(|byte| *byte != 0)));
    let Some(folder) = std::env::var_os("HOLDFAST_GOLDEN") else { return };
    for (kind, bytes) in made {
        let text = golden::text(&format!("{kind} (sqlite/vfs/src/golden.rs)"), &bytes);
        std::fs::write(Path::new(&folder).join(format!("{kind}-{NEWEST}.txt")), text).unwrap();
    }
}
