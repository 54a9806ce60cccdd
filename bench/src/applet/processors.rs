//! Which processors a side may run on. Two sides that spin for each other need one each; where they run is otherwise up to the
//! scheduler, which on a busy machine may put both on one.
//!
//! Invariant: on a machine with one processor nothing is changed.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Runs this thread on the first of its processors until the value is dropped.
pub(crate) struct First(CpuSet);

impl First {
    pub(crate) fn only() -> io::Result<First> {
        let all = sched_getaffinity(None)?;
        if let (Some(first), true) = (members(&all).next(), all.count() > 1) {
            sched_setaffinity(None, &only(first))?;
        }
        Ok(First(all))
    }
}

impl Drop for First {
    fn drop(&mut self) {
        // It was allowed before.
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Runs this thread on any of its processors but the first.
pub(crate) fn leave_the_first() -> io::Result<()> {
    let mut others = sched_getaffinity(None)?;
    let first = members(&others).next();
    if let (Some(first), true) = (first, others.count() > 1) {
        others.unset(first);
        sched_setaffinity(None, &others)?;
    }
    Ok(())
}

fn members(set: &CpuSet) -> impl Iterator<Item = usize> + '_ {
    (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor))
}

fn only(processor: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(processor);
    set
}
