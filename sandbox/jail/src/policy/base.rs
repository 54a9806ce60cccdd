//! The calls of every program: memory, time, signals, synchronisation, questions about itself, the
//! end.
//!
//! The start is Table 1 of "Cornell Untrusted Binary Applets", call by call, in today's names:
//! `brk`, `mincore`, `mmap`, `munmap`, `mprotect`, `memcntl` (`madvise`, `msync`), `exit`, `wait`,
//! `fstat`, `nice` (`setpriority`), `getrlimit`, `getpid`. Its `msgsys` and `shmsys` are the futex
//! and the mappings of descriptors 3, 4 and those of further regions.
//!
//! Invariant: no rule here lets a program reach a file, a process or a device that it was not
//! given, or change the size of a file.

#![forbid(unsafe_code)]

use libc::{EINVAL, ENOSYS, MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED, SIGABRT};

use super::rule::Action::{Allow, Ask, Errno};
use super::rule::{
    Comparison, Condition, MAP_TYPES, NOT_EXECUTABLE, Operand, PRIVATE_FILE, Question, Rule,
    SHARED_FILE, SYNCHRONOUS_FILE, Width, at_most, bits, is, is_double, is_itself, plain, rule,
};

const CHANNEL: u64 = 3;
/// The descriptor of the first region; further ones have those behind it.
pub(crate) const FIRST_REGION: u32 = 4;
/// Descriptor 4 and those of further regions behind it.
const FROM_THE_FIRST_REGION: Condition = Condition {
    argument: 4,
    width: Width::Word,
    comparison: Comparison::AtLeast,
    operand: Operand::Value(FIRST_REGION as u64),
};
const TO_THE_LAST_REGION: Condition = Condition {
    argument: 4,
    width: Width::Word,
    comparison: Comparison::AtMost,
    operand: Operand::LastRegionDescriptor,
};
const PRIVATE_MEMORY: Condition = bits(3, MAP_TYPES, (MAP_PRIVATE | MAP_ANONYMOUS) as u64);
pub(super) const SHARED_MEMORY: Condition = bits(3, MAP_TYPES, (MAP_SHARED | MAP_ANONYMOUS) as u64);
const PAST_THE_REGIONS_HEADER: Condition = Condition {
    argument: 5,
    width: Width::Double,
    comparison: Comparison::AtLeast,
    operand: Operand::RegionDataOffset,
};
/// All of a futex operation but "private" and "by the wall clock".
const FUTEX_COMMAND: u64 = !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) as u32 as u64;
/// Moves sleepers to another word, but only those of its own process: the host sleeps on words that
/// both share.
const FUTEX_REQUEUE: u64 = (libc::FUTEX_REQUEUE | libc::FUTEX_PRIVATE_FLAG) as u64;
const FUTEX_CMP_REQUEUE: u64 = (libc::FUTEX_CMP_REQUEUE | libc::FUTEX_PRIVATE_FLAG) as u64;
const ARCH_SET_FS: u64 = 0x1002;
const ARCH_GET_FS: u64 = 0x1003;
const MADV_GUARD_INSTALL: u64 = 102;
const MADV_GUARD_REMOVE: u64 = 103;

pub(super) const SHARED: &[Rule] = &[rule(
    libc::SYS_mmap,
    &[NOT_EXECUTABLE, SHARED_MEMORY],
    Allow,
    "fresh memory, shared with children that there are none of; Python maps so",
)];

