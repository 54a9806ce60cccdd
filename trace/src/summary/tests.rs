//! The properties of every report, whatever the events were.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::counted::PAPER_SLEEP_FROM_NS;
use super::*;
use crate::{End, Object};

const READ: u32 = 0;
const STAT: u32 = 4;
const POLL: u32 = 7;
const CLONE: u32 = 56;
const VFORK: u32 = 58;
const EXIT_GROUP: u32 = 231;
const RESTART: u32 = 219;

fn call(thread: u32, number: u32, result: Option<i64>, start_ns: u64, time: Split) -> Call {
    Call {
        process: 1,
        thread,
        abi: Abi::X86_64,
        number,
        arguments: [0; 6],
        result,
        start_ns,
        time,
        object: Object::None,
        restarted: false,
    }
}

fn cpu(ns: u64) -> Split {
    Split::of(ns, 0, 0, 0, 0)
}

fn began(process: u32, thread: u32, command: &str) -> Event {
    Event::Began { at_ns: 0, process, thread, parent: 0, command: command.to_owned() }
}

fn report(options: Options, events: impl IntoIterator<Item = Event>) -> Report {
    let mut summary = Summary::new(options);
    events.into_iter().for_each(|event| summary.add(&event));
    summary.into_report(Source::default())
}

fn paper_sleep() -> Options {
    Options { sleep: Sleep::Paper, ..Options::default() }
}

/// Many calls of all kinds, known and unknown, of many threads.
fn many() -> Vec<Event> {
    let mut generator = SmallRng::seed_from_u64(1);
    let mut random = |below: u64| generator.random_range(0..below);
    let mut events = vec![began(1, 1, "main"), began(1, 2, "main"), began(7, 7, "child")];
    for index in 0..20_000 {
        let number = random(480) as u32;
        let time = Split::of(random(5_000), random(90_000), random(50), random(7_000), random(900));
        let result = match random(10) {
            0 => Some(-(random(600) as i64)),
            1 if index % 50 == 0 => None,
            _ => Some(random(4096) as i64),
        };
        let mut call = call([1, 2, 7][random(3) as usize], number, result, index * 10_000, time);
        call.process = if call.thread == 7 { 7 } else { 1 };
        call.abi = [Abi::X86_64, Abi::X86_64, Abi::I386, Abi::X32][random(4) as usize];
        call.object = [Object::File, Object::Socket, Object::Unknown][random(3) as usize];
        events.push(Event::Call(call));
    }
    events
}

/// Every call is counted once in its class, part, row, thread and stack.
///
/// Guarantee: trace/parts-add-up
#[test]
fn every_call_is_counted_once_in_each_view() {
    for scheme in [Scheme::Paper, Scheme::Refined] {
        let report = report(Options { scheme, sleep: Sleep::Measured }, many());
        let total = (report.total.calls, report.total.time.wall_ns, report.total.errors);
        assert_eq!(total.0, 20_000);
        let of = |sums: &Sums| (sums.calls, sums.time.wall_ns, sums.errors);
        let add = |one: (u64, u64, u64), two: (u64, u64, u64)| {
            (one.0 + two.0, one.1 + two.1, one.2 + two.2)
        };
        let fold = |rows: Vec<(u64, u64, u64)>| rows.into_iter().fold((0, 0, 0), add);
        assert_eq!(fold(report.classes.iter().map(|row| of(&row.sums)).collect()), total);
        assert_eq!(fold(report.subclasses.iter().map(|row| of(&row.sums)).collect()), total);
        assert_eq!(fold(report.calls.iter().map(|row| of(&row.sums)).collect()), total);
        let threads = report.threads.iter().map(|row| (row.calls, row.time.wall_ns, row.errors));
        assert_eq!(fold(threads.collect()), total);
        let processes =
            report.processes.iter().map(|row| (row.calls, row.time.wall_ns, row.errors));
        assert_eq!(fold(processes.collect()), total);
        assert_eq!(report.stacks.iter().map(|stack| stack.time.wall_ns).sum::<u64>(), total.1);
        let bars = report.calls.iter().flat_map(|row| &row.distribution.as_ref().unwrap().bars);
        assert_eq!(bars.map(|bar| bar.calls).sum::<u64>(), total.0);
        for percent in [
            report.classes.iter().map(|row| row.sums.calls_percent).sum::<f64>(),
            report.classes.iter().map(|row| row.sums.time_percent).sum::<f64>(),
            report.classes.iter().map(|row| row.sums.awake_percent).sum::<f64>(),
        ] {
            assert!((percent - 100.0).abs() < 1e-9, "{percent}");
        }
        let parts = report.total.time;
        let sum = parts.cpu_ns
            + parts.sleep_ns
            + parts.wait_ns
            + parts.io_wait_ns
            + parts.queue_ns
            + parts.untold_ns;
        assert_eq!(sum, parts.wall_ns);
    }
}

