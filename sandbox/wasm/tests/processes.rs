//! Tests that need a process of their own: sudden death, and inherited streams that nothing serves.
//!
//! Each test starts this test program again with the name of a `child_*` test and an environment
//! variable that says where its scratch files are; without the variable the child tests do nothing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(unsafe_code, reason = "forks")]

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio as ProcessStdio};
use std::time::{Duration, Instant};

use common::{MIB, Scratch, open_region, options, program, run, status};
use holdfast_region::{NameSpace, Opened, OwnerKey, Places, RegionName};
use holdfast_wasm::{DirGrant, RunOptions, Stdio, WasmError};

const HOME: &str = "HOLDFAST_TEST_CHILD_HOME";
const POOL: &str = "HOLDFAST_TEST_CHILD_POOL";
const TIME_LIMIT: Duration = Duration::from_millis(200);
const EXIT_TIME_LIMIT_WAITING: i32 = 61;
const EXIT_OTHER: i32 = 62;
const EXIT_HOST_ACCESS: i32 = 63;
const EXIT_READ_ONLY: i32 = 64;

fn child(test: &str, scratch: &Scratch) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(HOME, scratch.home())
        .env(POOL, scratch.pool())
        .stdin(ProcessStdio::piped())
        .stdout(ProcessStdio::piped());
    command
}

fn child_places() -> Option<(PathBuf, PathBuf)> {
    Some((std::env::var_os(HOME)?.into(), std::env::var_os(POOL)?.into()))
}

#[test]
fn child_that_stores_says_so_and_hangs() {
    let Some((home, pool)) = child_places() else { return };
    let region = open_region(&home, &pool, "killed", 8 * MIB);
    let mut options = RunOptions::default();
    options.stdio = Stdio::inherit();
    let body = "
      (call $attach_heap)
      (i64.store (i32.const 0x80000000) (i64.add (i64.load (i32.const 0x80000000)) (i64.const 1)))
      (i64.store (i32.const 256) (i64.const 0x0a6465726f74730a)) ;; stored, on a line of its own
      (call $buffer (i32.const 256) (i32.const 8))
      (drop (call $fd_write (i32.const 1) (i32.const 64) (i32.const 1) (i32.const 80)))
      (loop $forever (br $forever))";
    holdfast_wasm::run(&program(body), &options, Some(region));
}

/// What an applet stored before a kill is in the heap at the next run.
#[test]
fn stores_before_a_kill_are_in_the_next_run() {
    let scratch = Scratch::new();
    for round in 1..=3 {
        let mut process = child("child_that_stores_says_so_and_hangs", &scratch).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line == "stored"));
        process.kill().unwrap();
        assert_eq!(process.wait().unwrap().signal(), Some(9));

        let region = scratch.region("killed", 8 * MIB);
        assert_eq!(region.opened(), Opened::WarmAfterCrash);
        let body = "(call $attach_heap) (call $exit (i32.load (i32.const 0x80000000)))";
        let finished = run(body, Some(region));
        assert_eq!(status(&finished), round);
        finished.heaps.into_first().unwrap().close().unwrap();
    }
}

#[test]
fn child_that_forks_after_its_first_time_limit() {
    let Some((home, _)) = child_places() else { return };
    let is_stopped = || {
        let mut options = options();
        // The child finds it compiled: the threads of the compiler stay behind at a fork.
        options.cache_dir = Some(home.join("cache"));
        options.limits.timeout = Some(TIME_LIMIT);
        let finished =
            holdfast_wasm::run(&program("(loop $forever (br $forever))"), &options, None);
        matches!(finished.end, Err(WasmError::TimeLimit { .. }))
    };
    assert!(is_stopped());
    // SAFETY: the other threads of this process hold nothing that the child needs: one waits for
    // this one to end, one for the next deadline.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let status = if is_stopped() { EXIT_TIME_LIMIT_WAITING } else { EXIT_OTHER };
        // SAFETY: ends the child without what belongs to its parent.
        unsafe { libc::_exit(status) };
    }
    let started = Instant::now();
    let mut status = 0;
    // SAFETY: a child of this process; `status` is a live integer.
    while unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } == 0 {
        if started.elapsed() > Duration::from_secs(10) {
            // SAFETY: it was not waited for, so the number is its own.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == EXIT_TIME_LIMIT_WAITING,
        "{status:#x}"
    );
}

/// Guarantee: sandbox/time-limits
#[test]
fn time_limit_holds_in_a_forked_process() {
    let scratch = Scratch::new();
    let process = child("child_that_forks_after_its_first_time_limit", &scratch).spawn().unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// A child that may have so many descriptors.
fn child_with_descriptors(test: &str, scratch: &Scratch, limit: u32) -> Command {
    let plain = child(test, scratch);
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("ulimit -n {limit} && exec \"$@\""), "sh"])
        .arg(plain.get_program());
    command.args(plain.get_args()).stdin(ProcessStdio::null()).stdout(ProcessStdio::piped());
    command.env(HOME, scratch.home()).env(POOL, scratch.pool());
    command
}

