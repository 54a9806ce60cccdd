//! `/dev/null` for a program that no directory is granted to: shells, git and Java's runtime open
//! it for writing, and end where they cannot.
//!
//! The host opens the device itself and hands its descriptor over, so what the kernel would have
//! found under the path, a moment later and in the program's root, does not count.
//!
//! Invariants:
//! - The path is copied once, and decides only whether there is an answer other than `EACCES`: what
//!   is opened is always the host's own `/dev/null`, checked to be that device.
//! - The copying is not the supervisor's work: a page of the program's memory may have to come from
//!   a disk, and its other threads may be changing its mappings. Each copy has a thread, and there
//!   are [`THREADS_MAX`] of those at most.

#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast_crossings::Answer;
use holdfast_sys::quiet_thread;
use holdfast_sys::seccomp::{self, Notification};
use rustix::fs::{FileType, Mode, OFlags};

use crate::inmate::Inmate;
use crate::root::NULL;
use crate::supervisor::Charge;

/// Questions of all programs that are looked at at once; one more is refused.
const THREADS_MAX: usize = 16;
/// The path as a program has it.
const PATH: &[u8] = b"/dev/null\0";

static THREADS: AtomicUsize = AtomicUsize::new(0);

/// One of the threads that there may be.
struct Turn;

impl Turn {
    fn take() -> Option<Turn> {
        let more = |threads| (threads < THREADS_MAX).then_some(threads + 1);
        // Nothing else depends on the count.
        THREADS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Turn)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers a call that opens a file. An error is of the kernel's listener.
pub(crate) fn answer(charge: &Charge, asked: &Notification) -> io::Result<()> {
    let (inmate, listener, call) = (charge.inmate.clone(), charge.listener.clone(), *asked);
    let started = Turn::take().is_some_and(|turn| {
        let work = move || {
            let _turn = turn;
            // The program has ended meanwhile: no thread waits for the answer.
            let _ = serve(&inmate, &listener, &call);
        };
        quiet_thread::spawn("holdfast-null", work).is_ok()
    });
    if started { Ok(()) } else { seccomp::refuse(charge.listener.as_fd(), asked.id, libc::EACCES) }
}

fn serve(inmate: &Arc<Inmate>, listener: &OwnedFd, asked: &Notification) -> io::Result<()> {
    let mut question = inmate.crossings.question();
    question.asks(asked.number, asked.pid);
    let refuse = |errno| seccomp::refuse(listener.as_fd(), asked.id, errno);
    question.answered(Answer::Refused);
    let (path, flags) = wanted(asked);
    let mut copy = [0; PATH.len()];
    if inmate.read_memory(path, &mut copy).is_err() || copy != PATH {
        return refuse(libc::EACCES);
    }
    let descriptor = match open(flags) {
        Ok(descriptor) => descriptor,
        Err(error) => return refuse(error.raw_os_error()),
    };
    let is_cloexec = flags.contains(OFlags::CLOEXEC);
    match seccomp::hand_over(listener.as_fd(), asked.id, descriptor.as_fd(), is_cloexec) {
        Ok(()) => {
            question.answered(Answer::Allowed);
            Ok(())
        }
        Err(error) => refuse(error.raw_os_error().unwrap_or(libc::EACCES)),
    }
}

/// Where the path of an opening call is, and its flags.
fn wanted(asked: &Notification) -> (u64, OFlags) {
    let [first, second, third, ..] = asked.arguments;
    // The kernel takes flags as an `int`.
    let flags = |argument: u64| OFlags::from_bits_retain(argument as u32);
    match i64::from(asked.number) {
        libc::SYS_openat => (second, flags(third)),
        libc::SYS_creat => (first, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC),
        _ => (first, flags(second)),
    }
}

/// Opens the device as the flags say; without those that would make a file or act on one.
fn open(flags: OFlags) -> Result<OwnedFd, rustix::io::Errno> {
    if flags.contains(OFlags::CREATE | OFlags::EXCL) {
        return Err(rustix::io::Errno::EXIST);
    }
    let kept = OFlags::ACCMODE | OFlags::APPEND | OFlags::NONBLOCK | OFlags::DIRECTORY;
    let descriptor =
        rustix::fs::open(NULL, flags & kept | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())?;
    let found = rustix::fs::fstat(&descriptor)?;
    let is_null = FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice
        && found.st_rdev == rustix::fs::makedev(1, 3);
    if is_null { Ok(descriptor) } else { Err(rustix::io::Errno::ACCESS) }
}
