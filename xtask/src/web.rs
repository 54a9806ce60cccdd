//! Builds and tests the npm package `web`, in a real Chromium.
//!
//! Invariant: what could not run is named, and what failed to build counts as a failure.

use std::process::Command;

use crate::applets;
use crate::command::{self, cannot_start, cargo, show, with_timeout};
use crate::failure::{Failure, Result};
use crate::outcome::Outcome;
use crate::workspace::Workspace;

const FOLDER: &str = "web";
/// npm fetches the packages of the lock file when its cache lacks them.
const INSTALL_TIMEOUT_S: u32 = 5 * 60;
/// They take six minutes on two processors that do nothing else.
const TEST_TIMEOUT_S: u32 = 12 * 60;

/// The applets that its tests run.
const APPLETS: [&str; 9] =
    ["guestbook", "echo", "plugin", "ledgers", "mail", "md5", "portable", "spellcheck", "trial"];

/// `cargo xtask web`.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    applets::build(workspace, &APPLETS.map(str::to_owned))?;
    command::run(cargo(&workspace.root).args([
        "build",
        "-p",
        "holdfast-cli",
        "-p",
        "holdfast-serve",
    ]))?;
    test(workspace)?.report()
}

/// Installs what the package needs, builds it and runs its tests, with the applets and the command
/// line that were built.
pub(crate) fn test(workspace: &Workspace) -> Result<Outcome> {
    for program in ["npm", "chromium"] {
        if Command::new(program).arg("--version").output().is_err() {
            let reason = format!("the web package: {program} is missing; install it with apt");
            return Ok(Outcome { not_run: vec![reason], ..Outcome::default() });
        }
    }
    // A native program that keeps documents.
    let example = ["build", "-p", "holdfast-dom", "--example", "links"];
    command::run(cargo(&workspace.root).args(example))?;
    build(workspace)?;
    let mut tests = npm(workspace, &["test"]);
    tests.env("HOLDFAST_APPLETS", workspace.applets());
    tests.env("HOLDFAST", workspace.target.join("debug").join("holdfast"));
    show(&tests);
    let mut bounded = with_timeout(&tests, TEST_TIMEOUT_S);
    let done = bounded.output().map_err(|error| cannot_start(&bounded, &error))?;
    let report = String::from_utf8_lossy(&done.stdout);
    let outcome = read(&report);
    if !done.status.success() || outcome.failed > 0 || outcome.passed == 0 {
        print!("{report}{}", String::from_utf8_lossy(&done.stderr));
    }
    if outcome.failed == 0 && (!done.status.success() || outcome.passed == 0) {
        return Err(Failure::new(format!("the web package's tests ended with {}", done.status)));
    }
    Ok(outcome)
}

/// Installs what the package needs, and builds it.
pub(crate) fn build(workspace: &Workspace) -> Result<()> {
    let install = npm(workspace, &["ci", "--no-audit", "--no-fund"]);
    command::run(&mut with_timeout(&install, INSTALL_TIMEOUT_S))?;
    command::run(&mut with_timeout(&npm(workspace, &["run", "build"]), INSTALL_TIMEOUT_S))
}

fn npm(workspace: &Workspace, arguments: &[&str]) -> Command {
    let mut command = Command::new("npm");
    command.args(arguments).current_dir(workspace.root.join(FOLDER));
    command
}

/// Reads the counts at the end of a TAP report by Node.js, and which tests were skipped for what; a
/// cancelled test failed.
fn read(report: &str) -> Outcome {
    let count = |name: &str| -> u64 {
        let lines = report.lines().filter_map(|line| line.strip_prefix("# ")?.strip_prefix(name));
        lines.filter_map(|number| number.trim().parse::<u64>().ok()).next_back().unwrap_or(0)
    };
    let failed = count("fail ") + count("cancelled ");
    let skipped =
        report.lines().filter_map(|line| line.strip_prefix("ok ")?.split_once(" # SKIP "));
    let not_run = skipped.map(|(test, why)| {
        let name = test.split_once(" - ").map_or(test, |(_, name)| name);
        format!("the web package: {name}: {why}")
    });
    Outcome { passed: count("pass "), failed, not_run: not_run.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_test_failed() {
        let outcome = read("# Subtest: pass 9\n# pass 3\n# fail 1\n# cancelled 2\n");
        assert_eq!((outcome.passed, outcome.failed), (3, 3));
        assert_eq!(read("").passed, 0);
    }

    #[test]
    fn a_skipped_test_is_named() {
        let outcome = read("ok 3 - in Firefox # SKIP there is no Firefox\nok 4 - rest\n# pass 1\n");
        assert_eq!(outcome.not_run, ["the web package: in Firefox: there is no Firefox"]);
        assert_eq!(outcome.passed, 1);
    }
}
