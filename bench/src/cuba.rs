//! The suite `cuba`: tables 2, 3 and 4 and figures 2 to 4 and 9 of *High-Performance Binary Applets*
//! (Erlingsson 1997), on this machine. `bench/README.md` says what each key means and what the
//! paper has for it.
//!
//! Invariants: what is compared does the same work, and its results are compared as well; peers
//! that are not installed are named.

mod break_even;
mod calls;
mod computations;
pub(crate) mod starts;
mod video;

use std::cell::RefCell;
use std::io;

use holdfast_model::Sample;
use holdfast_model::outside::{Language, Outside, OutsideError};

use crate::report::Outcome;
use crate::section;
use crate::stats::Series;

/// A part of the suite.
type Section = (&'static str, fn(usize, &mut Outcome) -> io::Result<()>);

const SECTIONS: [Section; 5] = [
    ("starts", starts::run),
    ("calls", calls::run),
    ("computations", computations::run),
    ("video", video::run),
    ("break_even", break_even::run),
];

/// Runs the suite, or the section with the name `only`; `progress` gets the name of each step.
///
/// # Errors
/// When there is no such section, or a side fails.
pub fn run(runs: usize, only: Option<&str>, progress: &mut dyn FnMut(&str)) -> io::Result<Outcome> {
    let chosen = section::chosen(&SECTIONS, only)?;
    section::run(chosen, progress, |section, outcome| section(runs, outcome))
}

/// The languages that are installed; those that are not are named.
fn outsides(outcome: &mut Outcome) -> io::Result<Vec<RefCell<Outside>>> {
    let mut found = Vec::new();
    for language in Language::ALL {
        match Outside::start(language) {
            Ok(outside) => {
                outcome.note(format!("{} is version {}", language.name(), outside.version()));
                found.push(RefCell::new(outside));
            }
            Err(error @ OutsideError::Start { .. }) => {
                outcome.missing.push(format!("{}: {error}", language.name()));
            }
            Err(error) => return Err(io::Error::other(error)),
        }
    }
    Ok(found)
}

/// The standard deviation of values in percent of their mean, as table 3 has it.
fn deviation_pct(series: &Series) -> Option<Series> {
    let sample = Sample::of(series.values()).ok()?;
    let mean = sample.mean_us.get();
    (mean > 0.0).then(|| Series::from_iter([sample.standard_deviation_us.get() / mean * 100.0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error for a missing section lists the sections that exist.
    #[test]
    fn missing_section_error_lists_the_sections() {
        let complaint = run(1, Some("start"), &mut |_| {}).unwrap_err().to_string();
        assert!(
            complaint.contains("starts, calls, computations, video, break_even"),
            "{complaint}"
        );
    }

    #[test]
    fn deviation_is_in_percent_of_the_mean() {
        let pct = deviation_pct(&Series::from_iter([9.0, 10.0, 11.0])).unwrap();
        assert!((pct.median() - 10.0).abs() < 1e-9);
        assert!(deviation_pct(&Series::default()).is_none());
    }
}
