//! Results for a person, as a table, and for a program, as one line of JSON.

use std::borrow::Cow;

use holdfast_command::output::aligned;
use serde_json::{Map, Value, json};

use crate::stats::Series;

/// What a measurement should come to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl Goal {
    /// Whether a value reaches it.
    #[must_use]
    pub fn is_met(self, value: f64) -> bool {
        match self {
            Goal::AtLeast(bound) => value >= bound,
            Goal::AtMost(bound) => value <= bound,
        }
    }

    fn text(self) -> String {
        match self {
            Goal::AtLeast(bound) => format!(">= {bound}"),
            Goal::AtMost(bound) => format!("<= {bound}"),
        }
    }
}

/// One measurement.
#[derive(Debug, Clone)]
pub struct Measurement {
    /// Its key in the JSON.
    pub key: Cow<'static, str>,
    /// All values.
    pub series: Series,
    /// Their unit; `x` for a ratio.
    pub unit: &'static str,
    /// What the median should come to, if anything.
    pub goal: Option<Goal>,
}

/// What a suite found.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The measurements.
    pub measurements: Vec<Measurement>,
    /// Peers that are not there, and how to get them.
    pub missing: Vec<String>,
    /// What else must be known to read the measurements.
    pub notes: Vec<String>,
}

impl Outcome {
    /// Adds a note, once.
    pub(crate) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Adds a measurement, if its sides took part.
    pub(crate) fn add(
        &mut self,
        key: impl Into<Cow<'static, str>>,
        series: Option<Series>,
        unit: &'static str,
        goal: Option<Goal>,
    ) {
        if let Some(series) = series {
            self.measurements.push(Measurement { key: key.into(), series, unit, goal });
        }
    }
}

/// A table with a line for each measurement.
#[must_use]
pub fn table(measurements: &[Measurement]) -> String {
    let number = |value: f64| format!("{value:.3}");
    let row = |Measurement { key, series, unit, goal }: &Measurement| {
        let verdict = goal.map(|goal| if goal.is_met(series.median()) { "met" } else { "MISSED" });
        vec![
            key.to_string(),
            number(series.median()),
            number(series.min()),
            number(series.max()),
            series.count().to_string(),
            (*unit).to_owned(),
            goal.map(Goal::text).unwrap_or_default(),
            verdict.unwrap_or_default().to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = measurements.iter().map(row).collect();
    aligned(&["", "median", "min", "max", "n", "unit", "goal", ""], &[1, 2, 3, 4], &rows)
}

/// One JSON object: key -> median, min, max, n, unit, goal (a text such as `>= 20`, or null).
#[must_use]
pub fn json(measurements: &[Measurement]) -> Value {
    let entries = measurements.iter().map(|Measurement { key, series, unit, goal }| {
        let value = json!({
            "median": series.median(),
            "min": series.min(),
            "max": series.max(),
            "n": series.count(),
            "unit": unit,
            "goal": goal.map(Goal::text),
        });
        (key.clone().into_owned(), value)
    });
    Value::Object(entries.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_and_json_have_the_same_numbers() {
        let measurements = [Measurement {
            key: "warm_vs_parse".into(),
            series: Series::from_iter([30.0, 10.0, 20.0]),
            unit: "x",
            goal: Some(Goal::AtLeast(20.5)),
        }];
        let json = json(&measurements);
        assert_eq!(json["warm_vs_parse"]["median"], 20.0);
        assert_eq!(json["warm_vs_parse"]["n"], 3);
        assert_eq!(json["warm_vs_parse"]["goal"], ">= 20.5");
        let table = table(&measurements);
        let lines: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["median", "min", "max", "n", "unit", "goal"]);
        let row = ["warm_vs_parse", "20.000", "10.000", "30.000", "3", "x", ">=", "20.5", "MISSED"];
        assert_eq!(lines[1..], [row]);
    }
}
