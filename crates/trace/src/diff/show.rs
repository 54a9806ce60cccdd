//! The comparison on a terminal.

use super::{Change, Diff, Estimate, Side, Verdict};
use crate::crossings;
use crate::report::{Align, Look, Table, text};
use holdfast_sys::counted::counted;

/// The comparison as text.
#[must_use]
pub fn terminal(diff: &Diff, look: &Look) -> String {
    let mut out = String::new();
    for (letter, side) in [("A", &diff.a), ("B", &diff.b)] {
        out += &(text::cut(&head(letter, side), look.width) + "\n");
    }
    out += "\n";
    let mut table =
        Table::new(&["", "calls A", "calls B", "awake A", "awake B", "change", "by calls", "by cost"]);
    let changes = diff.subclasses.iter().filter(|change| change.class == Some(crate::classes::Class::Os));
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
    for (title, of) in [
        (
            "Calls that differ in number",
            (|change| change.calls == Verdict::Differs || lone(change)) as fn(&Change) -> bool,
        ),
        ("Calls that differ in cost", |change| change.cost == Verdict::Differs),
        ("Calls of which too little is known to say", |change| {
            change.calls == Verdict::Unknown && change.cost == Verdict::Unknown && !lone(change)
        }),
    ] {
        let rows: Vec<_> =
            diff.calls.iter().filter(changed).filter(|change| of(change)).take(look.top).collect();
        if rows.is_empty() {
            continue;
        }
        out += &text::title(title, look.width, look.colour);
        let mut table = Table::new(&[
            "call", "calls A", "calls B", "cost A", "cost B", "", "change", "by calls", "by cost",
        ])
        .aligned(5, Align::Left);
        for change in rows {
            let (calls_a, calls_b) = (change.a.calls, change.b.calls);
            table.row([
                change.name.clone(),
                number(calls_a),
                number(calls_b),
                cost(change.a.cost_ns, calls_a),
                cost(change.b.cost_ns, calls_b),
                ratio(change),
                text::signed_time(change.from_calls_ns),
                text::signed_time(change.from_cost_ns),
            ]);
        }
        out += &table.render(look.width, look.colour);
    }
    let (fewest, most) = (diff.a.runs.min(diff.b.runs), diff.a.runs.max(diff.b.runs));
    out += "\n";
    out += if fewest >= 6 {
        "Medians of runs; what is said to differ has intervals of 95 % that do not touch.\n"
    } else if most == 1 {
        "One run each: cost is the median call, and differs where intervals of 95 % do not\n\
         touch; how much the numbers of calls change from run to run is not known.\n"
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
        Some((low, high)) => format!("{value} [{} to {}]", text::time(low as u64), text::time(high as u64)),
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

fn cost(of: Estimate, calls: Estimate) -> String {
    if calls.value > 0.0 { text::time(of.value as u64) } else { "-".to_owned() }
}

/// How many times as costly a call is.
fn ratio(change: &Change) -> String {
    let (a, b) = (change.a.cost_ns.value, change.b.cost_ns.value);
    let both = change.a.calls.value > 0.0 && change.b.calls.value > 0.0 && a > 0.0;
    if both { format!("x{:.2}", b / a) } else { String::new() }
}
