//! The cost of recording one call, measured with children that make a call that does nothing.

use std::time::Duration;

use holdfast_sys::child::reap;
use holdfast_sys::ptrace::{Task, start};

use crate::{Cost, Result, TraceError};

/// Calls of one child. All records of one fit into the smallest sensible buffer, and the whole
/// takes some milliseconds.
const CALLS: u32 = 4000;
const CHILDREN: usize = 3;

/// CPU times of children that make so many calls.
#[derive(Debug)]
pub(super) struct NullCalls(Vec<Duration>);

impl NullCalls {
    /// Runs them one after the other; `before` has each while it waits, and `after` once it has
    /// ended.
    pub(super) fn run(
        mut before: impl FnMut(u32) -> Result<()>,
        mut after: impl FnMut(),
    ) -> Result<NullCalls> {
        let failed =
            |source| TraceError::Kernel { step: "measure what recording a call costs", source };
        let mut times = Vec::with_capacity(CHILDREN);
        for _ in 0..CHILDREN {
            let mut child = start(&Task::NullCalls(CALLS)).map_err(failed)?;
            let ready = before(child.pid());
            child.let_go().map_err(failed)?;
            let reaped = reap(child.pid(), true).map_err(failed)?;
            ready?;
            times.extend(reaped.map(|reaped| reaped.cpu_time));
            after();
        }
        times.sort_unstable();
        Ok(NullCalls(times))
    }

    fn median_ns(&self) -> u64 {
        self.0
            .get(self.0.len() / 2)
            .map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// From children that were not traced and such that were. What is recorded of a call is its own
/// time, from which nothing has to be taken off: most of the cost is outside of the two instants.
pub(super) fn cost(untraced: &NullCalls, traced: &NullCalls) -> Cost {
    let slowdown_ns = traced.median_ns().saturating_sub(untraced.median_ns()) / u64::from(CALLS);
    Cost { slowdown_ns, calls: CALLS * CHILDREN as u32, ..Cost::default() }
}
