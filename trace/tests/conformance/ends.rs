//! The end of a trace: in time whatever the traced threads do, with all that is known of them, and
//! nothing left behind.

use std::collections::HashMap;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use holdfast_trace::{
    Backend, Event, Program, PtraceBackend, Settings, StopFlag, Target, TraceError,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::life::{end, until, workload};
use crate::subject::over_each;
use crate::trace::Facts;

/// A workload of threads that only make calls.
fn busy(facts: &Facts) -> Child {
    let child = workload(facts, &["only_calls"]).spawn().unwrap();
    until("all threads", || facts.get("busy").is_some());
    child
}

/// The tracer of a process; 0 for none.
fn tracer_of(process: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("TracerPid:")).unwrap();
    line.trim().parse().unwrap()
}

/// Threads that do nothing but system calls do not delay the end of a trace.
///
/// Guarantee: trace/ends-in-time
#[test]
fn busy_threads_do_not_delay_the_end() {
    over_each(|subject| {
        let facts = Facts::new();
        let mut child = busy(&facts);
        // The reader is slower than those that are read of: under ptrace one of them has always
        // stopped already.
        let reads_for = Duration::from_micros(if subject.is_exact { 3 } else { 50 });
        for limit in [Some(Duration::from_millis(200)), None] {
            let stop = StopFlag::default();
            let settings = Settings {
                limit,
                stop: stop.clone(),
                ..Settings::new(Target::Attach(vec![child.id()]))
            };
            let mut calls = 0_u64;
            let outcome = subject
                .make(settings)
                .unwrap()
                .run(&mut |event| {
                    if matches!(event, Event::Call(_)) {
                        calls += 1;
                        if limit.is_none() && calls == 100 {
                            stop.raise();
                        }
                        let began = Instant::now();
                        while began.elapsed() < reads_for {}
                    }
                })
                .unwrap();
            assert!(calls >= 100 || limit.is_some());
            assert_eq!(facts.get("done"), None, "{}: not before the program ended", subject.name);
            let notes = outcome.about.notes.join("\n");
            assert!(!notes.contains("did not stop in time"), "{notes}");
            assert_eq!(tracer_of(child.id()), 0);
        }
        facts.say_it_is_over();
        assert!(child.wait().unwrap().success());
    });
}

/// Threads that are let go while they are busy are told once each, with no call twice and no time
/// that was not there.
///
/// Guarantee: trace/every-call
#[test]
fn busy_threads_are_let_go_with_their_own_times() {
    over_each(|subject| {
        let facts = Facts::new();
        let mut child = busy(&facts);
        for _ in 0..5 {
            let settings = Settings {
                limit: Some(Duration::from_millis(20)),
                ..Settings::new(Target::Attach(vec![child.id()]))
            };
            let round = Instant::now();
            let (mut began, mut times, mut last) = (Vec::new(), Vec::new(), HashMap::new());
            let outcome = subject
                .make(settings)
                .unwrap()
                .run(&mut |event| match event {
                    Event::Began { thread, .. } => began.push(thread),
                    Event::ThreadTime { thread, cpu_ns, queue_ns, .. } => {
                        times.push((thread, cpu_ns.max(queue_ns)));
                    }
                    Event::Call(call) => {
                        let before = last.insert(call.thread, call.start_ns);
                        assert!(before.is_none_or(|before| before < call.start_ns), "{call:?}");
                        assert!(call.time.wall_ns < 60_000_000_000, "{call:?}");
                    }
                    _ => {}
                })
                .unwrap();
            let round_ns = round.elapsed().as_nanos() as u64;
            assert!(times.iter().all(|(_, most_ns)| *most_ns <= round_ns), "{times:?}");
            let mut told: Vec<_> = times.iter().map(|(thread, _)| *thread).collect();
            told.sort_unstable();
            began.sort_unstable();
            assert!(outcome.about.lost > 0 || told == began, "{told:?} of {began:?}");
        }
        facts.say_it_is_over();
        assert!(child.wait().unwrap().success());
    });
}

/// A thread that does not stop for detaching is reported with what is known about it.
///
/// Guarantee: trace/every-call
#[test]
fn unstoppable_thread_is_reported() {
    let facts = Facts::new();
    let stop = StopFlag::default();
    let command = facts.command(&["vforks", "60000"]);
    let settings =
        Settings { stop: stop.clone(), ..Settings::new(Target::Start(Program { command })) };
    let (mut began, mut times, mut unfinished) = (Vec::new(), Vec::new(), Vec::new());
    let outcome = Box::new(PtraceBackend::new(settings).unwrap()).run(&mut |event| match event {
        Event::Began { process, .. } => {
            began.push(process);
            // Its parent waits for it in vfork, from which nothing but its end brings it.
            if began.len() == 2 {
                stop.raise();
            }
        }
        Event::ThreadTime { thread, .. } => times.push(thread),
        Event::Call(call) if call.result.is_none() => {
            unfinished.push((call.thread, call.name(), call.time.wait_ns))
        }
        _ => {}
    });
    for process in &began {
        kill_process(Pid::from_raw(*process as i32).unwrap(), Signal::KILL).unwrap();
    }
    let notes = match outcome {
        Err(error @ TraceError::Unavailable { .. }) => return println!("not run: {error}"),
        outcome => outcome.unwrap().about.notes.join("\n"),
    };
    assert!(notes.contains("did not stop in time"), "{notes}");
    times.sort_unstable();
    began.sort_unstable();
    assert_eq!(times, began);
    let vfork = unfinished.iter().find(|(_, name, _)| name == "clone").unwrap();
    assert!(vfork.2 > 1_000_000_000, "{unfinished:?}");
}

/// If attaching to one process fails, no other process stays traced.
///
/// Guarantee: trace/clean-refusal
#[test]
fn failed_attach_leaves_no_process_traced() {
    let facts = Facts::new();
    let child = workload(&facts, &["ticks", "6000"]).spawn().unwrap();
    until("the first tick", || facts.get("tick").is_some());
    let settings = Settings::new(Target::Attach(vec![child.id(), u32::MAX >> 2]));
    let error = Box::new(PtraceBackend::new(settings).unwrap()).run(&mut |_| {}).unwrap_err();
    let (tracer, ticks) = (tracer_of(child.id()), facts.sum("tick"));
    until("another tick", || facts.sum("tick") > ticks);
    end(child);
    if matches!(error, TraceError::Unavailable { .. } | TraceError::AttachDenied { .. }) {
        return println!("not run: {error}");
    }
    assert!(
        matches!(error, TraceError::NoProcess { process } if process == u32::MAX >> 2),
        "{error}"
    );
    assert_eq!(tracer, 0);
}

/// A kernel that reports no system-call stops gives an error and does not hang the tracer.
///
/// Guarantee: trace/clean-refusal
#[test]
fn kernel_without_call_stops_is_an_error() {
    let facts = Facts::new();
    let mut command = workload(&facts, &["traces_as_before_5_3", "ptrace", "true"]);
    let mut tracer = command.stdout(Stdio::piped()).spawn().unwrap();
    until("the tracer's end", || tracer.try_wait().unwrap().is_some());
    let output = tracer.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    if said.contains("refuses ptrace") {
        return println!("not run: {said}");
    }
    assert!(said.contains("Linux 5.3"), "{said}");
}
