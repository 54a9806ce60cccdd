//! The edges of `holdfast.h`: what programs in C get wrong, and what the library makes of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use common::{Bench, Linking, has};
use holdfast_region::{Opened, OwnerKey, RegionName};
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

#[test]
fn what_follows_an_inner_abort_is_rolled_back_with_the_whole_transaction() {
    said_nothing("edges.c", "nested");
}

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

#[test]
fn a_constructor_that_throws_leaves_alone_what_other_threads_allocate_meanwhile() {
    said_nothing("edges.cpp", "throw-beside-a-thread");
}

#[test]
fn threads_that_make_the_same_root_at_once_get_the_same() {
    said_nothing("edges.cpp", "make-at-once");
}

#[test]
fn a_child_that_was_forked_by_whatever_call_neither_calls_nor_touches_its_parents_heap() {
    said_nothing("edges.c", "children");
}

#[test]
fn a_transaction_object_that_outlives_its_heap_leaves_the_next_one_alone_and_a_closed_heap_stays_closed() {
    said_nothing("edges.cpp", "outlive-a-heap");
}
