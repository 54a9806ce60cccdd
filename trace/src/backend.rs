//! The interface of the backends: [`Backend`], which `ptrace` and `bpf` implement, the [`Settings`]
//! that it takes, and the [`Outcome`] that it returns.
//!
//! Invariant: a backend only reports events; summing them up is the caller's.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::{End, Event, Result, TraceDescription};

/// A way to measure, made ready for one run.
pub trait Backend {
    /// What is known before anything ran: for the head of a recording, and for the person who
    /// waits.
    fn about(&self) -> TraceDescription;

    /// Runs or attaches, and gives every event to `sink`, until the command and all that it started
    /// have ended, the time is up, or the stop flag is raised. Whatever happens, the traced
    /// processes are let go unharmed.
    ///
    /// The sink may be slow (the traced program waits, or events are lost and counted), and may
    /// keep nothing: its failures are its own.
    ///
    /// # Errors
    /// The program cannot be started, a process cannot be attached to, or the kernel refuses what
    /// the backend needs. What the command itself does is no error.
    fn run(self: Box<Self>, sink: &mut dyn FnMut(Event)) -> Result<Outcome>;
}

/// A program to run. It has the standard streams, directory and environment of the tracer.
#[derive(Debug, Clone)]
pub struct Program {
    /// Its name, looked for in `PATH` unless it has a slash, and its arguments.
    pub command: Vec<OsString>,
}

/// What to trace.
#[derive(Debug, Clone)]
pub enum Target {
    /// A program from its first instruction on, and all that it starts.
    Start(Program),
    /// Processes that run, all their threads, and all that they start from then on.
    Attach(Vec<u32>),
    /// Every process of a control group: a directory below `/sys/fs/cgroup`. BPF only.
    Cgroup(PathBuf),
}

/// The settings of a backend.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What to trace.
    pub target: Target,
    /// The only CPU that a started program may use.
    pub pin: Option<u32>,
    /// Let go after this time.
    pub limit: Option<Duration>,
    /// Let go when this is raised.
    pub stop: StopFlag,
    /// Let go of what a started program left running: when this is raised after the program itself
    /// has ended. Before that it means nothing, and is lowered.
    pub stop_after_end: StopFlag,
    /// Variables of a started program besides the tracer's own.
    pub environment: Vec<(OsString, OsString)>,
}

impl Settings {
    /// Without limits.
    pub fn new(target: Target) -> Settings {
        Settings {
            target,
            pin: None,
            limit: None,
            stop: StopFlag::default(),
            stop_after_end: StopFlag::default(),
            environment: Vec::new(),
        }
    }
}

/// Ends a trace from outside: the traced processes go on untraced. May be raised from a signal
/// handler.
#[derive(Debug, Clone, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// The trace ends soon: backends look some times a second.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was raised; it is not any more.
    pub(crate) fn take(&self) -> bool {
        self.is_raised() && self.0.swap(false, Ordering::Relaxed)
    }

    /// Whether it was raised.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// For `signal_hook::flag::register`.
    pub fn shared(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

/// How a run went.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// How the started command ended: its first process. None if it had not when the trace ended,
    /// or if none was started.
    pub end: Option<End>,
    /// The full account, for the end of a recording.
    pub about: TraceDescription,
}
