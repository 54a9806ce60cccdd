//! How fast the store's disk takes what is written one after the other: measured once, kept in the home, and corrected by
//! what every emergency shows.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use holdfast_sys::file::private_options;

/// What a measurement writes. Enough for caches in the disk not to hide what it is like; not so much that flash minds.
const TRIAL_BYTES: u64 = 8 << 20;
const PIECE_BYTES: usize = 256 << 10;
/// Less than any medium that a heap is kept on.
const BYTES_PER_S_MIN: u64 = 256 << 10;
/// Passes that wrote less say more about syncs than about the medium.
const TELLING_BYTES: u64 = 4 << 20;

/// See the module.
#[derive(Debug)]
pub(crate) struct Bandwidth {
    bytes_per_s: u64,
    /// Where it is kept; nowhere if it was given.
    kept_at: Option<PathBuf>,
}

impl Bandwidth {
    /// What is known of the disk, or is measured now.
    pub(crate) fn of(home: &Path, store: &Path, given: Option<u64>) -> Bandwidth {
        if let Some(bytes_per_s) = given {
            return Bandwidth { bytes_per_s: bytes_per_s.max(1), kept_at: None };
        }
        let path = home.join("keeper-bandwidth");
        let kept = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
        let mut bandwidth = Bandwidth { bytes_per_s: BYTES_PER_S_MIN, kept_at: Some(path) };
        match kept {
            Some(bytes_per_s) => bandwidth.bytes_per_s = bytes_per_s,
            // A full disk cannot be measured; then the least is assumed.
            None => drop(measure(store).map(|bytes_per_s| bandwidth.set(bytes_per_s))),
        }
        bandwidth.bytes_per_s = bandwidth.bytes_per_s.max(BYTES_PER_S_MIN);
        bandwidth
    }

    pub(crate) fn bytes_per_s(&self) -> u64 {
        self.bytes_per_s
    }

    /// Learns from a pass. Slower counts at once, faster by and by: what is promised must be kept.
    pub(crate) fn learn(&mut self, bytes: u64, seconds: f64) {
        if self.kept_at.is_none() || bytes < TELLING_BYTES || seconds <= 0.0 {
            return;
        }
        let seen = (bytes as f64 / seconds) as u64;
        let next = if seen < self.bytes_per_s {
            u64::midpoint(self.bytes_per_s, seen)
        } else {
            self.bytes_per_s + (seen - self.bytes_per_s) / 8
        };
        self.set(next);
    }

    fn set(&mut self, bytes_per_s: u64) {
        self.bytes_per_s = bytes_per_s.max(BYTES_PER_S_MIN);
        if let Some(path) = &self.kept_at {
            // Measured again by the next keeper if it cannot be kept.
            let _ = fs::write(path, format!("{}\n", self.bytes_per_s));
        }
    }
}

/// Writes a file, makes it durable, removes it.
fn measure(store: &Path) -> io::Result<u64> {
    let path = store.join(".keeper-trial");
    let measured = (|| {
        let mut file = private_options().write(true).create(true).truncate(true).open(&path)?;
        // No zeros, which a disk may keep for nothing.
        let piece: Vec<u8> = (0..PIECE_BYTES).map(|at| (at * 167 % 251) as u8).collect();
        let started = Instant::now();
        for _ in 0..TRIAL_BYTES / PIECE_BYTES as u64 {
            file.write_all(&piece)?;
        }
        file.sync_all()?;
        Ok((TRIAL_BYTES as f64 / started.elapsed().as_secs_f64().max(1e-6)) as u64)
    })();
    let _ = fs::remove_file(&path);
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_kept_and_a_slow_pass_counts_more_than_a_fast_one() {
        let home = tempfile::tempdir().unwrap();
        let mut first = Bandwidth::of(home.path(), home.path(), None);
        assert!(first.bytes_per_s() > BYTES_PER_S_MIN);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "the trial is left");
        first.set(100 << 20);
        assert_eq!(Bandwidth::of(home.path(), home.path(), None).bytes_per_s(), 100 << 20);
        first.learn(50 << 20, 1.0);
        assert_eq!(first.bytes_per_s(), 75 << 20);
        first.learn(155 << 20, 1.0);
        assert_eq!(first.bytes_per_s(), 85 << 20);
        first.learn(1 << 20, 1.0);
        assert_eq!(first.bytes_per_s(), 85 << 20, "a small pass tells nothing");
        assert_eq!(Bandwidth::of(home.path(), home.path(), Some(7)).bytes_per_s(), 7);
    }

    #[test]
    fn what_cannot_be_measured_is_assumed_to_be_slow() {
        let home = tempfile::tempdir().unwrap();
        let nowhere = home.path().join("nowhere");
        assert_eq!(Bandwidth::of(&nowhere, &nowhere, None).bytes_per_s(), BYTES_PER_S_MIN);
    }
}
