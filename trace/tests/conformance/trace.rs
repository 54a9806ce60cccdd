//! A traced workload: what it knew, and what the backend said.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use holdfast_trace::{Abi, Call, Event, Outcome, Program, Settings, Split, Target};

use crate::subject::Subject;

/// The program of the workloads.
pub(crate) const WORKLOAD: &str = env!("CARGO_BIN_EXE_trace-workload");

/// A traced workload: its own account, and the backend's events.
pub(crate) struct Trace {
    facts: Facts,
    pub(crate) events: Vec<Event>,
    pub(crate) outcome: Outcome,
}

/// What a workload wrote of itself.
pub(crate) struct Facts {
    directory: tempfile::TempDir,
}

impl Facts {
    pub(crate) fn new() -> Facts {
        // On a disk: some workloads wait for it.
        Facts { directory: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("facts")
    }

    /// Has a workload that goes on until it is told come to its end.
    pub(crate) fn say_it_is_over(&self) {
        std::fs::write(self.path().with_file_name("over"), "").unwrap();
    }

    /// The sum of what has this name; 0 for nothing.
    pub(crate) fn sum(&self, name: &str) -> u64 {
        self.all().get(name).map_or(0, |values| values.iter().sum())
    }

    /// What has this name.
    pub(crate) fn get(&self, name: &str) -> Option<u64> {
        self.all().get(name).and_then(|values| values.first().copied())
    }

    fn all(&self) -> HashMap<String, Vec<u64>> {
        let mut all: HashMap<_, Vec<_>> = HashMap::new();
        for line in std::fs::read_to_string(self.path()).unwrap_or_default().lines() {
            // The last line may be in the making.
            if let Some((name, value)) =
                line.split_once(' ').and_then(|(name, value)| Some((name, value.parse().ok()?)))
            {
                all.entry(name.to_owned()).or_default().push(value);
            }
        }
        all
    }

    /// The arguments of a workload that writes here.
    pub(crate) fn command(&self, words: &[&str]) -> Vec<OsString> {
        let path: &Path = &self.path();
        let head = [OsString::from(WORKLOAD), path.into()];
        head.into_iter().chain(words.iter().map(OsString::from)).collect()
    }
}

impl Trace {
    /// Traces a workload to its end.
    pub(crate) fn of(subject: &Subject, words: &[&str]) -> Trace {
        let facts = Facts::new();
        let settings = Settings::new(Target::Start(Program { command: facts.command(words) }));
        Trace::with(subject, settings, facts)
    }

    /// The same of a workload that is run by another command, which takes its words and ends as it.
    pub(crate) fn inside(subject: &Subject, mut command: Vec<OsString>, words: &[&str]) -> Trace {
        let facts = Facts::new();
        command.extend(facts.command(words));
        Trace::with(subject, Settings::new(Target::Start(Program { command })), facts)
    }

    pub(crate) fn with(subject: &Subject, settings: Settings, facts: Facts) -> Trace {
        let mut events = Vec::new();
        let outcome = subject.make(settings).unwrap().run(&mut |event| events.push(event)).unwrap();
        let trace = Trace { facts, events, outcome };
        trace.check();
        trace
    }

    /// What holds for every trace.
    fn check(&self) {
        for call in self.calls() {
            let time = call.time;
            assert_eq!(
                time.wall_ns,
                time.cpu_ns + time.sleep_ns + time.wait_ns + time.io_wait_ns + time.queue_ns,
                "the parts of {call:?} are not its wall time"
            );
        }
        assert_eq!(self.outcome.about.lost, 0);
        assert!(self.outcome.about.cost.is_some() && self.outcome.about.lasted_ns > 0);
    }

    pub(crate) fn fact(&self, name: &str) -> u64 {
        self.facts.get(name).unwrap_or_else(|| panic!("the workload told no {name}"))
    }

    pub(crate) fn has_fact(&self, name: &str) -> bool {
        self.facts.get(name).is_some()
    }

    /// What the workload counted of itself: of several measurements the sum.
    pub(crate) fn seen_ns(&self, name: &str, what: &str) -> u64 {
        self.facts.sum(&format!("{name}_{what}_ns"))
    }

    /// By the clock: for how long it can have been on a CPU, if it was blocked for so long at
    /// least.
    pub(crate) fn running_at_most_ns(&self, name: &str, blocked_ns: u64) -> u64 {
        self.seen_ns(name, "wall")
            .saturating_sub(self.seen_ns(name, "queue"))
            .saturating_sub(blocked_ns)
    }

    /// For how long it was blocked, as the workload saw it: neither on a CPU nor ready to be.
    pub(crate) fn seen_blocked_ns(&self, name: &str) -> u64 {
        let running_ns = self.seen_ns(name, "cpu") + self.seen_ns(name, "queue");
        self.seen_ns(name, "wall").saturating_sub(running_ns)
    }

    pub(crate) fn calls(&self) -> impl Iterator<Item = &Call> {
        self.events.iter().filter_map(|event| match event {
            Event::Call(call) => Some(call),
            _ => None,
        })
    }

    /// The calls of this name through the usual door.
    pub(crate) fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Call> {
        self.calls().filter(move |call| call.abi == Abi::X86_64 && call.name() == name)
    }

    /// What a thread used in all: on a CPU, ready to run.
    pub(crate) fn thread_time(&self, of: u64) -> (u64, u64) {
        let mut times = self.events.iter().filter_map(|event| match event {
            Event::ThreadTime { thread, cpu_ns, queue_ns, .. } if u64::from(*thread) == of => {
                Some((*cpu_ns, *queue_ns))
            }
            _ => None,
        });
        let time = times.next().expect("the thread's time");
        assert!(times.next().is_none(), "told once");
        time
    }

    pub(crate) fn named_of<'a>(
        &'a self,
        name: &'a str,
        thread: u64,
    ) -> impl Iterator<Item = &'a Call> {
        self.named(name).filter(move |call| u64::from(call.thread) == thread)
    }
}

pub(crate) fn sum<'a>(calls: impl Iterator<Item = &'a Call>) -> Split {
    let mut sum = Split::default();
    calls.for_each(|call| sum += call.time);
    sum
}
