//! Two traces, or two groups of repetitions, set beside each other: what differs in which calls are
//! made, apart from what differs in what a call costs.
//!
//! The difference in time of a call between A and B is taken apart exactly: by other numbers of
//! calls (at the mean of both costs) and by other costs (at the mean of both numbers). Costs are of
//! the time without sleep.
//!
//! Invariants: both parts add up to the difference, and the part of the cost has the sign of the
//! difference of the mean costs that are shown beside it. Whether something differs is only said
//! where intervals of 95 % do not touch; with too few runs for that it is "unknown", never "same".

mod show;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::classes::{Class, Scheme, Subclass};
use crate::crossings::{CrossingChanges, Crossings};
use crate::report::Report;
use crate::report::document::{Sleep, Source, Sums};
use crate::statistics::Median;

pub use show::terminal;

/// The version of the JSON.
pub const FORMAT: u32 = 1;

/// A number that was measured some times.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Estimate {
    /// The median.
    pub value: f64,
    /// Within which the true median is, with a probability of 95 %; null with fewer than 6 runs.
    pub interval: Option<(f64, f64)>,
}

impl Estimate {
    /// Of one value for each run; 0 of none.
    #[must_use]
    pub fn of(values: &[f64]) -> Estimate {
        Median::of(values).map_or(Estimate::default(), |median| Estimate {
            value: median.value,
            interval: median.interval,
        })
    }

    /// Whether two are apart.
    #[must_use]
    pub fn differs_from(&self, other: &Estimate) -> Verdict {
        let median = |of: &Estimate| Median { value: of.value, interval: of.interval };
        match median(self).differs_from(&median(other)) {
            Some(true) => Verdict::Differs,
            Some(false) => Verdict::Same,
            None => Verdict::Unknown,
        }
    }
}

/// Whether two things differ.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// For sure.
    Differs,
    /// Not more than the runs of one side among themselves.
    Same,
    /// There are too few runs to say.
    #[default]
    Unknown,
}

/// One side of a comparison.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Side {
    /// A file, a platform.
    pub name: String,
    /// How many times it was run.
    pub runs: u64,
    /// How the numbers of its first run came about.
    pub source: Source,
    /// How long a run took.
    pub lasted_ns: Estimate,
    /// All its calls.
    pub total: Figures,
}

/// Calls of one kind on one side.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Figures {
    /// How often, in a run.
    pub calls: Estimate,
    /// How many failed, in a run.
    pub errors: Estimate,
    /// Their time in a run.
    pub wall_ns: Estimate,
    /// Their time in a run, without sleep.
    pub awake_ns: Estimate,
    /// Of that, on a CPU.
    pub cpu_ns: Estimate,
    /// Of that, for a device.
    pub io_wait_ns: Estimate,
    /// What one call costs, without sleep: the mean of a run. With one run on each side, the median
    /// call (with its sleep).
    pub cost_ns: Estimate,
    /// The time without sleep, divided by the number of calls: what the change is taken apart by. 0
    /// without calls.
    #[serde(default)]
    pub mean_ns: f64,
}

/// What changed from A to B.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Change {
    /// The call, or the title of the row.
    pub name: String,
    /// Of which class; null for all.
    pub class: Option<Class>,
    /// Of which part; null for classes.
    pub subclass: Option<Subclass>,
    /// On the first side.
    pub a: Figures,
    /// On the second side.
    pub b: Figures,
    /// By how much more time B has, without sleep.
    pub awake_change_ns: f64,
    /// Of that, because it has other numbers of calls.
    pub from_calls_ns: f64,
    /// Of that, because calls have another cost.
    pub from_cost_ns: f64,
    /// Whether the numbers of calls differ.
    pub calls: Verdict,
    /// Whether the cost of a call differs.
    pub cost: Verdict,
}

