//! The extension in the SQLite of this machine: its shell, and Python's; and our declarations
//! against its header.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The built extension.
fn extension() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let found = program.ancestors().find(|folder| folder.join("libholdfast_sqlite.so").exists());
    found
        .unwrap_or_else(|| panic!("build it: cargo build -p holdfast-sqlite-extension"))
        .join("libholdfast_sqlite.so")
}

fn run(folder: &Path, program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("HOLDFAST_HOME", folder.join("home"))
        .env("HOLDFAST_POOL", folder.join("pool"));
    command.output().unwrap_or_else(|error| panic!("{program}: {error}; `./test` installs it"))
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Guarantee: sqlite/languages
#[test]
fn the_extension_serves_the_shell_of_sqlite() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let database = folder.path().join("db");
    let script = folder.path().join("script");
    let commands = format!(
        ".load {}\n.open file:{}?vfs=holdfast\nCREATE TABLE t (a); INSERT INTO t VALUES (1), (2);\n\
         SELECT sum(a) FROM t; PRAGMA holdfast_level;\n",
        extension().display(),
        database.display()
    );
    std::fs::write(&script, commands).unwrap();
    let read = format!(".read {}", script.display());
    assert_eq!(text(&run(folder.path(), "sqlite3", &["-batch", ":memory:", &read])), "3\nprocess");
    let plain =
        run(folder.path(), "sqlite3", &[database.to_str().unwrap(), "SELECT count(*) FROM t"]);
    assert_eq!(text(&plain), "2");
}

/// Guarantee: sqlite/languages
#[test]
fn the_extension_serves_python() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let script = format!(
        "import sqlite3\n\
         loader = sqlite3.connect(':memory:')\n\
         loader.enable_load_extension(True)\n\
         loader.load_extension('{}')\n\
         loader.close()\n\
         base = sqlite3.connect('file:{}?vfs=holdfast', uri=True)\n\
         base.execute('CREATE TABLE t (a)')\n\
         base.executemany('INSERT INTO t VALUES (?)', [(1,), (2,)])\n\
         base.commit()\n\
         print(base.execute('PRAGMA holdfast_level').fetchone()[0], base.execute('SELECT sum(a) FROM t').fetchone()[0])\n\
         base.close()\n",
        extension().display(),
        folder.path().join("db").display()
    );
    assert_eq!(text(&run(folder.path(), "/usr/bin/python3", &["-c", &script])), "process 3");
    let plain = run(
        folder.path(),
        "sqlite3",
        &[folder.path().join("db").to_str().unwrap(), "SELECT sum(a) FROM t"],
    );
    assert_eq!(text(&plain), "3");
}

/// Names in `sqlite3_api_routines`, with the places that the library uses.
const PLACES: [(&str, usize); 13] = [
    ("libversion_number", 67),
    ("malloc", 68),
    ("result_text", 85),
    ("file_control", 127),
    ("vfs_find", 141),
    ("vfs_register", 142),
    ("create_function_v2", 162),
    ("log", 167),
    ("uri_parameter", 189),
    ("auto_extension", 192),
    ("uri_key", 245),
    ("filename_journal", 247),
    ("filename_wal", 248),
];

/// Guarantee: sqlite/languages
#[test]
fn declarations_are_those_of_the_header() {
    let folder = tempfile::tempdir().unwrap();
    let checks: String = PLACES
        .iter()
        .map(|(name, place)| {
            format!(
                "_Static_assert(offsetof(struct sqlite3_api_routines, {name}) == {place} * sizeof(void *), \"{name}\");\n"
            )
        })
        .collect();
    let sizes = "_Static_assert(sizeof(sqlite3_vfs) == 168 && sizeof(sqlite3_io_methods) == 152, \"sizes\");\n";
    let source = folder.path().join("check.c");
    std::fs::write(
        &source,
        format!("#include <stddef.h>\n#include <sqlite3ext.h>\n{checks}{sizes}"),
    )
    .unwrap();
    text(&run(folder.path(), "cc", &["-fsyntax-only", source.to_str().unwrap()]));
}
