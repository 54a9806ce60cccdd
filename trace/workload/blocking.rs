//! Workloads that are blocked, or kept from the CPU, for a known time.
#![allow(unsafe_code, reason = "fork, vfork and wait have no safe form")]

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::facts::{Facts, burn, thread_number};

/// Bytes of a read that takes far longer than stopping for its tracer.
const READ_BYTES: usize = 1 << 20;

/// `count` sleeps of `time_us` each.
pub(crate) fn sleeps(facts: &mut Facts, count: u64, time_us: u64) {
    // As long as is asked for, not 50 us longer as by default.
    // SAFETY: no pointers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    facts.measure("sleeps", || {
        for _ in 0..count {
            let time = libc::timespec { tv_sec: 0, tv_nsec: (time_us * 1000) as libc::c_long };
            // SAFETY: the pointer is valid.
            unsafe {
                libc::clock_nanosleep(
                    libc::CLOCK_MONOTONIC,
                    0,
                    &raw const time,
                    std::ptr::null_mut(),
                )
            };
        }
    });
}

/// One thread waits a second for a futex that is never woken; another one reads zeros all that
/// time.
pub(crate) fn sleeper_beside_reader(facts: &mut Facts) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut zeros = File::open("/dev/zero").expect("/dev/zero");
            let (mut buffer, mut reads) = (vec![0; READ_BYTES], 0_u64);
            let (began, before) = (Instant::now(), crate::facts::counters());
            while !done.load(Ordering::Relaxed) {
                zeros.read_exact(&mut buffer).expect("zeros");
                reads += 1;
            }
            let after = crate::facts::counters();
            (
                thread_number(),
                reads,
                [began.elapsed().as_nanos() as u64, after.0 - before.0, after.1 - before.1],
            )
        });
        facts.tell("sleeper", thread_number());
        facts.measure("sleeper", || {
            let (futex, second) = (AtomicU32::new(0), libc::timespec { tv_sec: 1, tv_nsec: 0 });
            // SAFETY: both pointers are valid for the call.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    futex.as_ptr(),
                    libc::FUTEX_WAIT,
                    0,
                    &raw const second,
                )
            };
        });
        done.store(true, Ordering::Relaxed);
        let (thread, reads, [wall_ns, cpu_ns, queue_ns]) = reader.join().expect("the reader");
        facts.tell("reader", thread);
        facts.tell("reads", reads);
        facts.tell("reader_wall_ns", wall_ns);
        facts.tell("reader_cpu_ns", cpu_ns);
        facts.tell("reader_queue_ns", queue_ns);
    });
}

/// A process waits for a child that uses the CPU.
pub(crate) fn waits_for_busy_child(facts: &mut Facts) {
    // SAFETY: one thread, so the child may do anything.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let cpu_ns = burn(500_000_000);
        facts.tell("child_cpu_ns", cpu_ns);
        std::process::exit(3);
    }
    facts.tell("child", child as u64);
    facts.measure("parent", || wait_for(child));
}

pub(crate) fn wait_for(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: the pointer is valid.
    let found = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(found, child);
    status
}

/// Writes over a file that is there already, and waits for the disk, some times.
pub(crate) fn syncs(facts: &mut Facts, directory: &Path) {
    use std::os::unix::fs::FileExt;
    let path = directory.join(format!("syncs-{}", std::process::id()));
    let file = File::create(&path).expect("a file");
    std::fs::remove_file(path).expect("its name is not needed");
    let block = vec![7_u8; 4 << 20];
    file.write_all_at(&block, 0).expect("room");
    file.sync_all().expect("a disk");
    let began = Instant::now();
    for round in 0..20 {
        file.write_all_at(&block[round..], 0).expect("room");
        // The facts of each round have the same name, and add up.
        facts.measure("syncs", || file.sync_data().expect("a disk"));
    }
    facts.tell("rounds_wall_ns", began.elapsed().as_nanos() as u64);
}

/// A process waits in vfork for a child that sleeps for so long.
pub(crate) fn vforks(facts: &mut Facts, time_ms: u64) {
    let sleep = libc::timespec {
        tv_sec: (time_ms / 1000) as libc::time_t,
        tv_nsec: (time_ms % 1000 * 1_000_000) as libc::c_long,
    };
    facts.measure("vfork", || {
        let mut status = 0;
        // SAFETY: the child of the first call, a vfork, makes two system calls with what lives
        // longer than it does, on a stack of its own, and ends. (libc::vfork would return twice on
        // one stack.)
        unsafe {
            extern "C" fn child(sleep: *mut libc::c_void) -> libc::c_int {
                // SAFETY: the pointer is valid, as the parent waits; `exit_group` ends the child.
                unsafe {
                    libc::syscall(libc::SYS_clock_nanosleep, libc::CLOCK_MONOTONIC, 0, sleep, 0);
                    libc::syscall(libc::SYS_exit_group, 0);
                }
                0
            }
            let mut stack = vec![0_u8; 64 << 10];
            let top = stack.as_mut_ptr().add(stack.len() & !15).cast();
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            let pid = libc::clone(child, top, flags, (&raw const sleep).cast_mut().cast());
            assert!(pid > 0);
            libc::waitpid(pid, &raw mut status, 0);
        }
    });
}

/// Two threads on one CPU, each of which is in a long call nearly all the time.
pub(crate) fn spins_beside_another(facts: &mut Facts) {
    let allowed = rustix::thread::sched_getaffinity(None).expect("affinity");
    let cpu = (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).expect("a CPU");
    let mut one = rustix::thread::CpuSet::new();
    one.set(cpu);
    rustix::thread::sched_setaffinity(None, &one).expect("affinity");
    let (together, until_ns) = (Barrier::new(2), 400_000_000);
    let spin = || {
        let zeros = File::open("/dev/zero").expect("/dev/zero");
        let mut buffer = vec![1_u8; 1 << 20];
        // The same megabyte over and over: a call that takes long and little memory.
        let part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let parts = vec![part; 512];
        together.wait();
        let (began, before) = (Instant::now(), crate::facts::counters());
        while crate::facts::counters().0 - before.0 < until_ns {
            // SAFETY: each part is the buffer.
            unsafe { libc::readv(zeros.as_raw_fd(), parts.as_ptr(), parts.len() as libc::c_int) };
        }
        let after = crate::facts::counters();
        (thread_number(), began.elapsed().as_nanos() as u64, after.0 - before.0, after.1 - before.1)
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(spin);
        let (thread, wall_ns, cpu_ns, queue_ns) = spin();
        other.join().expect("the other spinner");
        facts.tell("spinner", thread);
        facts.tell("spinner_wall_ns", wall_ns);
        facts.tell("spinner_cpu_ns", cpu_ns);
        facts.tell("spinner_queue_ns", queue_ns);
    });
}

/// Sleeps for a moment that has nothing to do with what is measured.
pub(crate) fn rest() {
    std::thread::sleep(Duration::from_millis(200));
}
