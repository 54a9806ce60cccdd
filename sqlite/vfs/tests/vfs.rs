//! The VFS in one process: what SQLite does with it must come to what it does with its own.

mod common;

use std::path::Path;

use common::{Player, assert_sound, number, open, open_plain, role, scratch, statistic, try_open};

/// Commits rollbacks and savepoints do what they say and the closed file is an ordinary database.
///
/// Guarantee: sqlite/ordinary-file
/// Guarantee: sqlite/same-results
#[test]
fn commits_and_savepoints_work_and_file_is_ordinary() {
    let folder = scratch();
    let path = folder.path().join("a b.db");
    let path = path.as_path();
    for round in 0..2 {
        let mut connection = open(path, "");
        connection
            .execute_batch("CREATE TABLE IF NOT EXISTS t (a INTEGER PRIMARY KEY, b)")
            .unwrap();
        connection.execute("INSERT INTO t (b) VALUES (1)", []).unwrap();
        let transaction = connection.transaction().unwrap();
        transaction.execute("INSERT INTO t (b) VALUES (2)", []).unwrap();
        transaction.rollback().unwrap();
        connection
            .execute_batch(
                "BEGIN; SAVEPOINT s; INSERT INTO t (b) VALUES (3); ROLLBACK TO s; INSERT INTO t (b) VALUES (4); \
                 RELEASE s; COMMIT",
            )
            .unwrap();
        assert_eq!(number(&connection, "SELECT count(*) FROM t"), 2 * (round + 1));
        assert_sound(&connection);
        assert_eq!(statistic(&connection, "hot"), 1);
        drop(connection);
        let plain = open_plain(path);
        assert_eq!(number(&plain, "SELECT sum(b) FROM t"), 5 * (round + 1));
        assert_sound(&plain);
        drop(plain);
        let beside = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(beside, 2, "something is left but the side file");
    }
}

/// Every page size and vacuum and a change of the page size work.
///
/// Guarantee: sqlite/ordinary-file
/// Guarantee: sqlite/same-results
#[test]
fn every_page_size_and_vacuum_work() {
    let folder = scratch();
    for bytes in [512, 1024, 4096, 16_384, 65_536] {
        for auto_vacuum in 0..3 {
            let path = folder.path().join(format!("{bytes}-{auto_vacuum}"));
            let connection = open(&path, "threshold=3");
            connection
                .execute_batch(&format!(
                    "PRAGMA page_size={bytes}; PRAGMA auto_vacuum={auto_vacuum}; CREATE TABLE t (a INTEGER PRIMARY KEY, b)"
                ))
                .unwrap();
            let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) \
                        INSERT INTO t (b) SELECT hex(zeroblob(300)) || i FROM n";
            connection.execute(fill, []).unwrap();
            connection.execute("DELETE FROM t WHERE a % 3 != 0", []).unwrap();
            connection.execute_batch("PRAGMA incremental_vacuum").unwrap();
            connection.execute("UPDATE t SET b = b || 'x' WHERE a % 2", []).unwrap();
            assert_eq!(number(&connection, "PRAGMA page_size"), bytes);
            connection.execute_batch("VACUUM").unwrap();
            assert_sound(&connection);
            let other = if bytes == 4096 { 1024 } else { 4096 };
            connection.execute_batch(&format!("PRAGMA page_size={other}; VACUUM")).unwrap();
            assert_eq!(number(&connection, "PRAGMA page_size"), other);
            assert_sound(&connection);
            drop(connection);
            let plain = open_plain(&path);
            assert_sound(&plain);
            assert_eq!(number(&plain, "SELECT count(*) FROM t"), 100);
            assert_eq!(number(&plain, "PRAGMA page_size"), other);
        }
    }
}

/// A program without the vfs is refused while pages are in the pool and served before and after.
///
/// Guarantee: sqlite/ordinary-file
/// Guarantee: sqlite/without-the-vfs
#[test]
fn plain_sqlite_is_refused_while_pages_are_pooled() {
    let folder = scratch();
    let path = folder.path().join("db");
    open_plain(&path).execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1)").unwrap();
    let reader = open(&path, "");
    assert_eq!(number(&reader, "SELECT count(*) FROM t"), 1);
    // A reader leaves the file alone.
    let plain = open_plain(&path);
    plain.execute("INSERT INTO t VALUES (2)", []).unwrap();
    assert_eq!(number(&reader, "SELECT count(*) FROM t"), 2);
    reader.execute("INSERT INTO t VALUES (3)", []).unwrap();
    let refused =
        plain.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0)).unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(rusqlite::ErrorCode::NotADatabase), "{refused}");
    let copy = folder.path().join("copy");
    std::fs::copy(&path, &copy).unwrap();
    assert!(open_plain(&copy).query_row("SELECT 1 FROM t", [], |_| Ok(())).is_err());
    assert!(try_open(&copy, "").is_err());
    assert_eq!(number(&reader, "SELECT count(*) FROM t"), 3);
    drop(reader);
    assert_eq!(number(&plain, "SELECT count(*) FROM t"), 3);
    assert!(holdfast_sqlite::status(&copy).unwrap().is_hot);
    holdfast_sqlite::recover(&copy, true).unwrap();
    assert_eq!(number(&open_plain(&copy), "SELECT count(*) FROM t"), 2);
}

