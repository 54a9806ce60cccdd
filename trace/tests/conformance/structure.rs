//! The structure of a trace: threads, processes, programs, calls by every door and of every fate.

use std::collections::{HashMap, HashSet};

use holdfast_trace::{Abi, Call, End, Event, Object};

use crate::subject::over_each;
use crate::trace::Trace;

/// Numbers of all threads that began, and of those that ended.
fn lives(trace: &Trace) -> (Vec<u32>, Vec<u32>) {
    let (mut began, mut ended) = (Vec::new(), Vec::new());
    for event in &trace.events {
        match event {
            Event::Began { thread, .. } => began.push(*thread),
            Event::Ended { thread, .. } => ended.push(*thread),
            _ => {}
        }
    }
    (began, ended)
}

/// Each of ten thousand short-lived threads is reported with its call.
///
/// Guarantee: trace/every-call
#[test]
fn ten_thousand_short_threads_are_all_seen() {
    over_each(|subject| {
        let trace = Trace::of(subject, &["many_threads", "10000"]);
        assert_eq!(trace.named("getppid").count(), 10_000);
        let (began, ended) = lives(&trace);
        assert_eq!((began.len(), ended.len()), (10_001, 10_001));
        assert_eq!(trace.outcome.end, Some(End::Exited(0)));
        let times = trace.events.iter().filter(|event| matches!(event, Event::ThreadTime { .. }));
        assert_eq!(times.count(), 10_001);
    });
}

/// A call that never returns is reported with the time it has taken.
///
/// Guarantee: trace/every-call
#[test]
fn unreturned_call_is_reported_with_its_time() {
    over_each(|subject| {
        for (workload, end) in [
            ("exits_around_a_thread", End::Exited(5)),
            ("is_killed_around_a_thread", End::Killed(libc::SIGKILL as u8)),
        ] {
            let trace = Trace::of(subject, &[workload]);
            let unfinished: Vec<_> = trace
                .named_of("read", trace.fact("blocked"))
                .filter(|call| call.result.is_none())
                .collect();
            assert_eq!(unfinished.len(), 1, "{workload}");
            let (call, seen_ns) = (unfinished[0], trace.seen_ns("rest", "wall"));
            assert_eq!(call.object, Object::Pipe);
            // The workload saw the moment in which the thread was surely blocked; it was a little
            // longer.
            assert!(call.time.sleep_ns >= 190_000_000 && seen_ns >= 200_000_000, "{call:?}");
            assert_eq!(trace.outcome.end, Some(end));
            let (began, ended) = lives(&trace);
            assert_eq!(began.len(), ended.len());
        }
    });
}

/// A thread that calls exec becomes the process, and all other threads end.
///
/// Guarantee: trace/every-call
#[test]
fn exec_by_a_thread_ends_all_others() {
    over_each(|subject| {
        let trace = Trace::of(subject, &["execs_from_a_thread"]);
        let process = trace.fact("process");
        assert_eq!(trace.fact("exec_process"), process);
        let execs: Vec<_> = trace
            .events
            .iter()
            .filter_map(|event| match event {
                Event::Exec { process, former_thread, command, .. } => {
                    Some((u64::from(*process), u64::from(*former_thread), command))
                }
                _ => None,
            })
            .collect();
        assert_eq!(execs.len(), 1);
        assert!(execs[0].0 == process && execs[0].1 != process);
        assert_eq!(execs[0].2, "trace-workload");
        // The program's own start and the thread's: both calls returned.
        let returned: Vec<_> =
            trace.named("execve").map(|call| (call.result, u64::from(call.thread))).collect();
        assert_eq!(returned, [(Some(0), process), (Some(0), process)]);
        // The first thread waited for the other one, and never came back.
        assert!(trace.named_of("futex", process).any(|call| call.result.is_none()));
        assert_eq!(trace.outcome.end, Some(End::Exited(0)));
        let (began, ended) = lives(&trace);
        assert_eq!((began.len(), ended.len()), (2, 2));
    });
}

