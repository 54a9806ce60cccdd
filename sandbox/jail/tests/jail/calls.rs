//! Every system call (X1) and every condition of the policy (X2), made by a real program: its end
//! is what the table of rules says. The compiled filter is compared with the table, exhaustively,
//! in `sandbox/jail/src/filter/tests.rs`.

use std::time::Duration;

use holdfast_jail::policy::{Action, Comparison, Given, Group, Question, RulePhase, Width};
use holdfast_jail::{End, JailLimits, LimitHit, Policy, Step};

use crate::victims::{end, jail};

/// What stands for operands in a jail without descriptors.
const GIVEN: Given = Given {
    first_free_descriptor: 3,
    last_region_descriptor: 3,
    region_data_offset: 0,
    program_descriptor: 3,
    own_process: Given::UNKNOWN_PROCESS,
};
/// One more than the last number that is tried.
const NUMBERS: i64 = 512;
const X32: i64 = 0x4000_0000;
/// `uretprobe` and `uprobe`: since Linux 6.14 and 6.18 no filter sees them. The kernel takes them
/// from code that it put into the program itself only; from anybody else they are refused or
/// deadly.
const UNFILTERED: [i64; 2] = [335, 336];

/// The policy that these programs run under, by the layers that they have: no root of their own.
fn policy() -> Policy {
    Policy::default().with(Group::SharedMemory)
}

fn run(words: &[&str]) -> End {
    // Some of what is allowed waits.
    let limits = JailLimits { wall_time: Some(Duration::from_secs(2)), ..JailLimits::default() };
    // The quicker layers suffice: this is about the filter.
    let layers = holdfast_jail::Layers::none();
    end(jail(words).policy(policy()).layers(layers).limits(limits))
}

/// Makes a call, and compares the end with the table.
fn check(number: i64, args: [u64; 6]) {
    check_under(policy(), number, args, run);
}

/// The same under a policy, with what runs a program so.
pub(crate) fn check_under(
    policy: Policy,
    number: i64,
    args: [u64; 6],
    run: impl Fn(&[&str]) -> End,
) {
    let text: Vec<String> =
        std::iter::once(number as u64).chain(args).map(|value| format!("{value:#x}")).collect();
    let words: Vec<&str> = std::iter::once("call").chain(text.iter().map(String::as_str)).collect();
    let found = run(&words);
    let rule = policy.rule(&GIVEN, Step::Loader, number, &args);
    let what = || format!("{} {words:?} by {rule:?}: {found}", holdfast_jail::policy::name(number));
    let is_harmless =
        matches!(&found, End::Signal { signal: libc::SIGILL, .. } | End::Exited { status: 106 });
    if UNFILTERED.contains(&number) && is_harmless {
        return;
    }
    match rule.map(|rule| rule.action) {
        None | Some(Action::Ask(Question::Program)) => {
            let End::Violation(violation) = &found else { panic!("{}", what()) };
            assert_eq!(
                (violation.syscall, violation.args, violation.arch),
                (number, args, "x86-64"),
                "{}",
                what()
            );
            assert_eq!(violation.step, Step::Loader);
        }
        Some(Action::Errno(errno)) => {
            assert_eq!(found, End::Exited { status: 100 + errno }, "{}", what())
        }
        Some(Action::Ask(Question::Null | Question::Network)) => {
            assert_eq!(found, End::Exited { status: 100 + libc::EACCES }, "{}", what());
        }
        Some(Action::Ask(Question::Abort)) => {
            assert_eq!(found, End::Signal { signal: libc::SIGABRT, name: "SIGABRT" }, "{}", what());
        }
        // It may fail, wait, crash or end the program: what matters is that it was let through.
        Some(Action::Allow | Action::Ask(Question::Thread)) => {
            assert!(!matches!(found, End::Violation(_) | End::Killed(_)), "{}", what());
        }
    }
}