/// A database in wal mode is passed through and one of ours does not become one.
///
/// Guarantee: sqlite/wal-passes
#[test]
fn wal_database_passes_and_ours_does_not_become_one() {
    let folder = scratch();
    let path = folder.path().join("wal");
    open_plain(&path)
        .execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t (a); INSERT INTO t VALUES (1)")
        .unwrap();
    let connection = open(&path, "");
    connection.execute("INSERT INTO t VALUES (2)", []).unwrap();
    let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    assert!(connection.query_row("PRAGMA holdfast_stats", [], |_| Ok(())).is_err());
    assert_eq!(number(&open_plain(&path), "SELECT count(*) FROM t"), 2);

    let ours = open(&folder.path().join("ours"), "");
    ours.execute_batch("CREATE TABLE t (a)").unwrap();
    for lead in ["", "PRAGMA locking_mode=EXCLUSIVE;"] {
        ours.execute_batch(lead).unwrap();
        let mode: String = ours.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0)).unwrap();
        assert_eq!(mode, "delete");
        ours.execute("INSERT INTO t VALUES (1)", []).unwrap();
    }
}

/// Guarantee: sqlite/attached
#[test]
fn a_commit_over_attached_databases_is_in_all_of_them() {
    let folder = scratch();
    let names = ["one", "two"].map(|name| folder.path().join(name));
    let connection = open(&names[0], "");
    connection
        .execute("ATTACH ? AS two", [format!("file:{}?vfs=holdfast", names[1].display())])
        .unwrap();
    connection
        .execute("ATTACH ? AS three", [folder.path().join("three").to_str().unwrap()])
        .unwrap();
    connection
        .execute_batch("CREATE TABLE t (a); CREATE TABLE two.t (a); CREATE TABLE three.t (a)")
        .unwrap();
    let both =
        "INSERT INTO t VALUES (1); INSERT INTO two.t VALUES (1); INSERT INTO three.t VALUES (1);";
    connection.execute_batch(&format!("BEGIN; {both} ROLLBACK; BEGIN; {both} COMMIT")).unwrap();
    for table in ["t", "two.t", "three.t"] {
        assert_eq!(number(&connection, &format!("SELECT count(*) FROM {table}")), 1);
    }
    drop(connection);
    assert_eq!(number(&open_plain(&names[1]), "SELECT count(*) FROM t"), 1);
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        6,
        "a journal or super-journal is left"
    );
}

/// A commit over attached databases stands in all of them where the log of one cannot be written.
///
/// Guarantee: sqlite/attached
#[test]
fn attached_commit_stands_in_all_without_one_log() {
    let folder = scratch();
    let names = ["one", "two"].map(|name| folder.path().join(name));
    let connection = open(&names[0], "level=power");
    let second = format!("file:{}?vfs=holdfast&level=power", names[1].display());
    connection.execute("ATTACH ? AS two", [second]).unwrap();
    connection.execute_batch("CREATE TABLE t (a); CREATE TABLE two.u (a)").unwrap();
    let log = folder.path().join("two-holdfast");
    std::fs::remove_file(&log).unwrap();
    std::fs::create_dir(&log).unwrap();
    connection
        .execute_batch("BEGIN; INSERT INTO t VALUES (1); INSERT INTO u VALUES (1); COMMIT")
        .unwrap();
    let both = |expected: i64| {
        assert_eq!(number(&connection, "SELECT count(*) FROM t"), expected);
        assert_eq!(number(&connection, "SELECT count(*) FROM u"), expected);
    };
    both(1);
    // Alone it fails, and nothing of it is there.
    assert!(connection.execute("INSERT INTO u VALUES (2)", []).is_err());
    both(1);
    std::fs::remove_dir(&log).unwrap();
    connection
        .execute_batch("BEGIN; INSERT INTO t VALUES (2); INSERT INTO u VALUES (2); COMMIT")
        .unwrap();
    both(2);
    drop(connection);
    assert_eq!(number(&open_plain(&names[1]), "SELECT count(*) FROM u"), 2);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4, "something is left");
}

