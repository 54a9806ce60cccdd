//! One run of an applet, from its bytes to its exit.
//!
//! A run is an applet that serves ([`crate::serving`]) and is never called: one that waits for a
//! message is told to end, and of what it sends only the names of its functions are kept, for the
//! host to say that none was called.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::sync::Arc;

use holdfast_region::RegionError;

use crate::arena::BufferArena;
use crate::code::{Code, LoadReport};
use crate::error::WasmError;
use crate::grant::DirGrant;
use crate::heap_link::HeapLink;
use crate::heaps::Heaps;
use crate::host_functions::HostFunctions;
use crate::limits::WasmLimits;
use crate::metrics::WasmMetrics;
use crate::program::Program;
use crate::serving::{Load, Serving};
use crate::stdio::{Captured, Stdio};

/// What a run may use. By default: no arguments, no environment, no directory, no input, output
/// discarded.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RunOptions {
    /// Argument 0; the program's name unless said.
    pub name: Option<String>,
    /// The arguments after that.
    pub args: Vec<String>,
    /// Environment variables, the only ones that the applet sees.
    pub env: Vec<(String, String)>,
    /// Directories that it may reach.
    pub dirs: Vec<DirGrant>,
    /// Its standard streams.
    pub stdio: Stdio,
    /// What it may use up.
    pub limits: WasmLimits,
    /// Memory to be shared with the applet; without, no call has a buffer. It lies right below the
    /// heap's place and takes so much from what the applet's own memory can grow to before a heap
    /// or a buffer is used.
    pub arena: Option<BufferArena>,
    /// The functions of the host that it may call.
    pub functions: HostFunctions,
    /// Where compiled applets are kept; `None` compiles anew.
    pub cache_dir: Option<PathBuf>,
}

/// How a run ended, and what is left of it.
#[non_exhaustive]
pub struct Finished {
    /// The applet's exit status, or why there is none.
    pub end: Result<i32, WasmError>,
    /// What it offered to be called, if it serves; after a run none of that was called.
    pub functions: Option<Vec<String>>,
    /// What it cost.
    pub metrics: WasmMetrics,
    /// The heaps that were given to the run, unmapped.
    pub heaps: Heaps,
    /// A failure of the heap that the applet got only as a number.
    pub heap_error: Option<RegionError>,
    /// Why compiled code is not kept, when it was to be.
    pub cache_note: Option<String>,
    /// Captured standard output.
    pub stdout: Vec<u8>,
    /// Captured standard error.
    pub stderr: Vec<u8>,
    /// Whether the applet wrote more to one of them than was captured
    /// ([`Output::Capture`](crate::Output::Capture)).
    pub is_output_truncated: bool,
}

impl Finished {
    /// Takes the heaps back from an applet that is gone.
    pub(crate) fn new(
        end: Result<i32, WasmError>,
        report: LoadReport,
        captured: &Captured,
        link: &HeapLink,
    ) -> Finished {
        let heaps = link.take_heaps();
        let mut metrics = report.metrics;
        metrics.heap_backed_bytes = heaps.backed_bytes();
        metrics.heap_dirty = heaps.is_dirty();
        Finished {
            end,
            functions: None,
            metrics,
            heap_error: link.take_error(),
            heaps,
            cache_note: report.cache_note,
            stdout: captured.stdout(),
            stderr: captured.stderr(),
            is_output_truncated: captured.is_truncated(),
        }
    }
}

/// Runs an applet to its end on this thread, with these heaps.
///
/// A time limit covers compiling, the applet's own work and its waiting for streams and clocks. It
/// cannot reach into the kernel: a granted directory on a file system that does not answer, or with
/// a pipe in it, can delay the end.
///
/// Where the mode of a heap is `atomic`, a run that comes to its own end (returns, or exits with
/// whatever status) publishes what it stored; one that is stopped does not.
pub fn run(program: &Program, options: &RunOptions, heaps: impl Into<Heaps>) -> Finished {
    let load: Load = |program, limits, cache_dir, report| {
        Code::load(program, limits, cache_dir, report).map(Arc::new)
    };
    match Serving::start(program, options, heaps.into(), load) {
        Ok(serving) => serving.run_to_end(options.limits.timeout),
        Err(finished) => *finished,
    }
}
