//! Measures what stopping a call adds to its times, with a call that does nothing.

use holdfast_sys::ptrace::{self, Task};

use super::thread::{Correction, Raw};
use super::tracer::Tracer;
use super::unavailable;
use crate::machine::null_call_ns;
use crate::{Cost, Result, TraceError};

/// Calls that are traced; a few milliseconds.
const CALLS: u32 = 200;
/// How often. Stops take several times as long while others want the processors, and what is taken
/// off where they did not is time that was there; so the quickest round counts.
const ROUNDS: u32 = 4;

/// The time that a stop adds to a call, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Calibration {
    pub(super) cost: Cost,
    /// On the CPU for each call, outside of the call.
    pub(super) outside_bias_ns: u64,
    /// What the call that does nothing takes untraced.
    pub(super) null_call_ns: u64,
}

impl Calibration {
    /// Traces children that do nothing else.
    pub(super) fn measure() -> Result<Calibration> {
        let mut best = Calibration::round()?;
        for _ in 1..ROUNDS {
            let other = Calibration::round()?;
            if other.cost.cpu_bias_ns < best.cost.cpu_bias_ns {
                best = other;
            }
        }
        Ok(best)
    }

    fn round() -> Result<Calibration> {
        let untraced_ns = null_call_ns();
        let mut sink = |_| {};
        let mut tracer = Tracer::new(&mut sink, Correction::default(), 0);
        tracer.measured = Some(Vec::new());
        trace_null_calls(&mut tracer)?;
        // The child's other calls are few: medians do not see them.
        let measured = tracer.measured.unwrap_or_default();
        if measured.len() < CALLS as usize {
            return Err(TraceError::Unavailable {
                backend: crate::BackendKind::Ptrace.name(),
                why: "the kernel does not tell which calls a traced program makes; that takes Linux 5.3 or newer".to_owned(),
            });
        }
        let pairs: Vec<_> = measured.iter().zip(measured.iter().skip(1)).collect();
        let inside_ns = median(&measured, |raw| raw.counted.cpu_ns);
        // From one call's beginning to the next one's, the child does nothing but to be stopped
        // twice.
        let call_ns = median(&pairs, |(raw, next)| next.start_ns.saturating_sub(raw.start_ns));
        let call_cpu_ns = median(&pairs, |(raw, next)| next.at_entry.since(raw.at_entry).cpu_ns);
        let running_ns = |raw: &Raw| raw.counted.cpu_ns + raw.counted.queue_ns;
        let cost = Cost {
            slowdown_ns: call_ns.saturating_sub(untraced_ns),
            cpu_bias_ns: inside_ns.saturating_sub(untraced_ns),
            queue_bias_ns: least(&measured, |raw| raw.counted.queue_ns),
            blocked_bias_ns: least(&measured, |raw| raw.wall_ns.saturating_sub(running_ns(raw))),
            calls: measured.len() as u32,
        };
        Ok(Calibration {
            cost,
            outside_bias_ns: call_cpu_ns.saturating_sub(inside_ns),
            null_call_ns: untraced_ns,
        })
    }
}

fn trace_null_calls(tracer: &mut Tracer) -> Result<()> {
    let kernel = |step| move |source| TraceError::Kernel { step, source };
    let mut child = ptrace::start(&Task::NullCalls(CALLS)).map_err(kernel("start a process"))?;
    let process = child.pid();
    ptrace::seize(process).map_err(|source| unavailable(&source))?;
    tracer.add(process, process, std::process::id(), false);
    ptrace::interrupt(process).and_then(|()| child.let_go()).map_err(kernel("let a process go"))?;
    while tracer.has_threads() {
        match ptrace::wait() {
            Ok(Some((tid, happened))) => tracer.on(tid, happened),
            Ok(None) => {}
            Err(source) => return Err(TraceError::Kernel { step: "wait for a process", source }),
        }
    }
    Ok(())
}

fn median<T>(measured: &[T], of: impl Fn(&T) -> u64) -> u64 {
    quantile(measured, of, 2)
}

/// What is always there: on a busy machine most have more, which is not of the stops.
fn least<T>(measured: &[T], of: impl Fn(&T) -> u64) -> u64 {
    quantile(measured, of, 20)
}

/// The value that one of `parts` is below.
fn quantile<T>(measured: &[T], of: impl Fn(&T) -> u64, parts: usize) -> u64 {
    let mut values: Vec<_> = measured.iter().map(of).collect();
    values.sort_unstable();
    values.get(values.len() / parts).copied().unwrap_or(0)
}