/// Nothing of a commit over attached databases that failed is read afterwards, also where the commit
/// of another connection looks the same to SQLite's cache.
///
/// Guarantee: sqlite/attached
/// Guarantee: sqlite/same-results
#[test]
fn failed_attached_commit_leaves_no_page_in_the_cache() {
    let folder = scratch();
    let [one, two, aside] = ["one", "two", "aside"].map(|name| folder.path().join(name));
    let connection = open(&one, "");
    let second = format!("file:{}?vfs=holdfast&level=power", two.display());
    connection.execute("ATTACH ? AS two", [second]).unwrap();
    connection.execute_batch("CREATE TABLE t (a); CREATE TABLE two.u (a)").unwrap();
    let other = open(&two, "");
    let both = "BEGIN; INSERT INTO t VALUES (1); INSERT INTO u VALUES (1); COMMIT";
    // The second database cannot be prepared.
    std::fs::rename(&two, &aside).unwrap();
    assert!(connection.execute_batch(both).is_err());
    let _ = connection.execute_batch("ROLLBACK");
    std::fs::rename(&aside, &two).unwrap();
    other.execute_batch("INSERT INTO u VALUES (2)").unwrap();
    assert_eq!(number(&connection, "SELECT a FROM u"), 2);
    assert_eq!(number(&connection, "SELECT count(*) FROM t"), 0);
    connection.execute_batch(both).unwrap();
    for (table, sum) in [("t", 1), ("u", 3)] {
        assert_eq!(number(&connection, &format!("SELECT sum(a) FROM {table}")), sum);
    }
    assert_sound(&connection);
    drop((connection, other));
    assert_eq!(number(&open_plain(&two), "SELECT sum(a) FROM u"), 3);
}

/// The same where SQLite takes the commit for done, as the super-journal went with the rollback of
/// the others: the stub is beside another name of the database than SQLite's.
///
/// Guarantee: sqlite/attached
/// Guarantee: sqlite/same-results
#[test]
fn failed_attached_commit_by_another_name_is_not_read() {
    let folder = scratch();
    let [one, link, three, aside] =
        ["one", "link", "three", "aside"].map(|name| folder.path().join(name));
    let other = open(&one, "");
    other.execute_batch("CREATE TABLE u (a)").unwrap();
    std::fs::hard_link(&one, &link).unwrap();
    let connection = open(&folder.path().join("db"), "");
    for (path, parameters) in [(&link, ""), (&three, "&level=power")] {
        let name = path.file_name().unwrap().to_str().unwrap();
        let uri = format!("file:{}?vfs=holdfast{parameters}", path.display());
        connection.execute(&format!("ATTACH ? AS {name}"), [uri]).unwrap();
    }
    connection.execute_batch("CREATE TABLE t (a); CREATE TABLE three.v (a)").unwrap();
    // The third database cannot be prepared.
    std::fs::rename(&three, &aside).unwrap();
    let all = "BEGIN; INSERT INTO t VALUES (1); INSERT INTO u VALUES (1); INSERT INTO v VALUES (1); COMMIT";
    assert!(connection.execute_batch(all).is_err());
    let _ = connection.execute_batch("ROLLBACK");
    std::fs::rename(&aside, &three).unwrap();
    other.execute_batch("INSERT INTO u VALUES (2)").unwrap();
    assert_eq!(number(&connection, "SELECT sum(a) FROM u"), 2);
    for table in ["t", "v"] {
        assert_eq!(number(&connection, &format!("SELECT count(*) FROM {table}")), 0);
    }
    drop((connection, other));
    let plain = open_plain(&one);
    assert_eq!(number(&plain, "SELECT sum(a) FROM u"), 2);
    assert_sound(&plain);
}

