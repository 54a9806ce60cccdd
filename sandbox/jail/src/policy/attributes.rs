//! Modes, times and lengths of files in granted directories, by their paths too. Added where
//! directories are granted and the program has a root of its own: all else in it, `/dev/null`
//! included, is mounted for reading only, so that the kernel changes nothing there. Where only
//! Landlock confines a program, these calls would reach other files of its user; and so they would
//! through a process file system (`crate::jail::attributes`).
//!
//! Invariant: these rules reach nothing that the host opened. The numbers tell descriptors that were
//! given apart; of standard output and error the program may make copies, and where
//! these rules hold they are pipes.

#![forbid(unsafe_code)]

use libc::ENOSYS;

use super::modes::is_ordinary;
use super::rule::Action::{Allow, Errno};
use super::rule::{Rule, at_most, own_descriptor, plain, rule};

const ORDINARY: &str = "ordinary modes of files in granted directories, as they may be made";
const TIMES: &str = "times of files in granted directories; git, make and tar set them";
const ROOM: &str = "how much room there is; callers look before they write";

pub(super) const RULES: &[Rule] = &[
    // `AT_FDCWD` is a descriptor of the program's own by its number.
    rule(libc::SYS_utimensat, &[own_descriptor(0)], Allow, TIMES),
    rule(
        libc::SYS_utimensat,
        &[at_most(0, 2)],
        Errno(ENOSYS),
        "touch opens its file as standard input, whose file may be the host's, and names it then",
    ),
    rule(libc::SYS_futimesat, &[own_descriptor(0)], Allow, TIMES),
    plain(libc::SYS_utimes, Allow, TIMES),
    plain(libc::SYS_utime, Allow, TIMES),
    plain(libc::SYS_truncate, Allow, "a file in a granted directory"),
    plain(libc::SYS_statfs, Allow, ROOM),
    rule(libc::SYS_fstatfs, &[own_descriptor(0)], Allow, ROOM),
];

pub(super) const MODES: &[Rule] = &[
    rule(libc::SYS_chmod, &[is_ordinary(1)], Allow, ORDINARY),
    rule(libc::SYS_fchmod, &[own_descriptor(0), is_ordinary(1)], Allow, ORDINARY),
    rule(libc::SYS_fchmodat, &[own_descriptor(0), is_ordinary(2)], Allow, ORDINARY),
    rule(libc::SYS_fchmodat2, &[own_descriptor(0), is_ordinary(2)], Allow, ORDINARY),
];
