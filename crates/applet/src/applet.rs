//! The builder of a run, and what a finished run hands back.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_region::{NameSpace, OwnerKey, Region, RegionError, RegionName};
use holdfast_wasm::{DirGrant, Finished, Limits, Metrics, Program, RunOptions, Stdio, WasmError};

use crate::error::{AppletError, Failure, HeapAfterFailure};
use crate::heap_recovery;

/// How a native executable starts.
const ELF_MAGIC: &[u8] = b"\x7fELF";

/// A run that is being prepared. Nothing is granted but what is added here.
#[must_use = "an applet does nothing until `run` is called"]
pub struct Applet {
    path: PathBuf,
    options: RunOptions,
    region: Option<Region>,
}

/// A run that ended with an exit status.
#[non_exhaustive]
pub struct Outcome {
    /// The applet's own exit status; 0 when it returned from its entry point.
    pub exit_status: i32,
    /// What the run cost.
    pub metrics: Metrics,
    /// The heap's region, still open: close it to make a checkpoint.
    pub region: Option<Region>,
    /// A failure of the heap that the applet was told only as a number.
    pub heap_error: Option<RegionError>,
    /// Things that did not stop the run but cost something, in words.
    pub notes: Vec<String>,
    /// Captured standard output.
    pub stdout: Vec<u8>,
    /// Captured standard error.
    pub stderr: Vec<u8>,
}

impl Applet {
    /// The program in a file: WebAssembly, in binary or text form.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Applet { path: path.into(), options: RunOptions::default(), region: None }
    }

    /// Adds one argument; the program's name is there already.
    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        self.options.args.push(argument.into());
        self
    }

    /// Adds arguments.
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options.args.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Adds an environment variable; the applet sees no others.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.env.push((name.into(), value.into()));
        self
    }

    /// Grants a directory.
    pub fn dir(mut self, grant: DirGrant) -> Self {
        self.options.dirs.push(grant);
        self
    }

    /// Connects the standard streams; without this the applet reads nothing and its output is discarded.
    pub fn stdio(mut self, stdio: Stdio) -> Self {
        self.options.stdio = stdio;
        self
    }

    /// Replaces all limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.options.limits = limits;
        self
    }

    /// Limits the wall time of the run.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.limits.timeout = Some(timeout);
        self
    }

    /// Limits the volatile memory.
    pub fn memory_limit_bytes(mut self, memory_bytes: u64) -> Self {
        self.options.limits.memory_bytes = memory_bytes;
        self
    }

    /// Limits the instructions.
    pub fn fuel(mut self, fuel: u64) -> Self {
        self.options.limits.fuel = Some(fuel);
        self
    }

    /// Keeps compiled applets in a directory, so that later runs start faster.
    pub fn cache_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.options.cache_dir = Some(directory.into());
        self
    }

    /// Gives the applet a heap.
    pub fn heap(mut self, region: Region) -> Self {
        self.region = Some(region);
        self
    }

    /// Gives the applet the private compartment that `worker` has in the region `parent`, made if there is none: see
    /// [`NameSpace::open_compartment`]. Workers run beside each other, each with its own.
    ///
    /// # Errors
    /// Those of opening the compartment.
    pub fn compartment(
        self,
        names: &NameSpace,
        parent: &RegionName,
        worker: &RegionName,
        owner: &OwnerKey,
        quota_bytes: u64,
    ) -> Result<Self, RegionError> {
        Ok(self.heap(names.open_compartment(parent, worker, owner, quota_bytes)?))
    }

    /// Runs the applet to its end on this thread.
    ///
    /// # Errors
    /// [`AppletError`] when there is no exit status. The heap was then rolled back to its last consistent
    /// state and closed, as [`AppletError::heap`] says.
    pub fn run(self) -> Result<Outcome, Box<AppletError>> {
        let Applet { path, options, region } = self;
        let program = match Program::open(&path) {
            Ok(program) => program,
            Err(error) => {
                let failure = load_failure(&path, error);
                return Err(Box::new(AppletError {
                    failure,
                    metrics: Metrics::default(),
                    heap: region.map(|region| close_after_failure(region, None)),
                    stdout: Vec::new(),
                    stderr: Vec::new(),
                }));
            }
        };
        let Finished { end, metrics, region, heap_error, cache_note, stdout, stderr, .. } =
            holdfast_wasm::run(&program, &options, region);
        match end {
            Ok(exit_status) => {
                let notes = cache_note.into_iter().collect();
                Ok(Outcome { exit_status, metrics, region, heap_error, notes, stdout, stderr })
            }
            Err(error) => Err(Box::new(AppletError {
                failure: Failure::Wasm(error),
                metrics,
                heap: region.map(|region| close_after_failure(region, heap_error)),
                stdout,
                stderr,
            })),
        }
    }
}

fn load_failure(path: &Path, error: WasmError) -> Failure {
    match error {
        WasmError::NotWasm { start, .. } if start.starts_with(ELF_MAGIC) => {
            Failure::Native { path: path.to_owned() }
        }
        other => Failure::Wasm(other),
    }
}

fn close_after_failure(mut region: Region, error: Option<RegionError>) -> HeapAfterFailure {
    let name = region.name().to_string();
    let recovery = region.is_dirty().then(|| heap_recovery::recover(&mut region));
    HeapAfterFailure { name, recovery, close: region.close(), error }
}
