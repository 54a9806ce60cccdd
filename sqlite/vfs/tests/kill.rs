//! The VFS over several processes, some of which die: no commit that was acknowledged is lost, none
//! is half there, and no process is held up.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]
#![allow(unsafe_code, reason = "one test forks")]

mod common;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdfast_testkit::Trials;
use rand::RngExt;

use common::copies::{COUNT, create};
use common::{
    Player, assert_sound, number, open, open_plain, role, scratch, statistic, tell_and_wait,
    try_open,
};

/// How often each fault is tried.
const ROUNDS: u64 = 10;

/// A writer that tells each commit of its own, and never ends.
fn write_on(path: &Path, parameters: &str, sql: &str) {
    let connection = open(path, parameters);
    connection.execute_batch("PRAGMA cache_size=20").unwrap();
    loop {
        connection.execute_batch(sql).unwrap();
        println!("\ntold: {}", number(&connection, "SELECT n FROM counter"));
    }
}

/// Starts a writer, and kills it some time after its first commits.
fn kill_after(test: &str, role: &str, folder: &Path, round: u64) -> i64 {
    let mut player = Player::start(test, role, folder);
    let first = player.first("told: ");
    std::thread::sleep(Duration::from_micros(round * 1777 % 20_000));
    player.kill("told: ").unwrap_or(first)
}

/// A killed writer loses no commit that it acknowledged.
///
/// Guarantee: sqlite/killed-writer
#[test]
fn killed_writer_loses_no_acknowledged_commit() {
    const TEST: &str = "killed_writer_loses_no_acknowledged_commit";
    if let Some((role, folder)) = role() {
        return write_on(&folder.join("db"), &role, COUNT);
    }
    let folder = scratch();
    let path = folder.path().join("db");
    create(&path);
    let ways = [
        "threshold=infinity",
        "threshold=0&flush=inline",
        "threshold=5",
        "level=power",
        "pool_limit=1048576&threshold=20",
    ];
    for round in 0..ROUNDS {
        let way = ways[round as usize % ways.len()];
        let told = kill_after(TEST, way, folder.path(), round);
        let connection = open(&path, "");
        let found = number(&connection, "SELECT n FROM counter");
        assert!(found == told || found == told + 1, "{way}: {told} acknowledged, {found} there");
        assert_eq!(
            number(&connection, "SELECT count(*) FROM t"),
            found,
            "{way}: a part of a transaction"
        );
        assert_sound(&connection);
        if round % 3 == 0 {
            drop(connection);
            assert_sound(&open_plain(&path));
        } else {
            // Nor does the next writer's death hurt a process that has the database open.
            let told = kill_after(TEST, way, folder.path(), round + 5);
            let found = number(&connection, "SELECT n FROM counter");
            assert!(
                found == told || found == told + 1,
                "{way}: {told} acknowledged, {found} there, taken over"
            );
            connection.execute_batch(COUNT).unwrap();
            assert_sound(&connection);
        }
    }
}

/// When the pool is lost the database is whole and as of a flush.
///
/// Guarantee: sqlite/level-power
/// Guarantee: sqlite/lost-pool
#[test]
fn lost_pool_leaves_a_whole_database_as_of_a_flush() {
    const TEST: &str = "lost_pool_leaves_a_whole_database_as_of_a_flush";
    if let Some((role, folder)) = role() {
        return write_on(&folder.join("db"), &role, COUNT);
    }
    let folder = scratch();
    let path = folder.path().join("db");
    create(&path);
    let ways = ["threshold=infinity", "threshold=5", "level=power", "threshold=0&flush=inline"];
    for round in 0..ROUNDS {
        let way = ways[round as usize % ways.len()];
        let before = number(&open_plain(&path), "SELECT n FROM counter");
        let told = kill_after(TEST, way, folder.path(), round);
        let image = holdfast_sqlite::status(&path).unwrap().image.unwrap();
        std::fs::remove_file(image).unwrap();
        if round % 2 == 0 {
            let recovered = holdfast_sqlite::recover(&path, false).unwrap();
            assert_eq!(recovered, holdfast_sqlite::Recovered::LastFlush);
        }
        let connection = open(&path, "");
        let found = number(&connection, "SELECT n FROM counter");
        assert!(found >= before && found <= told + 1, "{way}: {told} acknowledged, {found} there");
        match way {
            "level=power" => assert!(found >= told, "{way}: {told} acknowledged, {found} there"),
            "threshold=infinity" => assert_eq!(found, before),
            _ => {}
        }
        assert_eq!(
            number(&connection, "SELECT count(*) FROM t"),
            found,
            "{way}: a part of a transaction"
        );
        assert_sound(&connection);
    }
}

/// Rows of 1 KiB in random order, a commit each, numbered in the order of the commits.
fn insert_on(path: &Path, parameters: &str) {
    let connection = open(path, parameters);
    let mut insert =
        connection.prepare("INSERT INTO rows VALUES (?1, ?2, zeroblob(1000))").unwrap();
    let first = number(&connection, "SELECT count(*) FROM rows") + 1;
    let mut told = Instant::now();
    for row in first.. {
        // A permutation of the numbers below 2^20.
        insert.execute((row * 0x9_e375 % (1 << 20), row)).unwrap();
        if row == first || told.elapsed() > Duration::from_millis(2) {
            println!("\ntold: {row}");
            told = Instant::now();
        }
    }
}