/// Two sides.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Diff {
    /// [`FORMAT`].
    pub format: u32,
    /// By what calls were put into classes.
    pub scheme: Scheme,
    /// How sleep was distinguished from work.
    pub sleep: Sleep,
    /// The first side.
    pub a: Side,
    /// The second side.
    pub b: Side,
    /// All calls.
    pub total: Change,
    /// The classes.
    pub classes: Vec<Change>,
    /// Their parts.
    pub subclasses: Vec<Change>,
    /// The calls, by how much their time changed.
    pub calls: Vec<Change>,
    /// What crosses sandboxes; not there unless it was traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crossings: Option<CrossingChanges>,
}

/// Runs of the same thing under the same conditions.
#[derive(Clone, Debug)]
pub struct Runs {
    /// What they are called.
    pub name: String,
    /// One report each; at least one.
    pub reports: Vec<Report>,
}

impl Runs {
    /// The figures of some calls.
    #[must_use]
    pub fn figures(&self, of: &dyn Fn(&Report) -> Option<Sums>) -> Figures {
        figures_of(
            &self.reports.iter().map(|report| of(report).unwrap_or_default()).collect::<Vec<_>>(),
        )
    }

    /// All of them in one.
    #[must_use]
    pub fn side(&self) -> Side {
        Side {
            name: self.name.clone(),
            runs: self.reports.len() as u64,
            source: self.reports.first().map(|report| report.source.clone()).unwrap_or_default(),
            lasted_ns: Estimate::of(
                &self
                    .reports
                    .iter()
                    .map(|report| report.source.lasted_ns as f64)
                    .collect::<Vec<_>>(),
            ),
            total: self.figures(&|report| Some(report.total.clone())),
        }
    }
}

/// What is compared: calls by name and where they belong.
type Key = (String, String, Subclass);

fn sums_of<'a>(report: &'a Report, key: &Key) -> Option<&'a Sums> {
    let found = report
        .calls
        .iter()
        .find(|row| row.name == key.0 && row.abi == key.1 && row.subclass == key.2);
    found.map(|row| &row.sums)
}

impl Diff {
    /// From A to B.
    #[must_use]
    pub fn of(a: &Runs, b: &Runs) -> Diff {
        let single = a.reports.len() == 1 && b.reports.len() == 1;
        let change = |name: &str, class, subclass, one: Figures, two: Figures| {
            Change::of(name.to_owned(), class, subclass, one, two)
        };
        let both = |of: &dyn Fn(&Report) -> Option<Sums>| (a.figures(of), b.figures(of));
        let (one, two) = both(&|report| Some(report.total.clone()));
        let total = change("All", None, None, one, two);
        let classes = Class::ALL.map(|class| {
            let (one, two) = both(&|report| report.class(class).map(|row| row.sums.clone()));
            change(class.title(), Some(class), None, one, two)
        });
        let subclasses = Subclass::ALL.map(|subclass| {
            let row = |report: &Report| {
                report.subclasses.iter().find(|row| row.subclass == subclass).cloned()
            };
            let (one, two) = both(&|report| row(report).map(|row| row.sums));
            change(subclass.title(), Some(subclass.class()), Some(subclass), one, two)
        });
        let mut keys = BTreeMap::new();
        for row in a.reports.iter().chain(&b.reports).flat_map(|report| &report.calls) {
            keys.insert((row.name.clone(), row.abi.clone(), row.subclass), ());
        }
        let mut calls: Vec<_> = keys
            .into_keys()
            .map(|key| {
                let (mut one, mut two) = both(&|report| sums_of(report, &key).cloned());
                if single {
                    one.cost_ns = median_call(a, &key).unwrap_or(one.cost_ns);
                    two.cost_ns = median_call(b, &key).unwrap_or(two.cost_ns);
                }
                let name = if key.1 == "x86_64" {
                    key.0.clone()
                } else {
                    format!("{} ({})", key.0, key.1)
                };
                change(&name, Some(key.2.class()), Some(key.2), one, two)
            })
            .collect();
        calls.sort_by(|one, two| {
            two.awake_change_ns
                .abs()
                .total_cmp(&one.awake_change_ns.abs())
                .then_with(|| one.name.cmp(&two.name))
        });
        let first =
            |of: fn(&Report) -> (Scheme, Sleep)| a.reports.first().map(of).unwrap_or_default();
        let (scheme, sleep) = first(|report| (report.scheme, report.sleep));
        Diff {
            format: FORMAT,
            scheme,
            sleep,
            a: a.side(),
            b: b.side(),
            total,
            classes: classes.into(),
            subclasses: subclasses
                .into_iter()
                .filter(|change| change.is_about_something())
                .collect(),
            calls,
            crossings: CrossingChanges::of(&crossings_of(a), &crossings_of(b)),
        }
    }
}

