//! The features of the BPF backend alone: a buffer that may be too small, control groups,
//! operations of io_uring, privileges.

use std::collections::HashSet;
use std::time::Duration;

use holdfast_trace::{Backend, BpfBackend, Event, Object, Program, Settings, StopFlag, Target};

use crate::group::Group;
use crate::life::{end, tracer_of_another_user, until, workload};
use crate::trace::Facts;

/// The backend, unless it cannot be had here.
fn bpf(settings: Settings, buffer_bytes: u32) -> Option<Box<BpfBackend>> {
    match BpfBackend::with_buffer(settings, buffer_bytes) {
        Ok(backend) => Some(Box::new(backend)),
        Err(error) => {
            println!("not run: {error}");
            None
        }
    }
}

fn started(words: &[&str]) -> Settings {
    Settings::new(Target::Start(Program { command: words.iter().map(Into::into).collect() }))
}

/// How many records became events, and how many were lost.
#[derive(Debug, Default)]
struct Count {
    came: u64,
    lost: u64,
}

impl Count {
    fn add(&mut self, event: &Event) {
        match event {
            Event::Lost { events } => self.lost += events,
            // It comes with the end of its thread.
            Event::ThreadTime { .. } => {}
            _ => self.came += 1,
        }
    }
}

/// A ring buffer that is too small loses records, and each lost record is counted.
///
/// Guarantee: trace/every-call
#[test]
fn small_buffer_counts_every_lost_record() {
    let words = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=100000", "status=none"];
    let mut counts = [Count::default(), Count::default()];
    for (count, buffer_bytes) in counts.iter_mut().zip([64 << 20, 4096]) {
        let Some(backend) = bpf(started(&words), buffer_bytes) else { return };
        let outcome = backend.run(&mut |event| count.add(&event)).unwrap();
        assert_eq!(outcome.about.lost, count.lost);
    }
    let [whole, pressed] = counts;
    assert!(whole.lost == 0 && whole.came > 200_000, "{whole:?}");
    assert!(pressed.lost > 0 && pressed.came > 0, "{pressed:?}");
    assert_eq!(pressed.came + pressed.lost, whole.came);
}

/// Attaching covers every thread of a running program and threads created later.
///
/// Guarantee: trace/attach
#[test]
fn attach_covers_all_and_later_threads() {
    let facts = Facts::new();
    let mut child = workload(&facts, &["ticks_in_threads", "6000"]).spawn().unwrap();
    until("all threads", || facts.get("tick").is_some());
    let settings = Settings::new(Target::Attach(vec![child.id()]));
    let Some(backend) = bpf(settings, 1 << 20) else { return end(child) };
    let (mut began, mut marked, mut ended) = (HashSet::new(), HashSet::new(), HashSet::new());
    backend
        .run(&mut |event| match event {
            Event::Began { thread, .. } => assert!(began.insert(thread)),
            Event::Call(call) if call.name() == "getppid" => {
                marked.insert(call.thread);
                if marked.len() == 4 {
                    // After which it makes a last one.
                    facts.say_it_is_over();
                }
            }
            Event::Ended { thread, .. } => assert!(ended.insert(thread)),
            _ => {}
        })
        .unwrap();
    assert!(child.wait().unwrap().success());
    // The first thread makes none.
    assert_eq!((began.len(), marked.len()), (6, 5));
    assert!(marked.is_subset(&began) && !marked.contains(&child.id()));
    assert_eq!(began, ended);
}

/// Every thread of a process that moves into the control group is traced.
///
/// Guarantee: trace/control-groups
#[test]
fn process_moved_into_cgroup_is_traced() {
    let Some(group) = Group::new() else {
        println!("not run: no control group can be made here");
        return;
    };
    let facts = [Facts::new(), Facts::new()];
    let inside = workload(&facts[0], &["ticks", "6000"]).spawn().unwrap();
    let moved = workload(&facts[1], &["ticks_in_threads", "6000"]).spawn().unwrap();
    until("all threads", || facts[1].get("tick").is_some());
    group.take(inside.id());
    let stop = StopFlag::default();
    let settings = Settings {
        stop: stop.clone(),
        limit: Some(Duration::from_secs(60)),
        ..Settings::new(Target::Cgroup(group.path().to_owned()))
    };
    let mut marked = HashSet::new();
    if let Some(backend) = bpf(settings, 1 << 20) {
        backend
            .run(&mut |event| {
                if let Event::Call(call) = event
                    && call.name() == "getppid"
                    && marked.insert((call.process, call.thread))
                {
                    match marked.len() {
                        // The group was looked through.
                        1 => group.take(moved.id()),
                        5 => stop.raise(),
                        _ => {}
                    }
                }
            })
            .unwrap();
        let threads = marked.iter().filter(|(process, _)| *process == moved.id());
        assert_eq!(threads.count(), 4, "{marked:?}");
    }
    [inside, moved].into_iter().for_each(end);
}