/// A commit over attached databases that fails in SQLite's exclusive mode, in which no lock is given
/// back, is rolled back in all of them. Nothing of it is beside them, or in their next commits.
///
/// Guarantee: sqlite/attached
#[test]
fn failed_attached_commit_in_exclusive_mode_leaves_nothing() {
    let both = "BEGIN; INSERT INTO t VALUES (1); INSERT INTO u VALUES (1); COMMIT";
    for (schema, failing) in
        ["", "main.", "two."].into_iter().flat_map(|schema| [(schema, "one"), (schema, "two")])
    {
        let what = format!("{schema}locking_mode, {failing} fails");
        let folder = scratch();
        let [one, two, aside] = ["one", "two", "aside"].map(|name| folder.path().join(name));
        let connection = open(&one, "level=power");
        let second = format!("file:{}?vfs=holdfast&level=power", two.display());
        connection.execute("ATTACH ? AS two", [second]).unwrap();
        let pragma = format!("PRAGMA {schema}locking_mode=EXCLUSIVE");
        connection
            .execute_batch(&format!("{pragma}; CREATE TABLE t (a); CREATE TABLE two.u (a)"))
            .unwrap();
        let files = || {
            let found = std::fs::read_dir(folder.path()).unwrap();
            let mut names: Vec<_> = found.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let expected = ["one", "one-holdfast", "two", "two-holdfast"];
        let sums = |expected: i64| {
            for table in ["t", "u"] {
                let sum = format!("SELECT coalesce(sum(a), 0) FROM {table}");
                assert_eq!(number(&connection, &sum), expected, "{what}: {table}");
            }
        };
        // It cannot be prepared.
        let failing = folder.path().join(failing);
        std::fs::rename(&failing, &aside).unwrap();
        assert!(connection.execute_batch(both).is_err(), "{what}");
        let _ = connection.execute_batch("ROLLBACK");
        std::fs::rename(&aside, &failing).unwrap();
        assert_eq!(files(), expected, "{what}");
        sums(0);
        connection.execute_batch("INSERT INTO t VALUES (2); INSERT INTO u VALUES (2)").unwrap();
        sums(2);
        connection.execute_batch(both).unwrap();
        sums(3);
        drop(connection);
        assert_eq!(files(), expected, "{what}");
        for (path, table) in [(&one, "t"), (&two, "u")] {
            let plain = open_plain(path);
            assert_eq!(number(&plain, &format!("SELECT sum(a) FROM {table}")), 3, "{what}");
            assert_sound(&plain);
        }
    }
}

/// Journals and super-journals beside the databases of a folder.
fn journals_in(folder: &Path) -> Vec<String> {
    let found = std::fs::read_dir(folder).expect("the folder is there");
    let names = found.map(|entry| entry.expect("it can be read").file_name());
    let names = names.map(|name| name.into_string().expect("names are text"));
    names.filter(|name| name.ends_with("-journal") || name.contains("-mj")).collect()
}

/// Of databases that were closed after one failed commit and one that stored a 2 in each: that
/// alone is in them, and no journal is left.
fn assert_next_commit_counts(folder: &Path, databases: [(&Path, &str); 2], mode: &str) {
    assert_eq!(journals_in(folder), [""; 0], "{mode}");
    for (path, table) in databases {
        let plain = open_plain(path);
        assert_eq!(number(&plain, &format!("SELECT sum(a) FROM {table}")), 2, "{mode}");
        assert_sound(&plain);
    }
}

/// The same where the first of the databases is attached by another name than the one that this
/// process opened it by: SQLite finds the super-journal when it rolls that back.
///
/// Guarantee: sqlite/attached
#[test]
fn failed_attached_commit_by_another_name_is_rolled_back() {
    for mode in ["NORMAL", "EXCLUSIVE"] {
        let folder = scratch();
        let [one, link, three, aside] =
            ["one", "link", "three", "aside"].map(|name| folder.path().join(name));
        let first = open(&one, "");
        first.execute_batch("CREATE TABLE u (a)").unwrap();
        std::fs::hard_link(&one, &link).unwrap();
        // Nothing is written to the main database, which would be rolled back before them.
        let connection = open(&folder.path().join("db"), "");
        for (path, parameters) in [(&link, ""), (&three, "&level=power")] {
            let name = path.file_name().unwrap().to_str().unwrap();
            let uri = format!("file:{}?vfs=holdfast{parameters}", path.display());
            connection.execute(&format!("ATTACH ? AS {name}"), [uri]).unwrap();
        }
        let pragma = format!("PRAGMA locking_mode={mode}");
        connection.execute_batch(&format!("{pragma}; CREATE TABLE three.v (a)")).unwrap();
        // The third database cannot be prepared.
        std::fs::rename(&three, &aside).unwrap();
        let both = "BEGIN; INSERT INTO u VALUES (1); INSERT INTO v VALUES (1); COMMIT";
        assert!(connection.execute_batch(both).is_err(), "{mode}");
        let _ = connection.execute_batch("ROLLBACK");
        std::fs::rename(&aside, &three).unwrap();
        for table in ["u", "v"] {
            let rows = number(&connection, &format!("SELECT count(*) FROM {table}"));
            assert_eq!(rows, 0, "{mode}: {table}");
        }
        assert_eq!(journals_in(folder.path()), [""; 0], "{mode}");
        connection.execute_batch("INSERT INTO u VALUES (2); INSERT INTO v VALUES (2)").unwrap();
        drop((connection, first));
        assert_next_commit_counts(folder.path(), [(&one, "u"), (&three, "v")], mode);
    }
}

/// A commit over attached databases outgrows the pool of one, beside which its journal cannot be
/// made: it is rolled back in all of them. What is in the place of the journal stays.
///
/// Guarantee: sqlite/attached
/// Guarantee: sqlite/outgrown-pool
#[test]
fn attached_commit_without_room_is_rolled_back() {
    for mode in ["NORMAL", "EXCLUSIVE"] {
        let folder = scratch();
        let [one, two, journal] =
            ["one", "two", "two-journal"].map(|name| folder.path().join(name));
        let connection = open(&one, "");
        let second = format!("file:{}?vfs=holdfast&pool_limit=1048576", two.display());
        connection.execute("ATTACH ? AS two", [second]).unwrap();
        // The pages are written in the commit, not before.
        connection
            .execute_batch(&format!(
                "PRAGMA locking_mode={mode}; PRAGMA two.cache_size=10000; \
                 CREATE TABLE t (a); CREATE TABLE two.u (a, b)"
            ))
            .unwrap();
        // A link is not followed, and this one leads nowhere.
        std::os::unix::fs::symlink(folder.path().join("none"), &journal).unwrap();
        let begun = "BEGIN; INSERT INTO t VALUES (1); \
                     WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 600) \
                     INSERT INTO u SELECT i, randomblob(3000) FROM n";
        connection.execute_batch(begun).unwrap();
        assert!(connection.execute_batch("COMMIT").is_err(), "{mode}");
        let _ = connection.execute_batch("ROLLBACK");
        assert!(journal.is_symlink(), "{mode}: the link is gone");
        std::fs::remove_file(&journal).unwrap();
        for table in ["t", "u"] {
            let rows = number(&connection, &format!("SELECT count(*) FROM {table}"));
            assert_eq!(rows, 0, "{mode}: {table}");
        }
        assert_eq!(journals_in(folder.path()), [""; 0], "{mode}");
        connection.execute_batch("INSERT INTO t VALUES (2); INSERT INTO u VALUES (2, 0)").unwrap();
        drop(connection);
        assert_next_commit_counts(folder.path(), [(&one, "t"), (&two, "u")], mode);
    }
}

/// A journal that cannot be opened is named: SQLite says no more than that it cannot open something.
///
/// Guarantee: sqlite/same-results
#[test]
fn journal_that_cannot_be_opened_is_named() {
    const TEST: &str = "journal_that_cannot_be_opened_is_named";
    // Alone: the newest error is that of the process.
    if let Some((_, folder)) = role() {
        let [path, journal, other, second] =
            ["db", "db-journal", "other", "second"].map(|name| folder.join(name));
        open_plain(&path).execute_batch("CREATE TABLE t (a)").unwrap();
        std::fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink(&other, &journal).unwrap();
        let connection = open(&path, "");
        let refused = connection
            .query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0))
            .unwrap_err();
        let expected = Some(rusqlite::ErrorCode::CannotOpen);
        assert_eq!(refused.sqlite_error_code(), expected, "{refused}");
        let told: Option<String> =
            open(&second, "").query_row("SELECT holdfast_error()", [], |row| row.get(0)).unwrap();
        assert!(told.as_deref().is_some_and(|text| text.contains("db-journal")), "{told:?}");
        return;
    }
    let folder = scratch();
    Player::start(TEST, "reader", folder.path()).finish();
}

