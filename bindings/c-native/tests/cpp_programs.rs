//! Standard containers of C++ in a heap: there again at the next run, by their own plain pointers.

mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use common::{Bench, Linking, has};

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
