//! Series of measured values, and the median, least and largest of them, for tests and benchmarks.

/// Values of one kind, in the order in which they were measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series(Vec<f64>);

impl Series {
    /// Adds a value.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// All of them.
    #[must_use]
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    /// The middle value, or the mean of the two in the middle; NaN without values.
    #[must_use]
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match (sorted.get(middle), sorted.len() % 2) {
            (Some(upper), 0) => (sorted[middle - 1] + upper) / 2.0,
            (Some(value), _) => *value,
            (None, _) => f64::NAN,
        }
    }

    /// The smallest value; NaN without values.
    #[must_use]
    pub fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::min)
    }

    /// The largest value; NaN without values.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::max)
    }

    /// Each value of this series divided by its neighbour in the other.
    #[must_use]
    pub fn over(&self, other: &Series) -> Series {
        Series(self.0.iter().zip(&other.0).map(|(one, other)| one / other).collect())
    }

    /// The same series in other terms.
    #[must_use]
    pub fn map(&self, change: impl Fn(f64) -> f64) -> Series {
        Series(self.0.iter().copied().map(change).collect())
    }
}

impl FromIterator<f64> for Series {
    fn from_iter<T: IntoIterator<Item = f64>>(values: T) -> Series {
        Series(values.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The median is the middle value, or the mean of the two middle values.
    #[test]
    fn median_is_the_middle_or_mean_of_two_middles() {
        assert_eq!(Series(vec![9.0, 1.0, 5.0]).median(), 5.0);
        assert_eq!(Series(vec![9.0, 1.0, 5.0, 7.0]).median(), 6.0);
        assert!(Series::default().median().is_nan());
    }

    #[test]
    fn ratios_are_taken_between_neighbours() {
        let (one, other) = (Series(vec![10.0, 30.0]), Series(vec![2.0, 3.0]));
        assert_eq!(one.over(&other), Series(vec![5.0, 10.0]));
        assert_eq!((one.min(), one.max(), one.count()), (10.0, 30.0, 2));
    }
}
