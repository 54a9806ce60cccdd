//! Row S9: the redo log, the database or their folder is moved, removed or replaced while commits
//! at level `power` are made. Then the power of the file system goes, and the pool with it. Each
//! commit that was acknowledged is there, also those from before the fault; and a commit that
//! recovery would not have found was refused.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdfast_testkit::Trials;
use rand::RngExt;

use crate::engine;
use crate::sides::{Ground, say};
use holdfast_testkit::file_system::{FileSystem, KINDS, lacking};

/// Of each fault, on each of the two file systems.
const ROUNDS: u64 = 1;
/// A commit takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);
/// What the writer tells for each commit.
const ACKNOWLEDGED: u8 = b'.';
const REFUSED: u8 = b'x';

/// What other programs find.
struct Place {
    folder: PathBuf,
    database: PathBuf,
    log: PathBuf,
    aside: PathBuf,
}

impl Place {
    fn new(root: &Path) -> Place {
        let folder = root.join("place");
        let at = |name| folder.join(name);
        Place { database: at("main.db"), log: at("main.db-holdfast"), aside: at("aside"), folder }
    }

    fn away(&self) -> PathBuf {
        self.folder.with_extension("away")
    }
}

/// A fault, and what undoes it; without that commits go on by themselves.
struct Fault {
    name: &'static str,
    act: fn(&Place),
    undo: Option<fn(&Place)>,
}

const FAULTS: [Fault; 10] = [
    Fault { name: "log removed", act: |place| fs::remove_file(&place.log).unwrap(), undo: None },
    Fault {
        name: "log renamed",
        act: |place| fs::rename(&place.log, &place.aside).unwrap(),
        undo: None,
    },
    Fault {
        // The disk has it by the other name until the folder is synced.
        name: "log renamed, synced, renamed back",
        act: |place| {
            fs::rename(&place.log, &place.aside).unwrap();
            File::open(&place.folder).unwrap().sync_all().unwrap();
            fs::rename(&place.aside, &place.log).unwrap();
        },
        undo: None,
    },
    Fault {
        name: "log replaced by an older copy",
        act: |place| {
            fs::copy(&place.log, &place.aside).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            fs::rename(&place.aside, &place.log).unwrap();
        },
        undo: None,
    },
    Fault {
        name: "log overwritten with an older copy",
        act: |place| {
            fs::copy(&place.log, &place.aside).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            fs::copy(&place.aside, &place.log).unwrap();
        },
        undo: None,
    },
    Fault { name: "log cleared", act: |place| fs::write(&place.log, "").unwrap(), undo: None },
    Fault {
        name: "database moved",
        act: |place| fs::rename(&place.database, &place.aside).unwrap(),
        undo: Some(|place| fs::rename(&place.aside, &place.database).unwrap()),
    },
    Fault {
        name: "database replaced",
        act: |place| {
            fs::rename(&place.database, &place.aside).unwrap();
            fs::copy(&place.aside, &place.database).unwrap();
        },
        undo: Some(|place| fs::rename(&place.aside, &place.database).unwrap()),
    },
    Fault {
        name: "database overwritten",
        act: |place| {
            fs::copy(&place.database, &place.aside).unwrap();
            fs::write(&place.database, [7; 9000]).unwrap();
        },
        undo: Some(|place| {
            fs::copy(&place.aside, &place.database).unwrap();
            File::open(&place.database).unwrap().sync_all().unwrap();
        }),
    },
    Fault {
        name: "folder moved",
        act: |place| fs::rename(&place.folder, place.away()).unwrap(),
        undo: Some(|place| fs::rename(place.away(), &place.folder).unwrap()),
    },
];

