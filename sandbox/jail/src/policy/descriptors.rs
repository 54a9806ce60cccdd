//! The calls on a program's own descriptors: files that it opened, pipes, counters, sets of
//! descriptors.
//!
//! Nothing here decides which file is open for what: that do the rules for opening, the program's
//! own root and Landlock. Where no directory is granted, files are opened for reading only, so what
//! is written goes to pipes and counters, whose other end is the program's, too.
//!
//! Invariant: descriptors that the program was given (3, the channel; 4, the region; and more) get
//! no second number, and neither does its standard input, whose file the host may have opened for
//! writing.

#![forbid(unsafe_code)]

use libc::{
    AF_UNIX, F_DUPFD, F_DUPFD_CLOEXEC, F_SETFL, FIONBIO, FIONREAD, MSG_DONTWAIT, MSG_NOSIGNAL,
    MSG_WAITALL, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM,
};

use super::rule::Action::Allow;
use super::rule::{
    Condition, NOT_EXECUTABLE, PRIVATE_FILE, Rule, bits, is, is_double, own_descriptor, plain, rule,
};

const OWN: &[Condition] = &[own_descriptor(0)];
const OPENED: &str = "a file that it opened";
const WAITS: &str = "waits on descriptors that it has, as poll does";
const COPY: &str = "another number for what it opened or may write to anyway";
const OUTPUT: &str = "not waiting for its output to be read; this end of the pipe is nobody else's";
/// Both ends of a pair, which no other program has. Never `sendmsg`: its control messages would give
/// descriptors that were given a second number.
const PAIR: &str = "a pair of sockets between its own threads; Python's event loop wakes itself so";
/// Of `socketpair`: one that has no messages to other addresses.
const STREAM: Condition = bits(1, SOCKET_TYPES, SOCK_STREAM as u64);
/// All of a type but "not waiting" and "closed at an exec".
const SOCKET_TYPES: u64 = !(SOCK_NONBLOCK | SOCK_CLOEXEC) as u32 as u64;
const NO_ADDRESS: Condition = is_double(4, 0);
/// Of the flags: no urgent bytes. No event loop sends them, and kernels had holes there.
const ORDINARY_SENDING: Condition = bits(3, !(MSG_NOSIGNAL | MSG_DONTWAIT) as u32 as u64, 0);
const ORDINARY_RECEIVING: Condition = bits(3, !(MSG_WAITALL | MSG_DONTWAIT) as u32 as u64, 0);
const TIMER: &str = "a timer that it reads";

