//! The same numbers for a terminal: columns that are as wide as they need to be, times in the unit
//! that suits them.

use std::fmt;

use holdfast_command::output::aligned;

use crate::break_even::{BreakEven, BreakEvens};
use crate::comparison::{Comparison, Deviation, Sample};
use crate::time::Time;

/// A size in B, KiB or MiB.
pub(crate) struct Size(pub(crate) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            bytes if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => {
                format!("{} MiB", bytes >> 20)
            }
            bytes if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => {
                format!("{} KiB", bytes >> 10)
            }
            bytes => format!("{bytes} B"),
        };
        f.pad(&text)
    }
}

/// A table: one row for each speed-up.
impl fmt::Display for BreakEvens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: a call costs {}; it pays for a computation that takes longer than",
            self.name, self.call_us
        )?;
        let row = |point: &BreakEven| {
            let times = [point.applet_us, point.interface_us].map(|us| Time(us).to_string());
            [vec![format!("{}x", point.speedup)], times.to_vec()].concat()
        };
        let rows: Vec<_> = self.points.iter().map(row).collect();
        f.write_str(&aligned(&["speed-up", "in the applet", "outside of it"], &[0, 1, 2], &rows))
    }
}

/// What was measured of one side: the mean, the deviation, and how far the prediction is off.
fn measured(sample: Option<Sample>, off: Option<f64>) -> String {
    let Some(sample) = sample else { return "-".to_owned() };
    let off = off.map_or_else(String::new, |off| format!(" {:>+6.1}%", off * 100.0));
    format!("{} ±{}{off}", sample.mean_us, sample.standard_deviation_us)
}

/// A table: one row for each size, and what it comes to.
impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: time by size of the input, predicted and measured", self.workload.name)?;
        let row = |one: &Deviation| {
            vec![
                Size(one.bytes).to_string(),
                Time(one.applet_predicted_us).to_string(),
                measured(Some(one.applet), one.applet_off),
                Time(one.interface_predicted_us).to_string(),
                measured(one.interface, one.interface_off),
            ]
        };
        let rows: Vec<_> = self.deviations.iter().map(row).collect();
        let header = ["input", "applet:", "measured, off by", "outside:", "measured, off by"];
        f.write_str(&aligned(&header, &[0, 1, 3], &rows))?;
        match self.break_even_bytes {
            Some(0) => writeln!(f, "The call pays for every size.")?,
            Some(bytes) => writeln!(f, "The call pays from {bytes} bytes on.")?,
            None => writeln!(f, "The call pays from no size on.")?,
        }
        let percent = |off: Option<f64>| off.map(|off| format!("{:.1}%", off * 100.0));
        if let Some(applet) = percent(self.applet_mean_off) {
            write!(f, "The model is off by {applet} on average for the applet")?;
            if let Some(interface) = percent(self.interface_mean_off) {
                write!(f, ", by {interface} outside of it")?;
            }
            if let Some((worst, off)) = self.worst().and_then(|one| Some((one, one.applet_off?))) {
                write!(f, "; furthest, {:+.1}%, at {}", off * 100.0, Size(worst.bytes))?;
            }
            writeln!(f, ".")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::measured;
    use crate::time::Microseconds;

    #[test]
    fn a_table_of_break_even_points_names_both_times() {
        let table = BreakEvens::over("Figure 3", Microseconds::new(1000.0).unwrap(), &[1.5, 10.0])
            .to_string();
        let rows: Vec<Vec<&str>> =
            table.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            rows,
            [["1.5x", "2.00", "ms", "3.00", "ms"], ["10x", "111", "us", "1.11", "ms"]]
        );
    }

    /// A comparison gives the input size from which a call pays and the error of the model.
    #[test]
    fn comparison_gives_break_even_and_model_error() {
        let table = measured().to_string();
        assert!(table.contains("-20.0%") && table.contains("+10.0%"), "{table}");
        assert!(table.contains("The call pays from 57 bytes on."), "{table}");
        assert!(
            table.contains("off by 10.0% on average for the applet, by 1.0% outside"),
            "{table}"
        );
        assert!(table.contains("furthest, -20.0%, at 64 B."), "{table}");
        assert!(table.contains("1 MiB"), "{table}");
    }
}