/// From 128 KiB on a file is a little longer than its pages, which no program notices: not SQLite
/// without the VFS, nor one that makes it shorter.
///
/// Guarantee: sqlite/ordinary-file
#[test]
fn file_that_grows_ahead_has_the_pages_that_it_says() {
    const ROW: &str = "INSERT INTO t (b) VALUES (randomblob(5000))";
    for page_bytes in [512, 4096, 32_768, 65_536] {
        let folder = scratch();
        let path = &folder.path().join("db");
        let pages =
            |connection: &rusqlite::Connection| number(connection, "PRAGMA page_count") as u64;
        let bytes = || std::fs::metadata(path).unwrap().len();
        let mut ahead = 0;
        for round in 0..60 {
            let connection = open(path, "");
            if round == 0 {
                let pragma =
                    format!("PRAGMA page_size = {page_bytes}; PRAGMA auto_vacuum = INCREMENTAL");
                connection.execute_batch(&pragma).unwrap();
                connection.execute_batch("CREATE TABLE t (a INTEGER PRIMARY KEY, b)").unwrap();
            }
            connection.execute_batch(ROW).unwrap();
            let needed = pages(&connection) * page_bytes;
            drop(connection);
            assert!((needed..=needed + (32 << 10)).contains(&bytes()), "{page_bytes}: {round}");
            assert!(bytes().is_multiple_of(page_bytes));
            ahead += u32::from(bytes() > needed);
            if round % 5 == 4 {
                let connection = open(path, "");
                connection.execute_batch("UPDATE t SET b = b WHERE a = 1").unwrap();
                connection.execute_batch("PRAGMA holdfast_release").unwrap();
                assert_eq!(bytes(), needed, "a released file is as long as its pages");
                assert_sound(&connection);
            }
            if round % 7 == 6 {
                let plain = open_plain(path);
                assert_eq!(pages(&plain) * page_bytes, needed);
                plain.execute_batch(ROW).unwrap();
                assert_sound(&plain);
            }
        }
        assert_eq!(ahead > 10, page_bytes < 65_536, "{page_bytes}: {ahead} times");
        let connection = open(path, "");
        assert_eq!(number(&connection, "SELECT count(*) FROM t WHERE length(b) = 5000"), 68);
        connection.execute_batch("DELETE FROM t WHERE a > 40; PRAGMA incremental_vacuum").unwrap();
        assert_sound(&connection);
        let needed = pages(&connection) * page_bytes;
        drop(connection);
        assert_eq!(bytes(), needed, "{page_bytes}: what was taken from its end");
        let plain = open_plain(path);
        assert_sound(&plain);
        assert_eq!(number(&plain, "SELECT count(*) FROM t"), 40);
    }
}

/// What a file grows by ahead does not raise a limit of its pages.
///
/// Guarantee: sqlite/same-results
#[test]
fn number_of_pages_stays_limited() {
    let folder = scratch();
    let connection = open(&folder.path().join("db"), "");
    assert_eq!(number(&connection, "PRAGMA max_page_count = 60"), 60);
    connection.execute_batch("CREATE TABLE t (a INTEGER PRIMARY KEY, b)").unwrap();
    let full = loop {
        if let Err(full) = connection.execute("INSERT INTO t (b) VALUES (randomblob(3000))", []) {
            break full;
        }
        assert!(number(&connection, "PRAGMA page_count") <= 60);
    };
    assert!(full.to_string().contains("full"), "{full}");
    assert_eq!(number(&connection, "PRAGMA max_page_count"), 60);
    assert_eq!(number(&connection, "PRAGMA page_count"), 60);
}

