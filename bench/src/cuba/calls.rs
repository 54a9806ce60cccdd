//! Section `calls` (table 2): a message to `applets/echo` and the answer, where its system calls are
//! filtered, in the jail with all its layers, and where they are not: the same program on the same
//! channel, started by `exec` alone.
//!
//! Invariant: both are driven by the same code on the same processors.

use std::io;

use holdfast_testkit::applet_file;

use crate::applet::channel::{Caller, SLEEP_TRIPS, SPIN_TRIPS};
use crate::applet::processors::Placement;
use crate::race::{Side, race};
use crate::report::{Goal, Outcome};

const FILTERED: &str = "in the jail";
const UNFILTERED: &str = "without";
/// Rounds for each run: what else the machine does falls into some of them.
const SLICES: usize = 4;
/// What the paper's filter costs where it costs least: 550 us against 250.
const PAPER_RATIO: f64 = 2.2;

pub(crate) fn run(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let apart = Placement::apart()?;
    match apart {
        Placement::On(pair) => outcome.note(format!("call_filtered_us is between {pair}")),
        _ => outcome.note("there is one processor, so no side can spin for another one".to_owned()),
    }
    for (suffix, place, trips) in
        [("", apart, SPIN_TRIPS), ("_asleep", Placement::Together, SLEEP_TRIPS)]
    {
        let program = applet_file("echo")?;
        let mut filtered = Caller::jailed(&program)?;
        let mut unfiltered = Caller::unjailed(&program)?;
        if place == Placement::Together {
            // The applets find out by themselves that spinning is in vain.
            filtered.never_spin();
            unfiltered.never_spin();
        }
        let sides = vec![
            Side::new(FILTERED, || filtered.round_trip_us(place, trips)),
            Side::new(UNFILTERED, || unfiltered.round_trip_us(place, trips)),
        ];
        let times = race(runs * SLICES, sides)?;
        let key = |what: &str| format!("call_{what}{suffix}");
        outcome.add(key("filtered_us"), times.of(FILTERED).cloned(), "us", None);
        outcome.add(key("unfiltered_us"), times.of(UNFILTERED).cloned(), "us", None);
        let ratio = times.ratio(FILTERED, UNFILTERED);
        let goal = Some(Goal::AtMost(PAPER_RATIO));
        outcome.add(key("filtered_vs_unfiltered"), ratio, "x", goal);
    }
    Ok(())
}
