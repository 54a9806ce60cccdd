//! The results of `holdfast model`, for programs and for people.

use std::{fmt, iter};

use holdfast_command::output::aligned;
use holdfast_model::{BreakEven, BreakEvens, Comparison, Microseconds};
use serde::Serialize;

use crate::measure::Taken;
use crate::policies::Policy;

/// Everything. In JSON, fields are only ever added to `format` 1.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Of the JSON.
    pub format: u32,
    /// How often each thing was measured.
    pub runs: u32,
    /// The version of Python.
    pub python: String,
    /// What a call costs that computes nothing.
    pub calls: Vec<CallCost>,
    /// How fast MD5 is.
    pub speeds: Vec<Speed>,
    /// Where the native applet begins to pay here; null if it never does.
    pub break_even: Option<BreakEven>,
    /// For each kind of call: where it pays, over speed-ups.
    pub break_evens: Vec<BreakEvens>,
    /// MD5 over sizes of messages.
    pub md5: Comparison,
    /// Short decisions.
    pub policies: Vec<Policy>,
}

/// A kind of call.
#[derive(Debug, Serialize)]
pub(crate) struct CallCost {
    pub name: String,
    #[serde(flatten)]
    pub call: Taken,
}

/// MD5 in one sandbox.
#[derive(Debug, Serialize)]
pub(crate) struct Speed {
    pub name: String,
    pub us_per_byte: f64,
    /// How many times as fast as Python.
    pub speedup: f64,
}

/// A time that was measured; what is none shows as nothing.
fn time(us: f64) -> Microseconds {
    Microseconds::new(us).unwrap_or(Microseconds::ZERO)
}

impl Report {
    /// One table: a row for each speed-up, a column for each kind of call.
    fn show_break_evens(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\nFrom which time in Python on a call pays, by how many times as fast the applet computes"
        )?;
        let header: Vec<&str> = iter::once("")
            .chain(self.break_evens.iter().map(|table| table.name.as_str()))
            .collect();
        let speedups = self.break_evens.first().map_or(&[][..], |table| &table.points);
        let row = |(row, BreakEven { speedup, .. }): (usize, &BreakEven)| {
            let points = self.break_evens.iter().filter_map(|table| table.points.get(row));
            let times = points.map(|point| time(point.interface_us).to_string());
            iter::once(format!("{}x", (speedup * 100.0).round() / 100.0)).chain(times).collect()
        };
        let rows: Vec<Vec<String>> = speedups.iter().enumerate().map(row).collect();
        let right: Vec<usize> = (0..header.len()).collect();
        f.write_str(&aligned(&header, &right, &rows))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "A call that computes nothing costs (median; mean and deviation of {} runs)",
            self.runs
        )?;
        for CallCost { name, call } in &self.calls {
            let (mean, deviation) = (call.sample.mean_us, call.sample.standard_deviation_us);
            writeln!(f, "  {name:<24}  {:>9}  ({mean} ±{deviation})", time(call.median_us))?;
        }
        writeln!(f, "MD5 takes, against plain Python {}", self.python)?;
        for Speed { name, us_per_byte, speedup } in &self.speeds {
            let kibibyte = time(us_per_byte * 1024.0);
            writeln!(f, "  {name:<24}  {kibibyte:>9}  for 1 KiB: {speedup:.1} times as fast")?;
        }
        match self.break_even {
            Some(BreakEven { speedup, applet_us, interface_us }) => writeln!(
                f,
                "So a call pays for what takes longer than {} in Python, {} in the applet, where that is {speedup:.1} times as \
                 fast.",
                time(interface_us),
                time(applet_us)
            )?,
            None => writeln!(f, "The applet is not faster than Python, so no call pays.")?,
        }
        self.show_break_evens(f)?;
        write!(f, "\n{}", self.md5)?;
        if self.policies.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\nShort decisions: a whole call of the applet, and the same in Python (medians)"
        )?;
        let row = |policy: &Policy| {
            let what = match policy.name {
                "eviction" => "pages looked at",
                _ => "blocks written",
            };
            vec![
                format!("{} {what:<15}", policy.items),
                time(policy.applet.median_us).to_string(),
                time(policy.interface.median_us).to_string(),
                if policy.pays { "pays" } else { "is too short to pay" }.to_owned(),
            ]
        };
        let rows: Vec<_> = self.policies.iter().map(row).collect();
        f.write_str(&aligned(&["in one call", "applet", "Python", "the call"], &[0, 1, 2], &rows))
    }
}