/// Opens files until there are no more descriptors, and says how many it got.
fn take_all_descriptors() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).take(1 << 16).collect()
}

/// Fills a hole of the memory, or a heap that may only be read, while the process has no descriptor
/// left.
fn touch_without_descriptors(read_only: bool, target: &str) {
    let Some((home, pool)) = child_places() else { return };
    let region = open_region(&home, &pool, "full", MIB);
    let region = if read_only {
        region.close().unwrap();
        let names = NameSpace::new(Places::at(&home, &pool).unwrap());
        names
            .open_read_only(&RegionName::parse("full").unwrap(), &OwnerKey::from_bytes([7; 32]))
            .unwrap()
    } else {
        region
    };
    let granted = home.join("granted");
    std::fs::create_dir(&granted).unwrap();
    let mut options = options();
    options.dirs.push(format!("{}::/in", granted.display()).parse::<DirGrant>().unwrap());
    let (finish, finished) = std::sync::mpsc::channel::<()>();
    let taker = std::thread::spawn(move || {
        let started = Instant::now();
        while !granted.join("file").exists() && started.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let taken = take_all_descriptors();
        // Until the run is over.
        let _ = finished.recv();
        taken.len()
    });
    // Attaches, says so by making a file, sleeps a second, and touches what it may not.
    let body = format!(
        "(call $attach_heap)
         (i64.store (i32.const 128) (i64.const 0x656c6966)) ;; \"file\"
         (call $exit_unless (i32.eqz (call $path_open (i32.const 3) (i32.const 0) (i32.const 128) (i32.const 4)
           (i32.const 1) (i64.const 64) (i64.const 64) (i32.const 0) (i32.const 96))) (i32.const 1))
         (i32.store (i32.const 272) (i32.const 1))
         (i64.store (i32.const 280) (i64.const 1000000000))
         (drop (call $poll_oneoff (i32.const 256) (i32.const 512) (i32.const 1) (i32.const 600)))
         (memory.fill (i32.const {target}) (i32.const 1) (i32.const 100))"
    );
    let finished = holdfast_wasm::run(&program(&body), &options, Some(region));
    finish.send(()).unwrap();
    assert!(taker.join().unwrap() > 0);
    std::process::exit(match finished.end {
        Err(WasmError::HostAccess { .. }) => EXIT_HOST_ACCESS,
        Err(WasmError::ReadOnlyHeap { .. }) => EXIT_READ_ONLY,
        _ => EXIT_OTHER,
    });
}

#[test]
fn child_that_fills_a_hole_without_descriptors() {
    touch_without_descriptors(false, "0x40000000");
}

/// Child process of `host_access_needs_no_free_descriptor`: fills a read-only heap without free
/// descriptors.
#[test]
fn child_fills_read_only_heap_without_descriptors() {
    touch_without_descriptors(true, "0x80000100");
}

/// A process without free descriptors survives host accesses to holes and to read-only heaps.
///
/// Guarantee: sandbox/wild-pointers
#[test]
fn host_access_needs_no_free_descriptor() {
    for (test, code) in [
        ("child_that_fills_a_hole_without_descriptors", EXIT_HOST_ACCESS),
        ("child_fills_read_only_heap_without_descriptors", EXIT_READ_ONLY),
    ] {
        let scratch = Scratch::new();
        let ended = child_with_descriptors(test, &scratch, 64).output().unwrap();
        assert_eq!(ended.status.code(), Some(code), "{test}: {ended:?}");
    }
}

#[test]
fn child_whose_applet_opens_files_without_end() {
    let Some((home, pool)) = child_places() else { return };
    let region = open_region(&home, &pool, "open", MIB);
    let granted = home.join("granted");
    std::fs::create_dir(&granted).unwrap();
    std::fs::write(granted.join("file"), "x").unwrap();
    let mut options = options();
    options.dirs.push(format!("{}::/in:ro", granted.display()).parse::<DirGrant>().unwrap());
    // The answers go to 1024 (refusal) and 1028 (how many succeeded); then one is closed and
    // another opened.
    let body = r#"
      (local $answer i32) (local $count i32)
      (call $attach_heap)
      (i64.store (i32.const 128) (i64.const 0x656c6966)) ;; "file"
      (block $full (loop $more
        (local.set $answer (call $path_open (i32.const 3) (i32.const 0) (i32.const 128) (i32.const 4)
          (i32.const 0) (i64.const 2) (i64.const 2) (i32.const 0) (i32.const 96)))
        (br_if $full (local.get $answer))
        (local.set $count (i32.add (local.get $count) (i32.const 1)))
        (br_if $more (i32.lt_u (local.get $count) (i32.const 100000)))))
      (call $exit_unless (i32.eq (local.get $answer) (i32.const 33)) (i32.const 1))
      (call $exit_unless (i32.eqz (call $fd_close (i32.load (i32.const 96)))) (i32.const 2))
      (call $exit_unless (i32.eqz (call $path_open (i32.const 3) (i32.const 0) (i32.const 128) (i32.const 4)
        (i32.const 0) (i64.const 2) (i64.const 2) (i32.const 0) (i32.const 96))) (i32.const 3))
      (i32.store (i32.const 0x80000000) (local.get $count))
      (call $exit_unless (i32.eqz (call $commit (i32.const 2))) (i32.const 4))"#;
    let finished = holdfast_wasm::run(&program(body), &options, Some(region));
    assert_eq!(status(&finished), 0);
    let mut count = [0; 4];
    finished.heaps.into_first().unwrap().read_at(0, &mut count).unwrap();
    println!("\nopened {}", u32::from_le_bytes(count));
}

