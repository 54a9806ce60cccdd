//! Measured times beside predicted ones: how far the model is off.

use serde::{Deserialize, Serialize};

use crate::error::ModelError;
use crate::time::Microseconds;
use crate::workload::Workload;

/// Times of several runs of the same thing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Their mean.
    pub mean_us: Microseconds,
    /// Their standard deviation (with `runs - 1`; 0 for a single run).
    pub standard_deviation_us: Microseconds,
    /// How many there were.
    pub runs: u32,
}

impl Sample {
    /// # Errors
    /// [`ModelError::NoTimes`] for none, [`ModelError::NotATime`] for one that is none.
    pub fn of(times_us: &[f64]) -> Result<Sample, ModelError> {
        if times_us.is_empty() {
            return Err(ModelError::NoTimes);
        }
        for &time in times_us {
            Microseconds::new(time)?;
        }
        let runs = times_us.len() as f64;
        let mean = times_us.iter().sum::<f64>() / runs;
        let squares: f64 = times_us.iter().map(|time| (time - mean).powi(2)).sum();
        let variance = if times_us.len() > 1 { squares / (runs - 1.0) } else { 0.0 };
        Ok(Sample {
            mean_us: Microseconds::new(mean)?,
            standard_deviation_us: Microseconds::new(variance.sqrt())?,
            runs: times_us.len().try_into().unwrap_or(u32::MAX),
        })
    }
}

/// What was measured for one size of input.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The input's size.
    pub bytes: u64,
    /// Whole calls of the applet.
    pub applet: Sample,
    /// The computation in the interface's language; `None` where that would take too long to
    /// measure.
    pub interface: Option<Sample>,
}

/// A prediction beside what was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Deviation {
    /// The input's size.
    pub bytes: u64,
    /// The applet's time as predicted.
    pub applet_predicted_us: f64,
    /// As measured.
    pub applet: Sample,
    /// `measured / predicted - 1`; `None` where the prediction is 0.
    pub applet_off: Option<f64>,
    /// The interface's time as predicted.
    pub interface_predicted_us: f64,
    /// As measured.
    pub interface: Option<Sample>,
    /// `measured / predicted - 1`; `None` where nothing was measured or the prediction is 0.
    pub interface_off: Option<f64>,
}

/// A workload, and what was measured of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The model.
    pub workload: Workload,
    /// The smallest input for which the model says that the call pays.
    pub break_even_bytes: Option<u64>,
    /// By growing size.
    pub deviations: Vec<Deviation>,
    /// The mean of the applet's deviations, without their signs; `None` without points.
    pub applet_mean_off: Option<f64>,
    /// The same of the interface's.
    pub interface_mean_off: Option<f64>,
}

impl Comparison {
    /// Puts each point beside its prediction.
    pub fn of(workload: Workload, points: &[Point]) -> Comparison {
        let mut deviations: Vec<Deviation> =
            points.iter().map(|point| deviation(&workload, point)).collect();
        deviations.sort_by_key(|deviation| deviation.bytes);
        Comparison {
            break_even_bytes: workload.break_even_bytes(),
            applet_mean_off: mean(deviations.iter().filter_map(|one| one.applet_off)),
            interface_mean_off: mean(deviations.iter().filter_map(|one| one.interface_off)),
            deviations,
            workload,
        }
    }

    /// The point that is furthest off, of those where the applet was measured.
    pub fn worst(&self) -> Option<&Deviation> {
        let off = |deviation: &Deviation| deviation.applet_off.map_or(0.0, f64::abs);
        self.deviations.iter().max_by(|one, other| off(one).total_cmp(&off(other)))
    }
}

fn deviation(workload: &Workload, point: &Point) -> Deviation {
    let off = |measured: Sample, predicted_us: f64| {
        (predicted_us > 0.0).then(|| measured.mean_us.get() / predicted_us - 1.0)
    };
    let applet_predicted_us = workload.applet_us(point.bytes);
    let interface_predicted_us = workload.interface_us(point.bytes);
    Deviation {
        bytes: point.bytes,
        applet_predicted_us,
        applet: point.applet,
        applet_off: off(point.applet, applet_predicted_us),
        interface_predicted_us,
        interface: point.interface,
        interface_off: point.interface.and_then(|measured| off(measured, interface_predicted_us)),
    }
}

fn mean(offs: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = offs.fold((0.0, 0u32), |(sum, count), off| (sum + off.abs(), count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::workload::tests::paper;

    fn sample(mean_us: f64) -> Sample {
        Sample::of(&[mean_us]).unwrap()
    }

    pub(crate) fn measured() -> Comparison {
        let workload = paper();
        let point = |bytes: u64, applet: f64, interface: Option<f64>| Point {
            bytes,
            applet: sample(workload.applet_us(bytes) * applet),
            interface: interface.map(|by| sample(workload.interface_us(bytes) * by)),
        };
        let points =
            [point(4096, 1.1, Some(1.0)), point(64, 0.8, Some(1.02)), point(1 << 20, 1.0, None)];
        Comparison::of(paper(), &points)
    }

    /// A sample has the mean and the standard deviation of its times.
    #[test]
    fn sample_has_mean_and_deviation_of_its_times() {
        let sample = Sample::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!((sample.mean_us.get(), sample.runs), (5.0, 8));
        assert!((sample.standard_deviation_us.get() - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(Sample::of(&[3.0]).unwrap().standard_deviation_us, Microseconds::ZERO);
    }

    #[test]
    fn no_times_and_times_that_are_none_are_refused() {
        assert!(matches!(Sample::of(&[]), Err(ModelError::NoTimes)));
        assert!(matches!(Sample::of(&[1.0, f64::NAN]), Err(ModelError::NotATime { .. })));
    }

    /// Deviations are relative to the prediction and listed by size.
    #[test]
    fn deviations_are_relative_to_the_prediction() {
        let comparison = measured();
        let offs: Vec<f64> =
            comparison.deviations.iter().filter_map(|one| one.applet_off).collect();
        assert!(
            (offs[0] + 0.2).abs() < 1e-9 && (offs[1] - 0.1).abs() < 1e-9 && offs[2].abs() < 1e-9
        );
        assert!((comparison.applet_mean_off.unwrap() - 0.1).abs() < 1e-9);
        assert!((comparison.interface_mean_off.unwrap() - 0.01).abs() < 1e-9);
        assert_eq!(comparison.worst().unwrap().bytes, 64);
    }

    #[test]
    fn a_model_without_points_says_nothing_about_itself() {
        let comparison = Comparison::of(paper(), &[]);
        assert_eq!((comparison.applet_mean_off, comparison.break_even_bytes), (None, Some(57)));
        assert!(comparison.worst().is_none());
    }
}
