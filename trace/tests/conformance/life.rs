//! The tracer among others: signals, stops, attaching, letting go, being killed.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_trace::{
    Backend, End, Event, Program, PtraceBackend, Settings, StopFlag, Target, TraceError,
};

use crate::subject::{Subject, over_each};
use crate::trace::{Facts, Trace, WORKLOAD};

/// Waits for something that must come.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "{what} has not come in a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn workload(facts: &Facts, words: &[&str]) -> Command {
    let mut command = Command::new(WORKLOAD);
    command.arg(facts.path()).args(words).stdin(Stdio::null());
    command
}

pub(crate) fn end(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// A child that is killed also where its test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Guarantee: trace/unharmed
#[test]
fn job_control_works_under_trace() {
    over_each(|subject| {
        let trace = Trace::of(subject, &["is_stopped"]);
        assert_eq!(trace.fact("stopped"), libc::SIGSTOP as u64);
        assert_eq!((trace.fact("continued"), trace.fact("ended")), (1, 9));
        assert!(
            trace.fact("went_on_ns") >= trace.fact("let_go_ns"),
            "it went on before it was let go"
        );
    });
}

/// A signal from outside reaches the traced program and ends it.
///
/// Guarantee: trace/unharmed
#[test]
fn outside_signal_ends_the_program() {
    over_each(|subject| {
        let facts = Facts::new();
        let path = facts.path();
        let settings =
            Settings::new(Target::Start(Program { command: facts.command(&["waits_for_signal"]) }));
        let killer = std::thread::spawn(move || {
            let mut process = None;
            until("the workload", || {
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                process = text
                    .strip_suffix('\n')
                    .and_then(|text| text.strip_prefix("process ")?.parse::<i32>().ok());
                process.is_some()
            });
            // It says who it is before it waits; a signal in between interrupts no call.
            until("the workload to wait", || {
                let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.unwrap()));
                stat.is_ok_and(|stat| stat.contains(") S "))
            });
            let process = rustix::process::Pid::from_raw(process.unwrap()).unwrap();
            rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
        });
        let trace = Trace::with(subject, settings, facts);
        killer.join().unwrap();
        assert_eq!(trace.outcome.end, Some(End::Killed(libc::SIGTERM as u8)));
        let signals: Vec<_> = trace
            .events
            .iter()
            .filter_map(|event| match event {
                Event::Signal { signal, .. } => Some(i32::from(*signal)),
                _ => None,
            })
            .collect();
        assert_eq!(signals, [libc::SIGTERM]);
        // The call that it interrupted.
        assert!(trace.named("pause").count() == 1);
    });
}

/// A signal that the program ignores is not reported as delivered to it.
///
/// Guarantee: trace/every-call
#[test]
fn ignored_signal_is_not_delivered() {
    over_each(|subject| {
        // The end of its child, which it waits for without a handler.
        let trace = Trace::of(subject, &["waits_for_busy_child"]);
        let is_signal = |event: &&Event| matches!(event, Event::Signal { .. });
        let signals: Vec<_> = trace.events.iter().filter(is_signal).collect();
        assert!(signals.is_empty(), "{signals:?}");
    });
}

/// Traces a running process for a while.
fn attached(
    subject: &Subject,
    process: u32,
    limit: Option<Duration>,
    stop: &StopFlag,
) -> (Vec<Event>, Option<End>) {
    let settings =
        Settings { limit, stop: stop.clone(), ..Settings::new(Target::Attach(vec![process])) };
    let mut events = Vec::new();
    let outcome = subject.make(settings).unwrap().run(&mut |event| events.push(event)).unwrap();
    assert_eq!(outcome.about.attached, [process]);
    (events, outcome.end)
}

