//! The kit of the behaviour tests: a scratch home, and children that play one role against it. The
//! parent starts this test program again with the role in the environment; they talk in lines.

#![allow(dead_code, reason = "each test program uses a part of it")]

pub(crate) mod served;

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_keeper::{Cause, Config, Guard, Keeper, PoolLimit, Sources, thaw_after_killed_keeper};
use holdfast_region::{NameSpace, OwnerKey, Places, Region, RegionName};
use procfs::ProcResult;
use procfs::process::{Process, Stat};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub(crate) const MIB: u64 = 1 << 20;
const ROLE: &str = "HOLDFAST_KEEPER_TEST_ROLE";
const HOME: &str = "HOLDFAST_KEEPER_TEST_HOME";
/// Pages of a heap on which the same number is stored, one after the other.
const PAGES: usize = 200;

pub(crate) struct Home {
    home: TempDir,
    pool: TempDir,
}

impl Home {
    pub(crate) fn new() -> Home {
        Home { home: tempfile::tempdir().unwrap(), pool: tempfile::tempdir_in("/dev/shm").unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn pool(&self) -> PathBuf {
        self.pool.path().join("pool")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.pool().join("keeper.sock")
    }

    pub(crate) fn places(&self) -> Places {
        Places::at(self.path(), self.pool()).unwrap()
    }

    pub(crate) fn names(&self) -> NameSpace {
        NameSpace::new(self.places())
    }

    /// One directory with both in it, so that one variable is enough.
    pub(crate) fn prepare_for_players(&self) -> PathBuf {
        let both = self.pool.path();
        if !both.join("home").exists() {
            std::os::unix::fs::symlink(self.path(), both.join("home")).unwrap();
        }
        both.to_owned()
    }

    pub(crate) fn keeper(&self, config: Config) -> Keeper {
        Keeper::new(self.places(), config).unwrap()
    }

    pub(crate) fn lose_the_pool(&self) {
        std::fs::remove_dir_all(self.pool()).unwrap();
    }

    /// A heap closed in order, with a number in it.
    pub(crate) fn closed(&self, name: &str, bytes: u64, number: u64) {
        let mut region = self.names().create(&named(name), &key(), bytes).unwrap();
        store(&mut region, number);
        region.close().unwrap();
    }

    /// The same, of a writer that died after it.
    pub(crate) fn crashed(&self, name: &str, bytes: u64, number: u64) {
        let mut region = self.names().create(&named(name), &key(), bytes).unwrap();
        store(&mut region, number);
    }

    /// What is in a heap, and how it came to be open.
    pub(crate) fn number(&self, name: &str) -> (holdfast_region::Opened, u64) {
        let region = self.names().open(&named(name), &key()).unwrap();
        (region.opened(), load(&region))
    }
}

pub(crate) fn named(name: &str) -> RegionName {
    RegionName::parse(name).unwrap()
}

pub(crate) fn key() -> OwnerKey {
    OwnerKey::from_bytes([1; 32])
}

/// Without measurements, and without limits that a test does not want.
pub(crate) fn config() -> Config {
    let mut config = Config::default();
    config.bandwidth_bytes_per_s = Some(1 << 30);
    config.pool_limit = PoolLimit::None;
    config
}

/// Stores a number on many pages, from the first to the last.
pub(crate) fn store(region: &mut Region, number: u64) {
    let base = match region.mapping() {
        Some(base) => base.as_ptr(),
        None => region.map_native().unwrap().as_ptr().cast(),
    };
    for page in 0..PAGES {
        // SAFETY: a heap of a test has 1 MiB at least, of which these are the first pages.
        unsafe { std::ptr::write_volatile(base.add(page * 4096).cast::<u64>(), number) };
    }
}

/// The number; at most one store may have been under way.
pub(crate) fn load(region: &Region) -> u64 {
    let numbers: Vec<u64> = (0..PAGES)
        .map(|page| {
            let mut bytes = [0; 8];
            region.read_at(page as u64 * 4096, &mut bytes).unwrap();
            u64::from_le_bytes(bytes)
        })
        .collect();
    // From the first page to the last the newer number, then the older one.
    let ordered = numbers.windows(2).all(|pair| pair[0] == pair[1] || pair[0] == pair[1] + 1);
    assert!(ordered && numbers[0] - numbers[PAGES - 1] <= 1, "torn: {numbers:?}");
    numbers[PAGES - 1]
}

/// The body of the test that children run; without a role it does nothing.
pub(crate) fn play() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let home = PathBuf::from(std::env::var_os(HOME).unwrap());
    let places = || Places::at(home.join("home"), home.join("pool")).unwrap();
    let names = || NameSpace::new(places());
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        // Makes heaps, and answers each line until it is told to end.
        ["hold", .., _] => {
            let regions: Vec<Region> = words[1..]
                .iter()
                .map(|name| {
                    let mut region = names().create(&named(name), &key(), 8 * MIB).unwrap();
                    store(&mut region, 7);
                    region
                })
                .collect();
            loop {
                say("here");
                hear_parent();
                assert_eq!(load(&regions[0]), 7);
            }
        }
        // Stores number after number, without a pause.
        ["busy", name] => {
            let mut region = names().create(&named(name), &key(), 8 * MIB).unwrap();
            store(&mut region, 1);
            say("here");
            for number in 2.. {
                store(&mut region, number);
            }
        }
        ["flush", guard] => {
            let mut config = config();
            config.guard = (guard == "guarded").then(guard_program);
            let mut keeper = Keeper::new(places(), config).unwrap();
            say("here");
            loop {
                keeper.flush(Cause::Asked);
            }
        }
        ["evict"] => {
            let mut keeper = Keeper::new(places(), config()).unwrap();
            say("here");
            loop {
                keeper.evict_to(0);
            }
        }
        ["guard"] => {
            std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
            thaw_after_killed_keeper(&places()).unwrap();
        }
        ["run"] => {
            let mut sources = Sources::default();
            sources.buttons = Some(vec![home.join("button")]);
            sources.button_hold = Duration::from_millis(300);
            sources.power_supply = home.join("supplies");
            sources.pressure = home.join("pressure");
            sources.metrics_file = Some(home.join("metrics.prom"));
            let mut keeper = Keeper::new(places(), config()).unwrap();
            keeper.run(&sources).unwrap();
            say("ended");
        }
        // In a home that has little room left.
        ["full"] => {
            let mut keeper = Keeper::new(places(), config()).unwrap();
            for (name, bytes) in [("large", 16 * MIB), ("small", MIB)] {
                let mut region = names().create(&named(name), &key(), bytes).unwrap();
                region.grow(bytes).unwrap();
                let base: *mut u8 = region.map_native().unwrap().as_ptr().cast();
                // SAFETY: all of it is backed.
                unsafe { std::ptr::write_bytes(base, 0x55, bytes as usize) };
            }
            let report = keeper.flush(Cause::Asked);
            say(&report.saved.iter().map(|saved| saved.name.as_str()).collect::<String>());
            say(&format!("{:?}", report.left));
        }
        _ if served::play_served(&words, &home) => {}
        _ => panic!("unknown role {role:?}"),
    }
}

