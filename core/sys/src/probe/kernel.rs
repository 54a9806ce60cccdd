//! Probes that need a system call of their own.

use std::io;

use rustix::fs::{MemfdFlags, SealFlags};

use super::Support;
use crate::dirty::{PageRegion, Pagemap, Userfaultfd};
use crate::mapping::Reservation;

/// From linux/landlock.h.
const LANDLOCK_CREATE_RULESET_VERSION: libc::c_uint = 1;

/// A system call's result as a number or an error.
fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// userfaultfd with asynchronous write protection on shared memory (Linux 6.7): how changed pages
/// are found.
#[must_use]
pub fn userfaultfd_async_write_protect() -> Support {
    Userfaultfd::open().map(drop).into()
}

/// `ioctl(PAGEMAP_SCAN)` (Linux 6.7) on this process: how changed pages are listed.
#[must_use]
pub fn pagemap_scan() -> Support {
    let probe = || {
        let pagemap = Pagemap::open()?;
        let range = Reservation::anywhere(rustix::param::page_size(), 1)?;
        let start = range.base() as usize;
        pagemap.list_present(&(start..start + range.len()), &mut [PageRegion::default()])?;
        Ok(())
    };
    probe().into()
}

/// The version of Landlock's interface; an error number when there is none (`EOPNOTSUPP`: disabled
/// at boot, `ENOSYS`: not built in).
///
/// # Errors
/// What the kernel reports.
pub fn landlock_abi() -> io::Result<u32> {
    let no_attributes = std::ptr::null::<libc::c_void>();
    // SAFETY: with this flag the kernel takes no attributes and only returns a number.
    let abi = checked(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            no_attributes,
            0usize,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    })?;
    u32::try_from(abi).map_err(io::Error::other)
}

/// What seccomp offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seccomp {
    /// Filters that end the process.
    pub kill_process: Support,
    /// Filters that ask a supervisor.
    pub user_notification: Support,
}

/// Whether the kernel knows the seccomp actions that a jail needs.
#[must_use]
pub fn seccomp() -> Seccomp {
    let action = |action: u32| {
        // SAFETY: the kernel reads one u32 through the pointer.
        checked(unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action)
        })
        .map(drop)
        .into()
    };
    Seccomp {
        kill_process: action(libc::SECCOMP_RET_KILL_PROCESS),
        user_notification: action(libc::SECCOMP_RET_USER_NOTIF),
    }
}

/// Whether this user may make user and mount name spaces. Tried in a child process, which ends at
/// once.
#[must_use]
pub fn user_namespaces() -> Support {
    let probe = || {
        // SAFETY: between fork and _exit the child makes async-signal-safe calls only, and returns
        // nowhere.
        let pid = checked(unsafe {
            let pid = libc::fork();
            if pid == 0 {
                let failed = libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) != 0;
                // Error numbers of unshare are below 128, so they fit an exit status.
                libc::_exit(if failed { *libc::__errno_location() } else { 0 });
            }
            pid.into()
        })?;
        let mut status = 0;
        loop {
            // SAFETY: waits for the child made above, which no other code knows; `status` is valid.
            match checked(unsafe { libc::waitpid(pid as libc::pid_t, &raw mut status, 0) }.into()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other.map(drop)?,
            }
        }
        match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
            (true, 0) => Ok(()),
            (true, errno) => Err(io::Error::from_raw_os_error(errno)),
            // A policy that kills instead of refusing.
            (false, _) => Err(io::Error::from_raw_os_error(libc::EPERM)),
        }
    };
    probe().into()
}

/// Anonymous memory files that can be sealed against shrinking.
#[must_use]
pub fn memfd_sealing() -> Support {
    let probe = || {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create("holdfast-probe", flags)?;
        rustix::fs::ftruncate(&memory, 4096)?;
        rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK)?;
        match rustix::fs::ftruncate(&memory, 0) {
            Err(rustix::io::Errno::PERM) => Ok(()),
            // The seal was taken and does not hold.
            Ok(()) => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
            Err(error) => Err(error.into()),
        }
    };
    probe().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_probe_gives_the_same_answer_twice() {
        assert_eq!(userfaultfd_async_write_protect(), userfaultfd_async_write_protect());
        assert_eq!(pagemap_scan(), pagemap_scan());
        assert_eq!(landlock_abi().ok(), landlock_abi().ok());
        assert_eq!(seccomp(), seccomp());
        assert_eq!(user_namespaces(), user_namespaces());
        assert_eq!(memfd_sealing(), memfd_sealing());
    }

    #[test]
    fn a_refusal_carries_the_kernels_reason() {
        let refused = Support::from(Err(io::Error::from_raw_os_error(libc::ENOSYS)));
        assert!(!refused.is_usable());
        assert_eq!(refused.refusal().unwrap().raw_os_error(), Some(libc::ENOSYS));
        assert!(Support::Usable.refusal().is_none());
    }

    /// Memfd sealing is there on every kernel that is supported.
    #[test]
    fn memfd_sealing_is_on_every_supported_kernel() {
        assert!(memfd_sealing().is_usable());
    }

    /// The process is in its own user namespace after the probe as before.
    #[test]
    fn probe_leaves_the_user_namespace_alone() {
        let before = std::fs::read_link("/proc/self/ns/user").unwrap();
        let _ = user_namespaces();
        assert_eq!(std::fs::read_link("/proc/self/ns/user").unwrap(), before);
    }
}
