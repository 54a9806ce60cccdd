//! The examples of `sqlite/examples`, as a user runs them: the shell, Python, C and Node, each in a
//! process of its own that is there twice, so that the second one finds what the first one wrote.
//! Rust is what the other tests are in.
//!
//! A language that is not installed is named as not run.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::engine;
use crate::sides::Ground;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../sqlite/examples")
}

fn output(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        status.success(),
        "{command:?} ended with {status}\n{}{}",
        text(&stdout),
        text(&stderr)
    );
    text(&stdout)
}

fn is_there(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    found.is_ok_and(|output| output.status.success())
}

/// Runs a program twice on one database; each run adds a row and prints how many there are.
fn counts(program: impl Fn(&Path) -> Command) {
    let ground = Ground::new();
    for expected in ["1\n", "2\n"] {
        let mut command = program(&ground.database());
        ground.lend(&mut command).env("HOLDFAST_SQLITE_EXTENSION", engine::extension().unwrap());
        assert_eq!(output(&mut command), expected);
    }
}

/// Guarantee: sqlite/languages
#[test]
fn the_example_for_the_shell_keeps_its_rows() {
    if !is_there("sqlite3") {
        return println!("not run: there is no sqlite3; ./test installs it");
    }
    counts(|database| {
        let mut command = Command::new("sh");
        command.arg(folder().join("visits.sh")).arg(database);
        command
    });
}

/// Guarantee: sqlite/languages
#[test]
fn the_example_for_python_keeps_its_rows() {
    let python = "/usr/bin/python3";
    let can = "import sqlite3; sqlite3.connect(':memory:').enable_load_extension(True)";
    if !Command::new(python)
        .args(["-c", can])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
    {
        return println!(
            "not run: {python} is missing, or its sqlite3 loads no extensions; ./test installs python3"
        );
    }
    counts(|database| {
        let mut command = Command::new(python);
        command.arg(folder().join("visits.py")).arg(database);
        command
    });
}

/// Guarantee: sqlite/languages
#[test]
fn the_example_in_c_keeps_its_rows() {
    if !is_there("cc") || !Path::new("/usr/include/sqlite3.h").exists() {
        return println!(
            "not run: there is no C compiler, or no sqlite3.h; ./test installs libsqlite3-dev"
        );
    }
    let built = tempfile::tempdir().unwrap();
    let program = built.path().join("visits");
    let source = folder().join("visits.c");
    output(
        Command::new("cc")
            .args(["-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&program)
            .arg(source)
            .arg("-lsqlite3"),
    );
    counts(|database| {
        let mut command = Command::new(&program);
        command.arg(database);
        command
    });
}

/// The C example with the VFS linked in keeps its rows.
///
/// Guarantee: sqlite/languages
#[test]
fn c_example_with_linked_vfs_keeps_its_rows() {
    let archive = engine::extension().unwrap().with_file_name("libholdfast_sqlite.a");
    if !is_there("cc") || !Path::new("/usr/include/sqlite3.h").exists() || !archive.is_file() {
        return println!(
            "not run: there is no C compiler, no sqlite3.h, or no libholdfast_sqlite.a; ./test has all of them"
        );
    }
    let built = tempfile::tempdir().unwrap();
    let program = built.path().join("linked");
    output(
        Command::new("cc")
            .args(["-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&program)
            .arg(folder().join("linked.c"))
            .arg(archive)
            .args(["-lsqlite3", "-lpthread", "-ldl", "-lm"]),
    );
    counts(|database| {
        let mut command = Command::new(&program);
        command.arg(database);
        command
    });
}

/// Guarantee: sqlite/languages
#[test]
fn the_example_for_node_keeps_its_rows() {
    let modules =
        std::env::current_exe().unwrap().ancestors().nth(3).unwrap().join("node/node_modules");
    if !is_there("node")
        || !modules.join("better-sqlite3/build/Release/better_sqlite3.node").is_file()
    {
        return println!(
            "not run: there is no node, or better-sqlite3 could not be built for it; ./test tries both"
        );
    }
    counts(|database| {
        let mut command = Command::new("node");
        command.arg(folder().join("visits.js")).arg(database).env("NODE_PATH", &modules);
        command
    });
}
