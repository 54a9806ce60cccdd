//! A model of the cost of copies on the store's disk: something for each file, which the journal of
//! its file system takes, and something for each byte. Measured once, kept in the home, and
//! corrected by what every emergency shows.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdfast_sys::file::{private_options, sync_directory, write_private};

/// What a measurement writes. Enough for caches in the disk not to hide what it is like; not so
/// much that flash minds.
const TRIAL_BYTES: u64 = 8 << 20;
const PIECE_BYTES: usize = 256 << 10;
/// Small files of a measurement, of which each gets its name as a copy does.
const TRIAL_FILES: u32 = 4;
const TRIAL_FILE_BYTES: usize = 4 << 10;
/// Of a disk that could not be measured.
const PER_HEAP_DEFAULT: Duration = Duration::from_millis(20);
/// More than any disk takes for a file.
const PER_HEAP_MAX: Duration = Duration::from_secs(5);
/// Less than any medium that a heap is kept on.
const BYTES_PER_S_MIN: u64 = 256 << 10;
/// Passes that wrote less say more about syncs than about the medium.
const TELLING_BYTES: u64 = 4 << 20;

/// The measured cost of a copy: a time for each file and one for each byte.
#[derive(Debug)]
pub(crate) struct Bandwidth {
    bytes_per_s: u64,
    per_heap: Duration,
    /// Where it is kept; nowhere if it was given.
    kept_at: Option<PathBuf>,
}

impl Bandwidth {
    /// What is known of the disk, or is measured now. What was given is believed: then files cost
    /// nothing.
    pub(crate) fn of(home: &Path, store: &Path, given: Option<u64>) -> Bandwidth {
        if let Some(bytes_per_s) = given {
            return Bandwidth {
                bytes_per_s: bytes_per_s.max(1),
                per_heap: Duration::ZERO,
                kept_at: None,
            };
        }
        let path = home.join("keeper-bandwidth");
        let kept = fs::read_to_string(&path).ok().and_then(|text| parse(&text));
        let mut costs = Bandwidth {
            bytes_per_s: BYTES_PER_S_MIN,
            per_heap: PER_HEAP_DEFAULT,
            kept_at: Some(path),
        };
        match kept {
            Some(kept) => costs.take(kept),
            // A full disk cannot be measured; then the least is assumed.
            None => drop(measure(store).map(|measured| costs.set(measured))),
        }
        costs
    }

    pub(crate) fn bytes_per_s(&self) -> u64 {
        self.bytes_per_s
    }

    pub(crate) fn per_heap(&self) -> Duration {
        self.per_heap
    }

    /// Learns from a pass. Slower counts at once, faster by and by: what is promised must be kept.
    /// What a pass with many bytes took tells of the bytes, and what one with few took tells of the
    /// files.
    pub(crate) fn learn(&mut self, heaps: u32, bytes: u64, time: Duration) {
        if self.kept_at.is_none() || heaps == 0 || time.is_zero() {
            return;
        }
        let (mut bytes_per_s, mut per_heap) = (self.bytes_per_s, self.per_heap);
        let for_files = per_heap.saturating_mul(heaps);
        if bytes >= TELLING_BYTES && for_files <= time / 2 {
            let seen = (bytes as f64 / (time - for_files).as_secs_f64()) as u64;
            bytes_per_s = if seen < bytes_per_s {
                u64::midpoint(bytes_per_s, seen)
            } else {
                bytes_per_s + (seen - bytes_per_s) / 8
            };
        } else {
            let for_bytes = Duration::from_secs_f64(bytes as f64 / bytes_per_s as f64);
            let seen = time.saturating_sub(for_bytes) / heaps;
            per_heap = if seen > per_heap {
                (per_heap + seen) / 2
            } else {
                per_heap - (per_heap - seen) / 8
            };
        }
        self.set((bytes_per_s, per_heap));
    }

    fn take(&mut self, (bytes_per_s, per_heap): (u64, Duration)) {
        self.bytes_per_s = bytes_per_s.max(BYTES_PER_S_MIN);
        self.per_heap = per_heap.min(PER_HEAP_MAX);
    }

