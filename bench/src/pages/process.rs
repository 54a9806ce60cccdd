//! Programs that are measured: each in a process group of its own, bounded in time, and gone with
//! the value that stands for it.
//!
//! Invariant: a group is signalled only while its first process has not been waited for, so that
//! its number is its own.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// A program that runs.
pub(super) struct Running {
    /// When it was started.
    pub(super) started: Instant,
    pub(super) child: Child,
    watch: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Running {
    /// Starts a program that may take no longer than this.
    pub(super) fn start(command: &mut Command, limit: Duration) -> io::Result<Running> {
        command.process_group(0);
        let started = Instant::now();
        let child = command.spawn().map_err(|error| {
            io::Error::other(format!("cannot start {:?}: {error}", command.get_program()))
        })?;
        let group = group_of(&child);
        let (sender, receiver) = channel::<()>();
        let watch = std::thread::spawn(move || {
            if receiver.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                kill(group);
            }
        });
        Ok(Running { started, child, watch: Some((sender, watch)) })
    }

    /// Milliseconds since the start.
    pub(super) fn ms(&self) -> f64 {
        self.started.elapsed().as_secs_f64() * 1e3
    }

    /// Waits until it ends by itself, or its time is over.
    pub(super) fn wait(&mut self) -> io::Result<ExitStatus> {
        self.look(WaitIdOptions::EXITED)?;
        self.end()
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> io::Result<bool> {
        self.look(WaitIdOptions::EXITED | WaitIdOptions::NOHANG)
    }

    /// Whether it has ended; it stays to be waited for.
    fn look(&self, options: WaitIdOptions) -> io::Result<bool> {
        let Some(process) = group_of(&self.child) else { return Ok(true) };
        Ok(waitid(WaitId::Pid(process), options | WaitIdOptions::NOWAIT)?.is_some())
    }

    fn end(&mut self) -> io::Result<ExitStatus> {
        if let Some((sender, watch)) = self.watch.take() {
            drop(sender);
            // It only ends when it panics, and it does not.
            let _ = watch.join();
            kill(group_of(&self.child));
        }
        self.child.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.watch.is_some() {
            kill(group_of(&self.child));
        }
        // One that could not be killed has ended.
        let _ = self.end();
    }
}

fn group_of(child: &Child) -> Option<Pid> {
    Pid::from_raw(child.id() as i32)
}

fn kill(group: Option<Pid>) {
    if let Some(group) = group {
        // It may be empty already.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Where a program is, by the name of a file, or in the folders of `PATH`.
pub(super) fn find(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that takes too long is killed together with the processes it started.
    #[test]
    fn timed_out_program_is_killed_with_its_children() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & sleep 600"]);
        let mut running = Running::start(&mut command, Duration::from_millis(50)).unwrap();
        let group = group_of(&running.child);
        assert!(!running.wait().unwrap().success());
        assert!(running.started.elapsed() < Duration::from_secs(60));
        let is_empty = || rustix::process::test_kill_process_group(group.unwrap()).is_err();
        while !is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_ends_by_itself_tells_how() {
        let mut running =
            Running::start(Command::new("sh").args(["-c", "exit 3"]), Duration::from_secs(60))
                .unwrap();
        assert_eq!(running.wait().unwrap().code(), Some(3));
    }
}
