//! Drivers: this test program again, as a process of one thread that forks its victims.
//!
//! Invariants: a driver ends on its own within its time limit, or is ended; what it forks is waited
//! for. What it reports (`fault …`, `not run: …`) reaches the standard output of the test; all else
//! only when it failed.
//!
//! Why not in the test's own process: a child forked beside other threads inherits their locks, and
//! limits and mounts are those of a whole process.

#![allow(unsafe_code, reason = "fork, signals and shared memory")]

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

const ROLE: &str = "HOLDFAST_FAULT_ROLE";

/// The body of the test that drivers run; without a role it does nothing.
pub(crate) fn play() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // Victims end by signals on purpose, and leave no core files. SAFETY: a valid pointer to a
    // limit.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
    match role.as_str() {
        "kills" => crate::kills::drive(),
        "openers" => crate::openers::drive(),
        "truncation" => crate::truncation::drive(),
        "full disks" => crate::truncation::drive_full(),
        "owners" => crate::owners::drive(),
        "room" => crate::room::drive_kills(),
        "twenty heaps" => crate::room::drive_twenty(),
        "power cuts" => crate::power_cuts::drive(),
        "out of memory" => crate::memory::drive_allocations(),
        "address space" => crate::memory::drive_address_space(),
        "sealed" => crate::sealed::drive(),
        "inflated" => crate::sealed::drive_inflated(),
        other => panic!("unknown role {other:?}"),
    }
}

/// Runs a driver to its end.
pub(crate) fn run(role: &str) {
    run_with(Command::new(std::env::current_exe().unwrap()), role);
}

/// As [`run`], through a command that runs its arguments.
pub(crate) fn run_with(mut command: Command, role: &str) {
    command.args(["a_driver_plays_its_role", "--exact", "--nocapture", "--test-threads=1"]);
    // A backtrace of each of a thousand victims takes longer than the test.
    let output = command.env(ROLE, role).env_remove("RUST_BACKTRACE").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    for line in text.lines() {
        // The harness's own words may stand before it.
        if let Some(start) = line.find("fault H") {
            // Past the capture of the harness; a closed output takes nothing from the trials.
            let _ = writeln!(std::io::stdout(), "{}", &line[start..]);
        } else if line.contains("not run: ") {
            println!("{line}");
        }
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{role}: {}\n{text}\n{errors}", output.status);
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    With(i32),
    By(i32),
}

/// A forked child; killed and waited for when it is dropped.
pub(crate) struct Child(libc::pid_t);

/// Status of a child that panicked.
pub(crate) const PANICKED: i32 = 101;

impl Child {
    /// Forks a child that runs `work` and ends with what it returns.
    pub(crate) fn fork(work: impl FnOnce() -> i32) -> Child {
        // SAFETY: the driver has one thread, so the child inherits no lock that no thread will
        // release.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "{}", std::io::Error::last_os_error());
        if pid == 0 {
            let status = catch_unwind(AssertUnwindSafe(work)).unwrap_or(PANICKED);
            // SAFETY: ends the child without the parent's destructors.
            unsafe { libc::_exit(status) };
        }
        Child(pid)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0 as u32
    }

    pub(crate) fn kill(&self) {
        // SAFETY: a child of ours that was not waited for, so the number is its own.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self) -> Ended {
        self.end()
    }

    fn end(&mut self) -> Ended {
        let mut status = 0;
        // SAFETY: a child of ours; `status` is ours to write.
        let waited = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        assert_eq!(waited, self.0, "{}", std::io::Error::last_os_error());
        self.0 = 0;
        if libc::WIFSIGNALED(status) {
            Ended::By(libc::WTERMSIG(status))
        } else {
            Ended::With(libc::WEXITSTATUS(status))
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.0 != 0 {
            self.kill();
            self.end();
        }
    }
}

/// Words that forked children and their parent see alike.
pub(crate) struct SharedWords(*mut AtomicU64);

const WORDS: usize = 512;

impl SharedWords {
    pub(crate) fn new() -> SharedWords {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, wherever there is room.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), WORDS * 8, protection, flags, -1, 0) };
        assert!(base != libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        SharedWords(base.cast())
    }

    /// A word, 0 at first.
    pub(crate) fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < WORDS);
        // SAFETY: inside the mapping, which lives as long as `self` and holds atomics only.
        unsafe { &*self.0.add(index) }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; no borrow outlives `self`.
        unsafe { libc::munmap(self.0.cast(), WORDS * 8) };
    }
}

/// Waits until a word is what is expected; `false` if that takes longer than a person would wait.
pub(crate) fn wait_until(reached: impl Fn() -> bool) -> bool {
    for _ in 0..600_000 {
        if reached() {
            return true;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    false
}
