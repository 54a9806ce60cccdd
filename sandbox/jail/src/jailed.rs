//! The handle of a program that runs in its jail: hosts start one by [`Jail::spawn`], wait for its
//! end, kill it, and read what it used.
//!
//! Invariant: a program never outlives its handle.

#![forbid(unsafe_code)]

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::end::{End, KillReason, Usage};
use crate::error::JailError;
use crate::inmate::Inmate;
use crate::jail::Jail;
use crate::jail::setup::{self, Started};
use crate::layers::Weakness;
use crate::policy::Step;
use crate::supervisor::Supervisor;

/// A killed process is gone sooner, unless the machine is in trouble.
const GONE_TIME: Duration = Duration::from_secs(5);

/// A program that runs in a jail, or has ended there. Dropping it ends the program, and waits until
/// it is gone.
#[derive(Debug)]
pub struct Jailed {
    inmate: Arc<Inmate>,
    weaker: Vec<Weakness>,
}

impl Jail {
    /// Which of the wanted layers this machine cannot give to the program, without starting it.
    ///
    /// # Errors
    /// `Program` and `NotNative` for what is no program; `Unconfined` and others as of
    /// [`Jail::spawn`].
    pub fn missing(&self) -> Result<Vec<Weakness>, JailError> {
        setup::missing(self)
    }

    /// Starts it, and returns once it is the program that runs.
    ///
    /// # Errors
    /// [`JailError`]; the program has not run a single instruction then, unless it is `Host` about
    /// a thread for its output: that is noticed last, and ends it.
    pub fn spawn(self) -> Result<Jailed, JailError> {
        let Started { inmate, weaker } = setup::start(self)?;
        Ok(Jailed { inmate, weaker })
    }
}

impl Jailed {
    /// Its PID, as the host sees it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.inmate.pid
    }

    /// Ends the step of loading: from now on no file is opened and no code is mapped. Calls that
    /// are not decided on yet are decided by the new step.
    ///
    /// # Errors
    /// [`JailError::Ended`].
    pub fn seal(&self) -> Result<(), JailError> {
        if self.inmate.end().is_some() {
            return Err(JailError::Ended);
        }
        self.inmate.book().step = Step::Final;
        Ok(())
    }

    /// Ends the program; the first reason counts. Returns at once. In a forked copy of the host it
    /// does nothing.
    pub fn kill(&self, why: KillReason) {
        self.inmate.finish(End::Killed(why));
    }

    /// How it ended; `None` while it runs.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        self.inmate.end()
    }

    /// Waits until it has ended and what it wrote was passed on ([`JailStdio::Relay`]), at most
    /// this long if a time is given: `None` where that is not enough. Not within `on_end`. A forked
    /// copy of the host learns nothing.
    ///
    /// [`JailStdio::Relay`]: crate::JailStdio::Relay
    #[must_use]
    pub fn wait(&self, timeout: Option<Duration>) -> Option<End> {
        self.inmate.wait(timeout)
    }

    /// As [`Jailed::wait`], whether or not what it wrote was passed on: that takes as long as the
    /// reader of the host's output likes.
    #[must_use]
    pub fn wait_for_end(&self, timeout: Option<Duration>) -> Option<End> {
        self.inmate.wait_for_end(timeout)
    }

    /// What it used so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.inmate.usage()
    }

    /// CPU time that all its threads used so far; one system call.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        self.inmate.cpu_time()
    }

    /// Layers that were asked for and that this machine cannot give.
    #[must_use]
    pub fn weaker(&self) -> &[Weakness] {
        &self.weaker
    }

    /// What was captured of its standard output so far; all of it once it has ended.
    #[must_use]
    pub fn stdout(&self) -> Vec<u8> {
        self.inmate.book().output[0].clone()
    }

    /// What was captured of its standard error so far; all of it once it has ended.
    #[must_use]
    pub fn stderr(&self) -> Vec<u8> {
        self.inmate.book().output[1].clone()
    }

    /// Whether it wrote more than was captured.
    #[must_use]
    pub fn output_truncated(&self) -> bool {
        self.inmate.book().is_truncated
    }

    /// How often it asked for the network, in vain.
    #[must_use]
    pub fn network_refusals(&self) -> u64 {
        self.inmate.book().network_refusals
    }

    /// Copies its memory at an address; all of the buffer, or an error.
    ///
    /// # Errors
    /// `UnexpectedEof` when not all of it is mapped and readable; `ESRCH` when the program has
    /// ended; else what the kernel says.
    pub fn read_memory(&self, address: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.inmate.read_memory(address, buffer)
    }

    /// Which pages of a private mapping of a file it has stored to: those that are its own by now.
    /// Ranges of addresses, sorted, none touching another, all within `range`.
    ///
    /// # Errors
    /// `InvalidInput` when the range does not begin and end with a page; `ESRCH` when the program
    /// has ended; else what the kernel says.
    pub fn changed_pages(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        self.inmate.changed_pages(range)
    }
}

impl Drop for Jailed {
    fn drop(&mut self) {
        // In a forked copy of the host there is none, and the program is not the copy's.
        let Ok(supervisor) = Supervisor::get() else { return };
        self.kill(KillReason::Dropped);
        if !supervisor.is_this_thread() {
            let _ = self.inmate.wait_for_end(Some(GONE_TIME));
        }
    }
}
