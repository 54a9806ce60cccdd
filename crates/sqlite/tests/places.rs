//! By which names a database is in use, and what is left where it cannot be brought to the pool.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use common::{Player, assert_sound, number, open, open_plain, role, scratch, statistic};

#[test]
fn a_database_in_use_by_two_of_its_names_has_one_log_and_says_so() {
    const TEST: &str = "a_database_in_use_by_two_of_its_names_has_one_log_and_says_so";
    if let Some((role, folder)) = role() {
        let connection = open(&folder.join(&role), "threshold=infinity");
        connection.execute("UPDATE t SET a = a + 1", []).unwrap();
        let brought = connection.query_row("PRAGMA holdfast_checkpoint", [], |row| row.get::<_, String>(0));
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
    let brought: String = connection.query_row("PRAGMA holdfast_checkpoint", [], |row| row.get(0)).unwrap();
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