/// A process that dies with many rows under way, past each threshold, with flushes and checkpoints
/// going on, loses no row; with the pool it loses the last ones only.
///
/// Row S10 of `cargo xtask crash`.
///
/// Guarantee: sqlite/killed-writer
/// Guarantee: sqlite/lost-pool
#[test]
fn kills_and_lost_pools_amid_many_rows() {
    const TEST: &str = "kills_and_lost_pools_amid_many_rows";
    /// The database is begun anew with so many rows.
    const ROWS_MAX: i64 = 100_000;
    if let Some((role, folder)) = role() {
        return insert_on(&folder.join("db"), &role);
    }
    let ways = ["", "pool_limit=4194304", "pool_limit=4194304&threshold=50", "pool_limit=1048576"];
    let mut trials = Trials::of("S10", "death, or death and a lost pool, amid many rows", 12);
    let mut folder = scratch();
    let mut is_lost = false;
    while let Some(mut trial) = trials.next() {
        let path = folder.path().join("db");
        if !path.exists() {
            let table = "CREATE TABLE rows (a INTEGER PRIMARY KEY, row INTEGER, content)";
            open(&path, "").execute_batch(table).unwrap();
        }
        let way = ways[trial.random.random_range(0..ways.len())];
        let before = number(&open_plain(&path), "SELECT count(*) FROM rows");
        let mut player = Player::start(TEST, way, folder.path());
        let first = player.first("told: ");
        std::thread::sleep(Duration::from_micros(trial.random.random_range(0..150_000)));
        let told = player.kill("told: ").unwrap_or(first);
        if is_lost {
            std::fs::remove_file(holdfast_sqlite::status(&path).unwrap().image.unwrap()).unwrap();
        }
        let connection = open(&path, "");
        let found = number(&connection, "SELECT count(*) FROM rows");
        let last = number(&connection, "SELECT coalesce(max(row), 0) FROM rows");
        let seed = trial.seed;
        assert_eq!(found, last, "{way}, seed {seed}: a row is missing");
        match is_lost {
            true => assert!(found >= before, "{way}, seed {seed}: {before} before, {found} there"),
            false => assert!(found >= told, "{way}, seed {seed}: {told} told, {found} there"),
        }
        assert_sound(&connection);
        drop(connection);
        is_lost = !is_lost;
        if found > ROWS_MAX {
            folder = scratch();
        }
    }
}

/// Two processes that write at level power lose none of each other's commits with the pool.
///
/// Guarantee: sqlite/level-power
#[test]
fn two_power_writers_lose_no_commit_with_the_pool() {
    const TEST: &str = "two_power_writers_lose_no_commit_with_the_pool";
    const ONE: &str = "UPDATE counter SET n = n + 1; INSERT INTO t (b) VALUES (randomblob(3000))";
    if let Some((role, folder)) = role() {
        let connection = open(&folder.join("db"), "level=power&threshold=infinity");
        let commit = |count: u32| {
            for _ in 0..count {
                connection.execute_batch(&format!("BEGIN; {ONE}; COMMIT")).unwrap();
            }
            println!("\ntold: {}", number(&connection, "SELECT n FROM counter"));
        };
        // The log grows by what is written ahead, several times; the other one has known it when it
        // was short.
        commit(if role == "first" { 1 } else { 150 });
        while role == "first" && !folder.join("go on").exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        if role == "first" {
            commit(1);
        }
        std::thread::sleep(Duration::from_secs(600));
        return;
    }
    let folder = scratch();
    let path = folder.path().join("db");
    create(&path);
    let mut first = Player::start(TEST, "first", folder.path());
    assert_eq!(first.first("told: "), 1);
    let mut second = Player::start(TEST, "second", folder.path());
    assert_eq!(second.first("told: "), 151);
    std::fs::write(folder.path().join("go on"), "").unwrap();
    assert_eq!(first.first("told: "), 152);
    first.kill("told: ");
    second.kill("told: ");
    std::fs::remove_file(holdfast_sqlite::status(&path).unwrap().image.unwrap()).unwrap();
    assert_eq!(
        holdfast_sqlite::recover(&path, false).unwrap(),
        holdfast_sqlite::Recovered::LastFlush
    );
    let plain = open_plain(&path);
    assert_eq!(number(&plain, "SELECT n FROM counter"), 152);
    assert_sound(&plain);
}

