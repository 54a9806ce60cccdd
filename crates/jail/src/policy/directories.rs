//! Files in granted directories. Which files those are, the program's own root and Landlock decide; these rules keep
//! the descriptors apart that the program was given.
//!
//! Not here: links, device nodes, modes, owners, extended attributes, locks, watches.

#![forbid(unsafe_code)]

use super::Action::Allow;
use super::{Condition, Rule, own_descriptor, plain, rule};

const OWN: &[Condition] = &[own_descriptor(0)];

pub(super) const RULES: &[Rule] = &[
    plain(libc::SYS_openat, Allow, "files in granted directories"),
    plain(libc::SYS_open, Allow, "files in granted directories; musl says open"),
    plain(libc::SYS_creat, Allow, "files in granted directories"),
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
    plain(libc::SYS_mkdir, Allow, "granted directories"),
    plain(libc::SYS_mkdirat, Allow, "granted directories"),
    plain(libc::SYS_rmdir, Allow, "granted directories"),
    plain(libc::SYS_unlink, Allow, "files in granted directories"),
    plain(libc::SYS_unlinkat, Allow, "files in granted directories"),
    plain(libc::SYS_rename, Allow, "files in granted directories"),
    plain(libc::SYS_renameat, Allow, "files in granted directories"),
    plain(libc::SYS_renameat2, Allow, "files in granted directories"),
];
