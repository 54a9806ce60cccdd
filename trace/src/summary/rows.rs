//! The sums of threads, and of processes.
//!
//! Invariants: memory is bounded, however many there were: the busiest keep a row of their own, and
//! the sum of the others is one row. A number that the kernel gives a second time is a second row.

use std::collections::HashMap;

use super::timeline::{Bin, Timeline};
use crate::report::document::{LaneBin, ProcessRow, ThreadRow};
use crate::{End, Split};

/// Rows that a report has at most, without that of the rest.
pub(super) const ROWS_MAX: usize = 2_048;
/// Those that live at one time. The kernel allows more, but no log of a sane program has them.
const LIVE_MAX: usize = 32_768;
/// Lanes that a report draws; the other threads are in the table.
const LANES_MAX: usize = 256;

/// A thread or a process, or the sum of many.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) process: u32,
    pub(super) thread: u32,
    pub(super) command: String,
    pub(super) processes: u64,
    pub(super) threads: u64,
    /// Of a process: its threads that live and have a row.
    pub(super) living: u32,
    /// Of a thread: whether it is one of its process's [`Row::living`].
    pub(super) is_counted: bool,
    pub(super) calls: u64,
    pub(super) errors: u64,
    pub(super) time: Split,
    pub(super) asleep_ns: u64,
    pub(super) cpu_ns: Option<u64>,
    pub(super) began_ns: Option<u64>,
    pub(super) ended_ns: Option<u64>,
    pub(super) end: Option<End>,
    pub(super) lane: Option<Timeline>,
}

impl Row {
    fn fold(&mut self, other: &Row) {
        self.processes = self.processes.saturating_add(other.processes);
        self.threads = self.threads.saturating_add(other.threads);
        self.calls = self.calls.saturating_add(other.calls);
        self.errors = self.errors.saturating_add(other.errors);
        self.time += other.time;
        self.asleep_ns = self.asleep_ns.saturating_add(other.asleep_ns);
        if let Some(more) = other.cpu_ns {
            self.cpu_ns = Some(self.cpu_ns.unwrap_or(0).saturating_add(more));
        }
    }
}

/// All of one kind, by their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    live: HashMap<u32, Row>,
    done: Vec<Row>,
    rest: Row,
}

impl Rows {
    /// A new bearer of this number.
    pub(super) fn begin(&mut self, key: u32, row: Row) {
        self.retire(key);
        if self.live.len() < LIVE_MAX {
            self.live.insert(key, row);
        } else {
            self.rest.fold(&row);
        }
    }

    /// The row of this number; one that began unseen is made.
    pub(super) fn get(&mut self, key: u32, process: u32, thread: u32) -> &mut Row {
        if self.live.len() >= LIVE_MAX && !self.live.contains_key(&key) {
            return &mut self.rest;
        }
        self.live.entry(key).or_insert_with(|| Row {
            process,
            thread,
            processes: 1,
            threads: 1,
            ..Row::default()
        })
    }

    pub(super) fn find(&self, key: u32) -> Option<&Row> {
        self.live.get(&key)
    }

    pub(super) fn find_mut(&mut self, key: u32) -> Option<&mut Row> {
        self.live.get_mut(&key)
    }

    pub(super) fn take(&mut self, key: u32) -> Option<Row> {
        self.live.remove(&key)
    }

    /// Its bearer is gone.
    pub(super) fn retire(&mut self, key: u32) {
        let Some(row) = self.live.remove(&key) else { return };
        self.done.push(row);
        if self.done.len() >= 2 * ROWS_MAX {
            self.rest_of_all_but(ROWS_MAX);
        }
    }

    fn rest_of_all_but(&mut self, keep: usize) {
        self.done.sort_by_key(|row| std::cmp::Reverse((row.time.wall_ns, row.calls)));
        for row in self.done.drain(keep.min(self.done.len())..) {
            self.rest.fold(&row);
        }
    }

