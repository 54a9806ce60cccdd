//! Little of what a shell limits (`ulimit`): what is there suffices, or the message names the
//! limit, how much there is, how much is needed, and what to do instead.

use std::process::{Command, Stdio};

use holdfast_testkit::Scratch;

use crate::{Finished, scratch, tell};

/// `holdfast run` of a program of the system, or of the guest book with a heap, under a limit of
/// the shell.
fn run_under(scratch: &Scratch, limit: &str, words: &[&str]) -> Finished {
    // Other shells do not know all of the letters.
    let mut command = Command::new("bash");
    command.args(["-c", &format!("ulimit {limit} && exec \"$@\""), "bash"]);
    command.arg(scratch.programs().holdfast()).args(words);
    command.env("HOLDFAST_HOME", scratch.home()).env("HOLDFAST_POOL", scratch.pool());
    tell(command.stdin(Stdio::null()))
}

const TRUE: &[&str] = &["run", "/bin/true"];

/// Guarantee: sandbox/limits-are-named
#[test]
fn a_limit_that_is_too_low_is_named() {
    let scratch = scratch();
    let applet = scratch.programs().applet("guestbook").unwrap();
    let wasm: &[&str] = &["run", applet.to_str().unwrap(), "--heap", "book", "--", "list"];
    for (limit, words, named, needed) in [
        // Threads are counted where the user is the program's own, in a user name space.
        ("-u 12", TRUE, "`ulimit -u`", "--threads"),
        ("-v 1000000", TRUE, "`ulimit -v`", "--memory"),
        ("-d 500000", TRUE, "`ulimit -d`", "--memory"),
        ("-f 0", TRUE, "`ulimit -f`", "larger than a file may be"),
        ("-f 100", TRUE, "`ulimit -f`", "larger than a file may be"),
        ("-v 1000000", wasm, "`ulimit -v`", "address space"),
    ] {
        let told = run_under(&scratch, limit, words);
        if limit == "-u 12" && told.status == 0 {
            println!("not run: there are no user name spaces here");
            continue;
        }
        assert_eq!(told.status, 125, "{limit}: {}", told.err);
        for word in [named, needed, "raise th"] {
            assert!(told.err.contains(word), "{limit}: no {word:?} in: {}", told.err);
        }
    }
    // What the message proposes helps.
    for (limit, words) in [
        ("-u 12", &["run", "/bin/true", "--threads", "8"]),
        ("-v 1000000", &["run", "/bin/true", "--memory", "512MiB"]),
        ("-d 500000", &["run", "/bin/true", "--memory", "256MiB"]),
    ] {
        let told = run_under(&scratch, limit, words);
        assert_eq!((told.status, told.err.as_str()), (0, ""), "{limit}");
    }
}

/// Guarantee: sandbox/limits-are-named
#[test]
fn what_nobody_asked_for_may_be_less() {
    let scratch = scratch();
    let limits = [
        "-n 30",
        "-n 64",
        "-s 256",
        "-f 200000",
        "-l 0",
        "-c 0",
        "-t 20",
        "-i 10",
        "-q 0",
        "-e 0",
        "-r 0",
    ];
    for limit in limits {
        let told = run_under(&scratch, limit, TRUE);
        assert_eq!((told.status, told.err.as_str()), (0, ""), "{limit}");
    }
}

/// Guarantee: sandbox/limits-are-named
#[test]
fn too_few_descriptors_are_named() {
    let scratch = scratch();
    // From what no program can begin with to what is enough: one or the other, never an error
    // number alone.
    let mut named = 0;
    for files in [4, 6, 8, 10, 12, 16, 20, 24] {
        let told = run_under(&scratch, &format!("-n {files}"), TRUE);
        if told.status == 0 {
            continue;
        }
        // Below some number the command itself cannot be loaded.
        if told.err.contains("error while loading shared libraries") {
            continue;
        }
        assert!(told.err.contains("ulimit -n"), "{files}: {} {}", told.status, told.err);
        named += 1;
    }
    assert!(named > 0);
}
