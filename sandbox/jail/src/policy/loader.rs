//! The calls of the dynamic loader and the C library before the program's own work, which end with
//! it.
//!
//! Paths are not looked at: the program's own root and Landlock decide on those. What remains of
//! these calls once the jail is sealed is an error that the C library's streams live with.

#![forbid(unsafe_code)]

use libc::{ENOENT, ENOSYS, O_ACCMODE, O_APPEND, O_CREAT, O_TRUNC, PROT_EXEC, PROT_WRITE};

use super::rule::Action::{Allow, Ask, Errno};
use super::rule::{
    Comparison, Condition, Operand, PRIVATE_FILE, Question, Rule, RulePhase, SHARED_FILE, Width,
    bits, during, is, own_descriptor, plain, rule,
};

/// The bit that `O_TMPFILE` has besides `O_DIRECTORY`.
const TMPFILE: u64 = 0o20_000_000;
const FOR_READING: Condition =
    bits(2, (O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND) as u64 | TMPFILE, 0);
const EXECUTABLE_NOT_WRITABLE: Condition =
    bits(2, (PROT_EXEC | PROT_WRITE) as u64, PROT_EXEC as u64);
const NOT_WRITABLE: Condition = bits(2, (PROT_EXEC | PROT_WRITE) as u64, 0);
const OWN_PROGRAM: Condition = Condition {
    argument: 0,
    width: Width::Word,
    comparison: Comparison::Equal { mask: u64::MAX },
    operand: Operand::ProgramDescriptor,
};

pub(super) const RULES: &[Rule] = &[
    rule(
        libc::SYS_execveat,
        &[OWN_PROGRAM, is(4, libc::AT_EMPTY_PATH as u64)],
        Ask(Question::Program),
        "the start of the program itself, once, by the host",
    ),
    during(
        RulePhase::Loader,
        libc::SYS_openat,
        &[FOR_READING],
        Allow,
        "shared libraries and their cache, to read",
    ),
    during(
        RulePhase::Loader,
        libc::SYS_open,
        &[bits(1, (O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND) as u64 | TMPFILE, 0)],
        Allow,
        "shared libraries, to read; musl says open",
    ),
    during(
        RulePhase::Loader,
        libc::SYS_mmap,
        &[NOT_WRITABLE, SHARED_FILE, own_descriptor(4)],
        Allow,
        "the C library's caches, to read",
    ),
    during(
        RulePhase::Loader,
        libc::SYS_mmap,
        &[EXECUTABLE_NOT_WRITABLE, PRIVATE_FILE, own_descriptor(4)],
        Allow,
        "code of shared libraries, never of what it was given",
    ),
    during(
        RulePhase::Loader,
        libc::SYS_mprotect,
        &[EXECUTABLE_NOT_WRITABLE],
        Allow,
        "code that had to be relocated",
    ),
    during(RulePhase::Loader, libc::SYS_newfstatat, &[], Allow, "which library is which"),
    during(RulePhase::Loader, libc::SYS_stat, &[], Allow, "which library is which"),
    during(RulePhase::Loader, libc::SYS_lstat, &[], Allow, "which library is which"),
    during(RulePhase::Loader, libc::SYS_statx, &[], Allow, "which library is which"),
    during(
        RulePhase::Loader,
        libc::SYS_readlink,
        &[],
        Allow,
        "where the program is; libraries may be beside it",
    ),
    during(
        RulePhase::Loader,
        libc::SYS_readlinkat,
        &[],
        Allow,
        "where the program is; libraries may be beside it",
    ),
    during(
        RulePhase::Final,
        libc::SYS_newfstatat,
        &[],
        Errno(ENOSYS),
        "the C library's streams ask for a block size",
    ),
    during(
        RulePhase::Final,
        libc::SYS_statx,
        &[],
        Errno(ENOSYS),
        "the C library's streams ask for a block size",
    ),
    plain(
        libc::SYS_access,
        Errno(ENOENT),
        "the loader looks for /etc/ld.so.preload; there is none",
    ),
    plain(libc::SYS_faccessat, Errno(ENOENT), "as access"),
    plain(libc::SYS_faccessat2, Errno(ENOENT), "as access"),
];
