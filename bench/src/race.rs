//! Several sides do the same work in turns.
//!
//! Invariants: every side works once in each round; who is first changes from round to round; a
//! round before the first is not counted, so that caches and memory are warm for all.

use std::io;
use std::time::Instant;

use crate::stats::Series;

/// A repeated act is timed in so many bursts.
const BURSTS: u32 = 100;

/// Microseconds for one of many repetitions: those of the median burst. What a processor is taken
/// away for falls into some bursts and not into the others.
pub(crate) fn bursts(count: u32, mut act: impl FnMut() -> io::Result<()>) -> io::Result<f64> {
    let each = (count / BURSTS).max(1);
    let mut taken_us = Series::default();
    for _ in 0..count.div_ceil(each) {
        let started = Instant::now();
        for _ in 0..each {
            act()?;
        }
        taken_us.push(started.elapsed().as_secs_f64() * 1e6 / f64::from(each));
    }
    Ok(taken_us.median())
}

/// A side: its name, and a function that does the work once and returns what it took.
pub(crate) struct Side<'a> {
    pub(crate) name: &'static str,
    pub(crate) measure: Box<dyn FnMut() -> io::Result<f64> + 'a>,
}

impl<'a> Side<'a> {
    pub(crate) fn new(
        name: &'static str,
        measure: impl FnMut() -> io::Result<f64> + 'a,
    ) -> Side<'a> {
        Side { name, measure: Box::new(measure) }
    }
}

/// What all sides took, in the order in which they were given.
#[derive(Debug, Default)]
pub(crate) struct Times(Vec<(&'static str, Series)>);

impl Times {
    /// The values of a side, if it took part.
    pub(crate) fn of(&self, name: &str) -> Option<&Series> {
        self.0.iter().find(|(side, _)| *side == name).map(|(_, series)| series)
    }

    /// What `one` took for each unit that `other` took, if both took part.
    pub(crate) fn ratio(&self, one: &str, other: &str) -> Option<Series> {
        Some(self.of(one)?.over(self.of(other)?))
    }
}

/// Runs the race.
pub(crate) fn race(rounds: usize, mut sides: Vec<Side<'_>>) -> io::Result<Times> {
    let mut times = Times(sides.iter().map(|side| (side.name, Series::default())).collect());
    for round in 0..=rounds {
        for turn in 0..sides.len() {
            let index = (round + turn) % sides.len();
            let taken = (sides[index].measure)()
                .map_err(|error| io::Error::other(format!("{}: {error}", sides[index].name)))?;
            if round > 0 {
                times.0[index].1.push(taken);
            }
        }
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Bursts in which something else happened do not show.
    #[test]
    fn a_few_slow_bursts_do_not_count() {
        let mut calls = 0;
        let taken_us = bursts(300, || {
            calls += 1;
            if calls % 100 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            Ok(())
        });
        assert_eq!(calls, 300);
        assert!(taken_us.unwrap() < 1000.0);
        assert!(bursts(1, || Err(io::ErrorKind::Other.into())).is_err());
    }

    /// The sides take turns, and the first round does not count.
    #[test]
    fn sides_alternate_and_the_first_round_is_dropped() {
        let order = RefCell::new(String::new());
        let side = |name: &'static str| {
            let order = &order;
            Side::new(name, move || {
                order.borrow_mut().push_str(name);
                Ok(order.borrow().len() as f64)
            })
        };
        let times = race(2, vec![side("a"), side("b")]).unwrap();
        assert_eq!(*order.borrow(), "abbaab");
        assert_eq!(times.of("a"), Some(&Series::from_iter([4.0, 5.0])));
        assert_eq!(times.ratio("a", "b"), Some(Series::from_iter([4.0 / 3.0, 5.0 / 6.0])));
        assert_eq!(times.ratio("a", "c"), None);
    }
}
