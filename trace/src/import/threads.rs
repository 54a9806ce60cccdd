//! The state between lines: the threads, and the calls that are not finished.
//!
//! A log does not say which threads are of one process. It is seen from the calls that make them.

use std::collections::{BTreeSet, HashMap};

use super::Imported;
use super::line::{Body, Line, LineTime, Returned};
use super::meaning;
use crate::sysno::own_number_of_x32;
use crate::{Abi, Call, End, Event, Object, Split};

/// Threads at a time. A log that has more has made them up.
const THREADS_MAX: usize = 65_536;
const DAY_NS: u64 = 24 * 3600 * 1_000_000_000;

/// The only thread of a log that names none.
const UNNAMED: u32 = 1;

#[derive(Debug)]
struct Thread {
    process: u32,
    abi: Abi,
    pending: Option<Pending>,
}

/// A call that goes on in a later line.
#[derive(Clone, Debug)]
struct Pending {
    name: String,
    at_ns: u64,
    arguments: [u64; 6],
    object: Object,
    /// Makes a thread of the same process.
    makes_thread: bool,
    /// The program that it starts.
    program: String,
}

impl Pending {
    fn of(name: &str, arguments: &str, at_ns: u64) -> Pending {
        let makes = matches!(name, "clone" | "clone3" | "fork" | "vfork");
        Pending {
            name: name.to_owned(),
            at_ns,
            arguments: meaning::arguments(name, arguments),
            object: meaning::object(arguments),
            makes_thread: makes && arguments.contains("CLONE_THREAD"),
            program: if name.starts_with("execve") {
                meaning::program(arguments).to_owned()
            } else {
                String::new()
            },
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Threads {
    known: HashMap<u32, Thread>,
    /// Those in the middle of a call that makes a thread of their process.
    makers: BTreeSet<u32>,
    /// The clock of the log: since its first line, or the sum of what its calls took.
    now_ns: u64,
    first: Option<u64>,
    days: u64,
    last_of_day: u64,
    has_times: bool,
}

type Sink<'a> = dyn FnMut(&Event) + 'a;

impl Threads {
    /// Takes a line in.
    pub(super) fn line(&mut self, line: &Line<'_>, imported: &mut Imported, sink: &mut Sink<'_>) {
        self.advance(line.at);
        imported.has_times = self.has_times;
        let id = line.thread.unwrap_or(UNNAMED);
        match &line.body {
            Body::Remark => {}
            Body::Mode { process, mode } => {
                if let Some(thread) = self.thread(*process, sink) {
                    thread.abi = match *mode {
                        "32" => Abi::I386,
                        "x32" => Abi::X32,
                        _ => Abi::X86_64,
                    };
                }
            }
            Body::Signal(name) => {
                let (at_ns, process) =
                    (self.now_ns, self.thread(id, sink).map_or(id, |thread| thread.process));
                let signal = crate::names::signal_number(name);
                sink(&Event::Signal { at_ns, process, thread: id, signal });
            }
            Body::Exited(status) => self.ended(id, End::Exited(*status), imported, sink),
            Body::Killed(name) => {
                let signal = crate::names::signal_number(name);
                self.ended(id, End::Killed(signal), imported, sink);
            }
            Body::Superseded { by } => self.superseded(id, *by, sink),
            Body::Unfinished { name, arguments } => {
                let at_ns = self.now_ns;
                self.thread(id, sink);
                // A second beginning without an end: the first one did not return.
                if let Some(before) = self.take_pending(id) {
                    self.call(id, before, Returned::Nothing, None, imported, sink);
                }
                let pending = Pending::of(name, arguments, at_ns);
                match self.known.get_mut(&id) {
                    Some(thread) => {
                        if pending.makes_thread {
                            self.makers.insert(id);
                        }
                        thread.pending = Some(pending);
                    }
                    // There are too many to remember its beginning.
                    None => imported.skip("<a thread too many>"),
                }
            }
            Body::Resumed { name, returned, took_ns } => {
                let now_ns = self.now_ns;
                self.thread(id, sink);
                let pending = self.take_pending(id);
                let pending = pending.filter(|pending| pending.name == *name);
                // The beginning may be before that of the log.
                let pending = pending.unwrap_or_else(|| Pending::of(name, "", now_ns));
                let seen = self.has_times.then(|| now_ns.saturating_sub(pending.at_ns));
                self.call(id, pending, *returned, took_ns.or(seen), imported, sink);
            }
            Body::Call { name, arguments, returned, took_ns } => {
                self.thread(id, sink);
                let pending = Pending::of(name, arguments, self.now_ns);
                self.call(id, pending, *returned, *took_ns, imported, sink);
            }
        }
    }

    /// The log is at its end: what is not finished did not return.
    pub(super) fn end(&mut self, imported: &mut Imported, sink: &mut Sink<'_>) {
        let mut open: Vec<_> = self
            .known
            .iter_mut()
            .filter_map(|(id, thread)| Some((*id, thread.pending.take()?)))
            .collect();
        open.sort_by_key(|(id, _)| *id);
        for (id, pending) in open {
            self.call(id, pending, Returned::Nothing, None, imported, sink);
        }
    }

    fn advance(&mut self, at: LineTime) {
        let now = match at {
            LineTime::Unknown => return,
            LineTime::After(ns) => self.now_ns.saturating_add(ns),
            LineTime::Clock(ns) => ns.saturating_sub(*self.first.get_or_insert(ns)),
            LineTime::OfDay(ns) => {
                // After midnight. A line that is a bit too early is only late.
                if ns.saturating_add(DAY_NS / 2) < self.last_of_day {
                    self.days += 1;
                }
                self.last_of_day = ns;
                let ns = ns.saturating_add(self.days.saturating_mul(DAY_NS));
                ns.saturating_sub(*self.first.get_or_insert(ns))
            }
        };
        self.has_times = true;
        self.now_ns = self.now_ns.max(now);
    }

    /// The thread of a line; one that is new begins. None if there are too many.
    fn thread(&mut self, id: u32, sink: &mut Sink<'_>) -> Option<&mut Thread> {
        if !self.known.contains_key(&id) {
            if self.known.len() >= THREADS_MAX {
                return None;
            }
            // Its first line may come before the end of the call that makes it.
            let maker = self.makers.first().and_then(|maker| self.known.get(maker));
            let maker = maker.map(|thread| (thread.process, thread.abi));
            let (process, abi) = maker.unwrap_or((id, Abi::X86_64));
            self.begin(id, process, abi, 0, sink);
        }
        self.known.get_mut(&id)
    }

    fn take_pending(&mut self, id: u32) -> Option<Pending> {
        self.makers.remove(&id);
        self.known.get_mut(&id)?.pending.take()
    }

    fn begin(&mut self, id: u32, process: u32, abi: Abi, parent: u32, sink: &mut Sink<'_>) {
        let (at_ns, command) = (self.now_ns, String::new());
        sink(&Event::Began { at_ns, process, thread: id, parent, command });
        self.known.insert(id, Thread { process, abi, pending: None });
    }

    fn call(
        &mut self,
        id: u32,
        pending: Pending,
        returned: Returned<'_>,
        took_ns: Option<u64>,
        imported: &mut Imported,
        sink: &mut Sink<'_>,
    ) {
        let (process, abi) =
            self.known.get(&id).map_or((id, Abi::X86_64), |thread| (thread.process, thread.abi));
        let result = match returned {
            Returned::Value(value) => Some(value),
            Returned::Error(name) => Some(-i64::from(crate::names::error_number(name))),
            Returned::Nothing => None,
        };
        imported.calls += 1;
        imported.without_length += u64::from(took_ns.is_none() && result.is_some());
        let wall_ns = took_ns.unwrap_or(0);
        if pending.name == "execve" && result == Some(0) {
            let command = pending.program.clone();
            sink(&Event::Exec { at_ns: self.now_ns, process, former_thread: id, command });
        }
        sink(&Event::Call(Call {
            process,
            thread: id,
            abi,
            number: number(abi, &pending.name),
            arguments: pending.arguments,
            result,
            start_ns: pending.at_ns,
            time: Split { wall_ns, ..Split::default() },
            object: pending.object,
            restarted: pending.name == "restart_syscall",
        }));
        if !self.has_times {
            // There is no other clock.
            self.now_ns = self.now_ns.saturating_add(wall_ns);
        }
        let child = result.and_then(|value| u32::try_from(value).ok()).filter(|child| *child > 0);
        if let Some(child) = child
            && matches!(pending.name.as_str(), "clone" | "clone3" | "fork" | "vfork")
            && !self.known.contains_key(&child)
            && self.known.len() < THREADS_MAX
        {
            let owner = if pending.makes_thread { process } else { child };
            self.begin(child, owner, abi, process, sink);
        }
    }

    fn ended(&mut self, id: u32, end: End, imported: &mut Imported, sink: &mut Sink<'_>) {
        let process = self.thread(id, sink).map_or(id, |thread| thread.process);
        if let Some(pending) = self.take_pending(id) {
            self.call(id, pending, Returned::Nothing, None, imported, sink);
        }
        self.known.remove(&id);
        sink(&Event::Ended { at_ns: self.now_ns, process, thread: id, end: Some(end) });
    }

    /// The thread `by` goes on under the number of its process.
    fn superseded(&mut self, id: u32, by: u32, sink: &mut Sink<'_>) {
        self.makers.remove(&id);
        let maker = self.makers.remove(&by);
        let Some(mut thread) = self.known.remove(&by) else { return };
        if maker {
            self.makers.insert(id);
        }
        thread.process = id;
        let command =
            thread.pending.as_ref().map(|pending| pending.program.clone()).unwrap_or_default();
        self.known.insert(id, thread);
        sink(&Event::Exec { at_ns: self.now_ns, process: id, former_thread: by, command });
    }
}

/// The number of a call; that of none for unknown names.
fn number(abi: Abi, name: &str) -> u32 {
    if let Some(digits) = name.strip_prefix("syscall_") {
        let number = match digits.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => digits.parse().ok(),
        };
        return number.unwrap_or(u32::MAX);
    }
    let own = match abi {
        Abi::I386 => name
            .parse::<syscalls::x86::Sysno>()
            // A word of Rust (`break`) has a mark in the crate.
            .or_else(|()| format!("r#{name}").parse())
            .ok()
            .map(|call| call.id() as u32),
        Abi::X86_64 | Abi::X32 => None,
    };
    let wide = || {
        let entry = crate::classes::known_as(name)?;
        let own = if abi == Abi::X32 { own_number_of_x32(entry.name) } else { None };
        Some(own.unwrap_or(entry.number))
    };
    // By another name in the log than in the kernel.
    let narrow = || {
        let entry = crate::classes::known_as(name)?;
        entry.name.parse::<syscalls::x86::Sysno>().ok().map(|call| call.id() as u32)
    };
    let number = if abi == Abi::I386 { own.or_else(narrow) } else { wide() };
    number.unwrap_or(u32::MAX)
}
