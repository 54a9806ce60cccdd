//! Processes that this one started: their CPU time, and their end.

use std::ffi::c_int;
use std::io;
use std::time::Duration;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal.
    Signal(i32),
}

/// An ended process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reaped {
    /// How it ended.
    pub status: Status,
    /// CPU time that it used, in user mode and in the kernel.
    pub cpu_time: Duration,
    /// The most memory that it had at once: bytes. Not less than [`inherited_peak_bytes`] was when
    /// it was started, whatever it used itself.
    pub peak_memory_bytes: u64,
}

/// Takes the end of a child, of whatever kind; without `wait`, `None` while it runs.
///
/// # Errors
/// `ECHILD` when it is not a child of this process, or other code took its end.
pub fn reap(pid: u32, wait: bool) -> io::Result<Option<Reaped>> {
    let pid = c_int::try_from(pid).map_err(io::Error::other)?;
    let options = libc::__WALL | if wait { 0 } else { libc::WNOHANG };
    let mut status: c_int = 0;
    // SAFETY: all zeros are a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are valid for the call.
        match unsafe { libc::wait4(pid, &raw mut status, options, &raw mut usage) } {
            0 => return Ok(None),
            found if found > 0 => break,
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    let status = if libc::WIFSIGNALED(status) {
        Status::Signal(libc::WTERMSIG(status))
    } else {
        Status::Exited(libc::WEXITSTATUS(status))
    };
    let cpu_time = duration(usage.ru_utime) + duration(usage.ru_stime);
    let peak_memory_bytes = u64::try_from(usage.ru_maxrss).unwrap_or(0) << 10;
    Ok(Some(Reaped { status, cpu_time, peak_memory_bytes }))
}

/// The most memory that this process had at once so far: bytes. The kernel counts it in for every
/// child that it starts, as the child begins with its memory; 0 if it does not say.
#[must_use]
pub fn inherited_peak_bytes() -> u64 {
    // SAFETY: all zero is a value of this plain C structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is live and of the type that the call fills in.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) } != 0 {
        return 0;
    }
    u64::try_from(usage.ru_maxrss).unwrap_or(0) << 10
}

fn duration(time: libc::timeval) -> Duration {
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0)) + Duration::from_micros(micros)
}

/// CPU time that all threads of a process have used. The process must not have been reaped, or this
/// may tell of another one.
///
/// # Errors
/// What the kernel says, when there is no such process.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    /// `CPUCLOCK_SCHED`: what the scheduler counts.
    const SCHEDULED: libc::clockid_t = 2;
    let pid = libc::clockid_t::try_from(pid).map_err(io::Error::other)?;
    let clock = (!pid << 3) | SCHEDULED;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for the call.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::zombie_processes, reason = "it is reaped by what is tested")]
    fn the_end_of_a_child_is_told_once() {
        let child = std::process::Command::new("/bin/sh").args(["-c", "exit 7"]).spawn().unwrap();
        let reaped = reap(child.id(), true).unwrap().unwrap();
        assert_eq!(reaped.status, Status::Exited(7));
        assert!(reaped.peak_memory_bytes > 0);
        assert_eq!(reap(child.id(), true).unwrap_err().raw_os_error(), Some(libc::ECHILD));
    }

    #[test]
    fn cpu_time_of_this_process_grows() {
        let before = cpu_time(std::process::id()).unwrap();
        let mut state = 1_u64;
        while cpu_time(std::process::id()).unwrap() == before && state != 0 {
            state = std::hint::black_box(state.wrapping_mul(3));
        }
    }
}
