//! Stopping the programs that store to heaps, and letting them go on.
//!
//! Invariants:
//! - Before anybody is stopped, a note in the pool says who; it goes when all of them go on. The next keeper, and the guard
//!   process when this one is killed, let go on whoever is still in it.
//! - Only who was running is stopped, and let go on: a program that a person stopped stays stopped.
//! - A process is named by its PID and start time, and signalled through a descriptor: never a later one with that PID.
//! - This process is never stopped.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_sys::process::ProcessId;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::procfs::{FileId, Maps, maps, processes, stat, thread_states};

/// How long the kernel may take until the last thread of a process stands still.
const STOP_PATIENCE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_micros(200);
/// No chain of parents is longer.
const PARENTS_MAX: usize = 4096;

/// How to start the process that lets stopped programs go on if the keeper is killed: it must wait for the end of its
/// standard input, and then call [`thaw_left_over`].
#[derive(Debug, Clone)]
pub struct Guard {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// Processes that stand still until this is dropped.
#[derive(Debug)]
pub(crate) struct Frozen {
    stopped: Vec<(ProcessId, OwnedFd)>,
    /// Those that stood still already.
    still: Vec<u32>,
    note: PathBuf,
    guard: Option<Child>,
}

/// The processes that may store to any of these images, of which `holders` have the locks.
pub(crate) fn writers(holders: &[u32], images: &[&Path]) -> Vec<u32> {
    let files: Vec<FileId> = images.iter().filter_map(|path| FileId::of(path)).collect();
    let all = processes();
    let parent = |pid: u32| stat(pid).map(|stat| stat.parent);
    let descends = |pid: u32| {
        let chain = std::iter::successors(Some(pid), |&pid| parent(pid).filter(|&parent| parent > 1));
        chain.take(PARENTS_MAX).any(|pid| holders.contains(&pid))
    };
    let us = std::process::id();
    let mut found: Vec<u32> = all
        .into_iter()
        .filter(|&pid| pid != us)
        .filter(|&pid| {
            holders.contains(&pid)
                || match maps(pid, &files) {
                    Maps::Stores => true,
                    Maps::Not => false,
                    // An applet in its jail: only its kin can have been lent an image.
                    Maps::Unknown => descends(pid),
                }
        })
        .collect();
    found.sort_unstable();
    found
}

impl Frozen {
    /// Stops processes, and waits until they stand still. Whoever cannot be stopped is not in [`Frozen::has`].
    pub(crate) fn stop(pool: &Path, pids: &[u32], guard: Option<&Guard>) -> io::Result<Frozen> {
        let note = note_path(pool);
        let mut frozen = Frozen { stopped: Vec::new(), still: Vec::new(), note, guard: None };
        let mut running = Vec::new();
        for &pid in pids {
            if pid == std::process::id() {
                continue;
            }
            match (stat(pid), ProcessId::of(pid)) {
                (Some(stat), _) if matches!(stat.state, 'T' | 't') => frozen.still.push(pid),
                (Some(_), Ok(Some(id))) => running.extend(open(id).map(|descriptor| (id, descriptor))),
                _ => {}
            }
        }
        if running.is_empty() {
            return Ok(frozen);
        }
        let mut text = String::new();
        for (id, _) in &running {
            text.push_str(&format!("{} {}\n", id.pid, id.start_ticks));
        }
        // Nobody is stopped of whom nothing would tell.
        write_note(&frozen.note, &text)?;
        // Without a guard the next keeper does it.
        frozen.guard = guard.and_then(|guard| start_guard(guard).ok());
        for (id, descriptor) in running {
            if pidfd_send_signal(&descriptor, Signal::STOP).is_ok() {
                frozen.stopped.push((id, descriptor));
            }
        }
        let started = Instant::now();
        while !frozen.stopped.iter().all(|(id, _)| stands_still(id.pid)) && started.elapsed() < STOP_PATIENCE
        {
            std::thread::sleep(PAUSE);
        }
        Ok(frozen)
    }

    /// Whether a process stands still.
    pub(crate) fn has(&self, pid: u32) -> bool {
        let ours = self.still.contains(&pid) || self.stopped.iter().any(|(id, _)| id.pid == pid);
        ours && stands_still(pid)
    }

    /// Whom this stopped.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.stopped.iter().map(|(id, _)| id.pid).collect()
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for (_, descriptor) in &self.stopped {
            // It may have been killed meanwhile.
            let _ = pidfd_send_signal(descriptor, Signal::CONT);
        }
        let _ = fs::remove_file(&self.note);
        if let Some(mut guard) = self.guard.take() {
            // The end of its input ends it.
            drop(guard.stdin.take());
            let _ = guard.wait();
        }
    }
}

