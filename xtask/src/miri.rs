//! Runs tests of the heap in Miri, the interpreter that finds undefined behaviour: accesses outside
//! of an object, unaligned or racing ones, and pointers that are made of numbers.
//!
//! The heap computes every pointer from its first byte, so it is held to strict provenance. Left
//! out are tests that only count through all small numbers or fill megabytes, which an interpreter
//! takes too long for; those of one step at a time, processes and files stay on the host.
//!
//! Miri is a part of the nightly toolchains alone; it builds into a folder of its own and touches
//! no other build.

use std::process::{Command, Stdio};

use crate::command::{run, with_timeout};
use crate::failure::{Failure, Result};
use crate::workspace::Workspace;

const TOOLCHAIN: &str = "nightly";
/// From nothing, on a slow machine.
const TIMEOUT_S: u32 = 30 * 60;
const TESTS: [&str; 7] = ["--lib", "--test", "handles", "--test", "recent", "--test", "types"];
/// Parts of the names of tests that take an interpreter minutes, or need a barrier over the threads
/// of a process, which it does not have.
const LEFT_OUT: [&str; 8] = [
    "closed_door",
    "slots_that_are_ready",
    "the_lowest_stretch_of_free_chunks",
    "every_small_size_gets",
    "the_reciprocal_divides",
    "extents_linked_in_a_circle",
    "many_small_objects",
    "room_that_is_not_remembered",
];

/// `cargo xtask miri`.
pub(crate) fn miri(workspace: &Workspace) -> Result<()> {
    if !is_there() {
        let mut install = Command::new("rustup");
        install.args(["toolchain", "install", TOOLCHAIN, "--profile", "minimal"]);
        install.args(["--component", "miri", "--component", "rust-src"]).stdin(Stdio::null());
        run(&mut install).map_err(|failure| {
            Failure::new(format!(
                "{failure}; Miri needs rustup, a connection, and a nightly toolchain that has it: \
                 `rustup toolchain install nightly --component miri --component rust-src`"
            ))
        })?;
    }
    let mut test = Command::new("rustup");
    test.current_dir(&workspace.root).env("MIRIFLAGS", "-Zmiri-strict-provenance");
    test.args([
        "run",
        TOOLCHAIN,
        "cargo",
        "miri",
        "test",
        "-p",
        "holdfast-heap",
        "--features",
        "std",
    ]);
    test.arg("--target-dir").arg(workspace.target.join("miri")).args(TESTS).arg("--");
    for name in LEFT_OUT {
        test.args(["--skip", name]);
    }
    run(&mut with_timeout(&test, TIMEOUT_S))
}

fn is_there() -> bool {
    let mut ask = Command::new("rustup");
    ask.args(["run", TOOLCHAIN, "cargo", "miri", "--version"]).stdin(Stdio::null());
    ask.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
