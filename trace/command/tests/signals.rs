//! Signals to the tracer: those that it was started to ignore, as by `nohup` or in the background
//! of a script, and Ctrl-C.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const TRACE: &str = env!("CARGO_BIN_EXE_holdfast-trace");

/// Traces a program with these signals ignored; none where that cannot be done.
fn traced(ignored: &str, backend: &str, program: &[&str]) -> Option<Output> {
    let mut command = Command::new("env");
    command.arg(format!("--ignore-signal={ignored}"));
    command.args([TRACE, "run", "--backend", backend, "--"]).args(program);
    unless_refused(command.output().unwrap(), backend)
}

/// What a tracer did; none where it cannot trace, or cannot be started like this.
fn unless_refused(output: Output, backend: &str) -> Option<Output> {
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

/// Sends a signal; whether there is such a process.
fn signal(signal: &str, process: &str) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", "kill \"$1\" \"$2\"", "sh", signal, process]).stderr(Stdio::null());
    command.status().unwrap().success()
}

/// Until something is so, for a minute at most; whether it is.
fn comes(mut is_so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Once the program has ended, Ctrl-C ends the wait for what it left in the background, which goes
/// on.
///
/// Guarantee: trace/ends-in-time
#[test]
fn ctrl_c_ends_the_wait_for_the_background() {
    let program = ["sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!; exit 3"];
    for backend in ["ptrace", "bpf"] {
        let mut command = Command::new("env");
        command.args(["--default-signal=INT", TRACE, "run", "--backend", backend, "--"]);
        command.args(program).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut tracer = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(tracer.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (left, number) = (line.trim(), tracer.id().to_string());
        // One that comes while the program is there is the program's.
        let has_ended = left.is_empty()
            || comes(|| signal("-INT", &number) && tracer.try_wait().unwrap().is_some());
        let stat = format!("/proc/{left}/stat");
        let sleeps = || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") S "));
        let goes_on = left.is_empty() || comes(sleeps);
        if !left.is_empty() {
            signal("-KILL", left);
        }
        if !has_ended {
            tracer.kill().unwrap();
        }
        let Some(output) = unless_refused(tracer.wait_with_output().unwrap(), backend) else {
            continue;
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(has_ended && goes_on, "{backend}: {has_ended}, {goes_on}: {said}");
        assert_eq!(output.status.code(), Some(3), "{backend}: {said}");
    }
}
