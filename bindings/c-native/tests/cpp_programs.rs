//! Standard containers of C++ in a heap: there again at the next run, by their own plain pointers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

use common::{Bench, Linking, has};

/// Kills of a program that commits all the time.
const KILLS: u64 = 60;

/// Standard C++ containers in a heap survive runs and a kill between operations.
///
/// Guarantee: programs/containers
#[test]
fn standard_containers_survive_runs_and_kills() {
    if !has("pkg-config") || !has("g++") {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile("containers.cpp", Linking::Shared);
    let first = bench.run(&program, "add");
    assert!(first.starts_with("1 rounds at 0x"), "{first}");
    assert_eq!(bench.run(&program, "check"), first, "the address is the same");
    for _ in 0..3 {
        let mut killed = bench.unbounded(&program);
        killed
            .arg("add-and-wait")
            .env("HOLDFAST_HEAP", "heap")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut killed = killed.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(killed.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "waiting\n");
        killed.kill().unwrap();
        assert_eq!(killed.wait().unwrap().signal(), Some(9));
    }
    assert_eq!(bench.run(&program, "check"), first.replace("1 rounds", "4 rounds"));
    assert_eq!(bench.run(&program, "add"), first.replace("1 rounds", "5 rounds"));
}

/// A root is constructed completely or not at all, and a transaction ends with its scope.
#[test]
fn root_is_constructed_whole_or_not_at_all() {
    if !has("pkg-config") || !has("g++") {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile("containers.cpp", Linking::Static);
    assert_eq!(bench.run(&program, "details"), "");
}

/// After a rollback, a C++ map and a C hash table hold the state of the last commit.
///
/// Guarantee: programs/rollback
#[test]
fn map_and_hash_table_follow_a_rollback() {
    if !has("pkg-config") || !has("g++") {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile("unaware.cpp", Linking::Shared);
    assert_eq!(bench.run(&program, "rollback"), "100\n");
    assert_eq!(bench.run(&program, "rollback"), "200\n");
    assert_eq!(bench.run(&program, "check"), "200\n");
}

/// In atomic mode, a C++ map and a C hash table without transactions are whole after random kills.
///
/// Guarantee: heap/atomic-kill
#[test]
fn atomic_mode_survives_random_kills() {
    if !has("pkg-config") || !has("g++") {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile("unaware.cpp", Linking::Shared);
    let mut committed: u64 = 0;
    for round in 0..KILLS {
        let mut churn = bench.unbounded(&program);
        churn.arg("churn").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut churn = churn.spawn().unwrap();
        let mut lines = BufReader::new(churn.stdout.take().unwrap()).lines();
        for _ in 0..round % 50 + 1 {
            committed = lines.next().unwrap().unwrap().parse().unwrap();
        }
        std::thread::sleep(Duration::from_micros(round * 71 % 900));
        churn.kill().unwrap();
        assert_eq!(churn.wait().unwrap().signal(), Some(9));
        // What it had said before it died counts, too.
        if let Some(last) = lines.map_while(Result::ok).last() {
            committed = last.parse().unwrap();
        }
        let found: u64 = bench.run(&program, "check").trim().parse().unwrap();
        assert!(
            found >= committed && found <= committed + 1,
            "round {round}: {found}, {committed} was said"
        );
    }
}
