//! Runs every test that there is, one `cargo test` after the other, and adds up what they say.
//!
//! Invariants: every run is bounded in time; a run that ends badly counts as a failure even if no
//! test says so (it did not build, or died); the last line on standard output is `N passed, N
//! failed`.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::process::Command;
use std::time::Instant;

use crate::applets;
use crate::c_library;
use crate::checks::lint;
use crate::command::{cannot_start, cargo, run, show, text, with_timeout};
use crate::failure::{Failure, Result};
use crate::outcome::{Outcome, Reader};
use crate::python;
use crate::sqlite_suite;
use crate::vm;
use crate::web;
use crate::workspace::{PAGE_PACKAGE, Workspace};

/// Compiling everything from nothing on a slow machine.
const BUILD_TIMEOUT_S: u32 = 40 * 60;
/// One `cargo test`, built. The longest, of the whole workspace, takes 10 minutes on two processors
/// that do nothing else.
const TEST_TIMEOUT_S: u32 = 40 * 60;

/// One test program of the heap in the sandbox.
const APPLET_TIMEOUT_S: u32 = 10 * 60;

/// All checks, then all tests; reports both.
pub(crate) fn ci(workspace: &Workspace) -> Result<()> {
    let lint = lint(workspace);
    let mut tested = run_all(workspace);
    if let Err(failure) = &lint {
        println!("lint: {failure}");
    }
    tested.failed += u64::from(lint.is_err());
    tested.report()
}

pub(crate) fn test(workspace: &Workspace) -> Result<()> {
    run_all(workspace).report()
}

fn run_all(workspace: &Workspace) -> Outcome {
    let mut outcome = Outcome::default();
    if let Err(failure) = prepare(workspace) {
        println!("FAILED: {failure}");
        outcome.failed += 1;
        return outcome;
    }
    let mut lines = Vec::new();
    for arguments in runs(workspace) {
        let mut command = cargo(&workspace.root);
        command.args(["test", "--no-fail-fast"]).args(&arguments).args(["--", "--show-output"]);
        let name = format!("cargo test {}", arguments.join(" "));
        lines.push(report(&name, || run_tests(&command), &mut outcome));
    }
    type Run = fn(&Workspace) -> Result<Outcome>;
    let others: [(&str, Run); 5] = [
        ("the heap's tests as applets", in_sandbox),
        ("pools in a machine with persistent memory", in_machine),
        ("SQLite's own test suite", sqlite_suite::test),
        ("the Python package", python::test),
        ("the web package", web::test),
    ];
    for (name, run) in others {
        lines.push(report(name, || run(workspace), &mut outcome));
    }
    println!();
    for line in lines {
        println!("{line}");
    }
    outcome
}

/// Runs, and adds what that came to; returns a line about it, with what it took.
fn report(name: &str, run: impl FnOnce() -> Result<Outcome>, outcome: &mut Outcome) -> String {
    let started = Instant::now();
    let this = run().unwrap_or_else(|failure| {
        println!("FAILED: {failure}");
        Outcome { failed: 1, ..Outcome::default() }
    });
    let (name, seconds) = (name.trim_end(), started.elapsed().as_secs());
    let line = format!("{name}: {} passed, {} failed, {seconds} s", this.passed, this.failed);
    outcome.add(this);
    line
}

/// Runs the heap's own tests inside the sandbox: each test program is an applet, and the heaps that
/// it tests lie in its region.
fn in_sandbox(workspace: &Workspace) -> Result<Outcome> {
    let home = workspace.target.join("sandbox-tests");
    let remove = || match std::fs::remove_dir_all(&home) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Failure::new(format!("cannot remove {}: {error}", home.display())))
        }
        _ => Ok(()),
    };
    remove()?;
    let holdfast = workspace.target.join("debug").join("holdfast");
    let mut command = cargo(&workspace.root);
    command.args(["test", "--no-fail-fast", "--lib", "--tests", "-p", "holdfast-heap"]);
    command.args(["--features", "crash-points,std"]);
    command.arg("--config").arg(runner(&holdfast.to_string_lossy()));
    // The first `--` is cargo's, the second the applet's. A panic ends an applet, with what was
    // captured.
    command.args(["--target", applets::TARGET, "--", "--", "--nocapture"]);
    command.env("HOLDFAST_HOME", home.join("home")).env("HOLDFAST_POOL", home.join("pool"));
    let outcome = run_tests(&command);
    remove()?;
    outcome
}

