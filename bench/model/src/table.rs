//! The same numbers for a terminal: columns of fixed width, times in the unit that suits them.

use std::fmt;

use crate::break_even::BreakEvens;
use crate::comparison::{Comparison, Sample};
use crate::time::Time;

/// A size in B, KiB or MiB.
pub(crate) struct Size(pub(crate) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            bytes if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
            bytes if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
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
            self.name,
            Time(self.call_us.get())
        )?;
        writeln!(f, "{:>9}  {:>14}  {:>12}", "speed-up", "in the applet", "outside of it")?;
        for point in &self.points {
            let speedup = format!("{}x", point.speedup);
            writeln!(f, "{speedup:>9}  {:>14}  {:>12}", Time(point.applet_us), Time(point.interface_us))?;
        }
        Ok(())
    }
}

/// What was measured of one side: the mean, the deviation, and how far the prediction is off.
struct Measured(Option<Sample>, Option<f64>);

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(sample) = self.0 else {
            return f.pad("-");
        };
        let off = self.1.map_or_else(String::new, |off| format!(" {:>+6.1}%", off * 100.0));
        f.pad(&format!("{} ±{}{off}", Time(sample.mean_us.get()), Time(sample.standard_deviation_us.get())))
    }
}

/// A table: one row for each size, and what it comes to.
impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: time by size of the input, predicted and measured", self.workload.name)?;
        writeln!(
            f,
            "{:>9}  {:>9}  {:<28}  {:>9}  measured, off by",
            "input", "applet:", "measured, off by", "outside:"
        )?;
        for one in &self.deviations {
            let line = format!(
                "{:>9}  {:>9}  {:<28}  {:>9}  {:<28}",
                Size(one.bytes),
                Time(one.applet_predicted_us),
                Measured(Some(one.applet), one.applet_off),
                Time(one.interface_predicted_us),
                Measured(one.interface, one.interface_off),
            );
            writeln!(f, "{}", line.trim_end())?;
        }
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
        let table =
            BreakEvens::over("Figure 3", Microseconds::new(1000.0).unwrap(), &[1.5, 10.0]).to_string();
        let rows: Vec<Vec<&str>> =
            table.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows, [["1.5x", "2.00", "ms", "3.00", "ms"], ["10x", "111", "us", "1.11", "ms"]]);
    }

    #[test]
    fn a_comparison_says_from_where_on_a_call_pays_and_how_far_the_model_is_off() {
        let table = measured().to_string();
        assert!(table.contains("-20.0%") && table.contains("+10.0%"), "{table}");
        assert!(table.contains("The call pays from 57 bytes on."), "{table}");
        assert!(table.contains("off by 10.0% on average for the applet, by 1.0% outside"), "{table}");
        assert!(table.contains("furthest, -20.0%, at 64 B."), "{table}");
        assert!(table.contains("1 MiB"), "{table}");
    }
}
