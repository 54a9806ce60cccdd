//! Programs of this machine that know nothing of the VFS, with the library before them: the shell
//! of SQLite, Python, and one that has no SQLite.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const LIBRARY: &str = "libholdfast_sqlite_preload.so";

/// The built library.
fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let found = program.ancestors().find(|folder| folder.join(LIBRARY).exists());
    found
        .unwrap_or_else(|| panic!("build it: cargo build -p holdfast-sqlite-preload"))
        .join(LIBRARY)
}

fn plain(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

fn preloaded(folder: &Path, program: &str, arguments: &[&str]) -> Command {
    let mut command = plain(program, arguments);
    command
        .env("LD_PRELOAD", library())
        .env("HOLDFAST_HOME", folder.join("home"))
        .env("HOLDFAST_POOL", folder.join("pool"));
    command
}

fn output(mut command: Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; `./test` installs it"))
}

fn text(command: Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A database with a plain name is opened in the VFS by a program that was not rebuilt, and a plain
/// SQLite finds all of it after the close.
///
/// Guarantee: sqlite/preloaded
#[test]
fn preloaded_shell_opens_plain_names_in_the_vfs() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let database = folder.path().join("db");
    let name = database.to_str().unwrap();
    let statements = "PRAGMA journal_mode = WAL; CREATE TABLE t (a); INSERT INTO t VALUES (1), (2); PRAGMA holdfast_level;";
    let found = text(preloaded(folder.path(), "sqlite3", &["-batch", name, statements]));
    assert_eq!(found, "delete\nprocess");
    let statements = "SELECT sum(a) FROM t; PRAGMA integrity_check; PRAGMA holdfast_level;";
    assert_eq!(text(plain("sqlite3", &["-batch", name, statements])), "3\nok");
}

/// An SQLite that a plug-in brings in long after the start of the program is found, too; and what a
/// killed program committed is there for the next one.
///
/// Guarantee: sqlite/preloaded
#[test]
fn preloaded_python_keeps_what_it_committed_before_a_kill() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let database = folder.path().join("db");
    let name = database.to_str().unwrap();
    let script = format!(
        "import os, signal, sqlite3\n\
         base = sqlite3.connect('{name}')\n\
         base.execute('CREATE TABLE t (a)')\n\
         base.executemany('INSERT INTO t VALUES (?)', [(1,), (2,)])\n\
         base.commit()\n\
         os.kill(os.getpid(), signal.SIGKILL)\n"
    );
    let killed = output(preloaded(folder.path(), "/usr/bin/python3", &["-c", &script]));
    assert!(!killed.status.success());
    let refused = output(plain("sqlite3", &["-batch", name, "SELECT sum(a) FROM t"]));
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("file is not a database"),
        "{refused:?}"
    );
    let found =
        text(preloaded(folder.path(), "sqlite3", &["-batch", name, "SELECT sum(a) FROM t"]));
    assert_eq!(found, "3");
    assert_eq!(text(plain("sqlite3", &["-batch", name, "SELECT sum(a) FROM t"])), "3");
}

/// A VFS that is named is the one that is used.
///
/// Guarantee: sqlite/preloaded
#[test]
fn vfs_that_a_program_names_is_used() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let name = format!("file:{}?vfs=unix", folder.path().join("db").display());
    let statements =
        "CREATE TABLE t (a); PRAGMA journal_mode = WAL; PRAGMA holdfast_level; SELECT 'end';";
    let found =
        text(preloaded(folder.path(), "sqlite3", &["-batch", "-cmd", "", &name, statements]));
    assert_eq!(found, "wal\nend");
}

/// A program without SQLite runs as it would without the library.
///
/// Guarantee: sqlite/preloaded
#[test]
fn program_without_sqlite_is_left_alone() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut command = preloaded(folder.path(), "sh", &["-c", "echo here"]);
    command.env("LD_BIND_NOW", "1");
    let output = output(command);
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"here\n"[..], &b""[..]));
    assert!(!folder.path().join("home").exists());
}

/// A program that calls SQLite by its C functions, with the library before it.
fn through_c(folder: &Path, calls: &str) -> Output {
    let script = format!(
        "import ctypes\n\
         ctypes.CDLL('libsqlite3.so.0', mode=ctypes.RTLD_GLOBAL)\n\
         c = ctypes.CDLL(None)\n\
         c.sqlite3_vfs_find.restype = ctypes.c_void_p\n\
         base = ctypes.c_void_p()\n\
         def open_one():\n    return c.sqlite3_open(b'{}', ctypes.byref(base))\n\
         def default():\n    return c.sqlite3_vfs_find(None)\n\
         def named(name):\n    return c.sqlite3_vfs_find(name)\n{calls}",
        folder.join("db").display()
    );
    output(preloaded(folder, "/usr/bin/python3", &["-c", &script]))
}

/// SQLite can still be configured before the first database is opened, and after a shutdown the
/// VFS is the default again.
///
/// Guarantee: sqlite/preloaded
#[test]
fn preloaded_sqlite_can_be_configured_and_shut_down() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let output = through_c(
        folder.path(),
        "SERIALIZED = 3\n\
         print(c.sqlite3_config(SERIALIZED), open_one(), default() == named(b'holdfast'))\n\
         print(c.sqlite3_close(base), c.sqlite3_shutdown(), c.sqlite3_config(SERIALIZED))\n\
         print(open_one(), default() == named(b'holdfast'))\n",
    );
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(printed, "0 0 True\n0 0 0\n0 True\n", "{output:?}");
}

/// A default VFS that the program chose stays, and standard error says so.
///
/// Guarantee: sqlite/preloaded
#[test]
fn default_vfs_of_the_program_stays() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let output = through_c(
        folder.path(),
        "print(c.sqlite3_vfs_register(ctypes.c_void_p(named(b'unix-none')), 1), open_one())\n\
         print(default() == named(b'unix-none'), named(b'holdfast'))\n",
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 0\nTrue None\n", "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("made a VFS of its own the default"), "{said}");
}
