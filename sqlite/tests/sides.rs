//! Processes with a database: this test program again, started by a test with a role, a home and a
//! pool.
//!
//! Invariants: a side ends on its own within a minute or is ended; what it reports (`fault …`, `not
//! run: …`) reaches the standard output of the test; all else only when it failed.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

const ROLE: &str = "HOLDFAST_TEST_ROLE";
/// Its words are separated by this, which is in no path.
const SEPARATOR: char = '\n';
/// What a side prints in front of what its test should hear: the harness prints on the same output.
const SAYS: &str = "side: ";
/// A side that takes longer hangs. Rows of the matrix at long counts are one side for each trial.
const TIMEOUT_S: &str = "600";

/// The body of the test that sides run; without a role it does nothing.
pub(crate) fn play() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(SEPARATOR).collect();
    let number = |word: &str| word.parse::<i64>().unwrap();
    match words[..] {
        ["differ", seed, statements, rows, folder] => {
            crate::differential::differ(
                seed.parse().unwrap(),
                number(statements),
                number(rows),
                Path::new(folder),
            );
        }
        ["work", path, parameters, fault, at, acknowledged] => {
            crate::errors::work(
                Path::new(path),
                parameters,
                fault,
                number(at),
                Path::new(acknowledged),
            );
        }
        ["many: work", path, fault, at, acknowledged] => {
            crate::many_rows::work(Path::new(path), fault, number(at), Path::new(acknowledged));
        }
        ["many: check", path] => crate::many_rows::check(Path::new(path)),
        ["many: commit", path, acknowledged] => {
            crate::many_rows::commit(Path::new(path), Path::new(acknowledged));
        }
        ["many: cuts"] => crate::many_rows::drive(),
        ["many: hold", path, how] => crate::many_rows::hold(Path::new(path), how),
        ["starve", path, at] => crate::memory::starve(Path::new(path), number(at)),
        ["check", path] => crate::script::check(Path::new(path)),
        ["commit", path, parameters, acknowledged] => {
            crate::power::commit(Path::new(path), parameters, Path::new(acknowledged));
        }
        ["insert", path, told] => crate::names::insert(Path::new(path), Path::new(told)),
        ["open", path] => crate::messages::open(Path::new(path)),
        ["count", path] => crate::names::count(Path::new(path)),
        ["names"] => crate::names::drive(),
        ["hold", path, how] => crate::holders::hold(Path::new(path), how),
        ["cuts"] => crate::power::drive(),
        ["calls: cuts"] => crate::system_calls::drive(),
        ["room", folder] => crate::room::fill(Path::new(folder)),
        ["left", path] => crate::room::leave(Path::new(path)),
        _ => panic!("unknown role {words:?}"),
    }
}

/// Tells the test something.
pub(crate) fn say(text: &str) {
    // On a line of its own: the harness may have begun one.
    println!("\n{SAYS}{text}");
    std::io::stdout().flush().unwrap();
}

/// A home and a pool for the processes of one test.
pub(crate) struct Ground {
    pub(crate) folder: TempDir,
    pool: TempDir,
}

impl Ground {
    /// In memory: what is on a disk says so.
    pub(crate) fn new() -> Ground {
        Ground { folder: Ground::in_memory(), pool: Ground::in_memory() }
    }

    pub(crate) fn in_memory() -> TempDir {
        tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
    }

    /// Takes the pool away, as the end of the boot does; the home stays.
    pub(crate) fn lose_pool(&self) {
        std::fs::remove_dir_all(self.pool.path().join("pool")).unwrap();
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.folder.path().join("main.db")
    }

    /// The environment of a program that uses it.
    pub(crate) fn lend<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("HOLDFAST_HOME", self.folder.path().join("home"));
        command.env("HOLDFAST_POOL", self.pool.path().join("pool")).stdin(Stdio::null())
    }

    fn command(&self, before: &[&str], words: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=5", TIMEOUT_S])
            .args(before)
            .arg(std::env::current_exe().unwrap());
        command.args(["a_side_plays_its_role", "--exact", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, words.join(&SEPARATOR.to_string())).env_remove("RUST_BACKTRACE");
        self.lend(&mut command);
        command
    }

    /// Runs a side to its end, whatever that is.
    pub(crate) fn run(&self, words: &[&str]) -> Ended {
        Ended::of(self.command(&[], words).output().unwrap())
    }

    /// The same through a command that runs its arguments.
    pub(crate) fn run_through(&self, before: &[&str], words: &[&str]) -> Ended {
        Ended::of(self.command(before, words).output().unwrap())
    }

    /// The same for a side that makes trials of the fault matrix.
    pub(crate) fn drive(&self, before: &[&str], words: &[&str]) {
        let ended = Ended::of(self.command(before, words).output().unwrap());
        for line in ended.out.lines() {
            if let Some(start) = line.find("fault S") {
                // Past the capture of the harness; a closed output takes nothing from the trials.
                let _ = writeln!(std::io::stdout(), "{}", &line[start..]);
            }
        }
        ended.well();
    }

    /// Starts a side that goes on until it is killed.
    pub(crate) fn start(&self, words: &[&str]) -> Beside {
        let mut child = self
            .command(&[], words)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Beside { child, output }
    }
}

/// How a side ended.
pub(crate) struct Ended {
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    err: String,
}

impl Ended {
    fn of(output: Output) -> Ended {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ended { status: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// What it said; it must have ended well.
    pub(crate) fn well(self) -> String {
        assert_eq!(self.status, Some(0), "a side failed\n{}\n{}", self.out, self.err);
        self.said()
    }

    /// What it said, however it ended.
    pub(crate) fn said(&self) -> String {
        let lines = self.out.lines().filter_map(|line| line.strip_prefix(SAYS));
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// A running side; killed when it is dropped.
pub(crate) struct Beside {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Beside {
    /// Waits until it says this.
    pub(crate) fn hear(&mut self, expected: &str) {
        self.heard(expected);
    }

    /// Waits until it says something that begins so; returns the rest.
    pub(crate) fn heard(&mut self, beginning: &str) -> String {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            let said = line.trim_end().strip_prefix(SAYS);
            if let Some(rest) = said.and_then(|said| said.strip_prefix(beginning)) {
                return rest.to_owned();
            }
            line.clear();
        }
        panic!("a side ended before it said {beginning:?}");
    }

    /// SIGKILL for it; `timeout` stands between, and has it in a process group of its own.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.child.wait();
    }
}
