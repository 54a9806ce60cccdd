//! The arguments of `holdfast trace`, as clap reads them. Data only: nothing is looked up or opened here.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::show_args::{
    DIFF_HELP, DiffArgs, IMPORT_HELP, ImportArgs, MATRIX_HELP, MatrixArgs, ShowArgs,
};
use holdfast_command::time::parse_time;

const HELP: &str = "\
Examples:
  holdfast trace run -- make -j2
  holdfast trace run -o build.trace --pin 1 -- find /usr -name '*.h'
  holdfast trace attach -p 4711 --for 10s
  holdfast trace report build.trace --html build.html
  holdfast trace diff before.trace after.trace
  holdfast trace matrix --on home=/home/me,memory=/dev/shm -n 10 -- tar -xf /tmp/source.tar";

const RUN_HELP: &str = "\
Examples:
  holdfast trace run -- git status
  holdfast trace run -o compile.trace -- cc -c big.c
  holdfast trace run --sandbox -- holdfast run notes.wasm --heap notes
  holdfast trace run --backend ptrace --by thread --json calls.json -- ./server --once

The program has this terminal, these streams and this directory; the report goes to standard error when it has ended. Ctrl-C is for the \
program, and once that has ended it ends the wait for what the program left running; SIGTERM to holdfast lets the program go on \
untraced. If holdfast is killed, the program goes on.

The backend bpf measures exactly and costs some 0.15 us of CPU a call; it needs root (CAP_BPF and CAP_PERFMON). ptrace is for everybody, and \
stops the program twice a call. auto takes bpf where it can.

Exit codes: the program's own status; 128 and the signal's number when a signal ended it; 2 wrong arguments; 125 it could not be \
traced, or a file could not be written while the program itself succeeded; 126 the program cannot be run; 127 there is no such \
program.";

const ATTACH_HELP: &str = "\
Examples:
  holdfast trace attach -p 4711 --for 10s
  holdfast trace attach -p 4711 -p 4712 -o servers.trace      # until Ctrl-C
  holdfast trace attach --cgroup /sys/fs/cgroup/system.slice/nginx.service

All threads of the processes are traced, and all that they start from then on. They go on when the trace ends, however it does.

Exit codes: 0 done; 2 wrong arguments; 3 no such process or group; 6 no room for a file; 7 any other failure; 8 the process may not be \
traced by you.";

const REPORT_HELP: &str = "\
Examples:
  holdfast trace report build.trace
  holdfast trace report build.trace --by process
  holdfast trace report build.trace --html build.html --perfetto build.json    # for a browser, for ui.perfetto.dev
  holdfast trace report build.trace --scheme refined --json -

A report that was written as JSON can be read again in place of a recording. Of a recording that lacks something (its tracer was \
killed or is still at work, the disk was full, the file was cut off or damaged) all that is there is shown, and what is missing is said.

Exit codes: 0 done; 2 wrong arguments; 3 no such file; 5 a foreign file, or one that lacks something; 6 no room for a file; 7 any \
other failure.";

/// Measure where programs' system calls spend their time: on the CPU, asleep, waiting for a device,
/// in the queue
#[derive(Debug, Parser)]
#[command(name = "holdfast-trace", bin_name = "holdfast trace", version, after_help = HELP, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program, and say where its system calls spent their time
    #[command(after_help = RUN_HELP)]
    Run(RunArgs),
    /// The same of programs that run already
    #[command(after_help = ATTACH_HELP)]
    Attach(AttachArgs),
    /// The same of a recording
    #[command(after_help = REPORT_HELP)]
    Report(ReportArgs),
    /// Compare two recordings: which calls differ, and whose cost
    #[command(after_help = DIFF_HELP)]
    Diff(DiffArgs),
    /// Run a program on several file systems in turns, and compare them
    #[command(after_help = MATRIX_HELP)]
    Matrix(MatrixArgs),
    /// Report a log of strace, also beside what was measured
    #[command(after_help = IMPORT_HELP)]
    Import(ImportArgs),
}

/// How to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendArg {
    /// BPF where it can be used, else ptrace
    Auto,
    /// Programs in the kernel: exact and cheap, for root
    Bpf,
    /// Stops at each call: for everybody
    Ptrace,
}

/// How a trace is made.
#[derive(Debug, Clone, Args)]
pub(crate) struct MeasureArgs {
    /// How to measure
    #[arg(long, value_name = "BACKEND", default_value = "auto")]
    pub(crate) backend: BackendArg,
    /// Keep every event in this file, for `trace report`
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Show how it stands while it goes on; what the program writes to the terminal is not shown
    /// meanwhile
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
    /// Also say what crosses sandboxes: of a program that runs applets (holdfast run, call, or one
    /// with the library)
    #[arg(long)]
    pub(crate) sandbox: bool,
    /// The only CPU that the program may use
    #[arg(long, value_name = "CPU")]
    pub(crate) pin: Option<u32>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
    /// A process; may be given several times
    #[arg(short, long = "pid", value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)), required_unless_present = "cgroup", conflicts_with = "cgroup")]
    pub(crate) process: Vec<u32>,
    /// All processes of a control group, and of those below it; needs the backend bpf
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) cgroup: Option<PathBuf>,
    /// Let go after this time (500ms, 10s, 2min) [default: at Ctrl-C, or when the processes have
    /// ended]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub(crate) time: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The recording, of `trace run -o FILE`
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}