/// Lets go on whoever a keeper that was killed left stopped. Returns how many these were.
///
/// # Errors
/// When the note in the pool cannot be read or removed.
pub fn thaw_left_over(pool: &Path) -> io::Result<usize> {
    let note = note_path(pool);
    let text = match fs::read_to_string(&note) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        other => other?,
    };
    let named = text.lines().filter_map(|line| {
        let (pid, start_ticks) = line.split_once(' ')?;
        Some(ProcessId { pid: pid.parse().ok()?, start_ticks: start_ticks.parse().ok()? })
    });
    let gone_on = named.filter_map(open).filter(|found| pidfd_send_signal(found, Signal::CONT).is_ok());
    let count = gone_on.count();
    match fs::remove_file(&note) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(count),
    }
}

fn note_path(pool: &Path) -> PathBuf {
    pool.join(".stopped")
}

/// A descriptor of this very process.
fn open(id: ProcessId) -> Option<OwnedFd> {
    let descriptor = pidfd_open(Pid::from_raw(i32::try_from(id.pid).ok()?)?, PidfdFlags::empty()).ok()?;
    // Asked after it was opened: from now on the descriptor means one process.
    id.is_alive().then_some(descriptor)
}

fn stands_still(pid: u32) -> bool {
    // One that is gone stores nothing either.
    thread_states(pid).iter().all(|state| matches!(state, 'T' | 't' | 'Z' | 'X'))
}

fn write_note(path: &Path, text: &str) -> io::Result<()> {
    let mut file =
        holdfast_sys::file::private_options().write(true).create(true).truncate(true).open(path)?;
    file.write_all(text.as_bytes())
}

fn start_guard(guard: &Guard) -> io::Result<Child> {
    let mut command = Command::new(&guard.program);
    command.args(&guard.arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    fn end(mut child: Child) {
        let _ = child.kill();
        let _ = child.wait();
    }

    #[test]
    fn who_was_running_goes_on_and_who_was_stopped_stays_stopped() {
        let pool = tempfile::tempdir().unwrap();
        let (running, stopped) = (sleeper(), sleeper());
        let pid = Pid::from_child(&stopped);
        rustix::process::kill_process(pid, Signal::STOP).unwrap();
        while !stands_still(stopped.id()) {
            std::thread::sleep(PAUSE);
        }
        let pids = [running.id(), stopped.id(), std::process::id()];
        let frozen = Frozen::stop(pool.path(), &pids, None).unwrap();
        assert_eq!(frozen.pids(), [running.id()]);
        assert!(frozen.has(running.id()) && frozen.has(stopped.id()) && !frozen.has(std::process::id()));
        assert!(note_path(pool.path()).exists());
        drop(frozen);
        let started = Instant::now();
        while stands_still(running.id()) && started.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(PAUSE);
        }
        assert!(!stands_still(running.id()) && stands_still(stopped.id()));
        assert!(!note_path(pool.path()).exists());
        end(running);
        end(stopped);
    }

    #[test]
    fn whom_a_killed_keeper_left_goes_on_and_a_later_process_with_that_pid_is_left_alone() {
        let pool = tempfile::tempdir().unwrap();
        let child = sleeper();
        // A keeper that is killed drops nothing.
        std::mem::forget(Frozen::stop(pool.path(), &[child.id()], None).unwrap());
        assert!(stands_still(child.id()));
        let kept = fs::read_to_string(note_path(pool.path())).unwrap();
        fs::write(note_path(pool.path()), format!("{} 1\nnonsense\n", child.id())).unwrap();
        assert_eq!(thaw_left_over(pool.path()).unwrap(), 0);
        assert!(stands_still(child.id()));
        fs::write(note_path(pool.path()), kept).unwrap();
        assert_eq!(thaw_left_over(pool.path()).unwrap(), 1);
        assert_eq!(thaw_left_over(pool.path()).unwrap(), 0);
        end(child);
    }

    #[test]
    fn a_process_that_only_maps_the_file_is_found() {
        // This process has its own program mapped, privately: that is none.
        let us = std::env::current_exe().unwrap();
        assert!(writers(&[], &[&us]).is_empty());
        let child = sleeper();
        assert_eq!(writers(&[child.id()], &[]), [child.id()]);
        end(child);
    }
}
