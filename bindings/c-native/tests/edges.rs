//! The edges of `holdfast.h`: what programs in C get wrong, and what the library makes of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use common::{Bench, Linking, has};
use holdfast_native_heap::open_heap;
use holdfast_region::{Grant, KeyFingerprint, Opened, OwnerKey, RegionName, Rights};
use holdfast_testkit::{Soundness, heap_soundness};

fn opened(bench: &Bench) -> Opened {
    let names = bench.names();
    let key = OwnerKey::load_or_create(names.places(), "default").unwrap();
    let region = names.open(&RegionName::parse("heap").unwrap(), &key).unwrap();
    let opened = region.opened();
    region.close().unwrap();
    opened
}

fn assert_sound(bench: &Bench) {
    let soundness = heap_soundness(&bench.names(), "heap").unwrap();
    assert!(matches!(soundness, Soundness::Sound { .. }), "{soundness:?}");
}

fn said_nothing(source: &str, command: &str) {
    if !has("pkg-config") || !has("cc") || !has("g++") {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile(source, Linking::Shared);
    assert_eq!(bench.run(&program, command), "");
    assert_sound(&bench);
}

/// Stores after an inner abort are rolled back with the whole transaction.
///
/// Guarantee: programs/transactions
#[test]
fn stores_after_an_inner_abort_are_rolled_back() {
    said_nothing("edges.c", "nested");
}

/// A program that ends while its threads store and allocate loses nothing and does not crash.
///
/// Guarantee: programs/threads
#[test]
fn exit_with_busy_threads_loses_nothing() {
    if !has("pkg-config") || !has("cc") {
        return;
    }
    let bench = Bench::new();
    for linking in [Linking::Shared, Linking::AllStatic] {
        let program = bench.compile("edges.c", linking);
        let mut before: i64 = 0;
        for _ in 0..20 {
            before = bench.run(&program, "join-threads").trim().parse().unwrap();
            assert_eq!(
                opened(&bench),
                Opened::Warm,
                "threads that have ended are no reason to leave it open"
            );
        }
        for round in 1..=10 {
            let command = if round % 2 == 0 { "leave-threads" } else { "leave-threads-atomic" };
            assert_eq!(bench.run(&program, command), format!("{}\n", before + round));
            assert_sound(&bench);
            if round == 10 {
                assert_eq!(opened(&bench), Opened::WarmAfterCrash, "nobody could close it");
            }
        }
    }
}

/// A constructor that throws does not undo what other threads allocate meanwhile.
///
/// Guarantee: programs/threads
#[test]
fn throwing_constructor_spares_other_threads() {
    said_nothing("edges.cpp", "throw-beside-a-thread");
}

/// Threads that create the same root at the same time all get one root.
///
/// Guarantee: programs/threads
#[test]
fn concurrent_root_creation_gives_one_root() {
    said_nothing("edges.cpp", "make-at-once");
}

/// A child created by any kind of fork cannot call the library or change its parent's heap.
///
/// Guarantee: programs/forks
#[test]
fn child_of_any_fork_leaves_the_parent_heap_alone() {
    said_nothing("edges.c", "children");
}

/// A transaction object that outlives its heap does not affect the next one; a closed heap stays
/// closed.
///
/// Guarantee: programs/transactions
#[test]
fn stale_transaction_leaves_the_next_heap_alone() {
    said_nothing("edges.cpp", "outlive-a-heap");
}

/// Objects are aligned, resized roots carry layouts, and an owner sets the limit.
///
/// Guarantee: programs/objects
#[test]
fn objects_are_aligned_and_owner_sets_the_limit() {
    said_nothing("edges.c", "shapes");
}

/// A typed C++ root is found only as its own type, and wide types are aligned.
///
/// Guarantee: programs/objects
#[test]
fn typed_cpp_root_is_found_only_as_its_type() {
    said_nothing("edges.cpp", "typed");
}

/// Read-only keys read a native heap at the same time and cannot change it.
///
/// Guarantee: programs/read-only
#[test]
fn read_keys_share_a_native_heap_without_changes() {
    if !has("pkg-config") || !has("cc") {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile("edges.c", Linking::Shared);
    let (names, name) = (bench.names(), RegionName::parse("heap").unwrap());
    let owner = OwnerKey::load_or_create(names.places(), "owner").unwrap();
    let reader = OwnerKey::load_or_create(names.places(), "default").unwrap();
    let (mut heap, region) = open_heap(names.create(&name, &owner, 8 << 20).unwrap()).unwrap();
    let count = heap.create_root("count", 8).unwrap();
    // SAFETY: eight bytes that nothing else has.
    #[allow(unsafe_code)]
    unsafe {
        count.cast::<i64>().write(3);
    };
    drop(heap.close());
    region.close().unwrap();
    names
        .grant(
            &name,
            &owner,
            Grant::new(KeyFingerprint::from_bytes(reader.fingerprint()), None, Rights::Read),
        )
        .unwrap();
    let start = || {
        let mut command = bench.unbounded(&program);
        command
            .arg("only-read")
            .env("HOLDFAST_HEAP", "heap")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "read\n");
        child
    };
    let mut readers = [start(), start(), start()];
    readers[0].stdin.take().unwrap().write_all(b"s").unwrap();
    assert_eq!(
        readers[0].wait().unwrap().signal(),
        Some(11),
        "a store is refused by the processor"
    );
    for reader in &mut readers[1..] {
        drop(reader.stdin.take());
        assert!(reader.wait().unwrap().success());
    }
    assert_eq!(names.open(&name, &owner).unwrap().opened(), Opened::Warm, "nobody changed it");
    assert_sound(&bench);
}