fn crossings_of(runs: &Runs) -> Vec<Option<&Crossings>> {
    runs.reports.iter().map(|report| report.crossings.as_ref()).collect()
}

fn figures_of(sums: &[Sums]) -> Figures {
    let estimate =
        |of: &dyn Fn(&Sums) -> f64| Estimate::of(&sums.iter().map(of).collect::<Vec<_>>());
    let called = sums.iter().filter(|sums| sums.calls > 0);
    let costs: Vec<_> = called.map(|sums| sums.awake_ns as f64 / sums.calls as f64).collect();
    let (calls, awake_ns) =
        (estimate(&|sums| sums.calls as f64), estimate(&|sums| sums.awake_ns as f64));
    Figures {
        calls,
        errors: estimate(&|sums| sums.errors as f64),
        wall_ns: estimate(&|sums| sums.time.wall_ns as f64),
        awake_ns,
        cpu_ns: estimate(&|sums| sums.time.cpu_ns as f64),
        io_wait_ns: estimate(&|sums| sums.time.io_wait_ns as f64),
        cost_ns: Estimate::of(&costs),
        mean_ns: if calls.value > 0.0 { awake_ns.value / calls.value } else { 0.0 },
    }
}

/// The median call of the only run, and its interval.
fn median_call(runs: &Runs, key: &Key) -> Option<Estimate> {
    let report = runs.reports.first()?;
    let row = report
        .calls
        .iter()
        .find(|row| row.name == key.0 && row.abi == key.1 && row.subclass == key.2)?;
    let distribution = row.distribution.as_ref()?;
    let interval = distribution.median_interval_ns.map(|(low, high)| (low as f64, high as f64));
    Some(Estimate { value: distribution.p50_ns as f64, interval })
}

impl Change {
    fn of(
        name: String,
        class: Option<Class>,
        subclass: Option<Subclass>,
        a: Figures,
        b: Figures,
    ) -> Change {
        let mut change = Change {
            name,
            class,
            subclass,
            a,
            b,
            awake_change_ns: b.awake_ns.value - a.awake_ns.value,
            from_calls_ns: 0.0,
            from_cost_ns: 0.0,
            calls: a.calls.differs_from(&b.calls),
            cost: a.cost_ns.differs_from(&b.cost_ns),
        };
        change.share_out();
        change
    }

    /// Takes the difference apart. As the mean costs are of the same medians as the difference, the
    /// parts add up.
    fn share_out(&mut self) {
        let (calls_a, calls_b) = (self.a.calls.value, self.b.calls.value);
        if calls_a > 0.0 && calls_b > 0.0 {
            self.from_cost_ns = (self.b.mean_ns - self.a.mean_ns) * f64::midpoint(calls_a, calls_b);
            self.from_calls_ns =
                (calls_b - calls_a) * f64::midpoint(self.a.mean_ns, self.b.mean_ns);
        } else {
            // A call that only one side makes: all that it costs is because it is made.
            self.from_calls_ns = self.awake_change_ns;
        }
    }

    fn is_about_something(&self) -> bool {
        self.a.calls.value > 0.0 || self.b.calls.value > 0.0
    }
}

#[cfg(test)]
mod tests;