/// A journal whose writer died while it wrote it undoes nothing that was committed later.
///
/// Guarantee: sqlite/outgrown-pool
#[test]
fn dead_writers_journal_undoes_nothing_later() {
    const TEST: &str = "dead_writers_journal_undoes_nothing_later";
    const BYTES_MAX: u64 = 512 << 10;
    if let Some((_, folder)) = role() {
        let connection = open(&folder.join("db"), "pool_limit=1048576&threshold=infinity");
        connection.execute_batch("PRAGMA cache_size=10; PRAGMA holdfast_checkpoint").unwrap();
        println!("\ntold: 1");
        // What outgrows the limit, the journal alone, kills; and no core is dumped.
        for (resource, bytes) in [(libc::RLIMIT_CORE, 0), (libc::RLIMIT_FSIZE, BYTES_MAX)] {
            let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
            // SAFETY: the pointer is valid.
            assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0);
        }
        connection.execute_batch("BEGIN; UPDATE t SET b = zeroblob(3000); COMMIT").unwrap();
        println!("\ntold: 2");
        return;
    }
    let folder = scratch();
    let path = folder.path().join("db");
    create(&path);
    let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 600) \
                INSERT INTO t (b) SELECT randomblob(3000) FROM n";
    open(&path, "").execute_batch(fill).unwrap();
    let mut player = Player::start(TEST, "writer", folder.path());
    assert_eq!(player.first("told: "), 1);
    assert_eq!(player.next("told: "), None, "the limit did not kill it");
    let journal = folder.path().join("db-journal");
    assert_eq!(
        std::fs::metadata(&journal).unwrap().len(),
        BYTES_MAX,
        "it did not die in its journal"
    );
    // Only SQLite can roll it back.
    assert_eq!(
        holdfast_sqlite::recover(&path, false).unwrap(),
        holdfast_sqlite::Recovered::JournalLeft
    );
    let connection = open(&path, "");
    assert_sound(&connection);
    connection.execute_batch("UPDATE t SET b = 'newer' WHERE a % 50 = 0").unwrap();
    drop(connection);
    let plain = open_plain(&path);
    assert_eq!(number(&plain, "SELECT count(*) FROM t WHERE b = 'newer'"), 12);
    assert_eq!(number(&plain, "SELECT count(*) FROM t WHERE b = zeroblob(3000)"), 0);
    assert_sound(&plain);
    assert!(!journal.exists());
}

/// A process dies in the transaction that makes a database and has outgrown the pool: the next one
/// finds it empty, and loses nothing that it commits.
///
/// Guarantee: sqlite/outgrown-pool
#[test]
fn dead_outgrown_creation_costs_no_later_commit() {
    const TEST: &str = "dead_outgrown_creation_costs_no_later_commit";
    if let Some((_, folder)) = role() {
        let connection = open(&folder.join("db"), "pool_limit=1048576");
        connection
            .execute_batch(
                "PRAGMA cache_size=20; BEGIN; CREATE TABLE t (a INTEGER PRIMARY KEY, b); \
                 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500) \
                 INSERT INTO t (b) SELECT randomblob(3000) FROM n",
            )
            .unwrap();
        return tell_and_wait();
    }
    let folder = scratch();
    let path = folder.path().join("db");
    Player::start(TEST, "writer", folder.path()).kill_when_told();
    assert!(folder.path().join("db-journal").exists(), "it did not outgrow the pool");
    create(&path);
    let plain = open_plain(&path);
    assert_eq!(number(&plain, "SELECT n FROM counter"), 0);
    assert_sound(&plain);
}

/// Dies in a transaction that outgrew the pool, behind a commit, or does nothing.
fn outgrow(role: &str, folder: &Path) {
    let connection = open(&folder.join("db"), "pool_limit=1048576");
    if role == "writer" {
        connection
            .execute_batch(
                "PRAGMA cache_size=20; UPDATE counter SET n = 1; BEGIN; UPDATE counter SET n = 99; \
                 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500) \
                 INSERT INTO t (b) SELECT randomblob(3000) FROM n",
            )
            .unwrap();
    }
    tell_and_wait();
}

/// Creates a database whose writer is killed in a transaction that outgrew the pool, and returns
/// its path and that of its journal. `before` is what happens to the new database before that.
fn create_outgrown<T>(
    test: &str,
    folder: &Path,
    before: impl FnOnce(&Path) -> T,
) -> ([PathBuf; 2], T) {
    let [path, journal] = ["db", "db-journal"].map(|name| folder.join(name));
    create(&path);
    let found = before(&path);
    Player::start(test, "writer", folder).kill_when_told();
    assert!(journal.exists(), "it did not outgrow the pool");
    ([path, journal], found)
}

/// A process dies in a transaction that outgrew the pool, and a program without the VFS rolls its
/// journal back and goes on: so does the VFS then, with what is in the file, also in a process that
/// had the database open all the while, and also where another one took over from the dead one
/// before.
///
/// Guarantee: sqlite/outgrown-pool
/// Guarantee: sqlite/without-the-vfs
#[test]
fn journal_rolled_back_without_the_vfs_is_done_with() {
    const TEST: &str = "journal_rolled_back_without_the_vfs_is_done_with";
    if let Some((role, folder)) = role() {
        return outgrow(&role, &folder);
    }
    let ways = [
        ("dead", "DELETE"),
        ("dead", "PERSIST"),
        ("recovered", "DELETE"),
        ("opened and closed", "PERSIST"),
        ("idle", "DELETE"),
        ("idle, taken over", "DELETE"),
        ("idle, taken over", "PERSIST"),
    ];
    for (way, mode) in ways {
        let folder = scratch();
        let ([path, journal], other) = create_outgrown(TEST, folder.path(), |path| {
            way.starts_with("idle").then(|| open(path, ""))
        });
        match way {
            "recovered" => assert_eq!(
                holdfast_sqlite::recover(&path, false).unwrap(),
                holdfast_sqlite::Recovered::JournalLeft
            ),
            "opened and closed" => drop(open(&path, "")),
            "idle, taken over" => Player::start(TEST, "opener", folder.path()).kill_when_told(),
            _ => {}
        }
        assert!(journal.exists(), "{way}");
        let plain = open_plain(&path);
        assert_eq!(number(&plain, "SELECT n FROM counter"), 1, "{way}");
        let update = format!("PRAGMA journal_mode={mode}; UPDATE counter SET n = 2");
        plain.execute_batch(&update).unwrap();
        drop(plain);
        // What PERSIST leaves is settled.
        assert_eq!(journal.exists(), mode == "PERSIST", "{way}");
        let status = holdfast_sqlite::status(&path).unwrap();
        let is_complete = status.state == holdfast_sqlite::State::Complete;
        assert!(is_complete, "{way}, {mode}: {:?}", status.problem);
        let connection = other.unwrap_or_else(|| open(&path, ""));
        assert_eq!(number(&connection, "SELECT n FROM counter"), 2, "{way}, {mode}");
        connection.execute_batch("UPDATE counter SET n = 3").unwrap();
        drop(connection);
        let plain = open_plain(&path);
        assert_eq!(number(&plain, "SELECT n FROM counter"), 3, "{way}, {mode}");
        assert_eq!(number(&plain, "SELECT count(*) FROM t"), 0, "{way}, {mode}");
        assert_sound(&plain);
    }
}

