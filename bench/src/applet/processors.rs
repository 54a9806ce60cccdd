//! Pins the two sides to processors. Left to itself a scheduler puts both on one or each on its
//! own, and stays with it for a while. Asleep that makes more of a difference than anything else;
//! and two sides that spin for each other need one each.
//!
//! Invariant: on a machine with one processor nothing is changed.

use std::io;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Where two sides run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Both on the first processor.
    Together,
    /// This side on the first processor, the other one on any but that.
    Apart,
    /// Wherever the scheduler puts them.
    Free,
}

impl Placement {
    /// Keeps this thread and that process there until the values are dropped.
    pub(crate) fn hold(self, other: Pid) -> io::Result<Vec<Kept>> {
        match self {
            Placement::Together => {
                Ok(vec![Kept::on_the_first(None)?, Kept::on_the_first(Some(other))?])
            }
            Placement::Apart => Ok(vec![Kept::on_the_first(None)?, Kept::off_the_first(other)?]),
            Placement::Free => Ok(Vec::new()),
        }
    }
}

/// A thread that has only some of its processors until the value is dropped.
pub(crate) struct Kept {
    who: Option<Pid>,
    all: CpuSet,
}

impl Kept {
    /// The first alone; this thread or another one.
    pub(crate) fn on_the_first(who: Option<Pid>) -> io::Result<Kept> {
        Kept::on(who, |first, _| only(first))
    }

    fn off_the_first(who: Pid) -> io::Result<Kept> {
        Kept::on(Some(who), |first, mut all| {
            all.unset(first);
            all
        })
    }

    fn on(who: Option<Pid>, some: impl FnOnce(usize, CpuSet) -> CpuSet) -> io::Result<Kept> {
        let all = sched_getaffinity(who)?;
        let first = (0..CpuSet::MAX_CPU).find(|processor| all.is_set(*processor));
        if let (Some(first), true) = (first, all.count() > 1) {
            sched_setaffinity(who, &some(first, all))?;
        }
        Ok(Kept { who, all })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // It was allowed before.
        let _ = sched_setaffinity(self.who, &self.all);
    }
}

fn only(processor: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(processor);
    set
}
