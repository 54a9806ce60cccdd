//! Compiling a program in a process of its own, seen from the host.
//!
//! The compiler's process ([`worker`]) is the host's own program, started again from
//! `/proc/self/exe`, or a command that the host has named ([`set_compiler_command`]). It gets three
//! files in memory: the program (sealed), one for the result, one for what it says when it dies. It
//! confines itself before it reads the program, and is killed at the deadline.
//!
//! Invariants:
//! - No byte of a program is parsed, validated or compiled in this process, and nothing of it is
//!   held in memory here.
//! - A result counts only after its process is gone, its file is sealed, and its length and
//!   checksum are right: that proves that it is whole, not that it is harmless
//!   (`docs/adr/0029-compiling-in-a-child.md`).
//! - However compiling ends, the process is gone and reaped when [`compile`] returns.

pub(crate) mod policy;
pub(crate) mod report;
pub(crate) mod stages;
#[allow(unsafe_code, reason = "registers a function that runs before `main`")]
pub(crate) mod worker;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdfast_sys::memory_file;
use holdfast_sys::worker::Waited;

use crate::error::WasmError;
use crate::names;
use crate::program::{self, Source};
use report::Report;
use stages::Refusal;

/// Threads of the compiler, however many processors there are: each takes memory for its function.
const THREADS_MAX: usize = 16;
/// How much is looked at of what a process said when it died.
const LAST_WORDS_BYTES_MAX: u64 = 4 << 10;
/// What the standard library says when there is no memory left.
const NO_MEMORY: &str = "memory allocation of ";

/// What starts the compiler's process in a host whose own program does not contain this crate, such
/// as an interpreter that has loaded it as a library. The command has to call [`run_compiler`] with
/// this crate's same build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompilerCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
}

static COMMAND: Mutex<Option<CompilerCommand>> = Mutex::new(None);

/// Names the command that starts the compiler's process, for the whole process. Programs that link
/// this crate need none.
pub fn set_compiler_command(command: CompilerCommand) {
    *COMMAND.lock().unwrap_or_else(PoisonError::into_inner) = Some(command);
}

/// Does the work of the compiler's process, and ends it. Returns when this process was not started
/// for that.
pub fn run_compiler() {
    worker::run_if_asked();
}

/// Why this host cannot compile in a process of its own, if it cannot; found by compiling the
/// smallest module.
///
/// # Errors
/// [`WasmError::CompilerStart`] and others say why.
pub fn try_compiler() -> Result<(), WasmError> {
    let program = crate::Program::from_bytes("the smallest module", *b"\0asm\x01\0\0\0")?;
    let (started, limit) = (Instant::now(), Duration::from_secs(10));
    let terms = CompileTerms {
        count_fuel: false,
        memory_bytes: crate::limits::DEFAULT_COMPILE_MEMORY_BYTES,
        started,
        limit,
    };
    compile(program.name(), &program.source()?, &terms).map(drop)
}

/// What compiling may take.
pub(crate) struct CompileTerms {
    pub(crate) count_fuel: bool,
    pub(crate) memory_bytes: u64,
    /// When the wall time begins that `limit` is for.
    pub(crate) started: Instant,
    pub(crate) limit: Duration,
}

impl CompileTerms {
    fn deadline(&self) -> Option<Instant> {
        self.started.checked_add(self.limit)
    }
}

/// Compiled code in a sealed file in memory, with a trailer behind it.
#[derive(Debug)]
pub(crate) struct Artefact {
    pub(crate) file: File,
    pub(crate) code_bytes: u64,
}

/// Compiles a program in a process of its own.
pub(crate) fn compile(
    applet: &str,
    source: &Source,
    terms: &CompileTerms,
) -> Result<Artefact, WasmError> {
    let file = |label| memory_file::create(label).map_err(cannot_start);
    let (output, last_words) = (file("holdfast code")?, file("holdfast compiler")?);
    let child = start(source, &output, &last_words, terms)?;
    let waited = holdfast_sys::worker::wait(child, terms.deadline())
        .map_err(|error| WasmError::host("wait for the compiler", error))?;
    let status = match waited {
        Waited::Ended(status) => status,
        Waited::Killed => {
            return Err(WasmError::CompileTimeLimit {
                applet: applet.to_owned(),
                limit: terms.limit,
            });
        }
    };
    // Nothing can write to it any more. A mapping that could would fail this.
    memory_file::seal(&output).map_err(|error| WasmError::host("seal the compiled code", error))?;
    match report::read(&output) {
        Ok(Some(Report::Code { bytes })) => Ok(Artefact { file: output, code_bytes: bytes }),
        Ok(Some(Report::Refused(refusal))) => Err(refused(applet, refusal, terms)),
        Ok(None) => Err(died(applet, status, &last_words, terms)),
        Err(error) => Err(WasmError::host("read the compiled code", error)),
    }
}

/// What a refusal means to the caller.
pub(crate) fn refused(applet: &str, refusal: Refusal, terms: &CompileTerms) -> WasmError {
    let applet = applet.to_owned();
    match refusal {
        Refusal::Invalid(reason) => WasmError::Invalid { applet, reason: names::lines(&reason) },
        Refusal::TooComplex(excess) => {
            let (what, found, limit) = (names::shown(&excess.what), excess.found, excess.limit);
            match excess.function {
                Some((function_index, function)) => {
                    let function = function.as_deref().map(names::shown);
                    WasmError::TooComplex { applet, function_index, function, what, found, limit }
                }
                None => WasmError::TooMany { applet, what, found, limit },
            }
        }
        Refusal::NoMemory => {
            WasmError::CompileMemoryLimit { applet, limit_bytes: terms.memory_bytes }
        }
        Refusal::NotConfined(reason) => WasmError::CompilerStart {
            reason: format!("it cannot confine itself: {}", names::lines(&reason)),
        },
    }
}