/// A program without the VFS rolls such a journal back and is in a transaction of its own: the
/// database is busy, and not said to be left by a dead one.
///
/// Guarantee: sqlite/outgrown-pool
/// Guarantee: sqlite/without-the-vfs
#[test]
fn file_that_others_write_after_a_rollback_is_busy() {
    const TEST: &str = "file_that_others_write_after_a_rollback_is_busy";
    const NUMBER: &str = "SELECT n FROM counter";
    if let Some((role, folder)) = role() {
        if role == "writer" {
            return outgrow(&role, &folder);
        }
        let plain = open_plain(&folder.join("db"));
        // Without syncs a journal is valid from its first byte on.
        plain
            .execute_batch("PRAGMA synchronous=OFF; BEGIN IMMEDIATE; UPDATE counter SET n = 99")
            .unwrap();
        return tell_and_wait();
    }
    let folder = scratch();
    let ([path, journal], ()) = create_outgrown(TEST, folder.path(), |_| ());
    let mut plain = Player::start(TEST, "plain", folder.path());
    plain.first("told: ");
    let journal = std::fs::read(journal).unwrap();
    assert!(journal.starts_with(&[0xd9, 0xd5]), "no program would roll it back");
    let status = holdfast_sqlite::status(&path).unwrap();
    assert_eq!(status.state, holdfast_sqlite::State::Writing, "{:?}", status.problem);
    let read = |connection: &rusqlite::Connection| {
        connection.query_row(NUMBER, [], |row| row.get::<_, i64>(0))
    };
    let refused = try_open(&path, "").and_then(|connection| read(&connection)).unwrap_err();
    let expected = Some(rusqlite::ErrorCode::DatabaseBusy);
    assert_eq!(refused.sqlite_error_code(), expected, "{refused}");
    plain.kill("told: ");
    assert_eq!(number(&open_plain(&path), NUMBER), 1);
    let connection = open(&path, "");
    assert_eq!(number(&connection, NUMBER), 1);
    assert_sound(&connection);
}

/// A program without the VFS dies while it rolls such a journal back, behind the first page: the
/// database is refused, with what to do, until another one has ended that. So it is in SQLite's
/// exclusive mode, which gives no lock back behind the refusal.
///
/// Guarantee: sqlite/outgrown-pool
/// Guarantee: sqlite/without-the-vfs
#[test]
fn half_rolled_back_journal_is_left_to_sqlite() {
    const TEST: &str = "half_rolled_back_journal_is_left_to_sqlite";
    const NUMBER: &str = "SELECT n FROM counter";
    if let Some((role, folder)) = role() {
        return outgrow(&role, &folder);
    }
    for way in ["alone", "idle", "exclusive"] {
        let folder = scratch();
        let ([path, journal], (file, other)) = create_outgrown(TEST, folder.path(), |path| {
            let mut file = std::fs::read(path).unwrap();
            file.truncate(100);
            let other = (way != "alone").then(|| open(path, ""));
            if let ("exclusive", Some(other)) = (way, &other) {
                other.execute_batch("PRAGMA locking_mode=EXCLUSIVE").unwrap();
            }
            (file, other)
        });
        std::fs::File::options().write(true).open(&path).unwrap().write_all_at(&file, 0).unwrap();
        let status = holdfast_sqlite::status(&path).unwrap();
        assert_eq!(status.state, holdfast_sqlite::State::Refused);
        assert!(status.problem.as_ref().is_some_and(|problem| problem.contains("db-journal")));
        let read = |connection: &rusqlite::Connection| {
            connection.query_row(NUMBER, [], |row| row.get::<_, i64>(0))
        };
        let refused = match &other {
            Some(other) => read(other),
            None => try_open(&path, "").and_then(|connection| read(&connection)),
        };
        let refused = refused.unwrap_err();
        let expected = Some(rusqlite::ErrorCode::CannotOpen);
        assert_eq!(refused.sqlite_error_code(), expected, "{way}: {refused}");
        assert!(journal.exists());
        let plain = open_plain(&path);
        assert_eq!(number(&plain, NUMBER), 1);
        drop(plain);
        let connection = other.unwrap_or_else(|| open(&path, ""));
        // Not for as long as the other tests wait, should it never come free.
        connection.busy_timeout(Duration::from_secs(5)).unwrap();
        assert_eq!(number(&connection, NUMBER), 1, "{way}");
        connection.execute_batch("UPDATE counter SET n = 2").unwrap();
        drop(connection);
        let plain = open_plain(&path);
        assert_eq!(number(&plain, NUMBER), 2);
        assert_sound(&plain);
    }
}

