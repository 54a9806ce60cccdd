//! What `holdfast model` found, for programs and for people.

use std::fmt;

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
        let width = |table: &BreakEvens| table.name.len().max(9);
        write!(f, "{:>10}", "")?;
        for table in &self.break_evens {
            write!(f, "  {:>1$}", table.name, width(table))?;
        }
        writeln!(f)?;
        let rows = self.break_evens.first().map_or(0, |table| table.points.len());
        for row in 0..rows {
            for (column, table) in self.break_evens.iter().enumerate() {
                let Some(point) = table.points.get(row) else { continue };
                if column == 0 {
                    write!(f, "{:>10}", format!("{}x", (point.speedup * 100.0).round() / 100.0))?;
                }
                write!(f, "  {:>1$}", time(point.interface_us), width(table))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "A call that computes nothing costs (median; mean and deviation of {} runs)", self.runs)?;
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
        writeln!(f, "\nShort decisions: a whole call of the applet, and the same in Python (medians)")?;
        writeln!(f, "{:>24}  {:>10}  {:>10}  the call", "in one call", "applet", "Python")?;
        for Policy { name, items, applet, interface, pays } in &self.policies {
            let what = match *name {
                "eviction" => "pages looked at",
                _ => "blocks written",
            };
            let what = format!("{items:>4} {what:<15}");
            let verdict = if *pays { "pays" } else { "is too short to pay" };
            writeln!(
                f,
                "{what:>24}  {:>10}  {:>10}  {verdict}",
                time(applet.median_us),
                time(interface.median_us)
            )?;
        }
        Ok(())
    }
}
