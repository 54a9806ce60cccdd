//! Tracing with ptrace(2): for everybody, without privileges.
//!
//! Each thread stops at the entry and the exit of each call. What the call had of the CPUs is read
//! from the thread's counters at both stops, so the stops themselves are not in it but for a bias,
//! which is measured with a call that does nothing and taken off. Whether a blocked thread slept or
//! waited for a device is seen by looking at it meanwhile (`watch`).
//!
//! - `tracer`: what is done at each stop. `thread`: one thread and its call. `times`: the counters.
//! - `descriptors`: what descriptors are. `watch`: the second thread. `calibrate`: the bias.
//!   `attach`: running processes.

mod attach;
mod calibrate;
mod descriptors;
mod thread;
mod times;
mod tracer;
mod watch;

use std::time::{Duration, Instant};

use holdfast_sys::counted::counted;
use holdfast_sys::ptrace::{self, WakeUp};

use self::calibrate::Calibration;
use self::thread::Correction;
use self::tracer::{Phase, Tracer};
use self::watch::{Orders, Watcher};
use crate::machine::now_ns;
use crate::{
    Backend, BackendKind, Event, Outcome, Program, Result, Settings, StopFlag, Target,
    TraceDescription, TraceError,
};

/// Threads that do not come to a stop by then are left to the kernel, which lets go of them when
/// this thread ends.
const LETTING_GO_MAX: Duration = Duration::from_secs(5);

/// The backend that stops each call with ptrace.
#[derive(Debug)]
pub struct PtraceBackend {
    settings: Settings,
    about: TraceDescription,
}

impl PtraceBackend {
    /// A backend for one run.
    ///
    /// # Errors
    /// Control groups are not for this backend.
    pub fn new(settings: Settings) -> Result<PtraceBackend> {
        if let Target::Cgroup(path) = &settings.target {
            let why = format!(
                "control groups are traced by the BPF backend only; give the processes of {} with -p (its file cgroup.procs \
                 lists them), or use --backend bpf as root",
                path.display()
            );
            return Err(TraceError::Unavailable { backend: BackendKind::Ptrace.name(), why });
        }
        let about = TraceDescription::before(&settings, BackendKind::Ptrace);
        Ok(PtraceBackend { settings, about })
    }
}

impl Backend for PtraceBackend {
    fn about(&self) -> TraceDescription {
        self.about.clone()
    }

    /// Ends of other children of the calling thread are taken as well, if it has any. SIGURG, with
    /// which the watching thread wakes this one, has a handler from then on that does nothing; one
    /// that the process had is replaced.
    fn run(self: Box<Self>, sink: &mut dyn FnMut(Event)) -> Result<Outcome> {
        let PtraceBackend { settings, mut about } = *self;
        let failed = |step| move |source| TraceError::Kernel { step, source };
        let tracer_thread = WakeUp::here().map_err(failed("handle a signal"))?;
        let calibration = Calibration::measure()?;
        let correction =
            Correction { cost: calibration.cost, null_call_ns: calibration.null_call_ns };
        about.begin();
        let mut tracer = Tracer::new(sink, correction, calibration.outside_bias_ns);
        let mut orders = Orders {
            slots: tracer.slots.clone(),
            tracer: tracer_thread,
            stop: settings.stop.clone(),
            stop_after_end: settings.stop_after_end.clone(),
            until: settings.limit.and_then(|limit| Instant::now().checked_add(limit)),
        };
        match &settings.target {
            Target::Start(program) => start(&mut tracer, program, &settings, orders)?,
            Target::Attach(processes) => {
                let attached =
                    processes.iter().try_for_each(|process| attach::attach(&mut tracer, *process));
                if attached.is_err() {
                    // Those before it would stop at whatever happens to them next, with no tracer
                    // to see it.
                    orders.stop = StopFlag::default();
                    orders.stop.raise();
                }
                attach::interrupt_all(&tracer);
                follow(&mut tracer, orders)?;
                attached?;
            }
            // Refused by `new`.
            Target::Cgroup(_) => {}
        }
        about.cost = Some(calibration.cost);
        about.notes.push(format!(
            "up to {} ns on the CPU were taken off each call for its stops, and no call was made shorter than {} ns, which one that \
             does nothing takes untraced with its way into the kernel and back",
            calibration.cost.cpu_bias_ns, calibration.null_call_ns
        ));
        about.lasted_ns = now_ns().saturating_sub(about.began_ns);
        notes(&mut about, &tracer, &settings.target);
        Ok(Outcome { end: tracer.end, about })
    }
}