const FILL: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) \
                    INSERT INTO t (b) SELECT hex(zeroblob(400)) || i FROM n";

/// A transaction that outgrows the pool goes on on the disk and can be rolled back.
///
/// Guarantee: sqlite/outgrown-pool
#[test]
fn outgrown_transaction_goes_on_on_disk() {
    const EXCLUSIVE: &str = "PRAGMA locking_mode=EXCLUSIVE;";
    for (page_bytes, lead) in [512, 4096, 8192, 32_768, 65_536]
        .into_iter()
        .flat_map(|bytes| [(bytes, ""), (bytes, EXCLUSIVE)])
    {
        let folder = scratch();
        let path = folder.path().join("db");
        let connection = open(&path, "pool_limit=1048576");
        connection.execute_batch(&format!("PRAGMA page_size={page_bytes}; {lead}")).unwrap();
        connection.execute_batch("PRAGMA cache_size=20; DROP TABLE IF EXISTS t").unwrap();
        connection
            .execute_batch(
                "CREATE TABLE t (a INTEGER PRIMARY KEY, b); INSERT INTO t (b) VALUES (0)",
            )
            .unwrap();
        connection.execute_batch(&format!("BEGIN; {FILL}; ROLLBACK")).unwrap();
        assert_eq!(number(&connection, "SELECT count(*) FROM t"), 1);
        assert_sound(&connection);
        connection
            .execute_batch(&format!("BEGIN; {FILL}; UPDATE t SET b = b || 'x'; COMMIT"))
            .unwrap();
        assert_eq!(number(&connection, "SELECT count(*) FROM t"), 5001);
        assert!(!folder.path().join("db-journal").exists(), "the journal is back in memory");
        let before = statistic(&connection, "commits");
        connection.execute("INSERT INTO t (b) VALUES (1)", []).unwrap();
        assert_eq!(statistic(&connection, "commits"), before + 1);
        assert!(statistic(&connection, "pages") > 0, "and transactions are back in the pool");
        assert_sound(&connection);
        drop(connection);
        assert_sound(&open_plain(&path));
    }
}

/// The transaction that makes a database outgrows the pool and is rolled back: the database is
/// empty, stays in the pool, and keeps what is committed then.
///
/// Guarantee: sqlite/outgrown-pool
#[test]
fn outgrown_creation_is_rolled_back_without_loss() {
    const TABLE: &str = "CREATE TABLE t (a INTEGER PRIMARY KEY, b)";
    const EXCLUSIVE: &str = "PRAGMA locking_mode=EXCLUSIVE;";
    for (page_bytes, lead, level) in [
        (4096, "", "process"),
        (4096, EXCLUSIVE, "process"),
        (4096, "", "power"),
        (512, "", "process"),
        (65_536, "", "process"),
    ] {
        let folder = scratch();
        let path = folder.path().join("db");
        let connection = open(&path, &format!("pool_limit=1048576&level={level}"));
        let pragmas = format!("PRAGMA page_size={page_bytes}; {lead} PRAGMA cache_size=20");
        connection.execute_batch(&pragmas).unwrap();
        connection.execute_batch(&format!("BEGIN; {TABLE}; {FILL}")).unwrap();
        let bytes = std::fs::metadata(&path).unwrap().len();
        assert!(bytes > 1 << 20, "{page_bytes}: it is in the pool");
        connection.execute_batch("ROLLBACK").unwrap();
        assert_eq!(number(&connection, "SELECT count(*) FROM sqlite_master"), 0);
        let insert = format!("{TABLE}; INSERT INTO t (b) VALUES (1)");
        connection.execute_batch(&insert).unwrap();
        assert_sound(&connection);
        drop(connection);
        let connection = open(&path, "");
        assert_eq!(number(&connection, "SELECT count(*) FROM t"), 1, "{page_bytes} {lead}{level}");
        drop(connection);
        let plain = open_plain(&path);
        assert_eq!(number(&plain, "SELECT count(*) FROM t"), 1, "{page_bytes} {lead}{level}");
        assert_sound(&plain);
    }
}

