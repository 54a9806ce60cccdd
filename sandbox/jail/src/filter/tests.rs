//! The compiled filter against the tables: an interpreter of classic BPF evaluates it for every
//! number, and for arguments made from every condition, right and changed.

use super::*;
use crate::policy::{Group, Step};

const NOTIFY: u32 = libc::SECCOMP_RET_USER_NOTIF;
const GIVEN: Given = Given {
    first_free_descriptor: 6,
    last_region_descriptor: 5,
    region_data_offset: 0x1_0000_2000,
    program_descriptor: 6,
    own_process: 1,
};

/// Runs a filter as the kernel does.
fn interpret(filter: &[libc::sock_filter], arch: u32, number: u32, args: &[u64; 6]) -> u32 {
    interpret_counting(filter, arch, number, args).0
}

/// The answer, and the instructions that it took.
fn interpret_counting(
    filter: &[libc::sock_filter],
    arch: u32,
    number: u32,
    args: &[u64; 6],
) -> (u32, usize) {
    let mut data = [0_u32; 16];
    data[0] = number;
    data[1] = arch;
    for (index, argument) in args.iter().enumerate() {
        data[4 + 2 * index] = *argument as u32;
        data[5 + 2 * index] = (*argument >> 32) as u32;
    }
    let (mut accumulator, mut at, mut count) = (0_u32, 0, 0);
    loop {
        count += 1;
        let one = filter[at];
        at += 1;
        let jump = |holds: bool| usize::from(if holds { one.jt } else { one.jf });
        match u32::from(one.code) {
            code if code == u32::from(LOAD) => accumulator = data[one.k as usize / 4],
            code if code == u32::from(RETURN) => return (one.k, count),
            code if code == libc::BPF_ALU | libc::BPF_AND | libc::BPF_K => accumulator &= one.k,
            code if code == u32::from(JUMP) => at += one.k as usize,
            code if code == u32::from(JUMP_EQUAL) => at += jump(accumulator == one.k),
            code if code == u32::from(JUMP_AT_LEAST) => at += jump(accumulator >= one.k),
            code if code == libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K => {
                at += jump(accumulator > one.k)
            }
            code => panic!("an instruction that nobody makes: {code:#x}"),
        }
    }
}

/// What the kernel must answer, by the tables: alone only where both steps agree and nothing is
/// counted.
fn expected(policy: Policy, number: i64, args: &[u64; 6]) -> u32 {
    let of = |step| policy.rule(&GIVEN, step, number, args);
    match (of(Step::Loader), of(Step::Final)) {
        (Some(first), Some(last)) if first == last => match first.action {
            Action::Allow => libc::SECCOMP_RET_ALLOW,
            Action::Errno(errno) => libc::SECCOMP_RET_ERRNO | errno as u32,
            Action::Ask(_) => NOTIFY,
        },
        _ => NOTIFY,
    }
}

fn policies() -> impl Iterator<Item = Policy> {
    (0..1_u32 << Group::ALL.len()).map(|groups| {
        let of = |(index, group): (usize, Group)| (groups >> index & 1 == 1).then_some(group);
        let nothing = Group::ALL.into_iter().fold(Policy::default(), Policy::without);
        Group::ALL.into_iter().enumerate().filter_map(of).fold(nothing, Policy::with)
    })
}

/// For every system-call number, the compiled filter gives the answer of the policy.
///
/// Guarantee: sandbox/system-calls
#[test]
fn filter_matches_policy_for_every_call_number() {
    for policy in policies() {
        let filter = compile(policy, &GIVEN).unwrap();
        for number in 0..1024 {
            for argument in [0, 1, u64::from(u32::MAX), u64::MAX] {
                let args = [argument; 6];
                let found = interpret(&filter, ARCH_X86_64, number, &args);
                assert_eq!(
                    found,
                    expected(policy, number.into(), &args),
                    "{number} {args:x?} {policy:?}"
                );
            }
        }
    }
}

/// System calls of x32 and of other architectures always notify the supervisor.
///
/// Guarantee: sandbox/system-calls
#[test]
fn foreign_abi_calls_always_notify() {
    for policy in [Policy::default(), Policy::open()] {
        let filter = compile(policy, &GIVEN).unwrap();
        for number in 0..1024 {
            assert_eq!(interpret(&filter, ARCH_X86_64, X32 | number, &[0; 6]), NOTIFY);
            assert_eq!(interpret(&filter, ARCH_I386, number, &[0; 6]), NOTIFY);
            assert_eq!(interpret(&filter, 0, number, &[0; 6]), NOTIFY);
        }
        assert_eq!(interpret(&filter, ARCH_X86_64, u32::MAX, &[0; 6]), NOTIFY);
    }
}

/// For every condition on arguments, the compiled filter gives the answer of the policy.
///
/// Guarantee: sandbox/system-calls
#[test]
fn filter_matches_policy_for_every_condition() {
    let mut tried = 0;
    for policy in policies() {
        let filter = compile(policy, &GIVEN).unwrap();
        for rule in policy.rules() {
            let mut args = [0; 6];
            for condition in rule.conditions {
                args[usize::from(condition.argument)] |= condition.operand.value(&GIVEN);
            }
            let number = u32::try_from(rule.syscall).unwrap();
            let mut compare = |args: &[u64; 6]| {
                let found = interpret(&filter, ARCH_X86_64, number, args);
                assert_eq!(
                    found,
                    expected(policy, rule.syscall, args),
                    "{rule:?} {args:x?} {policy:?}"
                );
                tried += 1;
            };
            compare(&args);
            for condition in rule.conditions {
                let index = usize::from(condition.argument);
                for bit in 0..64 {
                    let mut changed = args;
                    changed[index] ^= 1 << bit;
                    compare(&changed);
                }
                for step in [1, u64::MAX, 0x1_0000_0000] {
                    let mut changed = args;
                    changed[index] = changed[index].wrapping_add(step);
                    compare(&changed);
                }
            }
        }
    }
    assert!(tried > 10_000);
}

/// Calls allowed with any arguments are found in few steps of the filter.
#[test]
fn unconditional_calls_take_few_filter_steps() {
    let whole = Group::ALL.into_iter().fold(Policy::default(), Policy::with);
    for policy in [Policy::default(), whole] {
        let filter = compile(policy, &GIVEN).unwrap();
        // The kernel takes 4,096; a policy may grow by some.
        assert!(filter.len() < 3000, "{}", filter.len());
        for rule in policy.rules().filter(|rule| rule.conditions.is_empty()) {
            let is_first = policy.rules().find(|other| other.syscall == rule.syscall) == Some(rule);
            let number = u32::try_from(rule.syscall).unwrap();
            let (_, steps) = interpret_counting(&filter, ARCH_X86_64, number, &[0; 6]);
            assert!(!is_first || steps <= 32, "{steps} for {rule:?}");
        }
    }
}

/// No jump of a filter leads past its end, even if the last rule has conditions.
#[test]
fn filter_jumps_stay_within_the_program() {
    for policy in policies() {
        let filter = compile(policy, &GIVEN).unwrap();
        for (at, one) in filter.iter().enumerate() {
            let jumps = match u32::from(one.code) & 7 {
                _ if one.code == JUMP => one.k as usize,
                libc::BPF_JMP => usize::from(one.jt.max(one.jf)),
                _ => continue,
            };
            assert!(at + 1 + jumps < filter.len(), "{at} of {}: {policy:?}", filter.len());
        }
    }
}
