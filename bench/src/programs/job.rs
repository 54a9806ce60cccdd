//! A program with a storage in a sandbox, as a command; and what a run of it said.

use std::io::{self, Error};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use holdfast_testkit::{Programs, Scratch};

use crate::timing::ms_since;

/// The applet, its heap, and the name whose key opens it.
const APPLET: &str = "programs";
const HEAP: &str = "programs";
/// The image is in memory, and two objects of 64 MB are there while one replaces the other.
const HEAP_SIZE: &str = "1GiB";
/// The largest table of `knucleotide` has 512 MiB, and is made from one of 128.
const MEMORY: &str = "2GiB";

/// What surrounds a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sandbox {
    Wasm,
    Native,
    Unsandboxed,
}

impl Sandbox {
    pub(super) const ALL: [Sandbox; 3] = [Sandbox::Wasm, Sandbox::Native, Sandbox::Unsandboxed];

    /// Of keys.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Sandbox::Wasm => "",
            Sandbox::Native => "_native",
            Sandbox::Unsandboxed => "_unsandboxed",
        }
    }
}

/// Where a program's objects are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Storage {
    /// Files, each record with a call.
    Posix,
    /// Files through the buffer that `stdio` has in newlib, musl and wasi-libc.
    Stdio,
    /// The same for glibc.
    Glibc,
    /// Files through a buffer of 64 KiB.
    Buffered,
    Mapped,
    Heap,
    /// Ordinary memory of the sandbox.
    Ideal,
}

impl Storage {
    pub(super) const ALL: [Storage; 6] = [
        Storage::Posix,
        Storage::Stdio,
        Storage::Buffered,
        Storage::Mapped,
        Storage::Heap,
        Storage::Ideal,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Storage::Posix => "posix",
            Storage::Stdio => "stdio",
            Storage::Glibc => "glibc",
            Storage::Buffered => "buffered",
            Storage::Mapped => "mmap",
            Storage::Heap => "heap",
            Storage::Ideal => "ideal",
        }
    }

    fn options(self) -> &'static [&'static str] {
        match self {
            Storage::Posix => &["--storage", "files"],
            Storage::Stdio => &["--storage", "files", "--buffer", "1024"],
            Storage::Glibc => &["--storage", "files", "--buffer", "4096"],
            Storage::Buffered => &["--storage", "files", "--buffer", "65536"],
            Storage::Mapped => &["--storage", "mapped"],
            Storage::Heap => &["--storage", "heap"],
            Storage::Ideal => &["--storage", "volatile"],
        }
    }

    /// Without a sandbox there is no heap here: a native program's is measured by the suite `heap`.
    pub(super) fn is_in(self, sandbox: Sandbox) -> bool {
        self != Storage::Heap || sandbox != Sandbox::Unsandboxed
    }
}

/// A scratch home with a directory of files, and the built programs.
pub(super) struct Ground {
    scratch: Scratch,
    wasm: PathBuf,
    native: PathBuf,
}

/// What a run said and took.
#[derive(Debug)]
pub(super) struct Said {
    /// The program's own time; of its first round, if it has several.
    pub(super) ms: f64,
    /// Of each round after the first.
    pub(super) later_ms: Vec<f64>,
    /// Of it until its input was in memory, if it says so.
    pub(super) reading_ms: f64,
    /// The process, from its start to its end.
    pub(super) run_ms: f64,
    /// Calls that left the program.
    pub(super) crossings: f64,
    /// Context switches of all processes that took part, start and end included.
    pub(super) switches: f64,
    /// Everything else that it printed: its result.
    pub(super) result: String,
}

impl Ground {
    pub(super) fn new() -> io::Result<Ground> {
        let programs = Programs::find()?;
        let (wasm, native) = (programs.applet(APPLET)?, programs.native_applet(APPLET)?);
        Ok(Ground { scratch: Scratch::new(programs)?, wasm, native })
    }

    /// The home and the files.
    pub(super) fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// The directory of files, in memory.
    pub(super) fn files(&self) -> PathBuf {
        self.scratch.files()
    }

    /// A program over files of this directory.
    pub(super) fn command(
        &self,
        sandbox: Sandbox,
        storage: Storage,
        directory: &Path,
        arguments: &[&str],
    ) -> Command {
        let mut command = match sandbox {
            Sandbox::Unsandboxed => Command::new(&self.native),
            Sandbox::Wasm => self.granted(&self.wasm, storage, directory),
            Sandbox::Native => self.granted(&self.native, storage, directory),
        };
        command.args(arguments).args(storage.options()).arg("--dir").arg(directory);
        command
    }

    fn granted(&self, applet: &Path, storage: Storage, directory: &Path) -> Command {
        let mut command = self.scratch.holdfast();
        command.arg("run").arg(applet).args(["--memory", MEMORY, "--dir"]).arg(directory);
        if storage == Storage::Heap {
            command.args(["--heap", HEAP, "--heap-size", HEAP_SIZE, "--app", HEAP]);
        }
        command.arg("--");
        command
    }

    /// Runs a program.
    pub(super) fn run(
        &self,
        sandbox: Sandbox,
        storage: Storage,
        directory: &Path,
        arguments: &[&str],
    ) -> io::Result<Said> {
        let command = self.command(sandbox, storage, directory, arguments);
        let (started, switches) = (Instant::now(), switches_of_children());
        let out = output(command)?;
        let (run_ms, switches) = (ms_since(started), switches_of_children() - switches);
        let values = |key: &str| {
            let numbers = out.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
            numbers.filter_map(|number| number.parse::<f64>().ok()).collect::<Vec<_>>()
        };
        let value = |key: &str| values(key).first().copied();
        let is_measured = |line: &&str| {
            !["ns ", "reading_ns ", "crossings "].iter().any(|key| line.starts_with(key))
        };
        Ok(Said {
            ms: value("ns").unwrap_or_default() / 1e6,
            later_ms: values("ns").iter().skip(1).map(|ns| ns / 1e6).collect(),
            reading_ms: value("reading_ns").unwrap_or_default() / 1e6,
            run_ms,
            crossings: value("crossings").unwrap_or_default(),
            switches,
            result: out.lines().filter(is_measured).collect::<Vec<_>>().join("\n"),
        })
    }
}

/// Context switches, voluntary or not, of all children that have ended.
fn switches_of_children() -> f64 {
    // SAFETY: all its fields are numbers, of which any may be 0.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is there to be written to.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    (usage.ru_nvcsw + usage.ru_nivcsw) as f64
}

/// Runs a command to its end and returns what it printed.
pub(super) fn output(mut command: Command) -> io::Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::other(format!("cannot start {command:?}: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(Error::other(format!("{command:?} ended with {}: {complaint}", output.status)))
}