/// Without a journal a full pool is an error and what was committed stays.
///
/// Guarantee: sqlite/outgrown-pool
#[test]
fn full_pool_without_journal_is_an_error() {
    let folder = scratch();
    let path = folder.path().join("db");
    let connection = open(&path, "pool_limit=1048576");
    connection.execute_batch("PRAGMA journal_mode=MEMORY; PRAGMA cache_size=20").unwrap();
    connection
        .execute_batch("CREATE TABLE t (a INTEGER PRIMARY KEY, b); INSERT INTO t (b) VALUES (0)")
        .unwrap();
    let refused = connection.execute(FILL, []).unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(rusqlite::ErrorCode::DiskFull), "{refused}");
    assert_eq!(number(&connection, "SELECT count(*) FROM t"), 1);
    connection.execute("INSERT INTO t (b) VALUES (1)", []).unwrap();
    assert_sound(&connection);
    // With more room it goes through.
    let large = "UPDATE t SET b = zeroblob(2000000) WHERE a = 1";
    assert!(connection.execute(large, []).is_err());
    assert_eq!(number(&connection, "SELECT length(b) FROM t WHERE a = 1"), 1);
    let limit: String =
        connection.query_row("PRAGMA holdfast_pool_limit = 4194304", [], |row| row.get(0)).unwrap();
    assert_eq!(limit, "4194304");
    connection.execute(large, []).unwrap();
    assert_sound(&connection);
    drop(connection);
    assert_eq!(number(&open_plain(&path), "SELECT count(*) FROM t"), 2);
}

/// In SQLite's exclusive mode no lock is given back after a full pool: the next transaction is whole
/// all the same. A journal that is settled, of the mode before, counts for none.
///
/// Guarantee: sqlite/outgrown-pool
#[test]
fn full_pool_in_exclusive_mode_costs_one_transaction() {
    for (mode, synchronous, before) in [
        ("OFF", "FULL", "OFF"),
        ("OFF", "OFF", "OFF"),
        ("MEMORY", "FULL", "MEMORY"),
        ("MEMORY", "OFF", "MEMORY"),
        ("OFF", "FULL", "DELETE"),
        ("MEMORY", "FULL", "DELETE"),
        ("MEMORY", "FULL", "PERSIST"),
    ] {
        let what = format!("{before}, {mode}, synchronous={synchronous}");
        let folder = scratch();
        let path = folder.path().join("db");
        let connection = open(&path, "pool_limit=1048576");
        connection
            .execute_batch(&format!(
                "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode={before}; \
                 PRAGMA synchronous={synchronous}; PRAGMA cache_size=20; \
                 CREATE TABLE t (a INTEGER PRIMARY KEY, b); INSERT INTO t (b) VALUES (0); \
                 PRAGMA journal_mode={mode}"
            ))
            .unwrap();
        let refused = connection.execute(FILL, []).unwrap_err();
        let code = refused.sqlite_error_code();
        assert_eq!(code, Some(rusqlite::ErrorCode::DiskFull), "{what}: {refused}");
        assert_eq!(number(&connection, "SELECT count(*) FROM t"), 1, "{what}");
        connection.execute("INSERT INTO t (b) VALUES (1)", []).unwrap();
        assert_eq!(number(&connection, "SELECT count(*) FROM t"), 2, "{what}");
        assert_sound(&connection);
        drop(connection);
        let plain = open_plain(&path);
        assert_eq!(number(&plain, "SELECT count(*) FROM t"), 2, "{what}");
        assert_sound(&plain);
    }
}

/// SQLite's exclusive mode gives no lock back behind the rollback of a transaction that outgrew the
/// pool. It is over all the same: the next one, without a journal that a crash would roll back,
/// does not go to the file.
///
/// Guarantee: sqlite/outgrown-pool
#[test]
fn rolled_back_outgrown_transaction_ends_in_exclusive_mode() {
    for mode in ["memory", "off"] {
        let folder = scratch();
        let path = folder.path().join("db");
        let journal = folder.path().join("db-journal");
        let connection = open(&path, "pool_limit=1048576");
        connection
            .execute_batch(&format!(
                "PRAGMA locking_mode=EXCLUSIVE; PRAGMA cache_size=20; \
                 CREATE TABLE t (a INTEGER PRIMARY KEY, b); INSERT INTO t (b) VALUES (0); \
                 BEGIN; {FILL}"
            ))
            .unwrap();
        assert!(journal.exists(), "it did not outgrow the pool");
        connection.execute_batch("ROLLBACK").unwrap();
        let now: String = connection
            .query_row(&format!("PRAGMA journal_mode={mode}"), [], |row| row.get(0))
            .unwrap();
        assert_eq!(now, mode);
        let refused = connection.execute(FILL, []).unwrap_err();
        let code = refused.sqlite_error_code();
        assert_eq!(code, Some(rusqlite::ErrorCode::DiskFull), "{mode}: {refused}");
        assert!(!journal.exists(), "{mode}");
        assert_eq!(number(&connection, "SELECT count(*) FROM t"), 1, "{mode}");
        let before = statistic(&connection, "commits");
        connection.execute("INSERT INTO t (b) VALUES (1)", []).unwrap();
        assert_eq!(statistic(&connection, "commits"), before + 1, "{mode}");
        assert!(statistic(&connection, "pages") > 0, "{mode}: it is not in the pool");
        assert_sound(&connection);
        drop(connection);
        let plain = open_plain(&path);
        assert_eq!(number(&plain, "SELECT count(*) FROM t"), 2, "{mode}");
        assert_sound(&plain);
    }
}

