//! The builder: what runs, with what, under which limits and layers. Only what starts it sees its
//! fields: `setup`, which uses `choice` for the layers and `prepare` for the list of steps.

#![forbid(unsafe_code)]

mod attributes;
mod choice;
mod prepare;
pub(crate) mod setup;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;

use holdfast_crossings::Mark;
use holdfast_types::PathAccess;

use crate::layers::{Layer, Layers};
use crate::limits::JailLimits;
use crate::policy::Policy;

/// What a program's standard output and standard error are. Its standard input is always empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum JailStdio {
    /// What it writes is gone.
    #[default]
    Null,
    /// What it writes is kept, up to this many bytes of each of the two; the rest is read and gone.
    Capture {
        /// Bytes of each that are kept.
        limit_bytes: usize,
    },
    /// What it writes goes to the host's own standard output and standard error.
    Relay,
}

/// A directory or a file that a program may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathGrant {
    /// Where it is.
    pub host: PathBuf,
    /// Where the program finds it, an absolute path. On a machine without mount name spaces it must
    /// equal `host`.
    pub guest: PathBuf,
    /// How it may be used.
    pub access: PathAccess,
}

/// Tells whether an open file is the one that was examined.
pub type Examined = Arc<dyn Fn(&File) -> io::Result<bool> + Send + Sync>;

/// A program to be started in a jail.
#[must_use = "nothing runs until `spawn`"]
pub struct Jail {
    program: PathBuf,
    examined: Option<Examined>,
    name: Option<OsString>,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    limits: JailLimits,
    policy: Policy,
    layers: Layers,
    strict: bool,
    descriptors: BTreeMap<RawFd, OwnedFd>,
    wrong_descriptor: Option<RawFd>,
    region_count: u32,
    region_data_offset: u64,
    stdin: Option<OwnedFd>,
    stdio: JailStdio,
    paths: Vec<PathGrant>,
    on_end: Vec<Arc<dyn Fn() + Send + Sync>>,
    masked: Vec<Layer>,
    failing_step: Option<usize>,
    crossings: Mark,
}

impl Jail {
    /// A program with all layers, the default limits and policy, no arguments, no environment, no
    /// output.
    pub fn new(program: impl Into<PathBuf>) -> Jail {
        Jail {
            program: program.into(),
            examined: None,
            name: None,
            args: Vec::new(),
            env: Vec::new(),
            limits: JailLimits::default(),
            policy: Policy::default(),
            layers: Layers::default(),
            strict: false,
            descriptors: BTreeMap::new(),
            wrong_descriptor: None,
            region_count: 0,
            region_data_offset: 0,
            stdin: None,
            stdio: JailStdio::default(),
            paths: Vec::new(),
            on_end: Vec::new(),
            masked: Vec::new(),
            failing_step: None,
            crossings: Mark::default(),
        }
    }

    /// Argument 0; the path of the program unless said.
    pub fn called(mut self, name: impl Into<OsString>) -> Jail {
        self.name = Some(name.into());
        self
    }

    /// Arguments after the program's name; in place of those set before.
    pub fn args<S: Into<OsString>>(mut self, args: impl IntoIterator<Item = S>) -> Jail {
        self.args = args.into_iter().map(Into::into).collect();
        self
    }

    /// Environment variables; in place of those set before. Without this there are none.
    pub fn env<K, V>(mut self, variables: impl IntoIterator<Item = (K, V)>) -> Jail
    where
        K: Into<OsString>,
        V: Into<OsString>,
    {
        self.env = variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        self
    }

    /// What it may use up.
    pub fn limits(mut self, limits: JailLimits) -> Jail {
        self.limits = limits;
        self
    }

    /// Which system calls it may make.
    pub fn policy(mut self, policy: Policy) -> Jail {
        self.policy = policy;
        self
    }

    /// Which layers it is under.
    pub fn layers(mut self, layers: Layers) -> Jail {
        self.layers = layers;
        self
    }

    /// Whether a layer that this machine cannot give is refused rather than listed in
    /// [`crate::Jailed::weaker`].
    pub fn strict(mut self, strict: bool) -> Jail {
        self.strict = strict;
        self
    }

    /// A descriptor that the program has at `number`, 3 or above, from its first instruction.
    ///
    /// The policy keeps what can be done through it. Without a root of its own ([`Layer::Mounts`]),
    /// or with a process file system granted, a program may open the same file anew under
    /// `/proc/self/fd`: for reading while loading, for writing where directories are granted.
    /// Landlock forbids that for files that have a path, and not for files in memory: seal those.
    pub fn descriptor(mut self, number: RawFd, descriptor: OwnedFd) -> Jail {
        if !(3..64).contains(&number) || self.descriptors.insert(number, descriptor).is_some() {
            self.wrong_descriptor = Some(number);
        }
        self
    }

    /// The files of so many regions are at descriptor 4 and those behind it, and their data begins
    /// at `data_offset` (bytes) in each: what lies before cannot be mapped.
    pub fn regions(mut self, count: u32, data_offset: u64) -> Jail {
        self.region_count = count;
        self.region_data_offset = data_offset;
        self
    }

    /// Its standard input, which it can only read; without this it reads nothing. Not a terminal:
    /// give it a pipe, so that it never has the host's.
    pub fn stdin(mut self, source: OwnedFd) -> Jail {
        self.stdin = Some(source);
        self
    }

    /// Its standard output and standard error.
    pub fn stdio(mut self, stdio: JailStdio) -> Jail {
        self.stdio = stdio;
        self
    }

    /// A directory or file that it may use; may be called several times.
    pub fn path(mut self, grant: PathGrant) -> Jail {
        self.paths.push(grant);
        self
    }

    /// Asks, when the program's file is open and again before it runs, whether it is the one that
    /// was examined before (of a file that others may write to, of a sealed copy, which then runs),
    /// and refuses to run any other.
    pub fn examined(mut self, is_that: Examined) -> Jail {
        self.examined = Some(is_that);
        self
    }

    /// Marks for a tracer what the program asks of the kernel.
    pub fn crossings(mut self, mark: Mark) -> Jail {
        self.crossings = mark;
        self
    }

    /// Is called once, on the supervisor's thread, when the process is gone and its end is known.
    /// It must be quick, and must not start a jail: all jails of the process wait for it meanwhile.
    pub fn on_end(mut self, callback: Arc<dyn Fn() + Send + Sync>) -> Jail {
        self.on_end.push(callback);
        self
    }

    /// Behaves as if the machine did not have a layer. For tests.
    #[doc(hidden)]
    pub fn mask(mut self, layer: Layer) -> Jail {
        self.masked.push(layer);
        self
    }

    /// Behaves as if the n-th step of the set-up failed. For tests.
    #[doc(hidden)]
    pub fn fail_step(mut self, step: usize) -> Jail {
        self.failing_step = Some(step);
        self
    }
}

impl fmt::Debug for Jail {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Jail").field("program", &self.program).finish_non_exhaustive()
    }
}