/// The row of a subclass counts each call once, even if several paths lead to it.
#[test]
fn subclass_row_counts_each_kind_once() {
    let mut events: Vec<_> =
        [READ, READ, STAT].map(|number| Event::Call(call(1, number, Some(0), 0, cpu(10)))).into();
    let mut wide = call(1, STAT, Some(0), 0, cpu(10));
    wide.abi = Abi::X32;
    events.push(Event::Call(wide));
    let report = report(Options::default(), events);
    assert_eq!(report.class(Class::Metadata).unwrap().sums.distinct, 1);
    assert_eq!(report.class(Class::Metadata).unwrap().sums.calls, 2);
    assert_eq!(report.total.distinct, 2);
}

/// Measured sleep is excluded from the cost; waiting for a device never is.
///
/// Guarantee: trace/classes
/// Guarantee: trace/device-waits
#[test]
fn measured_sleep_is_left_out_device_wait_never() {
    let time = Split::of(1, 20, 300, 4_000, 50_000);
    let awake = |number, arguments: [u64; 6]| {
        let mut call = call(1, number, Some(0), 0, time);
        call.arguments = arguments;
        report(Options::default(), [Event::Call(call)]).total.awake_ns
    };
    assert_eq!(awake(READ, [0; 6]), 54_301, "a wait that is no known waiter's stays");
    assert_eq!(awake(VFORK, [0; 6]), 54_001);
    assert_eq!(awake(CLONE, [0x4111, 0, 0, 0, 0, 0]), 54_001);
    assert_eq!(awake(CLONE, [0x11, 0, 0, 0, 0, 0]), 54_301);
}

/// The rule of the paper excludes a long wait completely and other waits not at all.
///
/// Guarantee: trace/classes
/// Guarantee: trace/device-waits
#[test]
fn paper_rule_takes_long_waits_as_sleep() {
    let long = Split::of(PAPER_SLEEP_FROM_NS, 0, 0, 0, 0);
    let asleep = Split::of(1_000, 5_000_000, 0, 0, 0);
    let awake = |number, time| {
        report(paper_sleep(), [Event::Call(call(1, number, Some(0), 0, time))]).total.awake_ns
    };
    assert_eq!(awake(POLL, long), 0);
    assert_eq!(awake(POLL, cpu(PAPER_SLEEP_FROM_NS - 1)), PAPER_SLEEP_FROM_NS - 1);
    assert_eq!(awake(RESTART, cpu(10)), 0);
    assert_eq!(awake(READ, asleep), asleep.wall_ns, "a read that sleeps was taken for work");
}

#[test]
fn bytes_errors_and_interrupted_calls_are_told_apart() {
    let results = [Some(100), Some(-2), Some(-2), Some(-11), Some(-512), Some(-516), None, Some(0)];
    let report = report(
        Options::default(),
        results.map(|result| Event::Call(call(1, READ, result, 0, cpu(5)))),
    );
    let read = report.call("read").unwrap();
    let sums = &read.sums;
    assert_eq!((sums.calls, sums.errors, sums.interrupted, sums.unfinished), (8, 3, 2, 1));
    assert_eq!((sums.bytes_in, sums.bytes_out), (100, 0));
    assert_eq!(read.errors_by_code[0], ErrorCount { name: "ENOENT".to_owned(), calls: 2 });
    assert_eq!(report.unfinished.len(), 1);
}