/// A running process is traced for a limited time and then continues untraced.
///
/// Guarantee: trace/attach
#[test]
fn detached_process_goes_on_untraced() {
    over_each(|subject| {
        let facts = Facts::new();
        let mut child = workload(&facts, &["ticks", "100000"]).spawn().unwrap();
        until("the first tick", || facts.get("tick").is_some());
        // By a limit of time, and then by a flag, while it goes on.
        let is_mark =
            |event: &Event| matches!(event, Event::Call(call) if &*call.name() == "getppid");
        // The longer the more the machine does other things.
        assert!([100, 1_000, 10_000].into_iter().any(|limit_ms| {
            let limit = Some(Duration::from_millis(limit_ms));
            attached(subject, child.id(), limit, &StopFlag::default()).0.iter().any(is_mark)
        }));
        let stop = StopFlag::default();
        let raised = stop.clone();
        let raiser = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            raised.raise();
        });
        let (events, _) = attached(subject, child.id(), None, &stop);
        raiser.join().unwrap();
        assert!(
            matches!(events.first(), Some(Event::Began { thread, .. }) if *thread == child.id())
        );
        let times = events.iter().filter(|event| matches!(event, Event::ThreadTime { .. }));
        assert_eq!(times.count(), 1);
        assert!(!events.iter().any(|event| matches!(event, Event::Ended { .. })));
        facts.say_it_is_over();
        assert!(child.wait().unwrap().success());
        let ticks = facts.get("done").unwrap();
        assert_eq!(facts.sum("tick"), ticks * (ticks - 1) / 2);
    });
}

/// A process that is named twice, and by one of its threads, is traced once.
///
/// Guarantee: trace/attach
#[test]
fn process_named_twice_is_traced_once() {
    over_each(|subject| {
        let facts = Facts::new();
        let child = workload(&facts, &["ticks_in_threads", "6000"]).spawn().unwrap();
        until("all threads", || facts.get("tick").is_some());
        let thread = facts.get("thread").unwrap() as u32;
        let stop = StopFlag::default();
        let settings = Settings {
            stop: stop.clone(),
            limit: Some(Duration::from_secs(60)),
            ..Settings::new(Target::Attach(vec![thread, child.id(), child.id()]))
        };
        let mut began = Vec::new();
        let done = subject.make(settings).unwrap().run(&mut |event| match event {
            Event::Began { process, thread, .. } => began.push((process, thread)),
            Event::Call(call) if &*call.name() == "getppid" => stop.raise(),
            _ => {}
        });
        let process = child.id();
        end(child);
        done.unwrap();
        assert!(began.iter().all(|(of, _)| *of == process), "{began:?} of {process}");
        let threads: HashSet<_> = began.iter().collect();
        assert_eq!((began.len(), threads.len()), (5, 5));
    });
}

/// A thread that is made while its process is attached to is told as a thread.
///
/// Guarantee: trace/every-call
#[test]
fn thread_made_amid_an_attach_is_no_process() {
    over_each(|subject| {
        let facts = Facts::new();
        let child = Running(workload(&facts, &["many_threads", "10000000"]).spawn().unwrap());
        let process = child.0.id();
        let tasks = format!("/proc/{process}/task");
        until("threads", || std::fs::read_dir(&tasks).is_ok_and(|tasks| tasks.count() > 2));
        let round = |_| {
            let limit = Some(Duration::from_millis(100));
            attached(subject, process, limit, &StopFlag::default()).0
        };
        let rounds: Vec<_> = (0..5).map(round).collect();
        drop(child);
        for event in rounds.iter().flatten() {
            if let Event::Began { process: of, thread, .. } = event {
                assert_eq!(*of, process, "{}: the thread {thread}", subject.name);
            }
        }
    });
}

/// A process whose name is no text is attached to as any other.
///
/// Guarantee: trace/attach
#[test]
fn process_whose_name_is_no_text_is_traced() {
    over_each(|subject| {
        let (facts, place) = (Facts::new(), tempfile::tempdir().unwrap());
        let program = place.path().join(OsStr::from_bytes(b"caf\xe9"));
        std::os::unix::fs::symlink(WORKLOAD, &program).unwrap();
        let mut command = Command::new(&program);
        command.arg0("trace-workload").arg(facts.path()).args(["ticks", "100000"]);
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        until("the first tick", || facts.get("tick").is_some());
        let limit = Some(Duration::from_millis(500));
        let (events, _) = attached(subject, child.id(), limit, &StopFlag::default());
        end(child);
        let began: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Event::Began { parent, command, .. } => Some((*parent, command.as_str())),
                _ => None,
            })
            .collect();
        assert_eq!(began, [(std::process::id(), "caf\u{fffd}")]);
    });
}

