//! `holdfast sqlite` from outside, on databases that the `sqlite3` of the system wrote with the
//! extension.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use holdfast_testkit::Scratch;

use crate::{scratch, succeed, tell};

/// The extension that was built with the command; a text says why there is none, or no shell to
/// load it.
fn extension(scratch: &Scratch) -> Result<PathBuf, String> {
    let path = scratch.programs().holdfast().with_file_name("libholdfast_sqlite.so");
    if !path.is_file() {
        return Err(format!("{} is not built; run ./test", path.display()));
    }
    let found = Command::new("sqlite3").arg("--version").stdin(Stdio::null()).output();
    match found.is_ok_and(|output| output.status.success()) {
        true => Ok(path),
        false => Err("there is no sqlite3; ./test installs it".to_owned()),
    }
}

/// The shell with the VFS, for a script in the scratch home.
fn shell(scratch: &Scratch, extension: &Path, script: &str) -> Command {
    let script = format!(
        ".load {}\n.open \"file:notes.db?vfs=holdfast&threshold=infinity\"\n{script}\n",
        extension.display()
    );
    let script = scratch.write("script", script).unwrap();
    let mut command = Command::new("sqlite3");
    command.args(["-batch", "-bail", ":memory:"]).stdin(std::fs::File::open(script).unwrap());
    command
        .env("HOLDFAST_HOME", scratch.home())
        .env("HOLDFAST_POOL", scratch.pool())
        .current_dir(scratch.files());
    command
}

fn plain(scratch: &Scratch, sql: &str) -> Command {
    let mut command = Command::new("sqlite3");
    command.arg(scratch.files().join("notes.db")).arg(sql).stdin(Stdio::null());
    command
}

/// A database left by a crash is reported, recovered and then readable by any SQLite.
///
/// Guarantee: sqlite/recover
/// Guarantee: sqlite/without-the-vfs
#[test]
fn crashed_database_is_recovered_for_any_sqlite() {
    let scratch = scratch();
    let extension = match extension(&scratch) {
        Ok(extension) => extension,
        Err(reason) => return println!("not run: {reason}"),
    };
    let sqlite = |words: &[&str]| {
        let mut command = scratch.holdfast();
        command.arg("sqlite").args(words).current_dir(scratch.files());
        command
    };
    let work = "CREATE TABLE notes (text); INSERT INTO notes VALUES ('kept');";
    // The shell kills itself, with the commit in the pool and nowhere else.
    let crash = tell_of_any_end(&mut shell(
        &scratch,
        &extension,
        &format!("{work}\n.system kill -KILL $PPID"),
    ));
    assert!(!crash.success());
    let refused = tell(&mut plain(&scratch, "SELECT text FROM notes"));
    assert!(refused.status != 0, "plain SQLite read a database whose newest commits are elsewhere");
    assert!(
        succeed(&mut sqlite(&["status", "notes.db"]))
            .contains("left by a crash: its newest commits are in the pool")
    );
    assert!(
        succeed(&mut sqlite(&["recover", "notes.db"])).ends_with("recovered, with every commit\n")
    );
    assert_eq!(succeed(&mut plain(&scratch, "SELECT text FROM notes")), "kept\n");
    assert!(succeed(&mut sqlite(&["status", "notes.db"])).contains("complete"));
    assert!(succeed(&mut sqlite(&["recover", "notes.db"])).contains("nothing to recover"));
    assert!(
        succeed(&mut sqlite(&["checkpoint", "notes.db"])).contains("all commits are in the file")
    );
    let missing = tell(&mut sqlite(&["status", "none.db"]));
    assert_eq!(
        (missing.status, missing.err.contains("there is no file")),
        (3, true),
        "{}",
        missing.err
    );
}

