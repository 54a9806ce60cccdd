//! The supervisor's side of a seccomp filter: notifications of calls that a filter does not decide
//! on itself.
//!
//! Nothing here decides anything. Structures and numbers are those of `linux/seccomp.h`.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `SECCOMP_FILTER_FLAG_NEW_LISTENER`.
pub const NEW_LISTENER: u32 = 1 << 3;
/// `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV` (Linux 5.19): only a deadly signal interrupts a call
/// that was received.
pub const WAIT_KILLABLE: u32 = 1 << 5;
/// `SECCOMP_SET_MODE_FILTER`.
pub const SET_MODE_FILTER: u32 = 1;

const RECV: u64 = 0xc050_2100;
const SEND: u64 = 0xc018_2101;
const ADD_FD: u64 = 0x4018_2103;
const SET_FLAGS: u64 = 0x4008_2104;
const ADD_FD_AND_SEND: u32 = 1 << 1;
const FLAG_CONTINUE: u32 = 1;
const FD_SYNC_WAKE_UP: u64 = 1;

/// A call that waits for an answer.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Notification {
    /// Names it in the answer.
    pub id: u64,
    /// The thread, as the receiver sees it; 0 when it does not.
    pub pid: u32,
    flags: u32,
    /// The call's number.
    pub number: i32,
    /// `AUDIT_ARCH_…`.
    pub arch: u32,
    /// The instruction after the call.
    pub instruction_pointer: u64,
    /// The arguments.
    pub arguments: [u64; 6],
}

#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

#[repr(C)]
struct AddedDescriptor {
    id: u64,
    flags: u32,
    source: u32,
    target: u32,
    target_flags: u32,
}

const _: () = assert!(size_of::<Notification>() == 80 && size_of::<Response>() == 24);
const _: () = assert!(size_of::<AddedDescriptor>() == 24);

/// Which of [`WAIT_KILLABLE`] and nothing the kernel knows, to go with [`NEW_LISTENER`].
#[must_use]
pub fn wait_flag() -> u32 {
    let flags = NEW_LISTENER | WAIT_KILLABLE;
    // SAFETY: without a filter nothing is installed: the kernel looks at the flags, then fails to
    // read one.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, flags, std::ptr::null::<libc::c_void>())
    };
    let known = result < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT);
    if known { WAIT_KILLABLE } else { 0 }
}

fn ioctl<T>(listener: BorrowedFd<'_>, request: u64, argument: &mut T) -> io::Result<c_int> {
    // SAFETY: private to this module, which pairs each request with the structure that it takes.
    let result =
        unsafe { libc::ioctl(listener.as_raw_fd(), request as _, std::ptr::from_mut(argument)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Has the kernel switch to the waiting side at once, which makes an answer ten times faster (Linux
/// 6.6).
///
/// # Errors
/// `EINVAL` from older kernels; everything works without.
pub fn wake_synchronously(listener: BorrowedFd<'_>) -> io::Result<()> {
    let flags = FD_SYNC_WAKE_UP as usize;
    // SAFETY: this request takes a number, not a pointer.
    let result = unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS as _, flags) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives a notification; waits for one if there is none.
///
/// # Errors
/// `NotFound` when its thread died meanwhile; else what the kernel says.
pub fn receive(listener: BorrowedFd<'_>) -> io::Result<Notification> {
    let mut notification = Notification::default();
    ioctl(listener, RECV, &mut notification)?;
    Ok(notification)
}

/// Has the call carried out.
///
/// # Errors
/// `NotFound` when its thread died meanwhile; else what the kernel says.
pub fn carry_out(listener: BorrowedFd<'_>, id: u64) -> io::Result<()> {
    ioctl(listener, SEND, &mut Response { id, value: 0, error: 0, flags: FLAG_CONTINUE }).map(drop)
}

/// Has the call fail with an error number.
///
/// # Errors
/// As [`carry_out`].
pub fn refuse(listener: BorrowedFd<'_>, id: u64, errno: c_int) -> io::Result<()> {
    ioctl(listener, SEND, &mut Response { id, value: 0, error: -errno, flags: 0 }).map(drop)
}

/// Gives the process a copy of a descriptor, whose number is what the call returns there. The
/// number is the lowest that is free, within the process's own limit; the copy is closed at an
/// `exec` if `is_cloexec`.
///
/// # Errors
/// `EMFILE` when the process has as many as it may have, and the call still waits; else as
/// [`carry_out`].
pub fn hand_over(
    listener: BorrowedFd<'_>,
    id: u64,
    descriptor: BorrowedFd<'_>,
    is_cloexec: bool,
) -> io::Result<()> {
    let source = descriptor.as_raw_fd().cast_unsigned();
    let target_flags = if is_cloexec { libc::O_CLOEXEC.cast_unsigned() } else { 0 };
    let mut added = AddedDescriptor { id, flags: ADD_FD_AND_SEND, source, target: 0, target_flags };
    match ioctl(listener, ADD_FD, &mut added) {
        // Linux before 5.14: in two steps.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            added.flags = 0;
            let number = ioctl(listener, ADD_FD, &mut added)?;
            ioctl(listener, SEND, &mut Response { id, value: number.into(), error: 0, flags: 0 })
                .map(drop)
        }
        done => done.map(drop),
    }
}