/// A call that a thread is in when the trace ends did not return, also where the thread is
/// interrupted to be let go.
///
/// Guarantee: trace/every-call
#[test]
fn call_at_the_end_of_the_trace_did_not_return() {
    over_each(|subject| {
        let facts = Facts::new();
        let child = workload(&facts, &["waits_for_signal"]).spawn().unwrap();
        let stat = format!("/proc/{}/stat", child.id());
        until("the workload to wait", || {
            facts.get("process").is_some()
                && std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") S "))
        });
        let limit = Some(Duration::from_secs(2));
        let (events, _) = attached(subject, child.id(), limit, &StopFlag::default());
        end(child);
        let results: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Event::Call(call) if &*call.name() == "pause" => Some(call.result),
                _ => None,
            })
            .collect();
        assert_eq!(results, [None::<i64>]);
    });
}

/// A limit of time that no clock reaches is none.
///
/// Guarantee: trace/ends-in-time
#[test]
fn limit_beyond_every_clock_is_no_limit() {
    over_each(|subject| {
        let program = Program { command: vec!["true".into()] };
        let target = Target::Start(program);
        let settings = Settings { limit: Some(Duration::MAX), ..Settings::new(target) };
        let outcome = subject.make(settings).unwrap().run(&mut |_| {}).unwrap();
        assert_eq!(outcome.end, Some(End::Exited(0)));
    });
}

/// What is done to get ready for a trace is no part of its time.
#[test]
fn getting_ready_is_no_part_of_the_trace() {
    over_each(|subject| {
        let program = Program { command: vec!["true".into()] };
        let backend = subject.make(Settings::new(Target::Start(program))).unwrap();
        let made = backend.about();
        std::thread::sleep(Duration::from_millis(50));
        let about = backend.run(&mut |_| {}).unwrap().about;
        let later_ns = [
            about.began_ns.saturating_sub(made.began_ns),
            about.began_unix_ns.saturating_sub(made.began_unix_ns),
        ];
        assert!(later_ns.iter().all(|later_ns| *later_ns >= 50_000_000), "{later_ns:?}");
    });
}

/// Guarantee: trace/attach
#[test]
fn a_program_whose_tracer_is_killed_goes_on_unharmed() {
    over_each(|subject| {
        let facts = Facts::new();
        let traced = Facts::new();
        let command = traced.command(&["ticks", "6000"]);
        let words: Vec<_> = ["traces", subject.name]
            .into_iter()
            .chain(command.iter().map(|word| word.to_str().unwrap()))
            .collect();
        let tracer = workload(&facts, &words).spawn().unwrap();
        until("a traced call", || {
            facts.get("sees_calls").is_some() && traced.get("tick").is_some()
        });
        end(tracer);
        let before = traced.sum("tick");
        until("a tick after the tracer's death", || traced.sum("tick") > before);
        traced.say_it_is_over();
        until("the end of the program", || traced.get("done").is_some());
        let ticks = traced.get("done").unwrap();
        assert_eq!(traced.sum("tick"), ticks * (ticks - 1) / 2);
    });
}