/// The role: rows in transactions of their own. What becomes of each is told outside of the file
/// system.
pub(crate) fn insert(path: &Path, told: &Path) {
    engine::load();
    let connection = engine::open(path, "vfs=holdfast&level=power").unwrap();
    connection
        .execute_batch("CREATE TABLE rows (number INTEGER PRIMARY KEY, content BLOB)")
        .unwrap();
    let mut told = File::create(told).unwrap();
    say("began");
    loop {
        let insert = "INSERT INTO rows (content) VALUES (zeroblob(300))";
        let word = if connection.execute(insert, []).is_ok() { ACKNOWLEDGED } else { REFUSED };
        told.write_all(&[word]).unwrap();
        // Few enough that the log does not grow between a fault and the cut: growing syncs more
        // than a commit does.
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The role: what recovery finds.
pub(crate) fn count(path: &Path) {
    engine::load();
    let connection = engine::open(path, "vfs=holdfast").unwrap();
    assert_eq!(engine::integrity(&connection).unwrap(), "ok");
    let rows: i64 =
        connection.query_row("SELECT count(*) FROM rows", [], |row| row.get(0)).unwrap();
    say(&format!("rows {rows}"));
}

/// What the writer has told so far.
fn told(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_default()
}

/// Waits until the writer has told that so often, behind what it had told before.
fn wait_for(path: &Path, from: usize, word: u8, times: usize) {
    let started = Instant::now();
    while told(path)[from..].iter().filter(|told| **told == word).count() < times {
        assert!(started.elapsed() < PATIENCE, "no {:?} within {PATIENCE:?}", char::from(word));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The role of the test itself, in a mount name space of its own.
pub(crate) fn drive() {
    for kind in &KINDS {
        let disks = Ground::new();
        let mut system = FileSystem::new(kind, disks.folder.path()).unwrap();
        let mut trials = Trials::of("S9", kind.name(), ROUNDS * FAULTS.len() as u64);
        while let Some(mut trial) = trials.next() {
            let fault = &FAULTS[trial.number as usize % FAULTS.len()];
            system.mount().unwrap();
            let place = Place::new(system.place());
            let _ = fs::remove_dir_all(&place.folder);
            fs::create_dir(&place.folder).unwrap();
            let ground = Ground::new();
            let words = ground.folder.path().join("told");
            let database = place.database.to_str().unwrap();
            let mut writer = ground.start(&["insert", database, words.to_str().unwrap()]);
            writer.hear("began");
            wait_for(&words, 0, ACKNOWLEDGED, 3);
            std::thread::sleep(Duration::from_micros(trial.random.random_range(0..50_000)));
            (fault.act)(&place);
            let before = told(&words).len();
            if let Some(undo) = fault.undo {
                wait_for(&words, before, REFUSED, 3);
                let behind = &told(&words)[before..];
                // One may have looked at the names before they went.
                let early = behind.iter().position(|word| *word == REFUSED).unwrap();
                assert!(early <= 1, "{}: {early} commits after it", fault.name);
                assert!(
                    !behind[early..].contains(&ACKNOWLEDGED),
                    "{}: commits after it",
                    fault.name
                );
                undo(&place);
            }
            let mended = told(&words).len();
            wait_for(&words, mended, ACKNOWLEDGED, 2);
            let least = told(&words).iter().filter(|word| **word == ACKNOWLEDGED).count();
            system.cut_power().unwrap();
            writer.kill();
            system.unmount();
            system.mount().unwrap();
            ground.lose_pool();
            let said = ground.run(&["count", database]).well();
            let rows: usize = said.strip_prefix("rows ").unwrap().parse().unwrap();
            assert!(rows >= least, "{} on {}: {rows} of {least} commits", fault.name, kind.name());
            system.unmount();
        }
    }
}

/// Commits at level power survive moving, removing or replacing the log, the database or their
/// folder.
///
/// Guarantee: sqlite/level-power
/// Guarantee: sqlite/log-removed
#[test]
fn power_commits_survive_name_changes() {
    match lacking() {
        Some(lacking) => println!("not run: {lacking}"),
        None => Ground::new().drive(&["unshare", "-m", "--"], &["names"]),
    }
}
