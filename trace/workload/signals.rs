//! Workloads of signals and stops.
#![allow(unsafe_code, reason = "handlers, fork and kill have no safe form")]

use std::time::Duration;

use crate::blocking::{rest, wait_for};
use crate::facts::Facts;

extern "C" fn nothing(_: libc::c_int) {}

/// Runs `work`, and sends this thread a signal with that handling every 50 ms until it is done.
fn interrupted(flags: libc::c_int, work: impl FnOnce()) {
    // SAFETY: zeros are a valid `sigaction`, the handler does nothing; the timer's value is valid.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = flags;
        libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut());
        let mut timer: libc::itimerval = std::mem::zeroed();
        timer.it_value.tv_usec = 50_000;
        libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut());
    }
    work();
}

/// A read that a handler interrupts and that begins again; one that fails with EINTR, made again by
/// the program; and a sleep that a stop interrupts.
pub(crate) fn restarts(facts: &mut Facts) {
    for (name, flags) in [("again", libc::SA_RESTART), ("fails", 0)] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let writing = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            std::io::Write::write_all(&mut &writer, b"x").expect("a pipe");
        });
        let mut attempts = 0;
        interrupted(flags, || {
            let descriptor = std::os::fd::AsRawFd::as_raw_fd(&reader);
            let mut byte = 0_u8;
            // SAFETY: the buffer has one byte.
            while unsafe { libc::read(descriptor, (&raw mut byte).cast(), 1) } != 1 {
                attempts += 1;
            }
        });
        facts.tell(&format!("{name}_failed"), attempts);
        writing.join().expect("the writer");
    }
    stopped_sleep(facts);
}

/// A child stops this process in its sleep, and has it go on.
fn stopped_sleep(facts: &mut Facts) {
    // SAFETY: the other threads have ended, so the child may do anything; no pointers.
    let child = unsafe { libc::fork() };
    if child == 0 {
        std::thread::sleep(Duration::from_millis(100));
        // SAFETY: no pointers.
        unsafe {
            libc::kill(libc::getppid(), libc::SIGSTOP);
            std::thread::sleep(Duration::from_millis(100));
            libc::kill(libc::getppid(), libc::SIGCONT);
        }
        std::process::exit(0);
    }
    let time = libc::timespec { tv_sec: 0, tv_nsec: 400_000_000 };
    facts.measure("stopped_sleep", || {
        // SAFETY: the pointer is valid.
        let result = unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
        assert_eq!(result, 0, "a stop is not seen by a sleep");
    });
    wait_for(child);
}

fn now_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Job control: a child stops itself; its parent sees that, has it go on, sees that, and its end.
pub(crate) fn is_stopped(facts: &mut Facts) {
    // SAFETY: one thread, so the child may do anything; the pointers are valid.
    unsafe {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let child = libc::fork();
        if child == 0 {
            libc::raise(libc::SIGSTOP);
            facts.tell("went_on_ns", now_ns());
            // Not before its parent has seen that it goes on.
            let _ = std::io::Read::read(&mut &reader, &mut [0]);
            std::process::exit(9);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, libc::WUNTRACED), child);
        assert!(libc::WIFSTOPPED(status));
        facts.tell("stopped", libc::WSTOPSIG(status) as u64);
        // Time enough to go on by mistake.
        rest();
        facts.tell("let_go_ns", now_ns());
        libc::kill(child, libc::SIGCONT);
        assert_eq!(libc::waitpid(child, &raw mut status, libc::WCONTINUED), child);
        facts.tell("continued", u64::from(libc::WIFCONTINUED(status)));
        std::io::Write::write_all(&mut &writer, b"x").expect("a pipe");
        facts.tell("ended", libc::WEXITSTATUS(wait_for(child)) as u64);
    }
}

/// Waits until a signal ends it.
pub(crate) fn waits_for_signal(facts: &mut Facts) {
    facts.tell("process", u64::from(std::process::id()));
    loop {
        // SAFETY: no pointers.
        unsafe { libc::pause() };
    }
}
