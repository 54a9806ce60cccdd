//! The errors of a run or a call, and the state of the heap after them.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use holdfast_identity::{IdentityError, SignatureError};
use holdfast_jail::{End, JailError, KillReason, LimitHit};
use holdfast_region::{CloseReport, RegionError};
use holdfast_sys::shortage;
use holdfast_types::{AppletLimit, Remedy};
use holdfast_wasm::{Heaps, HeapsError, HostFunctionsError, WasmError};

use crate::heap_recovery::{Recovery, RecoveryError, recover};
use crate::kind::SandboxKind;
use crate::metrics::Metrics;

/// An applet that is gone, or never came to life. Each of its heaps is at its last consistent
/// state.
#[derive(Debug)]
#[non_exhaustive]
pub struct AppletError {
    /// What failed.
    pub failure: Failure,
    /// What it cost up to there.
    pub metrics: Metrics,
    /// What became of each heap, in the order of the grants.
    pub heaps: Vec<HeapAfterFailure>,
    /// A failure of a heap that the applet got only as a number.
    pub heap_error: Option<RegionError>,
    /// Captured standard output.
    pub stdout: Vec<u8>,
    /// Captured standard error.
    pub stderr: Vec<u8>,
    /// Whether the applet wrote more to one of them than was captured
    /// ([`Output::Capture`](crate::Output::Capture)).
    pub is_output_truncated: bool,
}