/// A transaction that outgrew the pool and did not change the first page: a program without the VFS
/// rolls its journal back, and refuses the file, which is still marked. The VFS goes on with it,
/// and takes the settled journal away, which its next transaction is not to use. One that only
/// reads leaves it.
///
/// Guarantee: sqlite/outgrown-pool
/// Guarantee: sqlite/without-the-vfs
#[test]
fn marked_file_is_complete_once_rolled_back_elsewhere() {
    const TEST: &str = "marked_file_is_complete_once_rolled_back_elsewhere";
    const FILLED: &str = "SELECT count(*) FROM t WHERE b = zeroblob(3000)";
    if let Some((role, folder)) = role() {
        let connection = open(&folder.join("db"), "pool_limit=1048576");
        if role == "writer" {
            let update = "PRAGMA cache_size=20; BEGIN; UPDATE t SET b = zeroblob(3000)";
            connection.execute_batch(update).unwrap();
        }
        return tell_and_wait();
    }
    let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500) \
                INSERT INTO t (b) SELECT randomblob(3000) FROM n";
    let folder = scratch();
    let ([path, journal], (plain, connection)) = create_outgrown(TEST, folder.path(), |path| {
        open(path, "").execute_batch(fill).unwrap();
        let plain = open_plain(path);
        plain.execute_batch("PRAGMA journal_mode=PERSIST").unwrap();
        (plain, open(path, ""))
    });
    Player::start(TEST, "opener", folder.path()).kill_when_told();
    assert!(std::fs::read(&journal).unwrap().starts_with(&[0xd9]), "it did not outgrow the pool");
    let refused = plain.query_row(FILLED, [], |row| row.get::<_, i64>(0)).unwrap_err();
    let expected = Some(rusqlite::ErrorCode::NotADatabase);
    assert_eq!(refused.sqlite_error_code(), expected, "{refused}");
    drop(plain);
    assert!(std::fs::read(&journal).unwrap().starts_with(&[0]), "it was not settled");
    let reader = open(&path, "mode=ro");
    assert_eq!(number(&reader, FILLED), 0);
    drop(reader);
    assert!(std::fs::read(&journal).unwrap().starts_with(&[0]), "one that reads changed it");
    assert_eq!(number(&connection, FILLED), 0);
    assert!(!journal.exists());
    connection.execute_batch("UPDATE counter SET n = 1").unwrap();
    drop(connection);
    let plain = open_plain(&path);
    assert_eq!(number(&plain, "SELECT n FROM counter"), 1);
    assert_eq!(number(&plain, FILLED), 0);
    assert_sound(&plain);
}

/// A journal that cannot be looked at is not taken for none: nothing is read past it.
///
/// Guarantee: sqlite/outgrown-pool
#[test]
fn hidden_journal_is_not_passed_over() {
    const TEST: &str = "hidden_journal_is_not_passed_over";
    if let Some((_, folder)) = role() {
        let connection = open(&folder.join("db"), "pool_limit=1048576");
        connection
            .execute_batch(
                "PRAGMA cache_size=20; BEGIN; UPDATE counter SET n = 99; \
                 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500) \
                 INSERT INTO t (b) SELECT randomblob(3000) FROM n",
            )
            .unwrap();
        return tell_and_wait();
    }
    let folder = scratch();
    let ([path, journal], ()) = create_outgrown(TEST, folder.path(), |_| ());
    let aside = folder.path().join("aside");
    std::fs::rename(&journal, &aside).unwrap();
    // A symbolic link to itself: the kernel answers ELOOP.
    std::os::unix::fs::symlink(&journal, &journal).unwrap();
    let connection = open(&path, "");
    let refused =
        connection.query_row("SELECT n FROM counter", [], |row| row.get::<_, i64>(0)).unwrap_err();
    let expected = Some(rusqlite::ErrorCode::SystemIoFailure);
    assert_eq!(refused.sqlite_error_code(), expected, "{refused}");
    std::fs::rename(&aside, &journal).unwrap();
    assert_eq!(number(&connection, "SELECT n FROM counter"), 0);
    assert_eq!(number(&connection, "SELECT count(*) FROM t"), 0);
    assert_sound(&connection);
    drop(connection);
    assert!(!journal.exists());
    assert_sound(&open_plain(&path));
}

