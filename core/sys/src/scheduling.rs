//! The scheduling of a thread.

use std::io;

/// Nanoseconds of a short time slice: the least that the kernel grants.
const SHORT_SLICE_NS: u64 = 100_000;
/// `SCHED_FLAG_RESET_ON_FORK`.
const RESET_ON_FORK: u64 = 1;

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

/// Of this thread.
fn attributes() -> io::Result<Attributes> {
    let size = size_of::<Attributes>() as u32;
    let mut attributes = Attributes {
        size,
        policy: 0,
        flags: 0,
        nice: 0,
        priority: 0,
        runtime: 0,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the kernel writes at most `size` bytes there.
    if unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(attributes)
}

/// Asks for short time slices for this thread: it then runs soon after it is woken, for a short
/// time (Linux 6.12; older kernels take the call and ignore it). Needs no privilege, and gives no
/// larger share of the CPU. Threads and processes that it starts are scheduled as any other:
/// without this, and without a real-time priority or a negative nice value that this thread may
/// have.
///
/// # Errors
/// What the kernel says.
pub fn prefer_latency() -> io::Result<()> {
    let mut attributes = attributes()?;
    attributes.runtime = SHORT_SLICE_NS;
    attributes.flags |= RESET_ON_FORK;
    // SAFETY: the kernel reads `size` bytes there.
    if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice_ns() -> u64 {
        attributes().unwrap().runtime
    }

    /// What a thread with short slices starts has ordinary ones.
    ///
    /// Guarantee: sandbox/supervisor
    #[test]
    fn short_slices_are_not_inherited() {
        let ordinary_ns = slice_ns();
        std::thread::spawn(move || {
            prefer_latency().unwrap();
            if slice_ns() == ordinary_ns {
                println!("not run: this kernel has one slice for all (Linux 6.12 has more)");
                return;
            }
            assert_eq!(slice_ns(), SHORT_SLICE_NS);
            assert_eq!(std::thread::spawn(slice_ns).join().unwrap(), ordinary_ns);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_may_ask_for_short_slices() {
        std::thread::spawn(|| prefer_latency().unwrap()).join().unwrap();
    }
}
