//! The process that compiles: what it may do, what becomes of it, and what the host says when it
//! fails.
//!
//! Several tests need a host of their own, which they kill or change the limits of: it is this
//! test's own program, started again for `host`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "common/bombs.rs"]
mod bombs;
mod common;

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{MIB, options, program, program_with, status};
use holdfast_wasm::{CompileIn, Program, RunOptions, WasmError};
use rustix::process::{Pid, Resource, Rlimit, Signal};

/// Far more than anything here takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Less than compiling [`slow`] takes before its memory is used up.
const AT_ONCE: Duration = Duration::from_secs(4);
/// Tells the host what to do.
const ROLE: &str = "HOLDFAST_TEST_ROLE";

fn bomb(name: &str) -> Program {
    let found = bombs::all().into_iter().find(|bomb| bomb.name == name).unwrap();
    Program::from_bytes("bomb.wasm", (found.make)()).unwrap()
}

/// Takes the compiler many seconds, and more memory with each.
fn slow() -> Program {
    bomb("30,000 conditions that merge 139 locals")
}

fn end(program: &Program, options: &RunOptions) -> WasmError {
    match holdfast_wasm::run(program, options, None).end {
        Err(error) => error,
        Ok(status) => panic!("it ran, and ended with {status}"),
    }
}

/// Not a test of its own: a host for those that need one.
#[test]
fn host() {
    let Some(role) = std::env::var_os(ROLE) else { return };
    let mut options = options();
    options.limits.timeout = Some(PATIENCE);
    match role.to_str().unwrap() {
        "slow" => println!("RESULT {}", end(&slow(), &options)),
        "long" => {
            options.limits.compile_memory_bytes = 8192 * MIB;
            drop(end(&slow(), &options));
        }
        "no process" => {
            let none = Rlimit { current: Some(1), maximum: Some(1) };
            rustix::process::setrlimit(Resource::Nproc, none).unwrap();
            println!("RESULT {}", end(&program(""), &options));
        }
        "no descriptor" => {
            let none = Rlimit { current: Some(0), maximum: Some(0) };
            rustix::process::setrlimit(Resource::Nofile, none).unwrap();
            println!("RESULT {}", end(&program(""), &options));
        }
        "small files" => {
            let small = Rlimit { current: Some(600), maximum: Some(600) };
            rustix::process::setrlimit(Resource::Fsize, small).unwrap();
            // Its text is larger than that; the code of the other one is.
            println!("RESULT {}", end(&program(""), &options));
            let tiny = b"\0asm\x01\0\0\0";
            println!("RESULT {}", end(&Program::from_bytes("tiny.wasm", *tiny).unwrap(), &options));
        }
        "little address space" => {
            options.limits.compile_in = CompileIn::ThisProcess;
            // Enough to compile, and less than a linear memory reserves.
            let little = Rlimit { current: Some(4 << 30), maximum: Some(4 << 30) };
            rustix::process::setrlimit(Resource::As, little).unwrap();
            println!("RESULT {}", end(&program(""), &options));
        }
        other => panic!("{other}"),
    }
}

fn host_as(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "host", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .stdin(Stdio::null());
    command
}