/// Why an applet has no exit status, or no longer serves.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The WebAssembly sandbox says why.
    #[error(transparent)]
    Wasm(#[from] WasmError),
    /// The sandbox for native programs could not start it.
    #[error(transparent)]
    Jail(#[from] JailError),
    /// The native applet's process ended: by itself, by what it did, or by what it used up.
    #[error("the applet was stopped: {end}")]
    Ended {
        /// How the process ended.
        end: End,
    },
    /// Who it is cannot be told, or its heap is another applet's.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A limit that this kind of applet cannot be held to.
    #[error("a {kind} applet cannot be given the limit `{limit}`; {instead}")]
    LimitNotOffered {
        /// The field of [`crate::Limits`].
        limit: &'static str,
        /// The kind.
        kind: SandboxKind,
        /// What to do.
        instead: &'static str,
    },
    /// It was to be called, and ended without having served.
    #[error(
        "the applet ended with status {status} {}",
        if *status == 0 {
            "without serving calls; it has to register functions (holdfast_export) and call holdfast_serve, or it is to be \
             run to its end instead of called"
        } else {
            "before it served calls (holdfast_serve); what it wrote on its standard error says why"
        }
    )]
    NotServing {
        /// Its exit status.
        status: i32,
    },
    /// It was built with the library of another release.
    #[error(
        "{} was built for version {applet} of the channel, and this host has version {host}; build both from the same \
         release", path.display()
    )]
    ChannelVersion {
        /// The applet's file.
        path: PathBuf,
        /// Its version.
        applet: u32,
        /// The host's.
        host: u32,
    },
    /// It did not serve in time.
    #[error(
        "the applet did not serve within {limit:?}; {} if it needs longer",
        Remedy::RaiseAppletLimit(AppletLimit::StartTime)
    )]
    StartTimeLimit {
        /// The limit (wall time).
        limit: Duration,
    },
    /// Nobody waited for it any more before it served: see [`crate::Command::start_while`].
    #[error("the applet was stopped: nobody waits for it any more")]
    StartGivenUp,
    /// A call ran past its deadline.
    #[error(
        "the applet was stopped: its call took longer than {limit:?}; {} if it needs longer",
        Remedy::RaiseAppletLimit(AppletLimit::CallTime)
    )]
    CallTimeLimit {
        /// The limit (wall time).
        limit: Duration,
    },
    /// It went on with a call that was cancelled, or whose result no caller wanted any more.
    #[error(
        "the applet was stopped: it went on for {grace:?} with a call that was cancelled, whose stream was dropped, or whose \
         result became larger than it may be"
    )]
    IgnoredCancel {
        /// How long it was waited for.
        grace: Duration,
    },
    /// It broke the protocol.
    #[error(
        "the applet was stopped: it broke the protocol: {what}; link it with this version's library"
    )]
    Protocol {
        /// What the applet did.
        what: String,
    },
    /// This process is a forked copy of the one that has the applet.
    #[error(
        "the applet belongs to process {owner}, of which this one is a forked copy; start one here"
    )]
    Forked {
        /// The process that has it.
        owner: u32,
    },
    /// The calling thread cannot start this applet anew: it reads a stream of the applet's results,
    /// runs a host function that the applet called, or answers whether a call or start of it goes on.
    #[error(
        "this thread has a stream of the applet open, is in a host function that the applet called, or is asked whether \
         its call or start goes on; end that first"
    )]
    Busy,
    /// The heaps cannot be granted together.
    #[error(transparent)]
    Heaps(#[from] HeapsError),
    /// The host functions cannot be granted so.
    #[error(transparent)]
    HostFunctions(#[from] HostFunctionsError),
    /// The heap failed on the trusted side.
    #[error("the heap failed: {0}")]
    Heap(#[from] RegionError),
    /// The host itself failed.
    #[error("could not {step}: {source}{}", remedy(source))]
    Host {
        /// What it was doing.
        step: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// What to do about an error that is about a limit of this process.
fn remedy(error: &io::Error) -> String {
    shortage::remedy(error).map(|text| format!("; {text}")).unwrap_or_default()
}

/// What failed, for callers that only branch (exit codes, retries).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// The applet's file does not exist.
    NotFound,
    /// It cannot be loaded: another format, a missing import, no entry point, a limit or layer that
    /// there is not.
    CannotLoad,
    /// It crashed, or used up what it was given other than time.
    Trap,
    /// It asked the kernel for something that it may not have.
    PolicyViolation,
    /// It ran longer than it was allowed to.
    TimeLimit,
    /// It was stopped because its call was cancelled.
    Cancelled,
    /// The host or the heap failed.
    Host,
}

/// What became of the heap after a failure.
#[derive(Debug)]
#[non_exhaustive]
pub struct HeapAfterFailure {
    /// The name of the heap.
    pub name: String,
    /// Whether the applet may only read it: a store ends a native one by `SIGSEGV`.
    pub is_read_only: bool,
    /// Whether it is a compartment beside the heap that was granted first: where the processor has
    /// protection keys, a native applet's thread that touches it without having entered it ends the
    /// applet by `SIGSEGV`.
    pub is_compartment: bool,
    /// Whether unfinished changes were rolled back; `None` when the run had changed nothing.
    pub recovery: Option<Result<Recovery, RecoveryError>>,
    /// The checkpoint that closing made; `None` while the heap is still open, for another start.
    pub close: Option<Result<CloseReport, RegionError>>,
}

impl HeapAfterFailure {
    /// Rolls each back and leaves the regions open.
    pub(crate) fn open(heaps: &mut Heaps) -> Vec<HeapAfterFailure> {
        let after = heaps.iter_mut().enumerate().map(|(index, heap)| {
            let is_compartment = index > 0 && heap.is_compartment();
            let region = &mut heap.region;
            let recovery = region.is_dirty().then(|| recover(region));
            let (name, is_read_only) = (region.name().to_string(), region.is_read_only());
            HeapAfterFailure { name, is_read_only, is_compartment, recovery, close: None }
        });
        after.collect()
    }

    /// Rolls each back and closes it.
    pub(crate) fn closed(mut heaps: Heaps) -> Vec<HeapAfterFailure> {
        let after = HeapAfterFailure::open(&mut heaps);
        let closed = after
            .into_iter()
            .zip(heaps)
            .map(|(after, heap)| HeapAfterFailure { close: Some(heap.region.close()), ..after });
        closed.collect()
    }
}

impl Failure {
    /// What failed, for callers that only branch.
    pub fn kind(&self) -> FailureKind {
        match self {
            Failure::Wasm(error) => wasm_kind(error),
            Failure::Jail(error) => jail_kind(error),
            Failure::Identity(error) => identity_kind(error),
            Failure::LimitNotOffered { .. }
            | Failure::NotServing { .. }
            | Failure::ChannelVersion { .. }
            | Failure::HostFunctions(_)
            | Failure::Heaps(_) => FailureKind::CannotLoad,
            Failure::Ended { end } => match end {
                End::Violation(_) => FailureKind::PolicyViolation,
                End::Killed(KillReason::Deadline { .. })
                | End::Limit(LimitHit::CpuTime { .. } | LimitHit::WallTime { .. }) => {
                    FailureKind::TimeLimit
                }
                _ => FailureKind::Trap,
            },
            Failure::Protocol { .. } => FailureKind::Trap,
            Failure::StartTimeLimit { .. } | Failure::CallTimeLimit { .. } => {
                FailureKind::TimeLimit
            }
            Failure::IgnoredCancel { .. } | Failure::StartGivenUp => FailureKind::Cancelled,
            Failure::Heap(_) | Failure::Forked { .. } | Failure::Busy | Failure::Host { .. } => {
                FailureKind::Host
            }
        }
    }
}

fn identity_kind(error: &IdentityError) -> FailureKind {
    match error {
        IdentityError::File { source: SignatureError::Io(source), .. }
            if source.kind() == io::ErrorKind::NotFound =>
        {
            FailureKind::NotFound
        }
        IdentityError::File { .. } | IdentityError::Trust(_) => FailureKind::CannotLoad,
        _ => FailureKind::Host,
    }
}

fn jail_kind(error: &JailError) -> FailureKind {
    match error {
        JailError::Program { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            FailureKind::NotFound
        }
        JailError::Step { .. }
        | JailError::Died { .. }
        | JailError::Stuck { .. }
        | JailError::Host { .. }
        | JailError::ResourceLimit { .. }
        | JailError::Ended => FailureKind::Host,
        _ => FailureKind::CannotLoad,
    }
}

fn wasm_kind(error: &WasmError) -> FailureKind {
    match error {
        WasmError::CannotRead { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            FailureKind::NotFound
        }
        WasmError::CannotRead { .. }
        | WasmError::Replaced { .. }
        | WasmError::NotWasm { .. }
        | WasmError::Invalid { .. }
        | WasmError::TooComplex { .. }
        | WasmError::TooMany { .. }
        | WasmError::TextTooLarge { .. }
        | WasmError::CompileMemoryLimit { .. }
        | WasmError::CompilerDied { .. }
        | WasmError::UnknownImport { .. }
        | WasmError::NoStart { .. }
        | WasmError::MemoryLimit { .. }
        | WasmError::TableLimit { .. }
        | WasmError::Heaps(_)
        | WasmError::HostFunctions(_)
        | WasmError::HeapsOverlap { .. }
        | WasmError::HeapPlace { .. }
        | WasmError::NoRoomForHeap { .. } => FailureKind::CannotLoad,
        WasmError::Trap(_)
        | WasmError::OutOfFuel { .. }
        | WasmError::HostAccess { .. }
        | WasmError::ReadOnlyHeap { .. } => FailureKind::Trap,
        WasmError::Interrupted { .. } => FailureKind::Cancelled,
        WasmError::TimeLimit { .. } | WasmError::CompileTimeLimit { .. } => FailureKind::TimeLimit,
        _ => FailureKind::Host,
    }
}

impl AppletError {
    /// What failed, for callers that only branch.
    pub fn kind(&self) -> FailureKind {
        self.failure.kind()
    }
}

impl fmt::Display for AppletError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.failure)?;
        if self.metrics.network_refusals > 0 {
            write!(formatter, "; it had asked for the network, which no applet has")?;
        }
        let is_fault =
            matches!(self.failure, Failure::Ended { end: End::Signal { name: "SIGSEGV", .. } });
        for heap in &self.heaps {
            if heap.is_read_only && is_fault {
                write!(
                    formatter,
                    "; it may only read the heap {:?}, and a store there ends it so; {}",
                    heap.name,
                    Remedy::GrantWriting { heap: Some(&heap.name) }
                )?;
            }
            if heap.is_compartment && is_fault && holdfast_pkeys::is_offered() {
                write!(
                    formatter,
                    "; a thread that touches the compartment {:?} without having entered it ends it so (its standard error \
                     says whether it was that)",
                    heap.name
                )?;
            }
            if let Some(Err(error)) = &heap.recovery {
                write!(formatter, "; the heap {:?} was left as it is: {error}", heap.name)?;
            }
            if let Some(Err(error)) = &heap.close {
                write!(
                    formatter,
                    "; the heap {:?} could not be closed in order: {error}",
                    heap.name
                )?;
            }
        }
        Ok(())
    }
}

