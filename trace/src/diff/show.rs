//! The comparison on a terminal.

use super::{Change, Diff, Estimate, Side, Verdict};
use crate::crossings;
use crate::report::{Look, Table, text};
use holdfast_sys::counted::counted;

/// The comparison as text.
#[must_use]
pub fn terminal(diff: &Diff, look: &Look) -> String {
    let mut out = String::new();
    for (letter, side) in [("A", &diff.a), ("B", &diff.b)] {
        out += &(text::cut(&head(letter, side), look.width) + "\n");
    }
    out += "\n";
    let mut table = Table::new(&[
        "", "calls A", "calls B", "awake A", "awake B", "change", "by calls", "by cost",
    ]);
    let changes =
        diff.subclasses.iter().filter(|change| change.class == Some(crate::classes::Class::Os));
    for change in changes {
        table.row(cells(change, &format!("  {}", change.name)));
    }
    for change in diff.classes.iter().chain([&diff.total]) {
        table.strong_row(cells(change, &change.name));
    }
    out += &table.render(look.width, look.colour);
    if let Some(crossings) = &diff.crossings {
        out += &crossings::change_terminal(crossings, look);
    }
    let changed = |change: &&Change| {
        change.awake_change_ns.abs() >= 0.5 || change.a.calls.value != change.b.calls.value
    };
    let is_single = diff.a.runs == 1 && diff.b.runs == 1;
    for (title, shows_medians, of) in [
        (
            "Calls that differ in number",
            false,
            (|change| change.calls == Verdict::Differs || lone(change)) as fn(&Change) -> bool,
        ),
        ("Calls that differ in cost", is_single, |change| change.cost == Verdict::Differs),
        ("Calls of which too little is known to say", false, |change| {
            change.calls == Verdict::Unknown && change.cost == Verdict::Unknown && !lone(change)
        }),
    ] {
        let rows: Vec<_> =
            diff.calls.iter().filter(changed).filter(|change| of(change)).take(look.top).collect();
        if rows.is_empty() {
            continue;
        }
        out += &text::title(title, look.width, look.colour);
        out += &if shows_medians { medians(&rows) } else { means(&rows) }
            .render(look.width, look.colour);
    }
    let (fewest, most) = (diff.a.runs.min(diff.b.runs), diff.a.runs.max(diff.b.runs));
    out += "\n";
    out += if fewest >= 6 {
        "Medians of runs; what is said to differ has intervals of 95 % that do not touch.\n\
         mean: the time without sleep, for each call. x: B's mean as a multiple of A's.\n"
    } else if most == 1 {
        "One run each. Cost differs where the medians of single calls (with their sleep) have\n\
         intervals of 95 % that do not touch; x is B's as a multiple of A's. mean: the time\n\
         without sleep, for each call, which \"by cost\" is about: a few long calls can have it\n\
         change the other way. How much numbers of calls change from run to run is not known.\n"
    } else {
        "Fewer than 6 runs of a side: medians, of which no interval can be given. Run it more\noften.\n"
    };
    out
}

/// Made by one side alone, or by single runs a different number of times.
fn lone(change: &Change) -> bool {
    let exact = change.a.calls.interval.is_none() && change.b.calls.interval.is_none();
    exact && change.a.calls.value != change.b.calls.value
}

fn head(letter: &str, side: &Side) -> String {
    let lasted = estimate(side.lasted_ns);
    let runs = counted(side.runs, "run");
    let calls = number(side.total.calls);
    let noun = if calls == "1" { "call" } else { "calls" };
    format!("{letter}: {} ({runs}, {lasted}, {calls} {noun})", text::plain(&side.name))
}

fn estimate(of: Estimate) -> String {
    let value = text::time(of.value as u64);
    match of.interval {
        Some((low, high)) => {
            format!("{value} [{} to {}]", text::time(low as u64), text::time(high as u64))
        }
        None => value,
    }
}

fn cells(change: &Change, title: &str) -> [String; 8] {
    [
        title.to_owned(),
        number(change.a.calls),
        number(change.b.calls),
        text::time_or_blank(change.a.awake_ns.value as u64),
        text::time_or_blank(change.b.awake_ns.value as u64),
        text::signed_time(change.awake_change_ns),
        text::signed_time(change.from_calls_ns),
        text::signed_time(change.from_cost_ns),
    ]
}

fn number(of: Estimate) -> String {
    text::count_or_blank(of.value.round() as u64)
}

/// Rows whose ratio and parts are of the mean cost.
fn means(changes: &[&Change]) -> Table {
    let mut table =
        Table::new(&["call", "calls A", "calls B", "mean A", "mean B", "x", "by calls", "by cost"]);
    for change in changes {
        let (mean_a, mean_b) = (change.a.mean_ns, change.b.mean_ns);
        table.row([
            change.name.clone(),
            number(change.a.calls),
            number(change.b.calls),
            cost(mean_a, change.a.calls),
            cost(mean_b, change.b.calls),
            ratio(change, mean_a, mean_b),
            text::signed_time(change.from_calls_ns),
            text::signed_time(change.from_cost_ns),
        ]);
    }
    table
}

/// Rows whose ratio is of the medians of single calls, with the means that the part of the cost is
/// about.
fn medians(changes: &[&Change]) -> Table {
    let mut table =
        Table::new(&["call", "median A", "median B", "x", "mean A", "mean B", "by cost"]);
    for change in changes {
        let (median_a, median_b) = (change.a.cost_ns.value, change.b.cost_ns.value);
        table.row([
            change.name.clone(),
            cost(median_a, change.a.calls),
            cost(median_b, change.b.calls),
            ratio(change, median_a, median_b),
            cost(change.a.mean_ns, change.a.calls),
            cost(change.b.mean_ns, change.b.calls),
            text::signed_time(change.from_cost_ns),
        ]);
    }
    table
}

fn cost(ns: f64, calls: Estimate) -> String {
    if calls.value > 0.0 { text::time(ns as u64) } else { "-".to_owned() }
}

/// How many times as costly a call is.
fn ratio(change: &Change, a: f64, b: f64) -> String {
    let both = change.a.calls.value > 0.0 && change.b.calls.value > 0.0 && a > 0.0;
    if both { format!("x{:.2}", b / a) } else { String::new() }
}
