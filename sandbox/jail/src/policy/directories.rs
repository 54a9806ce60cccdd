//! Files in granted directories. Which files those are, the program's own root and Landlock decide;
//! these rules keep the descriptors apart that the program was given.
//!
//! Not here: links, device nodes, changes of modes, owners, extended attributes, locks, watches. A
//! mode with which something is made is within 0777 ([`super::modes`]).

#![forbid(unsafe_code)]

use libc::{EINVAL, EPERM, RENAME_EXCHANGE, RENAME_NOREPLACE};

use super::modes::{is_ordinary, makes_no_file};
use super::rule::Action::{Allow, Errno};
use super::rule::{Condition, Rule, bits, own_descriptor, plain, rule};

const OWN: &[Condition] = &[own_descriptor(0)];
const THERE: &str = "what is there in granted directories; without a file to make, no mode counts";
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
    rule(libc::SYS_pwrite64, OWN, Allow, "a file that it opened"),
    rule(libc::SYS_pwritev, OWN, Allow, "a file that it opened"),
    rule(libc::SYS_ftruncate, OWN, Allow, "a file that it opened"),
    rule(libc::SYS_fsync, OWN, Allow, "a file that it opened"),
    rule(libc::SYS_fdatasync, OWN, Allow, "a file that it opened"),
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
