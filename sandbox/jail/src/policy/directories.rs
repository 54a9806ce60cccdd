//! Files in granted directories. Which files those are, the program's own root and Landlock decide;
//! these rules keep the descriptors apart that the program was given.
//!
//! Not here: links, device nodes, owners, extended attributes, watches; modes and times, which are
//! the program's to change in a root of its own only ([`super::attributes`]). A mode with which
//! something is made is within 0777 ([`super::modes`]).
//!
//! Locks are: a program that may write to a file can do worse to those who share it, and one that
//! may only read it has to lock it to read what others change, as SQLite does.

#![forbid(unsafe_code)]

use libc::{
    EINVAL, EPERM, F_GETLK, F_OFD_GETLK, F_OFD_SETLKW, F_SETLKW, FALLOC_FL_KEEP_SIZE,
    FALLOC_FL_PUNCH_HOLE, MS_ASYNC, MS_INVALIDATE, MS_SYNC, RENAME_EXCHANGE, RENAME_NOREPLACE,
};

use super::modes::{is_ordinary, makes_no_file};
use super::rule::Action::{Allow, Errno};
use super::rule::{
    Condition, NOT_EXECUTABLE, Rule, SHARED_FILE, at_least, at_most, bits, is, own_descriptor,
    plain, rule,
};

const OWN: &[Condition] = &[own_descriptor(0)];
const THERE: &str = "what is there in granted directories; without a file to make, no mode counts";
/// A file that the program opened, under the number of its standard output or error, as a shell and
/// `dd` redirect; by themselves these are pipes or `/dev/null`, for which the kernel refuses all of
/// it.
const OUTPUT: &[Condition] = &[is(0, 1)];
const ERROR: &[Condition] = &[is(0, 2)];
const OPENED: &str = "a file that it opened";
const REDIRECTED: &str = "a file that it opened and redirected its output to";
const LOCKED: &str = "a lock of a file that it opened; SQLite and others share files so";
const MAPPED: &str = "pages of a file that it opened, to the file; LMDB and SQLite commit so";
const MADE: &str = "files in granted directories, with ordinary modes";
const MADE_DIRECTORY: &str = "granted directories, with ordinary modes";
const SPECIAL: &str =
    "set-user-ID, set-group-ID and sticky files would outlive the jail, with its user's rights";
/// Of a rename: what stays has a name, and nothing is made.
const RENAMES_ONLY: Condition = bits(4, !(RENAME_NOREPLACE | RENAME_EXCHANGE) as u64, 0);

pub(super) const RULES: &[Rule] = &[
    rule(libc::SYS_openat, &[makes_no_file(2)], Allow, THERE),
    rule(libc::SYS_openat, &[is_ordinary(3)], Allow, MADE),
    plain(libc::SYS_openat, Errno(EPERM), SPECIAL),
    rule(libc::SYS_open, &[makes_no_file(1)], Allow, THERE),
    rule(libc::SYS_open, &[is_ordinary(2)], Allow, MADE),
    plain(libc::SYS_open, Errno(EPERM), SPECIAL),
    rule(libc::SYS_creat, &[is_ordinary(1)], Allow, MADE),
    plain(libc::SYS_creat, Errno(EPERM), SPECIAL),
    rule(libc::SYS_pwrite64, OWN, Allow, OPENED),
    rule(libc::SYS_pwritev, OWN, Allow, OPENED),
    rule(libc::SYS_pwritev2, OWN, Allow, OPENED),
    rule(libc::SYS_ftruncate, OWN, Allow, OPENED),
    // With other modes the limit of a file's size is not looked at.
    rule(
        libc::SYS_fallocate,
        &[own_descriptor(0), is(1, 0)],
        Allow,
        "room in a file that it opened, within what it may write",
    ),
    rule(
        libc::SYS_fallocate,
        &[own_descriptor(0), is(1, (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE) as u64)],
        Allow,
        "gives room of a file that it opened back",
    ),
    rule(libc::SYS_fsync, OWN, Allow, OPENED),
    rule(libc::SYS_fdatasync, OWN, Allow, OPENED),
    rule(libc::SYS_sync_file_range, OWN, Allow, OPENED),
    rule(libc::SYS_ftruncate, OUTPUT, Allow, REDIRECTED),
    rule(libc::SYS_ftruncate, ERROR, Allow, REDIRECTED),
    rule(libc::SYS_fsync, OUTPUT, Allow, REDIRECTED),
    rule(libc::SYS_fsync, ERROR, Allow, REDIRECTED),
    rule(libc::SYS_fdatasync, OUTPUT, Allow, REDIRECTED),
    rule(libc::SYS_fdatasync, ERROR, Allow, REDIRECTED),
    rule(
        libc::SYS_mmap,
        &[NOT_EXECUTABLE, SHARED_FILE, own_descriptor(4)],
        Allow,
        "a file that it opened, as it reads and writes it",
    ),
    rule(libc::SYS_msync, &[is(2, MS_SYNC as u64)], Allow, MAPPED),
    rule(libc::SYS_msync, &[is(2, (MS_SYNC | MS_INVALIDATE) as u64)], Allow, MAPPED),
    rule(libc::SYS_msync, &[is(2, (MS_ASYNC | MS_INVALIDATE) as u64)], Allow, MAPPED),
    rule(libc::SYS_flock, OWN, Allow, LOCKED),
    // F_GETLK, F_SETLK and F_SETLKW; and the same for locks of an open file.
    rule(
        libc::SYS_fcntl,
        &[own_descriptor(0), at_least(1, F_GETLK as u64), at_most(1, F_SETLKW as u64)],
        Allow,
        LOCKED,
    ),
    rule(
        libc::SYS_fcntl,
        &[own_descriptor(0), at_least(1, F_OFD_GETLK as u64), at_most(1, F_OFD_SETLKW as u64)],
        Allow,
        LOCKED,
    ),
    plain(libc::SYS_newfstatat, Allow, "files in granted directories"),
    plain(libc::SYS_stat, Allow, "files in granted directories"),
    plain(libc::SYS_lstat, Allow, "files in granted directories"),
    plain(libc::SYS_statx, Allow, "files in granted directories"),
    plain(libc::SYS_access, Allow, "files in granted directories"),
    plain(libc::SYS_faccessat, Allow, "files in granted directories"),
    plain(libc::SYS_faccessat2, Allow, "files in granted directories"),
    plain(libc::SYS_readlink, Allow, "files in granted directories"),
    plain(libc::SYS_readlinkat, Allow, "files in granted directories"),
    rule(libc::SYS_mkdir, &[is_ordinary(1)], Allow, MADE_DIRECTORY),
    plain(libc::SYS_mkdir, Errno(EPERM), SPECIAL),
    rule(libc::SYS_mkdirat, &[is_ordinary(2)], Allow, MADE_DIRECTORY),
    plain(libc::SYS_mkdirat, Errno(EPERM), SPECIAL),
    plain(libc::SYS_rmdir, Allow, "granted directories"),
    plain(libc::SYS_unlink, Allow, "files in granted directories"),
    plain(libc::SYS_unlinkat, Allow, "files in granted directories"),
    plain(libc::SYS_rename, Allow, "files in granted directories"),
    plain(libc::SYS_renameat, Allow, "files in granted directories"),
    rule(libc::SYS_renameat2, &[RENAMES_ONLY], Allow, "files in granted directories"),
    plain(
        libc::SYS_renameat2,
        Errno(EINVAL),
        "as a file system without whiteouts, which are device nodes",
    ),
];
