//! The suite `trace`: what it costs a program to be traced, by us and by others. `bench/README.md`
//! says what each key means.
//!
//! Invariants: a program is timed from its beginning to its end by a process that is traced with
//! it, so that how long a tracer takes to begin is not in it; every tracer works in the same round
//! as the untraced program, in turns.

mod ground;
mod tools;

use std::io;

use crate::race::{Side, Times, race};
use crate::report::{Goal, Outcome};
use crate::section;
use crate::stats::Series;

use ground::{Ground, Work};
use tools::{BPF, PTRACE, STRACE, STRACE_COUNTS, TOOLS, Tool, UNTRACED};

pub use ground::{NULL_CALLS, make_null_calls};
pub use tools::{TIMED, timed};

/// A part of the suite, which measures keys that begin with its name.
type Section = (&'static str, fn(&Ground, usize, &mut Outcome) -> io::Result<()>);

const SECTIONS: [Section; 6] = [
    ("dd", dd),
    ("null_call", null_call),
    ("find", find),
    ("make", make),
    ("events", events),
    ("attach", attach),
];
/// Calls of the program that nothing may be lost of, twice this: each reads and writes.
const MILLION_HALVED: u32 = 500_000;
/// So many calls that do nothing, that the start and end of the process count for less than a
/// nanosecond of each.
const NULL_CALL_COUNT: u32 = 3_000_000;
/// Tracers that stop a program at each call have a program with fewer calls.
const FEW: u32 = 20_000;

/// Runs the suite, or the section with the name `only`; `progress` gets the name of each step.
///
/// # Errors
/// When there is no such section, no room, or the program that is traced fails.
pub fn run(runs: usize, only: Option<&str>, progress: &mut dyn FnMut(&str)) -> io::Result<Outcome> {
    let chosen = section::chosen(&SECTIONS, only)?;
    let ground = Ground::new()?;
    section::run(chosen, progress, |section, outcome| section(&ground, runs, outcome))
}

/// The tracers that can trace this; the others are named.
fn tools(
    ground: &Ground,
    work: &Work,
    is_wanted: impl Fn(&Tool) -> bool,
    outcome: &mut Outcome,
) -> Vec<&'static Tool> {
    let wanted = TOOLS.iter().filter(|tool| is_wanted(tool));
    wanted
        .filter(|tool| match tool.time(ground, work) {
            Ok(_) => true,
            Err(why) => {
                // One that is installed, and fails, has said why.
                let hint = match why.kind() {
                    io::ErrorKind::NotFound => format!("; {}", tool.comes_with),
                    _ => String::new(),
                };
                outcome.missing.push(format!("{}: {why}{hint}", tool.name));
                false
            }
        })
        .collect()
}

