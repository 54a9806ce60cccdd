//! Tracers, as a person would call them for the time of each call.

use std::fs::File;
use std::io::{self, Error};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use holdfast_sys::child::{Status, reap};
use holdfast_trace::{Event, Recording};
use rustix::time::{ClockId, clock_gettime};

use super::ground::{Ground, Work};

/// The role of this program that is traced: it starts a command and writes how long that took.
pub const TIMED: &str = "trace-timed";

pub(super) const UNTRACED: &str = "untraced";
pub(super) const BPF: &str = "holdfast, bpf";
pub(super) const PTRACE: &str = "holdfast, ptrace";
pub(super) const STRACE: &str = "strace -f -T";
pub(super) const STRACE_COUNTS: &str = "strace -f -c";
/// Of words, in place of the path of `holdfast`.
const HOLDFAST: &str = "HOLDFAST";
const OURS: &str = "cargo xtask bench trace builds it, and it needs root";

/// A tracer.
#[derive(Debug)]
pub(super) struct Tool {
    pub(super) name: &'static str,
    /// In keys.
    pub(super) key: &'static str,
    /// The program and its options; the command comes behind.
    words: &'static [&'static str],
    /// The command is one word.
    takes_one_word: bool,
    pub(super) stops_the_program: bool,
    /// How to get it.
    pub(super) comes_with: &'static str,
}

pub(super) const TOOLS: [Tool; 7] = [
    tool(UNTRACED, "", &[], false, ""),
    tool(BPF, "bpf", &[HOLDFAST, "trace", "run", "--backend", "bpf", "--"], false, OURS),
    Tool {
        takes_one_word: true,
        ..tool(
            "bpftrace",
            "bpftrace",
            &["bpftrace", "-q", "-e", SCRIPT, "-c"],
            false,
            "`apt-get install bpftrace` brings it",
        )
    },
    tool(PTRACE, "ptrace", &[HOLDFAST, "trace", "run", "--backend", "ptrace", "--"], true, OURS),
    tool(
        STRACE_COUNTS,
        "strace_c",
        &["strace", "-f", "-c", "-o", "OUTPUT"],
        true,
        "`apt-get install strace` brings it",
    ),
    tool(
        STRACE,
        "strace_t",
        &["strace", "-f", "-T", "-o", "OUTPUT"],
        true,
        "`apt-get install strace` brings it",
    ),
    tool(
        "perf trace -s",
        "perf_trace",
        &["perf", "trace", "-s", "-o", "OUTPUT", "--"],
        true,
        "`apt-get install linux-perf` brings it",
    ),
];

/// Count and time of each call, of all processes: it knows no trees of them.
const SCRIPT: &str = "tracepoint:raw_syscalls:sys_enter { @began[tid] = nsecs; } \
    tracepoint:raw_syscalls:sys_exit /@began[tid]/ { @count[args->id] = count(); @time[args->id] = sum(nsecs - @began[tid]); \
    delete(@began[tid]); }";

const fn tool(
    name: &'static str,
    key: &'static str,
    words: &'static [&'static str],
    stops_the_program: bool,
    comes_with: &'static str,
) -> Tool {
    Tool { name, key, words, takes_one_word: false, stops_the_program, comes_with }
}

impl Tool {
    /// How long the program took under this tracer: milliseconds.
    pub(super) fn time(&self, ground: &Ground, work: &Work) -> io::Result<f64> {
        let note = ground.path("time");
        let _ = std::fs::remove_file(&note);
        let cpu = work.cpu.map_or_else(|| "-".to_owned(), |cpu| cpu.to_string());
        let timer = [
            ground.timer.to_string_lossy().into_owned(),
            TIMED.to_owned(),
            note.to_string_lossy().into_owned(),
            cpu,
        ];
        let mut words: Vec<String> = self.words.iter().map(|&word| place(ground, word)).collect();
        let timed = timer.into_iter().chain(work.command.iter().cloned());
        if self.takes_one_word {
            words.push(timed.collect::<Vec<_>>().join(" "));
        } else {
            words.extend(timed);
        }
        let mut command = Command::new(&words[0]);
        let output =
            command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).output()?;
        let text = std::fs::read_to_string(&note).unwrap_or_default();
        match text.trim().parse::<u64>() {
            Ok(ns) if output.status.success() => Ok(ns as f64 / 1e6),
            _ => Err(refusal(output.status, &output.stderr)),
        }
    }
}

fn place(ground: &Ground, word: &str) -> String {
    match word {
        HOLDFAST => ground.holdfast.to_string_lossy().into_owned(),
        "OUTPUT" => ground.path("output").to_string_lossy().into_owned(),
        word => word.to_owned(),
    }
}