/// A saved database is named by the keeper and `doctor` and recovered without its pool.
///
/// Guarantee: sqlite/status
#[test]
fn saved_database_is_recovered_without_its_pool() {
    let scratch = scratch();
    let extension = match extension(&scratch) {
        Ok(extension) => extension,
        Err(reason) => return println!("not run: {reason}"),
    };
    let work =
        "CREATE TABLE notes (text); INSERT INTO notes VALUES ('kept');\n.system kill -KILL $PPID";
    assert!(!tell_of_any_end(&mut shell(&scratch, &extension, work)).success());
    let path = scratch.files().join("notes.db").canonicalize().unwrap().display().to_string();
    let holdfast = |words: &[&str]| {
        let mut command = scratch.holdfast();
        command.args(words).current_dir(scratch.files());
        command
    };
    let told = succeed(&mut holdfast(&["keeper", "status"]));
    assert!(told.contains("DATABASE") && told.contains(&path) && told.contains("left"), "{told}");
    let told = tell(&mut holdfast(&["doctor"])).out;
    assert!(told.contains(&format!("{path} (left by a crash")), "{told}");
    let told = succeed(&mut holdfast(&["keeper", "flush"]));
    assert!(told.contains(&path) && told.contains("0 heaps and 1 database saved"), "{told}");
    assert!(tell(&mut holdfast(&["doctor"])).out.contains(&format!("{path} (flushed or saved)")));
    std::fs::remove_dir_all(scratch.pool()).unwrap();
    let told = succeed(&mut holdfast(&["sqlite", "status", "notes.db"]));
    assert!(told.contains("as the keeper saved it"), "{told}");
    let told = succeed(&mut holdfast(&["sqlite", "recover", "notes.db"]));
    assert!(told.contains("recovered as the keeper saved it"), "{told}");
    assert_eq!(succeed(&mut plain(&scratch, "SELECT text FROM notes")), "kept\n");
}

fn tell_of_any_end(command: &mut Command) -> std::process::ExitStatus {
    command.output().unwrap().status
}

/// A database in use can be released for copying by any program, and its user continues.
///
/// Guarantee: sqlite/release
#[test]
fn database_in_use_is_released_for_copying() {
    let scratch = scratch();
    let extension = match extension(&scratch) {
        Ok(extension) => extension,
        Err(reason) => return println!("not run: {reason}"),
    };
    let command = scratch.programs().holdfast().display().to_string();
    let script = format!(
        "CREATE TABLE notes (text); INSERT INTO notes VALUES ('kept');\n\
         BEGIN; SELECT text FROM notes;\n\
         .system {command} sqlite release notes.db 2>&1\n\
         COMMIT;\n\
         .system {command} sqlite release notes.db && cp notes.db copy.db\n\
         .system {command} sqlite status notes.db\n\
         INSERT INTO notes VALUES ('later'); SELECT count(*) FROM notes;\n"
    );
    let told = succeed(&mut shell(&scratch, &extension, &script));
    for part in ["is in use", "complete, until a program writes to it again", "complete\n", "\n2\n"]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    let mut copy = Command::new("sqlite3");
    copy.arg(scratch.files().join("copy.db")).arg("SELECT text FROM notes").stdin(Stdio::null());
    assert_eq!(succeed(&mut copy), "kept\n");
    assert_eq!(succeed(&mut plain(&scratch, "SELECT count(*) FROM notes")), "2\n");
}

