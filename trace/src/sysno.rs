//! Names and numbers of system calls, and which of their arguments is a descriptor.

use std::borrow::Cow;

use crate::Abi;

/// Calls of x32 alone: from 512 on they have numbers of their own (`asm/unistd_x32.h`).
const X32_FIRST: u32 = 512;
const X32_OWN: [&str; 36] = [
    "rt_sigaction",
    "rt_sigreturn",
    "ioctl",
    "readv",
    "writev",
    "recvfrom",
    "sendmsg",
    "recvmsg",
    "execve",
    "ptrace",
    "rt_sigpending",
    "rt_sigtimedwait",
    "rt_sigqueueinfo",
    "sigaltstack",
    "timer_create",
    "mq_notify",
    "kexec_load",
    "waitid",
    "set_robust_list",
    "get_robust_list",
    "vmsplice",
    "move_pages",
    "preadv",
    "pwritev",
    "rt_tgsigqueueinfo",
    "recvmmsg",
    "sendmmsg",
    "process_vm_readv",
    "process_vm_writev",
    "setsockopt",
    "getsockopt",
    "io_setup",
    "io_submit",
    "execveat",
    "preadv2",
    "pwritev2",
];

/// Newer than the crate that has all others.
const NEW_SINCE: [(u32, &str); 2] = [(470, "listns"), (471, "rseq_slice_yield")];

/// The name of a call; `syscall_N` for a number that has none. The same name means the same call
/// through every door, but 32-bit programs have variants of their own (`mmap2`, `_llseek`,
/// `socketcall`).
pub fn call_name(abi: Abi, number: u32) -> Cow<'static, str> {
    known_name(abi, number).map_or_else(|| Cow::Owned(format!("syscall_{number}")), Cow::Borrowed)
}

fn known_name(abi: Abi, number: u32) -> Option<&'static str> {
    let index = number as usize;
    let wide = || syscalls::x86_64::Sysno::new(index).map(|call| call.name());
    let name = match abi {
        Abi::X86_64 => wide(),
        // A word of Rust (`break`) has a mark in the crate.
        Abi::I386 => syscalls::x86::Sysno::new(index)
            .map(|call| call.name().strip_prefix("r#").unwrap_or(call.name())),
        Abi::X32 if number >= X32_FIRST => {
            return X32_OWN.get((number - X32_FIRST) as usize).copied();
        }
        // The numbers that 64-bit programs have for those are none here.
        Abi::X32 => wide().filter(|name| !X32_OWN.contains(name)),
    };
    name.or_else(|| NEW_SINCE.iter().find(|(new, _)| *new == number).map(|(_, name)| *name))
}

/// The number that x32 has of its own for a call, if it has one.
pub(crate) fn own_number_of_x32(name: &str) -> Option<u32> {
    (X32_FIRST..).zip(X32_OWN).find(|(_, own)| *own == name).map(|(number, _)| number)
}

/// The number of a call of this name for 64-bit programs.
pub fn call_number(name: &str) -> Option<u32> {
    let known = name.parse::<syscalls::x86_64::Sysno>().ok().map(|call| call.id() as u32);
    known.or_else(|| NEW_SINCE.iter().find(|(_, new)| *new == name).map(|(number, _)| *number))
}

/// Which argument of a call is the descriptor that it works on (0 is the first), for
/// [`crate::Object`]. None for calls without one, and for those whose descriptor only says where a
/// path begins: these are about a path.
pub fn descriptor_argument(abi: Abi, number: u32) -> Option<usize> {
    match known_name(abi, number)? {
        // The oldest call of this name for 32-bit programs has its arguments in memory.
        "mmap" if abi == Abi::I386 => None,
        name => descriptor_argument_of(name),
    }
}

