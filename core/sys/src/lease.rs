//! Locks on bytes of an open file that end with the process that took them (open file description
//! locks, `fcntl_locking(2)`).
//!
//! Invariants:
//! - A lock belongs to the open file, not to the process: closing another descriptor of the same
//!   file drops nothing, which POSIX locks would do. They exclude POSIX locks of others all the
//!   same.
//! - A child that a fork makes has the same open file, and so keeps the lock alive: see the caller
//!   for what it does about it.

#![allow(unsafe_code, reason = "open file description locks are in no safe library")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// What is wanted of a range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    /// No other process may have it.
    Exclusive,
    /// Others may share it.
    Shared,
    /// Give it back.
    None,
}

fn request(kind: libc::c_int, start: u64, bytes: u64) -> io::Result<libc::flock> {
    let (Ok(start), Ok(bytes)) = (libc::off_t::try_from(start), libc::off_t::try_from(bytes))
    else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    Ok(libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: bytes,
        l_pid: 0,
    })
}

/// Takes, or gives back, `bytes` bytes from `start`, without waiting: false when a process has what
/// excludes it.
///
/// # Errors
/// What `fcntl(F_OFD_SETLK)` reports.
pub fn take(file: &File, lease: Lease, start: u64, bytes: u64) -> io::Result<bool> {
    let kind = match lease {
        Lease::Exclusive => libc::F_WRLCK,
        Lease::Shared => libc::F_RDLCK,
        Lease::None => libc::F_UNLCK,
    };
    let range = request(kind, start, bytes)?;
    loop {
        // SAFETY: the descriptor is open as long as `file` is borrowed, and the structure is read
        // only.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) } == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => return Ok(false),
            Some(libc::EINTR) => {}
            _ => return Err(error),
        }
    }
}

/// Whether another process has any of `bytes` bytes from `start`.
///
/// # Errors
/// What `fcntl(F_OFD_GETLK)` reports.
pub fn is_taken(file: &File, start: u64, bytes: u64) -> io::Result<bool> {
    let mut range = request(libc::F_WRLCK, start, bytes)?;
    // SAFETY: the descriptor is open as long as `file` is borrowed, and the structure is ours.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut range) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(range.l_type != libc::F_UNLCK as libc::c_short)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A byte is one open files until it is given back or closed.
    #[test]
    fn byte_belongs_to_one_open_file_until_released() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let first = File::create(&path).unwrap();
        let second = File::options().read(true).write(true).open(&path).unwrap();
        assert!(take(&first, Lease::Exclusive, 1 << 40, 1).unwrap());
        assert!(!take(&second, Lease::Exclusive, 1 << 40, 1).unwrap());
        assert!(is_taken(&second, 1 << 40, 1).unwrap());
        assert!(!is_taken(&first, 1 << 40, 1).unwrap());
        assert!(take(&second, Lease::Shared, (1 << 40) + 1, 1).unwrap());
        drop(File::open(&path).unwrap());
        assert!(is_taken(&second, 1 << 40, 1).unwrap());
        assert!(take(&first, Lease::None, 1 << 40, 1).unwrap());
        assert!(!is_taken(&second, 1 << 40, 1).unwrap());
        assert!(take(&first, Lease::Exclusive, 1 << 40, 1).unwrap());
        drop(first);
        assert!(take(&second, Lease::Exclusive, 1 << 40, 1).unwrap());
        assert!(take(&second, Lease::Shared, u64::MAX, 1).is_err());
    }
}
