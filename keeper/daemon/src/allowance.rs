//! Limits the rate of writes: over a long time no more is written than the configured rate.

use std::time::Instant;

/// Bytes that may be written now: a bucket that fills at the configured rate.
#[derive(Debug)]
pub(crate) struct Allowance {
    bytes_per_s: u64,
    burst_bytes: u64,
    bytes: f64,
    filled: Instant,
}

impl Allowance {
    pub(crate) fn new(bytes_per_s: u64, burst_bytes: u64) -> Allowance {
        Allowance { bytes_per_s, burst_bytes, bytes: burst_bytes as f64, filled: Instant::now() }
    }

    /// Whether so much may be written. What is larger than the whole bucket may when that is full,
    /// or it never could.
    pub(crate) fn allows(&mut self, bytes: u64, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.filled).as_secs_f64();
        self.bytes = (self.bytes + since * self.bytes_per_s as f64).min(self.burst_bytes as f64);
        self.filled = now;
        self.bytes >= bytes.min(self.burst_bytes) as f64
    }

    /// It was. What was written beyond the bucket is paid back first.
    pub(crate) fn spend(&mut self, bytes: u64) {
        self.bytes -= bytes as f64;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Over a long time no more is written than the rate allows.
    ///
    /// Guarantee: keeper/background
    /// Guarantee: keeper/one-slow-writer
    #[test]
    fn long_term_writes_stay_within_the_rate() {
        let mut allowance = Allowance::new(100, 1000);
        let start = Instant::now();
        let mut written = 0;
        for second in 0..1000 {
            let now = start + Duration::from_secs(second);
            while allowance.allows(130, now) {
                allowance.spend(130);
                written += 130;
            }
        }
        assert!((90_000..=101_000).contains(&written), "{written}");
    }

    /// What is larger than the burst is written when the bucket is full and paid back.
    #[test]
    fn oversized_write_waits_for_a_full_bucket() {
        let mut allowance = Allowance::new(100, 1000);
        let start = Instant::now();
        assert!(allowance.allows(5000, start));
        allowance.spend(5000);
        assert!(!allowance.allows(1, start + Duration::from_secs(39)));
        assert!(allowance.allows(1, start + Duration::from_secs(41)));
        assert!(!allowance.allows(5000, start + Duration::from_secs(45)));
        // A clock that does not go on gives nothing, and takes nothing.
        assert!(allowance.allows(1, start));
    }
}
