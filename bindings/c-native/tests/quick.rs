//! Small objects of many threads, which the C library serves without its lock.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::os::unix::process::ExitStatusExt;

use common::{Bench, Linking, has, text};
use holdfast_testkit::{Soundness, heap_soundness};

/// Objects in a sound heap.
fn objects(bench: &Bench) -> u64 {
    match heap_soundness(&bench.names(), "heap").unwrap() {
        Soundness::Sound { objects, .. } => objects,
        other => panic!("{other:?}"),
    }
}

/// What a root takes: the table, its entry, and the object.
const ONE_ROOT: u64 = 3;

/// Threads end with slabs full of objects, which others free; none is lost, and the heap is whole.
///
/// Guarantee: programs/threads
#[test]
fn objects_of_ended_threads_are_freed_by_others() {
    if !has("pkg-config") || !has("cc") {
        return;
    }
    for linking in [Linking::Shared, Linking::Static, Linking::AllStatic] {
        let bench = Bench::new();
        let program = bench.compile("quick.c", linking);
        assert_eq!(bench.run(&program, "ends"), "", "{linking:?}");
        assert_eq!(objects(&bench), ONE_ROOT, "{linking:?}");
    }
}

/// Guarantee: programs/forks
#[test]
fn forked_child_has_no_slabs_of_its_parent() {
    if !has("pkg-config") || !has("cc") {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile("quick.c", Linking::Shared);
    assert_eq!(bench.run(&program, "forks"), "");
    assert_eq!(
        heap_soundness(&bench.names(), "heap").unwrap(),
        Soundness::Sound { open_transaction: false, objects: 0 }
    );
}

/// Guarantee: programs/threads
/// Guarantee: programs/transactions
#[test]
fn objects_of_all_threads_belong_to_the_transaction() {
    if !has("pkg-config") || !has("cc") {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile("quick.c", Linking::Shared);
    assert_eq!(bench.run(&program, "joins"), "");
    assert_eq!(objects(&bench), 0);
}

/// A thread that has slabs of a heap that is closed gets an error, and of the next one new slabs.
///
/// Guarantee: programs/threads
#[test]
fn closed_heap_has_its_slabs_back() {
    if !has("pkg-config") || !has("cc") {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile("quick.c", Linking::Shared);
    assert_eq!(bench.run(&program, "closes"), "");
    assert_eq!(objects(&bench), ONE_ROOT);
}

/// What threads allocate while another one commits in the mode `atomic` stays allocated, once: a
/// publication drops pages, and with them what is stored at that moment.
///
/// Guarantee: programs/threads
#[test]
fn commits_lose_no_allocation_of_another_thread() {
    if !has("pkg-config") || !has("cc") {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile("quick.c", Linking::Shared);
    assert_eq!(bench.run(&program, "commits"), "");
    assert_eq!(objects(&bench), 0);
}

/// A kill of four threads with slabs of their own loses no linked object, and leaves one that is not
/// linked for each thread at most.
///
/// Guarantee: programs/next-run
/// Guarantee: programs/threads
#[test]
fn killed_threads_leave_one_unlinked_object_each_at_most() {
    if !has("pkg-config") || !has("cc") {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile("quick.c", Linking::Shared);
    for round in 1..=10 {
        let killed = bench.unbounded(&program).arg("dies").env("HOLDFAST_HEAP", "heap").output();
        let killed = killed.unwrap();
        assert_eq!((killed.status.signal(), &*text(&killed.stdout)), (Some(9), ""));
        let linked: u64 = bench.run(&program, "counts").trim().parse().unwrap();
        assert!(linked > 0);
        let (least, found) = (linked + ONE_ROOT, objects(&bench));
        assert!((least..=least + 4 * round).contains(&found), "round {round}: {found} of {linked}");
    }
}
