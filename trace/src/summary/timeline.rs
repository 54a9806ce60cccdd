//! The timeline of a thread's calls: a row of bins over the whole trace, for a picture.
//!
//! Invariants: the number of bins is constant. When the trace goes on beyond the last one, all bins
//! of all rows double in width at once, so rows stay comparable. What is added is never lost, only
//! blurred.

use crate::Split;

/// Bins of a row.
pub(super) const BINS: usize = 160;
const FIRST_WIDTH_NS: u64 = 1_000_000;

/// What happened in one bin, in ns. A picture does not need more digits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Bin {
    /// In calls, on a CPU.
    pub(super) cpu: f32,
    /// In calls, asleep or waiting for no device.
    pub(super) asleep: f32,
    /// In calls, waiting for a device.
    pub(super) device: f32,
    /// In calls, ready to run.
    pub(super) queue: f32,
}

impl Bin {
    fn add(&mut self, time: &Split, part: f64) {
        let of = |ns: u64| (ns as f64 * part) as f32;
        self.cpu += of(time.cpu_ns);
        self.asleep += of(time.sleep_ns) + of(time.wait_ns);
        self.device += of(time.io_wait_ns);
        self.queue += of(time.queue_ns);
    }

    fn merge(&mut self, other: Bin) {
        self.cpu += other.cpu;
        self.asleep += other.asleep;
        self.device += other.device;
        self.queue += other.queue;
    }
}

/// Where bins are in time, for all rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    origin_ns: Option<u64>,
    width_ns: u64,
}

impl Default for Scale {
    fn default() -> Scale {
        Scale { origin_ns: None, width_ns: FIRST_WIDTH_NS }
    }
}

impl Scale {
    /// The width of a bin.
    pub(super) fn width_ns(&self) -> u64 {
        self.width_ns
    }

    /// Begins at the first instant that is seen. What is before that (events come roughly in order)
    /// counts as of it.
    pub(super) fn offset_ns(&mut self, at_ns: u64) -> u64 {
        at_ns.saturating_sub(*self.origin_ns.get_or_insert(at_ns))
    }

    /// Widens the bins until this offset is in one, and says by how many doublings.
    pub(super) fn reach(&mut self, offset_ns: u64) -> u32 {
        let mut doublings = 0;
        while offset_ns / self.width_ns >= BINS as u64 {
            self.width_ns *= 2;
            doublings += 1;
        }
        doublings
    }
}

/// The row of one thread.
#[derive(Clone, Debug)]
pub(super) struct Timeline(Box<[Bin; BINS]>);

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline(Box::new([Bin::default(); BINS]))
    }
}

impl Timeline {
    /// The bins.
    pub(super) fn bins(&self) -> &[Bin] {
        self.0.as_slice()
    }

    /// Pairs of bins become one, `doublings` times.
    pub(super) fn narrow(&mut self, doublings: u32) {
        for _ in 0..doublings.min(64) {
            for index in 0..BINS {
                let mut both = self.0.get(2 * index).copied().unwrap_or_default();
                both.merge(self.0.get(2 * index + 1).copied().unwrap_or_default());
                self.0[index] = both;
            }
        }
    }

    /// Spreads a call over the bins that it was in. `scale` reaches its end.
    pub(super) fn add(&mut self, offset_ns: u64, time: &Split, scale: Scale) {
        let width = scale.width_ns;
        let last = BINS - 1;
        let end_ns = offset_ns.saturating_add(time.wall_ns);
        let bin = |at: u64| usize::try_from(at / width).unwrap_or(last).min(last);
        let (first, until) = (bin(offset_ns), bin(end_ns));
        if first == until || time.wall_ns == 0 {
            self.0[first].add(time, 1.0);
            return;
        }
        for index in first..=until {
            let from = offset_ns.max(index as u64 * width);
            let to = if index == last {
                end_ns
            } else {
                end_ns.min((index as u64 + 1).saturating_mul(width))
            };
            self.0[index].add(time, to.saturating_sub(from) as f64 / time.wall_ns as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(row: &Timeline) -> f64 {
        row.bins().iter().map(|bin| f64::from(bin.cpu + bin.asleep + bin.device + bin.queue)).sum()
    }

    /// A long trace makes the lanes coarser, but their totals stay exact.
    ///
    /// Guarantee: trace/bounded
    #[test]
    fn long_trace_coarsens_lanes_without_loss() {
        let mut scale = Scale::default();
        let (mut early, mut late) = (Timeline::default(), Timeline::default());
        let mut total = 0.0;
        for second in 0..100 {
            let offset = scale.offset_ns(5_000_000_000 + second * 1_000_000_000);
            let time = Split::of(100_000_000, 300_000_000, 0, 50_000_000, 50_000_000);
            let doublings = scale.reach(offset + time.wall_ns);
            early.narrow(doublings);
            late.narrow(doublings);
            if second < 50 { &mut early } else { &mut late }.add(offset, &time, scale);
            total += time.wall_ns as f64;
        }
        assert!((sum(&early) + sum(&late) - total).abs() / total < 1e-3);
        let middle = usize::try_from(50_000_000_000 / scale.width_ns()).unwrap();
        assert!(early.bins()[middle + 1..].iter().all(|bin| *bin == Bin::default()));
        assert!(late.bins()[..middle - 1].iter().all(|bin| *bin == Bin::default()));
    }

    #[test]
    fn a_clock_at_its_end_is_no_harm() {
        let mut scale = Scale::default();
        let start = scale.offset_ns(0);
        let time = Split::of(u64::MAX, 0, 0, 0, 0);
        let mut row = Timeline::default();
        row.narrow(scale.reach(start.saturating_add(time.wall_ns)));
        row.add(start, &time, scale);
        assert!((sum(&row) / u64::MAX as f64 - 1.0).abs() < 1e-3);
    }
}