    /// All lanes have wider bins from here on.
    pub(super) fn narrow(&mut self, doublings: u32) {
        let rows = self.live.values_mut().chain(&mut self.done);
        rows.filter_map(|row| row.lane.as_mut()).for_each(|lane| lane.narrow(doublings));
    }

    /// The busiest first, and the sum of the others, if there are.
    fn close(mut self) -> (Vec<Row>, Option<Row>) {
        self.done.extend(self.live.drain().map(|(_, row)| row));
        // The order of a map is no order: the rows that are as busy as each other come by their
        // numbers.
        self.done.sort_by_key(|row| (row.process, row.thread, row.began_ns));
        self.rest_of_all_but(ROWS_MAX);
        (self.done, (self.rest.threads > 0 || self.rest.calls > 0).then_some(self.rest))
    }

    pub(super) fn into_threads(self, origin_ns: u64) -> Vec<ThreadRow> {
        let (rows, rest) = self.close();
        let since = |at: Option<u64>| at.map(|at| at.saturating_sub(origin_ns));
        let thread = |(index, row): (usize, Row)| ThreadRow {
            process: row.process,
            thread: row.thread,
            command: row.command,
            threads: row.threads,
            calls: row.calls,
            errors: row.errors,
            time: row.time.into(),
            awake_ns: row.time.wall_ns.saturating_sub(row.asleep_ns),
            thread_cpu_ns: row.cpu_ns,
            began_ns: since(row.began_ns),
            ended_ns: since(row.ended_ns),
            end: row.end.map(|end| match end {
                End::Exited(status) => format!("exit {status}"),
                End::Killed(signal) => format!("signal {signal}"),
            }),
            lane: row
                .lane
                .filter(|_| index < LANES_MAX)
                .map(|lane| drawn(&lane))
                .unwrap_or_default(),
        };
        rows.into_iter().chain(rest.map(name_rest)).enumerate().map(thread).collect()
    }

    pub(super) fn into_processes(self) -> Vec<ProcessRow> {
        let (rows, rest) = self.close();
        let process = |row: Row| ProcessRow {
            process: row.process,
            command: row.command,
            processes: row.processes,
            threads: row.threads,
            calls: row.calls,
            errors: row.errors,
            time: row.time.into(),
            awake_ns: row.time.wall_ns.saturating_sub(row.asleep_ns),
            thread_cpu_ns: row.cpu_ns,
        };
        rows.into_iter().chain(rest.map(name_rest)).map(process).collect()
    }
}

/// The rows of a process and of one of its threads, which counts as living from here on.
pub(super) fn both<'a>(
    processes: &'a mut Rows,
    threads: &'a mut Rows,
    process: u32,
    thread: u32,
) -> (&'a mut Row, &'a mut Row) {
    let of_process = processes.get(process, process, process);
    let of_thread = threads.get(thread, process, thread);
    // Neither may be the row of the rest.
    if !of_thread.is_counted && of_thread.thread == thread && of_process.process == process {
        of_thread.is_counted = true;
        of_process.living += 1;
    }
    (of_process, of_thread)
}

/// What is of one of them alone is none of their sum's.
fn name_rest(rest: Row) -> Row {
    Row {
        command: "all others".to_owned(),
        process: 0,
        thread: 0,
        began_ns: None,
        ended_ns: None,
        end: None,
        lane: None,
        ..rest
    }
}

fn drawn(lane: &Timeline) -> Vec<LaneBin> {
    let bin = |(index, bin): (usize, &Bin)| LaneBin {
        bin: index as u32,
        cpu_ns: bin.cpu as u64,
        asleep_ns: bin.asleep as u64,
        device_ns: bin.device as u64,
        queue_ns: bin.queue as u64,
    };
    let idle = |bin: &LaneBin| {
        bin.cpu_ns == 0 && bin.asleep_ns == 0 && bin.device_ns == 0 && bin.queue_ns == 0
    };
    lane.bins().iter().enumerate().map(bin).filter(|bin| !idle(bin)).collect()
}
