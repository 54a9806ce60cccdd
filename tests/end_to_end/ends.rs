//! Every way in which an applet can end badly: the documented exit code, a message that says what
//! to do, and a heap that is as it was.

use crate::guestbook::{assert_both_entries, hand_over, with_two_entries};
use crate::{scratch, succeed, tell, victim};

/// Runs a victim on the heap of the guest book; its end, and the words that the message must have.
fn assert_end(name: &str, options: &[&str], status: i32, words: &[&str]) {
    let scratch = with_two_entries();
    hand_over(&scratch, name);
    let base = std::fs::read(scratch.base("book")).unwrap();
    let mut command = scratch.holdfast();
    let told = tell(command.arg("run").arg(victim(name)).args(["--heap", "book"]).args(options));
    assert_eq!(told.status, status, "{name}: {}", told.err);
    for word in words {
        assert!(told.err.contains(word), "{name}: no {word:?} in: {}", told.err);
    }
    assert_eq!(told.out, "", "{name}");
    assert!(std::fs::read(scratch.base("book")).unwrap() == base, "{name} changed the store");
    assert_both_entries(&scratch);
}

#[test]
fn endless_loop_stops_at_the_time_limit() {
    assert_end("loops_for_ever", &["--timeout", "200ms"], 124, &["200ms", "wait_for_nothing"]);
}

/// An applet that used up its fuel ends like one that trapped.
#[test]
fn exhausted_fuel_ends_like_a_trap() {
    assert_end("loops_for_ever", &["--fuel", "10000"], 134, &["--fuel", "wait_for_nothing"]);
}

#[test]
fn a_directory_that_is_not_there_is_a_wrong_argument() {
    assert_end(
        "loops_for_ever",
        &["--dir", "/no/such/directory"],
        2,
        &["/no/such/directory", "--dir"],
    );
}

#[test]
fn trap_names_function_and_cause() {
    assert_end("stores_half_and_traps", &[], 134, &["divide", "zero"]);
}

#[test]
fn applet_with_unknown_import_is_not_started() {
    assert_end("calls_an_import_that_nobody_has", &[], 126, &["env", "launch_rockets"]);
}

#[test]
fn endless_growth_meets_the_memory_limit() {
    assert_end("grows_without_end", &["--memory", "64MiB"], 134, &["take_all"]);
}

/// An applet that grows its heap without end gets the limit error, and the heap remains usable.
#[test]
fn endless_heap_growth_meets_the_heap_limit() {
    let scratch = scratch();
    let mut command = scratch.holdfast();
    command.arg("run").arg(victim("grows_its_heap_without_end"));
    let told = tell(command.args(["--heap", "greedy", "--heap-size", "16MiB"]));
    assert_eq!(told.status, 42, "40 and the code for the limit: {}", told.err);
    succeed(scratch.holdfast().args(["heap", "show", "greedy"]));
    succeed(scratch.holdfast().args(["heap", "rm", "greedy"]));
}

/// A heap too large for any applet is refused before it is created.
#[test]
fn heap_too_large_for_any_applet_is_not_created() {
    let scratch = scratch();
    let too_large = [&["--heap-size", "1TiB"][..], &["--compartment", "w", "--quota", "2GiB"]];
    for options in too_large {
        let mut command = scratch.holdfast();
        command.arg("run").arg(victim("loops_for_ever")).args(["--heap", "new", "--timeout", "1s"]);
        let told = tell(command.args(options));
        assert_eq!(told.status, 2, "{}", told.err);
        assert!(
            told.err.contains("holdfast heap limit")
                && told.err.contains(options[options.len() - 2])
        );
        assert_eq!(succeed(scratch.holdfast().args(["heap", "ls", "--json"])).trim(), "[]");
    }
    let scratch = with_two_entries();
    hand_over(&scratch, "loops_for_ever");
    succeed(scratch.holdfast().args(["heap", "limit", "book", "2GiB"]));
    let told =
        tell(scratch.holdfast().args(["run", "--heap", "book"]).arg(victim("loops_for_ever")));
    assert_eq!(
        (told.status, told.err.contains("heap limit book SIZE")),
        (125, true),
        "{}",
        told.err
    );
}

/// A missing file and a file of another kind give different errors.
#[test]
fn missing_and_foreign_files_give_distinct_errors() {
    let scratch = scratch();
    let missing = tell(scratch.holdfast().args(["run", "no-such-applet.wasm"]));
    assert_eq!(missing.status, 127, "{}", missing.err);
    assert!(missing.err.contains("no-such-applet.wasm"), "{}", missing.err);
    let text = scratch.write("letter.txt", "Dear applet,\n").unwrap();
    let other = tell(scratch.holdfast().arg("run").arg(text).args(["--heap", "new"]));
    assert_eq!(other.status, 126, "{}", other.err);
    assert_eq!(
        succeed(scratch.holdfast().args(["heap", "ls", "--json"])).trim(),
        "[]",
        "no heap is left behind"
    );
}
