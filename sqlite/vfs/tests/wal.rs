//! Databases that go over to SQLite's WAL mode and come back, where that is let pass; and those
//! that leave the pool for a while.

#![allow(unsafe_code, reason = "asks a file of SQLite's, which has C functions")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use common::{Player, assert_sound, number, open, open_plain, role, scratch, statistic, try_open};
use rusqlite::{Connection, ffi};

const PASS: &str = "holdfast_wal=pass";
const ROUNDS: u64 = 12;

/// Sets a pragma and says what SQLite answers.
fn set(connection: &Connection, pragma: &str) -> String {
    connection.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get(0)).unwrap()
}

fn create(path: &Path) -> Connection {
    let connection = open(path, PASS);
    connection.execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1)").unwrap();
    connection
}

fn count(connection: &Connection) -> i64 {
    number(connection, "SELECT count(*) FROM t")
}

/// A database that may goes over to wal under its connections and comes back.
///
/// Guarantee: sqlite/wal-passes
#[test]
fn permitted_database_enters_and_leaves_wal() {
    let folder = scratch();
    let path = folder.path().join("db");
    let one = create(&path);
    let two = open(&path, PASS);
    assert_eq!((count(&two), statistic(&one, "hot")), (1, 1));
    assert_eq!(set(&one, "journal_mode = WAL"), "wal");
    one.execute("INSERT INTO t VALUES (2)", []).unwrap();
    assert_eq!(statistic(&one, "hot"), 0);
    // In WAL mode a reader and a writer do not wait for each other, in whatever process they are.
    two.execute_batch("BEGIN").unwrap();
    assert_eq!(count(&two), 2);
    let plain = open_plain(&path);
    plain.execute("INSERT INTO t VALUES (3)", []).unwrap();
    assert_eq!((count(&one), count(&two)), (3, 2));
    two.execute_batch("COMMIT; PRAGMA wal_checkpoint").unwrap();
    assert_eq!(count(&two), 3);
    drop((two, plain));
    for mode in ["delete", "persist", "truncate"] {
        assert_eq!(set(&one, &format!("journal_mode = {mode}")), mode);
        assert!(!folder.path().join("db-wal").exists());
        one.execute("INSERT INTO t VALUES (4)", []).unwrap();
        assert_eq!(statistic(&one, "hot"), 1, "{mode}");
        let left = std::fs::read(folder.path().join("db-journal")).unwrap_or_default();
        assert!(
            left.iter().take(8).all(|byte| *byte == 0),
            "{mode}: a journal that would be rolled back"
        );
        assert_eq!(set(&one, "journal_mode = WAL"), "wal");
        one.execute("INSERT INTO t VALUES (5)", []).unwrap();
    }
    assert_sound(&one);
    drop(one);
    let plain = open_plain(&path);
    assert_eq!((set(&plain, "journal_mode"), count(&plain)), ("wal".to_owned(), 9));
    assert_sound(&plain);
    // It is one of ours from the start where WAL passes.
    let again = open(&path, PASS);
    drop(plain);
    assert_eq!((count(&again), set(&again, "journal_mode = DELETE")), (9, "delete".to_owned()));
    again.execute("INSERT INTO t VALUES (6)", []).unwrap();
    assert_eq!(statistic(&again, "hot"), 1);
}