/// A call that a filter trapped counts as a call, and has no error and no bytes.
///
/// Guarantee: trace/every-call
#[test]
fn trapped_call_has_no_error_and_no_bytes() {
    let trapped = Event::Call(call(1, READ, Some(Call::TRAPPED), 0, cpu(5)));
    let report = report(Options::default(), [trapped]);
    let sums = &report.total;
    assert_eq!((sums.calls, sums.errors, sums.interrupted, sums.unfinished), (1, 0, 0, 0));
    assert_eq!((sums.bytes_in, sums.bytes_out), (0, 0));
    assert!(report.unfinished.is_empty());
}

/// A call that ends its thread is not listed as unfinished.
#[test]
fn exit_call_is_not_unfinished() {
    let report = report(Options::default(), [Event::Call(call(1, EXIT_GROUP, None, 0, cpu(5)))]);
    assert!(report.unfinished.is_empty());
    assert_eq!(report.total.calls, 1);
}

/// The sums of ten thousand short-lived threads fit in a bounded number of rows.
///
/// Guarantee: trace/bounded
#[test]
fn ten_thousand_threads_fit_in_bounded_rows() {
    let mut summary = Summary::default();
    for index in 0..10_000_u32 {
        let (thread, at_ns) = (100 + index % 3_000, u64::from(index) * 1_000);
        summary.add(&Event::Began {
            at_ns,
            process: 1,
            thread,
            parent: 1,
            command: "worker".to_owned(),
        });
        summary.add(&Event::Call(call(thread, READ, Some(1), at_ns, cpu(u64::from(index)))));
        summary.add(&Event::Ended { at_ns, process: 1, thread, end: Some(End::Exited(0)) });
    }
    let report = summary.into_report(Source::default());
    assert_eq!(report.threads.len(), rows::ROWS_MAX + 1);
    let rest = report.threads.last().unwrap();
    assert_eq!((rest.process, rest.command.as_str()), (0, "all others"));
    assert_eq!(report.threads.iter().map(|row| row.threads).sum::<u64>(), 10_000);
    assert_eq!(report.threads.iter().map(|row| row.calls).sum::<u64>(), 10_000);
    assert_eq!(report.threads[0].time.wall_ns, 9_999, "the busiest comes first");
}

/// Forty thousand processes are counted; their names and sums fit in a bounded number of rows.
///
/// Guarantee: trace/bounded
#[test]
fn forty_thousand_processes_fit_in_bounded_rows() {
    const PROCESSES: u32 = 40_000;
    let names = ["as", "cc", "ld"];
    let mut times = [0; 3];
    let mut summary = Summary::default();
    summary.add(&began(1, 1, "make"));
    // Numbers come again, as the kernel gives them.
    let number = |index: u32| 2 + index % 36_000;
    // Two at a time: one begins before the one before it ends.
    for index in 0..=PROCESSES {
        let at_ns = u64::from(index) * 1_000;
        if index < PROCESSES {
            let (process, name) = (number(index), index as usize % names.len());
            times[name] += u64::from(index);
            summary.add(&Event::Began {
                at_ns,
                process,
                thread: process,
                parent: 1,
                command: String::new(),
            });
            let command = names[name].to_owned();
            summary.add(&Event::Exec { at_ns, process, former_thread: process, command });
        }
        if let Some(before) = index.checked_sub(1) {
            let process = number(before);
            let mut call = call(process, READ, Some(1), at_ns, cpu(u64::from(before)));
            call.process = process;
            summary.add(&Event::Call(call));
            summary.add(&Event::ThreadTime {
                at_ns,
                process,
                thread: process,
                cpu_ns: 1,
                queue_ns: 0,
            });
            summary.add(&Event::Ended {
                at_ns,
                process,
                thread: process,
                end: Some(End::Exited(0)),
            });
        }
    }
    let report = summary.into_report(Source::default());
    assert_eq!(report.processes.len(), rows::ROWS_MAX + 1);
    assert_eq!(
        report.processes.iter().map(|row| row.processes).sum::<u64>(),
        u64::from(PROCESSES) + 1
    );
    assert_eq!(report.processes.iter().map(|row| row.calls).sum::<u64>(), u64::from(PROCESSES));
    let stacks: Vec<_> =
        report.stacks.iter().map(|stack| (stack.command.as_str(), stack.time.wall_ns)).collect();
    assert_eq!(stacks, std::array::from_fn::<_, 3, _>(|index| (names[index], times[index])));
    let busiest = report.processes.first().unwrap();
    assert_eq!((busiest.process, busiest.command.as_str()), (number(PROCESSES - 1), "as"));
    let text = crate::report::terminal(&report, &crate::report::Look::default());
    assert!(text.contains("40,001 processes"), "{text}");
}

