//! What a run cost.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use holdfast_sys::process::thread_cpu_time;

/// What a run cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Creating the engine.
    pub engine_time: Duration,
    /// Compiling the applet, or loading it from the cache.
    pub load_time: Duration,
    /// Whether it was compiled.
    pub compiled: bool,
    /// Linking, memory, and active data segments.
    pub instantiate_time: Duration,
    /// From the first to the last instruction of the applet, wall time; of an applet that serves, without the time that
    /// it was not asked for anything.
    pub wall_time: Duration,
    /// The same in CPU time of the thread that ran it.
    pub cpu_time: Duration,
    /// Fuel used, when it was counted; of an applet that serves, since its last call began.
    pub fuel_used: Option<u64>,
    /// The most volatile linear memory that the applet had.
    pub peak_volatile_bytes: u64,
    /// Backed bytes of the heap at the end.
    pub heap_backed_bytes: u64,
    /// Whether the heap was stored to.
    pub heap_dirty: bool,
}

/// Wall and CPU clock, started together.
pub(crate) struct Clocks {
    wall: Instant,
    cpu: Duration,
}

impl Clocks {
    pub(crate) fn start() -> Self {
        Clocks { wall: Instant::now(), cpu: thread_cpu_time() }
    }

    /// Wall and CPU time since the start, which must have been on this thread.
    pub(crate) fn elapsed(&self) -> (Duration, Duration) {
        (self.wall.elapsed(), thread_cpu_time().saturating_sub(self.cpu))
    }
}
