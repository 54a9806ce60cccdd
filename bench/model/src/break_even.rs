//! The length of a computation from which a call into an applet pays.
//!
//! With a call that costs `c`, and an applet that computes `s` times as fast as the interface's
//! language: a computation that takes `a` in the applet takes `s a` in the interface, and the two
//! ways are equal where `c + a = s a`, so `a = c / (s - 1)`, which takes the interface `c / (1 -
//! 1/s)`.
//!
//! The paper states the first as if it were the second: its 111.11 us (1 ms, 10 times) and 2 ms (1
//! ms, 1.5 times) are times in the applet; in the interface the limits are 1.11 ms and 3 ms. Both
//! are given here under their names.

use serde::Serialize;

use crate::time::Microseconds;

/// The computation for which both ways take equally long. A longer one is better done in the
/// applet.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BreakEven {
    /// How many times as fast the applet computes.
    pub speedup: f64,
    /// What it takes in the applet, without the call.
    pub applet_us: f64,
    /// What it takes in the interface's language.
    pub interface_us: f64,
}

/// Where a call of this cost begins to pay; `None` if it never does, as without a speed-up there is
/// nothing to win.
pub fn break_even(call: Microseconds, speedup: f64) -> Option<BreakEven> {
    if !(speedup.is_finite() && speedup > 1.0) {
        return None;
    }
    let applet_us = call.get() / (speedup - 1.0);
    let interface_us = applet_us * speedup;
    interface_us.is_finite().then_some(BreakEven { speedup, applet_us, interface_us })
}

/// Break-even points of one call over speed-ups: a curve of the paper's figures 3 and 4.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BreakEvens {
    /// What the call is, for people.
    pub name: String,
    /// What a call costs.
    pub call_us: Microseconds,
    /// By growing speed-up.
    pub points: Vec<BreakEven>,
}

impl BreakEvens {
    /// The speed-ups of the tables: close together where little is to be won, as the figures'
    /// right-hand sides.
    pub const SPEEDUPS: [f64; 16] =
        [1.05, 1.1, 1.2, 1.3, 1.4, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0, 7.5, 10.0, 20.0, 70.0];

    /// One point for each speed-up that is one.
    pub fn over(name: impl Into<String>, call: Microseconds, speedups: &[f64]) -> BreakEvens {
        let mut points: Vec<BreakEven> =
            speedups.iter().filter_map(|&speedup| break_even(call, speedup)).collect();
        points.sort_by(|one, other| one.speedup.total_cmp(&other.speedup));
        BreakEvens { name: name.into(), call_us: call, points }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(call_us: f64, speedup: f64) -> BreakEven {
        break_even(Microseconds::new(call_us).unwrap(), speedup).unwrap()
    }

    fn close(one: f64, other: f64) -> bool {
        (one - other).abs() <= 1e-9 * other.abs()
    }

    #[test]
    fn the_papers_numbers_come_out_as_times_in_the_applet() {
        // Figure 2a, figure 2b, and what the text reads from figure 3.
        assert_eq!(format!("{:.2}", at(1000.0, 10.0).applet_us), "111.11");
        assert!(close(at(1000.0, 1.5).applet_us, 2000.0));
        assert!(close(at(1000.0, 2.0).applet_us, 1000.0));
        // Figure 4: the same, two orders of magnitude lower.
        assert!(close(at(10.0, 1.5).applet_us, 20.0));
    }

    /// The break-even limits of the interface are those of the applet plus the call.
    #[test]
    fn interface_limit_adds_the_call_to_the_applet() {
        assert_eq!(format!("{:.2}", at(1000.0, 10.0).interface_us), "1111.11");
        assert!(close(at(1000.0, 1.5).interface_us, 3000.0));
        assert!(close(at(1000.0, 2.0).interface_us, 2000.0));
    }

    #[test]
    fn without_a_speedup_no_call_pays() {
        for speedup in [1.0, 0.5, 0.0, -2.0, f64::NAN, f64::INFINITY] {
            assert_eq!(break_even(Microseconds::new(10.0).unwrap(), speedup), None, "{speedup}");
        }
        assert_eq!(at(0.0, 2.0).applet_us, 0.0, "a call that costs nothing always pays");
    }

    /// A curve is sorted and leaves out values that are no speed-up.
    #[test]
    fn curve_is_sorted_and_omits_slowdowns() {
        let curve = BreakEvens::over("x", Microseconds::new(10.0).unwrap(), &[4.0, 1.0, 2.0]);
        assert_eq!(curve.points.iter().map(|point| point.speedup).collect::<Vec<_>>(), [2.0, 4.0]);
    }

    proptest! {
        /// At the break-even point, both ways take equally long.
        #[test]
        fn both_ways_take_equal_time_at_break_even(call in 0.01..1e6f64, speedup in 1.001..1e4f64) {
            let point = at(call, speedup);
            prop_assert!(close(call + point.applet_us, point.interface_us));
            prop_assert!(close(point.interface_us, call / (1.0 - 1.0 / speedup)) || speedup < 1.01);
        }
    }
}