/// The sum of threads beyond the limit has no end of its own when one of them ends.
#[test]
fn sum_of_threads_does_not_end_with_one() {
    const THREADS: u32 = 33_000;
    let mut summary = Summary::default();
    (1..=THREADS).for_each(|thread| summary.add(&began(1, thread, "worker")));
    let end = Some(End::Exited(7));
    summary.add(&Event::Ended { at_ns: 9, process: 1, thread: THREADS, end });
    let report = summary.into_report(Source::default());
    let rest = report.threads.last().unwrap();
    assert_eq!((rest.command.as_str(), &rest.end, rest.ended_ns), ("all others", &None, None));
    assert_eq!(report.threads.iter().map(|row| row.threads).sum::<u64>(), u64::from(THREADS));
}

/// A process lives until the last of its threads ends.
///
/// Guarantee: trace/bounded
#[test]
fn process_lasts_as_long_as_its_threads() {
    let ended = |thread| Event::Ended { at_ns: 6, process: 1, thread, end: Some(End::Exited(0)) };
    let late = |thread| Event::Call(call(thread, READ, Some(1), 9, cpu(10)));
    let events = [
        began(1, 1, "server"),
        began(1, 2, ""),
        ended(1),
        late(2),
        began(1, 3, ""),
        ended(2),
        late(3),
    ];
    let report =
        report(Options::default(), events.into_iter().chain([ended(3), began(1, 1, "next")]));
    let rows: Vec<_> =
        report.processes.iter().map(|row| (row.command.as_str(), row.threads, row.calls)).collect();
    assert_eq!(rows, [("server", 3, 2), ("next", 1, 0)]);
}

/// A process whose first thread is reported after others, as their numbers are smaller, is one
/// process.
///
/// Guarantee: trace/every-call
#[test]
fn late_first_thread_makes_no_second_process() {
    let read = |thread| Event::Call(call(thread, READ, Some(1), 9, cpu(10)));
    let ended = Event::Ended { at_ns: 9, process: 1, thread: 5, end: Some(End::Exited(0)) };
    let events = [
        began(1, 5, "server"),
        began(1, 6, "server"),
        read(5),
        began(1, 1, "server"),
        read(1),
        ended,
        read(1),
    ];
    let report = report(Options::default(), events);
    let rows: Vec<_> =
        report.processes.iter().map(|row| (row.command.as_str(), row.threads, row.calls)).collect();
    assert_eq!(rows, [("server", 3, 3)]);
    assert_eq!(report.threads.len(), 3);
}

/// Guarantee: trace/bounded
#[test]
fn numbers_and_names_without_end_end_in_one_row() {
    let mut summary = Summary::default();
    for index in 0..5_000_u32 {
        summary.add(&began(index, index, &format!("program {index}")));
        let mut call = call(index, 1_000_000 + index, Some(0), 0, cpu(1));
        call.process = index;
        summary.add(&Event::Call(call));
    }
    let report = summary.into_report(Source::default());
    assert_eq!(report.calls.len(), UNKNOWN_MAX + 1);
    let rest = report.call("other numbers").unwrap();
    assert_eq!((rest.sums.calls, rest.subclass), (5_000 - UNKNOWN_MAX as u64, Subclass::System));
    let names: BTreeSet<_> = report.stacks.iter().map(|stack| stack.command.as_str()).collect();
    assert_eq!(names.len(), COMMANDS_MAX);
}

