//! What is to run and how; from here an applet is run to its end, or started to be called.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_region::{Region, RegionError};
use holdfast_wasm::{Program, RunOptions, Stdio, WasmError};

use crate::applet::Applet;
use crate::error::{AppletError, Failure, HeapAfterFailure};
use crate::grants::Grants;
use crate::kind::SandboxKind;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::native;

/// An applet that is being prepared. Nothing is granted but what its [`Grants`] say.
#[must_use = "an applet does nothing until `run` or `spawn` is called"]
pub struct Command {
    pub(crate) plan: Plan,
    pub(crate) region: Option<Region>,
}

/// All of a command but its heap: what a second start needs again.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) path: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) dirs: Vec<holdfast_wasm::DirGrant>,
    pub(crate) cache_dir: Option<PathBuf>,
    pub(crate) stdio: Stdio,
    pub(crate) limits: Limits,
    pub(crate) is_strict: bool,
}

/// A run that ended with an exit status.
#[non_exhaustive]
pub struct Outcome {
    /// The applet's own exit status; 0 when it returned from its entry point.
    pub exit_status: i32,
    /// What it offered to be called, if it serves: it was told to end, and none of its functions
    /// ran. Such an applet is for [`Command::spawn`].
    pub functions: Option<Vec<String>>,
    /// What the run cost.
    pub metrics: Metrics,
    /// The heap's region, still open: close it to make a checkpoint.
    pub region: Option<Region>,
    /// A failure of the heap that the applet was told only as a number.
    pub heap_error: Option<RegionError>,
    /// Things that did not stop the run but cost something, or made the sandbox weaker, in words.
    pub notes: Vec<String>,
    /// Captured standard output.
    pub stdout: Vec<u8>,
    /// Captured standard error.
    pub stderr: Vec<u8>,
}

impl Command {
    /// The program in a file: ELF, or WebAssembly in binary or text form.
    pub fn new(path: impl Into<PathBuf>, grants: Grants) -> Command {
        let Grants { args, env, dirs, region, cache_dir } = grants;
        let plan = Plan {
            path: path.into(),
            args,
            env,
            dirs,
            cache_dir,
            stdio: Stdio::default(),
            limits: Limits::default(),
            is_strict: false,
        };
        Command { plan, region }
    }

    /// Connects the standard streams; without this the applet reads nothing and its output is
    /// discarded. A native applet never has the host's terminal: its streams are pipes, and both
    /// outputs go the same way.
    pub fn stdio(mut self, stdio: Stdio) -> Command {
        self.plan.stdio = stdio;
        self
    }

    /// Replaces all limits.
    pub fn limits(mut self, limits: Limits) -> Command {
        self.plan.limits = limits;
        self
    }

    /// Limits the wall time of a run.
    pub fn timeout(mut self, timeout: Duration) -> Command {
        self.plan.limits.timeout = Some(timeout);
        self
    }

    /// Refuses a native applet where this machine lacks a layer of the sandbox, instead of running
    /// it with a note.
    pub fn strict(mut self, is_strict: bool) -> Command {
        self.plan.is_strict = is_strict;
        self
    }

    /// Runs the applet to its end on this thread.
    ///
    /// # Errors
    /// [`AppletError`] when there is no exit status. The heap was then rolled back to its last
    /// consistent state and closed, as [`AppletError::heap`] says.
    pub fn run(self) -> Result<Outcome, Box<AppletError>> {
        let Command { plan, region } = self;
        match SandboxKind::of(&plan.path) {
            Ok(SandboxKind::Native) => native::run(&plan, region),
            Ok(SandboxKind::Wasm) => run_wasm(&plan, region),
            Err(source) => Err(refused(cannot_read(&plan.path, source), SandboxKind::Wasm, region)),
        }
    }

    /// Starts the applet to be called: it registers functions and serves.
    ///
    /// # Errors
    /// [`AppletError`] as for [`Command::run`]; also when the applet ends without having served.
    pub fn spawn(self) -> Result<Applet, Box<AppletError>> {
        Applet::start(self)
    }
}

impl Plan {
    /// As the WebAssembly sandbox wants it.
    pub(crate) fn for_wasm(&self) -> Result<(Program, RunOptions), Failure> {
        let mut options = RunOptions::default();
        options.args = self.args.clone();
        options.env = self.env.clone();
        options.dirs = self.dirs.clone();
        options.stdio = self.stdio.clone();
        options.limits = self.limits.for_wasm()?;
        options.cache_dir = self.cache_dir.clone();
        Ok((Program::open(&self.path)?, options))
    }
}

pub(crate) fn cannot_read(path: &Path, source: std::io::Error) -> Failure {
    Failure::Wasm(WasmError::CannotRead { path: path.to_owned(), source })
}

/// What did not even start.
pub(crate) fn refused(
    failure: Failure,
    kind: SandboxKind,
    region: Option<Region>,
) -> Box<AppletError> {
    let heap = region.map(|region| HeapAfterFailure::closed(region, None));
    Box::new(AppletError {
        failure,
        metrics: Metrics::new(kind),
        heap,
        stdout: Vec::new(),
        stderr: Vec::new(),
    })
}

fn run_wasm(plan: &Plan, region: Option<Region>) -> Result<Outcome, Box<AppletError>> {
    let (program, options) = match plan.for_wasm() {
        Ok(ready) => ready,
        Err(failure) => return Err(refused(failure, SandboxKind::Wasm, region)),
    };
    let finished = holdfast_wasm::run(&program, &options, region);
    let mut metrics = Metrics::new(SandboxKind::Wasm);
    metrics.take_wasm(&finished.metrics);
    let holdfast_wasm::Finished {
        end,
        functions,
        region,
        heap_error,
        cache_note,
        stdout,
        stderr,
        ..
    } = finished;
    match end {
        Ok(exit_status) => {
            let notes = cache_note.into_iter().collect();
            Ok(Outcome {
                exit_status,
                functions,
                metrics,
                region,
                heap_error,
                notes,
                stdout,
                stderr,
            })
        }
        Err(error) => {
            let heap = region.map(|region| HeapAfterFailure::closed(region, heap_error));
            Err(Box::new(AppletError { failure: error.into(), metrics, heap, stdout, stderr }))
        }
    }
}