/// Children created by every kind of fork and clone are traced, and their parents are known.
///
/// Guarantee: trace/every-call
#[test]
fn children_of_every_call_are_traced() {
    over_each(|subject| {
        let trace = Trace::of(subject, &["family"]);
        let process = trace.fact("process");
        let family: HashMap<_, _> = trace
            .events
            .iter()
            .filter_map(|event| match event {
                Event::Began { process, thread, parent, .. } => {
                    Some((u64::from(*thread), (u64::from(*process), u64::from(*parent))))
                }
                _ => None,
            })
            .collect();
        assert_eq!(family.len(), 4);
        assert_eq!(family[&process], (process, u64::from(std::process::id())));
        let (forked, spawned, thread) =
            (trace.fact("forked"), trace.fact("spawned"), trace.fact("thread"));
        assert_eq!(family[&forked], (forked, process));
        assert_eq!(family[&spawned], (spawned, process));
        assert_eq!(family[&thread], (process, process));
        for marked in [process, forked, thread] {
            assert_eq!(trace.named_of("getppid", marked).count(), 1, "{marked}");
        }
        let programs: HashSet<_> = trace
            .events
            .iter()
            .filter_map(|event| match event {
                Event::Exec { process, command, .. } => {
                    Some((u64::from(*process), command.as_str()))
                }
                _ => None,
            })
            .collect();
        assert_eq!(programs, HashSet::from([(spawned, "true")]));
    });
}

/// How a thread began: its process and the parent.
fn beginnings(trace: &Trace, of: u64) -> Vec<(u64, u64)> {
    let beginning = |event: &Event| match event {
        Event::Began { process, thread, parent, .. } if u64::from(*thread) == of => {
            Some((u64::from(*process), u64::from(*parent)))
        }
        _ => None,
    };
    trace.events.iter().filter_map(beginning).collect()
}

/// A thread that clone makes with SIGCHLD among its flags, as processes have it, is a thread.
///
/// Guarantee: trace/every-call
#[test]
fn thread_made_with_sigchld_is_no_process() {
    over_each(|subject| {
        let trace = Trace::of(subject, &["makes_thread_by_clone"]);
        let (process, thread) = (trace.fact("process"), trace.fact("thread"));
        assert_eq!(beginnings(&trace, thread), [(process, process)]);
        let marks = trace.named_of("getppid", thread);
        assert_eq!(marks.map(|call| u64::from(call.process)).collect::<Vec<_>>(), [process]);
        let (began, ended) = lives(&trace);
        assert_eq!((began.len(), ended.len()), (2, 2));
    });
}

/// A child that is made with CLONE_UNTRACED is traced; where its beginning was missed, that is
/// noted.
///
/// Guarantee: trace/every-call
#[test]
fn child_hidden_from_tracers_is_traced() {
    over_each(|subject| {
        let trace = Trace::of(subject, &["makes_untraced"]);
        let (process, child) = (trace.fact("process"), trace.fact("child"));
        assert_eq!(beginnings(&trace, child), [(child, process)]);
        assert_eq!(trace.named_of("getppid", child).count(), 1);
        let (began, ended) = lives(&trace);
        assert_eq!((began.len(), ended.len()), (2, 2));
        let notes = trace.outcome.about.notes.join("\n");
        assert_eq!(notes.contains("CLONE_UNTRACED"), subject.name == "ptrace", "{notes}");
    });
}