pub(super) const RULES: &[Rule] = &[
    // Memory.
    plain(libc::SYS_brk, Allow, "the heap of malloc; counted against the address space"),
    plain(libc::SYS_munmap, Allow, "only its own memory"),
    plain(
        libc::SYS_mremap,
        Allow,
        "only its own memory; a shared mapping cannot move to a lower offset of its file",
    ),
    rule(libc::SYS_mmap, &[NOT_EXECUTABLE, PRIVATE_MEMORY], Allow, "fresh memory"),
    rule(
        libc::SYS_mmap,
        &[NOT_EXECUTABLE, SHARED_FILE, is(4, CHANNEL)],
        Allow,
        "the channel to the host",
    ),
    rule(
        libc::SYS_mmap,
        &[
            NOT_EXECUTABLE,
            SHARED_FILE,
            FROM_THE_FIRST_REGION,
            TO_THE_LAST_REGION,
            PAST_THE_REGIONS_HEADER,
        ],
        Allow,
        "a region's data, never its header",
    ),
    rule(
        libc::SYS_mmap,
        &[
            NOT_EXECUTABLE,
            SYNCHRONOUS_FILE,
            FROM_THE_FIRST_REGION,
            TO_THE_LAST_REGION,
            PAST_THE_REGIONS_HEADER,
        ],
        Allow,
        "the same, where it is memory that survives a reset",
    ),
    rule(
        libc::SYS_mmap,
        &[
            NOT_EXECUTABLE,
            PRIVATE_FILE,
            FROM_THE_FIRST_REGION,
            TO_THE_LAST_REGION,
            PAST_THE_REGIONS_HEADER,
        ],
        Allow,
        "a region's data in atomic mode",
    ),
    rule(libc::SYS_mprotect, &[NOT_EXECUTABLE], Allow, "only its own memory"),
    rule(
        libc::SYS_madvise,
        &[at_most(2, 4)],
        Allow,
        "normal, random, sequential, willneed, dontneed: paging hints",
    ),
    rule(
        libc::SYS_madvise,
        &[is(2, libc::MADV_FREE as u64)],
        Allow,
        "gives memory back; malloc does",
    ),
    rule(libc::SYS_madvise, &[is(2, libc::MADV_HUGEPAGE as u64)], Allow, "page size, a hint"),
    rule(libc::SYS_madvise, &[is(2, libc::MADV_NOHUGEPAGE as u64)], Allow, "page size, a hint"),
    rule(
        libc::SYS_madvise,
        &[is(2, libc::MADV_DONTDUMP as u64)],
        Allow,
        "what a core dump holds; there is none",
    ),
    rule(
        libc::SYS_madvise,
        &[is(2, libc::MADV_DODUMP as u64)],
        Allow,
        "what a core dump holds; there is none",
    ),
    rule(
        libc::SYS_madvise,
        &[is(2, libc::MADV_POPULATE_READ as u64)],
        Allow,
        "faults pages in, as touching them does",
    ),
    rule(
        libc::SYS_madvise,
        &[is(2, libc::MADV_POPULATE_WRITE as u64)],
        Allow,
        "faults pages in, as touching them does",
    ),
    rule(libc::SYS_madvise, &[is(2, MADV_GUARD_INSTALL)], Allow, "guard pages of thread stacks"),
    rule(libc::SYS_madvise, &[is(2, MADV_GUARD_REMOVE)], Allow, "guard pages of thread stacks"),
    rule(
        libc::SYS_msync,
        &[is(2, libc::MS_ASYNC as u64)],
        Allow,
        "a no-op by which unwinders test addresses",
    ),
    plain(
        libc::SYS_mincore,
        Allow,
        "Table 1; tells of its own memory, and of files only what it could write",
    ),
    plain(libc::SYS_munlock, Allow, "undoes what never was"),
    // The end.
    plain(libc::SYS_exit, Allow, "the end of a thread"),
    plain(libc::SYS_exit_group, Allow, "the end of the program"),
    rule(
        libc::SYS_tgkill,
        &[is(2, SIGABRT as u64)],
        Ask(Question::Abort),
        "abort() of glibc and Rust",
    ),
    rule(libc::SYS_tkill, &[is(1, SIGABRT as u64)], Ask(Question::Abort), "abort() of musl"),
    rule(libc::SYS_kill, &[is(1, SIGABRT as u64)], Ask(Question::Abort), "abort() of old programs"),
    // Waiting, on memory it shares with the host or among its threads. Not the priority-inheriting
    // kinds: no program needs them here, and much of the kernel's complexity is theirs.
    rule(
        libc::SYS_futex,
        &[bits(1, FUTEX_COMMAND, libc::FUTEX_WAIT as u64)],
        Allow,
        "waits on its own memory",
    ),
    rule(
        libc::SYS_futex,
        &[bits(1, FUTEX_COMMAND, libc::FUTEX_WAKE as u64)],
        Allow,
        "wakes the channel's other end",
    ),
    rule(
        libc::SYS_futex,
        &[is(1, FUTEX_REQUEUE)],
        Allow,
        "condition variables of its own threads, never the host's sleep",
    ),
    rule(
        libc::SYS_futex,
        &[is(1, FUTEX_CMP_REQUEUE)],
        Allow,
        "condition variables of its own threads, never the host's sleep",
    ),
    rule(
        libc::SYS_futex,
        &[bits(1, FUTEX_COMMAND, libc::FUTEX_WAKE_OP as u64)],
        Allow,
        "condition variables",
    ),
    rule(
        libc::SYS_futex,
        &[bits(1, FUTEX_COMMAND, libc::FUTEX_WAIT_BITSET as u64)],
        Allow,
        "waits with a deadline",
    ),
    rule(
        libc::SYS_futex,
        &[bits(1, FUTEX_COMMAND, libc::FUTEX_WAKE_BITSET as u64)],
        Allow,
        "wakes some of its threads",
    ),
    plain(libc::SYS_futex, Errno(ENOSYS), "the other kinds; the C library goes on without"),
    plain(libc::SYS_set_robust_list, Allow, "locks of a thread that ends; every thread does"),
    plain(libc::SYS_rseq, Allow, "per-CPU data of the C library; touches its own memory"),
    rule(libc::SYS_membarrier, &[is(0, 0)], Allow, "asks what there is"),
    rule(libc::SYS_membarrier, &[is(0, 8)], Allow, "among its own threads"),
    rule(libc::SYS_membarrier, &[is(0, 16)], Allow, "among its own threads"),
    plain(libc::SYS_membarrier, Errno(EINVAL), "interrupts to other processes are not its to send"),
    plain(libc::SYS_sched_yield, Allow, "lets others run"),
    plain(
        libc::SYS_poll,
        Allow,
        "waits on descriptors that it has; Rust's start looks at 0 to 2 so",
    ),
    plain(libc::SYS_ppoll, Allow, "waits on descriptors that it has"),
    plain(libc::SYS_select, Allow, "waits on descriptors that it has"),
    plain(libc::SYS_pselect6, Allow, "waits on descriptors that it has"),
    plain(libc::SYS_nanosleep, Allow, "sleeps"),
    plain(libc::SYS_clock_nanosleep, Allow, "sleeps"),
    plain(libc::SYS_restart_syscall, Allow, "the kernel's own way to go on sleeping after a stop"),
    // Time.
    plain(libc::SYS_clock_gettime, Allow, "when there is no vDSO"),
    plain(libc::SYS_clock_getres, Allow, "the clock's grain"),
    plain(libc::SYS_gettimeofday, Allow, "when there is no vDSO"),
    plain(libc::SYS_time, Allow, "when there is no vDSO"),
    plain(libc::SYS_times, Allow, "its own CPU time"),
    plain(libc::SYS_getrusage, Allow, "its own CPU time and memory"),
    // Signals to itself: faults it may want to catch.
    plain(libc::SYS_rt_sigaction, Allow, "handlers of its own faults"),
    plain(libc::SYS_rt_sigprocmask, Allow, "its own mask"),
    plain(libc::SYS_rt_sigreturn, Allow, "the end of a handler"),
    plain(libc::SYS_sigaltstack, Allow, "a stack for handlers; Rust has one for each thread"),
    plain(libc::SYS_pause, Allow, "waits"),
    plain(libc::SYS_rt_sigsuspend, Allow, "waits"),
    plain(libc::SYS_rt_sigtimedwait, Allow, "waits"),
    plain(libc::SYS_rt_sigpending, Allow, "its own signals"),
    rule(
        libc::SYS_tgkill,
        &[is_itself(0)],
        Allow,
        "signals among its own threads; Go and Java stop theirs so",
    ),
    rule(libc::SYS_kill, &[is_itself(0)], Allow, "raise() of old programs"),
    rule(libc::SYS_rt_sigqueueinfo, &[is_itself(0)], Allow, "sigqueue() to itself"),
    rule(libc::SYS_rt_tgsigqueueinfo, &[is_itself(0)], Allow, "pthread_sigqueue()"),
    plain(libc::SYS_alarm, Allow, "a signal to itself"),
    plain(libc::SYS_setitimer, Allow, "a signal to itself"),
    plain(libc::SYS_getitimer, Allow, "a signal to itself"),
    // Itself.
    plain(libc::SYS_getpid, Allow, "Table 1; the number within its name space"),
    plain(libc::SYS_gettid, Allow, "the number within its name space"),
    plain(libc::SYS_getppid, Allow, "nothing can be done with the number"),
    plain(libc::SYS_getuid, Allow, "a number"),
    plain(libc::SYS_geteuid, Allow, "a number"),
    plain(libc::SYS_getgid, Allow, "a number"),
    plain(libc::SYS_getegid, Allow, "a number"),
    plain(libc::SYS_getresuid, Allow, "numbers"),
    plain(libc::SYS_getresgid, Allow, "numbers"),
    plain(libc::SYS_getgroups, Allow, "numbers"),
    plain(libc::SYS_getpgrp, Allow, "the number of its own session"),
    rule(libc::SYS_getpgid, &[is(0, 0)], Allow, "the number of its own session"),
    rule(libc::SYS_getsid, &[is(0, 0)], Allow, "the number of its own session"),
    plain(libc::SYS_umask, Allow, "the modes of files that it makes itself"),
    plain(libc::SYS_getrandom, Allow, "random bytes; hash tables want them"),
    plain(libc::SYS_getcpu, Allow, "where it runs"),
    plain(libc::SYS_sched_getaffinity, Allow, "how many CPUs there are"),
    plain(libc::SYS_sched_get_priority_max, Allow, "a number that is the same everywhere"),
    plain(libc::SYS_sched_get_priority_min, Allow, "a number that is the same everywhere"),
    rule(libc::SYS_sched_getscheduler, &[is(0, 0)], Allow, "its own priority"),
    rule(libc::SYS_sched_getparam, &[is(0, 0)], Allow, "its own priority"),
    rule(libc::SYS_sched_rr_get_interval, &[is(0, 0)], Allow, "its own priority"),
    rule(libc::SYS_getpriority, &[is(0, 0), is(1, 0)], Allow, "its own priority"),
    plain(libc::SYS_getrlimit, Allow, "Table 1; reads its own limits"),
    rule(
        libc::SYS_prlimit64,
        &[is(0, 0), is_double(2, 0)],
        Allow,
        "reads its own limits; pthread_create does",
    ),
    rule(
        libc::SYS_setpriority,
        &[is(0, 0), is(1, 0)],
        Allow,
        "Table 1 (nice): only downwards, the kernel sees to that",
    ),
    plain(
        libc::SYS_set_tid_address,
        Allow,
        "a word of its own that the kernel clears at the end of a thread",
    ),
    rule(libc::SYS_arch_prctl, &[is(0, ARCH_SET_FS)], Allow, "thread-local storage"),
    rule(libc::SYS_arch_prctl, &[is(0, ARCH_GET_FS)], Allow, "thread-local storage"),
    rule(libc::SYS_prctl, &[is(0, libc::PR_SET_NAME as u64)], Allow, "a thread's name"),
    rule(libc::SYS_prctl, &[is(0, libc::PR_GET_NAME as u64)], Allow, "a thread's name"),
    plain(
        libc::SYS_uname,
        Allow,
        "the kernel's release; static programs of old C libraries end without it",
    ),
    plain(libc::SYS_sysinfo, Allow, "how much memory there is; qsort asks"),
    // Descriptors.
    plain(libc::SYS_close, Allow, "gives up what it has"),
    rule(libc::SYS_close_range, &[is(2, 0)], Allow, "gives up what it has"),
    rule(
        libc::SYS_close_range,
        &[is(2, libc::CLOSE_RANGE_CLOEXEC as u64)],
        Allow,
        "closed at an exec that never comes",
    ),
    plain(libc::SYS_close_range, Errno(EINVAL), "descriptors are one table, which threads share"),
    plain(libc::SYS_fstat, Allow, "Table 1; tells of a descriptor that it has"),
    rule(
        libc::SYS_lseek,
        &[at_most(0, 2)],
        Allow,
        "standard streams; the C library does so at exit",
    ),
    rule(
        libc::SYS_read,
        &[is(0, 0)],
        Allow,
        "standard input, which is empty or what the host gave",
    ),
    rule(libc::SYS_readv, &[is(0, 0)], Allow, "standard input; musl reads so"),
    rule(libc::SYS_pread64, &[is(0, 0)], Allow, "standard input, where it is a file"),
    rule(libc::SYS_preadv, &[is(0, 0)], Allow, "standard input, where it is a file"),
    rule(
        libc::SYS_mmap,
        &[NOT_EXECUTABLE, PRIVATE_FILE, is(4, 0)],
        Allow,
        "standard input, where it is a file",
    ),
    rule(
        libc::SYS_fcntl,
        &[is(1, libc::F_GETFD as u64)],
        Allow,
        "tells of a descriptor that it has",
    ),
    rule(
        libc::SYS_fcntl,
        &[is(1, libc::F_GETFL as u64)],
        Allow,
        "tells of a descriptor that it has",
    ),
    rule(
        libc::SYS_fcntl,
        &[is(1, libc::F_SETFD as u64)],
        Allow,
        "closed at an exec that never comes",
    ),
];
