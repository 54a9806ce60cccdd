//! The handle of a running program.

#![forbid(unsafe_code)]

use std::io;
use std::ops::Range;
use std::time::Duration;

use crate::end::{End, KillReason, Usage};
use crate::error::JailError;
use crate::jail::Jail;
use crate::layers::Weakness;

/// A program that runs in a jail, or has ended there. Dropping it ends the program.
#[derive(Debug)]
pub struct Jailed {
    pid: u32,
    weaker: Vec<Weakness>,
}

pub(crate) fn spawn(jail: Jail) -> Result<Jailed, JailError> {
    drop(jail);
    Err(JailError::Host { what: "start", source: io::ErrorKind::Unsupported.into() })
}

impl Jailed {
    /// Its PID, as the host sees it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Ends the step of loading: from now on no file is opened and no code is mapped. Calls that are not decided on
    /// yet are decided by the new step.
    ///
    /// # Errors
    /// [`JailError::Ended`].
    pub fn seal(&self) -> Result<(), JailError> {
        Err(JailError::Ended)
    }

    /// Ends the program; the first reason counts. Returns at once.
    pub fn kill(&self, why: KillReason) {
        drop(why);
    }

    /// How it ended; `None` while it runs.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        None
    }

    /// Waits until it has ended, at most this long if a time is given.
    #[must_use]
    pub fn wait(&self, timeout: Option<Duration>) -> Option<End> {
        let _ = timeout;
        self.end()
    }

    /// What it used so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage::default()
    }

    /// CPU time that all its threads used so far; one system call.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        self.usage().cpu_time
    }

    /// Layers that were asked for and that this machine cannot give.
    #[must_use]
    pub fn weaker(&self) -> &[Weakness] {
        &self.weaker
    }

    /// What was captured of its standard output.
    #[must_use]
    pub fn stdout(&self) -> Vec<u8> {
        Vec::new()
    }

    /// What was captured of its standard error.
    #[must_use]
    pub fn stderr(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Whether it wrote more than was captured.
    #[must_use]
    pub fn output_truncated(&self) -> bool {
        false
    }

    /// Copies its memory at an address; all of the buffer, or an error.
    ///
    /// # Errors
    /// `UnexpectedEof` when not all of it is mapped and readable; else what the kernel says.
    pub fn read_memory(&self, address: u64, buffer: &mut [u8]) -> io::Result<()> {
        let _ = (address, buffer);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Which pages of a private mapping of a file it has stored to: those that are its own by now. Ranges of
    /// addresses, sorted, none touching another, all within `range`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn changed_pages(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        let _ = range;
        Err(io::ErrorKind::Unsupported.into())
    }
}
