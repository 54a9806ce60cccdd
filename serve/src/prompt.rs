//! Asks the user on the controlling terminal.
//!
//! Invariants: only an answer that was typed after the question counts; no answer is a no. A process
//! in the background of its terminal asks nothing: reading would stop it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use holdfast_sys::terminal::Shown;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{QueueSelector, tcflush, tcgetpgrp};

use crate::origin::Origin;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
const ANSWER_BYTES_MAX: usize = 64;

/// The terminal of this process, if it may ask there.
fn terminal() -> Option<File> {
    let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
    (tcgetpgrp(&terminal).ok()? == rustix::process::getpgrp()).then_some(terminal)
}

/// Whether the user allows an origin; `None` where there is no terminal. Waits for the answer.
pub(crate) fn ask(origin: &Origin) -> Option<bool> {
    let mut terminal = terminal()?;
    tcflush(&terminal, QueueSelector::IFlush).ok()?;
    let origin = Shown(origin.as_str());
    write!(terminal, "allow {origin} to run native applets here? [y/N] ").ok()?;
    terminal.flush().ok()?;
    let answer = read_line(&mut terminal);
    if answer.is_none() {
        let _ = writeln!(terminal, "\nno answer: {origin} is refused");
    }
    Some(answer.is_some_and(|answer| is_yes(&answer)))
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

fn read_line(terminal: &mut File) -> Option<String> {
    let end = Instant::now() + PATIENCE;
    let mut answer = Vec::new();
    while answer.len() < ANSWER_BYTES_MAX {
        let left = Timespec::try_from(end.checked_duration_since(Instant::now())?).ok()?;
        let mut waited = [PollFd::new(&*terminal, PollFlags::IN)];
        match poll(&mut waited, Some(&left)) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return None,
        }
        let mut bytes = [0; ANSWER_BYTES_MAX];
        let count = terminal.read(&mut bytes).ok()?;
        answer.extend_from_slice(&bytes[..count]);
        if count == 0 || answer.contains(&b'\n') {
            break;
        }
    }
    String::from_utf8(answer).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_yes() {
        for yes in ["y\n", "Y", "yes\n", " Yes "] {
            assert!(is_yes(yes), "{yes:?}");
        }
        for no in ["", "\n", "n\n", "yo", "yes no", "\u{79}\u{301}"] {
            assert!(!is_yes(no), "{no:?}");
        }
    }
}
