//! Medians and how sure they are, by order statistics: nothing is assumed about how values are
//! distributed.

/// The places (from 0) of the sorted values between which the true median is with a probability of
/// 95 % or more. None with fewer than 6 values: even the smallest and the largest of 5 miss it more
/// often than that.
#[must_use]
pub(crate) fn median_ranks(values: usize) -> Option<(usize, usize)> {
    if values < 6 {
        return None;
    }
    let low = if values > 1000 {
        // The binomial distribution is the normal one by then.
        (((values as f64) - 1.96 * (values as f64).sqrt()) / 2.0).floor() as usize
    } else {
        // How many of the smallest can be left out: the probability that as few or fewer lie below
        // the median.
        let mut term = 0.5_f64.powi(i32::try_from(values).unwrap_or(i32::MAX));
        let mut below = term;
        let mut left_out = 0;
        while below <= 0.025 {
            left_out += 1;
            term *= (values - left_out + 1) as f64 / left_out as f64;
            below += term;
        }
        left_out
    };
    let low = low.saturating_sub(1);
    Some((low, values - 1 - low))
}

/// The median of some values, and where it is for sure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Median {
    /// The middle one, or the mean of the two in the middle.
    pub value: f64,
    /// With a probability of 95 %; None with fewer than 6 values.
    pub interval: Option<(f64, f64)>,
}

impl Median {
    /// None of no values.
    #[must_use]
    pub(crate) fn of(values: &[f64]) -> Option<Median> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let upper = *sorted.get(middle)?;
        let value = if sorted.len() % 2 == 1 { upper } else { (sorted[middle - 1] + upper) / 2.0 };
        let interval = median_ranks(sorted.len()).map(|(low, high)| (sorted[low], sorted[high]));
        Some(Median { value, interval })
    }

    /// Whether two are apart for sure: both have an interval, and these do not touch.
    #[must_use]
    pub(crate) fn differs_from(&self, other: &Median) -> Option<bool> {
        let ((low, high), (other_low, other_high)) = (self.interval?, other.interval?);
        Some(high < other_low || other_high < low)
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// Guarantee: trace/percentiles
    #[test]
    fn the_ranks_of_a_median_are_those_of_the_tables() {
        // From the binomial distribution with 1/2, two-sided 95 %, as tables of the sign test have
        // them (counted from 1 there).
        for (values, low, high) in [
            (6, 1, 6),
            (9, 2, 8),
            (10, 2, 9),
            (15, 4, 12),
            (20, 6, 15),
            (50, 18, 33),
            (100, 40, 61),
        ] {
            assert_eq!(median_ranks(values), Some((low - 1, high - 1)), "{values}");
        }
        assert!((0..6).all(|few| median_ranks(few).is_none()));
    }

    /// For many values, the approximate ranks are close to the ranks found by counting.
    #[test]
    fn approximate_ranks_are_close_to_counted_ones() {
        let (low, high) = median_ranks(1001).unwrap();
        let (counted, _) = median_ranks(1000).unwrap();
        assert!(low.abs_diff(counted) <= 2 && low + high == 1000, "{low} {high} {counted}");
    }

    /// The confidence interval of a median contains the true median in 95 percent of cases.
    ///
    /// Guarantee: trace/percentiles
    #[test]
    fn median_interval_covers_95_percent() {
        let mut generator = SmallRng::seed_from_u64(7);
        // A skewed distribution, as times are; the median of the square of a number from 0 to 1 is
        // 1/4.
        let mut random = || generator.random::<f64>().powi(2);
        let holds = (0..2000)
            .filter(|_| {
                let values: Vec<_> = (0..11).map(|_| random()).collect();
                let (low, high) = Median::of(&values).unwrap().interval.unwrap();
                low <= 0.25 && 0.25 <= high
            })
            .count();
        assert!(holds >= 1900, "{holds} of 2000");
    }

    /// Two medians are reported as different only if their confidence intervals do not overlap.
    #[test]
    fn medians_differ_only_with_disjoint_intervals() {
        let of =
            |from: u32| Median::of(&(from..from + 10).map(f64::from).collect::<Vec<_>>()).unwrap();
        assert_eq!(of(0).differs_from(&of(20)), Some(true));
        assert_eq!(of(0).differs_from(&of(3)), Some(false));
        assert_eq!(of(0).differs_from(&Median::of(&[9.0, 9.0]).unwrap()), None);
        assert_eq!(Median::of(&[]), None);
        assert_eq!(Median::of(&[4.0, 1.0]).unwrap().value, 2.5);
    }
}
