//! Files that cannot be written: each of them is named, and costs nothing else.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

/// A recording that reaches `ulimit -f`, and a page for a full device: both are named, and the
/// tables are printed.
///
/// Guarantee: trace/full-disk
#[test]
fn every_file_that_failed_is_named() {
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    // Blocks of 512 bytes in some shells, of 1,024 in others.
    command.args(["-c", "ulimit -f 40; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_holdfast-trace")]);
    command.args(["run", "--backend", "ptrace", "--html", "/dev/full", "-o"]);
    command.arg(place.path().join("limited.trace"));
    command.args(["--", "dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=20000"]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("cannot trace here") {
        return println!("not run: {said}");
    }
    assert_eq!(output.status.code(), Some(125), "{said}");
    for words in ["cannot write all of", "cannot write /dev/full", "OS related"] {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
}
