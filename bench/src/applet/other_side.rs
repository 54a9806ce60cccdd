//! The other side as a process: this program in a role, with one descriptor at its standard input.
//!
//! Invariant: it does not outlive the value.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Pid;

/// The process at the other end of a measured channel; killed when it is dropped.
pub(crate) struct OtherSide(Child);

impl OtherSide {
    pub(crate) fn start(role: &str, descriptor: OwnedFd) -> io::Result<OtherSide> {
        OtherSide::start_with(role, descriptor, &[])
    }

    /// With variables of the environment.
    pub(crate) fn start_with(
        role: &str,
        descriptor: OwnedFd,
        environment: &[(&str, &Path)],
    ) -> io::Result<OtherSide> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([super::PEER, role]).stdin(descriptor).stdout(Stdio::null());
        command.envs(environment.iter().copied());
        command.spawn().map(OtherSide)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }
}

impl Drop for OtherSide {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the other side was started with.
pub(crate) fn descriptor() -> io::Result<OwnedFd> {
    io::stdin().as_fd().try_clone_to_owned()
}
