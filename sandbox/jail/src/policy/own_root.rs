//! Questions about paths, for a program that has a root of its own: there is nothing in it but the
//! loader's files and what was granted. Elsewhere these calls would tell which files the machine
//! has, because Landlock does not hide that, so they end with the loading there.

#![forbid(unsafe_code)]

use super::rule::Action::Allow;
use super::rule::{Rule, own_descriptor, plain, rule};

const REASON: &str = "tells of the loader's files and of what was granted";
const WITHIN: &str =
    "a directory of its own root; paths are looked up within that, wherever they begin";

pub(super) const RULES: &[Rule] = &[
    plain(libc::SYS_newfstatat, Allow, REASON),
    plain(libc::SYS_stat, Allow, REASON),
    plain(libc::SYS_lstat, Allow, REASON),
    plain(libc::SYS_statx, Allow, REASON),
    plain(libc::SYS_readlink, Allow, REASON),
    plain(libc::SYS_readlinkat, Allow, REASON),
    plain(libc::SYS_access, Allow, REASON),
    plain(libc::SYS_faccessat, Allow, REASON),
    plain(libc::SYS_faccessat2, Allow, REASON),
    plain(libc::SYS_chdir, Allow, WITHIN),
    rule(libc::SYS_fchdir, &[own_descriptor(0)], Allow, WITHIN),
    plain(libc::SYS_getcwd, Allow, WITHIN),
];
