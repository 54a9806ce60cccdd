//! A policy compiled for the kernel: a seccomp filter in classic BPF.
//!
//! What the kernel decides alone: rules that hold in every step and need no count. For everything
//! else, and for what no rule covers, it notifies the supervisor, which applies [`crate::policy`]
//! itself; so a violation is seen with its arguments, and is never carried out.
//!
//! Conditions are compiled by `seccompiler`. The rest is put together here, because that library
//! has one action for all its rules and knows no notifications (see
//! `docs/adr/0011-one-filter-and-a-supervisor.md`).
//!
//! Invariant: calls of other architectures, and x32's numbers, always notify.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule, sock_filter};

use crate::policy::{
    Action, Comparison, Condition, Given, Policy, Question, Rule, RulePhase, Width,
};

/// `AUDIT_ARCH_X86_64`.
pub(crate) const ARCH_X86_64: u32 = 0xc000_003e;
/// `AUDIT_ARCH_I386`: `int 0x80`.
pub(crate) const ARCH_I386: u32 = 0x4000_0003;
/// Numbers with this bit are x32's.
pub(crate) const X32: u32 = 0x4000_0000;

const NUMBER_OFFSET: u32 = 0;
const ARCH_OFFSET: u32 = 4;
const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JUMP_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const INSTRUCTIONS_MAX: usize = 4096;

fn statement(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

fn branch(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// A filter and what it was compiled from.
type Kept = (Policy, Given, Vec<libc::sock_filter>);

/// Programs of one host mostly have the same policy: the last few filters are kept.
const KEPT_MAX: usize = 8;

/// The filter of a policy; `None` when it is too long for the kernel, or a condition cannot be
/// expressed.
pub(crate) fn of(policy: Policy, given: &Given) -> Option<Vec<libc::sock_filter>> {
    static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, _, filter)) = kept.iter().find(|kept| (kept.0, &kept.1) == (policy, given)) {
        return Some(filter.clone());
    }
    let filter = compile(policy, given)?;
    kept.truncate(KEPT_MAX - 1);
    kept.insert(0, (policy, *given, filter.clone()));
    Some(filter)
}

/// Compiles a policy; `None` when it is too long for the kernel, or a condition cannot be
/// expressed.
fn compile(policy: Policy, given: &Given) -> Option<Vec<libc::sock_filter>> {
    let mut calls: BTreeMap<u32, Vec<&'static Rule>> = BTreeMap::new();
    for rule in policy.rules() {
        calls.entry(u32::try_from(rule.syscall).ok()?).or_default().push(rule);
    }
    let otherwise =
        if policy.is_open() { libc::SECCOMP_RET_ALLOW } else { libc::SECCOMP_RET_USER_NOTIF };
    let mut leaves = Vec::new();
    for (number, rules) in calls {
        leaves.push((number, leaf(number, &rules, given, otherwise, policy.is_open())?));
    }
    let mut program = vec![
        statement(LOAD, ARCH_OFFSET),
        branch(JUMP_EQUAL, ARCH_X86_64, 1, 0),
        statement(RETURN, libc::SECCOMP_RET_USER_NOTIF),
        statement(LOAD, NUMBER_OFFSET),
        branch(JUMP_AT_LEAST, X32, 0, 1),
        statement(RETURN, libc::SECCOMP_RET_USER_NOTIF),
    ];
    program.extend(tree(&leaves, otherwise)?);
    // Compiled conditions begin with a spare jump to one instruction past what follows them, which
    // the kernel checks though nothing gets to it: when they are the last ones, it needs somewhere
    // to go.
    program.push(statement(RETURN, otherwise));
    if program.len() >= INSTRUCTIONS_MAX {
        return None;
    }
    let kernel =
        |one: sock_filter| libc::sock_filter { code: one.code, jt: one.jt, jf: one.jf, k: one.k };
    Some(program.into_iter().map(kernel).collect())
}

/// Finds the call's rules by halving.
fn tree(leaves: &[(u32, Vec<sock_filter>)], otherwise: u32) -> Option<Vec<sock_filter>> {
    if let [(_, only)] = leaves {
        return Some(only.clone());
    }
    let (low, high) = leaves.split_at(leaves.len() / 2);
    let Some((middle, _)) = high.first() else { return Some(vec![statement(RETURN, otherwise)]) };
    let (low, high) = (tree(low, otherwise)?, tree(high, otherwise)?);
    let over_low = u32::try_from(low.len()).ok()?;
    let mut program = vec![branch(JUMP_AT_LEAST, *middle, 0, 1), statement(JUMP, over_low)];
    program.extend(low);
    program.extend(high);
    Some(program)
}

/// What happens to one call: its rules in order, then the default.
fn leaf(
    number: u32,
    rules: &[&Rule],
    given: &Given,
    otherwise: u32,
    open: bool,
) -> Option<Vec<sock_filter>> {
    let mut program = vec![branch(JUMP_EQUAL, number, 1, 0), statement(RETURN, otherwise)];
    for rule in rules.iter().filter(|rule| !open || is_kept_in_an_open_policy(rule.action)) {
        let action = match (rule.action, rule.when) {
            (Action::Allow, RulePhase::Both) => libc::SECCOMP_RET_ALLOW,
            (Action::Errno(errno), RulePhase::Both) => {
                libc::SECCOMP_RET_ERRNO | (u32::try_from(errno).ok()? & libc::SECCOMP_RET_DATA)
            }
            _ => libc::SECCOMP_RET_USER_NOTIF,
        };
        if !rule.conditions.is_empty() {
            let conditions: Option<Vec<_>> =
                rule.conditions.iter().map(|condition| compiled(condition, given)).collect();
            // On the first condition that fails, it jumps past the instruction that follows it.
            program.extend(Vec::from(SeccompRule::new(conditions?).ok()?));
        }
        program.push(statement(RETURN, action));
    }
    program.push(statement(RETURN, otherwise));
    Some(program)
}

/// What counts and starts; not what stands in for a refusal.
fn is_kept_in_an_open_policy(action: Action) -> bool {
    matches!(action, Action::Ask(Question::Program | Question::Thread | Question::Abort))
}

fn compiled(condition: &Condition, given: &Given) -> Option<SeccompCondition> {
    let (width, kept) = match condition.width {
        Width::Word => (SeccompCmpArgLen::Dword, u64::from(u32::MAX)),
        Width::Double => (SeccompCmpArgLen::Qword, u64::MAX),
    };
    let value = condition.operand.value(given) & kept;
    let comparison = match condition.comparison {
        Comparison::Equal { mask } if mask & kept == kept => SeccompCmpOp::Eq,
        Comparison::Equal { mask } => SeccompCmpOp::MaskedEq(mask & kept),
        Comparison::AtLeast => SeccompCmpOp::Ge,
        Comparison::AtMost => SeccompCmpOp::Le,
    };
    SeccompCondition::new(condition.argument, width, comparison, value).ok()
}

#[cfg(test)]
mod tests;
