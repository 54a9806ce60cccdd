//! The kit of the tests of the VFS: the SQLite that is compiled in, scratch databases, and
//! processes that can be killed.

#![allow(unsafe_code, reason = "hands C functions to the library, and sets the environment")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]
#![allow(dead_code, reason = "each test program uses a part")]

pub(crate) mod copies;
#[path = "../../examples/host/mod.rs"]
mod host;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use holdfast_sqlite::register;
use rusqlite::{Connection, OpenFlags, ffi};

const PREFIX: &str = "holdfast-sqlite-test-";
const ROLE: &str = "HOLDFAST_TEST_ROLE";
const FOLDER: &str = "HOLDFAST_TEST_FOLDER";

/// What SQLite and the VFS tell the log: shown when a test fails.
extern "C" fn tell(_: *mut c_void, code: c_int, text: *const c_char) {
    // SAFETY: SQLite passes a text that ends with a zero.
    println!("log: {code} {}", unsafe { CStr::from_ptr(text) }.to_string_lossy());
}

/// A home and a pool of this test program's own.
fn prepare() {
    static READY: OnceLock<()> = OnceLock::new();
    READY.get_or_init(|| {
        if std::env::var_os(ROLE).is_none() {
            let own = format!("{PREFIX}{}", std::process::id());
            let shared = Path::new("/dev/shm");
            // What earlier runs left: a static value is never dropped.
            for entry in std::fs::read_dir(shared).unwrap().flatten() {
                let name = entry.file_name().into_string().unwrap_or_default();
                let process =
                    name.strip_prefix(PREFIX).map(|number| Path::new("/proc").join(number));
                if process.is_some_and(|process| !process.exists()) {
                    let _ = std::fs::remove_dir_all(entry.path());
                }
            }
            std::fs::create_dir_all(shared.join(&own)).unwrap();
            for (variable, name) in [("HOLDFAST_HOME", "home"), ("HOLDFAST_POOL", "pool")] {
                // SAFETY: the first thing that any test does; others wait for it, and no C code
                // runs yet.
                unsafe { std::env::set_var(variable, shared.join(&own).join(name)) };
            }
        }
        // SAFETY: nothing of SQLite runs yet.
        let is_ready = unsafe {
            ffi::sqlite3_config(
                ffi::SQLITE_CONFIG_LOG,
                tell as extern "C" fn(_, _, _),
                std::ptr::null_mut::<c_void>(),
            ) | ffi::sqlite3_initialize()
        };
        assert_eq!(is_ready, 0);
        assert_eq!(register(host::host(), false), 0);
    });
}

/// The pool of this test program.
pub(crate) fn pool() -> PathBuf {
    prepare();
    std::env::var_os("HOLDFAST_POOL").unwrap().into()
}

