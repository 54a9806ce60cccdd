//! Several heaps at the command line: `--heap [NAME=]HEAP[:ro]`, more than once.

use std::process::Command;

use holdfast_testkit::Scratch;

use crate::{scratch, succeed, tell};

fn call(scratch: &Scratch, function: &str, input: &str, options: &[&str]) -> Command {
    let mut command = scratch.holdfast();
    command.arg("call").arg(scratch.programs().applet("ledgers").unwrap());
    command.args([function, input]).args(options);
    command
}

fn count(scratch: &Scratch, heap: &str, options: &[&str]) -> u64 {
    let output = call(scratch, "look", heap, options).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    u64::from_le_bytes(output.stdout.try_into().unwrap())
}

fn heaps(scratch: &Scratch) -> String {
    succeed(scratch.holdfast().args(["heap", "ls"]))
}

/// The applet finds each heap under its name, read-only where that was said, and commands see the
/// heaps by their own names.
///
/// Guarantee: applets/several-heaps
#[test]
fn heaps_are_granted_by_name() {
    let scratch = scratch();
    let both = ["--heap", "dict", "--heap", "diary=notes"];
    succeed(&mut call(&scratch, "add", "dict diary", &both));
    succeed(&mut call(&scratch, "add", "diary", &both));
    assert_eq!((count(&scratch, "dict", &both), count(&scratch, "diary", &both)), (1, 2));
    let listed = heaps(&scratch);
    assert!(listed.contains("dict") && listed.contains("notes") && !listed.contains("diary"));

    let reading = ["--heap", "dict:ro", "--heap", "notes"];
    succeed(&mut call(&scratch, "add", "notes", &reading));
    let refused = tell(&mut call(&scratch, "add", "dict", &reading));
    assert_eq!(refused.status, 1);
    assert!(refused.err.contains("may only be read by this run"), "{}", refused.err);
    assert_eq!((count(&scratch, "dict", &reading), count(&scratch, "notes", &reading)), (1, 3));
    let checked = succeed(scratch.holdfast().args(["heap", "check", "dict", "notes"]));
    assert_eq!(
        checked.matches("sound").count() + checked.matches("in order").count(),
        2,
        "{checked}"
    );
}

/// Room is made before the applet starts; more than the limit is refused, and no new heap stays.
///
/// Guarantee: heap/reserve
#[test]
fn room_is_reserved_before_the_start() {
    let scratch = scratch();
    let options = ["--heap", "dict", "--reserve", "20MiB"];
    succeed(&mut call(&scratch, "add", "dict", &options));
    let shown = succeed(scratch.holdfast().args(["heap", "show", "dict"]));
    assert!(shown.contains("20.0 MiB of at most 64.0 MiB"), "{shown}");
    let much = ["--heap", "new", "--reserve", "65MiB"];
    let told = tell(&mut call(&scratch, "add", "new", &much));
    assert!(told.status == 125 && told.err.contains("limit"), "{told:?}");
    assert!(!heaps(&scratch).contains("new"));
}

/// The same command line works any number of times. One that asks for too much leaves the heap as
/// it was, and closed in order.
///
/// Guarantee: heap/reserve
#[test]
fn repeated_reserve_allocates_nothing_more() {
    let scratch = scratch();
    let assert_unchanged = || {
        let shown = succeed(scratch.holdfast().args(["heap", "show", "dict"]));
        assert!(shown.contains("20.0 MiB of at most 32.0 MiB"), "{shown}");
        assert!(!shown.contains("not closed in order"), "{shown}");
    };
    let options = ["--heap", "dict", "--heap-size", "32MiB", "--reserve", "20MiB"];
    for _ in 0..3 {
        succeed(&mut call(&scratch, "add", "dict", &options));
        assert_unchanged();
    }
    let told = tell(&mut call(&scratch, "add", "dict", &["--heap", "dict", "--reserve", "33MiB"]));
    assert!(told.status == 125 && told.err.contains("limit"), "{told:?}");
    assert_unchanged();
}

/// What cannot be granted is refused with what to write, and leaves no heap behind.
///
/// Guarantee: applets/several-heaps
#[test]
fn impossible_grants_are_explained() {
    let scratch = scratch();
    for (options, status, words) in [
        (vec!["--heap", "dict:rw"], 2, "write dict:ro to grant reading only"),
        (vec!["--heap", "a=b=c"], 2, "the name"),
        (vec!["--heap", "jobs+w1"], 2, "is a compartment"),
        (vec!["--heap", "new", "--heap", "dict:ro"], 125, "there is no heap dict to read"),
        (vec!["--heap", "new", "--heap", "new2", "--compartment", "w"], 2, "is about one heap"),
        (vec!["--heap", "new", "--heap", "new=new2"], 126, "under the name \"new\""),
    ] {
        let told = tell(&mut call(&scratch, "look", "new", &options));
        assert!(told.status == status && told.err.contains(words), "{options:?}: {told:?}");
        assert!(!heaps(&scratch).contains("new"), "{options:?}: {}", heaps(&scratch));
    }
    let same = tell(&mut call(&scratch, "look", "one", &["--heap", "one", "--heap", "two=one"]));
    assert_eq!(same.status, 125, "{same:?}");
    assert!(same.err.contains("one"), "{same:?}");
}
