//! The places and names of a database in use; what is left where it cannot be brought to the pool.

#![allow(unsafe_code, reason = "asks the C library who it runs as")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use common::{
    Player, assert_sound, number, open, open_plain, role, scratch, statistic, tell_and_wait,
};

/// A database in use by two of its names has one log and says so.
///
/// Guarantee: sqlite/hard-links
#[test]
fn two_names_in_use_share_one_log() {
    const TEST: &str = "two_names_in_use_share_one_log";
    if let Some((role, folder)) = role() {
        let connection = open(&folder.join(&role), "threshold=infinity");
        connection.execute("UPDATE t SET a = a + 1", []).unwrap();
        let brought =
            connection.query_row("PRAGMA holdfast_checkpoint", [], |row| row.get::<_, String>(0));
        let refused = brought.is_err_and(|error| error.to_string().contains("hard links"));
        println!("\ntold: {}", i64::from(refused));
        return;
    }
    let folder = scratch();
    let names = ["one", "two"].map(|name| folder.path().join(name));
    let connection = open(&names[0], "threshold=infinity");
    connection.execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1)").unwrap();
    std::fs::hard_link(&names[0], &names[1]).unwrap();
    let mut other = Player::start(TEST, "two", folder.path());
    assert_eq!(other.first("told: "), 1);
    assert!(!folder.path().join("two-holdfast").exists());
    // By its own name it is brought in, with what the other one committed.
    assert_eq!(number(&connection, "SELECT a FROM t"), 2);
    let brought: String =
        connection.query_row("PRAGMA holdfast_checkpoint", [], |row| row.get(0)).unwrap();
    assert_eq!(brought, "ok");
    other.finish();
    assert_eq!(statistic(&connection, "hot"), 1);
    drop(connection);
    for name in &names {
        let plain = open_plain(name);
        assert_eq!(number(&plain, "SELECT a FROM t"), 2);
        assert_sound(&plain);
    }
}

/// A process dies in a transaction that outgrew the pool: by another name of the database nothing is
/// read past the journal, nor does the database leave the pool; by its own the journal is rolled back.
///
/// Guarantee: sqlite/hard-links
#[test]
fn journal_beside_another_name_is_not_passed_over() {
    const TEST: &str = "journal_beside_another_name_is_not_passed_over";
    if let Some((_, folder)) = role() {
        let connection = open(&folder.join("one"), "pool_limit=1048576");
        connection
            .execute_batch(
                "PRAGMA cache_size=20; BEGIN; UPDATE t SET a = 99; \
                 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500) \
                 INSERT INTO u SELECT randomblob(3000) FROM n",
            )
            .unwrap();
        return tell_and_wait();
    }
    let folder = scratch();
    let [one, two, journal] = ["one", "two", "one-journal"].map(|name| folder.path().join(name));
    open(&one, "")
        .execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1); CREATE TABLE u (a)")
        .unwrap();
    std::fs::hard_link(&one, &two).unwrap();
    Player::start(TEST, "writer", folder.path()).kill_when_told();
    assert!(journal.exists(), "it did not outgrow the pool");
    for sql in ["SELECT a FROM t", "PRAGMA holdfast_release"] {
        let connection = open(&two, "");
        let refused = connection.query_row(sql, [], |_| Ok(())).unwrap_err();
        let is_told = refused.to_string().contains("one-journal");
        assert!(is_told || sql.starts_with("SELECT"), "{sql}: {refused}");
    }
    let connection = open(&one, "");
    assert_eq!(number(&connection, "SELECT a FROM t"), 1);
    assert_eq!(number(&connection, "SELECT count(*) FROM u"), 0);
    assert_sound(&connection);
    connection.execute_batch("UPDATE t SET a = 2").unwrap();
    drop(connection);
    assert!(!journal.exists());
    for name in [&one, &two] {
        let plain = open_plain(name);
        assert_eq!(number(&plain, "SELECT a FROM t"), 2);
        assert_sound(&plain);
    }
}

/// A user that is not root.
const NOBODY: u32 = 65_534;

/// What may only be read is read and a write is refused as by sqlite.
///
/// Guarantee: sqlite/read-only-files
#[test]
fn read_only_database_refuses_writes_as_sqlite() {
    const TEST: &str = "read_only_database_refuses_writes_as_sqlite";
    if let Some((role, folder)) = role() {
        let path = folder.join("place/db");
        let connection = open(&path, "");
        assert_eq!(number(&connection, "SELECT a FROM t"), 1);
        let refused = connection.execute("INSERT INTO t VALUES (2)", []).unwrap_err();
        let plain = open_plain(&path).execute("INSERT INTO t VALUES (2)", []).unwrap_err();
        assert_eq!(
            refused.sqlite_error_code(),
            plain.sqlite_error_code(),
            "{role}: {refused}, {plain}"
        );
        assert_eq!(number(&connection, "SELECT count(*) FROM t"), 1);
        println!("\ntold: 1");
        return;
    }
    // SAFETY: asks for a number.
    let user = (unsafe { libc::geteuid() } == 0).then_some(NOBODY);
    let folder = scratch();
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap()
    };
    let (place, own) = (folder.path().join("place"), folder.path().join("own"));
    std::fs::create_dir(&place).unwrap();
    std::fs::create_dir(&own).unwrap();
    let path = place.join("db");
    open(&path, "").execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1)").unwrap();
    mode(folder.path(), 0o755);
    if let Some(user) = user {
        std::os::unix::fs::chown(&own, Some(user), Some(user)).unwrap();
        let there = std::env::current_exe().unwrap();
        let hidden = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o1 == 0;
        if let Some(closed) =
            there.ancestors().chain(folder.path().ancestors()).find(|path| hidden(path))
        {
            return println!("not run: another user has no way through {}", closed.display());
        }
    }
    let (home, pool) = (own.join("home"), own.join("pool"));
    let places =
        [("HOLDFAST_HOME", home.to_str().unwrap()), ("HOLDFAST_POOL", pool.to_str().unwrap())];
    for (what, file_mode, place_mode) in [("file", 0o444, 0o755), ("folder", 0o666, 0o555)] {
        mode(&path, file_mode);
        mode(&place, place_mode);
        let mut player = Player::start_as(user, TEST, what, folder.path(), &places);
        let told = player.next("told: ");
        mode(&place, 0o755);
        assert_eq!(told, Some(1), "a {what} that may only be read");
        player.finish();
    }
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 1);
}

/// Guarantee: sqlite/disk-errors
#[test]
fn what_cannot_become_hot_leaves_nothing_behind() {
    let folder = scratch();
    let path = folder.path().join("db");
    // Its log cannot be made: there is something else by that name.
    let blocked = folder.path().join("db-holdfast");
    std::fs::create_dir(&blocked).unwrap();
    let connection = open(&path, "");
    assert!(connection.execute_batch("CREATE TABLE t (a)").is_err());
    std::fs::remove_dir(&blocked).unwrap();
    // What is no database is told so by SQLite, or here, and is not touched.
    let other = folder.path().join("text");
    std::fs::write(&other, vec![b'x'; 8192]).unwrap();
    assert!(open(&other, "").execute_batch("CREATE TABLE t (a)").is_err());
    assert_eq!(std::fs::read(&other).unwrap(), vec![b'x'; 8192]);
    let mut left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["db", "text"]);
    connection.execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1)").unwrap();
    assert_eq!((number(&connection, "SELECT a FROM t"), statistic(&connection, "hot")), (1, 1));
}