#[test]
fn a_number_that_is_given_again_is_another_thread() {
    let time =
        |thread, cpu_ns| Event::ThreadTime { at_ns: 5, process: 1, thread, cpu_ns, queue_ns: 0 };
    let ended = |thread| Event::Ended { at_ns: 6, process: 1, thread, end: Some(End::Killed(9)) };
    let report = report(
        Options::default(),
        [
            began(1, 1, "main"),
            began(1, 2, ""),
            Event::Call(call(2, READ, Some(1), 0, cpu(10))),
            time(2, 30),
            ended(2),
            began(1, 2, "second"),
            Event::Call(call(2, READ, Some(1), 9, cpu(20))),
        ],
    );
    let rows: Vec<_> = report.threads.iter().filter(|row| row.thread == 2).collect();
    assert_eq!(rows.len(), 2);
    assert_eq!(
        (rows[0].command.as_str(), rows[0].thread_cpu_ns, rows[0].end.as_deref()),
        ("second", None, None)
    );
    let first = (rows[1].command.as_str(), rows[1].thread_cpu_ns, rows[1].end.as_deref());
    assert_eq!(first, ("main", Some(30), Some("signal 9")), "named by its process");
    assert_eq!(report.processes[0].threads, 3);
}

/// After exec by another thread, the program has the ID of the process.
#[test]
fn exec_by_another_thread_takes_the_process_id() {
    let report = report(
        Options::default(),
        [
            began(1, 1, "shell"),
            began(1, 2, "shell"),
            Event::Call(call(2, READ, Some(1), 0, cpu(10))),
            Event::Exec { at_ns: 1, process: 1, former_thread: 2, command: "tool".to_owned() },
            Event::Call(call(1, STAT, Some(1), 2, cpu(10))),
        ],
    );
    let row = report.threads.iter().find(|row| row.command == "tool").unwrap();
    assert_eq!((row.thread, row.calls), (1, 2));
    let stacks: Vec<_> =
        report.stacks.iter().map(|stack| (stack.command.as_str(), stack.name.as_str())).collect();
    assert_eq!(stacks, [("shell", "read"), ("tool", "stat")]);
}

/// Sums imported from another tool become a report without single calls.
#[test]
fn sums_of_another_tool_make_a_report() {
    let mut summary = Summary::new(paper_sleep());
    summary.add_sum("poll", 10, 1, 5_000_000);
    summary.add_sum("stat", 1_000, 900, 3_000_000);
    summary.add_sum("stat64", 1, 0, 2_000_000);
    let report = summary.into_report(Source::default());
    assert_eq!(report.total.calls, 1_011);
    assert_eq!(report.total.time.untold_ns, 10_000_000);
    assert!(!report.has_split() && report.calls.iter().all(|row| row.distribution.is_none()));
    assert_eq!(report.call("poll").unwrap().sums.awake_ns, 0);
    assert_eq!(report.class(Class::Metadata).unwrap().sums.awake_percent, 100.0);
}

#[test]
fn what_was_lost_and_what_is_no_call_is_told() {
    let report = report(
        Options::default(),
        [
            Event::Lost { events: 3 },
            Event::Lost { events: 4 },
            Event::IoUring { at_ns: 0, process: 1, thread: 1, opcode: 22, count: 50 },
            Event::Signal { at_ns: 0, process: 1, thread: 1, signal: 15 },
        ],
    );
    assert_eq!(report.source.events_lost, 7);
    assert_eq!(report.io_uring, [Count { name: "READ".to_owned(), count: 50 }]);
    assert_eq!(report.signals, [Count { name: "SIGTERM".to_owned(), count: 1 }]);
}
