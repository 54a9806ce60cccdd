//! From events to a report: sums by class, call, thread and process, in one pass and in bounded
//! memory.
//!
//! Invariants: every call is in the total, in one class, in one part of it and in one row of calls.
//! What grows is the number of kinds (calls, names of programs), and each of these has a limit
//! behind which everything is one more row.

mod counted;
mod rows;
mod timeline;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use counted::{Counted, KnownCall};
use rows::{Row, Rows};
use timeline::{Scale, Timeline};

use crate::classes::{self, Class, Scheme, Subclass, Treatment, Waits};
use crate::histogram::bar_end_ns;
use crate::report::document::{
    Bar, CallRow, ClassRow, Count, Distribution, ErrorCount, FORMAT, Report, Sleep, Source, Stack,
    SubclassRow, Sums, Unfinished,
};
use crate::{Abi, Call, Event, Split};

/// Numbers that no table knows: a program can make up four thousand million of them.
const UNKNOWN_MAX: usize = 64;
/// Names of programs that distinguish stacks.
const COMMANDS_MAX: usize = 256;
const UNFINISHED_MAX: usize = 256;

/// How to sum up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// By what calls are put into classes.
    pub scheme: Scheme,
    /// How sleep was distinguished from work.
    pub sleep: Sleep,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Key {
    abi: Abi,
    number: u32,
    subclass: Subclass,
}

/// Sums up events as they come.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    options: Options,
    kinds: HashMap<(Abi, u32), KnownCall>,
    unknown: usize,
    counted: HashMap<Key, Counted>,
    /// Sums of another tool, by name.
    sums: BTreeMap<String, Counted>,
    threads: Rows,
    processes: Rows,
    scale: Scale,
    commands: Vec<String>,
    /// By name of the process and call.
    stacks: HashMap<(usize, Key), Split>,
    unfinished: Vec<Unfinished>,
    signals: BTreeMap<u8, u64>,
    io_uring: BTreeMap<u8, u64>,
    lost: u64,
    lines_skipped: u64,
    first_ns: Option<u64>,
    last_ns: u64,
}

impl Summary {
    /// Of nothing.
    #[must_use]
    pub fn new(options: Options) -> Summary {
        Summary { options, ..Summary::default() }
    }

    /// Adds an event.
    pub fn add(&mut self, event: &Event) {
        if let Some(at_ns) = event.at_ns() {
            self.first_ns = Some(self.first_ns.map_or(at_ns, |first| first.min(at_ns)));
            self.last_ns = self.last_ns.max(at_ns);
        }
        match event {
            Event::Call(call) => self.add_call(call),
            Event::Began { at_ns, process, thread, command, parent } => {
                let command = self.inherited(command, *process, *thread, *parent);
                let began_ns = Some(*at_ns);
                let row = Row { process: *process, command, began_ns, ..Row::default() };
                let row = Row { processes: 1, threads: 1, ..row };
                self.gone(*thread);
                if process == thread {
                    self.begin_process(*process, &row);
                } else if let Some(process) = self.processes.find_mut(*process) {
                    process.threads += 1;
                } else {
                    self.begin_process_unseen(*process, &row);
                }
                self.threads.begin(*thread, Row { thread: *thread, ..row });
                if self.processes.find(*process).is_some() {
                    rows::both(&mut self.processes, &mut self.threads, *process, *thread);
                }
            }
            Event::Exec { process, former_thread, command, .. } => {
                self.exec(*process, *former_thread, command)
            }
            Event::Ended { at_ns, process, thread, end } => {
                let row = self.threads.get(*thread, *process, *thread);
                (row.ended_ns, row.end) = (Some(*at_ns), *end);
                self.gone(*thread);
                self.threads.retire(*thread);
            }
            Event::ThreadTime { process, thread, cpu_ns, .. } => {
                let (process, thread) =
                    rows::both(&mut self.processes, &mut self.threads, *process, *thread);
                for row in [process, thread] {
                    row.cpu_ns = Some(row.cpu_ns.unwrap_or(0).saturating_add(*cpu_ns));
                }
            }
            Event::Signal { signal, .. } => *self.signals.entry(*signal).or_default() += 1,
            Event::Lost { events } => self.lost = self.lost.saturating_add(*events),
            Event::IoUring { opcode, count, .. } => {
                let sum = self.io_uring.entry(*opcode).or_default();
                *sum = sum.saturating_add(*count);
            }
        }
    }