/// Guarantee: sqlite/processes-share
#[test]
fn connections_of_many_threads_share_a_database() {
    let folder = scratch();
    let path = folder.path().join("db");
    open(&path, "threshold=10").execute_batch("CREATE TABLE t (a INTEGER PRIMARY KEY, b)").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let path = &path;
            scope.spawn(move || {
                let connection = open(path, "");
                for _ in 0..100 {
                    connection.execute("INSERT INTO t (b) VALUES (?)", [thread]).unwrap();
                    assert!(number(&connection, "SELECT count(*) FROM t") > 0);
                }
            });
        }
    });
    let connection = open(&path, "");
    assert_eq!(number(&connection, "SELECT count(*) FROM t"), 400);
    assert_sound(&connection);
}

/// Pragmas and parameters set what they name and refuse what they do not know.
///
/// Guarantee: sqlite/settings
#[test]
fn pragmas_and_parameters_are_checked() {
    let folder = scratch();
    let path = folder.path().join("db");
    let connection = open(&path, "threshold=7&level=power&flush=inline&pool_limit=2097152");
    let get = |name: &str| -> String {
        connection.query_row(&format!("PRAGMA holdfast_{name}"), [], |row| row.get(0)).unwrap()
    };
    assert_eq!(
        [get("threshold"), get("level"), get("flush"), get("pool_limit")],
        ["7", "power", "inline", "2097152"]
    );
    assert_eq!(get("pool_limit=4194304"), "4194304");
    assert_eq!(get("pool_limit=1000000000000"), "8388608", "four times what it was opened with");
    assert_eq!(get("threshold=infinity"), "infinity");
    assert_eq!(get("level=process"), "process");
    connection.execute_batch("CREATE TABLE t (a)").unwrap();
    assert_eq!(statistic(&connection, "applied"), 0);
    assert_eq!(get("checkpoint"), "ok");
    assert_eq!(statistic(&connection, "applied"), 1);
    let refused = connection.query_row("PRAGMA holdfast_level=much", [], |_| Ok(())).unwrap_err();
    assert!(refused.to_string().contains("`power`"), "{refused}");
    drop(connection);
    assert!(try_open(&path, "threshold=some").is_err());
}

/// The limit of a pool is the one that was said last, by any connection of any process; who says
/// none leaves it as it is. More than the image has room for is not in force.
///
/// Guarantee: sqlite/pool-limit
#[test]
fn limit_that_was_said_last_is_in_force() {
    const TEST: &str = "limit_that_was_said_last_is_in_force";
    let limit = |connection: &rusqlite::Connection| -> String {
        connection.query_row("PRAGMA holdfast_pool_limit", [], |row| row.get(0)).unwrap()
    };
    if let Some((role, folder)) = role() {
        println!("\ntold: {}", limit(&open(&folder.join("db"), &role)));
        return;
    }
    let folder = scratch();
    let path = folder.path().join("db");
    let first = open(&path, "pool_limit=4194304");
    for (parameters, expected) in [
        ("", "4194304"),
        ("pool_limit=2097152", "2097152"),
        ("level=power", "2097152"),
        ("holdfast_pool_limit=8388608", "8388608"),
        // Four times what the image was made for.
        ("pool_limit=1000000000000", "16777216"),
    ] {
        let other = open(&path, parameters);
        assert_eq!([limit(&first), limit(&other)], [expected; 2], "{parameters}");
    }
    let mut player = Player::start(TEST, "pool_limit=3145728", folder.path());
    assert_eq!(player.first("told: "), 3_145_728);
    player.finish();
    assert_eq!(limit(&first), "3145728");
}

/// A flush at level power has each commit in the log and a threshold has them together.
///
/// Guarantee: sqlite/level-power
/// Guarantee: sqlite/lost-pool
#[test]
fn power_flush_logs_each_commit_and_threshold_batches() {
    let folder = scratch();
    let connection = open(&folder.path().join("power"), "level=power&threshold=infinity");
    connection.execute_batch("CREATE TABLE t (a)").unwrap();
    for count in 2..20 {
        connection.execute("INSERT INTO t VALUES (1)", []).unwrap();
        assert_eq!(statistic(&connection, "flushed"), count);
    }
    let lazy = open(&folder.path().join("lazy"), "threshold=5&flush=inline");
    lazy.execute_batch("CREATE TABLE t (a)").unwrap();
    for _ in 0..1000 {
        lazy.execute("INSERT INTO t VALUES (randomblob(100))", []).unwrap();
        assert!(statistic(&lazy, "dirty_pages") <= 5);
    }
    assert!(statistic(&lazy, "flushes") < 300);
}

/// Guarantee: sqlite/languages
#[test]
fn the_example_for_rust_keeps_its_rows() {
    let here = std::env::current_exe().unwrap();
    let example = here.ancestors().nth(2).unwrap().join("examples/visits");
    if !example.is_file() {
        return println!(
            "not run: {} is not built; `cargo test -p holdfast-sqlite` does",
            example.display()
        );
    }
    let folder = scratch();
    for expected in ["1\n", "2\n"] {
        let done =
            std::process::Command::new(&example).arg(folder.path().join("db")).output().unwrap();
        assert_eq!(String::from_utf8(done.stdout).unwrap(), expected);
    }
}
