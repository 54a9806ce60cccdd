//! Compares the crossings of two traces: with a heap and without, for one.

use std::collections::BTreeMap;

use holdfast_sys::counted::counted;
use serde::{Deserialize, Serialize};

use super::document::{Crossings, Gate, RunPart};
use super::show::crossed_title;
use crate::diff::Estimate;
use crate::report::{Look, Table, text};

/// From A to B.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CrossingChanges {
    /// Functions of applets, each followed by what crossed during their calls. Those of all applets
    /// of a side that have the same name are one: the programs may differ.
    pub rows: Vec<CrossingChange>,
    /// System calls of the host outside of calls.
    pub outside: Vec<OutsideChange>,
    /// What is missing.
    pub notes: Vec<String>,
}

/// What changed in calls of a function.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CrossingChange {
    /// The function of the applet.
    pub function: String,
    /// What crossed; null for all of it.
    pub crossed: Option<String>,
    /// The gate that let it through; null for all of it.
    pub by: Option<Gate>,
    /// On the first side.
    pub a: CrossingFigures,
    /// On the second side.
    pub b: CrossingFigures,
}

/// What crossed in a run, on one side.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CrossingFigures {
    /// Calls of the function.
    pub calls: Estimate,
    /// Crossings during them.
    pub crossings: Estimate,
    /// The same of one call; 0 without a call.
    pub crossings_per_call: Estimate,
    /// System calls of the host for them.
    pub kernel_calls: Estimate,
    /// Time in the crossings.
    pub crossings_ns: Estimate,
}

/// What changed in the host's system calls outside of calls.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OutsideChange {
    /// The part of the run.
    pub when: RunPart,
    /// How many on the first side.
    pub a: Estimate,
    /// How many on the second side.
    pub b: Estimate,
}

/// Function, and what crossed of it. All of a function comes before its parts.
type Key = (String, Option<(String, Gate)>);

#[derive(Clone, Copy, Default)]
struct Numbers {
    calls: u64,
    crossings: u64,
    kernel_calls: u64,
    crossings_ns: u64,
}

impl Numbers {
    /// A report in JSON may say any number.
    fn add(&mut self, more: Numbers) {
        self.calls = self.calls.saturating_add(more.calls);
        self.crossings = self.crossings.saturating_add(more.crossings);
        self.kernel_calls = self.kernel_calls.saturating_add(more.kernel_calls);
        self.crossings_ns = self.crossings_ns.saturating_add(more.crossings_ns);
    }
}

impl CrossingChanges {
    /// Of the runs of two sides, each with what it has. None if no run has anything.
    #[must_use]
    pub fn of(a: &[Option<&Crossings>], b: &[Option<&Crossings>]) -> Option<CrossingChanges> {
        if a.iter().chain(b).all(Option::is_none) {
            return None;
        }
        let (runs_a, runs_b) = (numbers(a), numbers(b));
        let mut order: BTreeMap<Key, u64> = BTreeMap::new();
        for (key, numbers) in runs_a.iter().chain(&runs_b).flatten() {
            let most = order.entry(key.clone()).or_default();
            *most = (*most).max(numbers.crossings);
        }
        // Functions with most crossings first, and the same within each.
        let total = |function: &String| order.get(&(function.clone(), None)).copied().unwrap_or(0);
        let mut keys: Vec<_> = order.iter().collect();
        keys.sort_by(|(one, one_most), (two, two_most)| {
            (total(&two.0), &one.0, one.1.is_some(), two_most)
                .cmp(&(total(&one.0), &two.0, two.1.is_some(), one_most))
                .then_with(|| one.1.cmp(&two.1))
        });
        let rows = keys.into_iter().map(|(key, _)| {
            let (crossed, by) = key.1.clone().unzip();
            CrossingChange {
                function: key.0.clone(),
                crossed,
                by,
                a: figures(&runs_a, key),
                b: figures(&runs_b, key),
            }
        });
        let rows = rows.collect();
        let outside =
            [RunPart::StartUp, RunPart::Between, RunPart::TearDown, RunPart::OtherThreads]
                .map(|when| OutsideChange { when, a: outside(a, when), b: outside(b, when) });
        let outside = outside.into_iter().filter(|row| row.a.value + row.b.value > 0.0).collect();
        let mut notes = Vec::new();
        for (letter, side) in [("A", a), ("B", b)] {
            let without = side.iter().filter(|run| run.is_none()).count();
            if without > 0 {
                notes.push(format!(
                    "Without --sandbox: {without} of {} of {letter}.",
                    counted(side.len(), "run")
                ));
            }
            let said = side.iter().flatten().flat_map(|run| &run.notes);
            said.for_each(|note| notes.push(format!("{letter}: {note}")));
        }
        notes.dedup();
        Some(CrossingChanges { rows, outside, notes })
    }
}