fn guard_program() -> Guard {
    let arguments = ["a_child_plays_its_role", "--exact", "--nocapture", "--test-threads=1"];
    // The role is in the environment, so a shell has to change it.
    let program = PathBuf::from("/usr/bin/env");
    let mut all: Vec<OsString> = vec![format!("{ROLE}=guard").into()];
    all.push(std::env::current_exe().unwrap().into());
    all.extend(arguments.map(OsString::from));
    Guard { program, arguments: all }
}

fn say(text: &str) {
    println!("@@ {text}");
    std::io::stdout().flush().unwrap();
}

fn hear_parent() {
    if std::io::stdin().read_line(&mut String::new()).unwrap() == 0 {
        std::process::exit(0);
    }
}

/// A running child, killed when it is dropped.
pub(crate) struct Player {
    child: Child,
    lines: BufReader<ChildStdout>,
    input: ChildStdin,
}

impl Player {
    pub(crate) fn start(home: &Home, role: &str) -> Player {
        let both = home.prepare_for_players();
        Player::start_in(Command::new(std::env::current_exe().unwrap()), &both, role)
    }

    pub(crate) fn start_in(mut command: Command, both: &Path, role: &str) -> Player {
        command.args(["a_child_plays_its_role", "--exact", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env(HOME, both).env_remove("NOTIFY_SOCKET");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = None;
        // A copy of this program was just written: another test that forked meanwhile has it open
        // for writing until it executes.
        soon(|| match command.spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => false,
            spawned => {
                child = Some(spawned.unwrap());
                true
            }
        });
        let mut child = child.unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let input = child.stdin.take().unwrap();
        Player { child, lines, input }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What the child says next; an empty text if it ended without a word.
    pub(crate) fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                return String::new();
            }
            if let Some((_, said)) = line.split_once("@@ ") {
                return said.trim_end().to_owned();
            }
        }
    }

    /// Has it say that it still runs.
    pub(crate) fn is_here(&mut self) -> bool {
        self.input.write_all(b"\n").unwrap();
        self.hear() == "here"
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// SIGKILL, and waits for the end.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    /// The same for one that another child takes the place of.
    pub(crate) fn end(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn finish(mut self) {
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether what is counted grows by so much at most in one of five stretches of time. What a start
/// leaves to do may reach into the first ones.
pub(crate) fn is_idle(count: impl Fn() -> u64, stretch: Duration, growth_max: u64) -> bool {
    (0..5).any(|_| {
        let before = count();
        std::thread::sleep(stretch);
        count() - before <= growth_max
    })
}

/// Whether something comes true within some seconds.
pub(crate) fn soon(mut is_true: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while !is_true() {
        if started.elapsed() > Duration::from_secs(20) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// What the kernel says of a process.
pub(crate) fn stat(pid: u32) -> ProcResult<Stat> {
    Process::new(i32::try_from(pid).unwrap())?.stat()
}

/// Whether a process stands still.
pub(crate) fn is_stopped(pid: u32) -> bool {
    stat(pid).unwrap().state == 'T'
}

/// What a process has used of a processor, in hundredths of a second.
pub(crate) fn processor_ticks(pid: u32) -> u64 {
    let stat = stat(pid).unwrap();
    stat.utime + stat.stime
}
