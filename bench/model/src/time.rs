//! A time that is one.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::ModelError;

/// A time in ns, us, ms or s, three digits.
pub(crate) struct Time(pub(crate) f64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            us if us == 0.0 => (us, "us"),
            us if us < 0.9995 => (us * 1e3, "ns"),
            us if us < 999.5 => (us, "us"),
            us if us < 999.5e3 => (us / 1e3, "ms"),
            us => (us / 1e6, "s"),
        };
        let digits = match value {
            value if value < 9.995 => 2,
            value if value < 99.95 => 1,
            _ => 0,
        };
        // Through a string, so that a width given by the caller counts.
        f.pad(&format!("{value:.digits$} {unit}"))
    }
}

/// A finite time of 0 microseconds or more.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Microseconds(f64);

impl Microseconds {
    /// None.
    pub const ZERO: Microseconds = Microseconds(0.0);

    /// # Errors
    /// [`ModelError::NotATime`] for what is negative or not finite.
    pub fn new(us: f64) -> Result<Microseconds, ModelError> {
        if us.is_finite() && us >= 0.0 {
            Ok(Microseconds(us))
        } else {
            Err(ModelError::NotATime { value: us })
        }
    }

    /// As a number.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// For people: in ns, us, ms or s, three digits.
impl fmt::Display for Microseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Time(self.0).fmt(f)
    }
}

impl TryFrom<f64> for Microseconds {
    type Error = ModelError;

    fn try_from(us: f64) -> Result<Self, ModelError> {
        Microseconds::new(us)
    }
}

impl From<Microseconds> for f64 {
    fn from(us: Microseconds) -> f64 {
        us.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_a_unit_that_suits_them() {
        let shown = |us: f64| Time(us).to_string();
        assert_eq!(shown(0.0), "0.00 us");
        assert_eq!(shown(0.12345), "123 ns");
        assert_eq!(shown(0.9999), "1.00 us");
        assert_eq!(shown(111.111), "111 us");
        assert_eq!(shown(999.9), "1.00 ms");
        assert_eq!(shown(99.96), "100 us");
        assert_eq!(shown(2_500_000.0), "2.50 s");
    }

    #[test]
    fn what_is_no_time_is_refused_in_code_and_in_files() {
        for bad in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(matches!(Microseconds::new(bad), Err(ModelError::NotATime { .. })), "{bad}");
        }
        assert!(serde_json::from_str::<Microseconds>("-3").is_err());
        assert_eq!(serde_json::from_str::<Microseconds>("3.5").unwrap().get(), 3.5);
    }
}
