//! The results of a matrix of runs, as data.
//!
//! Invariant: as for the report, fields are only ever added in one [`FORMAT`].

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Around;
use super::machine::Shares;
use crate::classes::{Class, Scheme, Subclass};
use crate::diff::{Diff, Estimate, Figures, Runs, Side};
use crate::report::document::{Sleep, Sums};
use crate::report::text::percent_of;

/// The version of the JSON.
pub const FORMAT: u32 = 1;

/// The same program on several platforms.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Matrix {
    /// [`FORMAT`].
    pub format: u32,
    /// By what calls were put into classes.
    pub scheme: Scheme,
    /// How sleep was distinguished from work.
    pub sleep: Sleep,
    /// How often the program was run on each.
    pub repetitions: u32,
    /// In the order in which they were named.
    pub platforms: Vec<Platform>,
    /// Each platform but the first against the first.
    pub comparisons: Vec<Diff>,
    /// What the person should know: caches that could not be dropped, runs that failed.
    pub notes: Vec<String>,
}

/// One platform.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Platform {
    /// The kind of its file system, as the kernel has it.
    pub kind: String,
    /// Its runs in all.
    #[serde(flatten)]
    pub side: Side,
    /// The classes.
    pub classes: Vec<ClassFigures>,
    /// Their parts.
    pub subclasses: Vec<SubclassFigures>,
    /// How many threads a run has had.
    #[serde(default)]
    pub threads: Estimate,
    /// Where the machine's processors were meanwhile, in percent of their time: in programs, in the
    /// kernel, idle. Other programs are in it.
    #[serde(default)]
    pub machine_user_percent: Estimate,
    /// In the kernel.
    #[serde(default)]
    pub machine_kernel_percent: Estimate,
    /// Idle, or waiting for a device.
    #[serde(default)]
    pub machine_idle_percent: Estimate,
    /// The calls by name, those that take most time first: at most [`CALLS`].
    #[serde(default)]
    pub calls: Vec<CallFigures>,
}

/// The largest number of calls by name in [`Platform::calls`].
pub const CALLS: usize = 16;

/// Calls of one name on one platform.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CallFigures {
    /// As the kernel calls it.
    pub name: String,
    /// Of all calls, in percent: of the medians.
    pub calls_percent: f64,
    /// Of the time of all calls, in percent.
    pub time_percent: f64,
    /// Of the time without sleep, in percent.
    pub awake_percent: f64,
}

/// A class on one platform.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClassFigures {
    /// The class of system calls.
    pub class: Class,
    /// Its calls in a run.
    pub figures: Figures,
    /// Of all calls, in percent: of the medians.
    pub calls_percent: f64,
    /// Of the time of all calls, in percent.
    pub time_percent: f64,
    /// Of the time without sleep, in percent.
    pub awake_percent: f64,
}

/// A part of a class on one platform.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SubclassFigures {
    /// The subclass of system calls.
    pub subclass: Subclass,
    /// How many different calls, at most in a run.
    pub distinct: u64,
    /// Its calls in a run.
    pub figures: Figures,
    /// Of all calls, in percent: of the medians.
    pub calls_percent: f64,
    /// Of the time of all calls, in percent.
    pub time_percent: f64,
    /// Of the time without sleep, in percent.
    pub awake_percent: f64,
}

impl Platform {
    /// Of its runs, and of what was around them.
    pub(super) fn of(kind: &str, runs: &Runs, around: &[Around]) -> Platform {
        let side = runs.side();
        let percents = |figures: &Figures| {
            (
                percent_of(figures.calls.value, side.total.calls.value),
                percent_of(figures.wall_ns.value, side.total.wall_ns.value),
                percent_of(figures.awake_ns.value, side.total.awake_ns.value),
            )
        };
        let classes = Class::ALL.map(|class| {
            let figures = runs.figures(&|report| report.class(class).map(|row| row.sums.clone()));
            let (calls_percent, time_percent, awake_percent) = percents(&figures);
            ClassFigures { class, figures, calls_percent, time_percent, awake_percent }
        });
        let subclasses = Subclass::ALL.into_iter().filter_map(|subclass| {
            let sums = |report: &crate::report::Report| -> Option<Sums> {
                report
                    .subclasses
                    .iter()
                    .find(|row| row.subclass == subclass)
                    .map(|row| row.sums.clone())
            };
            let figures = runs.figures(&sums);
            let (calls_percent, time_percent, awake_percent) = percents(&figures);
            let distinct =
                runs.reports.iter().filter_map(sums).map(|sums| sums.distinct).max().unwrap_or(0);
            (figures.calls.value > 0.0).then_some(SubclassFigures {
                subclass,
                distinct,
                figures,
                calls_percent,
                time_percent,
                awake_percent,
            })
        });
        let subclasses = subclasses.collect();
        let names: BTreeSet<&str> = runs
            .reports
            .iter()
            .flat_map(|report| report.calls.iter().map(|row| row.name.as_str()))
            .collect();
        let mut calls: Vec<CallFigures> = names
            .into_iter()
            .map(|name| {
                // One name may have rows in several classes, and from several doors.
                let median = |of: fn(&Sums) -> u64| {
                    let of_run = |report: &crate::report::Report| {
                        let rows = report.calls.iter().filter(|row| row.name == name);
                        rows.map(|row| of(&row.sums)).sum::<u64>() as f64
                    };
                    Estimate::of(&runs.reports.iter().map(of_run).collect::<Vec<_>>()).value
                };
                CallFigures {
                    name: name.to_owned(),
                    calls_percent: percent_of(median(|sums| sums.calls), side.total.calls.value),
                    time_percent: percent_of(
                        median(|sums| sums.time.wall_ns),
                        side.total.wall_ns.value,
                    ),
                    awake_percent: percent_of(
                        median(|sums| sums.awake_ns),
                        side.total.awake_ns.value,
                    ),
                }
            })
            .collect();
        calls.sort_by(|one, other| other.time_percent.total_cmp(&one.time_percent));
        // Half of the list is the calls with the most time; the other half is the most frequent calls.
        let mut frequent: Vec<f64> = calls.iter().map(|call| call.calls_percent).collect();
        frequent.sort_by(|one, other| other.total_cmp(one));
        let often = frequent.get(CALLS / 2).copied().unwrap_or(0.0);
        let mut rank = 0;
        calls.retain(|call| {
            rank += 1;
            rank <= CALLS / 2 || call.calls_percent > often
        });
        let shares = |of: fn(&Shares) -> f64| {
            let shares: Vec<f64> =
                around.iter().filter_map(|around| around.shares.as_ref().map(of)).collect();
            Estimate::of(&shares)
        };
        let threads: Vec<f64> = around.iter().map(|around| around.threads as f64).collect();
        Platform {
            kind: kind.to_owned(),
            side,
            classes: classes.into(),
            subclasses,
            threads: Estimate::of(&threads),
            machine_user_percent: shares(|shares| shares.user),
            machine_kernel_percent: shares(|shares| shares.kernel),
            machine_idle_percent: shares(|shares| shares.idle),
            calls,
        }
    }
}
