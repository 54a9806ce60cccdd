//! The kit of the tests of saved copies: databases that count their commits, copies of them, and a
//! pool that is lost.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_region::Places;
use holdfast_sqlite::{Database, Databases, Rescue};
use rusqlite::Connection;

use super::{assert_sound, number, open};

pub(crate) const COUNT: &str = "BEGIN; UPDATE counter SET n = n + 1; INSERT INTO t (b) SELECT hex(randomblob(200)) FROM counter; \
                     UPDATE t SET b = b || 'x' WHERE a % 7 = (SELECT n FROM counter) % 7 AND a > \
                     (SELECT max(a) FROM t) - 50; COMMIT";
/// Outgrows a pool of 1 MiB.
pub(crate) const LARGE: &str = "BEGIN; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 600) \
                     INSERT INTO t (b) SELECT randomblob(3000) FROM n; UPDATE counter SET n = n + 600; COMMIT";
pub(crate) const NUMBER: &str = "SELECT n FROM counter";
/// Nothing is flushed unless it is asked for.
pub(crate) const LAZY: &str = "threshold=infinity";

pub(crate) fn create(path: &Path) {
    let connection = open(path, "");
    connection
        .execute_batch("CREATE TABLE counter (n); INSERT INTO counter VALUES (0); CREATE TABLE t (a INTEGER PRIMARY KEY, b)")
        .unwrap();
}

pub(crate) fn count_up(connection: &Connection, times: u32) {
    for _ in 0..times {
        connection.execute_batch(COUNT).unwrap();
    }
}

/// Has what is committed so far in the log, but not in the file.
pub(crate) fn flush(connection: &Connection) {
    connection.execute_batch("PRAGMA holdfast_level = power").unwrap();
    count_up(connection, 1);
    connection.execute_batch("PRAGMA holdfast_level = process").unwrap();
}

pub(crate) fn databases() -> Databases {
    Databases::of(&Places::from_env().unwrap())
}

/// The database among all that have images.
pub(crate) fn found(path: &Path) -> Database {
    let path = path.canonicalize().unwrap();
    let all = databases().list().unwrap();
    all.into_iter().find(|database| database.path.as_deref() == Some(&path)).unwrap()
}

pub(crate) fn save(path: &Path) -> Rescue {
    databases().save(&found(path)).unwrap()
}

/// Saves it, and returns the copy.
pub(crate) fn saved(path: &Path) -> PathBuf {
    let before = copies();
    assert!(matches!(save(path), Rescue::Written { .. }));
    let copy = copies().into_iter().find(|copy| !before.contains(copy));
    copy.unwrap_or_else(|| PathBuf::from("the one that was there"))
}

/// Tests that look at what is in the home, or tidy it, run one after the other.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn lose_the_pool(path: &Path) {
    std::fs::remove_file(&found(path).image).unwrap();
}

/// The copies that were saved of a database, wherever that is now.
pub(crate) fn copies() -> Vec<PathBuf> {
    let folder = Places::from_env().unwrap().store().join("databases");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

pub(crate) fn log_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-holdfast");
    name.into()
}

/// A process that commits so often, then waits to be killed. It tells its last number.
pub(crate) fn play(script: &str, folder: &Path) {
    let connection = open(&folder.join("db"), LAZY);
    for step in script.split(' ') {
        match step {
            "flush" => flush(&connection),
            "checkpoint" => connection.execute_batch("PRAGMA holdfast_checkpoint").unwrap(),
            "pause" => {
                println!("\ntold: {}", number(&connection, NUMBER));
                let go = folder.join("go on");
                while !go.exists() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                std::fs::remove_file(go).unwrap();
            }
            times => count_up(&connection, times.parse().unwrap()),
        }
    }
    println!("\ntold: {}", number(&connection, NUMBER));
    std::thread::sleep(Duration::from_secs(600));
}

pub(crate) fn go_on(folder: &Path) {
    std::fs::write(folder.join("go on"), "").unwrap();
}

pub(crate) fn assert_counted(connection: &Connection, expected: i64) {
    assert_eq!(number(connection, NUMBER), expected);
    assert_eq!(number(connection, "SELECT count(*) FROM t"), expected, "a part of a transaction");
    assert_sound(connection);
}
