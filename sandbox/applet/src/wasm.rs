//! A WebAssembly applet that serves, in this process.
//!
//! Invariant: it runs only while a message is waited for, so nothing runs while the host looks at
//! its heap.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_channel::ChannelMemory;
use holdfast_channel::header::Header;
use holdfast_channel::layout::{Handle, Layout, RING_BYTES_MIN};
use holdfast_crossings::Mark;
use holdfast_jail::End;
use holdfast_region::Consistency;
use holdfast_wasm::{ARENA_BYTES_MAX, BufferArena, Heaps, Received, SendError, Serving, WasmError};

use crate::buffer::SharedBuffer;
use crate::control::Control;
use crate::error::{CallError, Failure, HeapAfterFailure, refused};
use crate::heap_places;
use crate::kind::SandboxKind;
use crate::metrics::Metrics;
use crate::plan::Plan;
use crate::sandbox::{Ended, NotStarted, Sandbox, Stop, Unpublished, not_started};

/// A WebAssembly instance that serves in this process.
pub(crate) struct Wasm {
    serving: Serving,
    control: Arc<Control>,
    is_atomic: bool,
    /// Only for its arena: messages go another way.
    memory: Arc<ChannelMemory>,
}

/// Sizes of linear memory are multiples of this.
const WASM_PAGE_BYTES: u64 = 64 << 10;

impl Wasm {
    pub(crate) fn start(plan: &Plan, mut heaps: Heaps) -> Result<Wasm, NotStarted> {
        let ready = plan.for_wasm().and_then(|(program, mut options)| {
            let memory = memory(plan)?;
            options.arena = arena(&memory)?;
            let limits = &mut options.limits;
            if limits.compile_timeout.or(limits.timeout).is_none() {
                limits.compile_timeout = Some(plan.limits.start_timeout);
            }
            Ok((program, options, memory))
        });
        let (program, options, memory) = match ready {
            Ok(ready) => ready,
            Err(failure) => return Err(not_started(failure, SandboxKind::Wasm, heaps)),
        };
        let is_atomic = heaps.iter().any(|heap| heap.region.consistency() == Consistency::Atomic);
        heap_places::note(&mut heaps);
        match holdfast_wasm::serve(&program, &options, heaps) {
            Ok(serving) => {
                let interrupt = serving.interrupt();
                let control =
                    Arc::new(Control::new(move || interrupt.stop("the call was cancelled")));
                Ok(Wasm { serving, control, is_atomic, memory })
            }
            Err(finished) => {
                let mut ended = ended(*finished);
                let mut error = refused(ended.failure, SandboxKind::Wasm, Heaps::none());
                error.metrics = ended.metrics;
                error.heaps = HeapAfterFailure::open(&mut ended.heaps);
                error.heap_error = ended.heap_error;
                Err((error, ended.heaps))
            }
        }
    }
}

/// Memory for shared buffers.
fn memory(plan: &Plan) -> Result<Arc<ChannelMemory>, Failure> {
    let arena_bytes =
        plan.limits.buffer_bytes.min(ARENA_BYTES_MAX).next_multiple_of(WASM_PAGE_BYTES);
    let host = |error: Box<dyn std::error::Error + Send + Sync>| Failure::Host {
        step: "make the memory for shared buffers",
        source: std::io::Error::other(error),
    };
    let layout = Layout::new(RING_BYTES_MIN, arena_bytes).map_err(|error| host(error.into()))?;
    ChannelMemory::create(layout, &[], true).map_err(|error| host(error.into()))
}

fn arena(memory: &ChannelMemory) -> Result<Option<BufferArena>, Failure> {
    let layout = memory.layout();
    if layout.arena_bytes() == 0 {
        return Ok(None);
    }
    let descriptor = memory
        .descriptor()
        .map_err(|source| Failure::Host { step: "share the memory for buffers", source })?;
    Ok(Some(BufferArena::new(descriptor, layout.arena_offset(), layout.arena_bytes())?))
}

fn ended(finished: holdfast_wasm::Finished) -> Ended {
    let mut metrics = Metrics::new(SandboxKind::Wasm);
    metrics.take_wasm(&finished.metrics);
    let failure = match finished.end {
        Ok(status) => Failure::Ended { end: End::Exited { status } },
        Err(error) => Failure::Wasm(error),
    };
    Ended {
        failure,
        heaps: finished.heaps,
        heap_error: finished.heap_error,
        stdout: finished.stdout,
        stderr: finished.stderr,
        is_output_truncated: finished.is_output_truncated,
        metrics,
    }
}

impl Sandbox for Wasm {
    fn crossings(&self) -> Mark {
        self.serving.crossings()
    }

    fn control(&self) -> Arc<Control> {
        self.control.clone()
    }

    fn send(&mut self, header: &Header, payload: &[u8], _: Option<Instant>) -> Result<(), Stop> {
        self.serving.send(*header, payload).map_err(|error| match error {
            SendError::Ended => Stop::Ended,
            error => Stop::Broken(error.to_string()),
        })
    }

    fn receive(
        &mut self,
        payload: &mut Vec<u8>,
        deadline: Option<Instant>,
    ) -> Result<Header, Stop> {
        match self.serving.receive(deadline) {
            Received::Message { header, payload: found } => {
                *payload = found;
                Ok(header)
            }
            Received::Look => Err(Stop::Nudged),
            Received::Idle => {
                Err(Stop::Broken("it waits for another call in the middle of one".to_owned()))
            }
            // What the deadline was for, the session knows.
            Received::Ended
                if matches!(self.serving.end(), Some(Err(WasmError::TimeLimit { .. }))) =>
            {
                Err(Stop::Deadline)
            }
            Received::Ended => Err(Stop::Ended),
        }
    }

    fn look_every(&mut self, time: Option<Duration>) {
        self.serving.look_every(time);
    }

    fn seal(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn publish(&mut self) -> Result<(), Unpublished> {
        self.serving.publish().map_err(|error| match error {
            WasmError::Heap(error) => match self.serving.roll_back() {
                Ok(()) => Unpublished::RolledBack(error),
                Err(error) => Unpublished::Ended(error.into()),
            },
            error => Unpublished::Ended(error.into()),
        })
    }

    fn roll_back(&mut self) -> Result<(), Failure> {
        Ok(self.serving.roll_back()?)
    }

    fn is_atomic(&self) -> bool {
        self.is_atomic
    }

    fn outlives_cancel(&self) -> bool {
        false
    }

    fn has_ended(&self) -> bool {
        self.serving.end().is_some()
    }

    fn cpu_time(&self) -> Duration {
        self.serving.metrics().cpu_time
    }

    fn heap_backed_bytes(&self) -> u64 {
        self.serving.metrics().heap_backed_bytes
    }

    fn metrics(&self) -> Metrics {
        let mut metrics = Metrics::new(SandboxKind::Wasm);
        metrics.take_wasm(&self.serving.metrics());
        metrics
    }

    fn weaker(&self) -> Vec<String> {
        Vec::new()
    }

    fn buffer(&mut self, bytes: usize) -> Result<SharedBuffer, CallError> {
        SharedBuffer::new(&self.memory, bytes)
    }

    fn handle_of(&self, buffer: &SharedBuffer) -> Result<Handle, CallError> {
        buffer.handle_in(&self.memory)
    }

    fn finish(self: Box<Self>, _: Option<&Failure>) -> Ended {
        ended(self.serving.finish())
    }
}
