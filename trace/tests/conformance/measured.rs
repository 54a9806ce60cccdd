//! Times: every part of the split, each with a workload that has nothing else.

use crate::subject::{is_near, timed_over_each};
use crate::trace::{Trace, sum};

const SECOND_NS: u64 = 1_000_000_000;

/// A sleeping thread is not charged for the work of a reading thread.
///
/// Guarantee: trace/parts-add-up
/// Guarantee: trace/own-time-only
#[test]
fn sleeper_is_not_charged_for_a_reader() {
    timed_over_each(|subject| {
        let trace = Trace::of(subject, &["sleeper_beside_reader"]);
        let futexes: Vec<_> = trace.named_of("futex", trace.fact("sleeper")).collect();
        let slept = futexes.iter().find(|call| call.error() == Some(libc::ETIMEDOUT)).unwrap();
        let time = slept.time;
        assert!(
            subject.is_within(time.wall_ns, SECOND_NS, trace.seen_ns("sleeper", "wall")),
            "{time:?}"
        );
        assert!(
            subject.is_at_most(
                time.cpu_ns,
                trace.seen_ns("sleeper", "cpu"),
                trace.running_at_most_ns("sleeper", SECOND_NS)
            ) && time.cpu_ns < SECOND_NS / 20,
            "{time:?}"
        );
        assert_eq!((time.wait_ns, time.io_wait_ns), (0, 0));
        assert!(time.sleep_ns > SECOND_NS / 20 * 19, "{time:?}");
        // Of which the other thread has its own: what it counted in all, for a loop of hardly
        // anything else.
        let reads = trace
            .named_of("read", trace.fact("reader"))
            .filter(|call| call.arguments[2] == 1 << 20);
        assert_eq!(reads.count() as u64, trace.fact("reads"));
        let reads = sum(trace.named_of("read", trace.fact("reader")));
        assert!(
            subject.is_at_most(
                reads.cpu_ns,
                trace.seen_ns("reader", "cpu"),
                trace.running_at_most_ns("reader", 0)
            ),
            "{reads:?}"
        );
        assert!(reads.cpu_ns > trace.seen_ns("reader", "cpu") / 3, "{reads:?}");
    });
}

/// A parent that waits is not charged for the work of its child.
///
/// Guarantee: trace/own-time-only
#[test]
fn waiting_parent_is_not_charged_for_its_child() {
    timed_over_each(|subject| {
        let trace = Trace::of(subject, &["waits_for_busy_child"]);
        let time =
            sum(trace.named("wait4").filter(|call| call.arguments[0] == trace.fact("child")));
        assert!(
            subject.is_within(time.wall_ns, 400_000_000, trace.seen_ns("parent", "wall")),
            "{time:?}"
        );
        assert!(
            subject.is_at_most(
                time.cpu_ns,
                trace.seen_ns("parent", "cpu"),
                trace.running_at_most_ns("parent", 0)
            ) && time.cpu_ns < 25_000_000,
            "{time:?}"
        );
        assert!(time.sleep_ns > time.wall_ns / 2 && time.io_wait_ns == 0, "{time:?}");
        // And the child's own time is told apart from its calls'.
        let child_cpu_ns = trace.thread_time(trace.fact("child")).0;
        assert!(child_cpu_ns >= trace.fact("child_cpu_ns") / 20 * 19, "{child_cpu_ns}");
        let calls = sum(trace.calls().filter(|call| u64::from(call.thread) == trace.fact("child")));
        assert!(calls.cpu_ns < trace.fact("child_cpu_ns") / 4, "{calls:?}");
    });
}

/// Guarantee: trace/own-time-only
#[test]
fn so_many_sleeps_of_so_long_are_measured_as_such() {
    timed_over_each(|subject| {
        for (count, time_us) in [(50, 10_000), (200, 1_000)] {
            let trace = Trace::of(subject, &["sleeps", &count.to_string(), &time_us.to_string()]);
            let sleeps: Vec<_> = trace.named("clock_nanosleep").collect();
            assert_eq!(sleeps.len(), count);
            let time = sum(sleeps.iter().copied());
            let asked_ns = count as u64 * time_us * 1000;
            let seen_ns = trace.seen_blocked_ns("sleeps");
            assert!(
                subject.is_within(time.sleep_ns, asked_ns, seen_ns),
                "{}: {time:?} of {seen_ns}",
                subject.name
            );
            assert_eq!((time.wait_ns, time.io_wait_ns), (0, 0));
            assert!(
                subject.is_at_most(
                    time.cpu_ns,
                    trace.seen_ns("sleeps", "cpu"),
                    trace.running_at_most_ns("sleeps", asked_ns)
                ),
                "{time:?}"
            );
        }
    });
}

