//! The interface of a sandbox to a session.
//!
//! Invariant: whatever an implementation returns was checked; nothing of it is the applet's word
//! alone.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_channel::header::Header;
use holdfast_channel::layout::Handle;
use holdfast_crossings::Mark;
use holdfast_region::RegionError;
use holdfast_wasm::Heaps;

use crate::buffer::SharedBuffer;
use crate::control::Control;
use crate::error::{AppletError, CallError, Failure, HeapAfterFailure, refused};
use crate::kind::SandboxKind;
use crate::metrics::Metrics;

/// Why nothing more comes, or not now.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The applet is gone, or stopped for a reason that its end tells.
    Ended,
    /// The deadline has passed.
    Deadline,
    /// A caller wants the waiting thread to look at the call's control.
    Nudged,
    /// A message was longer than it may be; it was passed over, and this is its header.
    TooLarge(Header),
    /// A wait was given up in the middle of a message: nothing can follow it.
    HalfDone,
    /// The applet broke the protocol.
    Broken(String),
}

impl Stop {
    /// What it is when no caller has asked the applet to stop; `None`: its end says more.
    pub(crate) fn failure(self) -> Option<Failure> {
        let what = match self {
            Stop::Ended | Stop::Deadline | Stop::Nudged => return None,
            Stop::TooLarge(_) => "its message is too large".to_owned(),
            Stop::HalfDone => "it stopped in the middle of a message".to_owned(),
            Stop::Broken(what) => what,
        };
        Some(Failure::Protocol { what })
    }
}

/// Why stores do not count.
pub(crate) enum Unpublished {
    /// The heap is as of the last commit, and the applet may go on once it has forgotten the rest.
    RolledBack(RegionError),
    /// The applet must be ended.
    Ended(Failure),
}

/// How an applet ended, and what is left of it.
pub(crate) struct Ended {
    /// Why it ended, in its sandbox's words.
    pub(crate) failure: Failure,
    /// Its heaps, no longer mapped elsewhere.
    pub(crate) heaps: Heaps,
    pub(crate) heap_error: Option<RegionError>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) is_output_truncated: bool,
    pub(crate) metrics: Metrics,
}

/// A sandbox as a session sees it: native or WebAssembly.
pub(crate) trait Sandbox: Send {
    /// For marking what the host does with it, if a tracer wants that.
    fn crossings(&self) -> Mark;

    /// What another thread may do to it.
    fn control(&self) -> Arc<Control>;

    /// Sends a message. It comes back with `Nudged` as `receive` does, also in the middle. The
    /// caller then goes on with a call, with the same header and payload, and can send no other
    /// message before; any other message is kept, and `receive` goes on with it.
    fn send(
        &mut self,
        header: &Header,
        payload: &[u8],
        deadline: Option<Instant>,
    ) -> Result<(), Stop>;

    /// Waits for a message that belongs to calls; answers those about the heap by itself.
    fn receive(&mut self, payload: &mut Vec<u8>, deadline: Option<Instant>)
    -> Result<Header, Stop>;

    /// Has `receive` and `send` come back with `Nudged` after so much time without an end. Drops a
    /// nudge that came before, so it is set before a call can be cancelled.
    fn look_every(&mut self, time: Option<Duration>);

    /// The applet has started up: from now on it needs no more than to compute.
    fn seal(&mut self) -> Result<(), Failure>;

    /// In the mode `atomic`: makes count what the applet has stored, heap by heap. The applet must
    /// be waiting for a call.
    fn publish(&mut self) -> Result<(), Unpublished>;

    /// In the mode `atomic`: undoes what the applet has stored. It is told to forget it with the
    /// next call.
    fn roll_back(&mut self) -> Result<(), Failure>;

    /// Whether what a failed call stored must be forgotten.
    fn is_atomic(&self) -> bool;

    /// Whether it can serve on after a cancellation; otherwise that stops it, now or as soon as it
    /// runs again.
    fn outlives_cancel(&self) -> bool;

    /// Whether it is gone, as far as is known without waiting.
    fn has_ended(&self) -> bool;

    /// Processor time so far.
    fn cpu_time(&self) -> Duration;

    /// Backed bytes of the heaps together; 0 without one.
    fn heap_backed_bytes(&self) -> u64;

    /// The account so far, but for what the session counts.
    fn metrics(&self) -> Metrics;

    /// What this machine could not give.
    fn weaker(&self) -> Vec<String>;

    /// A shared buffer.
    fn buffer(&mut self, bytes: usize) -> Result<SharedBuffer, CallError>;

    /// How to name a buffer to the applet.
    fn handle_of(&self, buffer: &SharedBuffer) -> Result<Handle, CallError>;

    /// Ends it, if it has not ended, and waits for that. `failure` is why, when the session knows
    /// better.
    fn finish(self: Box<Self>, failure: Option<&Failure>) -> Ended;
}

/// What could not be started, and its heaps, rolled back and still open.
pub(crate) type NotStarted = (Box<AppletError>, Heaps);

/// What was refused before anything of it was started.
pub(crate) fn not_started(failure: Failure, kind: SandboxKind, mut heaps: Heaps) -> NotStarted {
    let mut error = refused(failure, kind, Heaps::none());
    error.heaps = HeapAfterFailure::open(&mut heaps);
    (error, heaps)
}

/// Closes the heaps of what could not be started, of each of which the error has an account.
pub(crate) fn let_go((mut error, heaps): NotStarted) -> Box<AppletError> {
    for (after, heap) in error.heaps.iter_mut().zip(heaps) {
        after.close = Some(heap.region.close());
    }
    error
}
