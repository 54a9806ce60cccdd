//! The metrics of a run.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::time::{Duration, Instant};

use holdfast_sys::process::thread_cpu_time;

/// What a run cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WasmMetrics {
    /// Creating the engine.
    pub engine_time: Duration,
    /// Compiling the applet, or loading it from the cache.
    pub load_time: Duration,
    /// Whether it was compiled.
    pub compiled: bool,
    /// Linking, memory, and active data segments.
    pub instantiate_time: Duration,
    /// From the first to the last instruction of the applet, wall time; of an applet that serves,
    /// without the time that it was not asked for anything.
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

impl WasmMetrics {
    /// Counts wall and CPU time in which the applet ran.
    pub(crate) fn add(&mut self, (wall_time, cpu_time): (Duration, Duration)) {
        self.wall_time += wall_time;
        self.cpu_time += cpu_time;
    }
}

/// What runs for less than this is not asked for its CPU time: that it was not interrupted is
/// nearly always right.
const SHORT: Duration = Duration::from_micros(20);
/// How old a reading of a thread's CPU clock may be where another one would take longer than a
/// call.
const READING_AGE_MAX: Duration = Duration::from_millis(1);

thread_local! {
    /// When this thread's CPU clock was read last, and what it said.
    static READING: Cell<Option<(Instant, Duration)>> = const { Cell::new(None) };
}

/// Wall and CPU clock, started together.
///
/// The CPU clock of a thread is read by a system call, which can take longer than a whole call of
/// an applet. So it is read for what takes long only, and against a reading that may be
/// [`READING_AGE_MAX`] old: what it says is never too little, and too much by that at most, for
/// each time that the thread was interrupted.
pub(crate) struct Clocks {
    wall: Instant,
    cpu: Duration,
}

impl Clocks {
    pub(crate) fn start() -> Self {
        let wall = Instant::now();
        let known =
            READING.get().filter(|(at, _)| wall.saturating_duration_since(*at) < READING_AGE_MAX);
        let (_, cpu) = known.unwrap_or_else(|| Clocks::read(wall));
        Clocks { wall, cpu }
    }

    fn read(now: Instant) -> (Instant, Duration) {
        let reading = (now, thread_cpu_time());
        READING.set(Some(reading));
        reading
    }

    /// Wall and CPU time since the start, which must have been on this thread.
    pub(crate) fn elapsed(&self) -> (Duration, Duration) {
        let now = Instant::now();
        let wall = now.saturating_duration_since(self.wall);
        if wall < SHORT {
            return (wall, wall);
        }
        let (_, cpu) = Clocks::read(now);
        (wall, wall.min(cpu.saturating_sub(self.cpu)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sleeping thread uses no CPU time, and a computing thread uses all of it.
    #[test]
    fn cpu_time_counts_computing_and_not_sleeping() {
        let clocks = Clocks::start();
        std::thread::sleep(Duration::from_millis(60));
        let (wall, cpu) = clocks.elapsed();
        assert!(
            wall >= Duration::from_millis(60) && cpu < Duration::from_millis(30),
            "{wall:?} {cpu:?}"
        );
        let (clocks, before) = (Clocks::start(), thread_cpu_time());
        while thread_cpu_time() - before < Duration::from_millis(20) {}
        let (wall, cpu) = clocks.elapsed();
        assert!(cpu >= Duration::from_millis(20) && cpu <= wall, "{wall:?} {cpu:?}");
    }
}
