//! One host's record, so that moments can be looked up in it.

use std::collections::{BTreeSet, HashMap};

use holdfast_crossings::{Answer, AppletKind as RecordedKind, Host, Record};

use super::document::{AppletKind, RunPart};
use super::spans::Spans;

/// A call of an applet.
#[derive(Debug)]
pub(super) struct HostCall {
    pub(super) applet: u32,
    pub(super) name: String,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) crossings: u64,
}

/// A call of the applet into its host.
#[derive(Debug)]
pub(super) struct HostCrossing {
    pub(super) applet: u32,
    pub(super) name: String,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
}

/// A system call of a native applet that the host decided on.
#[derive(Debug)]
pub(super) struct HostQuestion {
    pub(super) applet: u32,
    pub(super) asked_by: u32,
    pub(super) number: u32,
    pub(super) answer: Answer,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
}

/// See the module. In the fields, numbers in spans are places in the lists.
#[derive(Debug, Default)]
pub(super) struct Indexed {
    pub(super) applets: HashMap<u32, (AppletKind, String)>,
    /// Which applet a process is, and since when.
    pub(super) processes: HashMap<u32, (u32, u64)>,
    pub(super) calls: Vec<HostCall>,
    pub(super) crossings: Vec<HostCrossing>,
    pub(super) questions: Vec<HostQuestion>,
    /// The record's own work, by thread.
    pub(super) own: Spans,
    /// When applets ran, by thread.
    pub(super) turns_of_threads: Spans,
    /// The same, by applet.
    pub(super) turns_of_applets: Spans,
    pub(super) calls_of_threads: Spans,
    pub(super) calls_of_applets: Spans,
    /// Of native applets, by thread.
    pub(super) messages: Spans,
    /// Of WebAssembly applets, by applet.
    pub(super) imports: Spans,
    pub(super) questions_of_threads: Spans,
    /// When frames were written, by thread; in order.
    pub(super) writes: HashMap<u32, BTreeSet<u64>>,
    first_ns: Option<u64>,
    last_ns: u64,
}

impl Indexed {
    pub(super) fn of(host: &Host) -> Indexed {
        let mut indexed = Indexed::default();
        // Applets first: what is marked of them ends before or after other things.
        for record in host.records() {
            if let Record::Applet { applet, kind, name, .. } = record {
                let kind = match kind {
                    RecordedKind::Wasm => AppletKind::Wasm,
                    RecordedKind::Native => AppletKind::Native,
                };
                indexed.applets.insert(*applet, (kind, host.name(*name).to_owned()));
            }
        }
        host.records().iter().for_each(|record| indexed.add(host, record));
        for (thread, written_ns) in host.writes() {
            indexed.writes.entry(*thread).or_default().insert(*written_ns);
        }
        for spans in [
            &mut indexed.own,
            &mut indexed.turns_of_threads,
            &mut indexed.turns_of_applets,
            &mut indexed.calls_of_threads,
            &mut indexed.calls_of_applets,
            &mut indexed.messages,
            &mut indexed.imports,
            &mut indexed.questions_of_threads,
        ] {
            spans.sort();
        }
        indexed
    }

    fn add(&mut self, host: &Host, record: &Record) {
        match *record {
            Record::Name { .. } | Record::Applet { .. } => {}
            Record::Process { applet, process, at_ns } => {
                self.processes.insert(process, (applet, at_ns));
            }
            Record::Call { applet, name, thread, start_ns, end_ns } => {
                let index = self.calls.len();
                let name = host.name(name).to_owned();
                self.calls.push(HostCall { applet, name, start_ns, end_ns, crossings: 0 });
                self.calls_of_threads.add(thread, start_ns, end_ns, index);
                self.calls_of_applets.add(applet, start_ns, end_ns, index);
                self.first_ns = Some(self.first_ns.map_or(start_ns, |first| first.min(start_ns)));
                self.last_ns = self.last_ns.max(end_ns);
            }
            Record::Turn { applet, thread, start_ns, end_ns } => {
                self.turns_of_threads.add(thread, start_ns, end_ns, applet as usize);
                self.turns_of_applets.add(applet, start_ns, end_ns, 0);
            }
            Record::Crossing { applet, name, thread, start_ns, end_ns } => {
                let index = self.crossings.len();
                let name = host.name(name).to_owned();
                self.crossings.push(HostCrossing { applet, name, start_ns, end_ns });
                match self.applets.get(&applet) {
                    Some((AppletKind::Native, _)) => {
                        self.messages.add(thread, start_ns, end_ns, index)
                    }
                    _ => self.imports.add(applet, start_ns, end_ns, index),
                }
            }
            Record::Question { applet, thread, asked_by, number, answer, start_ns, end_ns } => {
                let index = self.questions.len();
                self.questions.push(HostQuestion {
                    applet,
                    asked_by,
                    number,
                    answer,
                    start_ns,
                    end_ns,
                });
                self.questions_of_threads.add(thread, start_ns, end_ns, index);
            }
            Record::Own { thread, start_ns, end_ns } => self.own.add(thread, start_ns, end_ns, 0),
        }
    }

    /// The call of an applet that a moment is in.
    pub(super) fn call_at(&self, applet: u32, at_ns: u64) -> Option<usize> {
        self.calls_of_applets.at(applet, at_ns).map(|span| span.what)
    }

    /// What a moment outside of all calls is.
    pub(super) fn when(&self, thread: u32, at_ns: u64) -> RunPart {
        match self.first_ns {
            _ if at_ns > self.last_ns && self.calls_of_threads.has(thread) => RunPart::TearDown,
            Some(first_ns) if at_ns >= first_ns && !self.calls_of_threads.has(thread) => {
                RunPart::OtherThreads
            }
            Some(first_ns) if at_ns >= first_ns => RunPart::Between,
            _ => RunPart::StartUp,
        }
    }
}
