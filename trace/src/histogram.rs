//! The distribution of the lengths of calls: percentiles, and bars of a picture with what the time
//! was spent on.
//!
//! Invariants: memory is bounded by the span of the values, not by their number. Percentiles are
//! within 1 % of the value. Every call is in exactly one bar.

use hdrhistogram::Histogram;

use crate::Split;

/// Bars double in width: bar `n` holds what took less than `2^n` ns, and not less than half of
/// that. The last has all from 39 hours on.
pub(crate) const BARS: usize = 48;

/// Two digits: 1 %.
const DIGITS: u8 = 2;

/// The calls of one bar.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Bar {
    /// How many.
    pub calls: u64,
    /// Their time.
    pub time: Split,
}

/// How long the calls of one kind took.
#[derive(Clone, Debug)]
pub(crate) struct Latency {
    percentiles: Histogram<u64>,
    bars: [Bar; BARS],
    max_ns: u64,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency { percentiles: empty(), bars: [Bar::default(); BARS], max_ns: 0 }
    }
}

fn empty() -> Histogram<u64> {
    // Cannot fail: the bounds are those that the crate names, and the number of digits is in its
    // range.
    Histogram::new_with_bounds(1, 2, DIGITS)
        .map(|mut histogram| {
            histogram.auto(true);
            histogram
        })
        .unwrap_or_else(|_| unreachable!("bounds and digits are constants in range"))
}

impl Latency {
    /// Counts a call.
    pub(crate) fn add(&mut self, time: &Split) {
        if self.percentiles.record(time.wall_ns.max(1)).is_err() {
            // More than it can grow to: counts as the largest value that it holds.
            self.percentiles.saturating_record(u64::MAX);
        }
        let bar = &mut self.bars[bar_of(time.wall_ns)];
        bar.calls = bar.calls.saturating_add(1);
        bar.time += *time;
        self.max_ns = self.max_ns.max(time.wall_ns);
    }

    /// How many calls.
    #[must_use]
    pub(crate) fn calls(&self) -> u64 {
        self.percentiles.len()
    }

    /// The time that this part of the calls (0 to 1) took at most, within 1 %; 0 without calls.
    #[must_use]
    pub(crate) fn at_ns(&self, part: f64) -> u64 {
        if self.percentiles.is_empty() {
            return 0;
        }
        // A value stands for a range, and its upper end may be above the largest value that there
        // was.
        self.percentiles.value_at_quantile(part).min(self.max_ns)
    }

    /// The longest call, exactly.
    #[must_use]
    pub(crate) fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// An interval that holds the true median with a probability of 95 %, by order statistics: it
    /// asks for no shape of the distribution. None with fewer than 6 calls, of which nothing can be
    /// said.
    #[must_use]
    pub(crate) fn median_interval_ns(&self) -> Option<(u64, u64)> {
        let calls = self.calls();
        let (low, high) =
            crate::statistics::median_ranks(usize::try_from(calls).unwrap_or(usize::MAX))?;
        let at = |rank: usize| self.at_ns((rank as f64 + 0.5) / calls as f64);
        Some((at(low), at(high)))
    }

    /// The bars that hold calls, from the shortest to the longest, with those between them.
    #[must_use]
    pub(crate) fn bars(&self) -> Vec<(usize, Bar)> {
        let used = |bar: &Bar| bar.calls > 0;
        let Some(first) = self.bars.iter().position(used) else { return Vec::new() };
        let last = self.bars.iter().rposition(used).unwrap_or(first);
        (first..=last).map(|index| (index, self.bars[index])).collect()
    }
}

/// The bar that holds a time.
#[must_use]
pub(crate) fn bar_of(time_ns: u64) -> usize {
    let bits = (u64::BITS - time_ns.leading_zeros()) as usize;
    bits.min(BARS - 1)
}

/// Where a bar ends: all in it took less. The last one has no end.
#[must_use]
pub(crate) fn bar_end_ns(index: usize) -> u64 {
    if index + 1 >= BARS { u64::MAX } else { 1 << index }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times: &[u64]) -> Latency {
        let mut latency = Latency::default();
        times.iter().for_each(|time| latency.add(&Split::of(*time, 0, 0, 0, 0)));
        latency
    }

    /// Percentiles are within one percent of the exact value, and the longest call is exact.
    ///
    /// Guarantee: trace/percentiles
    #[test]
    fn percentiles_within_one_percent_and_exact_maximum() {
        let latency = of(&(1..=100_000).map(|index| index * 1_001).collect::<Vec<_>>());
        for (part, truth) in [(0.5, 50_050_000.0), (0.9, 90_090_000.0), (0.99, 99_099_000.0)] {
            let off = (latency.at_ns(part) as f64 - truth).abs() / truth;
            assert!(off < 0.01, "{part}: {off}");
        }
        assert_eq!(latency.max_ns(), 100_100_000);
        assert_eq!(latency.at_ns(1.0), 100_100_000);
        assert_eq!(Latency::default().at_ns(0.5), 0);
    }

    /// The histogram counts the longest and the shortest time that its type can hold.
    #[test]
    fn extreme_times_are_counted() {
        let latency = of(&[0, 1, u64::MAX]);
        assert_eq!(latency.calls(), 3);
        let bars = latency.bars();
        assert_eq!((bars[0].0, bars.last().unwrap().0), (0, BARS - 1));
        assert_eq!(bars.iter().map(|(_, bar)| bar.calls).sum::<u64>(), 3);
        assert_eq!(latency.max_ns(), u64::MAX);
    }

    #[test]
    fn every_call_is_in_the_bar_whose_bounds_hold_it() {
        for time in [0, 1, 2, 3, 4, 1023, 1024, 1 << 40] {
            let bar = bar_of(time);
            assert!(time < bar_end_ns(bar) && (bar == 0 || time >= bar_end_ns(bar - 1)), "{time}");
        }
    }
}
