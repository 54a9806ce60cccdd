//! The programs that write and read records: a process for the heaps, one for the databases of each
//! pool, and one that calls an applet. Each is a program of its own, since any of them may be
//! killed, and SQLite takes its pool from the environment.

use std::path::Path;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};

use super::{home, pool_directory};
use crate::initramfs::{CALLER, INIT};
use crate::place::Pool;

/// The word by which a part writes.
pub const WRITE: &str = "write";
/// The same, for one that acknowledges what it has not committed.
pub const WRITE_EARLY: &str = "write-early";
/// The word by which it reads.
pub const VERIFY: &str = "verify";
/// What a part is of.
pub const HEAPS: &str = "heaps";
/// As [`HEAPS`]; the pool's word follows.
pub const DATABASES: &str = "databases";

/// A program of the failure lab, by what it writes and reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Heaps in both pools.
    Heaps,
    /// The databases of one pool.
    Databases(Pool),
    /// An applet with its heap.
    Applets,
}

impl Part {
    /// All.
    pub const ALL: [Part; 4] =
        [Part::Heaps, Part::Applets, Part::Databases(Pool::Tmpfs), Part::Databases(Pool::Dax)];

    /// Starts it with one of the words above.
    ///
    /// # Errors
    /// In words, what failed.
    pub fn start(self, word: &str) -> Result<Child, String> {
        let mut command =
            Command::new(Path::new("/").join(if self == Part::Applets { CALLER } else { INIT }));
        command.arg(word);
        match self {
            Part::Heaps => command.arg(HEAPS),
            Part::Applets => &mut command,
            Part::Databases(pool) => command
                .args([DATABASES, pool.name()])
                .env("HOLDFAST_HOME", home(pool))
                .env("HOLDFAST_POOL", pool_directory(pool)),
        };
        command.spawn().map_err(|error| format!("{self:?} cannot be started: {error}"))
    }
}

/// The parts that write.
#[derive(Debug, Default)]
pub struct Writers {
    children: Vec<Child>,
}

impl Writers {
    /// Starts all of them.
    ///
    /// # Errors
    /// In words, what failed.
    pub fn start(word: &str) -> Result<Writers, String> {
        let children =
            Part::ALL.into_iter().map(|part| part.start(word)).collect::<Result<_, _>>()?;
        Ok(Writers { children })
    }

    /// SIGKILL for all of them, and waits until they are gone.
    ///
    /// # Errors
    /// When there is none, or one ended by itself, which is a failure.
    pub fn kill(&mut self) -> Result<(), String> {
        if self.children.is_empty() {
            return Err("there is no writer to kill".to_owned());
        }
        for child in &mut self.children {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(format!(
                    "a writer ended by itself, {status}; the console has its words"
                ));
            }
        }
        // All before the first is waited for: none goes on alone.
        for child in &mut self.children {
            child.kill().map_err(|error| error.to_string())?;
        }
        for mut child in self.children.drain(..) {
            child.wait().map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// SIGSTOP for all of them.
    ///
    /// # Errors
    /// When there is none.
    pub fn stop(&self) -> Result<(), String> {
        if self.children.is_empty() {
            return Err("there is no writer to stop".to_owned());
        }
        for child in &self.children {
            kill_process(Pid::from_child(child), Signal::STOP)
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}
