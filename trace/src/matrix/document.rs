//! The results of a matrix of runs, as data.
//!
//! Invariant: as for the report, fields are only ever added in one [`FORMAT`].

use serde::{Deserialize, Serialize};

use crate::classes::{Class, Scheme, Subclass};
use crate::diff::{Diff, Figures, Runs, Side};
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
    /// Of its runs.
    #[must_use]
    pub fn of(kind: &str, runs: &Runs) -> Platform {
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
        Platform { kind: kind.to_owned(), side, classes: classes.into(), subclasses }
    }
}
