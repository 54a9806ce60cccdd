//! Calls that go by other names: those of 32-bit programs, and functions of the C library that
//! tools print instead.
//!
//! Invariant: a name means the same call, whichever program or tool it comes from.

use super::{Entry, by_name};

/// Calls of 32-bit programs, and functions of the C library that some tools print for the call,
/// under another name than the call of x86-64 that does the same. Sorted.
const ALIASES: &[(&str, &str)] = &[
    ("_exit", "exit"),
    ("_llseek", "lseek"),
    ("_newselect", "select"),
    ("bdflush", "sync"),
    ("break", "brk"),
    ("fadvise64_64", "fadvise64"),
    ("fstatat", "newfstatat"),
    ("fstatat64", "newfstatat"),
    ("ipc", "semop"),
    ("mmap2", "mmap"),
    ("nice", "setpriority"),
    ("oldfstat", "fstat"),
    ("oldlstat", "lstat"),
    ("oldolduname", "uname"),
    ("oldstat", "stat"),
    ("olduname", "uname"),
    ("posix_fadvise", "fadvise64"),
    ("pread", "pread64"),
    ("prlimit", "prlimit64"),
    ("pselect", "pselect6"),
    ("pwrite", "pwrite64"),
    ("recv", "recvfrom"),
    ("send", "sendto"),
    ("sgetmask", "rt_sigprocmask"),
    ("sigaction", "rt_sigaction"),
    ("signal", "rt_sigaction"),
    ("sigpending", "rt_sigpending"),
    ("sigprocmask", "rt_sigprocmask"),
    ("sigreturn", "rt_sigreturn"),
    ("sigsuspend", "rt_sigsuspend"),
    ("socketcall", "socket"),
    ("ssetmask", "rt_sigprocmask"),
    ("stime", "settimeofday"),
    ("sysctl", "_sysctl"),
    ("ugetrlimit", "getrlimit"),
    ("umount", "umount2"),
    ("wait3", "wait4"),
    ("waitpid", "wait4"),
];

/// The call of x86-64 that does the same as the one with this name.
#[must_use]
pub(crate) fn known_as(name: &str) -> Option<&'static Entry> {
    let alias = || {
        let index = ALIASES.binary_search_by_key(&name, |(other, _)| other).ok()?;
        by_name(ALIASES.get(index)?.1)
    };
    by_name(name)
        .or_else(alias)
        // Users and groups, offsets and times: narrow in the oldest programs, wide in all others.
        .or_else(|| {
            ["_time64", "64", "32"].iter().find_map(|wide| by_name(name.strip_suffix(wide)?))
        })
}
