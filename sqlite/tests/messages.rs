//! The messages that users read when something is wrong with a database of the VFS: in the shell,
//! Python, Node and Rust, as each of them prints an error. A language that is not installed is
//! named as not run.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::engine;
use crate::sides::{Ground, say};

/// What is misspelled in a URI, and what is to be read then.
const MISSPELLED: [(&str, &[&str]); 3] = [
    ("level=sytem", &["level is sytem", "`process`, `system` or `power`"]),
    ("treshold=5", &["treshold", "is threshold meant?", "flush_interval"]),
    ("holdfast_flush=later", &["flush is later", "`inline`"]),
];

/// The same where an environment is all that a program passes on.
const MISSPELLED_VARIABLES: [(&str, &str, &[&str]); 3] = [
    ("HOLDFAST_SQLITE_LEVEL", "sytem", &["HOLDFAST_SQLITE_LEVEL", "level is sytem", "`power`"]),
    ("HOLDFAST_SQLITE_TRESHOLD", "5", &["HOLDFAST_SQLITE_TRESHOLD", "is THRESHOLD meant?"]),
    ("HOLDFAST_SQLITE_LOG", "console", &["HOLDFAST_SQLITE_LOG is console", "`stderr`"]),
];

const PYTHON: &str = "/usr/bin/python3";

fn ground_with(command: &mut Command) -> (Ground, &mut Command) {
    let ground = Ground::new();
    ground.lend(command).env("HOLDFAST_SQLITE_EXTENSION", engine::extension().unwrap());
    (ground, command)
}

/// Runs a program, and returns all that it printed, and whether it failed.
fn printed(command: &mut Command) -> (String, bool) {
    let output = command.output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (String::from_utf8_lossy(&printed).into_owned(), !output.status.success())
}

/// The same of one that must fail.
fn failed(command: &mut Command) -> String {
    let (printed, has_failed) = printed(command);
    assert!(has_failed, "{command:?} did not fail\n{printed}");
    printed
}

fn assert_told(printed: &str, parts: &[&str]) {
    for part in parts {
        assert!(printed.contains(part), "{part:?} is not in what was printed:\n{printed}");
    }
}