/// Guarantee: trace/device-waits
#[test]
fn waiting_for_the_disk_is_no_sleep() {
    timed_over_each(|subject| {
        let directory = env!("CARGO_TARGET_TMPDIR");
        let trace = Trace::of(subject, &["syncs", directory]);
        let time = sum(trace.named("fdatasync"));
        assert_eq!(trace.named("fdatasync").count(), 20);
        let seen_ns = trace.seen_blocked_ns("syncs");
        if time.blocked_ns() < 10_000_000 {
            println!(
                "not run: over the backend {}: files in {directory} are written in no time",
                subject.name
            );
            return;
        }
        // What of the workload's time was not in the calls was around them.
        let around_ns = trace.seen_ns("syncs", "wall").saturating_sub(time.wall_ns);
        let least_ns = if subject.is_exact { seen_ns.saturating_sub(around_ns) } else { 0 };
        assert!(
            subject.is_within(time.blocked_ns(), least_ns, seen_ns),
            "{time:?} of {least_ns} to {seen_ns}"
        );
        assert!(time.io_wait_ns >= time.blocked_ns() / 2, "{time:?}");
        assert!(time.sleep_ns <= time.blocked_ns() / 20, "{time:?}");
    });
}

/// Guarantee: trace/device-waits
#[test]
fn a_parent_in_vfork_waits_while_its_child_sleeps() {
    timed_over_each(|subject| {
        let trace = Trace::of(subject, &["vforks", "200"]);
        let vfork = trace
            .named("clone")
            .find(|call| call.arguments[0] & libc::CLONE_VFORK as u64 != 0)
            .unwrap();
        let child = vfork.result.unwrap() as u64;
        let time = vfork.time;
        assert!(
            subject.is_within(time.wait_ns, 200_000_000, trace.seen_blocked_ns("vfork")),
            "{time:?}"
        );
        assert!(time.sleep_ns + time.io_wait_ns <= time.wall_ns / 20, "{time:?}");
        let slept = sum(trace.named_of("clock_nanosleep", child));
        assert!(slept.sleep_ns <= trace.seen_ns("vfork", "wall"), "{slept:?}");
        assert!(
            slept.sleep_ns >= 190_000_000
                && (!subject.is_exact || is_near(slept.sleep_ns, 200_000_000)),
            "{slept:?}"
        );
    });
}

/// A spinning thread that shares its CPU has the time of the others as run-queue time.
///
/// Guarantee: trace/own-time-only
#[test]
fn shared_cpu_time_is_run_queue_time() {
    timed_over_each(|subject| {
        let trace = Trace::of(subject, &["spins_beside_another"]);
        let spinner = trace.fact("spinner");
        let time = sum(trace.named_of("readv", spinner));
        let (cpu_ns, queue_ns) = (trace.fact("spinner_cpu_ns"), trace.fact("spinner_queue_ns"));
        assert!(
            subject.is_at_most(time.cpu_ns, cpu_ns, trace.running_at_most_ns("spinner", 0))
                && time.cpu_ns >= cpu_ns / 4 * 3,
            "{time:?} of {cpu_ns}"
        );
        assert!(
            time.queue_ns <= queue_ns + 1_000_000 && time.queue_ns >= queue_ns / 2,
            "{time:?} of {queue_ns}"
        );
        assert!(time.blocked_ns() <= time.wall_ns / 10, "{}: {time:?}", subject.name);
    });
}

/// Guarantee: trace/overhead
#[test]
fn calls_that_do_nothing_take_next_to_no_time() {
    timed_over_each(|subject| {
        let trace = Trace::of(subject, &["many_threads", "500"]);
        let mut times: Vec<_> = trace.named("getppid").map(|call| call.time.cpu_ns).collect();
        assert_eq!(times.len(), 500);
        times.sort_unstable();
        // Untraced it takes 0.1 to 0.3 us; a stop alone takes several times as long as the limit.
        let cost = trace.outcome.about.cost.unwrap();
        assert!(times[250] < 2_000, "{} ns, with the cost {cost:?}", times[250]);
    });
}