/// The numbers of each run that has any.
fn numbers(runs: &[Option<&Crossings>]) -> Vec<BTreeMap<Key, Numbers>> {
    let of_run = |run: &&Crossings| {
        let mut all: BTreeMap<Key, Numbers> = BTreeMap::new();
        for function in run.applets.iter().flat_map(|applet| &applet.functions) {
            let mut add = |part: Option<(String, Gate)>, crossings, kernel_calls, crossings_ns| {
                let sum = all.entry((function.name.clone(), part)).or_default();
                sum.add(Numbers { calls: function.calls, crossings, kernel_calls, crossings_ns });
            };
            add(None, function.crossings, function.kernel_calls, function.crossings_ns);
            for row in &function.crossed {
                let kernel_calls =
                    row.kernel.iter().map(|row| row.calls).fold(0, u64::saturating_add);
                add(Some((row.name.clone(), row.by)), row.crossings, kernel_calls, row.wall_ns);
            }
        }
        all
    };
    runs.iter().flatten().map(of_run).collect()
}

fn figures(runs: &[BTreeMap<Key, Numbers>], key: &Key) -> CrossingFigures {
    let of = |what: &dyn Fn(Numbers) -> f64| {
        Estimate::of(
            &runs
                .iter()
                .map(|run| what(run.get(key).copied().unwrap_or_default()))
                .collect::<Vec<_>>(),
        )
    };
    CrossingFigures {
        calls: of(&|numbers| numbers.calls as f64),
        crossings: of(&|numbers| numbers.crossings as f64),
        crossings_per_call: of(&|numbers| match numbers.calls {
            0 => 0.0,
            calls => numbers.crossings as f64 / calls as f64,
        }),
        kernel_calls: of(&|numbers| numbers.kernel_calls as f64),
        crossings_ns: of(&|numbers| numbers.crossings_ns as f64),
    }
}

fn outside(runs: &[Option<&Crossings>], when: RunPart) -> Estimate {
    let of_run = |run: &&Crossings| {
        let of_then = run.outside.iter().filter(|row| row.when == when);
        of_then.map(|row| row.kernel_calls).fold(0, u64::saturating_add) as f64
    };
    Estimate::of(&runs.iter().flatten().map(of_run).collect::<Vec<_>>())
}

/// The changes as text.
#[must_use]
pub(crate) fn change_terminal(changes: &CrossingChanges, look: &Look) -> String {
    let mut out = text::title("Crossings", look.width, look.colour);
    let mut table =
        Table::new(&["", "cross A", "B", "each A", "B", "kernel A", "B", "time A", "B"]);
    let count = |of: Estimate| text::count_or_blank(of.value.round() as u64);
    let each = |of: CrossingFigures| match of.calls.value {
        0.0 => "-".to_owned(),
        _ => text::mean(of.crossings_per_call.value),
    };
    let mut shown = 0;
    for row in &changes.rows {
        shown = if row.crossed.is_some() { shown + 1 } else { 0 };
        if shown > look.top {
            continue;
        }
        let name = match &row.crossed {
            Some(name) => crossed_title(name, row.by),
            None => row.function.clone(),
        };
        let cells = [
            name,
            count(row.a.crossings),
            count(row.b.crossings),
            each(row.a),
            each(row.b),
            count(row.a.kernel_calls),
            count(row.b.kernel_calls),
            text::time_or_blank(row.a.crossings_ns.value as u64),
            text::time_or_blank(row.b.crossings_ns.value as u64),
        ];
        if row.crossed.is_none() { table.strong_row(cells) } else { table.row(cells) }
    }
    out += &table.render(look.width, look.colour);
    let number = |of: Estimate| text::count(of.value.round() as u64);
    let outside: Vec<_> = changes
        .outside
        .iter()
        .map(|row| format!("{} {} and {}", row.when.title(), number(row.a), number(row.b)))
        .collect();
    if !outside.is_empty() {
        let outside = outside.join(", ");
        let outside = format!("System calls of the host outside of calls: {outside}.");
        out += &text::paragraph(&outside, look.width);
    }
    changes.notes.iter().for_each(|note| out += &text::paragraph(note, look.width));
    out
}