/// A database goes over to wal and back in exclusive mode.
///
/// Guarantee: sqlite/wal-passes
#[test]
fn exclusive_database_enters_and_leaves_wal() {
    let folder = scratch();
    for is_written in [false, true] {
        let path = folder.path().join(format!("db{is_written}"));
        drop(create(&path));
        let connection = open(&path, PASS);
        assert_eq!(set(&connection, "locking_mode = EXCLUSIVE"), "exclusive");
        if is_written {
            connection.execute("INSERT INTO t VALUES (2)", []).unwrap();
        }
        assert_eq!(set(&connection, "journal_mode = WAL"), "wal");
        connection.execute("INSERT INTO t VALUES (3)", []).unwrap();
        assert_eq!(statistic(&connection, "hot"), 0);
        let other = try_open(&path, PASS).unwrap();
        other.busy_timeout(Duration::ZERO).unwrap();
        assert!(
            other.query_row("SELECT * FROM t", [], |_| Ok(())).is_err(),
            "two hold it exclusively"
        );
        assert_eq!(set(&connection, "journal_mode = DELETE"), "delete");
        connection.execute("INSERT INTO t VALUES (4)", []).unwrap();
        assert_eq!(set(&connection, "locking_mode = NORMAL"), "normal");
        assert_eq!(count(&connection), 3 + i64::from(is_written));
        other.execute("INSERT INTO t VALUES (5)", []).unwrap();
        connection.execute("INSERT INTO t VALUES (6)", []).unwrap();
        assert_eq!(statistic(&connection, "hot"), 1);
        assert_sound(&other);
        drop((connection, other));
        assert_eq!(count(&open_plain(&path)), 5 + i64::from(is_written));
        assert_sound(&open_plain(&path));
    }
}

/// Whether wal passes is said by the uri the environment and a pragma.
///
/// Guarantee: sqlite/wal-passes
#[test]
fn wal_is_permitted_by_uri_environment_or_pragma() {
    const TEST: &str = "wal_is_permitted_by_uri_environment_or_pragma";
    const VARIABLE: &str = "HOLDFAST_SQLITE_WAL";
    if let Some((role, folder)) = role() {
        let connection =
            try_open(&folder.join("db"), if role == "refuse" { "wal=refuse" } else { "" });
        match connection {
            Ok(connection) => {
                println!("\ntold: {}", i64::from(set(&connection, "journal_mode = WAL") == "wal"))
            }
            Err(_) => println!("\ntold: 2"),
        }
        return;
    }
    let folder = scratch();
    let path = folder.path().join("db");
    let connection = open(&path, "");
    connection.execute_batch("CREATE TABLE t (a)").unwrap();
    assert_eq!(set(&connection, "holdfast_wal"), "refuse");
    assert_eq!(set(&connection, "journal_mode = WAL"), "delete");
    assert!(connection.query_row("PRAGMA holdfast_wal = perhaps", [], |_| Ok(())).is_err());
    assert!(try_open(&path, "holdfast_wal=perhaps").is_err());
    assert_eq!(set(&connection, "holdfast_wal = pass"), "pass");
    assert_eq!(set(&connection, "journal_mode = WAL"), "wal");
    connection.execute("INSERT INTO t VALUES (1)", []).unwrap();
    assert_eq!(set(&connection, "journal_mode = DELETE"), "delete");
    drop(connection);
    for (value, role, found) in
        [("pass", "any", 1), ("pass", "refuse", 0), ("refuse", "any", 0), ("yes", "any", 2)]
    {
        let _ = std::fs::remove_file(&path);
        let mut player = Player::start_with(TEST, role, folder.path(), &[(VARIABLE, value)]);
        assert_eq!(player.first("told: "), found, "{value}, {role}");
        player.finish();
    }
}

/// A connection that refuses WAL goes on with a database that others have brought there.
///
/// Guarantee: sqlite/wal-passes
#[test]
fn wal_refuser_goes_on_with_a_wal_database() {
    let folder = scratch();
    let path = folder.path().join("db");
    let (refuses, passes) = (open(&path, ""), open(&path, ""));
    refuses.execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1)").unwrap();
    // The setting is the process's: it is changed, used, and changed back.
    set(&passes, "holdfast_wal = pass");
    assert_eq!(set(&passes, "journal_mode = WAL"), "wal");
    set(&passes, "holdfast_wal = refuse");
    refuses.execute("INSERT INTO t VALUES (2)", []).unwrap();
    assert_eq!((count(&passes), set(&refuses, "journal_mode")), (2, "wal".to_owned()));
    drop(passes);
    assert_eq!(set(&refuses, "journal_mode = DELETE"), "delete");
    // A program without the VFS does the same while no pages are in the pool.
    let plain = open_plain(&path);
    assert_eq!(set(&plain, "journal_mode = WAL"), "wal");
    plain.execute("INSERT INTO t VALUES (3)", []).unwrap();
    refuses.execute("INSERT INTO t VALUES (4)", []).unwrap();
    assert_eq!((count(&plain), set(&refuses, "journal_mode")), (4, "wal".to_owned()));
}

