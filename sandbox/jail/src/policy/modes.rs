//! Calls that make files or change what their modes grant, and where each call takes the mode.
//!
//! A set-user-ID file that an applet leaves in a granted directory would run with the rights of the
//! applet's user, which is root where the host is root. So the bits 07000 of a mode (set-user-ID,
//! set-group-ID, sticky) reach no file, and neither does what is as good as one of them: file
//! capabilities, access lists, device nodes, owners.
//!
//! Invariants, which the tests of the policy try for each row in every combination of groups and,
//! where files can be made, on a real kernel for all 4,096 modes:
//! - a call whose mode is a scalar argument is allowed with 0777 only;
//! - a call whose mode is in memory, or that changes what a mode grants in another way, is never
//!   allowed.
//!
//! A row here allows nothing: rules do. A call that makes files and is missing here is a mistake.

#![forbid(unsafe_code)]

use super::rule::{Condition, bits};

/// Set-user-ID, set-group-ID and sticky: what no mode may have.
pub const SPECIAL_BITS: u64 = 0o7000;
/// Flags of opening with which a file is made, so that the mode counts: `O_CREAT`, and what
/// `O_TMPFILE` has besides `O_DIRECTORY`.
pub const CREATING_FLAGS: u64 = libc::O_CREAT as u64 | 0o20_000_000;

/// Where a call takes the mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// An argument, which always counts.
    Argument(u8),
    /// An argument, which counts where another one has one of [`CREATING_FLAGS`].
    WhenCreating {
        /// The flags.
        flags: u8,
        /// The mode.
        mode: u8,
    },
    /// No mode; with these bits of an argument the call makes something that a mode guards, or
    /// changes what one grants.
    WithBits {
        /// The argument.
        argument: u8,
        /// The bits.
        bits: u64,
    },
    /// No mode; with this value of an argument the call changes what a mode grants.
    WithValue {
        /// The argument.
        argument: u8,
        /// The value.
        value: u64,
    },
    /// The argument takes bits away from 0777, and can add none.
    Mask,
    /// In memory, or not at all: what it would grant cannot be seen.
    Unseen,
}

/// A call that makes files or changes what a mode grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModeCall {
    /// The call's number.
    pub syscall: i64,
    /// Where it takes the mode.
    pub mode: Mode,
    /// What it makes or changes.
    pub what: &'static str,
}

const fn call(syscall: i64, mode: Mode, what: &'static str) -> ModeCall {
    ModeCall { syscall, mode, what }
}

/// The mode in an argument has none of [`SPECIAL_BITS`].
pub(super) const fn is_ordinary(argument: u8) -> Condition {
    bits(argument, SPECIAL_BITS, 0)
}

/// The flags of opening in an argument make no file.
pub(super) const fn makes_no_file(argument: u8) -> Condition {
    bits(argument, CREATING_FLAGS, 0)
}

/// Numbers that the `libc` crate does not have.
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;
const FILE_SETATTR: i64 = 469;
/// Requests of `ioctl` on a file.
const FS_IOC_SETFLAGS: u64 = 0x4008_6602;
const FS_IOC_FSSETXATTR: u64 = 0x401c_5820;
const FS_IOC_ENABLE_VERITY: u64 = 0x4080_6685;
const FS_IOC_SET_ENCRYPTION_POLICY: u64 = 0x800c_6613;