/// The error for a missing or non-executable program names the program and the remedy.
///
/// Guarantee: trace/clean-refusal
#[test]
fn missing_program_error_has_a_remedy() {
    over_each(|subject| {
        let directory = tempfile::tempdir().unwrap();
        let text = directory.path().join("text");
        std::fs::write(&text, "no program").unwrap();
        let run = |program: &std::path::Path| {
            let settings = Settings::new(Target::Start(Program { command: vec![program.into()] }));
            let mut events = 0;
            let error = subject.make(settings).unwrap().run(&mut |_| events += 1).unwrap_err();
            assert_eq!(events, 0, "{error}");
            error
        };
        let missing = run(&directory.path().join("missing"));
        assert!(matches!(missing, TraceError::NoProgram { .. }), "{missing}");
        let error = run(&text);
        assert!(
            matches!(error, TraceError::NotExecutable { .. })
                && error.to_string().contains("chmod +x"),
            "{error}"
        );
        // With the mode of a program, and not the contents.
        std::fs::set_permissions(&text, std::fs::Permissions::from_mode(0o755)).unwrap();
        let error = run(&text);
        assert!(matches!(error, TraceError::NotExecutable { .. }), "{error}");
        let settings = Settings {
            pin: Some(100_000),
            ..Settings::new(Target::Start(Program { command: vec!["true".into()] }))
        };
        let error = subject.make(settings).unwrap().run(&mut |_| {}).unwrap_err();
        assert!(matches!(error, TraceError::NoCpu { cpu: 100_000, .. }), "{error}");
    });
}

/// A process that cannot be traced is refused with the reason.
///
/// Guarantee: trace/clean-refusal
#[test]
fn untraceable_process_is_refused_with_reason() {
    let run = |process| {
        let settings = Settings::new(Target::Attach(vec![process]));
        Box::new(PtraceBackend::new(settings).unwrap())
    };
    let error = run(u32::MAX >> 2).run(&mut |_| {}).unwrap_err();
    assert!(matches!(error, TraceError::NoProcess { .. }), "{error}");
    let error = run(std::process::id()).run(&mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("it is this one"), "{error}");
    // One tracer holds it, another one asks.
    let (facts, holder) = (Facts::new(), Facts::new());
    let child = workload(&facts, &["ticks", "100000"]).spawn().unwrap();
    let tracer = workload(&holder, &["traces", "ptrace", &child.id().to_string()]).spawn().unwrap();
    until("the other tracer", || holder.get("sees_calls").is_some());
    let error = run(child.id()).run(&mut |_| {}).unwrap_err();
    let held_by = tracer.id();
    end(tracer);
    end(child);
    assert!(
        matches!(error, TraceError::AlreadyTraced { tracer, .. } if tracer == held_by),
        "{error}"
    );
}

/// A tracer that is no one's child, and where its program is.
pub(crate) fn tracer_of_another_user(words: &[&str]) -> (tempfile::TempDir, Child) {
    // Where the other user can get at it.
    let mode = |mode: u32| std::fs::Permissions::from_mode(mode);
    let place = tempfile::Builder::new().permissions(mode(0o755)).tempdir().unwrap();
    let (program, facts) = (place.path().join("trace-workload"), place.path().join("facts"));
    std::fs::copy(WORKLOAD, &program).unwrap();
    std::fs::write(&facts, "").unwrap();
    std::fs::set_permissions(&facts, mode(0o666)).unwrap();
    let mut tracer = Command::new(program);
    tracer.arg(facts).arg("traces").args(words).uid(65534).gid(65534);
    tracer.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut started = None;
    until("the tracer", || match tracer.spawn() {
        Ok(child) => started.replace(child).is_none(),
        // A child of another test has the file open for writing until its own exec.
        Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => false,
        Err(error) => panic!("{error}"),
    });
    (place, started.unwrap())
}

/// Guarantee: trace/clean-refusal
#[test]
fn another_users_process_is_refused_with_the_remedy() {
    if !rustix::process::geteuid().is_root() {
        println!("not run: only root can be another user");
        return;
    }
    let victim = Facts::new();
    let child = workload(&victim, &["ticks", "100000"]).spawn().unwrap();
    let (_place, mut tracer) = tracer_of_another_user(&["ptrace", &child.id().to_string()]);
    let mut said = String::new();
    BufReader::new(tracer.stdout.take().unwrap()).read_line(&mut said).unwrap();
    tracer.wait().unwrap();
    end(child);
    assert!(said.contains("another user") && said.contains("root"), "{said}");
}
