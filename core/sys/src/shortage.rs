//! Explains the kernel's errors that come from a limit of this process: which limit is too low, and
//! what raises it.

#![forbid(unsafe_code)]

use std::error::Error;
use std::io;
use std::iter;

/// What to do about an error that is about a limit of this process, its user or the machine; `None`
/// for any other error. One of a library may have the kernel's within, at any depth.
#[must_use]
pub fn remedy(error: &io::Error) -> Option<&'static str> {
    let within = || {
        let inner = error.get_ref()? as &(dyn Error + 'static);
        iter::successors(Some(inner), |&one| one.source())
            .find_map(|one| one.downcast_ref::<io::Error>().and_then(remedy))
    };
    of_kernel(error).or_else(within)
}

fn of_kernel(error: &io::Error) -> Option<&'static str> {
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

    /// Landlock's and other libraries' errors wrap that of the kernel.
    #[test]
    fn errors_within_errors_are_found() {
        #[derive(Debug)]
        struct NotOpened(io::Error);
        impl std::fmt::Display for NotOpened {
            fn fmt(&self, form: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                form.write_str("not opened")
            }
        }
        impl Error for NotOpened {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&self.0)
            }
        }
        let wrapped = |errno| {
            let inner = NotOpened(io::Error::from_raw_os_error(errno));
            io::Error::other(io::Error::other(inner))
        };
        assert!(remedy(&wrapped(libc::EMFILE)).unwrap().contains("ulimit -n"));
        assert_eq!(remedy(&wrapped(libc::ENOENT)), None);
    }
}