    fn set(&mut self, costs: (u64, Duration)) {
        self.take(costs);
        if let Some(path) = &self.kept_at {
            // Measured again by the next keeper if it cannot be kept.
            let text = format!("{} {}\n", self.bytes_per_s, self.per_heap.as_micros());
            let _ = write_private(path, text.as_bytes());
        }
    }
}

/// Bytes a second, and microseconds for each file.
pub(crate) fn parse(text: &str) -> Option<(u64, Duration)> {
    let (bytes_per_s, per_heap_us) = text.trim().split_once(' ')?;
    Some((bytes_per_s.parse().ok()?, Duration::from_micros(per_heap_us.parse().ok()?)))
}

/// Writes files, makes them durable, gives the small ones their names, removes them.
fn measure(store: &Path) -> io::Result<(u64, Duration)> {
    let (path, named) = (store.join(".keeper-trial"), store.join(".keeper-trial-named"));
    let create = || private_options().write(true).create(true).truncate(true).open(&path);
    // No zeros, which a disk may keep for nothing.
    let piece: Vec<u8> = (0..PIECE_BYTES).map(|at| (at * 167 % 251) as u8).collect();
    let measured = (|| {
        let started = Instant::now();
        for _ in 0..TRIAL_FILES {
            let mut file = create()?;
            file.write_all(&piece[..TRIAL_FILE_BYTES])?;
            file.sync_all()?;
            fs::rename(&path, &named)?;
        }
        sync_directory(store)?;
        let per_heap = started.elapsed() / TRIAL_FILES;
        let mut file = create()?;
        let started = Instant::now();
        for _ in 0..TRIAL_BYTES / PIECE_BYTES as u64 {
            file.write_all(&piece)?;
        }
        file.sync_all()?;
        let time = started.elapsed();
        let time = time.saturating_sub(per_heap).max(time / 2).max(Duration::from_micros(1));
        Ok(((TRIAL_BYTES as f64 / time.as_secs_f64()) as u64, per_heap))
    })();
    for path in [path, named] {
        let _ = fs::remove_file(path);
    }
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was measured is kept and a slow pass counts more than a fast one.
    #[test]
    fn slow_measurement_outweighs_a_fast_one() {
        let home = tempfile::tempdir().unwrap();
        let mut first = Bandwidth::of(home.path(), home.path(), None);
        assert!(first.bytes_per_s() > BYTES_PER_S_MIN);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "the trial is left");
        let (fast, per_heap) = (100 << 20, Duration::from_millis(10));
        first.set((fast, per_heap));
        let again = Bandwidth::of(home.path(), home.path(), None);
        assert_eq!((again.bytes_per_s(), again.per_heap()), (fast, per_heap));
        let second = |more: u64| Duration::from_millis(1000 + 10 * more);
        first.learn(1, 50 << 20, second(1));
        assert_eq!(first.bytes_per_s(), 75 << 20);
        first.learn(10, 155 << 20, second(10));
        assert_eq!((first.bytes_per_s(), first.per_heap()), (85 << 20, per_heap));
        // Little data: what it took tells of the files.
        first.learn(4, 0, Duration::from_millis(120));
        assert_eq!((first.bytes_per_s(), first.per_heap()), (85 << 20, Duration::from_millis(20)));
        first.learn(4, 0, Duration::from_millis(16));
        assert_eq!(first.per_heap(), Duration::from_millis(18));
        first.learn(0, 0, second(0));
        assert_eq!(first.per_heap(), Duration::from_millis(18), "nothing was written");
        // What an earlier version left is measured again.
        fs::write(home.path().join("keeper-bandwidth"), "5\n").unwrap();
        assert!(Bandwidth::of(home.path(), home.path(), None).bytes_per_s() > 5);
        let given = Bandwidth::of(home.path(), home.path(), Some(7));
        assert_eq!((given.bytes_per_s(), given.per_heap()), (7, Duration::ZERO));
    }

    #[test]
    fn what_cannot_be_measured_is_assumed_to_be_slow() {
        let home = tempfile::tempdir().unwrap();
        let nowhere = home.path().join("nowhere");
        assert_eq!(Bandwidth::of(&nowhere, &nowhere, None).bytes_per_s(), BYTES_PER_S_MIN);
    }
}
