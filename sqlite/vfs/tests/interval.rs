//! The flush interval: a commit that is in the pool alone is in the log soon, whatever its process
//! does then.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]
#![allow(unsafe_code, reason = "one process forks")]

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::copies::{NUMBER, assert_counted, count_up, create, found, log_of, lose_the_pool};
use common::{Player, number, open, open_plain, role, scratch, statistic, try_open};

/// Many intervals of a second: nothing here depends on how busy the machine is.
const PATIENCE: Duration = Duration::from_secs(30);
/// So long nothing is flushed that would be after a second.
const LONG: Duration = Duration::from_millis(2500);

/// Whether log and file have all that is committed.
fn is_flushed(path: &Path) -> bool {
    found(path).unsaved_bytes == 0
}

fn wait_for_flush(path: &Path, what: &str) {
    let started = Instant::now();
    while !is_flushed(path) {
        assert!(started.elapsed() < PATIENCE, "{what}: nothing is flushed after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process that commits ten times and then does nothing any more. `fork` has a child that does
/// nothing either; `child` has one that commits, after its parent did.
fn commit_and_idle(role: &str, folder: &Path) {
    let (how, parameters) = role.split_once(' ').unwrap();
    let path = folder.join("db");
    let connection = open(&path, parameters);
    count_up(&connection, 10);
    let connection = match how {
        "child" if is_child() => {
            std::mem::forget(connection);
            let own = open(&path, parameters);
            count_up(&own, 5);
            own
        }
        "child" => {
            std::thread::sleep(Duration::from_secs(600));
            connection
        }
        "fork" => {
            let _ = is_child();
            connection
        }
        _ => connection,
    };
    if let Ok(found) = connection.query_row(NUMBER, [], |row| row.get::<_, i64>(0)) {
        println!("\ntold: {found}");
    }
    std::thread::sleep(Duration::from_secs(600));
}

/// Guarantee: sqlite/flush-interval
#[test]
fn an_idle_process_flushes_within_the_interval() {
    const TEST: &str = "an_idle_process_flushes_within_the_interval";
    if let Some((role, folder)) = role() {
        return commit_and_idle(&role, &folder);
    }
    for (role, expected) in [
        ("alone threshold=1000", 10),
        ("alone flush=inline", 10),
        ("alone level=system", 10),
        ("alone threshold=infinity&flush_interval=200ms", 10),
        ("fork threshold=1000", 10),
        ("child threshold=1000", 15),
    ] {
        let folder = scratch();
        let path = folder.path().join("db");
        create(&path);
        let mut player = Player::start(TEST, role, folder.path());
        assert_eq!(player.first("told: "), expected, "{role}");
        wait_for_flush(&path, role);
        // Which is what a lost pool leaves.
        player.kill("told: ");
        lose_the_pool(&path);
        assert_counted(&open_after_kill(&path), expected);
    }
}

/// A child that ends with its parent: true in the child.
fn is_child() -> bool {
    // SAFETY: what the child does is what programs do that fork, and this one has no other thread
    // with a lock.
    unsafe { libc::fork() == 0 && libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0 }
}

/// Opens a database whose processes are just being killed.
fn open_after_kill(path: &Path) -> rusqlite::Connection {
    let started = Instant::now();
    loop {
        match try_open(path, "") {
            Ok(connection) => return connection,
            Err(error) => assert!(started.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Guarantee: sqlite/flush-interval
#[test]
fn two_processes_keep_the_interval_together() {
    const TEST: &str = "two_processes_keep_the_interval_together";
    if let Some((role, folder)) = role() {
        return commit_and_idle(&role, &folder);
    }
    let folder = scratch();
    let path = folder.path().join("db");
    create(&path);
    let mut first = Player::start(TEST, "alone threshold=1000", folder.path());
    assert_eq!(first.first("told: "), 10);
    let mut second = Player::start(TEST, "alone threshold=1000", folder.path());
    assert_eq!(second.first("told: "), 20);
    wait_for_flush(&path, "two processes");
    first.kill("told: ");
    second.kill("told: ");
    lose_the_pool(&path);
    assert_counted(&open(&path, ""), 20);
}

/// A database with `off`, or without a flush before the close, gets none; and what an interval is
/// can be changed at any time.
///
/// Guarantee: sqlite/flush-interval
#[test]
fn the_interval_is_off_where_it_is_said_to_be() {
    for parameters in ["flush_interval=off", "threshold=infinity"] {
        let folder = scratch();
        let path = folder.path().join("db");
        create(&path);
        let connection = open(&path, parameters);
        count_up(&connection, 10);
        std::thread::sleep(LONG);
        assert!(!is_flushed(&path), "{parameters}");
        let interval =
            |sql: &str| connection.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
        assert_eq!(interval("PRAGMA holdfast_flush_interval"), "off");
        assert_eq!(interval("PRAGMA holdfast_flush_interval = '50ms'"), "50ms");
        wait_for_flush(&path, parameters);
        let flushes = statistic(&connection, "flushes");
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(
            statistic(&connection, "flushes"),
            flushes,
            "it flushes where nothing is committed"
        );
    }
    let connection = open(&scratch().path().join("db"), "");
    let text: String =
        connection.query_row("PRAGMA holdfast_flush_interval", [], |row| row.get(0)).unwrap();
    assert_eq!(text, "1000ms");
}

/// Commits of a killed process are flushed by the next.
///
/// Guarantee: sqlite/flush-interval
#[test]
fn killed_processes_commits_are_flushed_by_the_next() {
    const TEST: &str = "killed_processes_commits_are_flushed_by_the_next";
    if let Some((role, folder)) = role() {
        return commit_and_idle(&role, &folder);
    }
    let folder = scratch();
    let path = folder.path().join("db");
    create(&path);
    let mut player = Player::start(TEST, "alone flush_interval=off", folder.path());
    assert_eq!(player.first("told: "), 10);
    player.kill("told: ");
    assert!(!is_flushed(&path));
    // It reads, and commits nothing.
    let connection = open(&path, "flush_interval=100ms");
    wait_for_flush(&path, "the next one");
    assert_eq!(number(&connection, NUMBER), 10);
}

/// A process closes the database long before its interval is over, while another one has it open
/// that commits nothing.
///
/// Guarantee: sqlite/flush-interval
#[test]
fn close_beside_a_reader_flushes_own_commits() {
    const TEST: &str = "close_beside_a_reader_flushes_own_commits";
    if let Some((parameters, folder)) = role() {
        return count_up(&open(&folder.join("db"), &parameters), 10);
    }
    for (interval, expected) in [("1h", true), ("off", false)] {
        let folder = scratch();
        let path = folder.path().join("db");
        create(&path);
        let reader = open(&path, "");
        assert_eq!(number(&reader, NUMBER), 0);
        let parameters = format!("threshold=1000&flush_interval={interval}");
        Player::start(TEST, &parameters, folder.path()).finish();
        assert_eq!(is_flushed(&path), expected, "{interval}");
        assert_eq!(number(&reader, NUMBER), 10);
    }
}

/// Also where no process commits any more.
///
/// Guarantee: sqlite/flush-interval
#[test]
fn a_flush_that_failed_is_tried_again() {
    let folder = scratch();
    let path = folder.path().join("db");
    create(&path);
    let connection = open(&path, "flush_interval=100ms");
    count_up(&connection, 1);
    wait_for_flush(&path, "the first");
    let log = log_of(&path);
    std::fs::remove_file(&log).unwrap();
    std::fs::create_dir(&log).unwrap();
    count_up(&connection, 9);
    std::thread::sleep(Duration::from_secs(1));
    assert!(!is_flushed(&path));
    std::fs::remove_dir(&log).unwrap();
    wait_for_flush(&path, "after the failure");
    drop(connection);
    assert_counted(&open_plain(&path), 10);
}