/// Starts the program and traces it to its end.
fn start(
    tracer: &mut Tracer,
    program: &Program,
    settings: &Settings,
    orders: Orders,
) -> Result<()> {
    let mut waiting = program.start(settings.pin, &settings.environment)?;
    let process = waiting.started.pid();
    ptrace::seize(process).map_err(|source| unavailable(&source))?;
    tracer.phase = Phase::SettingUp;
    tracer.command = Some(process);
    tracer.add(process, process, std::process::id(), false);
    // It runs on up to its first stop, from where on it stops at calls.
    let begun = ptrace::interrupt(process).and_then(|()| waiting.started.let_go());
    begun.map_err(|source| TraceError::Kernel { step: "let the program go", source })?;
    follow(tracer, orders)?;
    if tracer.phase == Phase::SettingUp || tracer.phase == Phase::LettingGo {
        let failure = waiting.started.failure().ok().flatten();
        if let Some(source) = failure {
            return Err(TraceError::NotExecutable { program: waiting.path, source });
        }
    }
    Ok(())
}

/// Handles stops until no thread is left.
fn follow(tracer: &mut Tracer, orders: Orders) -> Result<()> {
    let (stop, stop_after_end, until) =
        (orders.stop.clone(), orders.stop_after_end.clone(), orders.until);
    let _watcher = Watcher::start(orders)
        .map_err(|source| TraceError::Kernel { step: "start a thread", source })?;
    let mut letting_go_until = None;
    while tracer.has_threads() {
        // Before the wait: a signal that ends the command as well is no sign for what it leaves.
        let had_ended = tracer.end.is_some();
        match ptrace::wait() {
            Ok(Some((tid, happened))) => tracer.on(tid, happened),
            Ok(None) => {}
            // Other code took their ends.
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {
                tracer.lose_all();
                break;
            }
            Err(source) => {
                return Err(TraceError::Kernel { step: "wait for the traced program", source });
            }
        }
        let is_given_up = stop_after_end.take() && had_ended;
        // In every round: where threads are busy one has always stopped already, and no wait is
        // long enough to be interrupted.
        match letting_go_until {
            None if is_given_up
                || stop.is_raised()
                || until.is_some_and(|until| Instant::now() >= until) =>
            {
                letting_go_until = Instant::now().checked_add(LETTING_GO_MAX);
                tracer.phase = Phase::LettingGo;
                attach::interrupt_all(tracer);
            }
            Some(end) if Instant::now() >= end => break,
            _ => {}
        }
    }
    tracer.account_all();
    Ok(())
}

fn unavailable(source: &std::io::Error) -> TraceError {
    let why = format!(
        "the kernel refuses ptrace ({source}); in a container allow it (--cap-add SYS_PTRACE, or a seccomp profile with \
         ptrace), or use --backend bpf as root"
    );
    TraceError::Unavailable { backend: BackendKind::Ptrace.name(), why }
}

/// Threads and processes that were made, at the beginning of a sentence.
fn children(count: u64) -> String {
    match count {
        1 => "1 thread or process was".to_owned(),
        count => format!("{count} threads and processes were"),
    }
}

/// What this way of measuring cannot do, in the person's words.
fn notes(about: &mut TraceDescription, tracer: &Tracer, target: &Target) {
    let mut note = |text: &str| about.notes.push(text.to_owned());
    note(
        "each call was stopped twice, so the program ran slower, and its threads met each other at other moments than untraced",
    );
    note(
        "sleeping was told from waiting for a device by looking at threads every 1 to 16 ms; blocked times of shorter calls count as \
         waits for a device if the call is about a file or directory, else as sleep",
    );
    note("operations of io_uring are not calls and were not counted; --backend bpf counts them");
    if tracer.seen_late > 0 {
        note(&format!(
            "{} made with CLONE_UNTRACED, which hides what is made from tracers, and traced from a moment later on",
            children(tracer.seen_late)
        ));
    }
    if tracer.never_seen > 0 {
        note(&format!("{} made with CLONE_UNTRACED, and not traced", children(tracer.never_seen)));
    }
    if tracer.is_uncounted {
        note(
            "this kernel does not count the time of threads (CONFIG_SCHED_INFO): all time counts as on the CPU; use --backend bpf",
        );
    }
    if matches!(target, Target::Attach(_)) {
        note(
            "calls that threads were in when the trace began were interrupted; the kernel begins most of them again, some fail with EINTR",
        );
    }
    if !tracer.threads.is_empty() {
        let left = counted(tracer.threads.len(), "thread");
        about.notes.push(format!(
            "{left} did not stop in time to be let go in order; the kernel does it when the tracer ends"
        ));
    }
}
