//! Features of this machine, found by trying them: one function per feature, for `doctor` and for
//! choosing between mechanisms.
//!
//! Every probe makes the system call in question, as the current user, and undoes what it did. None
//! guesses from a version number, and none changes the process for good: what cannot be undone
//! (user name spaces) is tried in a child.

mod kernel;
mod persistent;
mod system;

use std::io;

pub use kernel::{
    Seccomp, landlock_abi, memfd_sealing, pagemap_scan, seccomp, user_namespaces,
    userfaultfd_async_write_protect,
};
pub use persistent::{Persistence, is_on_persistent_memory, maps_synchronously, persistence};
pub use system::{
    HugePages, RemoveIpc, address_space_limit_bytes, kernel_release, locked_memory_limit_bytes,
    page_bytes, persistent_memory_devices, remove_ipc, shared_memory_huge_pages,
    shared_memory_space,
};

/// Whether a feature can be used by this process, now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// It was used, and worked.
    Usable,
    /// The kernel refused, with this error number: it lacks the feature, or a policy forbids it.
    Refused {
        /// The error number.
        errno: i32,
    },
}

impl Support {
    /// Whether the feature can be used.
    #[must_use]
    pub fn is_usable(self) -> bool {
        self == Support::Usable
    }

    /// Why it cannot be used, in the kernel's words.
    #[must_use]
    pub fn refusal(self) -> Option<io::Error> {
        match self {
            Support::Usable => None,
            Support::Refused { errno } => Some(io::Error::from_raw_os_error(errno)),
        }
    }
}

impl From<io::Result<()>> for Support {
    fn from(outcome: io::Result<()>) -> Support {
        match outcome {
            Ok(()) => Support::Usable,
            // An error without a number did not come from the kernel; "invalid" is the nearest.
            Err(error) => Support::Refused { errno: error.raw_os_error().unwrap_or(libc::EINVAL) },
        }
    }
}