/// A heap that cannot be opened, for a host that makes commands for a [`crate::Pool`].
impl From<RegionError> for Box<AppletError> {
    fn from(error: RegionError) -> Self {
        refused(error.into(), SandboxKind::Native, Heaps::none())
    }
}

/// An applet that its heaps are not opened for, for the same hosts.
impl From<IdentityError> for Box<AppletError> {
    fn from(error: IdentityError) -> Self {
        refused(error.into(), SandboxKind::Native, Heaps::none())
    }
}

impl std::error::Error for AppletError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.failure)
    }
}

/// Why an applet was not closed in order.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloseError {
    /// Its heap is then as after a kill: nothing in it is lost.
    #[error(transparent)]
    Heap(#[from] RegionError),
    /// This process is a forked copy of the one that has the applet, which goes on.
    #[error(
        "the applet belongs to process {owner}, of which this one is a forked copy; close it there"
    )]
    Forked {
        /// The process that has it.
        owner: u32,
    },
}

/// Why a call has no result. Only after [`CallError::Died`] the applet is gone.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The applet has no function of that name.
    #[error("the applet has no function {name:?}; it has {}", show_names(known))]
    UnknownFunction {
        /// The name that was called.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// The function returned a failure. In the mode `atomic` nothing that it stored counts.
    #[error("the function failed with code {code}{}{message}", if message.is_empty() { "" } else { ": " })]
    Failed {
        /// The function's own code, never 0.
        code: i32,
        /// The function's own words: untrusted, cleaned of control characters.
        message: String,
    },
    /// The input is larger than a message may be. Nothing was sent.
    #[error(
        "the input has {bytes} bytes, more than the {limit_bytes} of a message; pass it in a shared buffer, or in several calls"
    )]
    InputTooLarge {
        /// What it has.
        bytes: usize,
        /// What a message holds.
        limit_bytes: usize,
    },
    /// The result is larger than it may be. The call was cancelled, and the applet gave up in time.
    #[error(
        "the result has more than {limit_bytes} bytes; use `stream`, or {}",
        Remedy::RaiseAppletLimit(AppletLimit::Result)
    )]
    ResultTooLarge {
        /// The limit.
        limit_bytes: usize,
    },
    /// The call was cancelled, and the applet gave up in time.
    #[error("the call was cancelled")]
    Cancelled,
    /// This thread has a stream of the applet open, is in a host function that the applet called,
    /// or is asked whether its call or start goes on ([`Call::look`](crate::Call::look),
    /// [`Command::start_while`](crate::Command::start_while)): it would wait for itself.
    #[error(
        "this thread has a stream of the applet open, is in a host function that the applet called, or is asked whether \
         its call or start goes on; end that first"
    )]
    Busy,
    /// A buffer of another applet, or one that has been freed.
    #[error(
        "the buffer does not belong to this applet; make it with `buffer` of this applet, and again after a respawn"
    )]
    ForeignBuffer,
    /// There is no room for a shared buffer.
    #[error(
        "no shared buffer of {asked_bytes} bytes: {reason}; {}, or free a buffer first",
        Remedy::RaiseAppletLimit(AppletLimit::Buffers)
    )]
    NoBuffer {
        /// The size.
        asked_bytes: u64,
        /// What went wrong, in words.
        reason: String,
    },
    /// What the call stored could not be made to count (mode `atomic`): it was rolled back, and the
    /// applet serves on.
    #[error("the call's stores do not count: {0}")]
    NotPublished(Arc<RegionError>),
    /// This process is a forked copy of the one that has the applet.
    #[error(
        "the applet belongs to process {owner}, of which this one is a forked copy; start one here"
    )]
    Forked {
        /// The process that has it.
        owner: u32,
    },
    /// The applet is gone: this call killed it, or an earlier one did. `respawn` restarts it.
    #[error("{0}")]
    Died(Arc<AppletError>),
}

fn show_names(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names => {
            names.iter().take(20).map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
        }
    }
}

pub(crate) fn cannot_read(path: &Path, source: io::Error) -> Failure {
    Failure::Wasm(WasmError::CannotRead { path: path.to_owned(), source })
}

/// What did not even start.
pub(crate) fn refused(failure: Failure, kind: SandboxKind, heaps: Heaps) -> Box<AppletError> {
    let heaps = HeapAfterFailure::closed(heaps);
    Box::new(AppletError {
        failure,
        metrics: Metrics::new(kind),
        heaps,
        heap_error: None,
        stdout: Vec::new(),
        stderr: Vec::new(),
        is_output_truncated: false,
    })
}
