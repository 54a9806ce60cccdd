//! Programs that are made to take gigabytes or minutes to compile: the host stays small, and on
//! time.
//!
//! Each bomb is loaded by a host process of its own, whose peak of resident memory is read from the
//! kernel. The host is this test's own program, started again for `host`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "common/bombs.rs"]
mod bombs;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bombs::Bomb;
use holdfast_wasm::{Program, RunOptions, WasmError};
use rustix::process::{Resource, Rlimit};

/// What a host gives a bomb.
const TIMEOUT: Duration = Duration::from_millis(500);
/// How much later a host may be done.
const MARGIN: Duration = Duration::from_secs(1);
/// How long a host lives on whose bomb was stopped.
const AFTERMATH: Duration = Duration::from_millis(300);
/// How much more resident memory than an idle host it may have had.
const HOST_BYTES_MAX: u64 = 64 << 20;
/// Private memory that a host may have at all, so that a test that fails leaves the machine alive.
const GUARD_BYTES: u64 = 3 << 30;
/// Bombs that are tried at a time: most of the time is spent waiting for the limit.
const AT_A_TIME: usize = 2;
/// How often a bomb is tried that was late: the machine may have been busy.
const TRIES: usize = 3;
/// Names the bomb's file to the host.
const FILE: &str = "HOLDFAST_TEST_BOMB";

/// A number in `/proc/self/status`, in bytes.
fn status_bytes(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn load(program: Result<Program, WasmError>) -> Result<i32, WasmError> {
    let mut options = RunOptions::default();
    options.limits.timeout = Some(TIMEOUT);
    holdfast_wasm::run(&program?, &options, None).end
}

/// Not a test of its own: the host of one bomb.
#[test]
fn host() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let limit = Rlimit { current: Some(GUARD_BYTES), maximum: Some(GUARD_BYTES) };
    rustix::process::setrlimit(Resource::Data, limit).unwrap();
    // An idle host has run an applet before.
    let small = "(module (memory (export \"memory\") 1) (func (export \"_start\")))";
    load(Program::from_bytes("small.wat", small)).unwrap();
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let idle_bytes = status_bytes("VmRSS");
    let started = Instant::now();
    let end = load(Program::open(Path::new(&path)));
    let elapsed = started.elapsed();
    if elapsed >= TIMEOUT {
        // Whatever still compiles would go on in this time.
        std::thread::sleep(AFTERMATH);
    }
    let more = status_bytes("VmHWM").saturating_sub(idle_bytes);
    let what = match end {
        Ok(status) => format!("ran, status {status}"),
        Err(error) => error.to_string(),
    };
    println!("RESULT {more} {} {}", elapsed.as_millis(), what.replace('\n', "\\n"));
}

struct Outcome {
    more_bytes: u64,
    elapsed: Duration,
    what: String,
}

fn try_bomb(path: &Path) -> Outcome {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "host", "--nocapture", "--test-threads=1"])
        .env(FILE, path)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let result = text.lines().find_map(|line| line.split_once("RESULT ").map(|(_, rest)| rest));
    let Some(result) = result.filter(|_| output.status.success()) else {
        panic!(
            "{}: {}\n{text}\n{}",
            path.display(),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )
    };
    let mut fields = result.splitn(3, ' ');
    let mut number = || fields.next().unwrap().parse().unwrap();
    let (more_bytes, elapsed) = (number(), Duration::from_millis(number()));
    Outcome { more_bytes, elapsed, what: fields.next().unwrap().to_owned() }
}

fn try_to_be_on_time(scratch: &Path, bomb: &Bomb) -> (u64, Outcome) {
    let file = tempfile::NamedTempFile::new_in(scratch).unwrap();
    std::fs::write(file.path(), (bomb.make)()).unwrap();
    let mut outcome = try_bomb(file.path());
    for _ in 1..TRIES {
        if outcome.elapsed <= TIMEOUT + MARGIN {
            break;
        }
        outcome = try_bomb(file.path());
    }
    (file.as_file().metadata().unwrap().len(), outcome)
}

/// Guarantee: sandbox/compile-bounds
#[test]
fn bombs_leave_the_host_small_and_on_time() {
    let scratch = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let bombs = bombs::all();
    assert!(bombs.len() >= 40);
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let most = Mutex::new((0, Duration::ZERO));
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(bomb) = bombs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (bytes, outcome) = try_to_be_on_time(scratch.path(), bomb);
                    let (name, Outcome { more_bytes, elapsed, what }) = (bomb.name, outcome);
                    let shown: String = what.chars().take(150).collect();
                    println!(
                        "{name}: {bytes} bytes, host {} KiB more, {elapsed:?}: {shown}",
                        more_bytes >> 10
                    );
                    if more_bytes > HOST_BYTES_MAX
                        || elapsed > TIMEOUT + MARGIN
                        || what.len() > 10_000
                    {
                        failed.lock().unwrap().push(name);
                    }
                    let mut most = most.lock().unwrap();
                    *most = (most.0.max(more_bytes), most.1.max(elapsed));
                }
            });
        }
    });
    let (failed, most) = (failed.into_inner().unwrap(), most.into_inner().unwrap());
    assert!(failed.is_empty(), "too much memory, too late or too many words: {failed:?}");
    println!("at most {} KiB more, {:?}", most.0 >> 10, most.1);
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "fault X11: memory bombs at compile time: {} trials in {seconds:.1} s, seed 0x7",
        bombs.len()
    );
}
