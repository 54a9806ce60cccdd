//! How the kernel schedules a thread.

use std::io;

/// Nanoseconds of a short time slice: the least that the kernel grants.
const SHORT_SLICE_NS: u64 = 100_000;

/// `struct sched_attr`, as of Linux 3.14.
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Asks for short time slices for this thread: it then runs soon after it is woken, for a short time (Linux 6.12;
/// older kernels take the call and ignore it). Needs no privilege, and gives no larger share of the CPU.
///
/// # Errors
/// What the kernel says.
pub fn prefer_latency() -> io::Result<()> {
    let size = size_of::<Attributes>() as u32;
    let mut attributes =
        Attributes { size, policy: 0, flags: 0, nice: 0, priority: 0, runtime: 0, deadline: 0, period: 0 };
    // SAFETY: the kernel writes at most `size` bytes there.
    if unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    attributes.runtime = SHORT_SLICE_NS;
    // SAFETY: the kernel reads `size` bytes there.
    if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_may_ask_for_short_slices() {
        std::thread::spawn(|| prefer_latency().unwrap()).join().unwrap();
    }
}
