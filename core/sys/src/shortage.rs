//! Explains the kernel's errors that come from a limit of this process: which limit is too low, and
//! what raises it.

#![forbid(unsafe_code)]

use std::io;

/// What to do about an error that is about a limit of this process, its user or the machine; `None`
/// for any other error.
#[must_use]
pub fn remedy(error: &io::Error) -> Option<&'static str> {
    match error.raw_os_error()? {
        libc::EMFILE => Some(
            "this process has as many files open as it may have: raise that limit (`ulimit -n`)",
        ),
        libc::ENFILE => Some(
            "all processes together have as many files open as they may have: raise fs.file-max",
        ),
        libc::EAGAIN => Some(
            "this user has as many processes and threads as it may have: raise that limit (`ulimit -u`, or pids.max of \
             the control group), or end some",
        ),
        libc::ENOMEM => Some(
            "there is no memory for it: raise the limit of address space (`ulimit -v`), or free some memory",
        ),
        libc::EFBIG => Some("it is larger than a file may be: raise that limit (`ulimit -f`)"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_the_names_of_the_shell() {
        for (errno, named) in
            [(libc::EMFILE, "ulimit -n"), (libc::EAGAIN, "ulimit -u"), (libc::EFBIG, "ulimit -f")]
        {
            assert!(remedy(&io::Error::from_raw_os_error(errno)).unwrap().contains(named));
        }
        assert_eq!(remedy(&io::Error::from_raw_os_error(libc::ENOENT)), None);
        assert_eq!(remedy(&io::ErrorKind::NotFound.into()), None);
    }
}
