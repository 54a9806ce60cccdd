//! The units for systemd are right as far as systemd itself can tell without being started.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn units(kind: &str) -> Vec<PathBuf> {
    let directory =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd").join(kind);
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("not run: no systemd-analyze here");
        return;
    }
    for kind in ["system", "user"] {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("systemd-analyze");
        command.args(["verify", "--man=no"]).env("XDG_RUNTIME_DIR", directory.path());
        if kind == "user" {
            command.arg("--user");
        }
        for unit in units(kind) {
            // Whether the program is installed is not the question; a template is looked at as
            // a user's.
            let text = fs::read_to_string(&unit).unwrap().replace("/usr/bin/holdfast", "/bin/true");
            let name = unit.file_name().unwrap().to_str().unwrap().replace("@.", "@root.");
            fs::write(directory.path().join(&name), text).unwrap();
            command.arg(directory.path().join(name));
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !said.contains("holdfast"), "{kind}: {said}");
    }
}

/// It would order nothing, and systemd says no word about it.
#[test]
fn no_unit_is_ordered_against_a_template() {
    for unit in ["system", "user"].into_iter().flat_map(units) {
        let text = fs::read_to_string(&unit).unwrap();
        let orders =
            text.lines().filter(|line| line.starts_with("Before=") || line.starts_with("After="));
        for line in orders {
            assert!(!line.contains("@."), "{}: {line}", unit.display());
        }
    }
}

/// A limit for phones evicts the kept pages of every other machine.
///
/// Guarantee: keeper/pool-limit
#[test]
fn units_leave_the_limit_of_the_pool_to_the_machine() {
    for unit in ["system", "user"].into_iter().flat_map(units) {
        let text = fs::read_to_string(&unit).unwrap();
        for line in text.lines().filter(|line| line.starts_with("ExecStart=")) {
            let is_default = !line.contains("--profile") && !line.contains("--pool-limit");
            assert!(is_default, "{}: {line}", unit.display());
        }
    }
}
