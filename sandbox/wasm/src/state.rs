//! The data of an applet's wasmtime store.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use holdfast_crossings::Mark;
use tokio::runtime::Handle;
use wasmtime::Memory;
use wasmtime_wasi::p1::WasiP1Ctx;

use crate::callers_stack::CallersStack;
use crate::heap_link::HeapLink;
use crate::host_functions::HostFunctions;
use crate::limits::Limiter;
use crate::mailbox::Mailbox;

pub(crate) struct StoreState {
    pub(crate) wasi: WasiP1Ctx,
    /// Has the clocks and streams of `wasi`.
    pub(crate) runtime: Handle,
    pub(crate) limiter: Limiter,
    pub(crate) link: Arc<HeapLink>,
    /// Of those that the applet opened; see [`crate::descriptors`].
    pub(crate) open_descriptors: u32,
    pub(crate) mailbox: Arc<Mailbox>,
    /// What the applet may call.
    pub(crate) functions: HostFunctions,
    /// Where they run.
    pub(crate) callers_stack: Arc<CallersStack>,
    /// Memory for what it passes to them.
    pub(crate) host_input: Vec<u8>,
    /// The result of the last one, if there was no room for it.
    pub(crate) host_result: Vec<u8>,
    /// The memory that the applet exports, once it was looked up: a store has one applet.
    pub(crate) memory: Option<Memory>,
    /// What the applet gets for each call.
    pub(crate) fuel: Option<u64>,
    /// What crosses is marked with it, if a tracer wants that.
    pub(crate) crossings: Mark,
}

impl StoreState {
    /// Counts a descriptor that was closed.
    pub(crate) fn closed_if(&mut self, closed: bool) {
        self.open_descriptors = self.open_descriptors.saturating_sub(u32::from(closed));
    }
}

/// Why the host stopped the applet; travels through wasmtime as an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopCause {
    TimeLimit,
    HostFault,
    Interrupted,
}

impl fmt::Display for StopCause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StopCause::TimeLimit => write!(formatter, "time limit"),
            StopCause::Interrupted => write!(formatter, "stopped by the host"),
            StopCause::HostFault => write!(formatter, "fault in host code on the applet's behalf"),
        }
    }
}

impl std::error::Error for StopCause {}
