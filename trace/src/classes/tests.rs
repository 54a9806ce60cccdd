//! The table against the kernel's own list and a crate's, and what arguments decide.

use super::*;
use crate::{Abi, Object, call_name};

const KERNEL: &str = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h";

/// Whether the table says that the study itself placed a call.
fn is_placed_by_study(name: &str) -> bool {
    let of = |line: &str| line.split('\t').skip(1).step_by(4).take(2).eq([name, "paper"]);
    TEXT.lines().any(of)
}

/// Every line of the table of classes names one system call, and no number occurs twice.
#[test]
fn every_table_line_is_one_call() {
    assert_eq!(TABLE.len(), TEXT.lines().count() - 1, "a line is not in order");
    assert!(TABLE.windows(2).all(|pair| pair[0].number < pair[1].number), "sorted by number");
    assert_eq!(BY_NAME.len(), TABLE.len(), "a name is there twice");
    assert_eq!(TABLE.len(), 385);
}

/// Every system call of the kernel's list is in the table under its number.
///
/// Guarantee: trace/classes
#[test]
fn table_has_every_call_of_the_kernel() {
    let text = std::fs::read_to_string(KERNEL).expect("linux-libc-dev is installed by ./test");
    // Headers may be of a kernel that has more calls than the table, which then come after its last
    // one.
    let last = TABLE.last().expect("the table is not empty").number;
    let mut calls = 0;
    for line in text.lines().filter_map(|line| line.strip_prefix("#define __NR_")) {
        let (name, number) = line.split_once(' ').expect("a name and a number");
        let number = number.trim().parse().expect("a number");
        if number <= last {
            assert_eq!(by_number(number).map(|entry| entry.name), Some(name), "{line}");
            calls += 1;
        }
    }
    assert!(calls > 350, "{calls}");
}

/// Every system call of the crate's list is in the table under its number.
///
/// Guarantee: trace/classes
#[test]
fn table_has_every_call_of_the_crate() {
    for call in syscalls::x86_64::Sysno::iter() {
        let entry = by_number(call.id() as u32);
        assert_eq!(entry.map(|entry| entry.name), Some(call.name()));
    }
    for entry in TABLE.iter() {
        assert_eq!(call_name(Abi::X86_64, entry.number), entry.name);
    }
}

/// Guarantee: trace/classes
#[test]
fn every_call_of_32_bit_programs_has_a_place() {
    let gone = [
        "afs_syscall",
        "ftime",
        "gtty",
        "idle",
        "lock",
        "mpx",
        "prof",
        "profil",
        "readdir",
        "stty",
        "ulimit",
    ];
    let not_on_64_bits = ["r#break", "vm86", "vm86old"];
    for call in syscalls::x86::Sysno::iter() {
        let name = call.name();
        let nowhere = gone.contains(&name) || not_on_64_bits.contains(&name);
        assert!(nowhere || known_as(name).is_some(), "{name}");
    }
    assert_eq!(known_as("stat64").map(|entry| entry.name), Some("stat"));
    assert_eq!(known_as("getuid32").map(|entry| entry.name), Some("getuid"));
    assert_eq!(known_as("pread").map(|entry| entry.name), Some("pread64"));
    assert!(known_as("no_such_call").is_none());
}

/// The system calls that the study lists are in the classes in which the study puts them.
///
/// Guarantee: trace/classes
#[test]
fn calls_of_the_study_are_in_its_classes() {
    for (subclass, names) in [
        (
            Subclass::Process,
            "execve clone prctl arch_prctl gettid getrlimit uname sysinfo vfork getpid exit_group",
        ),
        (Subclass::Memory, "brk mprotect madvise shmget shmat shmdt shmctl"),
        (
            Subclass::Sync,
            "get_robust_list futex wait4 nanosleep poll ppoll epoll_create1 eventfd2 select inotify_init",
        ),
        (
            Subclass::Signal,
            "rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack kill tkill tgkill restart_syscall",
        ),
        (
            Subclass::Socket,
            "socket socketpair connect pipe pipe2 getpeername bind recvfrom recvmsg sendto shutdown",
        ),
        (Subclass::FileObject, "fcntl fadvise64 umask dup dup2 dup3"),
        (
            Subclass::Metadata,
            "access close stat fstat lstat statfs getdents64 lseek open openat ioctl unlink fallocate \
             rename chmod mkdirat symlink getcwd rmdir chdir chown lgetxattr",
        ),
        (
            Subclass::UserData,
            "mmap munmap read readahead readlink readv preadv write writev pwritev fsync fdatasync truncate ftruncate",
        ),
    ] {
        for name in names.split_whitespace() {
            let entry = by_name(name).expect(name);
            assert_eq!(
                (entry.place.subclass, is_placed_by_study(name)),
                (subclass, true),
                "{name}"
            );
        }
    }
}

