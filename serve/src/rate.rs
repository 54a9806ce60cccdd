//! How fast the messages of a connection come.

use std::time::{Duration, Instant};

/// How long a message that came too early waits; the page's own buffers fill meanwhile.
const PAUSE: Duration = Duration::from_millis(10);

/// Counts messages against a rate.
pub(crate) struct Rate {
    per_s: f64,
    flood: Duration,
    /// Messages that may come at once.
    left: f64,
    filled: Instant,
    /// Since when messages have come too fast.
    too_fast_since: Option<Instant>,
}

/// What is to be done with a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    Go,
    Wait(Duration),
    Close,
}

impl Rate {
    pub(crate) fn new(per_s: u32, flood: Duration, now: Instant) -> Rate {
        let per_s = f64::from(per_s.max(1));
        Rate { per_s, flood, left: per_s, filled: now, too_fast_since: None }
    }

    pub(crate) fn message(&mut self, now: Instant) -> Pace {
        let since = now.saturating_duration_since(self.filled);
        self.filled = now;
        self.left = (self.left + since.as_secs_f64() * self.per_s).min(self.per_s) - 1.0;
        if self.left >= 0.0 {
            // Half of a second's messages are a rest.
            if self.left > self.per_s / 2.0 {
                self.too_fast_since = None;
            }
            return Pace::Go;
        }
        let began = *self.too_fast_since.get_or_insert(now);
        match now.saturating_duration_since(began) > self.flood {
            true => Pace::Close,
            false => Pace::Wait(PAUSE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_waits_and_is_then_closed() {
        let start = Instant::now();
        let mut rate = Rate::new(100, Duration::from_secs(1), start);
        assert!((0..100).all(|_| rate.message(start) == Pace::Go));
        assert_eq!(rate.message(start), Pace::Wait(PAUSE));
        let later = start + Duration::from_millis(1100);
        assert!((0..90).all(|_| rate.message(later) == Pace::Go));
        let mut now = later;
        let paces: Vec<Pace> = (0..10_000)
            .map(|_| {
                now += Duration::from_micros(500);
                rate.message(now)
            })
            .collect();
        assert_eq!(paces.last(), Some(&Pace::Close));
    }
}
