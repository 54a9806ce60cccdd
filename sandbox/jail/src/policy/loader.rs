//! The calls of the dynamic loader and the C library before the program's own work, which end with
//! it.
//!
//! Paths are not looked at: the program's own root and Landlock decide on those. What remains of
//! these calls once the jail is sealed is an error that the C library's streams live with.

#![forbid(unsafe_code)]

use libc::{ENOENT, ENOSYS, O_ACCMODE, O_APPEND, O_CREAT, O_TRUNC, PROT_EXEC, PROT_WRITE};

use super::rule::Action::{Allow, Ask, Errno};
use super::rule::{
    Comparison, Condition, NOT_EXECUTABLE, Operand, PRIVATE_FILE, Question, Rule, RulePhase,
    SHARED_FILE, Width, at_most, bits, during, is, is_double, own_descriptor, plain, rule,
};

/// The bit that `O_TMPFILE` has besides `O_DIRECTORY`.
const TMPFILE: u64 = 0o20_000_000;
/// The rights that a new key takes from the thread that makes it.
const DISABLE_ACCESS_AND_STORES: u64 = 3;
/// Keys are 1 to 15; key 0 is that of all memory.
const LAST_KEY: u64 = 15;
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
    during(
        RulePhase::Loader,
        libc::SYS_pkey_alloc,
        &[is_double(0, 0), at_most(1, DISABLE_ACCESS_AND_STORES)],
        Allow,
        "keys for its compartments; afterwards there are none to be had",
    ),
    during(
        RulePhase::Loader,
        libc::SYS_pkey_mprotect,
        &[NOT_EXECUTABLE, at_most(3, LAST_KEY)],
        Allow,
        "its compartments under keys, as mprotect of its own memory",
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