fn can_run(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The shell's input for a database.
fn shell(database: &Path, parameters: &str, sql: &str) -> Command {
    let mut command = Command::new("sqlite3");
    let load = format!(".load {}", engine::extension().unwrap().display());
    let open = format!(".open file:{}?vfs=holdfast&{parameters}", database.display());
    command.args(["-batch", "-bail", "-cmd", &load, "-cmd", &open, ":memory:", sql]);
    command
}

/// Guarantee: sqlite/settings
#[test]
fn the_shell_prints_the_whole_reason() {
    if !can_run(Command::new("sqlite3").arg("--version")) {
        return println!("not run: there is no sqlite3; ./test installs it");
    }
    for (parameters, parts) in MISSPELLED {
        let ground = Ground::new();
        let mut command = shell(&ground.database(), parameters, "SELECT 1");
        // The shell goes on after an `.open` that failed.
        assert_told(&printed(ground.lend(&mut command)).0, parts);
        assert!(!ground.database().exists(), "it was created");
    }
    for (variable, value, parts) in MISSPELLED_VARIABLES {
        let ground = Ground::new();
        let mut command = shell(&ground.database(), "", "SELECT 1");
        assert_told(&printed(ground.lend(&mut command).env(variable, value)).0, parts);
    }
    let ground = Ground::new();
    let mut command = shell(&ground.database(), "", "PRAGMA holdfast_treshold = 5");
    let parts = ["there is no pragma holdfast_treshold", "is threshold meant?"];
    assert_told(&failed(ground.lend(&mut command)), &parts);
    let mut command = shell(&ground.database(), "", "PRAGMA holdfast_level = sytem");
    assert_told(&failed(ground.lend(&mut command)), &["level is sytem", "`process`"]);
}

/// A statement fails: SQLite says "disk I/O error", and the function and standard error say why.
const STATEMENT: &str = "\
import os, sqlite3, sys
loader = sqlite3.connect(':memory:')
loader.enable_load_extension(True)
loader.load_extension(os.environ['HOLDFAST_SQLITE_EXTENSION'])
print('before:', loader.execute('SELECT holdfast_error()').fetchone()[0])
base = sqlite3.connect(f'file:{sys.argv[1]}?vfs=holdfast&level=power', uri=True)
base.execute('CREATE TABLE t (a)')
os.rename(sys.argv[1], sys.argv[1] + '.away')
try:
    with base:
        base.execute('INSERT INTO t VALUES (1)')
except sqlite3.OperationalError as error:
    print('exception:', error)
os.rename(sys.argv[1] + '.away', sys.argv[1])
print('function:', base.execute('SELECT holdfast_error()').fetchone()[0])
print('rows:', base.execute('SELECT count(*) FROM t').fetchone()[0])
";

const OPENING: &str = "\
import os, sqlite3, sys
loader = sqlite3.connect(':memory:')
loader.enable_load_extension(True)
loader.load_extension(os.environ['HOLDFAST_SQLITE_EXTENSION'])
sqlite3.connect(f'file:{sys.argv[1]}?vfs=holdfast&{sys.argv[2]}', uri=True)
";

/// Guarantee: sqlite/settings
#[test]
fn python_raises_the_whole_reason() {
    let can = "import sqlite3; sqlite3.connect(':memory:').enable_load_extension(True)";
    if !can_run(Command::new(PYTHON).args(["-c", can])) {
        return println!(
            "not run: {PYTHON} is missing, or its sqlite3 loads no extensions; ./test installs python3"
        );
    }
    for (parameters, parts) in MISSPELLED {
        let mut command = Command::new(PYTHON);
        let (ground, command) = ground_with(&mut command);
        command.args(["-c", OPENING]).arg(ground.database()).arg(parameters);
        let printed = failed(command);
        assert_told(&printed, parts);
        assert_told(&printed, &["sqlite3.OperationalError"]);
    }
    for log in ["stderr", "off"] {
        let mut command = Command::new(PYTHON);
        let (ground, command) = ground_with(&mut command);
        command.args(["-c", STATEMENT]).arg(ground.database()).env("HOLDFAST_SQLITE_LOG", log);
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (printed, errors) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{printed}{errors}");
        let reason = "main.db was moved, removed or replaced while it was in use";
        let lines: Vec<&str> = printed.lines().collect();
        assert_eq!((lines[0], lines[1]), ("before: None", "exception: disk I/O error"));
        assert!(lines[2].starts_with("function: ") && lines[2].contains(reason), "{printed}");
        assert_eq!(lines[3], "rows: 0");
        let told =
            errors.lines().any(|line| line.starts_with("holdfast: ") && line.contains(reason));
        assert_eq!(told, log == "stderr", "{log}: {errors}");
    }
}

const NODE: &str = "\
process.env.HOLDFAST_SQLITE_DEFAULT = '1';
const Database = require('better-sqlite3');
const loader = new Database(':memory:');
loader.loadExtension(process.env.HOLDFAST_SQLITE_EXTENSION);
new Database(process.argv[1]);
";

/// Guarantee: sqlite/settings
#[test]
fn node_throws_the_whole_reason() {
    let modules =
        std::env::current_exe().unwrap().ancestors().nth(3).unwrap().join("node/node_modules");
    if !can_run(Command::new("node").arg("--version")) || !modules.join("better-sqlite3").is_dir() {
        return println!(
            "not run: there is no node, or better-sqlite3 could not be built for it; ./test tries both"
        );
    }
    for (variable, value, parts) in MISSPELLED_VARIABLES {
        let mut command = Command::new("node");
        let (ground, command) = ground_with(&mut command);
        command
            .args(["-e", NODE])
            .arg(ground.database())
            .env("NODE_PATH", &modules)
            .env(variable, value);
        let printed = failed(command);
        assert_told(&printed, parts);
        assert_told(&printed, &["SqliteError"]);
    }
    let mut command = Command::new("node");
    let (ground, command) = ground_with(&mut command);
    let script = NODE.replace("= '1'", "= 'yes'");
    command.args(["-e", &script]).arg(ground.database()).env("NODE_PATH", &modules);
    assert_told(&failed(command), &["HOLDFAST_SQLITE_DEFAULT is yes", "`1` or `0`"]);
}

/// The role: what `rusqlite` says.
pub(crate) fn open(path: &Path) {
    engine::load();
    for (parameters, parts) in MISSPELLED {
        let error =
            engine::open(path, &format!("vfs=holdfast&{parameters}")).unwrap_err().to_string();
        assert_told(&error, parts);
    }
    let connection =
        engine::open(path, "vfs=holdfast&unknown=ignore&chunksize=5&_timeout=7").unwrap();
    let attached = format!("ATTACH 'file:{}2?vfs=holdfast&level=sytem' AS two", path.display());
    assert!(connection.execute_batch(&attached).is_err());
    let newest: String =
        connection.query_row("SELECT holdfast_error()", [], |row| row.get(0)).unwrap();
    assert_told(&newest, MISSPELLED[0].1);
    for (sql, part) in [
        ("PRAGMA holdfast_flush_interval = '3 weeks'", "flush_interval is 3 weeks"),
        ("PRAGMA holdfast_checkpoint = now", "takes no value"),
        ("PRAGMA holdfast_relase", "is release meant?"),
    ] {
        assert_told(&connection.execute_batch(sql).unwrap_err().to_string(), &[part]);
    }
    say("told");
}

/// Guarantee: sqlite/settings
#[test]
fn rusqlite_returns_the_whole_reason() {
    let ground = Ground::new();
    assert_eq!(ground.run(&["open", ground.database().to_str().unwrap()]).well(), "told");
}
