//! Row S6: the power of a real file system goes while commits at level `power` are made, and the
//! pool with it. Every commit that had returned before the cut began is there, and the database is
//! sound.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use holdfast_testkit::Trials;
use rand::RngExt;

use crate::engine;
use crate::sides::{Ground, say};
use holdfast_testkit::file_system::{FileSystem, KINDS, lacking};

/// On each of the two file systems.
const CUTS: u64 = 10;

/// The role: rows in transactions of their own, each acknowledged with a byte outside of the file
/// system, until nothing works.
pub(crate) fn commit(path: &Path, parameters: &str, acknowledged: &Path) {
    engine::load();
    let connection = engine::open(path, parameters).unwrap();
    connection
        .execute_batch("CREATE TABLE IF NOT EXISTS rows (number INTEGER PRIMARY KEY, content BLOB)")
        .unwrap();
    let mut told = File::create(acknowledged).unwrap();
    let mut number: i64 = connection
        .query_row("SELECT coalesce(max(number), 0) FROM rows", [], |row| row.get(0))
        .unwrap();
    assert_eq!(engine::integrity(&connection).unwrap(), "ok");
    say(&format!("found {number}"));
    let mut insert = connection.prepare("INSERT INTO rows VALUES (?1, zeroblob(300))").unwrap();
    while insert.execute([number + 1]).is_ok() {
        number += 1;
        told.write_all(b".").unwrap();
    }
    say("dark");
    loop {
        std::thread::park();
    }
}

/// The role of the test itself, in a mount name space of its own.
pub(crate) fn drive() {
    cut(
        "S6",
        CUTS,
        Duration::from_millis(200),
        |_| (),
        |path, acknowledged| {
            ["commit", path, "vfs=holdfast&level=power", acknowledged].map(str::to_owned).to_vec()
        },
    );
}

/// Cuts the power of each file system amid the commits of a side, and loses its pool: what it then
/// finds is what was acknowledged before, at least. `fill` makes the database, `words` are the
/// side's role, and `longest` is how long it commits at most.
pub(crate) fn cut(
    row: &'static str,
    cuts: u64,
    longest: Duration,
    fill: impl Fn(&Path),
    words: impl Fn(&str, &str) -> Vec<String>,
) {
    for kind in &KINDS {
        let (disks, ground) = (Ground::new(), Ground::new());
        let mut system = FileSystem::new(kind, disks.folder.path()).unwrap();
        let path = system.place().join("main.db");
        let acknowledged = ground.folder.path().join("acknowledged");
        let words = words(path.to_str().unwrap(), acknowledged.to_str().unwrap());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        system.mount().unwrap();
        fill(&path);
        system.unmount();
        let mut trials = Trials::of(row, kind.name(), cuts);
        let mut least = 0;
        while let Some(mut trial) = trials.next() {
            system.mount().unwrap();
            let mut writer = ground.start(&words);
            let found: u64 = writer.heard("found ").parse().unwrap();
            assert!(found >= least, "{}: {found} of {least} acknowledged", kind.name());
            let longest_us = longest.as_micros() as u64;
            std::thread::sleep(Duration::from_micros(trial.random.random_range(0..longest_us)));
            let told = std::fs::metadata(&acknowledged).unwrap().len();
            system.cut_power().unwrap();
            writer.hear("dark");
            writer.kill();
            ground.lose_pool();
            least = found + told;
            system.unmount();
        }
    }
}

/// After a power cut, every commit at level power is there, on ext4 and XFS.
///
/// Guarantee: sqlite/level-power
#[test]
fn power_commits_survive_a_power_cut() {
    match lacking() {
        Some(lacking) => println!("not run: {lacking}"),
        None => Ground::new().drive(&["unshare", "-m", "--"], &["cuts"]),
    }
}
