//! Names of errors, signals and io_uring's operations, as the kernel has them.

/// ENOENT and the like; `error 4000` where there is no name.
pub(crate) fn error(code: i32) -> String {
    match syscalls::Errno::new(code).name() {
        Some(name) => name.to_owned(),
        None => format!("error {code}"),
    }
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
    IO_URING.get(usize::from(operation)).map_or_else(|| format!("operation {operation}"), ToString::to_string)
}

/// From 1 on.
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
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
