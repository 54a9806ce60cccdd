//! Heaps that a keeper lends to programs in C: `HOLDFAST_KEEPER`, the calls of qNVRAM, and two
//! users.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Bench, Linking, has, succeeded};
use holdfast_keeper::{Config, Keeper, PoolLimit, ServePolicy, Served, Sources};
use holdfast_region::Places;
use tempfile::TempDir;

const HOME: &str = "HOLDFAST_TEST_KEEPER_HOME";
const ALICE: u32 = 61_001;
const BOB: u32 = 61_002;

/// The keeper is this program once more, in this role.
#[test]
fn a_child_is_a_keeper() {
    let Some(home) = std::env::var_os(HOME).map(PathBuf::from) else { return };
    let mut config = Config::default();
    config.bandwidth_bytes_per_s = Some(1 << 30);
    config.pool_limit = PoolLimit::None;
    let mut policy = ServePolicy::at(home.join("public/served.sock"));
    policy.users = Served::All;
    let mut sources = Sources::default();
    sources.buttons = Some(Vec::new());
    sources.serve = Some(policy);
    let places = Places::at(home.join("home"), home.join("pool")).unwrap();
    Keeper::new(places, config).unwrap().run(&sources).unwrap();
}

struct Kept {
    directory: TempDir,
    bench: Bench,
    keeper: Option<Child>,
}

impl Kept {
    fn new() -> Option<Kept> {
        if !has("pkg-config") || !has("cc") {
            return None;
        }
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        std::fs::create_dir(directory.path().join("public")).unwrap();
        for path in [directory.path().to_owned(), directory.path().join("public")] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let bench = Bench::new();
        let program = bench.compile("served.c", Linking::Static);
        // Where others can run it.
        let public = directory.path().join("public/served");
        std::fs::copy(program, &public).unwrap();
        std::fs::set_permissions(public, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut kept = Kept { directory, bench, keeper: None };
        kept.start();
        Some(kept)
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("public/served.sock")
    }

    fn program(&self) -> PathBuf {
        self.directory.path().join("public/served")
    }

    fn start(&mut self) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["a_child_is_a_keeper", "--exact", "--nocapture", "--test-threads=1"]);
        command.env(HOME, self.directory.path()).env_remove("NOTIFY_SOCKET").stdin(Stdio::null());
        self.keeper = Some(command.stdout(Stdio::null()).spawn().unwrap());
        assert!(soon(|| UnixStream::connect(self.socket()).is_ok()), "no keeper came");
    }

    fn kill_keeper(&mut self) {
        let mut keeper = self.keeper.take().unwrap();
        keeper.kill().unwrap();
        keeper.wait().unwrap();
    }

    fn command(&self, command: &mut Command, what: &str) {
        command.arg(what).env("HOLDFAST_KEEPER", self.socket()).env("HOLDFAST_HEAP", "heap");
        // A keeper needs nothing of them.
        command
            .env_remove("HOME")
            .env("HOLDFAST_HOME", "/nowhere")
            .env("HOLDFAST_POOL", "/nowhere");
    }

    fn run(&self, what: &str) -> String {
        let mut command = self.bench.command(&self.program());
        self.command(&mut command, what);
        succeeded(&command.output().unwrap()).trim().to_owned()
    }

    /// The same as another user; none where this user cannot.
    fn run_as(&self, user: u32, what: &str) -> Option<String> {
        if holdfast_sys::file::effective_user() != 0 {
            println!("not run: programs of other users can be started by root only");
            return None;
        }
        let mut command = Command::new(self.program());
        self.command(&mut command, what);
        command.uid(user).gid(user).current_dir("/").stdin(Stdio::null());
        Some(succeeded(&command.output().unwrap()).trim().to_owned())
    }

    fn begin(&self, what: &str) -> Talking {
        let mut command = self.bench.unbounded(&self.program());
        self.command(&mut command, what);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Talking { child, lines }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.keeper.is_some() {
            self.kill_keeper();
        }
    }
}

struct Talking {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Talking {
    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn tell(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"go on\n").unwrap();
    }