/// Guarantee: trace/every-call
#[test]
fn a_call_is_named_by_the_door_that_it_came_through() {
    over_each(|subject| {
        let trace = Trace::of(subject, &["doors"]);
        let process = trace.fact("process");
        let through = |abi, name: &str| {
            let calls = trace.calls().filter(|call| call.abi == abi && call.name() == name);
            calls.map(|call| (u64::from(call.process), call.result)).collect::<Vec<_>>()
        };
        if trace.fact("i386_result") == process {
            assert_eq!(through(Abi::I386, "getpid"), [(process, Some(process as i64))]);
        } else {
            println!("not run: this kernel takes no calls of 32-bit programs");
        }
        assert_eq!(through(Abi::X32, "getpid").len(), 1);
        for name in ["syscall_100000", "syscall_4294967291"] {
            let refused = [(process, Some(-i64::from(libc::ENOSYS)))];
            assert_eq!(through(Abi::X86_64, name), refused, "{name}");
        }
    });
}

/// A call of x32 that a seccomp filter refuses is named as one of x32.
///
/// Guarantee: trace/every-call
#[test]
fn refused_call_of_x32_is_named_as_such() {
    over_each(|subject| {
        let trace = Trace::of(subject, &["filtered_x32"]);
        assert_eq!(trace.fact("went_on"), 1);
        let refused = trace.calls().filter(|call| call.abi == Abi::X32);
        let refused: Vec<_> =
            refused.map(|call| (call.name().into_owned(), call.error())).collect();
        assert_eq!(refused, [("getppid".to_owned(), Some(libc::EXDEV))]);
    });
}

/// A seccomp filter of the program works as without a trace, and the calls it refuses are reported.
///
/// Guarantee: trace/unharmed
#[test]
fn seccomp_filter_works_under_trace() {
    over_each(|subject| {
        let trace = Trace::of(subject, &["filtered"]);
        assert_eq!(trace.fact("went_on"), 1);
        let refused: Vec<_> = trace.named("getppid").map(|call| call.error()).collect();
        assert_eq!(refused, [Some(libc::EXDEV)]);
        let trace = Trace::of(subject, &["filtered_to_death"]);
        assert!(!trace.has_fact("went_on"));
        assert_eq!(trace.outcome.end, Some(End::Killed(libc::SIGSYS as u8)));
    });
}

/// A call for which a seccomp filter kills did not return, of a process as of a thread.
///
/// Guarantee: trace/every-call
#[test]
fn call_killed_by_seccomp_did_not_return() {
    over_each(|subject| {
        let trace = Trace::of(subject, &["filtered_to_death"]);
        let results: Vec<_> = trace.named("getppid").map(|call| call.result).collect();
        assert_eq!(results, [None::<i64>]);
        let trace = Trace::of(subject, &["filtered_thread"]);
        let killed = trace.named_of("getppid", trace.fact("killed"));
        let results: Vec<_> = killed.map(|call| call.result).collect();
        assert_eq!(results, [None::<i64>]);
        assert_eq!((trace.fact("went_on"), trace.outcome.end), (1, Some(End::Exited(0))));
    });
}

/// A call that a seccomp filter traps was not made: the number that the kernel leaves for an answer
/// is no result, of `clone` no child, and the handler's answer is the program's own.
///
/// Guarantee: trace/every-call
#[test]
fn trapped_call_was_not_made() {
    over_each(|subject| {
        let trace = Trace::of(subject, &["trapped"]);
        for name in ["getppid", "clone"] {
            assert_eq!(trace.fact(name), 4711);
            let results: Vec<_> = trace.named(name).map(|call| call.result).collect();
            assert_eq!(results, [Some(Call::TRAPPED)], "{name}");
        }
        let signal = |event: &Event| match event {
            Event::Signal { signal, .. } => Some(i32::from(*signal)),
            _ => None,
        };
        let signals: Vec<_> = trace.events.iter().filter_map(signal).collect();
        assert_eq!(signals, [libc::SIGSYS; 2]);
        let notes = trace.outcome.about.notes.join("\n");
        assert!(!notes.contains("CLONE_UNTRACED"), "{notes}");
        assert_eq!(trace.outcome.end, Some(End::Exited(0)));
    });
}

