//! The suite `slice`: what the persistent heap saves the main job, and what it costs.
//!
//! - `warm_vs_parse`: the spell check of one text with its tables in a heap, against the same
//!   applet that parses the dictionaries on every start; whole processes.
//! - `warm_open_ms`: a warm open inside a process, from the name to a pointer.
//! - `lookup_vs_volatile`: look-ups in tables in the heap, against the same tables in ordinary
//!   memory.

use std::io;
use std::process::Command;

use holdfast_testkit::{Programs, Scratch, Spellcheck};

use crate::report::{Goal, Outcome};
use crate::require_text;
use crate::stats::Series;
use crate::timing::{Timed, spell_check};
use crate::warm_open;

const HEAP: &str = "words";
/// Opens the heap here as well, inside this process; without a key it would be the applet's own.
const KEY: &str = "default";
/// Builds from nothing; they take longest and are compared with nothing.
const BUILDS: usize = 3;
/// A warm open is short: so many for each pair of the other runs.
const OPENS_PER_RUN: usize = 20;
const LOOKUPS: &str = "2000000";

/// Runs the suite; `progress` gets the name of each step.
///
/// # Errors
/// When a program is missing or fails, or two ways to the answer disagree.
pub fn run(runs: usize, progress: &mut dyn FnMut(&str)) -> io::Result<Outcome> {
    let scratch = Scratch::new(Programs::find()?)?;
    let job = Spellcheck::new(&scratch, require_text()?)?;
    // The first run compiles the applet into the home's cache, for all that follow.
    let answer = spell_check(job.old_way(&[]))?.out;
    progress("building the tables");
    let build_ms = build(&scratch, &job, &answer)?;
    progress("warm runs and the old way, in turns");
    let (warm_ms, parse_ms) = in_turns(runs, |warm| {
        let Timed { wall_ms, out } =
            spell_check(if warm { of_key(&job.warm(HEAP, &[])) } else { job.old_way(&[]) })?;
        same_answer(&out, &answer)?;
        Ok(wall_ms)
    })?;
    progress("look-ups in the heap and in volatile memory, in turns");
    let options = ["--bench-lookups", LOOKUPS];
    let (heap_ns, volatile_ns) = in_turns(runs, |heap| {
        lookup_ns(if heap { of_key(&job.warm(HEAP, &options)) } else { job.old_way(&options) })
    })?;
    progress("warm opens");
    let open_ms = warm_open::measure(&scratch.names()?, HEAP, KEY, runs * OPENS_PER_RUN)?;
    let mut outcome = Outcome::default();
    let mut add = |key, series, unit, goal| outcome.add(key, Some(series), unit, goal);
    add("warm_vs_parse", parse_ms.over(&warm_ms), "x", Some(Goal::AtLeast(20.0)));
    add("warm_open_ms", open_ms, "ms", Some(Goal::AtMost(1.0)));
    add("lookup_vs_volatile", heap_ns.over(&volatile_ns), "x", Some(Goal::AtMost(1.05)));
    add("warm_ms", warm_ms, "ms", None);
    add("parse_ms", parse_ms, "ms", None);
    add("build_ms", build_ms, "ms", None);
    add("heap_lookup_ns", heap_ns, "ns", None);
    add("volatile_lookup_ns", volatile_ns, "ns", None);
    Ok(outcome)
}

/// Builds the tables from nothing; the last ones stay.
fn build(scratch: &Scratch, job: &Spellcheck<'_>, answer: &str) -> io::Result<Series> {
    let mut series = Series::default();
    for number in 0..BUILDS {
        if number > 0 {
            scratch.holdfast().args(["heap", "rm", HEAP]).status()?;
        }
        let Timed { wall_ms, out } = spell_check(of_key(&job.building(HEAP, &[])))?;
        same_answer(&out, answer)?;
        series.push(wall_ms);
    }
    Ok(series)
}

/// The same run of an applet (`holdfast run APPLET ...`) with [`KEY`].
fn of_key(run: &Command) -> Command {
    let mut command = Command::new(run.get_program());
    let mut arguments = run.get_args();
    command.args(arguments.by_ref().take(2)).args(["--key", KEY]).args(arguments);
    for (name, value) in run.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// Measures both sides `runs` times, as neighbours, each going first every other time.
fn in_turns(
    runs: usize,
    mut measure: impl FnMut(bool) -> io::Result<f64>,
) -> io::Result<(Series, Series)> {
    let (mut one, mut other) = (Series::default(), Series::default());
    for number in 0..runs {
        if number % 2 == 0 {
            one.push(measure(true)?);
            other.push(measure(false)?);
        } else {
            other.push(measure(false)?);
            one.push(measure(true)?);
        }
    }
    Ok((one, other))
}

fn same_answer(out: &str, answer: &str) -> io::Result<()> {
    if out == answer {
        return Ok(());
    }
    Err(io::Error::other(format!("two ways to the answer disagree: {out}\ninstead of: {answer}")))
}

/// The applet's own time for a look-up: `lookup_ns X` on a line.
fn lookup_ns(command: Command) -> io::Result<f64> {
    let out = spell_check(command)?.out;
    let found = out.lines().find_map(|line| line.strip_prefix("lookup_ns ")?.trim().parse().ok());
    found.ok_or_else(|| io::Error::other(format!("the applet printed no lookup_ns: {out}")))
}