/// A copy of a database in wal mode made page by page is one too.
///
/// Guarantee: sqlite/wal-passes
#[test]
fn paged_copy_of_a_wal_database_is_wal_too() {
    let folder = scratch();
    let source = open_plain(&folder.path().join("source"));
    source
        .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (a); INSERT INTO t VALUES (1)")
        .unwrap();
    let path = folder.path().join("copy");
    let mut copy = open(&path, "");
    copy.execute_batch("CREATE TABLE other (a)").unwrap();
    rusqlite::backup::Backup::new(&source, &mut copy)
        .unwrap()
        .run_to_completion(100, Duration::ZERO, None)
        .unwrap();
    copy.execute("INSERT INTO t VALUES (2)", []).unwrap();
    assert_eq!((count(&copy), set(&copy, "journal_mode")), (2, "wal".to_owned()));
    drop(copy);
    assert_eq!(count(&open_plain(&path)), 2);
}

/// Goes over to WAL and back for as long as it lives, and tells each commit.
fn go_to_and_fro(path: &Path, parameters: &str) {
    let connection = open(path, parameters);
    let mut told = number(&connection, "SELECT max(a) FROM t");
    loop {
        for mode in ["WAL", "DELETE"] {
            set(&connection, &format!("journal_mode = {mode}"));
            for _ in 0..2 {
                told += 1;
                connection.execute("INSERT INTO t VALUES (?)", [told]).unwrap();
                println!("\ntold: {told}");
            }
        }
    }
}

/// A process that is killed on the way to WAL or back loses no commit, and others go on.
///
/// Guarantee: sqlite/wal-death
#[test]
fn kill_on_the_way_to_or_from_wal_loses_no_commit() {
    const TEST: &str = "kill_on_the_way_to_or_from_wal_loses_no_commit";
    if let Some((role, folder)) = role() {
        return go_to_and_fro(&folder.join("db"), &role);
    }
    let folder = scratch();
    let path = folder.path().join("db");
    drop(create(&path));
    let ways = [PASS, "wal=pass&level=power", "wal=pass&threshold=0&flush=inline"];
    for round in 0..ROUNDS {
        let way = ways[round as usize % ways.len()];
        // Every other time a process has the database open all along, in the pool.
        let others = (round % 2 == 0).then(|| {
            let connection = open(&path, PASS);
            set(&connection, "journal_mode = DELETE");
            connection.execute("UPDATE t SET a = a WHERE a = 1", []).unwrap();
            connection
        });
        let mut player = Player::start(TEST, way, folder.path());
        let first = player.first("told: ");
        std::thread::sleep(Duration::from_micros(round * 3331 % 30_000));
        let told = player.kill("told: ").unwrap_or(first);
        let connection = others.unwrap_or_else(|| open(&path, PASS));
        let found = number(&connection, "SELECT max(a) FROM t");
        assert!(
            found == told || found == told + 1,
            "{way}, {round}: {told} acknowledged, {found} there"
        );
        assert_eq!(count(&connection), found, "{way}, {round}");
        assert_sound(&connection);
        connection.execute("INSERT INTO t VALUES (?)", [found + 1]).unwrap();
        drop(connection);
        let plain = open_plain(&path);
        assert_eq!(count(&plain), found + 1);
        assert_sound(&plain);
    }
}

