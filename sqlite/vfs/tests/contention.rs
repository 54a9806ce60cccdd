//! Several writers of one database: who is refused has its turn soon, and no caller waits where
//! waiting would hold others up.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]
#![allow(
    unsafe_code,
    reason = "asks the VFS to sleep, as the busy handler does, and what SQLite is told of locks"
)]

mod common;

use std::path::Path;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use common::{Player, assert_sound, begin, number, open, scratch};
use rusqlite::{Connection, ErrorCode, ffi};

/// Two connections to a database that is in the pool, of which none waits for a lock longer than
/// the VFS does.
fn two(path: &Path) -> [Connection; 2] {
    let two = [open(path, ""), open(path, "")];
    two[0].execute_batch("CREATE TABLE IF NOT EXISTS t (a)").unwrap();
    two.iter().for_each(|connection| connection.busy_timeout(Duration::ZERO).unwrap());
    two
}

/// As SQLite is told it.
fn lock_level(connection: &Connection) -> i32 {
    let mut level = -1;
    // SAFETY: the connection is open; the answer is an integer.
    let code = unsafe {
        let (name, answer) = (c"main".as_ptr(), (&raw mut level).cast());
        ffi::sqlite3_file_control(connection.handle(), name, ffi::SQLITE_FCNTL_LOCKSTATE, answer)
    };
    assert_eq!(code, ffi::SQLITE_OK);
    level
}

fn is_busy(done: rusqlite::Result<()>) -> bool {
    done.is_err_and(|error| error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy))
}

/// A writer that was refused is the next to write; one that only reads instead delays no other
/// afterwards.
///
/// Guarantee: sqlite/fair-writers
#[test]
fn refused_writer_is_next_and_reading_frees_its_turn() {
    let folder = scratch();
    let [first, second] = two(&folder.path().join("db"));
    let mut tries = 0;
    for only_reads in [true, false] {
        loop {
            tries += 1;
            first.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES (1)").unwrap();
            let tried = Instant::now();
            assert!(is_busy(second.execute_batch("INSERT INTO t VALUES (2)")));
            first.execute_batch("COMMIT; BEGIN").unwrap();
            second.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
            // A claim is good for a second, which may have passed on a busy machine.
            if tried.elapsed() < Duration::from_millis(500) {
                break;
            }
            assert!(tries < 20, "this machine is too slow");
            first.execute_batch("ROLLBACK").unwrap();
            second.execute_batch("ROLLBACK").unwrap();
        }
        assert_eq!(lock_level(&second), 1, "SQLite has SHARED");
        // It would not get further than to its commit, as the other one reads.
        assert!(is_busy(first.execute_batch("INSERT INTO t VALUES (3)")));
        if !only_reads {
            second.execute_batch("INSERT INTO t VALUES (4)").unwrap();
        }
        first.execute_batch("ROLLBACK").unwrap();
        second.execute_batch("COMMIT").unwrap();
        // The first one was refused, too: its claim is used, or dropped with its next transaction.
        first.execute_batch("INSERT INTO t VALUES (5)").unwrap();
        second.execute_batch("INSERT INTO t VALUES (6)").unwrap();
    }
    assert_eq!(number(&first, "SELECT count(*) FROM t"), tries + 2 * 2 + 1);
    assert_sound(&second);
}

/// A program that gave up, and reads much later, is not about to write: others begin meanwhile, and
/// wait for it in their commits.
///
/// Guarantee: sqlite/fair-writers
#[test]
fn who_was_refused_long_ago_reads_as_anybody_else() {
    let folder = scratch();
    let [first, second] = two(&folder.path().join("db"));
    first.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(is_busy(second.execute_batch("INSERT INTO t VALUES (1)")));
    first.execute_batch("COMMIT").unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    second.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
    first.execute_batch("BEGIN; INSERT INTO t VALUES (2)").unwrap();
    assert!(is_busy(first.execute_batch("COMMIT")));
    second.execute_batch("COMMIT").unwrap();
    first.execute_batch("COMMIT").unwrap();
    assert_eq!(number(&second, "SELECT count(*) FROM t"), 1);
}

