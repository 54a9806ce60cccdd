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

/// Guarantee: programs/transactions
#[test]
fn what_follows_an_inner_abort_is_rolled_back_with_the_whole_transaction() {
    said_nothing("edges.c", "nested");
}

/// Guarantee: programs/threads
#[test]
fn a_program_that_ends_while_its_threads_store_and_allocate_loses_nothing_and_does_not_crash() {
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

/// Guarantee: programs/threads
#[test]
fn a_constructor_that_throws_leaves_alone_what_other_threads_allocate_meanwhile() {
    said_nothing("edges.cpp", "throw-beside-a-thread");
}

/// Guarantee: programs/threads
#[test]
fn threads_that_make_the_same_root_at_once_get_the_same() {
    said_nothing("edges.cpp", "make-at-once");
}

/// Guarantee: programs/forks
#[test]
fn a_child_that_was_forked_by_whatever_call_neither_calls_nor_touches_its_parents_heap() {
    said_nothing("edges.c", "children");
}

/// Guarantee: programs/transactions
#[test]
fn a_transaction_object_that_outlives_its_heap_leaves_the_next_one_alone_and_a_closed_heap_stays_closed() {
    said_nothing("edges.cpp", "outlive-a-heap");
}

/// Guarantee: programs/objects
#[test]
fn objects_are_aligned_and_resized_roots_carry_layouts_and_an_owner_sets_the_limit() {
    said_nothing("edges.c", "shapes");
}

/// Guarantee: programs/objects
#[test]
fn a_typed_root_of_cpp_is_found_only_as_its_own_type_and_wide_types_are_aligned() {
    said_nothing("edges.cpp", "typed");
}

/// Guarantee: programs/read-only
#[test]
fn keys_that_may_only_read_read_a_native_heap_at_the_same_time_and_cannot_change_it() {
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
    // SAFETY: eight bytes that nobody else has.
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
        command.arg("only-read").env("HOLDFAST_HEAP", "heap").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "read\n");
        child
    };
    let mut readers = [start(), start(), start()];
    readers[0].stdin.take().unwrap().write_all(b"s").unwrap();
    assert_eq!(readers[0].wait().unwrap().signal(), Some(11), "a store is refused by the processor");
    for reader in &mut readers[1..] {
        drop(reader.stdin.take());
        assert!(reader.wait().unwrap().success());
    }
    assert_eq!(names.open(&name, &owner).unwrap().opened(), Opened::Warm, "nobody changed it");
    assert_sound(&bench);
}