/// A database that is released is read and copied by any program and goes on with the next write.
///
/// Guarantee: sqlite/copies
/// Guarantee: sqlite/release
#[test]
fn released_database_is_an_ordinary_file() {
    let folder = scratch();
    let path = folder.path().join("db");
    let (one, two) = (create(&path), open(&path, ""));
    for round in 1..4 {
        assert_eq!((count(&two), statistic(&one, "hot")), (round, 1));
        two.busy_timeout(Duration::ZERO).unwrap();
        // Not while a process reads or writes.
        for lead in ["BEGIN; SELECT * FROM t", "BEGIN IMMEDIATE"] {
            one.execute_batch(lead).unwrap();
            for connection in [&one, &two] {
                let refused =
                    connection.query_row("PRAGMA holdfast_release", [], |_| Ok(())).unwrap_err();
                assert!(refused.to_string().contains("in use"), "{refused}");
            }
            one.execute_batch("COMMIT").unwrap();
        }
        assert_eq!(set(&two, "holdfast_release"), "ok");
        assert_eq!(set(&one, "holdfast_release"), "ok");
        assert_eq!(statistic(&one, "hot"), 0);
        let copy = folder.path().join("copy");
        std::fs::copy(&path, &copy).unwrap();
        for path in [&path, &copy] {
            let plain = open_plain(path);
            assert_eq!(count(&plain), round);
            assert_sound(&plain);
        }
        assert!(!folder.path().join("db-holdfast").exists());
        one.execute("INSERT INTO t VALUES (2)", []).unwrap();
    }
}

