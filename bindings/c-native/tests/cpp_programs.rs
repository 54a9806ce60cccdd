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

/// Guarantee: programs/containers
#[test]
fn standard_containers_live_in_a_heap_across_runs_and_a_kill_between_operations() {
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
        killed.arg("add-and-wait").env("HOLDFAST_HEAP", "heap").stdin(Stdio::piped()).stdout(Stdio::piped());
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

#[test]
fn a_root_is_constructed_whole_or_not_at_all_and_a_transaction_ends_with_its_scope() {
    if !has("pkg-config") || !has("g++") {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile("containers.cpp", Linking::Static);
    assert_eq!(bench.run(&program, "details"), "");
}

/// Guarantee: programs/rollback
#[test]
fn a_map_and_a_c_hash_table_are_as_of_the_last_commit_after_a_rollback() {
    if !has("pkg-config") || !has("g++") {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile("unaware.cpp", Linking::Shared);
    assert_eq!(bench.run(&program, "rollback"), "100\n");
    assert_eq!(bench.run(&program, "rollback"), "200\n");
    assert_eq!(bench.run(&program, "check"), "200\n");
}

/// Guarantee: heap/atomic-kill
#[test]
fn a_map_and_a_c_hash_table_without_transactions_are_whole_after_kills_at_random_in_the_mode_atomic() {
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
        assert!(found >= committed && found <= committed + 1, "round {round}: {found}, {committed} was said");
    }
}
