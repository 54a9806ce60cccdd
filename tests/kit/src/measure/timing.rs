//! Runs of a command, timed from start to answer: from before the process is started until the last
//! byte of its answer is here. What a process does after it has answered (a checkpoint, giving
//! memory back) no caller waits for.

use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

/// A timed run.
#[derive(Debug)]
pub struct Timed {
    /// From before the process was started until the last byte of its standard output had arrived.
    pub wall_ms: f64,
    /// What it wrote to standard output.
    pub out: String,
}

/// Runs a spell check and takes the time.
///
/// # Errors
/// When it cannot be started or does not end with 0 (no unknown words) or 1 (some).
pub fn spell_check(mut command: Command) -> io::Result<Timed> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = Instant::now();
    let mut child = command.spawn()?;
    let (mut out, mut wall_ms) = (Vec::new(), 0.0);
    if let Some(stdout) = &mut child.stdout {
        let mut piece = [0; 64 << 10];
        loop {
            let bytes = stdout.read(&mut piece)?;
            if bytes == 0 {
                break;
            }
            wall_ms = ms_since(started);
            out.extend_from_slice(&piece[..bytes]);
        }
    }
    // A few lines at most, so the process never waited for their reader.
    let mut complaint = String::new();
    if let Some(stderr) = &mut child.stderr {
        stderr.read_to_string(&mut complaint)?;
    }
    let status = child.wait()?;
    let out = String::from_utf8_lossy(&out).into_owned();
    if matches!(status.code(), Some(0 | 1)) {
        return Ok(Timed { wall_ms, out });
    }
    Err(io::Error::other(format!("{command:?} ended with {status}: {complaint}{out}")))
}

/// Nanoseconds that this thread has had of a processor: for loops that wait for nothing, on
/// machines that do other things meanwhile.
#[must_use]
pub fn processor_ns() -> f64 {
    let taken = clock_gettime(ClockId::ThreadCPUTime);
    taken.tv_sec as f64 * 1e9 + taken.tv_nsec as f64
}

/// Milliseconds since then.
#[must_use]
pub fn ms_since(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1000.0
}