/// A writer loses nothing while another process releases the database again and again.
///
/// Guarantee: sqlite/copies
/// Guarantee: sqlite/release
#[test]
fn writer_beside_repeated_release_loses_nothing() {
    const TEST: &str = "writer_beside_repeated_release_loses_nothing";
    const COMMITS: i64 = 150;
    if let Some((role, folder)) = role() {
        let path = folder.join("db");
        if role == "release" {
            // Without SQLite in this process.
            loop {
                match holdfast_sqlite::release(&path) {
                    Ok(()) | Err(holdfast_sqlite::SqliteError::Busy { .. }) => {
                        println!("\ntold: 1")
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
        let connection = open(&path, "");
        for _ in 0..COMMITS {
            connection.execute("UPDATE t SET a = a + 1", []).unwrap();
        }
        return;
    }
    let folder = scratch();
    let path = folder.path().join("db");
    drop(create(&path));
    let mut releasing = Player::start(TEST, "release", folder.path());
    releasing.first("told: ");
    let writers = ["one", "two"].map(|name| Player::start(TEST, name, folder.path()));
    let reader = open(&path, "");
    for writer in writers {
        writer.finish();
        assert!(number(&reader, "SELECT a FROM t") > COMMITS);
    }
    assert_eq!(number(&reader, "SELECT a FROM t"), 1 + 2 * COMMITS);
    releasing.assert_running();
    assert!(releasing.kill("told: ").is_some());
    assert_sound(&reader);
}

/// Guarantee: sqlite/processes-share
#[test]
fn a_first_write_is_prepared_while_others_read() {
    let folder = scratch();
    let path = folder.path().join("db");
    drop(create(&path));
    let (reader, writer) = (open(&path, ""), open(&path, ""));
    reader.execute_batch("BEGIN").unwrap();
    assert_eq!(count(&reader), 1);
    writer.busy_timeout(Duration::ZERO).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES (2)").unwrap();
    assert!(!folder.path().join("db-journal").exists());
    assert_eq!((count(&reader), count(&writer)), (1, 2));
    assert!(writer.execute_batch("COMMIT").is_err(), "a commit under a reader");
    assert_eq!(count(&reader), 1);
    reader.execute_batch("COMMIT").unwrap();
    writer.execute_batch("COMMIT").unwrap();
    assert_eq!((count(&reader), statistic(&writer, "hot")), (2, 1));
    assert!(!folder.path().join("db-journal").exists());
    writer.execute_batch("BEGIN; INSERT INTO t VALUES (3); ROLLBACK").unwrap();
    assert_eq!(count(&reader), 2);
}

/// A database that is opened without locks is SQLite's own, unless its newest pages are in the
/// pool.
///
/// Guarantee: sqlite/without-the-vfs
#[test]
fn nolock_database_is_sqlites_unless_pages_are_pooled() {
    let folder = scratch();
    let path = folder.path().join("db");
    let connection = create(&path);
    for parameter in ["nolock=1", "immutable=true"] {
        assert!(
            try_open(&path, parameter).is_err(),
            "{parameter}: it would read what is not the newest"
        );
        set(&connection, "holdfast_release");
        let without = open(&path, parameter);
        assert_eq!(count(&without), 1);
        assert!(without.query_row("PRAGMA holdfast_stats", [], |_| Ok(())).is_err());
        drop(without);
        connection.execute("UPDATE t SET a = 2", []).unwrap();
    }
}

/// A file in wal mode says of the disk what is true of it.
///
/// Guarantee: sqlite/wal-passes
#[test]
fn wal_file_claims_only_what_is_true() {
    let folder = scratch();
    let connection = create(&folder.path().join("db"));
    let characteristics = || {
        let mut file: *mut ffi::sqlite3_file = std::ptr::null_mut();
        // SAFETY: the file of an open database, which has methods.
        unsafe {
            let (operation, name) = (ffi::SQLITE_FCNTL_FILE_POINTER, c"main".as_ptr());
            assert_eq!(
                ffi::sqlite3_file_control(
                    connection.handle(),
                    name,
                    operation,
                    (&raw mut file).cast()
                ),
                0
            );
            (*(*file).pMethods).xDeviceCharacteristics.unwrap()(file)
        }
    };
    // What is stored to the pool is there in order; what is written to a disk is not.
    let ordered = ffi::SQLITE_IOCAP_SEQUENTIAL | ffi::SQLITE_IOCAP_SAFE_APPEND;
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(characteristics() & ordered, ordered);
    connection.execute_batch("COMMIT").unwrap();
    assert_eq!(set(&connection, "journal_mode = WAL"), "wal");
    connection.execute("INSERT INTO t VALUES (2)", []).unwrap();
    assert_eq!(characteristics() & ordered, 0);
    // Pages of such a file are mapped, and a map does not outlive the mode.
    assert_eq!(number(&connection, "PRAGMA mmap_size = 1000000"), 1_000_000);
    assert_eq!(
        (count(&connection), set(&connection, "journal_mode = DELETE")),
        (2, "delete".to_owned())
    );
    connection.execute("INSERT INTO t VALUES (3)", []).unwrap();
    assert_eq!(characteristics() & ordered, 0, "nobody has a lock");
    assert_sound(&connection);
}

/// A journal on the disk is as private as its database.
///
/// Guarantee: sqlite/read-only-files
#[test]
fn journal_is_as_private_as_its_database() {
    let folder = scratch();
    let path = folder.path().join("db");
    drop(create(&path));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let connection = open(&path, "pool_limit=1048576&wal=pass");
    let large = "INSERT INTO t SELECT zeroblob(3000000)";
    connection
        .execute_batch(&format!("PRAGMA cache_size = 10; BEGIN; {large}; UPDATE t SET a = 1"))
        .unwrap();
    connection.execute_batch(large).unwrap();
    let journal = folder.path().join("db-journal").metadata().unwrap();
    assert_eq!(journal.permissions().mode() & 0o777, 0o600);
    connection.execute_batch("ROLLBACK").unwrap();
    assert_eq!(count(&connection), 1);
}

/// As a process that was killed while it released the database left it: "disk I/O error" was the
/// answer to all readers but one.
///
/// Guarantee: sqlite/wal-death
#[test]
fn readers_of_a_broken_release_wait_for_each_other() {
    /// In the header of an image.
    const CLOSING_AT: u64 = 76;
    let folder = scratch();
    let path = folder.path().join("db");
    let (first, second) = (create(&path), open(&path, ""));
    let inode = format!("-{:x}-", path.metadata().unwrap().ino());
    let mut images = std::fs::read_dir(common::pool()).unwrap().map(|entry| entry.unwrap().path());
    let image = images.find(|image| image.to_string_lossy().contains(&inode)).unwrap();
    let image = std::fs::File::options().write(true).open(image).unwrap();
    first.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
    image.write_all_at(&1_u32.to_ne_bytes(), CLOSING_AT).unwrap();
    second.busy_timeout(Duration::ZERO).unwrap();
    let refused =
        second.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0)).unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseBusy), "{refused}");
    first.execute_batch("COMMIT").unwrap();
    assert_eq!(count(&second), 1);
    assert_eq!(statistic(&second, "hot"), 0, "it was not released");
    first.execute_batch("INSERT INTO t VALUES (2)").unwrap();
    assert_eq!(count(&second), 2);
    assert_sound(&first);
}
