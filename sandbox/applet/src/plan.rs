//! The checked form of a command, and the result of its run, whichever sandbox it is for.

#![forbid(unsafe_code)]

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use holdfast_identity::AppletFile;
use holdfast_jail::Examined;
use holdfast_region::RegionError;
use holdfast_wasm::{Heaps, HostFunctions, Program, RunOptions, Stdio};

use crate::error::Failure;
use crate::limits::Limits;
use crate::metrics::Metrics;

/// Whether somebody waits for an applet to serve.
pub(crate) type StartWanted = Arc<dyn Fn() -> bool + Send + Sync>;

/// All of a command but its heaps: what a second start needs again.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) path: PathBuf,
    /// What the file was when the host looked who the applet is.
    pub(crate) examined: Option<Arc<AppletFile>>,
    /// Argument 0; the path unless said.
    pub(crate) name: Option<String>,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) dirs: Vec<holdfast_wasm::DirGrant>,
    pub(crate) functions: HostFunctions,
    pub(crate) cache_dir: Option<PathBuf>,
    pub(crate) stdio: Stdio,
    pub(crate) limits: Limits,
    pub(crate) is_strict: bool,
    pub(crate) start_wanted: Option<StartWanted>,
}

impl Plan {
    /// As the WebAssembly sandbox wants it.
    pub(crate) fn for_wasm(&self) -> Result<(Program, RunOptions), Failure> {
        let mut options = RunOptions::default();
        options.name = self.name.clone();
        options.args = self.args.clone();
        options.env = self.env.clone();
        options.dirs = self.dirs.clone();
        options.stdio = self.stdio.clone();
        options.limits = self.limits.for_wasm()?;
        options.cache_dir = self.cache_dir.clone();
        options.functions = self.functions.clone();
        let program = Program::open(&self.path)?;
        let program = match &self.examined {
            Some(examined) => program.expecting(examined.hash().to_bytes()),
            None => program,
        };
        Ok((program, options))
    }

    /// How the sandbox of native programs asks whether a file is the one that was examined.
    pub(crate) fn for_jail(&self) -> Option<Examined> {
        let examined = self.examined.clone()?;
        Some(Arc::new(move |file: &File| examined.is_unchanged(file)))
    }
}

/// A run that ended with an exit status.
#[non_exhaustive]
pub struct Outcome {
    /// The applet's own exit status; 0 when it returned from its entry point.
    pub exit_status: i32,
    /// What it offered to be called, if it serves: it was asked to end, and none of its functions
    /// ran. Such an applet is for [`Command::spawn`].
    pub functions: Option<Vec<String>>,
    /// What the run cost.
    pub metrics: Metrics,
    /// The heaps, still open: close each to make a checkpoint.
    pub heaps: Heaps,
    /// A failure of a heap that the applet got only as a number.
    pub heap_error: Option<RegionError>,
    /// Things that did not stop the run but cost something, or made the sandbox weaker, in words.
    pub notes: Vec<String>,
    /// Captured standard output.
    pub stdout: Vec<u8>,
    /// Captured standard error.
    pub stderr: Vec<u8>,
    /// Whether the applet wrote more to one of them than was captured
    /// ([`Output::Capture`](crate::Output::Capture)).
    pub is_output_truncated: bool,
}