fn descriptor_argument_of(name: &str) -> Option<usize> {
    Some(match name {
        "mmap" | "mmap2" => 4,
        // The descriptor that data comes from; the first one of `sendfile` is where it goes to.
        "sendfile" | "sendfile64" => 1,
        "read"
        | "write"
        | "close"
        | "fstat"
        | "fstat64"
        | "lseek"
        | "_llseek"
        | "ioctl"
        | "pread64"
        | "pwrite64"
        | "readv"
        | "writev"
        | "preadv"
        | "pwritev"
        | "preadv2"
        | "pwritev2"
        | "dup"
        | "dup2"
        | "dup3"
        | "fcntl"
        | "fcntl64"
        | "flock"
        | "fsync"
        | "fdatasync"
        | "ftruncate"
        | "ftruncate64"
        | "getdents"
        | "getdents64"
        | "fchdir"
        | "fchmod"
        | "fchown"
        | "fchown32"
        | "fstatfs"
        | "fstatfs64"
        | "fadvise64"
        | "fadvise64_64"
        | "readahead"
        | "fallocate"
        | "sync_file_range"
        | "syncfs"
        | "fsetxattr"
        | "fgetxattr"
        | "flistxattr"
        | "fremovexattr"
        | "connect"
        | "accept"
        | "accept4"
        | "sendto"
        | "recvfrom"
        | "sendmsg"
        | "recvmsg"
        | "sendmmsg"
        | "recvmmsg"
        | "recvmmsg_time64"
        | "shutdown"
        | "bind"
        | "listen"
        | "getsockname"
        | "getpeername"
        | "setsockopt"
        | "getsockopt"
        | "splice"
        | "tee"
        | "vmsplice"
        | "copy_file_range"
        | "epoll_ctl"
        | "epoll_ctl_old"
        | "epoll_wait"
        | "epoll_pwait"
        | "epoll_pwait2"
        | "inotify_add_watch"
        | "inotify_rm_watch"
        | "fanotify_mark"
        | "signalfd"
        | "signalfd4"
        | "timerfd_settime"
        | "timerfd_settime64"
        | "timerfd_gettime"
        | "timerfd_gettime64"
        | "io_uring_enter"
        | "io_uring_register"
        | "mq_timedsend"
        | "mq_timedsend_time64"
        | "mq_timedreceive"
        | "mq_timedreceive_time64"
        | "mq_notify"
        | "mq_getsetattr"
        | "pidfd_send_signal"
        | "pidfd_getfd"
        | "setns"
        | "fsconfig"
        | "fsmount"
        | "process_madvise"
        | "process_mrelease"
        | "cachestat"
        | "finit_module" => 0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_means_another_call_through_each_door() {
        assert_eq!(call_name(Abi::X86_64, 4), "stat");
        assert_eq!(call_name(Abi::I386, 4), "write");
        assert_eq!(call_name(Abi::X32, 4), "stat");
        assert_eq!(call_name(Abi::X32, 514), "ioctl");
        assert_eq!(call_name(Abi::X32, 547), "pwritev2");
        // `ioctl` for 64-bit programs alone.
        assert_eq!(call_name(Abi::X32, 16), "syscall_16");
        assert_eq!(call_name(Abi::I386, 17), "break");
        assert_eq!(call_name(Abi::X86_64, 100_000), "syscall_100000");
        assert_eq!(call_name(Abi::X86_64, u32::MAX), "syscall_4294967295");
    }

    #[test]
    fn names_and_numbers_are_each_others_inverse() {
        for number in 0..480 {
            if let Some(name) = known_name(Abi::X86_64, number) {
                assert_eq!(call_number(name), Some(number), "{name}");
            }
        }
        assert_eq!(call_number("no such call"), None);
        for number in X32_FIRST..600 {
            if let Some(name) = known_name(Abi::X32, number) {
                assert_eq!(own_number_of_x32(name), Some(number), "{name}");
                let wide = call_number(name).unwrap();
                assert_eq!(known_name(Abi::X32, wide), None, "{name}");
            }
        }
        assert_eq!(own_number_of_x32("getpid"), None);
    }

    /// Guarantee: trace/descriptors
    #[test]
    fn the_descriptor_is_found_where_each_call_has_it() {
        for (abi, name, number, argument) in [
            (Abi::X86_64, "read", 0, Some(0)),
            (Abi::I386, "read", 3, Some(0)),
            (Abi::I386, "_llseek", 140, Some(0)),
            (Abi::X86_64, "mmap", 9, Some(4)),
            (Abi::I386, "mmap2", 192, Some(4)),
            (Abi::I386, "mmap", 90, None),
            (Abi::X86_64, "sendfile", 40, Some(1)),
            (Abi::X32, "sendmsg", 518, Some(0)),
            (Abi::X86_64, "openat", 257, None),
            (Abi::X86_64, "getpid", 39, None),
        ] {
            assert_eq!(call_name(abi, number), name);
            assert_eq!(descriptor_argument(abi, number), argument, "{name}");
        }
    }
}