/// As SQLite's busy handler does.
fn sleep_us(asked: i32) -> i32 {
    // SAFETY: the VFS is registered, and has the function.
    unsafe {
        let vfs = ffi::sqlite3_vfs_find(c"holdfast".as_ptr());
        ((*vfs).xSleep.unwrap())(vfs, asked)
    }
}

/// A sleep of the busy handler ends when the lock is free and any other one when it should.
///
/// Guarantee: sqlite/busy-handler
#[test]
fn busy_handlers_sleep_ends_when_the_lock_is_free() {
    const ASKED_US: i32 = 5000;
    let folder = scratch();
    let [first, second] = two(&folder.path().join("db"));
    let mut shortest = [i32::MAX; 2];
    // A machine that does other things may wake anybody late.
    for _ in 0..50 {
        first.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert!(is_busy(second.execute_batch("INSERT INTO t VALUES (1)")));
        // It is still held, so that the whole is slept.
        shortest[0] = shortest[0].min(sleep_us(ASKED_US));
        assert!(is_busy(second.execute_batch("INSERT INTO t VALUES (1)")));
        first.execute_batch("COMMIT").unwrap();
        shortest[1] = shortest[1].min(sleep_us(ASKED_US));
        // That was the one sleep that the refusal was for.
        assert!(sleep_us(1000) >= 1000);
        second.execute_batch("INSERT INTO t VALUES (1)").unwrap();
    }
    // Of the busy timeout no more is taken than the first sleeps.
    first.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(is_busy(second.execute_batch("INSERT INTO t VALUES (1)")));
    first.execute_batch("COMMIT").unwrap();
    assert!(sleep_us(2 * ASKED_US) >= 2 * ASKED_US);
    assert!(shortest[0] >= ASKED_US && shortest[1] < ASKED_US / 2, "{shortest:?}");
}

/// How often in a row it was refused.
static REFUSED: AtomicI32 = AtomicI32::new(0);

fn try_again(refused: i32) -> bool {
    REFUSED.fetch_max(refused, Relaxed);
    std::thread::sleep(Duration::from_millis(1));
    true
}

/// Processes that write without a pause have their turns and lose nothing.
///
/// Guarantee: sqlite/fair-writers
#[test]
fn busy_writers_take_turns_and_lose_nothing() {
    const TEST: &str = "busy_writers_take_turns_and_lose_nothing";
    /// Refusals in a row, a millisecond each: a few, and more where the machine does other things.
    const REFUSED_MAX: i64 = 1000;
    const INSERTS: i64 = 300;
    let Some((_, folder)) = begin(
        |role, folder| {
            let mut connection = open(&folder.join("db"), "threshold=infinity");
            connection.busy_handler(Some(try_again)).unwrap();
            let mut insert = connection.prepare("INSERT INTO t VALUES (?1)").unwrap();
            let mut done = 0;
            // One of them as long as the others need.
            while if role == "on" { !folder.join("stop").exists() } else { done < INSERTS } {
                for _ in 0..10 {
                    insert.execute([role]).unwrap();
                }
                done += 10;
            }
            println!("\ntold: {}", if role == "on" { done } else { REFUSED.load(Relaxed).into() });
        },
        || (),
    ) else {
        return;
    };
    let path = folder.path().join("db");
    let connection = open(&path, "");
    connection.execute_batch("CREATE TABLE t (a)").unwrap();
    let mut on = Player::start(TEST, "on", folder.path());
    while number(&connection, "SELECT count(*) FROM t") == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut others = ["first", "second"].map(|role| Player::start(TEST, role, folder.path()));
    for other in &mut others {
        let refused = other.first("told: ");
        assert!(refused <= REFUSED_MAX, "refused {refused} times in a row");
    }
    std::fs::write(folder.path().join("stop"), "").unwrap();
    let done = on.first("told: ");
    assert_eq!(number(&connection, "SELECT count(*) FROM t"), done + 2 * INSERTS);
    assert_sound(&connection);
}