/// A folder for databases, on a disk.
pub(crate) fn scratch() -> tempfile::TempDir {
    prepare();
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Opens a database with the VFS; `parameters` as in a URI.
pub(crate) fn try_open(path: &Path, parameters: &str) -> rusqlite::Result<Connection> {
    prepare();
    let uri = format!("file:{}?vfs=holdfast&{parameters}", path.display());
    let connection = Connection::open_with_flags(uri, OpenFlags::default())?;
    connection.busy_timeout(Duration::from_secs(60))?;
    Ok(connection)
}

/// As [`try_open`], for tests in which it must work.
pub(crate) fn open(path: &Path, parameters: &str) -> Connection {
    try_open(path, parameters).unwrap()
}

/// Opens a database as a program without the VFS does.
pub(crate) fn open_plain(path: &Path) -> Connection {
    Connection::open(path).unwrap()
}

/// One number.
pub(crate) fn number(connection: &Connection, sql: &str) -> i64 {
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Fails unless SQLite finds the database sound.
pub(crate) fn assert_sound(connection: &Connection) {
    let found: String =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(found, "ok");
}

/// A value of `PRAGMA holdfast_stats`.
pub(crate) fn statistic(connection: &Connection, name: &str) -> u64 {
    let text: String = connection.query_row("PRAGMA holdfast_stats", [], |row| row.get(0)).unwrap();
    let found = text.split(' ').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("{name} is not in {text}")).parse().unwrap()
}

/// Which part this process has to play, and where; `None` in the test itself.
pub(crate) fn role() -> Option<(String, PathBuf)> {
    let role = std::env::var(ROLE).ok()?;
    prepare();
    Some((role, std::env::var_os(FOLDER)?.into()))
}

/// How a test of several processes begins: with a folder of its own, and no other that `alone`
/// keeps out. `None` in a process that has a role in it, and has played that.
pub(crate) fn begin<Guard>(
    play: impl FnOnce(&str, &Path),
    alone: impl FnOnce() -> Guard,
) -> Option<(Guard, tempfile::TempDir)> {
    if let Some((role, folder)) = role() {
        play(&role, &folder);
        return None;
    }
    let alone = alone();
    Some((alone, scratch()))
}

/// How a role ends that holds what it has: tells that, and waits to be killed.
pub(crate) fn tell_and_wait() {
    println!("\ntold: 1");
    std::thread::sleep(Duration::from_secs(600));
}

/// Another process, which runs the same test in another role. It is killed when it is dropped.
pub(crate) struct Player {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Player {
    pub(crate) fn start(test: &str, role: &str, folder: &Path) -> Player {
        Player::start_with(test, role, folder, &[])
    }

    /// The same, with variables of the environment.
    pub(crate) fn start_with(
        test: &str,
        role: &str,
        folder: &Path,
        variables: &[(&str, &str)],
    ) -> Player {
        Player::start_as(None, test, role, folder, variables)
    }

    /// The same, as another user.
    pub(crate) fn start_as(
        user: Option<u32>,
        test: &str,
        role: &str,
        folder: &Path,
        variables: &[(&str, &str)],
    ) -> Player {
        prepare();
        let mut command = Command::new(std::env::current_exe().unwrap());
        if let Some(user) = user {
            command.uid(user).gid(user).current_dir(folder);
        }
        let mut child = command
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .envs([(ROLE, role.as_ref()), (FOLDER, folder.as_os_str())])
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Player { child, lines }
    }

    /// The number in the next line that begins with `mark`; `None` at the end.
    pub(crate) fn next(&mut self, mark: &str) -> Option<i64> {
        for line in self.lines.by_ref() {
            let line = line.ok()?;
            if let Some(at) = line.find(mark) {
                return line[at + mark.len()..].trim().parse().ok();
            }
        }
        None
    }

    /// The first number; fails if it ends before.
    pub(crate) fn first(&mut self, mark: &str) -> i64 {
        self.next(mark).unwrap_or_else(|| panic!("it ended: {}", self.child.wait().unwrap()))
    }

    /// Fails when it has ended: a loop without an end ends only by a failure.
    pub(crate) fn assert_running(&mut self) {
        if let Some(status) = self.child.try_wait().unwrap() {
            panic!("it ended: {status}");
        }
    }

    /// Kills it and returns the last number that it told.
    pub(crate) fn kill(mut self, mark: &str) -> Option<i64> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let mut last = None;
        while let Some(found) = self.next(mark) {
            last = Some(found);
        }
        last
    }

    /// Kills it when it has told the first number.
    pub(crate) fn kill_when_told(mut self) {
        self.first("told: ");
        self.kill("told: ");
    }

    /// Stops it where it is, as the keeper does.
    pub(crate) fn stop(&self) {
        let pid = libc::pid_t::try_from(self.child.id()).unwrap();
        // SAFETY: a child that was not waited for yet.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGSTOP) }, 0);
        let stands_still = || {
            let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
            let stats = threads
                .filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
            stats
                .into_iter()
                .all(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')))
        };
        while !stands_still() {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Waits for its end, which must be good.
    pub(crate) fn finish(mut self) {
        while self.next("\u{0}").is_some() {}
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