pub(super) const RULES: &[Rule] = &[
    rule(libc::SYS_read, OWN, Allow, OPENED),
    rule(libc::SYS_readv, OWN, Allow, OPENED),
    rule(libc::SYS_pread64, OWN, Allow, OPENED),
    rule(libc::SYS_preadv, OWN, Allow, OPENED),
    rule(libc::SYS_preadv2, OWN, Allow, OPENED),
    rule(
        libc::SYS_write,
        OWN,
        Allow,
        "a pipe or a counter of its own, or a file in a granted directory",
    ),
    rule(libc::SYS_writev, OWN, Allow, "a pipe of its own, or a file in a granted directory"),
    rule(libc::SYS_lseek, OWN, Allow, OPENED),
    rule(
        libc::SYS_getdents64,
        OWN,
        Allow,
        "a directory that it opened; the C++ library lists locales",
    ),
    rule(libc::SYS_getdents, OWN, Allow, "a directory that it opened"),
    rule(libc::SYS_fadvise64, OWN, Allow, "a hint about a file that it opened"),
    rule(libc::SYS_mmap, &[NOT_EXECUTABLE, PRIVATE_FILE, own_descriptor(4)], Allow, OPENED),
    rule(
        libc::SYS_fcntl,
        &[own_descriptor(0), is(1, F_SETFL as u64)],
        Allow,
        "appending, or not waiting, on what it opened",
    ),
    rule(libc::SYS_fcntl, &[is(0, 1), is(1, F_SETFL as u64)], Allow, OUTPUT),
    rule(libc::SYS_fcntl, &[is(0, 2), is(1, F_SETFL as u64)], Allow, OUTPUT),
    rule(
        libc::SYS_ioctl,
        &[own_descriptor(0), is(1, FIONBIO)],
        Allow,
        "not waiting, on what it opened",
    ),
    rule(libc::SYS_ioctl, &[is(0, 1), is(1, FIONBIO)], Allow, OUTPUT),
    rule(libc::SYS_ioctl, &[is(0, 2), is(1, FIONBIO)], Allow, OUTPUT),
    rule(
        libc::SYS_ioctl,
        &[own_descriptor(0), is(1, FIONREAD)],
        Allow,
        "how much there is to read",
    ),
    // Pipes, counters, timers and sets: within the program, because no other program has their
    // other ends.
    plain(libc::SYS_pipe, Allow, "a pipe between its own threads"),
    rule(libc::SYS_socketpair, &[is(0, AF_UNIX as u64), STREAM], Allow, PAIR),
    rule(libc::SYS_sendto, &[own_descriptor(0), NO_ADDRESS, ORDINARY_SENDING], Allow, PAIR),
    rule(libc::SYS_recvfrom, &[own_descriptor(0), ORDINARY_RECEIVING], Allow, PAIR),
    rule(libc::SYS_shutdown, OWN, Allow, PAIR),
    rule(libc::SYS_getsockname, OWN, Allow, PAIR),
    rule(libc::SYS_getpeername, OWN, Allow, PAIR),
    plain(libc::SYS_pipe2, Allow, "a pipe between its own threads"),
    plain(libc::SYS_eventfd2, Allow, "a counter that wakes its own threads"),
    plain(libc::SYS_eventfd, Allow, "a counter that wakes its own threads"),
    rule(libc::SYS_signalfd4, OWN, Allow, "its own signals, that it reads; a new one has -1"),
    rule(libc::SYS_signalfd, OWN, Allow, "its own signals, that it reads; a new one has -1"),
    plain(libc::SYS_timerfd_create, Allow, TIMER),
    rule(libc::SYS_timerfd_settime, OWN, Allow, TIMER),
    rule(libc::SYS_timerfd_gettime, OWN, Allow, TIMER),
    plain(libc::SYS_epoll_create, Allow, WAITS),
    plain(libc::SYS_epoll_create1, Allow, WAITS),
    rule(libc::SYS_epoll_ctl, OWN, Allow, WAITS),
    rule(libc::SYS_epoll_wait, OWN, Allow, WAITS),
    rule(libc::SYS_epoll_pwait, OWN, Allow, WAITS),
    rule(libc::SYS_epoll_pwait2, OWN, Allow, WAITS),
    // Second numbers, as shells make them for redirections.
    rule(libc::SYS_dup, OWN, Allow, COPY),
    rule(libc::SYS_dup, &[is(0, 1)], Allow, COPY),
    rule(libc::SYS_dup, &[is(0, 2)], Allow, COPY),
    rule(libc::SYS_dup2, OWN, Allow, COPY),
    rule(libc::SYS_dup2, &[is(0, 1)], Allow, COPY),
    rule(libc::SYS_dup2, &[is(0, 2)], Allow, COPY),
    rule(libc::SYS_dup3, OWN, Allow, COPY),
    rule(libc::SYS_dup3, &[is(0, 1)], Allow, COPY),
    rule(libc::SYS_dup3, &[is(0, 2)], Allow, COPY),
    rule(libc::SYS_fcntl, &[own_descriptor(0), is(1, F_DUPFD as u64)], Allow, COPY),
    rule(libc::SYS_fcntl, &[is(0, 1), is(1, F_DUPFD as u64)], Allow, COPY),
    rule(libc::SYS_fcntl, &[is(0, 2), is(1, F_DUPFD as u64)], Allow, COPY),
    rule(libc::SYS_fcntl, &[own_descriptor(0), is(1, F_DUPFD_CLOEXEC as u64)], Allow, COPY),
    rule(libc::SYS_fcntl, &[is(0, 1), is(1, F_DUPFD_CLOEXEC as u64)], Allow, COPY),
    rule(libc::SYS_fcntl, &[is(0, 2), is(1, F_DUPFD_CLOEXEC as u64)], Allow, COPY),
];