/// All of them.
pub const MODE_CALLS: &[ModeCall] = &[
    call(libc::SYS_open, Mode::WhenCreating { flags: 1, mode: 2 }, "a file"),
    call(libc::SYS_openat, Mode::WhenCreating { flags: 2, mode: 3 }, "a file"),
    call(libc::SYS_openat2, Mode::Unseen, "a file; flags and mode are in memory"),
    call(libc::SYS_creat, Mode::Argument(1), "a file"),
    call(libc::SYS_mkdir, Mode::Argument(1), "a directory"),
    call(libc::SYS_mkdirat, Mode::Argument(2), "a directory"),
    call(libc::SYS_mknod, Mode::Argument(1), "a file, a pipe, a socket or a device"),
    call(libc::SYS_mknodat, Mode::Argument(2), "a file, a pipe, a socket or a device"),
    call(libc::SYS_bind, Mode::Unseen, "a socket at a path; its mode is the socket's"),
    call(libc::SYS_umask, Mode::Mask, "the modes of files that are made later"),
    call(libc::SYS_chmod, Mode::Argument(1), "a file's mode"),
    call(libc::SYS_fchmod, Mode::Argument(1), "a file's mode"),
    call(libc::SYS_fchmodat, Mode::Argument(2), "a file's mode"),
    call(libc::SYS_fchmodat2, Mode::Argument(2), "a file's mode"),
    call(libc::SYS_chown, Mode::Unseen, "whose rights a set-user-ID file has"),
    call(libc::SYS_fchown, Mode::Unseen, "whose rights a set-user-ID file has"),
    call(libc::SYS_lchown, Mode::Unseen, "whose rights a set-user-ID file has"),
    call(libc::SYS_fchownat, Mode::Unseen, "whose rights a set-user-ID file has"),
    call(
        libc::SYS_link,
        Mode::Unseen,
        "another name for a file, set-user-ID or not, also outside of the grant's reach",
    ),
    call(
        libc::SYS_linkat,
        Mode::Unseen,
        "another name for a file; the only one for what O_TMPFILE made",
    ),
    call(
        libc::SYS_renameat2,
        Mode::WithBits { argument: 4, bits: libc::RENAME_WHITEOUT as u64 },
        "a device node where the old name was",
    ),
    call(libc::SYS_setxattr, Mode::Unseen, "file capabilities and access lists"),
    call(libc::SYS_lsetxattr, Mode::Unseen, "file capabilities and access lists"),
    call(libc::SYS_fsetxattr, Mode::Unseen, "file capabilities and access lists"),
    call(SETXATTRAT, Mode::Unseen, "file capabilities and access lists"),
    call(libc::SYS_removexattr, Mode::Unseen, "access lists, whose mask is part of the mode"),
    call(libc::SYS_lremovexattr, Mode::Unseen, "access lists, whose mask is part of the mode"),
    call(libc::SYS_fremovexattr, Mode::Unseen, "access lists, whose mask is part of the mode"),
    call(REMOVEXATTRAT, Mode::Unseen, "access lists, whose mask is part of the mode"),
    call(FILE_SETATTR, Mode::Unseen, "a file's flags and project"),
    call(
        libc::SYS_ioctl,
        Mode::WithValue { argument: 1, value: FS_IOC_SETFLAGS },
        "a file's flags",
    ),
    call(
        libc::SYS_ioctl,
        Mode::WithValue { argument: 1, value: FS_IOC_FSSETXATTR },
        "a file's flags and project",
    ),
    call(
        libc::SYS_ioctl,
        Mode::WithValue { argument: 1, value: FS_IOC_ENABLE_VERITY },
        "a file that stays as it is",
    ),
    call(
        libc::SYS_ioctl,
        Mode::WithValue { argument: 1, value: FS_IOC_SET_ENCRYPTION_POLICY },
        "a directory that others cannot read",
    ),
    call(libc::SYS_mq_open, Mode::Argument(2), "a message queue"),
    call(
        libc::SYS_msgget,
        Mode::Argument(1),
        "message queues of System V; the flags hold the mode",
    ),
    call(libc::SYS_semget, Mode::Argument(2), "semaphores of System V; the flags hold the mode"),
    call(libc::SYS_shmget, Mode::Argument(2), "shared memory of System V; the flags hold the mode"),
    call(libc::SYS_memfd_create, Mode::Unseen, "a file in memory that is executable to everyone"),
    call(libc::SYS_memfd_secret, Mode::Unseen, "a file in memory"),
    call(libc::SYS_io_uring_setup, Mode::Unseen, "makes files, modes and links without a call"),
    call(libc::SYS_bpf, Mode::Unseen, "files of a file system of BPF; the mode is the kernel's"),
];