/// A call that returned stays one that did when SIGSYS ends its thread later: sent from outside, or
/// because a seccomp filter kills the process for a call of another thread.
///
/// Guarantee: trace/every-call
#[test]
fn returned_call_stays_so_when_sigsys_ends_its_thread() {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let is_filtered = !status.contains("Seccomp:\t0\n");
    over_each(|subject| {
        if is_filtered && subject.name == "ptrace" {
            return println!("not run over ptrace: all threads have the filter of this container");
        }
        for workload in ["is_sent_sigsys_after_read", "filtered_to_death_after_read"] {
            let trace = Trace::of(subject, &[workload]);
            assert_eq!(trace.outcome.end, Some(End::Killed(libc::SIGSYS as u8)));
            let last = trace.named_of("read", trace.fact("reader")).last();
            assert_eq!(last.map(|call| call.result), Some(Some(0)), "{workload}");
        }
    });
}

/// The kind of a descriptor is known, also after its number was reused.
///
/// Guarantee: trace/descriptors
#[test]
fn reused_descriptor_is_recognized() {
    over_each(|subject| {
        let trace = Trace::of(subject, &["descriptors"]);
        for (name, object) in [
            ("file", Object::File),
            ("pipe", Object::Pipe),
            ("socket", Object::Socket),
            ("null", Object::CharacterDevice),
            ("event", Object::EventFd),
        ] {
            let calls = trace.calls().filter(|call| matches!(&*call.name(), "write" | "sendto"));
            let writes = calls
                .filter(|call| call.arguments[0] == trace.fact(name) && call.arguments[2] == 8);
            let objects: Vec<_> = writes.map(|call| call.object).collect();
            assert_eq!(objects, [object; 2], "{name}");
        }
        assert_eq!(trace.fact("reused"), 1);
        let again: Vec<_> = trace.named("write").filter(|call| call.arguments[2] == 77).collect();
        assert_eq!(again.len(), 1);
        assert_eq!((again[0].arguments[0], again[0].object), (trace.fact("file"), Object::Pipe));
        assert!(trace.named("mmap").any(|call| call.object == Object::Anonymous));
    });
}

/// A thread may have descriptors of its own: a number is what its thread has there.
///
/// Guarantee: trace/descriptors
#[test]
fn descriptors_of_a_thread_are_told_apart() {
    over_each(|subject| {
        let trace = Trace::of(subject, &["makes_thread_with_own_descriptors"]);
        let file = trace.fact("file");
        let objects = |thread| {
            let writes = trace.named_of("write", thread);
            let writes = writes.filter(|call| call.arguments[0] == file);
            writes.map(|call| call.object).collect::<Vec<_>>()
        };
        assert_eq!(objects(trace.fact("process")), [Object::File; 2]);
        assert_eq!(objects(trace.fact("thread")), [Object::Pipe]);
    });
}

/// A call that the kernel restarts is distinguished from a call that the program repeats.
///
/// Guarantee: trace/restarts
#[test]
fn restarted_call_differs_from_repeated_call() {
    over_each(|subject| {
        let trace = Trace::of(subject, &["restarts"]);
        assert_eq!((trace.fact("again_failed"), trace.fact("fails_failed")), (0, 1));
        let reads: Vec<_> = trace
            .named("read")
            .filter(|call| call.object == Object::Pipe && call.arguments[2] == 1)
            .collect();
        let restarted: Vec<_> = reads.iter().map(|call| call.restarted).collect();
        assert_eq!(restarted, [false, true, false, false], "{reads:?}");
        // A stop within a sleep, and the signal to go on: each time the rest of the sleep is a call
        // of its own to the kernel.
        let rests = trace
            .calls()
            .filter(|call| call.restarted && &*call.name() == "restart_syscall")
            .count();
        let is_sleep =
            |name: &str| matches!(name, "nanosleep" | "clock_nanosleep" | "restart_syscall");
        let broken_off = trace
            .calls()
            .filter(|call| is_sleep(&call.name()) && call.error() == Some(516))
            .count();
        assert!(rests > 0 && rests == broken_off, "{rests} of {broken_off}");
    });
}
