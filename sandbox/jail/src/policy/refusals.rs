//! Calls that are answered by an error where no other rule allows them: ordinary programs try them,
//! and go on without. The last rules that are tried.
//!
//! A refusal widens nothing: the call is not carried out. What no program does in good faith is not
//! here, so that it stays a violation: other processes, other programs, name spaces, mounts,
//! tracing, what types into a terminal, and any second number for a descriptor that was given.

#![forbid(unsafe_code)]

use libc::{
    EACCES, EAGAIN, ECHILD, EINVAL, EMFILE, ENOENT, ENOLCK, ENOMEM, ENOSYS, ENOTSOCK, ENOTSUP,
    ENOTTY, EPERM, ESPIPE, TIOCLINUX, TIOCSTI,
};

use super::base::SHARED_MEMORY;
use super::rule::Action::{Ask, Errno};
use super::rule::{
    NOT_EXECUTABLE, Question, Rule, SHARED_FILE, at_least, at_most, bits, is, own_descriptor,
    plain, rule,
};

const SEALED: &str = "questions about paths end with the loading";
const CHANGES: &str = "no directory was granted in which there could be changes";
const NOT_GRANTED: &str =
    "not what a grant of a directory holds: links, modes, owners, times, devices";
const FOR_GOOD: &str =
    "who it is and what it may use up is the host's choice; callers go on without";
const PRIORITIES: &str = "priorities are the host's choice; callers go on without";
const LOCKS: &str = "a lock could keep other programs from a file";
const COPIES: &str = "callers read and write instead";
const NO_NETWORK: &str =
    "there is no network; a lasting error, because after a passing one callers try again";
const NO_SOCKETS: &str = "no descriptor is treated as a socket";
const ATTRIBUTES: &str = "extended attributes; callers go on without";
const PINNED: &str = "pinned memory is the host's to give; callers go on without";
const NUMA: &str = "NUMA libraries go on without";
const HUGE_PAGES: &str = "libraries look for huge pages and go on without";
const NO_FILE: &str = "as a pipe, which has no length and lies on no disk";
const HINT: &str = "a hint; callers go on without";
const OTHER_COMMANDS: &str = "as a kernel that does not know the command; locks and the like";
const NOT_KNOWN: &str = "as a kernel that does not know the call; callers go on without";
const WATCHES: &str = "who watches files reaches what others do with them";
const WHOLE_DISKS: &str = "whole disks are not its to wait for; fsync has its files";
const SYSTEM_V: &str = "names that all programs share";
/// All but `TIOCSTI` and `TIOCLINUX`, which type into a terminal and stay violations.
const REQUESTS: &str = "isatty and others: no descriptor is a terminal, and callers go on without copies, \
                        flags and layouts of files";