    /// Adds what another tool summed up of one call: it has no single calls.
    pub fn add_sum(&mut self, name: &str, calls: u64, errors: u64, wall_ns: u64) {
        let kind = KnownCall::named(name);
        let place = classes::place(self.options.scheme, kind.entry, &[0; 6], crate::Object::None);
        let name = if self.sums.len() < 1024 || self.sums.contains_key(name) {
            name
        } else {
            "all others"
        };
        let sum = self.sums.entry(name.to_owned()).or_insert_with(|| Counted::new(place, false));
        let time = Split { wall_ns, ..Split::default() };
        // The study's rule, at the mean: there is nothing else.
        let mean = Split { wall_ns: wall_ns / calls.max(1), ..Split::default() };
        let asleep = kind.sleep_ns(self.options.sleep, &mean, &[0; 6]) > 0;
        sum.calls = sum.calls.saturating_add(calls);
        sum.errors = sum.errors.saturating_add(errors);
        sum.time += time;
        sum.asleep_ns = sum.asleep_ns.saturating_add(if asleep { wall_ns } else { 0 });
    }

    /// Counts lines of a log that could not be read.
    pub fn skip_lines(&mut self, lines: u64) {
        self.lines_skipped = self.lines_skipped.saturating_add(lines);
    }

    /// A process that is made has the name of the one that made it.
    fn inherited(&self, command: &str, process: u32, thread: u32, parent: u32) -> String {
        if !command.is_empty() {
            return command.to_owned();
        }
        let maker = if process == thread { parent } else { process };
        self.processes.find(maker).map(|row| row.command.clone()).unwrap_or_default()
    }

    /// The first thread of a process is there. One that was there before the trace may come after
    /// others of its process, whose numbers are smaller once the kernel has begun from 1 again.
    fn begin_process(&mut self, process: u32, row: &Row) {
        match self.processes.find_mut(process) {
            Some(unseen) if unseen.began_ns.is_none() => {
                unseen.threads += 1;
                unseen.began_ns = row.began_ns;
                unseen.command.clone_from(&row.command);
            }
            _ => self.processes.begin(process, row.clone()),
        }
    }

    /// Another thread of a process is there, and the first one is not, or not yet.
    fn begin_process_unseen(&mut self, process: u32, row: &Row) {
        let unseen = self.processes.get(process, process, process);
        // It may be the row of the rest.
        if unseen.process == process {
            unseen.command.clone_from(&row.command);
        }
    }

    /// A thread is not there any more. A first thread may end before the others; the process is
    /// there as long as one of them is.
    fn gone(&mut self, thread: u32) {
        let Some(row) = self.threads.find_mut(thread).filter(|row| row.is_counted) else { return };
        row.is_counted = false;
        let number = row.process;
        let Some(process) = self.processes.find_mut(number) else { return };
        process.living = process.living.saturating_sub(1);
        if process.living == 0 {
            self.processes.retire(number);
        }
    }

    fn exec(&mut self, process: u32, former_thread: u32, command: &str) {
        if former_thread != process
            && let Some(mut row) = self.threads.take(former_thread)
        {
            row.thread = process;
            self.gone(process);
            self.threads.begin(process, row);
        }
        self.threads.get(process, process, process).command = command.to_owned();
        self.processes.get(process, process, process).command = command.to_owned();
    }