/// A program without the VFS dies beside a reader, before it has written to the file: the journal
/// that it leaves undoes nothing of what the reader commits then.
///
/// Guarantee: sqlite/same-results
/// Guarantee: sqlite/ordinary-file
#[test]
fn journal_left_beside_a_reader_undoes_nothing() {
    const TEST: &str = "journal_left_beside_a_reader_undoes_nothing";
    if let Some((_, folder)) = role() {
        let plain = open_plain(&folder.join("db"));
        // Without syncs a journal is valid from its first byte on.
        plain
            .execute_batch(
                "PRAGMA synchronous=OFF; BEGIN IMMEDIATE; UPDATE counter SET n = 99; \
                 INSERT INTO t (b) VALUES ('none')",
            )
            .unwrap();
        return tell_and_wait();
    }
    let folder = scratch();
    let path = folder.path().join("db");
    create(&path);
    let connection = open(&path, "");
    connection.execute_batch("BEGIN").unwrap();
    assert_eq!(number(&connection, "SELECT n FROM counter"), 0);
    Player::start(TEST, "plain", folder.path()).kill_when_told();
    let journal = std::fs::read(folder.path().join("db-journal")).unwrap();
    assert!(journal.starts_with(&[0xd9, 0xd5]), "no program would roll it back");
    connection.execute_batch("UPDATE counter SET n = 1; COMMIT").unwrap();
    connection.execute_batch("BEGIN; UPDATE counter SET n = 2; COMMIT").unwrap();
    drop(connection);
    let plain = open_plain(&path);
    assert_eq!(number(&plain, "SELECT n FROM counter"), 2);
    assert_eq!(number(&plain, "SELECT count(*) FROM t"), 0);
    assert_sound(&plain);
}

/// A transaction on the disk whose process dies is rolled back with and without the pool.
///
/// Guarantee: sqlite/outgrown-pool
#[test]
fn dead_disk_transaction_is_rolled_back_either_way() {
    const TEST: &str = "dead_disk_transaction_is_rolled_back_either_way";
    const LARGE: &str = "BEGIN; UPDATE counter SET n = n + 1; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n \
                         WHERE i < 1500) INSERT INTO t (b) SELECT hex(randomblob(500)) FROM n; UPDATE t SET b = b || 'y' \
                         WHERE a % 3 = 0; COMMIT";
    if let Some((role, folder)) = role() {
        return write_on(&folder.join("db"), &role, LARGE);
    }
    let folder = scratch();
    let path = folder.path().join("db");
    create(&path);
    for round in 0..ROUNDS {
        let told = {
            let mut player = Player::start(TEST, "pool_limit=1048576", folder.path());
            let first = player.first("told: ");
            std::thread::sleep(Duration::from_millis(round * 13 % 60));
            player.kill("told: ").unwrap_or(first)
        };
        if round % 3 == 2 {
            std::fs::remove_file(holdfast_sqlite::status(&path).unwrap().image.unwrap()).unwrap();
        }
        let connection = open(&path, "pool_limit=1048576");
        let found = number(&connection, "SELECT n FROM counter");
        assert!(found == told || found == told + 1, "{told} acknowledged, {found} there");
        assert_eq!(
            number(&connection, "SELECT count(*) FROM t"),
            found * 1500,
            "a part of a transaction"
        );
        assert_sound(&connection);
        connection.execute_batch("UPDATE t SET b = b || 'z' WHERE a < 10").unwrap();
    }
}

/// A commit over databases of both kinds is in all or none after a kill.
///
/// Guarantee: sqlite/attached
#[test]
fn mixed_commit_is_in_all_databases_or_none() {
    const TEST: &str = "mixed_commit_is_in_all_databases_or_none";
    let names = |folder: &Path| ["db", "two", "three"].map(|name| folder.join(name));
    let attach = |folder: &Path| {
        let [one, two, three] = names(folder);
        let connection = open(&one, "threshold=5");
        connection
            .execute("ATTACH ? AS two", [format!("file:{}?vfs=holdfast", two.display())])
            .unwrap();
        connection
            .execute("ATTACH ? AS three", [format!("file:{}?vfs=unix", three.display())])
            .unwrap();
        connection
    };
    if let Some((_, folder)) = role() {
        let connection = attach(&folder);
        loop {
            connection
                .execute_batch(
                    "BEGIN; UPDATE counter SET n = n + 1; UPDATE two.counter SET n = n + 1; \
                     UPDATE three.counter SET n = n + 1; COMMIT",
                )
                .unwrap();
            println!("\ntold: {}", number(&connection, "SELECT n FROM counter"));
        }
    }
    let folder = scratch();
    for path in names(folder.path()) {
        create(&path);
    }
    for round in 0..ROUNDS {
        let told = kill_after(TEST, "writer", folder.path(), round);
        let paths = names(folder.path());
        let mut found = [0; 3];
        // Whichever is recovered first, the answer is the same.
        for step in 0..3 {
            let number_of = (round as usize + step) % 3;
            let path = &paths[number_of];
            let connection = if number_of == 2 { open_plain(path) } else { open(path, "") };
            found[number_of] = number(&connection, "SELECT n FROM counter");
            assert_sound(&connection);
        }
        assert!(found.iter().all(|one| *one == found[0]), "{found:?} after {told}, round {round}");
        assert!(found[0] == told || found[0] == told + 1, "{found:?} after {told}");
        let left = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let left: Vec<String> =
            left.filter(|name| ["db-journal", "two-journal"].contains(&name.as_str())).collect();
        assert!(left.is_empty(), "{left:?} is left");
    }
}