    fn end(mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

fn soon(mut is_true: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while !is_true() {
        if started.elapsed() > Duration::from_secs(20) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// What a counter says when the program before is gone; the keeper may be bringing what it left.
fn count_after(kept: &Kept) -> String {
    assert!(soon(|| kept.run("open") == "0"));
    kept.run("count")
}

/// A program with a served heap finds its count after a kill in a transaction.
///
/// Guarantee: programs/served-heaps
#[test]
fn served_program_finds_its_count_after_a_kill() {
    let Some(mut kept) = Kept::new() else { return };
    assert_eq!(kept.run("count"), "1");
    assert_eq!(kept.run("count"), "2");
    let mut dying = kept.begin("die");
    assert_eq!(dying.hear(), "here");
    assert!(!dying.child.wait().unwrap().success());
    // What it had counted is there, and what its transaction stored is rolled back.
    assert_eq!(count_after(&kept), "4");
    kept.kill_keeper();
    std::fs::remove_dir_all(kept.directory.path().join("pool")).unwrap();
    kept.start();
    assert_eq!(kept.run("count"), "5", "it was closed, so it is in the store");
    assert!(!Path::new("/nowhere").exists());
}

/// A served heap grows, keeps its address and refuses unsupported operations.
///
/// Guarantee: programs/served-heaps
#[test]
fn served_heap_grows_at_a_stable_address() {
    let Some(kept) = Kept::new() else { return };
    assert_eq!(kept.run("grow"), "");
    assert_eq!(kept.run("refusals"), "refused");
}

/// Closing finds the next keeper; without one, it reports that and can be tried again.
///
/// Guarantee: keeper/closing
/// Guarantee: keeper/keeper-dies
#[test]
fn close_finds_the_next_keeper_or_can_be_retried() {
    let Some(mut kept) = Kept::new() else { return };
    let mut holding = kept.begin("hold");
    assert_eq!(holding.hear(), "here");
    assert_eq!(kept.run("open"), "15", "NV_HELD");
    kept.kill_keeper();
    kept.start();
    holding.tell();
    assert_eq!(holding.hear(), "closed");
    holding.end();
    let mut holding = kept.begin("hold");
    assert_eq!(holding.hear(), "here");
    kept.kill_keeper();
    assert_eq!(kept.run("open"), "32", "NV_NO_KEEPER");
    holding.tell();
    assert_eq!(holding.hear(), "32", "NV_NO_KEEPER");
    kept.start();
    holding.tell();
    assert_eq!(holding.hear(), "closed");
    holding.end();
    assert_eq!(kept.run("count"), "5");
}

/// Guarantee: keeper/users-apart
/// Guarantee: programs/own-user
#[test]
fn each_user_has_counters_of_its_own() {
    let Some(kept) = Kept::new() else { return };
    assert_eq!(kept.run("count"), "1");
    let Some(said) = kept.run_as(ALICE, "count") else { return };
    assert_eq!(said, "1");
    assert_eq!(kept.run_as(ALICE, "count").unwrap(), "2");
    assert_eq!(kept.run_as(BOB, "count").unwrap(), "1");
    assert_eq!(kept.run_as(BOB, "refusals").unwrap(), "refused");
    assert_eq!(kept.run("count"), "2");
}

/// Without a keeper a heap is its user's by the modes of its files.
///
/// Guarantee: programs/own-user
#[test]
fn file_modes_keep_others_out_without_a_keeper() {
    let Some(kept) = Kept::new() else { return };
    if holdfast_sys::file::effective_user() != 0 {
        println!("not run: programs of other users can be started by root only");
        return;
    }
    let (home, pool) =
        (kept.directory.path().join("own-home"), kept.directory.path().join("own-pool"));
    let run = |user: u32, what: &str| {
        let mut command = Command::new(kept.program());
        command
            .arg(what)
            .env("HOLDFAST_HOME", &home)
            .env("HOLDFAST_POOL", &pool)
            .env("HOLDFAST_HEAP", "heap");
        command
            .uid(user)
            .gid(user)
            .current_dir("/")
            .env_remove("HOLDFAST_KEEPER")
            .stdin(Stdio::null());
        command.output().unwrap()
    };
    for path in [&home, &pool] {
        std::fs::create_dir(path).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(path, Some(ALICE), Some(ALICE)).unwrap();
    }
    assert_eq!(succeeded(&run(ALICE, "count")).trim(), "1");
    let refused = run(BOB, "count");
    assert!(!refused.status.success());
    let said = common::text(&refused.stderr);
    assert!(
        said.contains("found: 21 ") && said.contains(&format!("user {ALICE}")),
        "NV_DENIED: {said}"
    );
    for (directory, mode) in [(&home, 0o700), (&pool, 0o700)] {
        for entry in std::fs::read_dir(directory).unwrap().flatten() {
            let found = entry.metadata().unwrap();
            let closed = if found.is_dir() { mode } else { 0o600 };
            // The note with the home's path is for people, in a directory that only its user gets
            // into. Links have no mode of their own.
            if entry.file_name() != "home" && !found.is_symlink() {
                assert_eq!(
                    found.permissions().mode() & 0o777,
                    closed,
                    "{}",
                    entry.path().display()
                );
            }
        }
    }
    assert_eq!(succeeded(&run(ALICE, "count")).trim(), "2");
}