/// Where a call is put by its arguments.
fn refined(name: &str, arguments: [u64; 6], object: Object) -> Treatment {
    place(Scheme::Refined, known_as(name), &arguments, object)
}

/// Only the refined scheme classifies a call by its descriptor and arguments.
#[test]
fn only_refined_scheme_looks_at_arguments() {
    let none = [0; 6];
    for (name, arguments, object, subclass) in [
        ("read", none, Object::File, Subclass::UserData),
        ("read", none, Object::Unknown, Subclass::UserData),
        ("read", none, Object::Socket, Subclass::Socket),
        ("write", none, Object::Pipe, Subclass::Socket),
        ("readv", none, Object::EventFd, Subclass::Sync),
        ("write", none, Object::Terminal, Subclass::FileObject),
        ("close", none, Object::Socket, Subclass::Socket),
        ("close", none, Object::Directory, Subclass::Metadata),
        ("mmap", [0, 0, 0, 0x22, u64::MAX, 0], Object::Anonymous, Subclass::Memory),
        ("mmap2", [0, 0, 0, 0x22, 0, 0], Object::Anonymous, Subclass::Memory),
        ("mmap", [0, 0, 0, 0x02, 3, 0], Object::File, Subclass::UserData),
        ("ioctl", none, Object::Terminal, Subclass::FileObject),
        ("ioctl", none, Object::File, Subclass::Metadata),
        ("readlink", none, Object::None, Subclass::Metadata),
        ("msync", none, Object::None, Subclass::UserData),
        ("fcntl", [3, 7, 0, 0, 0, 0], Object::File, Subclass::Sync),
        ("fcntl", [3, 6, 0, 0, 0, 0], Object::File, Subclass::FileObject),
        ("fallocate", [3, 2, 0, 0, 0, 0], Object::File, Subclass::UserData),
        ("fallocate", none, Object::File, Subclass::Metadata),
    ] {
        assert_eq!(
            refined(name, arguments, object).subclass,
            subclass,
            "{name} {arguments:?} {object:?}"
        );
        let by_name = known_as(name).unwrap().place;
        assert_eq!(place(Scheme::Paper, known_as(name), &arguments, object), by_name, "{name}");
    }
}

/// A call whose arguments forbid waiting is recognized as one that cannot block.
#[test]
fn nonblocking_arguments_are_recognized() {
    for (name, arguments, object, event) in [
        ("futex", [0, 0x80, 0, 0, 0, 0], Object::None, true),
        ("futex", [0, 0x81, 0, 0, 0, 0], Object::None, false),
        ("futex", [0, 0x189, 0, 0, 0, 0], Object::None, true),
        ("poll", [0, 1, 0, 0, 0, 0], Object::None, false),
        ("poll", [0, 1, 0xffff_ffff, 0, 0, 0], Object::None, true),
        ("clone", [0x4111, 0, 0, 0, 0, 0], Object::None, true),
        ("clone", [0x11, 0, 0, 0, 0, 0], Object::None, false),
        ("wait4", [0, 0, 1, 0, 0, 0], Object::None, false),
        ("fcntl", [3, 7, 0, 0, 0, 0], Object::File, true),
        ("fcntl", [3, 1, 0, 0, 0, 0], Object::File, false),
        ("read", [0; 6], Object::File, false),
        ("read", [0; 6], Object::Pipe, true),
        ("recvfrom", [0, 0, 0, 0x40, 0, 0], Object::Socket, false),
    ] {
        assert_eq!(
            refined(name, arguments, object).waits.event,
            event,
            "{name} {arguments:?} {object:?}"
        );
    }
}
