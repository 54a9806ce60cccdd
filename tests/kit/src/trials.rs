//! The number of trials of each fault of the fault matrix, and their seeds.
//!
//! `HOLDFAST_CRASH_H1=20000` sets the trials of row H1; `HOLDFAST_SEED` the seed of the first
//! trial. Each trial has a seed of its own, so that one trial can be done again: the seed that a
//! failure names, and a count of 1.
//!
//! Invariant: every test that uses this ends with one line that says how many trials it made, so
//! that `cargo xtask crash` can add them up. Nothing here loops for ever.

use std::io::Write;
use std::time::Instant;

use rand::SeedableRng;
use rand::rngs::StdRng;

const SEED_DEFAULT: u64 = 0x486f_6c64_6661_7374;

/// The trials of one test of a row of the matrix.
#[derive(Debug)]
pub struct Trials {
    row: &'static str,
    what: &'static str,
    count: u64,
    seed: u64,
    done: u64,
    started: Instant,
}

/// One trial.
#[derive(Debug)]
pub struct Trial {
    /// Counted from 0.
    pub number: u64,
    /// Of this trial alone.
    pub seed: u64,
    /// Seeded with it.
    pub random: StdRng,
}

impl Trials {
    /// As many as the environment asks for, else `count`. `what` distinguishes the tests of a row.
    ///
    /// # Panics
    /// When the environment holds no number.
    #[must_use]
    pub fn of(row: &'static str, what: &'static str, count: u64) -> Trials {
        Trials {
            row,
            what,
            count: number(&format!("HOLDFAST_CRASH_{row}")).unwrap_or(count),
            seed: number("HOLDFAST_SEED").unwrap_or(SEED_DEFAULT),
            done: 0,
            started: Instant::now(),
        }
    }

    /// Trials of which there are as many as there are cases, whatever the environment says.
    #[must_use]
    pub fn of_all(row: &'static str, what: &'static str) -> Trials {
        let mut trials = Trials::of(row, what, 0);
        trials.count = u64::MAX;
        trials
    }

    /// How many there will be.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The next one, as long as there are any.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator would borrow the value that counts"
    )]
    pub fn next(&mut self) -> Option<Trial> {
        (self.done < self.count).then(|| {
            let seed = self.seed.wrapping_add(self.done);
            self.done += 1;
            Trial { number: self.done - 1, seed, random: StdRng::seed_from_u64(seed) }
        })
    }
}

impl Drop for Trials {
    fn drop(&mut self) {
        let Trials { row, what, done, .. } = self;
        let seconds = self.started.elapsed().as_secs_f64();
        // Past the capture of the test harness: these numbers are the result. A closed standard
        // output takes nothing from the trials.
        let mut output = std::io::stdout();
        let _ = if std::thread::panicking() {
            let seed = self.seed.wrapping_add(done.saturating_sub(1));
            writeln!(
                output,
                "fault {row}: {what}: FAILED in trial {done} after {seconds:.1} s; again with \
                 HOLDFAST_SEED={seed:#x} HOLDFAST_CRASH_{row}=1"
            )
        } else {
            writeln!(
                output,
                "fault {row}: {what}: {done} trials in {seconds:.1} s, seed {:#x}",
                self.seed
            )
        };
    }
}

/// A number of the environment, decimal or, after `0x`, hexadecimal.
fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    Some(parsed.unwrap_or_else(|error| panic!("{variable}={text}: {error}; write a number")))
}