/// A process dies in a transaction after a commit over attached databases that failed, in SQLite's
/// exclusive mode: the transaction is not taken for the one that had been prepared.
///
/// Guarantee: sqlite/attached
/// Guarantee: sqlite/killed-writer
#[test]
fn transaction_after_a_failed_attached_commit_is_dropped() {
    const TEST: &str = "transaction_after_a_failed_attached_commit_is_dropped";
    if let Some((_, folder)) = role() {
        let [one, two, aside] = ["one", "two", "aside"].map(|name| folder.join(name));
        let connection = open(&one, "threshold=infinity");
        let second = format!("file:{}?vfs=holdfast&level=power", two.display());
        connection.execute("ATTACH ? AS two", [second]).unwrap();
        connection.execute_batch("PRAGMA locking_mode=EXCLUSIVE; PRAGMA cache_size=5").unwrap();
        connection.execute_batch("CREATE TABLE t (a); CREATE TABLE two.u (a)").unwrap();
        // The second database cannot be prepared.
        std::fs::rename(&two, &aside).unwrap();
        let both = "BEGIN; INSERT INTO t VALUES (1); INSERT INTO u VALUES (1); COMMIT";
        assert!(connection.execute_batch(both).is_err());
        let _ = connection.execute_batch("ROLLBACK");
        std::fs::rename(&aside, &two).unwrap();
        connection
            .execute_batch(
                "INSERT INTO u VALUES (2); BEGIN; \
                 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) \
                 INSERT INTO t SELECT randomblob(3000) FROM n",
            )
            .unwrap();
        return tell_and_wait();
    }
    let folder = scratch();
    Player::start(TEST, "writer", folder.path()).kill_when_told();
    for (name, sql, expected) in
        [("one", "SELECT count(*) FROM t", 0), ("two", "SELECT sum(a) FROM u", 2)]
    {
        let connection = open(&folder.path().join(name), "");
        assert_sound(&connection);
        assert_eq!(number(&connection, sql), expected);
    }
}

/// Processes share a database, and each other's commits count once.
///
/// Guarantee: sqlite/processes-share
#[test]
fn shared_commits_count_exactly_once() {
    const TEST: &str = "shared_commits_count_exactly_once";
    if let Some((_, folder)) = role() {
        let connection = open(&folder.join("db"), "threshold=5");
        for _ in 0..200 {
            connection
                .execute_batch("BEGIN IMMEDIATE; UPDATE counter SET n = n + 1; COMMIT")
                .unwrap();
        }
        return;
    }
    let folder = scratch();
    let path = folder.path().join("db");
    create(&path);
    let players = [(); 3].map(|()| Player::start(TEST, "writer", folder.path()));
    let connection = open(&path, "");
    for _ in 0..50 {
        connection.execute_batch("BEGIN IMMEDIATE; UPDATE counter SET n = n + 1; COMMIT").unwrap();
    }
    players.into_iter().for_each(Player::finish);
    assert_eq!(number(&connection, "SELECT n FROM counter"), 650);
    assert_sound(&connection);
}

/// A dead writer's locks are taken over, and its open transaction is dropped.
///
/// Guarantee: sqlite/killed-holder
#[test]
fn dead_writers_locks_are_taken_over() {
    const TEST: &str = "dead_writers_locks_are_taken_over";
    if let Some((role, folder)) = role() {
        let connection = open(&folder.join("db"), "");
        connection.execute_batch("PRAGMA cache_size=5").unwrap();
        connection.execute_batch(&role).unwrap();
        return tell_and_wait();
    }
    let folder = scratch();
    let path = folder.path().join("db");
    create(&path);
    let holders = [
        "BEGIN EXCLUSIVE; UPDATE counter SET n = 99",
        "BEGIN IMMEDIATE",
        "BEGIN; SELECT n FROM counter",
        "BEGIN; UPDATE counter SET n = 99; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 999) \
         INSERT INTO t (b) SELECT hex(zeroblob(400)) FROM n",
    ];
    let connection = open(&path, "");
    for (round, sql) in holders.into_iter().enumerate() {
        // Hot, so that the locks are those of the pool.
        connection.execute_batch("UPDATE counter SET n = n + 1").unwrap();
        let mut player = Player::start(TEST, sql, folder.path());
        player.first("told: ");
        connection.busy_timeout(Duration::ZERO).unwrap();
        assert!(connection.execute_batch("UPDATE counter SET n = n + 1").is_err(), "{sql}");
        player.kill("told: ");
        // One that has no pages in a cache.
        assert_eq!(
            number(&open(&path, ""), "SELECT n FROM counter"),
            2 * round as i64 + 1,
            "{sql}"
        );
        connection.execute_batch("UPDATE counter SET n = n + 1").unwrap();
        assert_eq!(number(&connection, "SELECT n FROM counter"), 2 * (round as i64 + 1));
        assert_sound(&connection);
    }
}

/// A forked child is refused and hurts nothing of its parents.
///
/// Guarantee: sqlite/forks
#[test]
fn forked_child_is_refused_and_harmless() {
    let folder = scratch();
    let path = folder.path().join("db");
    create(&path);
    let connection = open(&path, "threshold=0");
    connection.execute_batch("BEGIN; UPDATE counter SET n = 1").unwrap();
    // SAFETY: the child uses what it inherited, and ends without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_refused = connection.execute_batch("COMMIT").is_err();
        drop(connection);
        // SAFETY: ends this process.
        unsafe { libc::_exit(i32::from(!is_refused)) };
    }
    let mut status = 0;
    // SAFETY: the pointer is valid.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child could commit its parent's transaction");
    connection.execute_batch("COMMIT").unwrap();
    assert_eq!(number(&connection, "SELECT n FROM counter"), 1);
    drop(connection);
    assert_eq!(number(&open_plain(&path), "SELECT n FROM counter"), 1);
}