    fn add_call(&mut self, call: &Call) {
        let number = self.known(call.abi, call.number);
        let kind = self.kinds.entry((call.abi, number)).or_insert_with(|| {
            if number == u32::MAX {
                KnownCall::named("other numbers")
            } else {
                KnownCall::of(call.abi, number)
            }
        });
        let place = match self.options.scheme {
            Scheme::Paper => kind.entry.map_or(UNKNOWN, |entry| entry.place),
            scheme => classes::place(scheme, kind.entry, &call.arguments, call.object),
        };
        let asleep_ns = kind.sleep_ns(self.options.sleep, &call.time, &call.arguments);
        let key = Key { abi: call.abi, number, subclass: place.subclass };
        self.counted
            .entry(key)
            .or_insert_with(|| Counted::new(place, true))
            .add(kind, call, asleep_ns);

        let offset_ns = self.scale.offset_ns(call.start_ns);
        let end_ns = offset_ns.saturating_add(call.time.wall_ns);
        self.last_ns = self.last_ns.max(call.start_ns.saturating_add(call.time.wall_ns));
        let doublings = self.scale.reach(end_ns);
        if doublings > 0 {
            self.threads.narrow(doublings);
        }
        let (process, thread) =
            rows::both(&mut self.processes, &mut self.threads, call.process, call.thread);
        count(process, call, asleep_ns);
        let command = place_of(&mut self.commands, &process.command);
        *self.stacks.entry((command, key)).or_default() += call.time;
        count(thread, call, asleep_ns);
        // The row of the rest is no lane.
        if thread.thread == call.thread {
            thread
                .lane
                .get_or_insert_with(Timeline::default)
                .add(offset_ns, &call.time, self.scale);
        }
        if call.result.is_none() && !kind.never_returns {
            let command = thread.command.clone();
            let name = kind.name.clone();
            self.leave_unfinished(Unfinished {
                process: call.process,
                thread: call.thread,
                command,
                name,
                time: call.time.into(),
            });
        }
    }

    fn leave_unfinished(&mut self, call: Unfinished) {
        self.unfinished.push(call);
        if self.unfinished.len() >= 2 * UNFINISHED_MAX {
            self.longest_unfinished();
        }
    }

    fn longest_unfinished(&mut self) {
        self.unfinished.sort_by_key(|call| std::cmp::Reverse(call.time.wall_ns));
        self.unfinished.truncate(UNFINISHED_MAX);
    }

    /// The number under which a call is counted.
    fn known(&mut self, abi: Abi, number: u32) -> u32 {
        if self.kinds.contains_key(&(abi, number))
            || !crate::call_name(abi, number).starts_with("syscall_")
        {
            return number;
        }
        if self.unknown >= UNKNOWN_MAX {
            return u32::MAX;
        }
        self.unknown += 1;
        number
    }

    /// The report of what came so far.
    #[must_use]
    pub fn report(&self, source: Source) -> Report {
        self.clone().into_report(source)
    }

    /// The report.
    #[must_use]
    pub fn into_report(mut self, source: Source) -> Report {
        let rows = self.all_rows();
        let mut all = Counted::new(UNKNOWN, false);
        rows.iter().for_each(|(_, _, _, counted)| all.merge(counted));
        let sums = |of: &dyn Fn(Subclass) -> bool| {
            let mut sum = Counted::new(UNKNOWN, false);
            let mut names = BTreeSet::new();
            for (name, _, _, counted) in
                rows.iter().filter(|(_, _, _, counted)| of(counted.place.subclass))
            {
                sum.merge(counted);
                names.insert(name.as_str());
            }
            sum.sums(names.len() as u64, &all)
        };
        let classes: Vec<_> = Class::ALL
            .map(|class| ClassRow { class, sums: sums(&|subclass| subclass.class() == class) })
            .into();
        let subclasses: Vec<_> = Subclass::ALL
            .map(|subclass| SubclassRow {
                class: subclass.class(),
                subclass,
                sums: sums(&|other| other == subclass),
            })
            .into_iter()
            .filter(|row| row.sums.calls > 0 || in_the_study(row.subclass))
            .collect();
        let total = sums(&|_| true);
        let mut calls: Vec<_> = rows
            .iter()
            .map(|(name, abi, number, counted)| call_row(name, abi, *number, counted, &all))
            .collect();
        calls.sort_by(|one, two| {
            let key = |row: &CallRow| std::cmp::Reverse((row.sums.time.wall_ns, row.sums.calls));
            key(one).cmp(&key(two)).then_with(|| (&one.name, &one.abi).cmp(&(&two.name, &two.abi)))
        });
        self.longest_unfinished();
        let origin_ns = self.first_ns.unwrap_or(0);
        let stacks = self.stacks();
        Report {
            format: FORMAT,
            scheme: self.options.scheme,
            sleep: self.options.sleep,
            source: Source {
                events_lost: source.events_lost.max(self.lost),
                lasted_ns: if source.lasted_ns == 0 {
                    self.last_ns.saturating_sub(origin_ns)
                } else {
                    source.lasted_ns
                },
                ..source
            },
            total,
            classes,
            subclasses,
            calls,
            processes: self.processes.into_processes(),
            threads: self.threads.into_threads(origin_ns),
            lane_bin_ns: self.scale.width_ns(),
            unfinished: self.unfinished,
            stacks,
            signals: counts(&self.signals, |number| crate::names::signal(*number)),
            io_uring: counts(&self.io_uring, |opcode| crate::names::io_uring(*opcode)),
            lines_skipped: self.lines_skipped,
            crossings: None,
        }
    }