/// The compiler's process of a host, once it has confined itself.
fn compiler_of(host: u32) -> u32 {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        for entry in std::fs::read_dir("/proc").unwrap() {
            let Some(pid) = entry.unwrap().file_name().to_str().and_then(|name| name.parse().ok())
            else {
                continue;
            };
            let is =
                |line: &str| status_of(pid).is_some_and(|text| text.lines().any(|it| it == line));
            if is(&format!("PPid:\t{host}")) && is("Seccomp:\t2") {
                return pid;
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("the host has no compiler");
}

fn status_of(pid: u32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{pid}/status")).ok()
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
}

/// Ends the host however the test ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Guarantee: sandbox/compile-confined
#[test]
fn the_compiler_is_confined() {
    let mut command = host_as("slow");
    command.env("SECRET", "of the host");
    let host = Killed(command.stdout(Stdio::null()).spawn().unwrap());
    let compiler = compiler_of(host.0.id());
    let read = |what: &str| std::fs::read(format!("/proc/{compiler}/{what}")).unwrap();
    let text = |what| String::from_utf8_lossy(&read(what)).into_owned();
    let field = |name: &str| {
        let text = text("status");
        text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
    };
    assert_eq!(field("NoNewPrivs:"), "1");
    let limits = text("limits");
    let limit = |name: &str| {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(limit("Max data size"), (1024 * MIB).to_string());
    assert_eq!(limit("Max core file size"), "0");
    assert!(
        limit("Max address space").parse::<u64>().is_ok()
            && limit("Max cpu time").parse::<u64>().is_ok()
    );
    assert!(!text("environ").contains("SECRET"));
    // The three streams, and a second descriptor of two of them.
    let descriptors = std::fs::read_dir(format!("/proc/{compiler}/fd")).unwrap();
    for descriptor in descriptors {
        let target = std::fs::read_link(descriptor.unwrap().path()).unwrap();
        assert!(target.to_str().unwrap().starts_with("/memfd:holdfast "), "{target:?}");
    }
}

/// Guarantee: sandbox/compile-confined
#[test]
fn the_compiler_dies_with_its_host() {
    let mut host = Killed(host_as("long").stdout(Stdio::null()).spawn().unwrap());
    let compiler = compiler_of(host.0.id());
    host.0.kill().unwrap();
    host.0.wait().unwrap();
    let started = Instant::now();
    let is_alive = || {
        let state = status_of(compiler).unwrap_or_default();
        state.contains("\nSeccomp:\t2") && !state.contains("State:\tZ")
    };
    while is_alive() {
        assert!(started.elapsed() < AT_ONCE, "the compiler runs on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Guarantee: sandbox/compile-bounds
#[test]
fn a_killed_compiler_is_an_error_of_its_own() {
    let mut host = Killed(host_as("slow").stdout(Stdio::piped()).spawn().unwrap());
    let compiler = compiler_of(host.0.id());
    kill(compiler);
    let mut text = String::new();
    host.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(host.0.wait().unwrap().success(), "{text}");
    assert!(
        text.contains("process died: killed by signal 9") && text.contains("unharmed"),
        "{text}"
    );
}

/// Guarantee: sandbox/compile-bounds
#[test]
fn memory_past_the_limit_is_an_error_that_names_it() {
    let mut options = options();
    options.limits.compile_memory_bytes = 96 * MIB;
    let started = Instant::now();
    let error = end(&slow(), &options);
    let is_limit = matches!(&error, WasmError::CompileMemoryLimit { limit_bytes, .. } if *limit_bytes == 96 * MIB);
    assert!(is_limit, "{error:?}");
    assert!(
        error.to_string().contains("compile_memory_bytes") && started.elapsed() < PATIENCE,
        "{error}"
    );
}

/// Guarantee: sandbox/compile-bounds
#[test]
fn a_host_that_cannot_start_it_is_told_why() {
    let result = |mut host: Command| {
        let mut host = host.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let mut text = String::new();
        host.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(host.wait().unwrap().success(), "{text}");
        text.split_once("RESULT ").unwrap().1.to_owned()
    };
    let text = result(host_as("small files"));
    assert!(text.matches("ulimit -f").count() == 2, "{text}");
    let text = result(host_as("no descriptor"));
    assert!(text.contains("compile") && text.contains("Too many open files"), "{text}");
    if !rustix::process::getuid().is_root() {
        return println!("not run: only root can become a user who has no process yet");
    }
    // The limit is the user's, and counts not for root.
    let scratch = tempfile::tempdir().unwrap();
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let copy = scratch.path().join("host");
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let mut host = Command::new(&copy);
    host.args(["--exact", "host", "--nocapture", "--test-threads=1"])
        .env(ROLE, "no process")
        .uid(61_234);
    let text = result(host);
    assert!(
        text.contains("cannot be started") && text.contains("temporarily unavailable"),
        "{text}"
    );
}

/// Where the process has no room for an applet's memory, nothing of the applet ran, and it did not
/// trap.
///
/// Guarantee: sandbox/limits-are-named
#[test]
fn missing_address_space_is_no_trap() {
    let output = host_as("little address space").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("RESULT cannot start the applet: reserving"), "{text}");
    assert!(text.contains("ulimit -v") && text.contains("no fault of the applet"), "{text}");
}

/// Guarantee: sandbox/compile-time
#[test]
fn a_run_with_its_compiling_ends_at_the_time_limit() {
    let mut options = options();
    options.limits.timeout = Some(Duration::from_secs(1));
    let spins = program_with("2", "(func $spin (loop $forever (br $forever)))", "(call $spin)");
    let started = Instant::now();
    let error = end(&spins, &options);
    assert!(matches!(error, WasmError::TimeLimit { .. }), "{error:?}");
    let elapsed = started.elapsed();
    // The time that compiling took is not given again.
    let compiled = holdfast_wasm::run(&spins, &options, None).metrics.load_time;
    assert!(
        elapsed < Duration::from_secs(2).max(compiled),
        "{elapsed:?}, compiled in {compiled:?}"
    );
    let error = end(&slow(), &options);
    assert!(matches!(error, WasmError::CompileTimeLimit { .. }), "{error:?}");
}

/// Guarantee: sandbox/compile-bounds
#[test]
fn text_is_taken_up_to_its_limit() {
    let text = format!("(module (func (export \"_start\")) {})", ";; a comment\n".repeat(90_000));
    let program = Program::from_bytes("long.wat", text).unwrap();
    let mut options = options();
    let error = end(&program, &options);
    assert!(matches!(error, WasmError::TextTooLarge { .. }), "{error:?}");
    assert!(error.to_string().contains("text_bytes"), "{error}");
    options.limits.text_bytes = 2 * MIB;
    assert_eq!(status(&holdfast_wasm::run(&program, &options, None)), 0);
}

/// An error that quotes a line of 6 MB is cut.
///
/// Guarantee: sandbox/compile-bounds
#[test]
fn an_error_in_a_long_line_is_short() {
    let mut options = options();
    options.limits.text_bytes = 16 * MIB;
    let text = format!("(module bad {})", "nop ".repeat(1_500_000));
    let error = end(&Program::from_bytes("line.wat", text).unwrap(), &options);
    let text = error.to_string();
    assert!(text.len() < 4000 && text.contains("1:9"), "{} bytes: {}", text.len(), &text[..400]);
}

#[test]
fn a_host_can_compile_in_its_own_process() {
    let mut options = options();
    options.limits.compile_in = CompileIn::ThisProcess;
    assert_eq!(
        status(&holdfast_wasm::run(&program("(call $exit (i32.const 3))"), &options, None)),
        3
    );
    let error = end(&bomb("5000 calls with 1000 values"), &options);
    assert!(matches!(error, WasmError::TooComplex { .. }), "{error:?}");
}

#[test]
fn the_same_program_at_once_is_compiled_for_each() {
    let cache = tempfile::tempdir().unwrap();
    std::fs::set_permissions(cache.path(), PermissionsExt::from_mode(0o700)).unwrap();
    let mut options = options();
    options.cache_dir = Some(cache.path().to_owned());
    let program = program("(call $exit (i32.const 5))");
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| status(&holdfast_wasm::run(&program, &options, None))))
            .collect();
        assert!(runs.into_iter().all(|run| run.join().unwrap() == 5));
    });
    let last = holdfast_wasm::run(&program, &options, None);
    assert_eq!((status(&last), last.metrics.compiled), (5, false));
    let left: Vec<_> =
        std::fs::read_dir(cache.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

/// The environment of a host is no request, whatever it says: only its parent may ask, by its own
/// number.
///
/// Guarantee: sandbox/compile-confined
#[test]
fn a_request_that_is_not_the_parents_is_ignored() {
    for request in ["1 1 1000000000 60 2 0", "1 4000000000 1000000000 60 2 0", "nonsense"] {
        let output = Command::new(std::env::current_exe().unwrap())
            .arg("--list")
            .env("HOLDFAST_COMPILE_REQUEST", request)
            .output()
            .unwrap();
        assert!(
            output.status.success()
                && String::from_utf8_lossy(&output.stdout).contains("host: test")
        );
    }
}
