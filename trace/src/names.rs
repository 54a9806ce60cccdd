//! Names of errors, signals and io_uring's operations, as the kernel has them.

use std::collections::HashMap;
use std::sync::LazyLock;

/// ENOENT and the like; `error 4000` where there is no name.
pub(crate) fn error(code: i32) -> String {
    match syscalls::Errno::new(code).name() {
        Some(name) => name.to_owned(),
        None => format!("error {code}"),
    }
}

/// The number of an error; that of EIO for an unknown name, so that it stays an error.
pub(crate) fn error_number(name: &str) -> i32 {
    static NUMBERS: LazyLock<HashMap<&'static str, i32>> = LazyLock::new(|| {
        let named = (1..=600).filter_map(|code| Some((syscalls::Errno::new(code).name()?, code)));
        // EWOULDBLOCK and the like are other names of the same.
        named.collect()
    });
    NUMBERS.get(name).copied().unwrap_or(5)
}

/// The number of a signal; 0 for an unknown name.
pub(crate) fn signal_number(name: &str) -> u8 {
    let Some(name) = name.strip_prefix("SIG") else { return 0 };
    if let Some(index) = SIGNALS.iter().position(|known| *known == name) {
        return index as u8 + 1;
    }
    // The kernel's first one is two before that of the C library.
    let real_time = name.strip_prefix("RT_").and_then(|number| number.parse::<u8>().ok());
    real_time.map_or(0, |number| number.saturating_add(32))
}

/// SIGTERM and the like; `SIGRT+n` for those without a name.
pub(crate) fn signal(number: u8) -> String {
    match SIGNALS.get(usize::from(number).wrapping_sub(1)) {
        Some(name) => format!("SIG{name}"),
        // The C library keeps the first two for itself.
        None if number >= 34 => format!("SIGRTMIN+{}", number - 34),
        None => format!("signal {number}"),
    }
}

/// IORING_OP_READ as READ; `operation 99` where there is no name.
pub(crate) fn io_uring(operation: u8) -> String {
    IO_URING
        .get(usize::from(operation))
        .map_or_else(|| format!("operation {operation}"), ToString::to_string)
}

/// From 1 on.
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// From 0 on, of Linux 6.15.
const IO_URING: [&str; 63] = [
    "NOP",
    "READV",
    "WRITEV",
    "FSYNC",
    "READ_FIXED",
    "WRITE_FIXED",
    "POLL_ADD",
    "POLL_REMOVE",
    "SYNC_FILE_RANGE",
    "SENDMSG",
    "RECVMSG",
    "TIMEOUT",
    "TIMEOUT_REMOVE",
    "ACCEPT",
    "ASYNC_CANCEL",
    "LINK_TIMEOUT",
    "CONNECT",
    "FALLOCATE",
    "OPENAT",
    "CLOSE",
    "FILES_UPDATE",
    "STATX",
    "READ",
    "WRITE",
    "FADVISE",
    "MADVISE",
    "SEND",
    "RECV",
    "OPENAT2",
    "EPOLL_CTL",
    "SPLICE",
    "PROVIDE_BUFFERS",
    "REMOVE_BUFFERS",
    "TEE",
    "SHUTDOWN",
    "RENAMEAT",
    "UNLINKAT",
    "MKDIRAT",
    "SYMLINKAT",
    "LINKAT",
    "MSG_RING",
    "FSETXATTR",
    "SETXATTR",
    "FGETXATTR",
    "GETXATTR",
    "SOCKET",
    "URING_CMD",
    "SEND_ZC",
    "SENDMSG_ZC",
    "READ_MULTISHOT",
    "WAITID",
    "FUTEX_WAIT",
    "FUTEX_WAKE",
    "FUTEX_WAITV",
    "FIXED_FD_INSTALL",
    "FTRUNCATE",
    "BIND",
    "LISTEN",
    "RECV_ZC",
    "EPOLL_WAIT",
    "READV_FIXED",
    "WRITEV_FIXED",
    "PIPE",
];