/// Tries all, on several threads.
fn for_all<T: Copy + Send + Sync>(cases: &[T], check: impl Fn(T) + Send + Sync) {
    let check = &check;
    std::thread::scope(|scope| {
        for part in cases.chunks(cases.len().div_ceil(8).max(1)) {
            scope.spawn(move || part.iter().copied().for_each(check));
        }
    });
}

/// Every system call of a real program has the outcome that the policy gives.
///
/// Guarantee: sandbox/system-calls
/// Guarantee: sandbox/forbidden-calls
#[test]
fn every_real_call_ends_as_the_policy_says() {
    let numbers: Vec<i64> = (0..NUMBERS).collect();
    for_all(&numbers, |number| check(number, [0; 6]));
}

/// System calls of x32 and i386 are violations, whatever their numbers.
///
/// Guarantee: sandbox/system-calls
#[test]
fn x32_and_i386_calls_are_violations() {
    // read, write, brk and exit_group among them, which x86-64 may make.
    let numbers: Vec<i64> = [0, 1, 12, 231].into_iter().chain((0..NUMBERS).step_by(37)).collect();
    for_all(&numbers, |number| {
        let of_x32 = run(&["call", &(X32 + number).to_string()]);
        let End::Violation(violation) = of_x32 else { panic!("x32 {number}: {of_x32}") };
        assert_eq!((violation.arch, violation.syscall), ("x32", X32 + number));
        let of_i386 = run(&["int 0x80", &number.to_string()]);
        let End::Violation(violation) = of_i386 else { panic!("i386 {number}: {of_i386}") };
        assert_eq!((violation.arch, violation.syscall), ("i386", number));
    });
}

/// Every condition of every rule is enforced on a real program.
///
/// Guarantee: sandbox/system-calls
#[test]
fn rule_conditions_hold_on_a_real_program() {
    let mut cases = Vec::new();
    for group in Group::ALL.into_iter().filter(|group| policy().has(*group)) {
        for rule in group.rules().iter().filter(|rule| !rule.conditions.is_empty()) {
            let mut args = [0; 6];
            for condition in rule.conditions {
                let value = condition.operand.value(&GIVEN);
                args[usize::from(condition.argument)] |= value;
            }
            cases.push((rule.syscall, args));
            for condition in rule.conditions {
                let bit = match condition.comparison {
                    Comparison::Equal { mask } => 1 << mask.trailing_zeros(),
                    Comparison::AtLeast | Comparison::AtMost => 1 << 20,
                };
                let mut changed = args;
                changed[usize::from(condition.argument)] ^= bit;
                cases.push((rule.syscall, changed));
                if condition.width == Width::Double {
                    let mut changed = args;
                    changed[usize::from(condition.argument)] ^= 1 << 40;
                    cases.push((rule.syscall, changed));
                }
            }
            assert!(rule.when != RulePhase::Final, "what holds while loading is tried here");
        }
    }
    cases.sort_unstable();
    cases.dedup();
    assert!(cases.len() > 100, "{}", cases.len());
    for_all(&cases, |(number, args)| check(number, args));
}

/// Guarantee: sandbox/system-calls
#[test]
fn a_group_of_rules_that_is_left_out_is_forbidden() {
    let run = |words: &[&str], policy: Policy| end(jail(words).policy(policy));
    // The canaries are the same programs under the whole policy.
    for (words, group, call) in
        [(["prints", ""], Group::Output, "write"), (["threads", "1"], Group::Threads, "clone")]
    {
        assert_eq!(run(&words, Policy::default()), End::Exited { status: 0 });
        let found = run(&words, Policy::default().without(group));
        assert!(matches!(&found, End::Violation(violation) if violation.name == call), "{found}");
    }
    let limit = LimitHit::Threads { limit: 1 };
    let limits = JailLimits { threads: 1, ..JailLimits::default() };
    assert_eq!(end(jail(&["threads", "1"]).limits(limits)), End::Limit(limit));
}
