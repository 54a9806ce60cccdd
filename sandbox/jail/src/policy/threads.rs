//! Starting threads: counted by the supervisor. Processes cannot be started at all.

#![forbid(unsafe_code)]

use super::rule::Action::Ask;
use super::rule::{Comparison, Condition, Operand, Question, Rule, Width, rule};

/// What makes a thread a thread: it shares all that threads share.
const THREAD: u64 = (libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM) as u64;
/// What the kernel may store to the program's own memory for it; each library asks for some of
/// these. `DETACHED` has had no meaning since Linux 2.6; musl still sets it.
const OPTIONAL: u64 = (libc::CLONE_SETTLS
    | libc::CLONE_PARENT_SETTID
    | libc::CLONE_CHILD_CLEARTID
    | libc::CLONE_CHILD_SETTID
    | libc::CLONE_DETACHED) as u64;
const MAKES_A_THREAD: Condition = Condition {
    argument: 0,
    width: Width::Double,
    comparison: Comparison::Equal { mask: !OPTIONAL },
    operand: Operand::Value(THREAD),
};

pub(super) const RULES: &[Rule] = &[rule(
    libc::SYS_clone,
    &[MAKES_A_THREAD],
    Ask(Question::Thread),
    "threads of glibc, musl and Go",
)];
