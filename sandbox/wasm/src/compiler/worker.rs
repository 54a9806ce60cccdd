//! The compiler's process: the host's own program, which this module takes over before `main`.
//!
//! A function of this module is in the program's list of initializers (`.init_array`), so every
//! program that links this crate can be started as a compiler, without a helper to find and of
//! exactly the same build. It acts only when the environment has a request ([`REQUEST`]) that names
//! the parent of this process, in a program that is not set-user-ID.
//!
//! Invariants:
//! - Nothing of the program is read before the process is confined: limits, no other descriptors,
//!   the list of calls.
//! - This process never returns to the host's `main`.
//! - Nothing here relies on initializers of the host that may not have run.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_sys::worker::{self, WorkerLimits};

use super::policy;
use super::report;
use super::stages::{self, Refusal};
use crate::engine;

/// The environment variable of a request.
pub(crate) const REQUEST: &str = "HOLDFAST_COMPILE_REQUEST";
/// The version of the request; parent and child are the same program, so there is only one.
const VERSION: &str = "1";

/// Stack of the first thread.
const STACK_BYTES: u64 = 8 << 20;
/// Address space for each thread: its stack, and an arena that the C library reserves for it.
const THREAD_ADDRESS_BYTES: u64 = 160 << 20;
/// Address space besides: for reservations that take no memory.
const ADDRESS_MARGIN_BYTES: u64 = 256 << 20;
/// Exit status of a process that could not write its report.
const NO_REPORT: i32 = 3;

/// What the process is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CompileRequest {
    /// The process that wants the code.
    pub(crate) parent: u32,
    /// Private memory that compiling may take.
    pub(crate) memory_bytes: u64,
    /// Processor time of all threads.
    pub(crate) cpu_s: u64,
    pub(crate) threads: usize,
    pub(crate) count_fuel: bool,
}

impl CompileRequest {
    pub(crate) fn to_text(&self) -> String {
        let CompileRequest { parent, memory_bytes, cpu_s, threads, count_fuel } = self;
        format!("{VERSION} {parent} {memory_bytes} {cpu_s} {threads} {}", u8::from(*count_fuel))
    }

    fn read(text: &str) -> Option<CompileRequest> {
        let mut words = text.split(' ');
        if words.next() != Some(VERSION) {
            return None;
        }
        let request = CompileRequest {
            parent: words.next()?.parse().ok()?,
            memory_bytes: words.next()?.parse().ok()?,
            cpu_s: words.next()?.parse().ok()?,
            threads: words.next()?.parse().ok()?,
            count_fuel: words.next()? == "1",
        };
        words.next().is_none().then_some(request)
    }
}

/// Whether the initializer has run: then it is in what was linked.
static HAS_RUN: AtomicBool = AtomicBool::new(false);

// SAFETY: the section is a list of functions that the loader calls without a lock held by this
// program, on the first thread, before `main` (or in `dlopen`, where it does nothing); the type is
// that of its entries.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    HAS_RUN.store(true, Ordering::Relaxed);
    // In a library it would hold the loader's lock, which threads need as well; [`run_if_asked`] is
    // for those.
    if std::env::var_os(REQUEST).is_some() && worker::is_in_main_program(at_start as *const _) {
        run_if_asked();
    }
}

/// Whether this process's own program acts as the compiler when it is started with a request.
pub(crate) fn is_in_own_program() -> bool {
    // Refers to the entry, so that it is linked wherever this is.
    let entry = std::hint::black_box(&raw const AT_START);
    HAS_RUN.load(Ordering::Relaxed)
        && !entry.is_null()
        && !worker::is_privileged()
        && worker::is_in_main_program(at_start as *const _)
}

/// Does the work of a request, and ends this process; returns when there is none for it.
pub(crate) fn run_if_asked() {
    if worker::is_privileged() {
        return;
    }
    let Some(request) = std::env::var(REQUEST).ok().as_deref().and_then(CompileRequest::read)
    else {
        return;
    };
    if !worker::is_parent(request.parent) {
        return;
    }
    let done = panic::catch_unwind(AssertUnwindSafe(|| run(&request)));
    worker::leave(match done {
        Ok(Ok(())) => 0,
        _ => NO_REPORT,
    })
}

fn run(request: &CompileRequest) -> io::Result<()> {
    let (confined, files) = match confine(request) {
        Ok(files) => (Ok(()), files),
        Err(error) => (Err(error), Files::open()?),
    };
    let outcome = match confined {
        Ok(()) => compile(request, &files),
        Err(reason) => Err(Refusal::NotConfined(reason)),
    };
    report::write(&files.output, &outcome)
}

/// The program and the place for the result.
struct Files {
    program: File,
    program_bytes: u64,
    output: File,
}

impl Files {
    fn open() -> io::Result<Files> {
        let file = |descriptor: BorrowedFd<'_>| descriptor.try_clone_to_owned().map(File::from);
        let program = file(io::stdin().as_fd())?;
        let program_bytes = program.metadata()?.len();
        Ok(Files { program, program_bytes, output: file(io::stdout().as_fd())? })
    }
}

fn confine(request: &CompileRequest) -> Result<Files, String> {
    let threads = request.threads as u64;
    let limits = WorkerLimits {
        data_bytes: request.memory_bytes,
        more_address_space_bytes: request
            .memory_bytes
            .saturating_add(threads.saturating_mul(THREAD_ADDRESS_BYTES))
            .saturating_add(ADDRESS_MARGIN_BYTES),
        stack_bytes: STACK_BYTES,
        file_bytes: request.memory_bytes,
        cpu_s: request.cpu_s,
    };
    worker::confine(request.parent, &limits).map_err(|error| format!("limits: {error}"))?;
    let files = Files::open().map_err(|error| format!("its files: {error}"))?;
    policy::apply().map_err(|error| format!("seccomp: {error}"))?;
    Ok(files)
}

fn compile(request: &CompileRequest, files: &Files) -> Result<Vec<u8>, Refusal> {
    let mut program = vec![0; files.program_bytes as usize];
    let cannot = |what: &str, error: String| Refusal::NotConfined(format!("{what}: {error}"));
    files
        .program
        .read_exact_at(&mut program, 0)
        .map_err(|error| cannot("read the program", error.to_string()))?;
    let binary = stages::prepare(&program)?;
    // Where no threads can be had (`ulimit -u`) one does all the work.
    let is_parallel = request.threads > 1
        && rayon::ThreadPoolBuilder::new().num_threads(request.threads).build_global().is_ok();
    let engine = engine::create(request.count_fuel, is_parallel)
        .map_err(|error| cannot("create the engine", error.to_string()))?;
    engine.precompile_module(&binary).map_err(|error| stages::failure(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let request = CompileRequest {
            parent: 7,
            memory_bytes: 1 << 30,
            cpu_s: 60,
            threads: 2,
            count_fuel: true,
        };
        assert_eq!(CompileRequest::read(&request.to_text()), Some(request.clone()));
        for text in ["", "1", "2 7 1 1 1 1", "1 7 1 1 1 1 1", "1 x 1 1 1 1"] {
            assert_eq!(CompileRequest::read(text), None, "{text}");
        }
    }

    #[test]
    fn a_request_for_another_process_is_not_done() {
        // Returns: the test's parent is not the process itself.
        assert!(is_in_own_program());
        run_if_asked();
    }
}
