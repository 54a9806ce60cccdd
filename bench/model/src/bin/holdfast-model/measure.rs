//! Times of short things, in microseconds.
//!
//! Invariants: everything is measured once in each round, so that a machine that is busy for a
//! while slows all of it; what is shorter than [`BATCH_US`] is done several times in a row and the
//! time divided, after once that does not count: the clock and a wake-up are then a small part of
//! what is measured.

use std::time::{Duration, Instant};

use holdfast_model::{Microseconds, Sample};
use serde::Serialize;

use holdfast_command::exit::{Failure, host};

/// The least that a batch takes.
const BATCH_US: f64 = 2000.0;
const TIMES_MAX: f64 = 20_000.0;
/// After this long, an applet that waits for a call has gone to sleep.
const PAUSE: Duration = Duration::from_millis(3);

/// Something to be measured: does it so many times, and says what once took.
pub(crate) type Measure<'a> = Box<dyn FnMut(u32) -> Result<f64, Failure> + 'a>;

/// Times of all rounds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Times(Vec<f64>);

/// What something takes.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Taken {
    /// The median of the rounds, which the model takes: another program that gets a processor for a
    /// while does not count.
    pub median_us: f64,
    /// Their mean and deviation.
    #[serde(flatten)]
    pub sample: Sample,
}

impl Times {
    pub(crate) fn median_us(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        match (sorted.len() / 2, sorted.len() % 2) {
            (0, 0) => 0.0,
            (middle, 0) => (sorted[middle - 1] + sorted[middle]) / 2.0,
            (middle, _) => sorted[middle],
        }
    }

    pub(crate) fn sample(&self) -> Result<Sample, Failure> {
        Sample::of(&self.0).map_err(host)
    }

    pub(crate) fn taken(&self) -> Result<Taken, Failure> {
        Ok(Taken { median_us: self.median_us(), sample: self.sample()? })
    }
}

/// What is done by a call.
pub(crate) fn repeated<'a>(mut once: impl FnMut() -> Result<(), Failure> + 'a) -> Measure<'a> {
    Box::new(move |times| {
        once()?;
        let started = Instant::now();
        for _ in 0..times {
            once()?;
        }
        Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(times))
    })
}

/// The same after a pause, and once only.
pub(crate) fn rested<'a>(mut once: impl FnMut() -> Result<(), Failure> + 'a) -> Measure<'a> {
    Box::new(move |_| {
        std::thread::sleep(PAUSE);
        let started = Instant::now();
        once()?;
        Ok(started.elapsed().as_secs_f64() * 1e6)
    })
}

/// Measures everything in so many rounds, in the order given; before the first, each once to see
/// how long it takes.
pub(crate) fn rounds(runs: u32, mut all: Vec<Measure<'_>>) -> Result<Vec<Times>, Failure> {
    let often = all
        .iter_mut()
        .map(|measure| Ok(times(measure(1)?)))
        .collect::<Result<Vec<_>, Failure>>()?;
    let mut found = vec![Times::default(); all.len()];
    for _ in 0..runs {
        for ((measure, &times), taken) in all.iter_mut().zip(&often).zip(&mut found) {
            taken.0.push(measure(times)?);
        }
    }
    Ok(found)
}

/// A measured time; one below nothing, as a difference of two may be, is none.
pub(crate) fn microseconds(us: f64) -> Result<Microseconds, Failure> {
    Microseconds::new(us.max(0.0)).map_err(host)
}

/// How often it is done in a round.
fn times(us: f64) -> u32 {
    (BATCH_US / us.max(f64::MIN_POSITIVE)).clamp(1.0, TIMES_MAX) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Short work is repeated more often, and the median is the middle value.
    #[test]
    fn short_work_repeats_more_and_median_is_central() {
        assert_eq!((times(0.0), times(1.0), times(5000.0)), (20_000, 2000, 1));
        assert_eq!(Times(vec![9.0, 1.0, 5.0]).median_us(), 5.0);
        assert_eq!(Times(vec![9.0, 1.0, 5.0, 7.0]).median_us(), 6.0);
        assert_eq!(Times::default().median_us(), 0.0);
    }

    #[test]
    fn everything_is_measured_once_in_each_round() {
        let order = RefCell::new(Vec::new());
        let measure = |name: &'static str, us: f64| -> Measure<'_> {
            let order = &order;
            Box::new(move |times| {
                order.borrow_mut().push((name, times));
                Ok(us)
            })
        };
        let found = rounds(2, vec![measure("a", 1000.0), measure("b", 4000.0)]).unwrap();
        let once = [("a", 1), ("b", 1)];
        let round = [("a", 2), ("b", 1)];
        assert_eq!(*order.borrow(), [once, round, round].concat());
        assert_eq!((found[0].median_us(), found[1].taken().unwrap().sample.runs), (1000.0, 2));
    }
}