/// What the end of a process without a result means.
fn died(
    applet: &str,
    status: Option<ExitStatus>,
    last_words: &File,
    terms: &CompileTerms,
) -> WasmError {
    let words = read_last_words(last_words);
    let is_too_large = status.and_then(|status| status.signal()) == Some(SIGXFSZ);
    if is_too_large && !program::has_room(terms.memory_bytes) {
        return WasmError::CompilerStart { reason: program::FILES_LIMITED.to_owned() };
    }
    if words.contains(NO_MEMORY) || is_too_large {
        return refused(applet, Refusal::NoMemory, terms);
    }
    let mut how = match status {
        None => "its status is unknown".to_owned(),
        Some(status) => match status.signal() {
            Some(SIGKILL) => {
                "killed by signal 9, as the kernel does when the machine has no memory left"
                    .to_owned()
            }
            Some(signal) => format!("ended by signal {signal}"),
            None => format!("exit status {}", status.code().unwrap_or(-1)),
        },
    };
    if let Some(line) = words.lines().find(|line| !line.trim().is_empty()) {
        how.push_str(&format!(" ({})", names::shown(line)));
    }
    WasmError::CompilerDied { applet: applet.to_owned(), how }
}

const SIGKILL: i32 = 9;
const SIGXFSZ: i32 = 25;

fn read_last_words(file: &File) -> String {
    let mut bytes = vec![0; LAST_WORDS_BYTES_MAX as usize];
    let count = file.read_at(&mut bytes, 0).unwrap_or(0);
    bytes.truncate(count);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn cannot_start(error: io::Error) -> WasmError {
    WasmError::CompilerStart { reason: error.to_string() }
}

fn start(
    source: &Source,
    output: &File,
    last_words: &File,
    terms: &CompileTerms,
) -> Result<Child, WasmError> {
    let known = COMMAND.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let command = match known {
        Some(command) => command,
        None => own_program()
            .map_err(|reason| WasmError::CompilerStart { reason: reason.to_owned() })?,
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let request = worker::CompileRequest {
        parent: std::process::id(),
        memory_bytes: terms.memory_bytes,
        // Only for the case that this process is stopped and cannot keep the deadline.
        cpu_s: terms.limit.as_secs().saturating_add(2).saturating_mul(threads as u64),
        threads,
        count_fuel: terms.count_fuel,
    };
    let share = |file: &File| file.try_clone().map_err(cannot_start);
    let mut process = Command::new(&command.program);
    process
        .args(&command.args)
        .env_clear()
        .env(worker::REQUEST, request.to_text())
        .stdin(share(&source.file)?)
        .stdout(share(output)?)
        .stderr(share(last_words)?)
        // A Ctrl-C at the terminal is for the host, which decides what becomes of this process.
        .process_group(0);
    if let Some(path) = std::env::var_os(LIBRARIES) {
        process.env(LIBRARIES, path);
    }
    process.spawn().map_err(|error| {
        let program = command.program.display();
        WasmError::CompilerStart { reason: format!("{program}: {error}") }
    })
}

/// Where the program's libraries may be found besides the usual places.
const LIBRARIES: &str = "LD_LIBRARY_PATH";

/// This process's program, if it acts as the compiler when it is asked to.
fn own_program() -> Result<CompilerCommand, &'static str> {
    if !worker::is_in_own_program() {
        return Err("this host has loaded Holdfast as a library; name a command that compiles \
                    (set_compiler_command)");
    }
    Ok(CompilerCommand { program: "/proc/self/exe".into(), args: Vec::new() })
}

/// Compiles in this process, by what the gate lets pass and for as long as `limit` allows; then a
/// thread may go on for a while. See [`crate::CompileIn::ThisProcess`].
pub(crate) fn compile_here(
    engine: &wasmtime::Engine,
    applet: &str,
    source: &Source,
    terms: &CompileTerms,
) -> Result<wasmtime::Module, WasmError> {
    let bytes = source.read().map_err(|error| WasmError::host("read the program", error))?;
    let (done, outcome) = std::sync::mpsc::sync_channel(1);
    let engine = engine.clone();
    let work = move || {
        let compiled = stages::prepare(&bytes).and_then(|binary| {
            wasmtime::Module::new(&engine, &binary).map_err(|error| stages::failure(&error))
        });
        drop(done.send(compiled));
    };
    std::thread::Builder::new()
        .name("holdfast-compile".to_owned())
        .spawn(work)
        .map_err(|error| WasmError::host("start the compiler", error))?;
    match outcome.recv_timeout(terms.limit.saturating_sub(terms.started.elapsed())) {
        Ok(compiled) => compiled.map_err(|refusal| refused(applet, refusal, terms)),
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
            Err(WasmError::CompileTimeLimit { applet: applet.to_owned(), limit: terms.limit })
        }
        Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => Err(WasmError::CompilerDied {
            applet: applet.to_owned(),
            how: "it panicked".to_owned(),
        }),
    }
}
