//! What needs a process of its own: sudden death, and inherited streams that nobody serves.
//!
//! Each test starts this test program again with the name of a `child_*` test and an environment variable
//! that says where its scratch files are; without the variable the child tests do nothing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio as ProcessStdio};
use std::time::{Duration, Instant};

use common::{MIB, Scratch, open_region, options, program, run, status};
use holdfast_region::Opened;
use holdfast_wasm::{RunOptions, Stdio, WasmError};

const HOME: &str = "HOLDFAST_TEST_CHILD_HOME";
const POOL: &str = "HOLDFAST_TEST_CHILD_POOL";
const TIME_LIMIT: Duration = Duration::from_millis(200);
const EXIT_TIME_LIMIT_WAITING: i32 = 61;
const EXIT_OTHER: i32 = 62;

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

#[test]
fn what_was_stored_before_a_kill_is_there_in_the_next_run() {
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
        finished.region.unwrap().close().unwrap();
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

#[test]
fn an_applet_that_waits_for_input_is_stopped() {
    // The pipe stays open and empty until the process has ended.
    let mut process = child("child_that_reads_its_input", &Scratch::new()).spawn().unwrap();
    let mut stdin = process.stdin.take().unwrap();
    ends_by_its_time_limit(process);
    let _ = stdin.flush();
}

#[test]
fn an_applet_whose_output_nobody_reads_is_stopped() {
    ends_by_its_time_limit(child("child_that_writes_forever", &Scratch::new()).spawn().unwrap());
}