/// A database that was moved while its pages were in the pool is all there.
///
/// Guarantee: sqlite/backups
/// Guarantee: sqlite/damage
/// Guarantee: sqlite/discard
/// Guarantee: sqlite/recover
/// Guarantee: sqlite/renamed
#[test]
fn moved_database_keeps_its_pooled_pages() {
    const TEST: &str = "moved_database_keeps_its_pooled_pages";
    if let Some((role, folder)) = role() {
        return write_on(&folder.join("db"), &role, COUNT);
    }
    let folder = scratch();
    let path = folder.path().join("db");
    create(&path);
    let told = kill_after(TEST, "threshold=5", folder.path(), 3);
    let moved = folder.path().join("moved");
    std::fs::rename(&path, &moved).unwrap();
    let connection = open(&moved, "");
    assert!(number(&connection, "SELECT n FROM counter") >= told);
    connection.execute_batch(COUNT).unwrap();
    assert_sound(&connection);
    assert!(statistic(&connection, "hot") == 1);
    drop(connection);
    assert_sound(&open_plain(&moved));
}

/// What is damaged foreign or missing is refused with the remedy and nothing is lost.
///
/// Guarantee: sqlite/backups
/// Guarantee: sqlite/damage
/// Guarantee: sqlite/discard
/// Guarantee: sqlite/recover
/// Guarantee: sqlite/renamed
#[test]
fn damaged_or_missing_files_are_refused_with_remedy() {
    const TEST: &str = "damaged_or_missing_files_are_refused_with_remedy";
    if let Some((role, folder)) = role() {
        return write_on(&folder.join("db"), &role, COUNT);
    }
    let folder = scratch();
    let path = folder.path().join("db");
    let log = folder.path().join("db-holdfast");
    create(&path);
    // All that it acknowledged is in the log.
    let told = kill_after(TEST, "level=power", folder.path(), 3);
    let image = holdfast_sqlite::status(&path).unwrap().image.unwrap();
    let good = std::fs::read(&image).unwrap();
    let [_, flushed, applied] = holdfast_sqlite::status(&path).unwrap().commits;
    assert!(flushed > applied, "the log holds nothing");
    let mut zeroed = good.clone();
    zeroed[..4096].fill(0);
    let mut chain = good.clone();
    chain[16_384..16_388].fill(0xff);
    for bad in [&zeroed[..], &good[..100], &good[..good.len() / 2]] {
        std::fs::write(&image, bad).unwrap();
        assert!(try_open(&path, "").is_err());
        let text = holdfast_sqlite::recover(&path, false).unwrap_err().to_string();
        assert!(text.contains("holdfast sqlite recover --discard"), "{text}");
        assert_eq!(std::fs::read(&image).unwrap(), bad, "it was touched");
    }
    // One that was never finished holds nothing: then the log has what is left. Here it stands for
    // a lost pool.
    let mut unfinished = zeroed.clone();
    unfinished.fill(0);
    let database = std::fs::read(&path).unwrap();
    let kept = std::fs::read(&log).unwrap();
    for (bad, discard) in [(&zeroed, true), (&unfinished, false)] {
        std::fs::write(&image, bad).unwrap();
        let recovered = holdfast_sqlite::recover(&path, discard).unwrap();
        assert_eq!(recovered, holdfast_sqlite::Recovered::LastFlush, "the log is durable commits");
        let found = number(&open_plain(&path), "SELECT n FROM counter");
        assert!(found == told || found == told + 1, "{told} acknowledged, {found} there");
        // As it was.
        std::fs::write(&path, &database).unwrap();
        std::fs::write(&log, &kept).unwrap();
    }
    // A chain that leads astray is made anew from the slots.
    std::fs::write(&image, &chain).unwrap();
    let connection = open(&path, "");
    assert!(number(&connection, "SELECT n FROM counter") >= told);
    assert_sound(&connection);
    drop(connection);

    kill_after(TEST, "threshold=5", folder.path(), 3);
    std::fs::remove_file(&image).unwrap();
    let kept = std::fs::read(&log).unwrap();
    let mut foreign = kept.clone();
    foreign[8] ^= 1;
    // A sound log, of another database.
    let elsewhere = scratch();
    create(&elsewhere.path().join("db"));
    kill_after(TEST, "threshold=5", elsewhere.path(), 3);
    let other = std::fs::read(elsewhere.path().join("db-holdfast")).unwrap();
    for bad in [None, Some(&foreign), Some(&other)] {
        match bad {
            None => std::fs::remove_file(&log).unwrap(),
            Some(bad) => std::fs::write(&log, bad).unwrap(),
        }
        let text = holdfast_sqlite::recover(&path, false).unwrap_err().to_string();
        assert!(text.contains("holdfast sqlite recover --discard"), "{text}");
        assert!(try_open(&path, "").is_err());
    }
    std::fs::write(&log, kept).unwrap();
    assert_eq!(
        holdfast_sqlite::recover(&path, false).unwrap(),
        holdfast_sqlite::Recovered::LastFlush
    );
    let plain = open_plain(&path);
    assert_sound(&plain);
    assert!(number(&plain, "SELECT n FROM counter") >= told);
}