/// The ways that the guide shows are those that work, as it prints them; `cp` alone is none.
///
/// Guarantee: sqlite/copies
/// Guarantee: sqlite/release
#[test]
fn the_ways_to_copy_a_database_in_use_take_all_of_it() {
    let scratch = scratch();
    let extension = match extension(&scratch) {
        Ok(extension) => extension,
        Err(reason) => return println!("not run: {reason}"),
    };
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sqlite/README.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let block = guide.split("```").find(|block| block.contains("VACUUM INTO")).unwrap();
    let command = scratch.programs().holdfast().display().to_string();
    let ways: Vec<String> = block
        .lines()
        .filter_map(|line| {
            let line = line.split(" # ").next().unwrap_or_default().trim();
            let sql = line.strip_prefix("sqlite> ").map(str::to_owned);
            let shell =
                line.strip_prefix("$ holdfast").map(|rest| format!(".system {command}{rest}"));
            sql.or(shell)
        })
        .collect();
    assert_eq!(ways.len(), 3, "{ways:?}");
    let script = format!(
        "CREATE TABLE notes (text); INSERT INTO notes VALUES ('kept');\n\
         .system cp notes.db taken.db\n{}\nINSERT INTO notes VALUES ('later');\n",
        ways.join("\n")
    );
    succeed(&mut shell(&scratch, &extension, &script));
    let read = |name: &str| {
        let mut command = Command::new("sqlite3");
        command.arg(scratch.files().join(name)).arg("SELECT text FROM notes").stdin(Stdio::null());
        tell(&mut command)
    };
    let taken = read("taken.db");
    assert!(taken.status != 0 && taken.err.contains("not a database"), "{}", taken.err);
    for name in ["copied.db", "vacuumed.db", "saved.db"] {
        assert_eq!(read(name).out, "kept\n", "{name}");
    }
    assert_eq!(read("notes.db").out, "kept\nlater\n");
}

/// SQL of the user is measured in each commit mode, and missing modes are reported.
///
/// Guarantee: sqlite/languages
#[test]
fn custom_sql_is_measured_in_each_commit_mode() {
    let scratch = scratch();
    let extension = match extension(&scratch) {
        Ok(extension) => extension,
        Err(reason) => return println!("not run: {reason}"),
    };
    let sql = scratch
        .write("work.sql", "INSERT INTO notes VALUES ('a'); INSERT INTO notes VALUES ('b');\n")
        .unwrap();
    let setup = scratch.write("setup.sql", "CREATE TABLE IF NOT EXISTS notes (text);\n").unwrap();
    let bench = |words: &[&str]| {
        let mut command = scratch.holdfast();
        command.args(["sqlite", "bench"]).arg(&sql).args(words).arg("--extension").arg(&extension);
        command
    };
    let told = succeed(bench(&["--runs", "1", "--json"]).arg("--setup").arg(&setup));
    let found: serde_json::Value = serde_json::from_str(&told).unwrap();
    let modes = found.as_array().unwrap();
    assert_eq!(modes.len(), 5, "{told}");
    assert_eq!(modes[0]["times_as_fast"], 1.0);
    assert_eq!(modes[4]["survives_power_cut"], "last flush");
    // Without its table the SQL fails, and says so.
    let failed = tell(&mut bench(&["--runs", "1"]));
    assert!(failed.status != 0 && failed.err.contains("no such table"), "{}", failed.err);
    let no_shell = tell(&mut bench(&["--shell", "/no/sqlite3"]));
    assert!(no_shell.status == 3 && no_shell.err.contains("--shell"), "{}", no_shell.err);
    let left = std::fs::read_dir(scratch.files()).unwrap().count();
    assert_eq!(left, 2, "something was left beside the two files of SQL");
}

/// A program that finds no room in the pool asks `holdfast-sqlite` for it: databases of dead
/// processes leave.
#[test]
fn a_left_database_makes_room_for_other_programs() {
    let scratch = scratch();
    let extension = match extension(&scratch) {
        Ok(extension) => extension,
        Err(reason) => return println!("not run: {reason}"),
    };
    let work =
        "CREATE TABLE notes (text); INSERT INTO notes VALUES ('kept');\n.system kill -KILL $PPID";
    assert!(!tell_of_any_end(&mut shell(&scratch, &extension, work)).success());
    let room = |bytes: &str| {
        let told = succeed(scratch.holdfast().args(["sqlite", "make-room", bytes, "--json"]));
        serde_json::from_str::<serde_json::Value>(&told).unwrap()
    };
    assert_eq!(room("1")["evicted"].as_array().unwrap().len(), 0, "there was room");
    let evicted = room("1000000000000000");
    assert!(evicted["evicted"][0].as_str().unwrap().ends_with("notes.db"), "{evicted}");
    assert!(evicted["freed_bytes"].as_u64().unwrap() > 0, "{evicted}");
    let left = std::fs::read_dir(scratch.pool()).unwrap().flatten();
    assert_eq!(
        left.filter(|entry| entry.path().extension().is_some_and(|end| end == "sqlite")).count(),
        0
    );
    let read = "SELECT text FROM notes;\n";
    assert_eq!(succeed(&mut shell(&scratch, &extension, read)), "kept\n");
}