    /// Name, ABI, number.
    fn all_rows(&mut self) -> Vec<(String, &'static str, u32, Counted)> {
        let mut rows = Vec::new();
        for (key, counted) in std::mem::take(&mut self.counted) {
            let name = self.kinds.get(&(key.abi, key.number)).map(|kind| kind.name.clone());
            rows.push((name.unwrap_or_default(), abi_name(key.abi), key.number, counted));
        }
        for (name, counted) in std::mem::take(&mut self.sums) {
            let number = classes::known_as(&name).map_or(u32::MAX, |entry| entry.number);
            rows.push((name, abi_name(Abi::X86_64), number, counted));
        }
        rows
    }

    fn stacks(&self) -> Vec<Stack> {
        let stack = |(&(command, key), time): (&(usize, Key), &Split)| Stack {
            command: self.commands.get(command).cloned().unwrap_or_default(),
            class: key.subclass.class(),
            subclass: key.subclass,
            name: self
                .kinds
                .get(&(key.abi, key.number))
                .map(|kind| kind.name.clone())
                .unwrap_or_default(),
            time: (*time).into(),
        };
        let mut stacks: Vec<_> = self.stacks.iter().map(stack).collect();
        stacks.sort_by(|one, two| {
            (&one.command, one.subclass, &one.name).cmp(&(&two.command, two.subclass, &two.name))
        });
        stacks
    }
}

const UNKNOWN: Treatment = Treatment { subclass: Subclass::System, waits: Waits::NEVER };

fn in_the_study(subclass: Subclass) -> bool {
    !matches!(subclass, Subclass::System | Subclass::AsyncIo)
}

fn count(row: &mut Row, call: &Call, asleep_ns: u64) {
    row.calls = row.calls.saturating_add(1);
    row.errors += u64::from(call.has_failed());
    row.time += call.time;
    row.asleep_ns = row.asleep_ns.saturating_add(asleep_ns);
}

/// The index of a name; beyond the limit all share the last one.
fn place_of(names: &mut Vec<String>, name: &str) -> usize {
    match names.iter().position(|known| known == name) {
        Some(index) => index,
        None if names.len() < COMMANDS_MAX => {
            names.push(name.to_owned());
            names.len() - 1
        }
        None => {
            "all others".clone_into(&mut names[COMMANDS_MAX - 1]);
            COMMANDS_MAX - 1
        }
    }
}

fn abi_name(abi: Abi) -> &'static str {
    match abi {
        Abi::X86_64 => "x86_64",
        Abi::I386 => "i386",
        Abi::X32 => "x32",
    }
}

fn call_row(name: &str, abi: &str, number: u32, counted: &Counted, all: &Counted) -> CallRow {
    let by_code = counted.by_code.iter();
    let mut errors_by_code: Vec<_> = by_code
        .map(|(code, calls)| ErrorCount { name: crate::names::error(*code), calls: *calls })
        .collect();
    errors_by_code.sort_by_key(|error| std::cmp::Reverse(error.calls));
    let distribution = counted.latency.as_ref().map(|latency| Distribution {
        p50_ns: latency.at_ns(0.5),
        p90_ns: latency.at_ns(0.9),
        p99_ns: latency.at_ns(0.99),
        max_ns: latency.max_ns(),
        median_interval_ns: latency.median_interval_ns(),
        bars: latency
            .bars()
            .into_iter()
            .map(|(index, bar)| Bar {
                below_ns: bar_end_ns(index),
                calls: bar.calls,
                time: bar.time.into(),
            })
            .collect(),
    });
    let sums: Sums = counted.sums(1, all);
    CallRow {
        name: name.to_owned(),
        abi: abi.to_owned(),
        number,
        class: counted.place.subclass.class(),
        subclass: counted.place.subclass,
        sums,
        errors_by_code,
        distribution,
    }
}

fn counts(counts: &BTreeMap<u8, u64>, name: impl Fn(&u8) -> String) -> Vec<Count> {
    counts.iter().map(|(what, count)| Count { name: name(what), count: *count }).collect()
}

#[cfg(test)]
mod tests;
