//! The backends under test.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::LazyLock;

use holdfast_trace::{
    Backend, BpfBackend, Program, PtraceBackend, Result, Settings, Target, TraceError,
};

/// A backend under test.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    /// It measures within 5 %; others within what the workload saw.
    pub(crate) is_exact: bool,
    make: fn(Settings) -> Result<Box<dyn Backend>>,
}

const SUBJECTS: [Subject; 2] = [
    Subject {
        name: "ptrace",
        is_exact: false,
        make: |settings| Ok(Box::new(PtraceBackend::new(settings)?)),
    },
    Subject {
        name: "bpf",
        is_exact: true,
        make: |settings| Ok(Box::new(BpfBackend::new(settings)?)),
    },
];

impl Subject {
    pub(crate) fn make(&self, settings: Settings) -> Result<Box<dyn Backend>> {
        (self.make)(settings)
    }

    /// Why it cannot trace here, if it cannot: the kernel says so of some only when they run.
    fn refusal(&self) -> Option<String> {
        let probe = Settings::new(Target::Start(Program { command: vec!["true".into()] }));
        match self.make(probe).and_then(|backend| backend.run(&mut |_| {})) {
            Ok(_) => None,
            Err(error @ TraceError::Unavailable { .. }) => Some(error.to_string()),
            Err(error) => panic!("{}: {error}", self.name),
        }
    }

    /// Whether a measured time may be said where the workload asked for the first and saw the
    /// second. On a machine that does nothing else these are near each other; on one that is busy,
    /// only one of them may be near the truth.
    pub(crate) fn is_within(&self, measured_ns: u64, asked_ns: u64, seen_ns: u64) -> bool {
        // What the kernel counts and what the clock says may differ by a tick of either.
        let slack_ns = 1_000_000;
        let in_bounds = measured_ns + slack_ns >= asked_ns && measured_ns <= seen_ns + slack_ns;
        in_bounds
            && (!self.is_exact || is_near(measured_ns, seen_ns) || is_near(measured_ns, asked_ns))
    }

    /// Whether a measured time on the CPU may be said where the kernel counted this, and by the
    /// clock it was the second at most. In a virtual machine the kernel counts less than an exact
    /// backend: not what the host took away meanwhile. And the two do not look at the clock at the
    /// same instants of a switch.
    pub(crate) fn is_at_most(&self, measured_ns: u64, counted_ns: u64, clock_ns: u64) -> bool {
        let is_near_enough = || measured_ns <= clock_ns || is_near(measured_ns, counted_ns);
        measured_ns <= counted_ns || (self.is_exact && is_near_enough())
    }
}

/// Within 5 %, or what a loaded machine does in between.
pub(crate) fn is_near(measured_ns: u64, truth_ns: u64) -> bool {
    measured_ns.abs_diff(truth_ns) <= truth_ns / 20 + 1_000_000
}

/// How often a time is measured before a wrong one is believed.
const TRIES: u32 = 5;

/// As [`over_each`], for tests that say how long something took. What a busy machine does between
/// two looks at a clock spoils a try now and then; what is measured wrongly is wrong each time.
pub(crate) fn timed_over_each(test: impl Fn(&Subject)) {
    over_each(|subject| {
        for number in 1..=TRIES {
            match catch_unwind(AssertUnwindSafe(|| test(subject))) {
                Ok(()) => return,
                Err(failure) if number == TRIES => resume_unwind(failure),
                Err(_) => println!(
                    "over the backend {}: try {number} of {TRIES} was spoilt",
                    subject.name
                ),
            }
        }
    });
}

/// Runs a test over each backend that can trace here; at least one must.
pub(crate) fn over_each(test: impl Fn(&Subject)) {
    static REFUSALS: LazyLock<[Option<String>; SUBJECTS.len()]> =
        LazyLock::new(|| SUBJECTS.each_ref().map(Subject::refusal));
    for (subject, refusal) in SUBJECTS.iter().zip(&*REFUSALS) {
        match refusal {
            None => test(subject),
            Some(why) => println!("not run: over the backend {}: {why}", subject.name),
        }
    }
    assert!(REFUSALS.iter().any(Option::is_none), "no backend can trace here: {:?}", *REFUSALS);
}
