//! Signals that the tracer was started to ignore, as by `nohup` or in the background of a script.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::{Command, Output};

const TRACE: &str = env!("CARGO_BIN_EXE_holdfast-trace");

/// Traces a program with these signals ignored; none where that cannot be done.
fn traced(ignored: &str, backend: &str, program: &[&str]) -> Option<Output> {
    let mut command = Command::new("env");
    command.arg(format!("--ignore-signal={ignored}"));
    command.args([TRACE, "run", "--backend", backend, "--"]).args(program);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let refusals = ["cannot trace here", "unrecognized option"];
    let is_refused = refusals.into_iter().any(|words| said.contains(words));
    if output.status.code() == Some(125) && is_refused {
        println!("not run: over the backend {backend}: {said}");
        return None;
    }
    Some(output)
}

/// A program ignores what its tracer was started to ignore, as it would untraced.
///
/// Guarantee: trace/unharmed
#[test]
fn ignored_signals_stay_ignored_in_the_program() {
    for backend in ["ptrace", "bpf"] {
        let program = ["grep", "SigIgn", "/proc/self/status"];
        let Some(output) = traced("HUP,INT,QUIT,TERM,XFSZ", backend, &program) else { continue };
        let text = String::from_utf8_lossy(&output.stdout);
        let mask = text.strip_prefix("SigIgn:").unwrap().trim();
        let mask = u64::from_str_radix(mask, 16).unwrap();
        for signal in [1, 2, 3, 15, 25] {
            assert!((mask >> (signal - 1)) & 1 == 1, "{backend}: {signal} of {text}");
        }
    }
}

/// A tracer that was started with SIGCHLD ignored learns how its program ends.
///
/// Guarantee: trace/unharmed
#[test]
fn ignored_sigchld_hides_no_exit_code() {
    for backend in ["ptrace", "bpf"] {
        let Some(output) = traced("CHLD", backend, &["sh", "-c", "exit 7"]) else { continue };
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{backend}: {said}");
    }
}
