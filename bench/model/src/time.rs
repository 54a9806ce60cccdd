//! A time that is one.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::ModelError;
use crate::table::Time;

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
    fn what_is_no_time_is_refused_in_code_and_in_files() {
        for bad in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(matches!(Microseconds::new(bad), Err(ModelError::NotATime { .. })), "{bad}");
        }
        assert!(serde_json::from_str::<Microseconds>("-3").is_err());
        assert_eq!(serde_json::from_str::<Microseconds>("3.5").unwrap().get(), 3.5);
    }
}
