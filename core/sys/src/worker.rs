//! A worker: a process that runs the program of its parent again, for one piece of work, and is
//! expected to be taken over by what it works on. Here is what it does to itself before it begins,
//! and how its parent waits for it.
//!
//! Invariants:
//! - [`confine`] is called before the worker reads a byte of its input, and by its only thread.
//! - Limits are only ever lowered: a limit that the process already has and that is lower stays.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal};

/// How long the parent sleeps between two looks where the kernel has no descriptors of processes
/// (before Linux 5.3).
const LOOK: Duration = Duration::from_millis(2);

/// What a worker may use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerLimits {
    /// Private writable memory, in bytes: heap, stacks of threads, copied pages.
    pub data_bytes: u64,
    /// Address space besides what the process has now, in bytes. Reservations count, which take no
    /// memory.
    pub more_address_space_bytes: u64,
    /// Stack of the first thread, in bytes.
    pub stack_bytes: u64,
    /// The largest file that it can write, in bytes.
    pub file_bytes: u64,
    /// Processor time of all its threads together, in seconds.
    pub cpu_s: u64,
}

/// Whether `code` belongs to the program of this process, and not to a library: then the program's
/// own file contains it.
///
/// The kernel tells where the program's segments are (`AT_PHDR`); the loader is not asked, since a
/// program that is linked statically has none.
#[must_use]
pub fn is_in_main_program(code: *const c_void) -> bool {
    // SAFETY: no precondition; 0 when there is no such value.
    let value = |kind| unsafe { libc::getauxval(kind) } as usize;
    let (first, count) = (value(libc::AT_PHDR) as *const libc::Elf64_Phdr, value(libc::AT_PHNUM));
    if first.is_null() || value(libc::AT_PHENT) != size_of::<libc::Elf64_Phdr>() {
        return false;
    }
    // SAFETY: the kernel has mapped the program's headers there, readable and for as long as the
    // process runs.
    let headers = unsafe { std::slice::from_raw_parts(first, count) };
    // A program without a header of its headers is at the addresses that its file names.
    let of_headers = headers.iter().find(|header| header.p_type == libc::PT_PHDR);
    let base =
        of_headers.map_or(0, |header| (first as usize).wrapping_sub(header.p_vaddr as usize));
    headers.iter().filter(|header| header.p_type == libc::PT_LOAD).any(|header| {
        let start = base.wrapping_add(header.p_vaddr as usize);
        (code as usize).wrapping_sub(start) < header.p_memsz as usize
    })
}

/// The file of the object (program or library) that `code` belongs to.
#[must_use]
pub fn object_path(code: *const c_void) -> Option<PathBuf> {
    let name = object(code)?.dli_fname;
    if name.is_null() {
        return None;
    }
    // SAFETY: the loader keeps the name, a C string, for as long as the object is loaded, as `code`
    // is.
    let name = unsafe { CStr::from_ptr(name) };
    Path::new(OsStr::from_bytes(name.to_bytes())).canonicalize().ok()
}

fn object(address: *const c_void) -> Option<libc::Dl_info> {
    // SAFETY: all zeros are a valid `Dl_info`.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked about; the other pointer is valid for the call.
    let is_found = unsafe { libc::dladdr(address, &raw mut found) } != 0;
    is_found.then_some(found)
}

/// Whether this program runs with more rights than its caller has (set-user-ID, file capabilities),
/// so that its environment is not to be believed.
#[must_use]
pub fn is_privileged() -> bool {
    // SAFETY: no precondition.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Whether `pid` is the parent of this process.
#[must_use]
pub fn is_parent(pid: u32) -> bool {
    rustix::process::getppid()
        .is_some_and(|parent| parent.as_raw_nonzero().get().unsigned_abs() == pid)
}

/// Ties this process to its parent's life, closes all descriptors but the standard streams, and
/// sets limits.
///
/// # Errors
/// What the kernel reports. `ESRCH`: the parent is gone.
pub fn confine(parent: u32, limits: &WorkerLimits) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have died before the call, which then has no effect.
    if !is_parent(parent) {
        return Err(Errno::SRCH.into());
    }
    close_from(3)?;
    let address_space = limits.more_address_space_bytes.saturating_add(address_space_bytes()?);
    for (resource, value) in [
        (Resource::Core, 0),
        (Resource::Data, limits.data_bytes),
        (Resource::As, address_space),
        (Resource::Stack, limits.stack_bytes),
        (Resource::Fsize, limits.file_bytes),
        (Resource::Cpu, limits.cpu_s),
    ] {
        lower(resource, value)?;
    }
    Ok(())
}