/// An applet that opens files without end leaves descriptors for the host.
///
/// Guarantee: sandbox/memory-limits
#[test]
fn applet_opening_files_leaves_host_descriptors() {
    for (limit, expected) in [(64, 30..57), (2048, 1024..1025)] {
        let test = "child_whose_applet_opens_files_without_end";
        let ended = child_with_descriptors(test, &Scratch::new(), limit).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success(), "{said}");
        let opened = said.lines().find_map(|line| line.strip_prefix("opened ")?.parse().ok());
        assert!(opened.is_some_and(|opened: u32| expected.contains(&opened)), "{limit}: {said}");
    }
}

/// Runs a body with inherited streams and a time limit, and exits with how it ended.
fn run_limited(body: &str) {
    if child_places().is_none() {
        return;
    }
    let mut options = options();
    options.stdio = Stdio::inherit();
    options.limits.timeout = Some(TIME_LIMIT);
    let finished = holdfast_wasm::run(&program(body), &options, None);
    std::process::exit(match finished.end {
        Err(WasmError::TimeLimit { waiting: true, .. }) => EXIT_TIME_LIMIT_WAITING,
        _ => EXIT_OTHER,
    });
}

#[test]
fn child_that_reads_its_input() {
    run_limited(
        "(call $buffer (i32.const 256) (i32.const 10))
         (drop (call $fd_read (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 80)))",
    );
}

#[test]
fn child_that_writes_forever() {
    run_limited(
        "(call $buffer (i32.const 256) (i32.const 5000))
         (loop $forever
           (drop (call $fd_write (i32.const 1) (i32.const 64) (i32.const 1) (i32.const 80)))
           (br $forever))",
    );
}

fn ends_by_its_time_limit(mut process: Child) {
    let started = Instant::now();
    let status = loop {
        if let Some(status) = process.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > Duration::from_secs(20) {
            process.kill().unwrap();
            panic!("the time limit did not reach the applet");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(status.code(), Some(EXIT_TIME_LIMIT_WAITING));
}

/// Guarantee: sandbox/time-limits
#[test]
fn an_applet_that_waits_for_input_is_stopped() {
    // The pipe stays open and empty until the process has ended.
    let mut process = child("child_that_reads_its_input", &Scratch::new()).spawn().unwrap();
    let mut stdin = process.stdin.take().unwrap();
    ends_by_its_time_limit(process);
    let _ = stdin.flush();
}

/// Guarantee: sandbox/time-limits
#[test]
fn an_applet_whose_output_nobody_reads_is_stopped() {
    ends_by_its_time_limit(child("child_that_writes_forever", &Scratch::new()).spawn().unwrap());
    let (_reader, socket) = std::os::unix::net::UnixStream::pair().unwrap();
    let scratch = Scratch::new();
    let mut process = child("child_that_writes_forever", &scratch);
    ends_by_its_time_limit(process.stdout(OwnedFd::from(socket)).spawn().unwrap());
}

/// Both ends of a terminal.
fn terminal() -> Option<(OwnedFd, File)> {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let reader = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).ok()?;
    grantpt(&reader).and_then(|()| unlockpt(&reader)).ok()?;
    let name = ptsname(&reader, Vec::new()).ok()?.into_string().ok()?;
    let no_controlling_terminal = rustix::fs::OFlags::NOCTTY.bits() as i32;
    let mut options = File::options();
    let writer =
        options.read(true).write(true).custom_flags(no_controlling_terminal).open(name).ok()?;
    Some((reader, writer))
}

/// An applet that writes to a terminal that no process reads is stopped at its time limit.
///
/// Guarantee: sandbox/time-limits
#[test]
fn write_to_an_unread_terminal_is_stopped() {
    let Some((_reader, writer)) = terminal() else {
        println!("not run: no terminal can be made");
        return;
    };
    let scratch = Scratch::new();
    let mut process = child("child_that_writes_forever", &scratch);
    ends_by_its_time_limit(process.stdout(writer).spawn().unwrap());
}