fn refusal(status: ExitStatus, said: &[u8]) -> Error {
    let said = String::from_utf8_lossy(said);
    // Below it some quote and underline what they complain of.
    let has_words = |line: &&str| line.chars().any(char::is_alphabetic);
    let said = said.lines().find(has_words).unwrap_or("it said nothing");
    Error::other(format!("it ended with {status}: {}", said.trim()))
}

/// The role [`TIMED`]: FILE CPU COMMAND…
///
/// # Errors
/// The command cannot be run, or fails.
pub fn timed(words: &[String]) -> io::Result<()> {
    let [note, cpu, program, arguments @ ..] = words else {
        return Err(Error::other("give a file, a CPU and a command"));
    };
    if let Ok(cpu) = cpu.parse() {
        let mut only = rustix::thread::CpuSet::new();
        only.set(cpu);
        rustix::thread::sched_setaffinity(None, &only)?;
    }
    let began = Instant::now();
    let status = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()?;
    let took = began.elapsed();
    if !status.success() {
        return Err(Error::other(format!("{program} ended with {status}")));
    }
    std::fs::write(note, took.as_nanos().to_string())
}

/// What a recording has.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    pub(super) calls: u64,
    pub(super) lost: u64,
    /// Memory that the tracer had at most.
    pub(super) peak_bytes: u64,
}

/// Records all calls of a program.
pub(super) fn record(ground: &Ground, work: &Work) -> io::Result<Recorded> {
    let file = ground.path("recording");
    let mut command = Command::new(&ground.holdfast);
    command.args(["trace", "run", "--backend", "bpf", "-o"]).arg(&file);
    if let Some(cpu) = work.cpu {
        command.args(["--pin", &cpu.to_string()]);
    }
    let (status, peak_bytes) = ended(&spawn(ground, command.arg("--").args(&work.command))?)?;
    if !status.success() {
        return Err(refusal(status, &std::fs::read(ground.path("said")).unwrap_or_default()));
    }
    let mut recorded = Recorded { peak_bytes, ..Recorded::default() };
    let mut recording = Recording::open(&file).map_err(Error::other)?;
    for event in recording.by_ref() {
        match event {
            Event::Call(_) => recorded.calls += 1,
            Event::Lost { events } => recorded.lost += events,
            _ => {}
        }
    }
    match recording.ending() {
        Some(ending) if ending.is_complete() => Ok(recorded),
        ending => Err(Error::other(format!("the recording is not complete: {ending:?}"))),
    }
}

/// How long it takes from the call of the command until a running process is traced.
pub(super) fn attach(ground: &Ground, backend: &'static str) -> io::Result<Duration> {
    let file = ground.path("recording");
    let backend = if backend == BPF { "bpf" } else { "ptrace" };
    let mut victim = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn()?;
    let mut command = Command::new(&ground.holdfast);
    command.args(["trace", "attach", "--backend", backend, "--for", "50ms", "-o"]).arg(&file);
    let began = clock_gettime(ClockId::Monotonic);
    let traced = spawn(ground, command.args(["-p", &victim.id().to_string()]))
        .and_then(|child| ended(&child));
    victim.kill()?;
    victim.wait()?;
    let (status, _) = traced?;
    if !status.success() {
        return Err(refusal(status, &std::fs::read(ground.path("said")).unwrap_or_default()));
    }
    let began_ns = began.tv_sec as u64 * 1_000_000_000 + began.tv_nsec as u64;
    for event in Recording::open(&file).map_err(Error::other)? {
        if let Event::Began { at_ns, .. } = event {
            return Ok(Duration::from_nanos(at_ns.saturating_sub(began_ns)));
        }
    }
    Err(Error::other("the process is not in the recording"))
}

fn spawn(ground: &Ground, command: &mut Command) -> io::Result<Child> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(ground.path("said"))?)
        .spawn()
}

/// How a child ended, and the memory that it had at most.
fn ended(child: &Child) -> io::Result<(ExitStatus, u64)> {
    let reaped = reap(child.id(), true)?.ok_or_else(|| Error::other("it does not end"))?;
    let status = match reaped.status {
        Status::Exited(code) => ExitStatus::from_raw(code << 8),
        Status::Signal(signal) => ExitStatus::from_raw(signal),
    };
    Ok((status, reaped.peak_memory_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_peer_is_told_by_its_message() {
        let said = b"\nstdin:1:1-30: ERROR: tracepoint not found\ntracepoint:raw\n~~~~~~~~~~\n";
        let error = refusal(ExitStatus::from_raw(1 << 8), said).to_string();
        assert_eq!(
            error,
            "it ended with exit status: 1: stdin:1:1-30: ERROR: tracepoint not found"
        );
        let silent = refusal(ExitStatus::from_raw(9), b"~~~\n").to_string();
        assert!(silent.ends_with("it said nothing"), "{silent}");
    }
}
