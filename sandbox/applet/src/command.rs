//! The builder of an applet's run: from here an applet is run to its end, or started to be called.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_identity::AppletFile;
use holdfast_wasm::{Heaps, Stdio};

use crate::applet::Applet;
use crate::error::{AppletError, HeapAfterFailure, cannot_read, refused};
use crate::grants::Grants;
use crate::heap_places;
use crate::kind::SandboxKind;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::native;
use crate::plan::{Outcome, Plan};

/// An applet that is being prepared. Nothing is granted but what its [`Grants`] say.
#[must_use = "an applet does nothing until `run` or `spawn` is called"]
pub struct Command {
    plan: Plan,
    heaps: Heaps,
}

impl Command {
    /// The program in a file: ELF, or WebAssembly in binary or text form.
    pub fn new(path: impl Into<PathBuf>, grants: Grants) -> Command {
        let (plan, heaps) = grants.into_plan(path.into());
        Command { plan, heaps }
    }

    /// Starts the applet only if its file is still the one that was examined, whose identity opened
    /// its heaps: see [`AppletFile::is_unchanged`].
    pub fn examined(mut self, file: AppletFile) -> Command {
        self.plan.examined = Some(Arc::new(file));
        self
    }

    /// Sets the applet's argument 0. By default it is the path of its file, which says something of
    /// this machine.
    pub fn called(mut self, name: impl Into<String>) -> Command {
        self.plan.name = Some(name.into());
        self
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

    /// Gives the start of an applet that is to be called up when `is_wanted` says no: it is asked
    /// before the start, and then several times a second, on the thread that waits, until the applet
    /// serves. Compiling is not interrupted. It counts for [`Applet::respawn`], too.
    pub fn start_while(mut self, is_wanted: impl Fn() -> bool + Send + Sync + 'static) -> Command {
        self.plan.start_wanted = Some(Arc::new(is_wanted));
        self
    }

    /// Runs the applet to its end on this thread, and until the output that it wrote was passed on;
    /// both within [`Limits::timeout`].
    ///
    /// # Errors
    /// [`AppletError`] when there is no exit status. The heaps were then rolled back to their
    /// last consistent states and closed, as [`AppletError::heaps`] says.
    pub fn run(self) -> Result<Outcome, Box<AppletError>> {
        let Command { plan, heaps } = self;
        match SandboxKind::of(&plan.path) {
            Ok(SandboxKind::Native) => native::run(&plan, heaps),
            Ok(SandboxKind::Wasm) => run_wasm(&plan, heaps),
            Err(source) => Err(refused(cannot_read(&plan.path, source), SandboxKind::Wasm, heaps)),
        }
    }

    /// Starts the applet to be called: it registers functions and serves.
    ///
    /// # Errors
    /// [`AppletError`] as for [`Command::run`]; also when the applet ends without having served,
    /// or is not wanted any more ([`Command::start_while`]).
    pub fn spawn(self) -> Result<Applet, Box<AppletError>> {
        Applet::start(self.plan, self.heaps)
    }
}

fn run_wasm(plan: &Plan, mut heaps: Heaps) -> Result<Outcome, Box<AppletError>> {
    let (program, options) = match plan.for_wasm() {
        Ok(ready) => ready,
        Err(failure) => return Err(refused(failure, SandboxKind::Wasm, heaps)),
    };
    heap_places::note(&mut heaps);
    let finished = holdfast_wasm::run(&program, &options, heaps);
    let mut metrics = Metrics::new(SandboxKind::Wasm);
    metrics.take_wasm(&finished.metrics);
    let holdfast_wasm::Finished {
        end,
        functions,
        heaps,
        heap_error,
        cache_note,
        stdout,
        stderr,
        is_output_truncated,
        ..
    } = finished;
    match end {
        Ok(exit_status) => {
            let notes = cache_note.into_iter().collect();
            Ok(Outcome {
                exit_status,
                functions,
                metrics,
                heaps,
                heap_error,
                notes,
                stdout,
                stderr,
                is_output_truncated,
            })
        }
        Err(error) => {
            let heaps = HeapAfterFailure::closed(heaps);
            let failure = error.into();
            Err(Box::new(AppletError {
                failure,
                metrics,
                heaps,
                heap_error,
                stdout,
                stderr,
                is_output_truncated,
            }))
        }
    }
}
