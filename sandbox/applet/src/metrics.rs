//! The metrics of an applet, in one account for both kinds.
#![forbid(unsafe_code)]

use std::time::Duration;

use serde::Serialize;

use crate::kind::SandboxKind;

/// What an applet cost so far, or until it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Metrics {
    /// In which sandbox it ran.
    pub kind: SandboxKind,
    /// From the request until its first instruction could run (native: until it served, or its
    /// start was confirmed).
    pub start_time: Duration,
    /// WebAssembly: creating the engine.
    pub engine_time: Duration,
    /// WebAssembly: compiling the applet, or loading it from the cache.
    pub load_time: Duration,
    /// WebAssembly: whether it was compiled.
    pub compiled: bool,
    /// WebAssembly: linking, memory, and active data segments.
    pub instantiate_time: Duration,
    /// Wall time of all calls, or of the run.
    pub wall_time: Duration,
    /// Processor time: of the applet's process, start included, or of the threads that ran the
    /// WebAssembly.
    pub cpu_time: Duration,
    /// WebAssembly: fuel used, when it was counted.
    pub fuel_used: Option<u64>,
    /// The most volatile memory that it had: resident, or linear memory.
    pub peak_memory_bytes: u64,
    /// Backed bytes of the heap.
    pub heap_backed_bytes: u64,
    /// Whether the heap may have been stored to.
    pub heap_dirty: bool,
    /// Calls that were begun.
    pub calls: u64,
    /// Native: how often it asked for the network, which no applet has: the call fails with
    /// `EACCES`.
    pub network_refusals: u64,
    /// Messages in both directions, replies about the heap included.
    pub messages: u64,
    /// Bytes of input and of results, streamed parts included, shared buffers not.
    pub message_bytes: u64,
}

impl Metrics {
    pub(crate) fn new(kind: SandboxKind) -> Metrics {
        Metrics {
            kind,
            start_time: Duration::ZERO,
            engine_time: Duration::ZERO,
            load_time: Duration::ZERO,
            compiled: false,
            instantiate_time: Duration::ZERO,
            wall_time: Duration::ZERO,
            cpu_time: Duration::ZERO,
            fuel_used: None,
            peak_memory_bytes: 0,
            heap_backed_bytes: 0,
            heap_dirty: false,
            calls: 0,
            network_refusals: 0,
            messages: 0,
            message_bytes: 0,
        }
    }

    /// Takes over what a session counted.
    pub(crate) fn take_calls(&mut self, counted: &Metrics) {
        self.wall_time = counted.wall_time;
        self.calls = counted.calls;
        self.messages = counted.messages;
        self.message_bytes = counted.message_bytes;
    }

    /// Takes over what the WebAssembly sandbox measured.
    pub(crate) fn take_wasm(&mut self, found: &holdfast_wasm::WasmMetrics) {
        self.engine_time = found.engine_time;
        self.load_time = found.load_time;
        self.compiled = found.compiled;
        self.instantiate_time = found.instantiate_time;
        self.wall_time = found.wall_time;
        self.cpu_time = found.cpu_time;
        self.fuel_used = found.fuel_used;
        self.peak_memory_bytes = found.peak_volatile_bytes;
        self.heap_backed_bytes = found.heap_backed_bytes;
        self.heap_dirty = found.heap_dirty;
        self.start_time = found.engine_time + found.load_time + found.instantiate_time;
    }
}

/// What one call cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct CallMetrics {
    /// From the request to the result.
    pub wall_time: Duration,
    /// Processor time of the applet from the request to the result, and since a call right before
    /// it whose cost was reported, too; `None` where it is not counted per call.
    pub cpu_time: Option<Duration>,
    /// Messages in both directions.
    pub messages: u64,
    /// Bytes of input and result, streamed parts included.
    pub message_bytes: u64,
    /// Backed bytes of the heap when it ended.
    pub heap_backed_bytes: u64,
}
