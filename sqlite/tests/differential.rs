//! Rows S5 and, with many rows, S15: the same statements over our VFS, over that of Unix, and in
//! memory; every result and every error is the same, and so are the databases at the end.
//!
//! Ours is compared in two ways of flushing: hardly ever, and all the time by a background thread.
//! Whatever the seed, plain SQLite reads the same from the file once it was closed.

use std::path::Path;

use holdfast_testkit::Trials;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode};

use crate::engine;
use crate::sides::{Ground, say};
use crate::statements::{Action, Statements};

/// Statements of one seed.
const STATEMENTS: i64 = 1000;
/// Seeds of a short run.
const SEEDS: u64 = 3;
/// The same where there are many rows already.
const STATEMENTS_AMID_ROWS: i64 = 150;
const ROWS: i64 = 20_000;

/// Statements whose results depend on settings that go with the connection, and that memory keeps.
const OF_FILES: [&str; 1] = ["PRAGMA incremental_vacuum"];

/// What a statement came to.
#[derive(Debug, PartialEq)]
enum Result {
    Rows(Vec<Vec<Value>>),
    Error(Option<ErrorCode>, String),
}

/// A database that is compared.
struct Contender {
    name: &'static str,
    /// `None` for the one in memory, which cannot be opened again.
    parameters: Option<&'static str>,
    connection: Option<Connection>,
}

impl Contender {
    fn new(folder: &Path, name: &'static str, parameters: Option<&'static str>) -> Contender {
        let mut contender = Contender { name, parameters, connection: None };
        contender.open(folder);
        contender
    }

    fn open(&mut self, folder: &Path) {
        let connection = match self.parameters {
            Some(parameters) => {
                engine::open(&folder.join(format!("{}.db", self.name)), parameters).unwrap()
            }
            None => Connection::open_in_memory().unwrap(),
        };
        // It is not compared whether the disk was waited for.
        connection.execute_batch("PRAGMA synchronous = OFF").unwrap();
        self.connection = Some(connection);
    }

    fn is_file(&self) -> bool {
        self.parameters.is_some()
    }

    fn close(&mut self) {
        self.connection.take().unwrap().close().unwrap();
    }

    fn connection(&self) -> &Connection {
        self.connection.as_ref().unwrap()
    }

    fn run(&self, sql: &str) -> Result {
        let all = || -> rusqlite::Result<Vec<Vec<Value>>> {
            let mut statement = self.connection().prepare(sql)?;
            let columns = statement.column_count();
            let mut rows = statement.query([])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                found.push(
                    (0..columns).map(|column| row.get(column)).collect::<rusqlite::Result<_>>()?,
                );
            }
            Ok(found)
        };
        match all() {
            Ok(rows) => Result::Rows(rows),
            Err(error) => Result::Error(error.sqlite_error_code(), error.to_string()),
        }
    }
}

/// The role: one seed; `rows` rows of 1 KiB are there before.
pub(crate) fn differ(seed: u64, count: i64, rows: i64, folder: &Path) {
    engine::load();
    let mut statements = Statements::new(StdRng::seed_from_u64(seed));
    let mut all = [
        Contender::new(folder, "unix", Some("vfs=unix")),
        Contender::new(folder, "lazy", Some("vfs=holdfast&threshold=infinity")),
        Contender::new(folder, "eager", Some("vfs=holdfast&threshold=3")),
        Contender::new(folder, "memory", None),
    ];
    for contender in all.iter().filter(|_| rows > 0) {
        // From a number on that no statement uses: they meet rows of one another only.
        let fill = format!(
            "CREATE TABLE a (k INTEGER PRIMARY KEY, u UNIQUE, v);
             WITH RECURSIVE n(i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n WHERE i < 999 + {rows})
             INSERT INTO a SELECT i, -i, hex(zeroblob(480)) || (i * 2654435761 % 4294967296) FROM n"
        );
        contender.connection().execute_batch(&fill).unwrap();
    }
    for number in 0..count {
        let action = statements.next();
        match &action {
            Action::Run(sql) => {
                let expected = all[0].run(sql);
                for contender in &all[1..] {
                    let found = contender.run(sql);
                    // What takes effect when a file is opened again does so never in memory.
                    if !contender.is_file() && OF_FILES.iter().any(|pragma| sql.starts_with(pragma))
                    {
                        continue;
                    }
                    assert!(
                        found == expected,
                        "statement {number}: {sql}\n{}: {found:?}\nunix: {expected:?}",
                        contender.name
                    );
                }
            }
            // A transaction that is open would be rolled back in the files and not in memory.
            Action::Reopen if all[0].connection().is_autocommit() => {
                for contender in all.iter_mut().filter(|contender| contender.is_file()) {
                    contender.close();
                    contender.open(folder);
                }
            }
            Action::Reopen => {}
        }
    }
    for contender in &all {
        if !contender.connection().is_autocommit() {
            contender.run("ROLLBACK");
        }
    }
    let expected = content(all[0].connection());
    for contender in &mut all {
        assert_eq!(engine::integrity(contender.connection()).unwrap(), "ok", "{}", contender.name);
        assert!(
            content(contender.connection()) == expected,
            "{} ends with other rows",
            contender.name
        );
        if contender.is_file() {
            contender.close();
            let path = folder.join(format!("{}.db", contender.name));
            let plain = engine::open(&path, "vfs=unix").unwrap();
            assert_eq!(engine::integrity(&plain).unwrap(), "ok", "{}, closed", contender.name);
            assert!(content(&plain) == expected, "{}, closed, holds other rows", contender.name);
        }
    }
    say("same");
}

/// All rows of all tables.
fn content(connection: &Connection) -> Vec<(String, Vec<Vec<Value>>)> {
    let mut names = connection
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
        .unwrap();
    let names: Vec<String> =
        names.query_map([], |row| row.get(0)).unwrap().map(|name| name.unwrap()).collect();
    let rows = |name: &str| {
        let mut statement =
            connection.prepare(&format!("SELECT * FROM {name} ORDER BY k")).unwrap();
        let columns = statement.column_count();
        let row = |row: &rusqlite::Row<'_>| (0..columns).map(|column| row.get(column)).collect();
        statement.query_map([], row).unwrap().map(|row| row.unwrap()).collect()
    };
    names.into_iter().map(|name| (name.clone(), rows(&name))).collect()
}

fn same(row: &'static str, what: &'static str, (seeds, count, rows): (u64, i64, i64)) {
    let mut trials = Trials::of(row, what, seeds);
    while let Some(trial) = trials.next() {
        let ground = Ground::new();
        let numbers = [trial.seed.to_string(), count.to_string(), rows.to_string()];
        let [seed, count, rows] = numbers.each_ref().map(String::as_str);
        let folder = ground.folder.path().to_str().unwrap();
        let said = ground.run(&["differ", seed, count, rows, folder]).well();
        assert_eq!(said, "same");
    }
}

/// Random statements give the same results as over the Unix VFS and in memory.
///
/// Guarantee: sqlite/same-results
#[test]
fn random_statements_match_unix_vfs_and_memory() {
    same("S5", "random statements, 1000 for each seed", (SEEDS, STATEMENTS, 0));
}

/// Guarantee: sqlite/same-results
#[test]
fn random_statements_amid_many_rows_match() {
    same("S15", "random statements, 20,000 rows", (SEEDS, STATEMENTS_AMID_ROWS, ROWS));
}