fn lower(resource: Resource, value: u64) -> io::Result<()> {
    let now = rustix::process::getrlimit(resource);
    let least = [now.current, now.maximum].into_iter().flatten().fold(value, u64::min);
    let limit = Rlimit { current: Some(least), maximum: Some(least) };
    Ok(rustix::process::setrlimit(resource, limit)?)
}

/// Closes all descriptors from `first` on.
fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: by contract the worker has one thread, which uses none of these descriptors.
    if unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() != Some(libc::ENOSYS) {
        return Err(error);
    }
    // Linux before 5.9.
    let listed = std::fs::read_dir("/proc/self/fd")?;
    let numbers: Vec<c_int> =
        listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number >= first as c_int) {
        // SAFETY: as above; the one of the listing is closed already, which is an error without
        // effect.
        unsafe { libc::close(number) };
    }
    Ok(())
}

/// Address space of this process now.
fn address_space_bytes() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text.split(' ').next().and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok(pages.saturating_mul(rustix::param::page_size() as u64))
}

/// Ends this process without running what the program has registered for its end.
pub fn leave(status: i32) -> ! {
    // SAFETY: no precondition; nothing runs after it.
    unsafe { libc::_exit(status) }
}

/// How waiting for a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// It ended; `None` when another part of this process took its status, or the process ignores
    /// SIGCHLD.
    Ended(Option<ExitStatus>),
    /// It still ran at the deadline, and was killed and reaped.
    Killed,
}

/// Waits for the end of a worker, and kills it at the deadline. It is gone when this returns.
///
/// # Errors
/// What `poll` reports. The worker was killed then, too.
pub fn wait(mut child: Child, deadline: Option<Instant>) -> io::Result<Waited> {
    let kill = |child: &mut Child| {
        let _ = child.kill();
        let _ = child.wait();
    };
    match wait_until(&mut child, deadline) {
        Ok(true) => Ok(Waited::Ended(child.wait().ok())),
        Ok(false) => {
            kill(&mut child);
            Ok(Waited::Killed)
        }
        Err(error) => {
            kill(&mut child);
            Err(error)
        }
    }
}

/// Whether the child ended before the deadline.
fn wait_until(child: &mut Child, deadline: Option<Instant>) -> io::Result<bool> {
    let left = || deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let pid = c_int::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let pidfd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        // Its end was taken by another part of this process.
        Err(Errno::SRCH) => return Ok(true),
        Err(_) => loop {
            match child.try_wait() {
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => return Ok(true),
            }
            match left() {
                Some(Duration::ZERO) => return Ok(false),
                left => std::thread::sleep(left.unwrap_or(LOOK).min(LOOK)),
            }
        },
    };
    loop {
        let left = left();
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match rustix::event::poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], timeout.as_ref()) {
            Ok(0) if left.is_some() => return Ok(false),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn code_of_a_library_is_not_in_the_program() {
        assert!(is_in_main_program(code_of_a_library_is_not_in_the_program as *const c_void));
        assert!(!is_in_main_program(libc::getpid as *const c_void));
        assert!(!is_in_main_program(std::ptr::null()));
    }

    #[test]
    fn a_worker_past_its_deadline_is_killed() {
        let sleeper = Command::new("sleep").arg("600").spawn().unwrap();
        let started = Instant::now();
        let waited = wait(sleeper, Some(started + Duration::from_millis(50))).unwrap();
        assert_eq!(waited, Waited::Killed);
        assert!(started.elapsed() < Duration::from_secs(60));
        let done = Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
        let Waited::Ended(Some(status)) = wait(done, None).unwrap() else { panic!("it ended") };
        assert_eq!(status.code(), Some(3));
    }

    #[test]
    fn only_the_parent_is_the_parent() {
        assert!(!is_parent(std::process::id()));
        assert!(is_parent(std::os::unix::process::parent_id()));
    }
}
