//! Rows S1 and S2: the process dies in, or an error comes out of, the k-th call of the extension to
//! the VFS below it, for every k.
//!
//! After a death the database is sound and at the last acknowledged step or the one behind it.
//! After an error so it is, the steps behind it have worked or failed as a whole, and what was
//! acknowledged is there.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use holdfast_testkit::Trials;
use rusqlite::Connection;

use crate::engine;
use crate::faulty::{self, Fault};
use crate::script::{self, STEPS};
use crate::sides::{Ground, say};

/// Every other step is followed by a flush that its commit waits for; none comes at a time of its
/// own, so calls are counted alike.
const PARAMETERS: &str = "vfs=holdfast&threshold=4&flush=inline&flush_interval=off";
/// Between the steps the database goes over to WAL and comes back, and is released.
pub(crate) const MOVING: &str = "vfs=holdfast&threshold=4&flush=inline&flush_interval=off&wal=pass";
/// Each step is a session of its own, which ends before it is acknowledged.
pub(crate) const SESSIONS: &str = "vfs=holdfast&flush_interval=off&_sessions=each";
const SESSION_EACH: &str = "_sessions=each";
/// No sequence makes so many calls.
const CALLS_MAX: i64 = 5000;
/// So many fail in a process of its own each, when all do not fit into a short run.
const CASES: u64 = 500;

/// The role: goes through the sequence with a fault at one call. `acknowledged` gets a byte for
/// each step that was committed.
pub(crate) fn work(path: &Path, parameters: &str, fault: &str, at: i64, acknowledged: &Path) {
    faulty::register();
    engine::load();
    let mut told = File::create(acknowledged).unwrap();
    faulty::arm(Fault::named(fault), at);
    let (mut failures, mut in_wal) = (0_u32, 0);
    let is_moving = parameters.contains("wal=pass");
    let in_sessions = parameters.contains(SESSION_EACH);
    {
        // An open that fails is as good as any other step that does.
        let open = || engine::open(path, parameters);
        let mut open_one = None;
        match open().and_then(|connection| script::begin(&connection).map(|()| connection)) {
            Ok(connection) => {
                open_one = Some(connection).filter(|_| !in_sessions);
                told.write_all(b".").unwrap();
            }
            Err(_) => failures = u32::MAX,
        }
        let mut done = 0;
        while done < STEPS && failures <= 3 {
            let stepped = open_one.take().map_or_else(&open, Ok).and_then(|connection| {
                let moved = if is_moving { move_to(&connection, done) } else { Ok(String::new()) };
                let stepped =
                    moved.and_then(|mode| script::step(&connection, done + 1).map(|()| mode));
                open_one = Some(connection).filter(|_| !in_sessions);
                stepped
            });
            match stepped {
                Ok(mode) => {
                    in_wal += u32::from(mode == "wal");
                    done += 1;
                    told.write_all(b".").unwrap();
                }
                Err(_) => failures += 1,
            }
        }
    }
    let calls = faulty::calls();
    faulty::disarm();
    assert!(!is_moving || failures > 0 || in_wal == 2, "it was in WAL mode {in_wal} times");
    say(&format!("calls {calls} failures {failures}"));
}

/// Brings the database to where it is for the step behind this one, and says what SQLite answers.
fn move_to(connection: &Connection, done: i64) -> rusqlite::Result<String> {
    let pragma = match done % 7 {
        1 => "journal_mode = WAL",
        3 => "journal_mode = DELETE",
        5 => "holdfast_release",
        _ => return Ok(String::new()),
    };
    connection.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get(0))
}

/// Checks what is left after `words` were played with a fault at that call; `true` when the
/// sequence has fewer calls.
fn tried(parameters: &str, fault: &str, at: i64) -> bool {
    let ground = Ground::new();
    let (path, acknowledged) = (ground.database(), ground.folder.path().join("acknowledged"));
    let (path, acks) = (path.to_str().unwrap(), acknowledged.to_str().unwrap());
    let ended = ground.run(&["work", path, parameters, fault, &at.to_string(), acks]);
    let calls = ended.said().split(' ').nth(1).and_then(|word| word.parse::<i64>().ok());
    assert!(
        calls.is_some() || fault == "death",
        "{fault} at {at}: the process ended\n{}",
        ended.out
    );
    let told = std::fs::metadata(&acknowledged).map_or(0, |found| found.len() as i64);
    let said = ground.run(&["check", path]).well();
    let state: i64 = said.strip_prefix("state ").unwrap().parse().unwrap();
    // The first acknowledgement is that of step 0.
    let least = told - 1;
    assert!(
        (least..=least + 1).contains(&state),
        "{fault} at call {at}: {told} steps were acknowledged, and the database is at {state}"
    );
    calls.is_some_and(|calls| calls < at)
}

fn every_call(row: &'static str, what: &'static str, (parameters, fault): (&str, &str)) {
    let mut trials = Trials::of(row, what, CASES);
    let mut at = 0;
    while trials.next().is_some() {
        at += 1;
        assert!(at < CALLS_MAX, "the sequence does not end");
        if tried(parameters, fault, at) {
            break;
        }
    }
}

/// A process that dies in any system call leaves the state before or after.
///
/// Guarantee: sqlite/killed-writer
#[test]
fn death_in_any_call_leaves_before_or_after() {
    every_call("S1", "death in each call", (PARAMETERS, "death"));
}

/// An error in any system call loses nothing that was acknowledged.
///
/// Guarantee: sqlite/disk-errors
#[test]
fn error_in_any_call_loses_no_acknowledged_data() {
    every_call("S2", "an error in each call", (PARAMETERS, "error"));
}

/// A disk that is full from any system call on loses nothing that was acknowledged.
///
/// Guarantee: sqlite/disk-errors
#[test]
fn full_disk_from_any_call_loses_nothing() {
    every_call("S2", "a full disk from each call on", (PARAMETERS, "full"));
}

/// A disk that fails every operation from any system call on loses nothing that was acknowledged.
///
/// Guarantee: sqlite/disk-errors
#[test]
fn dead_disk_from_any_call_loses_nothing() {
    every_call("S2", "no call works from each call on", (MOVING, "broken"));
}

/// A process that dies in any call of a sequence of sessions, each with the log of the one before,
/// leaves the state before or after.
///
/// Guarantee: sqlite/side-file
#[test]
fn death_in_any_call_of_sessions_leaves_before_or_after() {
    every_call("S1", "death in each call, a session a step", (SESSIONS, "death"));
}

/// A process that dies while switching to WAL and back leaves the state before or after.
///
/// Guarantee: sqlite/killed-writer
#[test]
fn death_while_switching_wal_is_atomic() {
    every_call("S1", "death in each call, WAL and release", (MOVING, "death"));
}

/// An error while switching to WAL and back loses nothing that was acknowledged.
///
/// Guarantee: sqlite/killed-writer
#[test]
fn error_while_switching_wal_loses_nothing() {
    every_call("S2", "an error in each call, WAL and release", (MOVING, "error"));
}
