//! The report of an attempt to make room in a pool, for messages and programs.

#![forbid(unsafe_code)]

use std::fmt;
use std::io::ErrorKind;
use std::time::Duration;

/// How long other processes may make room before it is this one's turn.
pub(crate) const ROOM_PATIENCE: Duration = Duration::from_secs(30);
/// Failures that an error tells.
const FAILURES_TOLD_MAX: usize = 2;

/// What was done to make room.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoomReport {
    /// Images that left the pool: heaps, and databases by their paths.
    pub evicted: Vec<String>,
    /// Bytes that this freed.
    pub freed_bytes: u64,
    /// Images that stay because a process has them.
    pub held: usize,
    /// Images that stay because they could not be written back, each with the reason.
    pub failed: Vec<String>,
    /// Attempts that were made.
    pub attempts: u32,
    /// Other processes were making room all the time.
    pub missed_turn: bool,
    /// Why the kernel refused the allocation.
    pub cause: Option<ErrorKind>,
}

impl RoomReport {
    /// Adds what another maker of room did.
    pub fn add(&mut self, other: RoomReport) {
        self.evicted.extend(other.evicted);
        self.freed_bytes += other.freed_bytes;
        // These are of the last look, not of all.
        self.held = other.held;
        self.failed = other.failed;
    }
}

impl fmt::Display for RoomReport {
    /// The part of a message that tells what was tried; empty when nothing was.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.missed_turn {
            let seconds = ROOM_PATIENCE.as_secs();
            return write!(
                formatter,
                "other processes were making room there for {seconds} s, try again; "
            );
        }
        if self.attempts == 0 {
            return Ok(());
        }
        let evicted = self.evicted.len();
        write!(formatter, "{} attempts to make room evicted {evicted} images", self.attempts)?;
        if self.held > 0 {
            write!(formatter, ", {} are in use", self.held)?;
        }
        for (number, failure) in self.failed.iter().take(FAILURES_TOLD_MAX).enumerate() {
            let and = if number == 0 { ", and what is not in the store stays: " } else { "; " };
            write!(formatter, "{and}{failure}")?;
        }
        if self.failed.len() > FAILURES_TOLD_MAX {
            write!(formatter, "; and {} more", self.failed.len() - FAILURES_TOLD_MAX)?;
        }
        formatter.write_str("; ")
    }
}