/// Processes in a control group, and those that enter it, are traced; no others are.
///
/// Guarantee: trace/control-groups
#[test]
fn only_processes_of_the_cgroup_are_traced() {
    let Some(group) = Group::new() else {
        println!("not run: no control group can be made here");
        return;
    };
    let facts = [Facts::new(), Facts::new(), Facts::new()];
    let children =
        facts.each_ref().map(|facts| workload(facts, &["ticks", "100000"]).spawn().unwrap());
    let [inside, moved, outside] = children.each_ref().map(std::process::Child::id);
    group.take(inside);
    let stop = StopFlag::default();
    let settings = Settings {
        stop: stop.clone(),
        limit: Some(Duration::from_secs(60)),
        ..Settings::new(Target::Cgroup(group.path().to_owned()))
    };
    if let Some(backend) = bpf(settings, 1 << 20) {
        let mut seen = HashSet::new();
        backend
            .run(&mut |event| {
                if let Event::Call(call) = event
                    && call.name() == "getppid"
                    && seen.insert(call.process)
                {
                    match seen.len() {
                        1 => group.take(moved),
                        _ => stop.raise(),
                    }
                }
            })
            .unwrap();
        assert_eq!(seen, HashSet::from([inside, moved]), "and not {outside}");
    }
    children.into_iter().for_each(end);
}

/// Operations of io_uring are counted separately from system calls.
///
/// Guarantee: trace/io-uring
#[test]
fn io_uring_operations_are_counted_apart() {
    let facts = Facts::new();
    let command = facts.command(&["queues_operations", "25"]);
    let settings = Settings::new(Target::Start(Program { command }));
    let Some(backend) = bpf(settings, 1 << 20) else { return };
    let (mut operations, mut calls, mut has_ended) = (Vec::new(), 0, false);
    backend
        .run(&mut |event| match event {
            Event::IoUring { opcode, count, .. } => {
                assert!(!has_ended);
                operations.push((opcode, count));
            }
            Event::Call(call) if call.name() == "io_uring_enter" => {
                assert_eq!(call.object, Object::IoUring);
                calls += 1;
            }
            Event::Ended { .. } => has_ended = true,
            _ => {}
        })
        .unwrap();
    if facts.get("refused").is_some() {
        println!("not run: this kernel takes no io_uring");
        return;
    }
    assert_eq!((facts.get("queued"), calls), (Some(25), 25));
    assert_eq!(operations, [(0, 25)]);
}

/// Operations that a program queues after the end of a trace are not counted.
///
/// Guarantee: trace/io-uring
#[test]
fn io_uring_operations_after_the_end_are_not_counted() {
    let facts = Facts::new();
    let child = workload(&facts, &["queues_operations", "100000000"]).spawn().unwrap();
    until("the ring", || facts.get("ready").is_some() || facts.get("refused").is_some());
    if facts.get("refused").is_some() {
        end(child);
        return println!("not run: this kernel takes no io_uring");
    }
    let settings = Settings {
        limit: Some(Duration::from_millis(200)),
        ..Settings::new(Target::Attach(vec![child.id()]))
    };
    let (mut operations, mut calls) = (0_u64, 0_u64);
    let outcome = bpf(settings, 64 << 20).map(|backend| {
        backend.run(&mut |event| match event {
            Event::IoUring { count, .. } => operations += count,
            Event::Call(call) if call.name() == "io_uring_enter" => calls += 1,
            _ => {}
        })
    });
    end(child);
    let Some(outcome) = outcome else { return };
    let lost = outcome.unwrap().about.lost;
    // Each call queues one. Of those at the two ends of the trace, one of both may be missed.
    assert!(
        calls > 0 && (lost > 0 || operations.abs_diff(calls) <= 4),
        "{operations} operations of {calls} calls, {lost} lost"
    );
}

/// Without the privilege, the BPF backend fails with an error that names the missing privilege.
///
/// Guarantee: trace/no-privilege
#[test]
fn unprivileged_backend_names_the_privilege() {
    if !rustix::process::geteuid().is_root() {
        let Err(error) = BpfBackend::new(started(&["true"])) else { panic!() };
        assert!(error.to_string().contains("ptrace"), "{error}");
        return;
    }
    let (_place, tracer) = tracer_of_another_user(&["bpf", "true"]);
    let output = tracer.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("bpf cannot trace here: ") && said.contains("--backend ptrace"),
        "{said}"
    );
    assert!(said.contains("CAP_BPF") || said.contains("install clang"), "{said}");
}
