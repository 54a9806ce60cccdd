//! Native C and C++ programs with several heaps, and with none that has a name.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use common::{Bench, Linking, has, succeeded};
use holdfast_testkit::{Soundness, heap_soundness};

fn bench() -> Option<Bench> {
    (has("pkg-config") && has("cc") && has("g++")).then(Bench::new)
}

fn assert_sound(bench: &Bench, heaps: &[&str]) {
    for heap in heaps {
        let soundness = heap_soundness(&bench.names(), heap).unwrap();
        assert!(matches!(soundness, Soundness::Sound { .. }), "{heap}: {soundness:?}");
    }
}

/// Each heap has its own roots, objects and transactions; a thread with a transaction in one is
/// refused one in another.
///
/// Guarantee: programs/several-heaps
#[test]
fn heaps_of_one_program_are_apart() {
    let Some(bench) = bench() else { return };
    for linking in [Linking::Shared, Linking::AllStatic] {
        let program = bench.compile("several.c", linking);
        for command in ["apart", "threads"] {
            let bench = Bench::new();
            assert_eq!(succeeded(&bench.command(&program).arg(command).output().unwrap()), "");
            assert_sound(&bench, &["words", "notes"]);
        }
    }
}

/// A handle of the heap of `nv_open` is of no heap after that was closed, whatever is opened next.
///
/// Guarantee: programs/several-heaps
#[test]
fn handle_of_a_closed_heap_leads_to_no_other() {
    let Some(bench) = bench() else { return };
    let program = bench.compile("several.c", Linking::Shared);
    assert_eq!(succeeded(&bench.command(&program).arg("stale").output().unwrap()), "");
    assert_sound(&bench, &["words", "notes"]);
}

/// Objects by number need no heap to be named: they are in one of the program's own, which the next
/// run finds.
///
/// Guarantee: programs/numbered-without-name
#[test]
fn numbered_objects_need_no_name() {
    let Some(bench) = bench() else { return };
    let program = bench.compile("several.c", Linking::Shared);
    for expected in ["1\n", "2\n", "3\n"] {
        let output = bench.command(&program).arg("numbered").output().unwrap();
        assert_eq!(succeeded(&output), expected);
    }
    assert_sound(&bench, &["app.several.c.Shared"]);
    let output = bench.command(&program).arg("unnamed").output().unwrap();
    assert_eq!(succeeded(&output), "");
    // A name in the environment counts.
    assert_eq!(bench.run(&program, "numbered"), "1\n");
    assert_sound(&bench, &["heap"]);
}

/// `nv_reserve` and `HOLDFAST_RESERVE` make room, or say why there is none; a heap that cannot have
/// what was asked for is closed again.
///
/// Guarantee: heap/reserve
#[test]
fn room_is_reserved_or_refused() {
    let Some(bench) = bench() else { return };
    let program = bench.compile("several.c", Linking::Shared);
    for (reserve, words) in [
        ("8MiB", ""),
        ("1TiB", "the heap's limit of 67108864 bytes is reached"),
        ("much", "HOLDFAST"),
    ] {
        let mut command = bench.command(&program);
        command.arg("reserve").env("HOLDFAST_HEAP", "heap").env("HOLDFAST_RESERVE", reserve);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        match words {
            "" => assert_eq!(succeeded(&output), ""),
            "HOLDFAST" => assert!(!output.status.success(), "{said}"),
            words => assert!(!output.status.success() && said.contains(words), "{said}"),
        }
    }
    assert_sound(&bench, &["words", "heap"]);
}

/// Containers in two heaps: each allocates in its own, and a transaction of one is refused while
/// one of the other is open.
///
/// Guarantee: programs/several-heaps
#[test]
fn containers_live_in_the_heap_of_their_allocator() {
    let Some(bench) = bench() else { return };
    let program = bench.compile("several.cpp", Linking::Shared);
    for expected in ["1 1\n", "2 2\n", "3 3\n"] {
        let output = bench.command(&program).output().unwrap();
        assert_eq!(succeeded(&output), expected);
    }
    assert_sound(&bench, &["words", "notes"]);
}

/// The allocator of a named heap finds that again after it was closed and opened.
///
/// Guarantee: programs/several-heaps
#[test]
fn named_heap_is_found_again_after_a_reopening() {
    let Some(bench) = bench() else { return };
    let program = bench.compile("several.cpp", Linking::Shared);
    assert_eq!(succeeded(&bench.command(&program).arg("reopen").output().unwrap()), "");
    assert_sound(&bench, &["words"]);
}