fn times(ground: &Ground, work: &Work, runs: usize, tools: &[&'static Tool]) -> io::Result<Times> {
    let sides =
        tools.iter().map(|tool| Side::new(tool.name, move || tool.time(ground, work))).collect();
    race(runs, sides)
}

/// Adds what each tracer makes of a program's time.
fn add_slowdowns(
    program: &str,
    times: &Times,
    tools: &[&'static Tool],
    goal: Option<Goal>,
    outcome: &mut Outcome,
) {
    for tool in tools.iter().filter(|tool| tool.name != UNTRACED) {
        let goal = goal.filter(|_| tool.name == BPF);
        let key = format!("{program}_slowdown_{}", tool.key);
        outcome.add(key, times.ratio(tool.name, UNTRACED), "x", goal);
    }
}

/// All tracers in one race.
fn compare(
    ground: &Ground,
    work: &Work,
    runs: usize,
    goal: f64,
    outcome: &mut Outcome,
) -> io::Result<()> {
    let tools = tools(ground, work, |_| true, outcome);
    let times = times(ground, work, runs, &tools)?;
    add_slowdowns(work.name, &times, &tools, Some(Goal::AtMost(goal)), outcome);
    outcome.add(format!("{}_untraced_ms", work.name), times.of(UNTRACED).cloned(), "ms", None);
    outcome.add(format!("ptrace_vs_strace_{}", work.name), times.ratio(PTRACE, STRACE), "x", None);
    Ok(())
}

fn dd(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let (many, few) = (ground.dd(MILLION_HALVED), ground.dd(FEW));
    let in_kernel = tools(ground, &many, |tool| !tool.stops_the_program, outcome);
    let fast = times(ground, &many, runs, &in_kernel)?;
    add_slowdowns("dd", &fast, &in_kernel, Some(Goal::AtMost(2.2)), outcome);
    outcome.add("trace_dd_ratio", fast.ratio(BPF, UNTRACED), "x", Some(Goal::AtMost(2.2)));
    let stopping =
        tools(ground, &few, |tool| tool.stops_the_program || tool.name == UNTRACED, outcome);
    let slow = times(ground, &few, runs, &stopping)?;
    add_slowdowns("dd", &slow, &stopping, None, outcome);
    outcome.add("ptrace_vs_strace", slow.ratio(PTRACE, STRACE), "x", Some(Goal::AtMost(1.0)));
    let counting = slow.ratio(PTRACE, STRACE_COUNTS);
    outcome.add("ptrace_vs_strace_c", counting, "x", Some(Goal::AtMost(1.0)));
    Ok(())
}

/// What tracers in the kernel add to a call that does nothing, where tables alone are wanted.
fn null_call(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let work = ground.null_calls(NULL_CALL_COUNT);
    let tools = tools(ground, &work, |tool| !tool.stops_the_program, outcome);
    let times = times(ground, &work, runs, &tools)?;
    let Some(untraced) = times.of(UNTRACED) else { return Ok(()) };
    let per_call = |ms: f64| ms * 1e6 / f64::from(NULL_CALL_COUNT);
    for tool in tools.iter().filter(|tool| tool.name != UNTRACED) {
        let added = times.of(tool.name).map(|traced| {
            let pairs = traced.values().iter().zip(untraced.values());
            pairs.map(|(traced, untraced)| per_call(traced - untraced)).collect()
        });
        match tool.name {
            BPF => outcome.add("trace_null_call_added_ns", added, "ns", Some(Goal::AtMost(110.0))),
            _ => outcome.add(format!("null_call_added_ns_{}", tool.key), added, "ns", None),
        }
    }
    outcome.add("null_call_untraced_ns", Some(untraced.map(per_call)), "ns", None);
    Ok(())
}

fn find(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    compare(ground, &ground.find()?, runs, 1.3, outcome)
}

fn make(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    compare(ground, &ground.make()?, runs, 1.05, outcome)
}

/// A million calls, all of them kept in a recording.
fn events(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let (mut lost, mut memory) = (Series::default(), Series::default());
    for _ in 0..runs {
        match tools::record(ground, &ground.dd(MILLION_HALVED)) {
            Ok(recorded) => {
                if recorded.calls + recorded.lost < u64::from(MILLION_HALVED) * 2 {
                    return Err(io::Error::other(format!(
                        "calls are missing that were not counted as lost: {recorded:?}"
                    )));
                }
                lost.push(recorded.lost as f64);
                memory.push(recorded.peak_bytes as f64 / f64::from(1 << 20));
            }
            Err(why) => {
                outcome.missing.push(format!("{BPF}: {why}"));
                return Ok(());
            }
        }
    }
    outcome.add("events_lost", Some(lost), "", Some(Goal::AtMost(0.0)));
    outcome.add("rss_mib", Some(memory), "MiB", None);
    Ok(())
}

fn attach(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    for (key, backend) in [("attach_ms", BPF), ("attach_ptrace_ms", PTRACE)] {
        let mut times = Series::default();
        for _ in 0..runs {
            match tools::attach(ground, backend) {
                Ok(time) => times.push(time.as_secs_f64() * 1e3),
                Err(why) => outcome.missing.push(format!("{backend}: {why}")),
            }
        }
        if times.count() > 0 {
            outcome.add(key, Some(times), "ms", None);
        }
    }
    Ok(())
}
