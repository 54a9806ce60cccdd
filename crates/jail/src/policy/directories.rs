//! Files in granted directories. Which files those are, the program's own root and Landlock decide; these rules keep
//! the descriptors apart that the program was given.
//!
//! Not here: links, device nodes, modes, owners, extended attributes, locks, watches.

#![forbid(unsafe_code)]

use libc::{F_SETFL, MAP_ANONYMOUS, MAP_HUGETLB, MAP_PRIVATE, PROT_EXEC};

use super::Action::Allow;
use super::{Condition, Rule, bits, is, own_descriptor, plain, rule};

const MAP_TYPE: u64 = 0xf;
const NOT_EXECUTABLE: Condition = bits(2, PROT_EXEC as u64, 0);
const PRIVATE_FILE: Condition =
    bits(3, MAP_TYPE | MAP_ANONYMOUS as u64 | MAP_HUGETLB as u64, MAP_PRIVATE as u64);
const OWN: &[Condition] = &[own_descriptor(0)];

pub(super) const RULES: &[Rule] = &[
    plain(libc::SYS_openat, Allow, "files in granted directories"),
    plain(libc::SYS_open, Allow, "files in granted directories; musl says open"),
    rule(libc::SYS_read, OWN, Allow, "a file that it opened"),
    rule(libc::SYS_readv, OWN, Allow, "a file that it opened"),
    rule(libc::SYS_pread64, OWN, Allow, "a file that it opened"),
    rule(libc::SYS_preadv, OWN, Allow, "a file that it opened"),
    rule(libc::SYS_write, OWN, Allow, "a file that it opened"),
    rule(libc::SYS_writev, OWN, Allow, "a file that it opened"),
    rule(libc::SYS_pwrite64, OWN, Allow, "a file that it opened"),
    rule(libc::SYS_pwritev, OWN, Allow, "a file that it opened"),
    rule(libc::SYS_lseek, OWN, Allow, "a file that it opened"),
    rule(libc::SYS_ftruncate, OWN, Allow, "a file that it opened"),
    rule(libc::SYS_fsync, OWN, Allow, "a file that it opened"),
    rule(libc::SYS_fdatasync, OWN, Allow, "a file that it opened"),
    rule(libc::SYS_getdents64, OWN, Allow, "a directory that it opened"),
    rule(libc::SYS_fadvise64, OWN, Allow, "a hint about a file that it opened"),
    rule(
        libc::SYS_fcntl,
        &[own_descriptor(0), is(1, F_SETFL as u64)],
        Allow,
        "appending to a file that it opened",
    ),
    rule(libc::SYS_mmap, &[NOT_EXECUTABLE, PRIVATE_FILE, own_descriptor(4)], Allow, "a file that it opened"),
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
