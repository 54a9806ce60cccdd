//! Applets that are run to their end instead of being called.

use std::path::PathBuf;

use holdfast_applet::{AppletError, Command, Grants, Input, Outcome, Stdio};
use holdfast_region::Consistency;

use crate::{Home, with_each};

fn run(
    home: &Home,
    path: &PathBuf,
    is_atomic: bool,
    arguments: &[&str],
) -> Result<Outcome, Box<AppletError>> {
    let mut region = home.region();
    if is_atomic {
        region.set_consistency(Consistency::Atomic).unwrap();
    }
    let grants = arguments
        .iter()
        .fold(Grants::none().heap(region), |grants, argument| grants.arg(*argument));
    Command::new(path, grants).stdio(Stdio::capture(64 << 10)).run()
}

fn look(home: &Home, path: &PathBuf) -> String {
    let outcome = run(home, path, false, &["--look"]).unwrap();
    outcome.heaps.into_first().unwrap().close().unwrap();
    String::from_utf8(outcome.stdout).unwrap()
}

/// The stores of a run are kept at once, or in atomic mode when the run ends by itself.
///
/// Guarantee: applets/death
/// Guarantee: applets/heap-after-death
#[test]
fn run_keeps_stores_at_once_or_at_its_end() {
    with_each(|_, path| {
        let home = Home::new();
        for (is_atomic, value) in [(false, "7"), (true, "8")] {
            let outcome = run(&home, &path, is_atomic, &["--store", value]).unwrap();
            assert_eq!(outcome.exit_status, 0);
            drop(outcome);
            assert_eq!(look(&home, &path), format!("{value}\n"));
        }
        let error = run(&home, &path, true, &["--store-and-abort", "9"]).err().unwrap();
        assert_eq!(error.kind(), holdfast_applet::FailureKind::Trap, "{error}");
        assert_eq!(look(&home, &path), "8\n");
        let error = run(&home, &path, false, &["--store-and-abort", "10"]).err().unwrap();
        assert_eq!(error.kind(), holdfast_applet::FailureKind::Trap, "{error}");
        assert_eq!(look(&home, &path), "10\n");
    });
}

/// Guarantee: applets/run-or-call
/// Guarantee: programs/python-run
#[test]
fn an_applet_that_serves_and_is_only_run_ends_at_once() {
    with_each(|_, path| {
        let home = Home::new();
        assert_eq!(run(&home, &path, false, &[]).unwrap().exit_status, 0);
    });
}

/// An applet reads the input it was given, and nothing by default.
#[test]
fn applet_reads_its_given_input_only() {
    with_each(|_, path| {
        let home = Home::new();
        let text: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
        for (input, expected) in [(Input::Bytes(text.clone()), &text[..]), (Input::Empty, &[])] {
            let grants = Grants::none().heap(home.region()).arg("--copy");
            let stdio = Stdio::capture(1 << 20).with_stdin(input);
            let outcome = Command::new(&path, grants).stdio(stdio).run().unwrap();
            assert!(outcome.stdout == expected, "{} bytes", outcome.stdout.len());
        }
    });
}

/// Output of a run beyond its limit is taken and dropped, and the outcome reports that.
///
/// Guarantee: applets/captured-output
#[test]
fn run_reports_output_beyond_its_limit() {
    with_each(|_, path| {
        let home = Home::new();
        let text: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
        for (limit_bytes, is_truncated) in [(100_000, false), (99_999, true)] {
            let grants = Grants::none().heap(home.region()).arg("--copy");
            let stdio = Stdio::capture(limit_bytes).with_stdin(Input::Bytes(text.clone()));
            let outcome = Command::new(&path, grants).stdio(stdio).run().unwrap();
            assert_eq!(outcome.exit_status, 0);
            assert!(outcome.stdout == text[..limit_bytes], "{} bytes", outcome.stdout.len());
            assert_eq!(outcome.is_output_truncated, is_truncated);
        }
    });
}
