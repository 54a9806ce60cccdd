//! Compartments of the threads of native C and C++ programs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use common::{Bench, Linking, has, succeeded};
use holdfast_testkit::{Soundness, heap_soundness};

fn bench() -> Option<Bench> {
    (has("pkg-config") && has("cc") && has("g++")).then(Bench::new)
}

fn assert_sound(bench: &Bench, heaps: &[&str]) {
    for heap in heaps {
        let soundness = heap_soundness(&bench.names(), heap).unwrap();
        assert!(
            matches!(soundness, Soundness::Sound { open_transaction: false, .. }),
            "{heap}: {soundness:?}"
        );
    }
}

fn run_each(command: &str, heaps: &[&str]) {
    let Some(bench) = bench() else { return };
    for linking in [Linking::Shared, Linking::AllStatic] {
        let program = bench.compile("compartments.c", linking);
        let bench = Bench::new();
        assert_eq!(succeeded(&bench.command(&program).arg(command).output().unwrap()), "");
        assert_sound(&bench, heaps);
    }
}

/// What a thread does without a handle goes to its compartment, and no object of one heap is one
/// of another; a program that ends inside of a compartment closes it in order.
///
/// Guarantee: programs/compartments
#[test]
fn compartments_of_one_program_are_apart() {
    run_each("apart", &["jobs", "jobs+one", "jobs+thread-1"]);
}

/// A compartment is one thread's until that leaves or ends, and what it had open is rolled back.
///
/// Guarantee: programs/compartments
#[test]
fn a_thread_that_ends_leaves_its_compartment() {
    run_each("ends", &["jobs", "jobs+thread-1", "jobs+thread-2"]);
}

/// Each compartment has its quota, which counts against the limit of the heap.
///
/// Guarantee: programs/compartments
#[test]
fn a_full_compartment_is_full_for_itself() {
    run_each("full", &["jobs", "jobs+one", "jobs+two"]);
}

/// A child that is forked inside of a compartment has none, and its end changes nothing.
///
/// Guarantee: programs/forks
#[test]
fn forked_child_has_no_compartment() {
    run_each("forks", &["jobs", "jobs+one"]);
}

/// Containers allocate where their thread is, and leaving rolls back an open transaction.
///
/// Guarantee: programs/compartments
#[test]
fn containers_live_in_the_compartment_of_their_thread() {
    let Some(bench) = bench() else { return };
    let program = bench.compile("compartments.cpp", Linking::Shared);
    for expected in ["1000 2000 1\n", "2000 4000 1\n"] {
        let output = bench.command(&program).output().unwrap();
        assert_eq!(succeeded(&output), expected);
    }
    assert_sound(&bench, &["jobs", "jobs+one", "jobs+two"]);
}

/// Kills at random while four threads work in their compartments: each ledger has what was said to
/// count, and at most the entry that was on its way.
///
/// Guarantee: programs/compartments
#[test]
fn kills_leave_each_compartment_whole() {
    let Some(bench) = bench() else { return };
    let program = bench.compile("compartments.c", Linking::Shared);
    let names = ["one", "two", "three", "four"];
    let (mut known, mut random) = ([0_u64; 4], 0x9E37_79B9_u64);
    for round in 0..40 {
        if round >= 8 && known.iter().all(|count| *count > 0) {
            break;
        }
        random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(11);
        let mut command = bench.unbounded(&program);
        let mut child = command.arg("run").stdout(Stdio::piped()).spawn().unwrap();
        let mut output = child.stdout.take().unwrap();
        let reader = std::thread::spawn(move || {
            let mut text = Vec::new();
            output.read_to_end(&mut text).unwrap();
            String::from_utf8_lossy(&text).into_owned()
        });
        std::thread::sleep(Duration::from_micros(30_000 + (random >> 44) % 120_000));
        child.kill().unwrap();
        child.wait().unwrap();
        let text = reader.join().unwrap();
        for line in text.lines() {
            assert!(!line.starts_with("line "), "{line}");
            let Some((name, count)) = line.split_once(' ') else { continue };
            let at = names.iter().position(|known| *known == name);
            if let (Some(at), Ok(count)) = (at, count.parse()) {
                known[at] = count;
            }
        }
        let found = succeeded(&bench.command(&program).arg("look").output().unwrap());
        let found: Vec<u64> = found.split_whitespace().map(|n| n.parse().unwrap()).collect();
        assert_eq!(found.len(), 4, "{found:?}");
        for (at, count) in found.into_iter().enumerate() {
            assert!((known[at]..=known[at] + 1).contains(&count), "{known:?}: {at}, {count}");
            known[at] = count;
        }
    }
    assert!(known.iter().all(|count| *count > 0), "{known:?}");
    assert_sound(&bench, &["jobs+one", "jobs+two", "jobs+three", "jobs+four"]);
}