pub(super) const RULES: &[Rule] = &[
    // Paths.
    plain(
        libc::SYS_openat,
        Ask(Question::Null),
        "files to write to, and any file once sealed, where none is granted; shells, git and Java open /dev/null so",
    ),
    plain(libc::SYS_open, Ask(Question::Null), "as openat"),
    plain(libc::SYS_creat, Ask(Question::Null), "as openat"),
    plain(libc::SYS_openat2, Errno(ENOSYS), "its flags are in memory, where no filter sees them"),
    plain(
        libc::SYS_chdir,
        Errno(EACCES),
        "where there is no root of its own, it would tell which directories are",
    ),
    plain(libc::SYS_fchdir, Errno(EACCES), "as chdir"),
    plain(libc::SYS_stat, Errno(EACCES), SEALED),
    plain(libc::SYS_lstat, Errno(EACCES), SEALED),
    plain(libc::SYS_readlink, Errno(EACCES), SEALED),
    plain(libc::SYS_readlinkat, Errno(EACCES), SEALED),
    plain(libc::SYS_getcwd, Errno(ENOENT), "there is no working directory to speak of"),
    plain(libc::SYS_mkdir, Errno(EACCES), CHANGES),
    plain(libc::SYS_mkdirat, Errno(EACCES), CHANGES),
    plain(libc::SYS_rmdir, Errno(EACCES), CHANGES),
    plain(libc::SYS_unlink, Errno(EACCES), CHANGES),
    plain(libc::SYS_unlinkat, Errno(EACCES), CHANGES),
    plain(libc::SYS_rename, Errno(EACCES), CHANGES),
    plain(libc::SYS_renameat, Errno(EACCES), CHANGES),
    plain(libc::SYS_renameat2, Errno(EACCES), CHANGES),
    plain(libc::SYS_link, Errno(EPERM), NOT_GRANTED),
    plain(libc::SYS_linkat, Errno(EPERM), NOT_GRANTED),
    plain(libc::SYS_symlink, Errno(EPERM), NOT_GRANTED),
    plain(libc::SYS_symlinkat, Errno(EPERM), NOT_GRANTED),
    plain(libc::SYS_chmod, Errno(EPERM), NOT_GRANTED),
    plain(libc::SYS_fchmod, Errno(EPERM), NOT_GRANTED),
    plain(libc::SYS_fchmodat, Errno(EPERM), NOT_GRANTED),
    plain(libc::SYS_fchmodat2, Errno(EPERM), NOT_GRANTED),
    plain(libc::SYS_chown, Errno(EPERM), NOT_GRANTED),
    plain(libc::SYS_fchown, Errno(EPERM), NOT_GRANTED),
    plain(libc::SYS_lchown, Errno(EPERM), NOT_GRANTED),
    plain(libc::SYS_fchownat, Errno(EPERM), NOT_GRANTED),
    plain(libc::SYS_utimensat, Errno(EPERM), NOT_GRANTED),
    plain(libc::SYS_utimes, Errno(EPERM), NOT_GRANTED),
    plain(libc::SYS_utime, Errno(EPERM), NOT_GRANTED),
    plain(libc::SYS_futimesat, Errno(EPERM), NOT_GRANTED),
    plain(libc::SYS_truncate, Errno(EPERM), "it names a file; ftruncate has one that was opened"),
    plain(libc::SYS_getxattr, Errno(ENOTSUP), ATTRIBUTES),
    plain(libc::SYS_lgetxattr, Errno(ENOTSUP), ATTRIBUTES),
    plain(libc::SYS_fgetxattr, Errno(ENOTSUP), ATTRIBUTES),
    plain(libc::SYS_listxattr, Errno(ENOTSUP), ATTRIBUTES),
    plain(libc::SYS_llistxattr, Errno(ENOTSUP), ATTRIBUTES),
    plain(libc::SYS_flistxattr, Errno(ENOTSUP), ATTRIBUTES),
    plain(libc::SYS_setxattr, Errno(ENOTSUP), ATTRIBUTES),
    plain(libc::SYS_lsetxattr, Errno(ENOTSUP), ATTRIBUTES),
    plain(libc::SYS_fsetxattr, Errno(ENOTSUP), ATTRIBUTES),
    plain(libc::SYS_removexattr, Errno(ENOTSUP), ATTRIBUTES),
    plain(libc::SYS_lremovexattr, Errno(ENOTSUP), ATTRIBUTES),
    plain(libc::SYS_fremovexattr, Errno(ENOTSUP), ATTRIBUTES),
    plain(libc::SYS_statfs, Errno(ENOSYS), HUGE_PAGES),
    plain(libc::SYS_fstatfs, Errno(ENOSYS), HUGE_PAGES),
    plain(libc::SYS_inotify_init1, Errno(EMFILE), WATCHES),
    plain(libc::SYS_inotify_init, Errno(EMFILE), WATCHES),
    plain(libc::SYS_fanotify_init, Errno(EPERM), WATCHES),
    plain(libc::SYS_mknod, Errno(EPERM), NOT_GRANTED),
    plain(libc::SYS_mknodat, Errno(EPERM), NOT_GRANTED),
    plain(libc::SYS_name_to_handle_at, Errno(ENOTSUP), "handles name files in other directories"),
    plain(libc::SYS_sync, Errno(EPERM), WHOLE_DISKS),
    plain(libc::SYS_syncfs, Errno(EPERM), WHOLE_DISKS),
    plain(libc::SYS_quotactl, Errno(EPERM), WHOLE_DISKS),
    rule(libc::SYS_ftruncate, &[at_most(0, 2)], Errno(EINVAL), NO_FILE),
    rule(libc::SYS_fallocate, &[at_most(0, 2)], Errno(ESPIPE), NO_FILE),
    plain(libc::SYS_fsync, Errno(EINVAL), NO_FILE),
    plain(libc::SYS_fdatasync, Errno(EINVAL), NO_FILE),
    rule(libc::SYS_ftruncate, &[own_descriptor(0)], Errno(EINVAL), CHANGES),
    rule(libc::SYS_fallocate, &[own_descriptor(0)], Errno(ENOTSUP), CHANGES),
    rule(
        libc::SYS_mmap,
        &[NOT_EXECUTABLE, SHARED_FILE, own_descriptor(4)],
        Errno(EACCES),
        "where no directory was granted, no file is shared with others",
    ),
    // Descriptors. Those of 3 and 4 stay violations: no program copies them in good faith.
    rule(libc::SYS_dup, &[is(0, 0)], Errno(EMFILE), "standard input is only read"),
    rule(libc::SYS_dup2, &[is(0, 0)], Errno(EMFILE), "standard input is only read"),
    rule(libc::SYS_dup3, &[is(0, 0)], Errno(EMFILE), "standard input is only read"),
    rule(libc::SYS_fcntl, &[at_most(0, 2)], Errno(EINVAL), OTHER_COMMANDS),
    rule(libc::SYS_fcntl, &[own_descriptor(0)], Errno(EINVAL), OTHER_COMMANDS),
    rule(libc::SYS_flock, &[own_descriptor(0)], Errno(ENOLCK), LOCKS),
    rule(libc::SYS_fadvise64, &[is(0, 0)], Errno(ESPIPE), HINT),
    plain(libc::SYS_readahead, Errno(EINVAL), HINT),
    plain(libc::SYS_copy_file_range, Errno(EINVAL), COPIES),
    plain(libc::SYS_sendfile, Errno(EINVAL), COPIES),
    plain(libc::SYS_splice, Errno(EINVAL), COPIES),
    plain(libc::SYS_vmsplice, Errno(EINVAL), COPIES),
    plain(libc::SYS_tee, Errno(EINVAL), COPIES),
    rule(libc::SYS_ioctl, &[at_most(1, TIOCSTI - 1)], Errno(ENOTTY), REQUESTS),
    rule(
        libc::SYS_ioctl,
        &[at_least(1, TIOCSTI + 1), at_most(1, TIOCLINUX - 1)],
        Errno(ENOTTY),
        REQUESTS,
    ),
    rule(libc::SYS_ioctl, &[at_least(1, TIOCLINUX + 1)], Errno(ENOTTY), REQUESTS),
    // The network.
    rule(libc::SYS_socket, &[is(0, libc::AF_INET as u64)], Ask(Question::Network), NO_NETWORK),
    rule(libc::SYS_socket, &[is(0, libc::AF_INET6 as u64)], Ask(Question::Network), NO_NETWORK),
    plain(libc::SYS_socket, Errno(EACCES), "name service lookups; there is no other end"),
    plain(libc::SYS_getpeername, Errno(ENOTSOCK), NO_SOCKETS),
    plain(libc::SYS_getsockname, Errno(ENOTSOCK), NO_SOCKETS),
    plain(libc::SYS_getsockopt, Errno(ENOTSOCK), NO_SOCKETS),
    plain(libc::SYS_setsockopt, Errno(ENOTSOCK), NO_SOCKETS),
    plain(libc::SYS_socketpair, Errno(EACCES), "callers have pipes for their own threads"),
    // Itself.
    plain(
        libc::SYS_clone3,
        Errno(ENOSYS),
        "its flags are in memory, where no filter sees them; libraries fall back to clone",
    ),
    plain(libc::SYS_wait4, Errno(ECHILD), "Table 1; there are no children"),
    plain(libc::SYS_waitid, Errno(ECHILD), "there are no children"),
    plain(
        libc::SYS_arch_prctl,
        Errno(EINVAL),
        "the C library asks for shadow stacks and goes on without",
    ),
    plain(
        libc::SYS_prctl,
        Errno(EINVAL),
        "as a kernel that does not know it; names of mappings, capabilities",
    ),
    plain(libc::SYS_capget, Errno(EPERM), "it has none, and those of others are not its business"),
    plain(libc::SYS_capset, Errno(EPERM), FOR_GOOD),
    plain(libc::SYS_prlimit64, Errno(EPERM), FOR_GOOD),
    plain(libc::SYS_setrlimit, Errno(EPERM), FOR_GOOD),
    plain(libc::SYS_setpgid, Errno(EPERM), FOR_GOOD),
    plain(libc::SYS_setsid, Errno(EPERM), FOR_GOOD),
    plain(libc::SYS_setuid, Errno(EPERM), FOR_GOOD),
    plain(libc::SYS_setgid, Errno(EPERM), FOR_GOOD),
    plain(libc::SYS_setreuid, Errno(EPERM), FOR_GOOD),
    plain(libc::SYS_setregid, Errno(EPERM), FOR_GOOD),
    plain(libc::SYS_setresuid, Errno(EPERM), FOR_GOOD),
    plain(libc::SYS_setresgid, Errno(EPERM), FOR_GOOD),
    plain(libc::SYS_setgroups, Errno(EPERM), FOR_GOOD),
    plain(libc::SYS_setpriority, Errno(EPERM), PRIORITIES),
    plain(libc::SYS_ioprio_set, Errno(EPERM), PRIORITIES),
    plain(libc::SYS_sched_setscheduler, Errno(EPERM), PRIORITIES),
    plain(libc::SYS_sched_setparam, Errno(EPERM), PRIORITIES),
    plain(libc::SYS_sched_setattr, Errno(EPERM), PRIORITIES),
    plain(libc::SYS_sched_getattr, Errno(EPERM), PRIORITIES),
    plain(
        libc::SYS_sched_setaffinity,
        Errno(EPERM),
        "where it runs is the host's choice; callers go on without",
    ),
    plain(
        libc::SYS_timer_create,
        Errno(EAGAIN),
        "callers go on without, or use setitimer or timerfd_create",
    ),
    plain(libc::SYS_adjtimex, Errno(EPERM), "the machine's clock"),
    plain(libc::SYS_clock_adjtime, Errno(EPERM), "the machine's clock"),
    plain(libc::SYS_personality, Errno(EPERM), FOR_GOOD),
    plain(libc::SYS_syslog, Errno(EPERM), "the kernel's messages"),
    plain(libc::SYS_get_robust_list, Errno(EPERM), "locks of other programs are not its business"),
    plain(libc::SYS_pidfd_open, Errno(ENOSYS), NOT_KNOWN),
    plain(libc::SYS_futex_waitv, Errno(ENOSYS), NOT_KNOWN),
    plain(libc::SYS_perf_event_open, Errno(EACCES), "it would measure other programs"),
    // What programs confine themselves with; they are confined.
    plain(libc::SYS_seccomp, Errno(ENOSYS), NOT_KNOWN),
    plain(libc::SYS_landlock_create_ruleset, Errno(ENOSYS), NOT_KNOWN),
    // Ways to do calls in memory, where no filter sees them.
    plain(libc::SYS_io_uring_setup, Errno(ENOSYS), NOT_KNOWN),
    plain(libc::SYS_io_setup, Errno(ENOSYS), NOT_KNOWN),
    // Memory and queues with a name, or of files.
    plain(libc::SYS_memfd_create, Errno(ENOSYS), NOT_KNOWN),
    plain(libc::SYS_memfd_secret, Errno(ENOSYS), NOT_KNOWN),
    plain(libc::SYS_shmget, Errno(ENOSYS), SYSTEM_V),
    plain(libc::SYS_semget, Errno(ENOSYS), SYSTEM_V),
    plain(libc::SYS_msgget, Errno(ENOSYS), SYSTEM_V),
    plain(libc::SYS_mq_open, Errno(ENOSYS), SYSTEM_V),
    plain(libc::SYS_add_key, Errno(ENOSYS), SYSTEM_V),
    plain(libc::SYS_request_key, Errno(ENOSYS), SYSTEM_V),
    plain(libc::SYS_keyctl, Errno(ENOSYS), SYSTEM_V),
    // Memory.
    rule(
        libc::SYS_mmap,
        &[NOT_EXECUTABLE, bits(3, libc::MAP_GROWSDOWN as u64, libc::MAP_GROWSDOWN as u64)],
        Errno(ENOMEM),
        "it counts as a stack, which the limit of memory does not",
    ),
    rule(
        libc::SYS_mmap,
        &[NOT_EXECUTABLE, SHARED_MEMORY],
        Errno(ENOMEM),
        "with a heap, the limit of memory would not count it",
    ),
    plain(libc::SYS_userfaultfd, Errno(EPERM), "faults are the kernel's to serve"),
    plain(libc::SYS_remap_file_pages, Errno(ENOSYS), NOT_KNOWN),
    plain(libc::SYS_mseal, Errno(ENOSYS), NOT_KNOWN),
    plain(libc::SYS_madvise, Errno(EINVAL), "as a kernel that does not know the advice"),
    plain(libc::SYS_mlock, Errno(EPERM), PINNED),
    plain(libc::SYS_mlock2, Errno(EPERM), PINNED),
    plain(libc::SYS_mlockall, Errno(EPERM), PINNED),
    plain(libc::SYS_get_mempolicy, Errno(EPERM), NUMA),
    plain(libc::SYS_set_mempolicy, Errno(EPERM), NUMA),
    plain(libc::SYS_mbind, Errno(EPERM), NUMA),
    plain(
        libc::SYS_pkey_alloc,
        Errno(ENOSYS),
        "as a processor without protection keys; before it is sealed there may be some",
    ),
];