/// Commits of one home, asked about from another one; then from its own.
///
/// Guarantee: sqlite/status
#[test]
fn another_home_is_told_whose_commits_they_are() {
    let scratch = scratch();
    let extension = match extension(&scratch) {
        Ok(extension) => extension,
        Err(reason) => return println!("not run: {reason}"),
    };
    let work =
        "CREATE TABLE notes (text); INSERT INTO notes VALUES ('kept');\n.system kill -KILL $PPID";
    assert!(!tell_of_any_end(&mut shell(&scratch, &extension, work)).success());
    let there = |words: &[&str]| {
        let mut command = scratch.holdfast();
        let other = scratch.files().parent().unwrap().join("other");
        command.env("HOLDFAST_HOME", other.join("home")).env("HOLDFAST_POOL", other.join("pool"));
        command.arg("sqlite").args(words).current_dir(scratch.files());
        tell(&mut command)
    };
    let home = format!("HOLDFAST_HOME={}", scratch.home().canonicalize().unwrap().display());
    let told = there(&["status", "notes.db"]);
    assert!(
        told.status == 5 && told.out.contains("cannot be opened") && told.err.contains(&home),
        "{told:?}"
    );
    let told = there(&["status", "--json", "notes.db"]);
    let found: serde_json::Value = serde_json::from_str(&told.out).unwrap();
    assert!(found[0]["problem"].as_str().unwrap().contains(&home), "{told:?}");
    assert!(found[0]["commits"].is_null() && found[0]["bytes"].is_null(), "{told:?}");
    for words in [&["checkpoint"][..], &["release"], &["recover"], &["recover", "--discard"]] {
        let told = there(&[words, &["notes.db"]].concat());
        assert!(told.status == 4 && told.err.contains(&home), "{words:?}: {told:?}");
    }
    let told = there(&["recover", "--discard", "--lost-pool", "/another", "notes.db"]);
    assert_eq!(told.status, 4, "{told:?}");
    let mut own = scratch.holdfast();
    own.args(["sqlite", "checkpoint", "notes.db"]).current_dir(scratch.files());
    assert!(succeed(&mut own).contains("all commits are in the file"));
    assert_eq!(succeed(&mut plain(&scratch, "SELECT text FROM notes")), "kept\n");
}

/// Guarantee: sqlite/status
#[test]
fn what_is_no_database_is_an_error_of_every_command() {
    let scratch = scratch();
    std::fs::create_dir(scratch.files().join("folder")).unwrap();
    scratch.write("empty.db", "").unwrap();
    for (file, status, part) in [
        ("/etc/passwd", 5, "is not an SQLite database"),
        ("folder", 5, "is a directory"),
        ("/dev/null", 5, "is no regular file"),
        ("none.db", 3, "there is no file"),
        ("empty.db/x", 7, "cannot look at"),
    ] {
        for words in
            [&["status"][..], &["status", "--json"], &["checkpoint"], &["release"], &["recover"]]
        {
            let mut command = scratch.holdfast();
            command.arg("sqlite").args(words).arg(file).current_dir(scratch.files());
            let told = tell(&mut command);
            assert!(told.status == status && told.err.contains(part), "{words:?} {file}: {told:?}");
            assert!(
                !told.out.contains("complete") && !told.out.contains("all commits"),
                "{told:?}"
            );
        }
    }
}