/// Runs the tests of all kinds of pools in the failure lab's machine, which has real persistent
/// memory.
fn in_machine(workspace: &Workspace) -> Result<Outcome> {
    if let Some(missing) = vm::missing(workspace) {
        let not_run = vec![format!("pools in a machine with persistent memory: {missing}")];
        return Ok(Outcome { not_run, ..Outcome::default() });
    }
    let mut command = cargo(&workspace.root);
    command.args(["test", "-p", "holdfast-region", "--test", "conformance", "--config"]);
    let mut words = vm::lab(workspace);
    words.push("--run".to_owned());
    command.arg(format!("target.'cfg(unix)'.runner={}", serde_json::json!(words)));
    // The machine has one processor, which is emulated.
    command.args(["--", "--test-threads", "1"]);
    run_tests(&command)
}

/// What cargo runs a test program with, as a line of its configuration: an array, since it splits a
/// text at blanks. All test programs are one applet, whose heap they use one after the other.
fn runner(holdfast: &str) -> String {
    let options =
        format!("run --heap tests --app tests --heap-size 1GiB --timeout {APPLET_TIMEOUT_S}s");
    let words: Vec<_> = [holdfast].into_iter().chain(options.split(' ')).collect();
    // Quoted strings are the same in TOML.
    format!("target.{}.runner={}", applets::TARGET, serde_json::json!(words))
}

/// Builds applets, the C library and tests, so that a test's time limit is for the test alone.
fn prepare(workspace: &Workspace) -> Result<()> {
    applets::build(workspace, &[])?;
    c_library::install(workspace, &workspace.c_library())?;
    // All targets: the tests run the `holdfast` program, which `cargo test` alone need not build.
    let mut build = cargo(&workspace.root);
    build.args(["build", "--all-targets"]).args(workspace.select_host());
    run(&mut with_timeout(&build, BUILD_TIMEOUT_S))?;
    let mut pages = cargo(&workspace.root);
    pages.args(["build", "--all-targets", "-p", PAGE_PACKAGE]);
    run(&mut with_timeout(&pages, BUILD_TIMEOUT_S))
}

/// The arguments of each `cargo test`.
fn runs(workspace: &Workspace) -> [Vec<String>; 5] {
    // The same heap with every store to metadata numbered, each of which becomes the last one; and
    // with threads.
    let crash_points = ["-p", "holdfast-heap", "--features", "crash-points,std"];
    let slow_memory = ["-p", "holdfast-persist", "--features", "slow-memory"];
    // Locks and commit in every order that threads and memory allow.
    let model = ["-p", "holdfast-sqlite-model", "--features", "loom"];
    [
        workspace.select_host(),
        crash_points.map(str::to_owned).to_vec(),
        slow_memory.map(str::to_owned).to_vec(),
        model.map(str::to_owned).to_vec(),
        ["-p", PAGE_PACKAGE].map(str::to_owned).to_vec(),
    ]
}

/// Runs one `cargo test` and shows what it says as it comes.
fn run_tests(command: &Command) -> Result<Outcome> {
    println!();
    show(command);
    let mut bounded = with_timeout(command, TEST_TIMEOUT_S);
    let broken = |error| Failure::new(format!("cannot read the tests' output: {error}"));
    // One pipe for both streams, so that they stay in order.
    let (output, input) = std::io::pipe().map_err(broken)?;
    bounded.stdout(input.try_clone().map_err(broken)?).stderr(input);
    let mut child = bounded.spawn().map_err(|error| cannot_start(&bounded, &error))?;
    // It holds the ends that are written to; while it does, the output has no end.
    drop(bounded);
    let mut reader = Reader::default();
    for line in BufReader::new(output).split(b'\n') {
        let line = line.map_err(broken)?;
        let line = String::from_utf8_lossy(&line);
        if reader.read(&line) {
            // A closed standard output is no reason to end the tests half-way.
            let _ = writeln!(std::io::stdout(), "{line}");
        }
    }
    let status = child
        .wait()
        .map_err(|error| Failure::new(format!("cannot wait for the tests: {error}")))?;
    let mut outcome = reader.outcome;
    if !status.success() && outcome.failed == 0 {
        let reason = match status.code() {
            Some(124 | 137) => format!("it took longer than {TEST_TIMEOUT_S} s"),
            _ => format!("it ended with {status}"),
        };
        println!("FAILED: `{}`: {reason}", text(command));
        outcome.failed += 1;
    }
    Ok(outcome)
}

#[cfg(test)]
mod unit {
    use super::*;

    /// The path of the runner for test programs may contain blanks.
    #[test]
    fn test_runner_path_may_contain_blanks() {
        let line = runner("/home/a b/\"c\"/holdfast");
        assert!(
            line.starts_with(
                r#"target.wasm32-wasip1.runner=["/home/a b/\"c\"/holdfast","run","--heap""#
            ),
            "{line}"
        );
    }
}
