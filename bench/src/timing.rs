//! Runs of a command, timed from start to answer as a person waits for it: the whole process.

use std::io;
use std::process::{Command, Output};
use std::time::Instant;

/// A timed run.
#[derive(Debug)]
pub struct Timed {
    /// From before the process was started until it was gone and its output read.
    pub wall_ms: f64,
    /// What it wrote to standard output.
    pub out: String,
}

/// Runs a spell check and takes the time.
///
/// # Errors
/// When it cannot be started or does not end with 0 (no unknown words) or 1 (some).
pub fn spell_check(mut command: Command) -> io::Result<Timed> {
    let started = Instant::now();
    let Output { status, stdout, stderr } = command.output()?;
    let wall_ms = ms_since(started);
    let out = String::from_utf8_lossy(&stdout).into_owned();
    if matches!(status.code(), Some(0 | 1)) {
        return Ok(Timed { wall_ms, out });
    }
    let complaint = String::from_utf8_lossy(&stderr);
    Err(io::Error::other(format!("{command:?} ended with {status}: {complaint}{out}")))
}

/// Milliseconds since then.
#[must_use]
pub fn ms_since(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1000.0
}
