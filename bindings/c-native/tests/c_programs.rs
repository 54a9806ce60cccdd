//! Programs in C that link the installed library: their heaps are there again, whatever ended them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use common::{Bench, Linking, has, succeeded, text};
use holdfast_region::{Opened, OwnerKey, RegionName};
use holdfast_testkit::{Soundness, heap_soundness};

const KILLED: Option<i32> = Some(9);

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

/// A stored value is there at the next run, with a shared and with a static library.
///
/// Guarantee: programs/next-run
#[test]
fn value_persists_with_shared_and_static_linking() {
    if !has("pkg-config") || !has("cc") {
        return;
    }
    let bench = Bench::new();
    let mut expected = 0;
    for linking in [Linking::Shared, Linking::Static, Linking::AllStatic] {
        let program = bench.compile("calls.c", linking);
        for _ in 0..2 {
            expected += 1;
            assert_eq!(bench.run(&program, "count"), format!("{expected}\n"), "{linking:?}");
            assert_eq!(opened(&bench), Opened::Warm, "{linking:?}: it was not closed at exit");
        }
    }
    assert_sound(&bench);
}

/// A killed C program loses no store, and its open transaction is rolled back.
///
/// Guarantee: programs/next-run
#[test]
fn killed_c_program_keeps_stores_and_rolls_back() {
    if !has("pkg-config") || !has("cc") {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile("calls.c", Linking::Shared);
    assert_eq!(bench.run(&program, "count"), "1\n");
    for (command, printed) in [("count-and-die", "2\n"), ("die-in-transaction", "")] {
        let mut killed = bench.unbounded(&program);
        let output = killed.arg(command).env("HOLDFAST_HEAP", "heap").output().unwrap();
        assert_eq!((output.status.signal(), &*text(&output.stdout)), (KILLED, printed));
    }
    assert_eq!(bench.run(&program, "count"), "3\n");
    assert_sound(&bench);
}

/// The reset itself is tried where stores can be recorded: in the tests of `core/heap`.
///
/// Guarantee: heap/persist
#[test]
fn self_ordered_log_is_whole_on_every_pool() {
    if !has("pkg-config") || !has("cc") {
        return;
    }
    for emulate in ["0", "1"] {
        let bench = Bench::new();
        let program = bench.compile("log.c", Linking::Shared);
        let run = |words: &[&str]| {
            let mut command = bench.unbounded(&program);
            command.args(words).env("HOLDFAST_HEAP", "heap").env("HOLDFAST_EMULATE_DAX", emulate);
            command.output().unwrap()
        };
        for until in ["3", "7"] {
            let appended = run(&["append", until]);
            let last = text(&appended.stdout).lines().last().map(str::to_owned);
            assert_eq!((appended.status.signal(), last.as_deref()), (KILLED, Some(until)));
        }
        let checked = run(&["check"]);
        assert!(checked.status.success(), "{}", text(&checked.stderr));
        assert_eq!(text(&checked.stdout), "7\n");
    }
}

/// A commit at level power survives the loss of the pool.
///
/// Guarantee: programs/next-run
#[test]
fn power_commit_survives_loss_of_the_pool() {
    if !has("pkg-config") || !has("cc") {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile("calls.c", Linking::Shared);
    let mut killed = bench.unbounded(&program);
    let output = killed.arg("commit-and-die").env("HOLDFAST_HEAP", "heap").output().unwrap();
    assert_eq!((output.status.signal(), &*text(&output.stdout)), (KILLED, ""));
    std::fs::remove_file(bench.path("pool").join("heap.image")).unwrap();
    assert_eq!(bench.run(&program, "count"), "2\n");
}

/// A rollback restores the last commit, and stores after it follow the same rule.
///
/// Guarantee: programs/rollback
#[test]
fn rollback_restores_the_last_commit_repeatedly() {
    if !has("pkg-config") || !has("cc") {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile("calls.c", Linking::Shared);
    let output = bench.unbounded(&program).arg("roll-back-and-die").output().unwrap();
    assert_eq!((output.status.signal(), &*text(&output.stdout)), (KILLED, ""));
    assert_sound(&bench);
    assert_eq!(bench.run(&program, "length"), "1000\n");
    assert_eq!(bench.run(&program, "count"), "2\n");
}

/// A rollback that fails closes the heap, and the heap can be opened again.
///
/// Guarantee: programs/rollback
#[test]
fn failed_rollback_closes_a_reopenable_heap() {
    if !has("pkg-config") || !has("cc") {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile("calls.c", Linking::Shared);
    let output = bench
        .command(&program)
        .arg("roll-back-without-image")
        .env("HOLDFAST_HEAP_MODE", "atomic")
        .env("HOLDFAST_HEAP", "heap")
        .output();
    assert_eq!(succeeded(&output.unwrap()), "");
    assert_eq!(bench.run(&program, "count"), "8\n");
    assert_sound(&bench);
}

/// The calls of the papers find their data at the same address in the next process.
///
/// Guarantee: programs/fixed-addresses
/// Guarantee: programs/own-user
#[test]
fn calls_of_the_papers_find_data_at_one_address() {
    if !has("pkg-config") || !has("cc") {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile("calls.c", Linking::Shared);
    let address = bench.run(&program, "papers-make");
    assert_eq!(bench.run(&program, "papers-find"), address);
    assert_sound(&bench);
}

/// Every error in C has a code and a message that says what to do.
///
/// Guarantee: programs/rollback
/// Guarantee: programs/errors
#[test]
fn every_c_error_has_a_code_and_a_remedy() {
    if !has("pkg-config") || !has("cc") {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile("calls.c", Linking::Shared);
    let output = bench.command(&program).arg("errors").output().unwrap();
    assert_eq!(succeeded(&output), "");
    let mut nonsense = bench.command(&program);
    nonsense.arg("try-to-open").env("HOLDFAST_HEAP", "heap").env("HOLDFAST_HEAP_SIZE", "large");
    let said = succeeded(&nonsense.output().unwrap());
    assert!(
        said.starts_with("5 ") && said.contains("HOLDFAST_HEAP_SIZE") && said.contains("64MiB"),
        "{said}"
    );
    let mut nonsense = bench.command(&program);
    nonsense.arg("try-to-open").env("HOLDFAST_HEAP", "heap").env("HOLDFAST_RESERVE", "much");
    let said = succeeded(&nonsense.output().unwrap());
    assert!(said.starts_with("5 HOLDFAST_RESERVE: "), "{said}");
}

/// Guarantee: programs/errors
#[test]
fn a_program_is_told_which_process_has_its_heap() {
    if !has("pkg-config") || !has("cc") {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile("calls.c", Linking::Shared);
    let mut holder = bench.unbounded(&program);
    holder.arg("hold").env("HOLDFAST_HEAP", "heap").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = holder.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    let said = bench.run(&program, "try-to-open");
    assert!(
        said.starts_with("15 ") && said.contains(&format!("process {}", holder.id())),
        "{said}"
    );
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    assert_eq!(bench.run(&program, "try-to-open"), "0 no error\n");
}

/// A forked child is refused, and its exit does not change the heap of its parent.
///
/// Guarantee: programs/forks
#[test]
fn forked_child_cannot_use_the_heap_of_its_parent() {
    if !has("pkg-config") || !has("cc") {
        return;
    }
    let bench = Bench::new();
    for linking in [Linking::Shared, Linking::Static] {
        let program = bench.compile("calls.c", linking);
        let before: i64 = bench.run(&program, "count").trim().parse().unwrap();
        assert_eq!(bench.run(&program, "fork"), format!("{}\n", before + 2));
    }
    assert_sound(&bench);
}

/// Threads allocate and free at the same time, and each has its own last error.
///
/// Guarantee: programs/threads
#[test]
fn threads_allocate_with_their_own_last_error() {
    if !has("pkg-config") || !has("cc") {
        return;
    }
    let bench = Bench::new();
    let program = bench.compile("calls.c", Linking::Shared);
    assert_eq!(bench.run(&program, "threads"), "");
    assert_sound(&bench);
}

/// Exit handlers of the program can still use the heap.
///
/// Guarantee: programs/exit-handlers
#[test]
fn exit_handlers_may_still_use_the_heap() {
    if !has("pkg-config") || !has("cc") {
        return;
    }
    let bench = Bench::new();
    for (linking, expected) in
        [(Linking::Shared, "1\n"), (Linking::Static, "3\n"), (Linking::AllStatic, "5\n")]
    {
        let program = bench.compile("calls.c", linking);
        assert_eq!(bench.run(&program, "exit-handler"), expected, "{linking:?}");
        assert_eq!(opened(&bench), Opened::Warm, "{linking:?}");
    }
}
