//! A rule: a system call, conditions on its arguments, what happens then, and when; and the short
//! constructors that the tables are written with.

#![forbid(unsafe_code)]

use std::fmt;

/// The phase of a program's run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// From its first instruction until the host seals the jail: the loader may open and map files.
    Loader,
    /// Sealed.
    Final,
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Step::Loader => "while loading",
            Step::Final => "sealed",
        })
    }
}

/// In which steps a rule holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RulePhase {
    /// While loading.
    Loader,
    /// Once sealed.
    Final,
    /// Always.
    Both,
}

impl RulePhase {
    /// Whether the rule holds in a step.
    #[must_use]
    pub fn covers(self, step: Step) -> bool {
        matches!(
            (self, step),
            (RulePhase::Both, _)
                | (RulePhase::Loader, Step::Loader)
                | (RulePhase::Final, Step::Final)
        )
    }
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It is carried out.
    Allow,
    /// It fails with this error number, and the program goes on.
    Errno(i32),
    /// The supervisor decides.
    Ask(Question),
}

/// What the supervisor decides on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Carried out once, by the child that becomes the program; a violation ever after.
    Program,
    /// Carried out while the program has fewer threads than it may have.
    Thread,
    /// `abort()`: the program is ended as if by `SIGABRT`.
    Abort,
    /// A file that no rule lets it open: `EACCES`, but for `/dev/null`, which the host opens for
    /// it.
    Null,
    /// The network: `EACCES`, and the host knows that it was asked for.
    Network,
}

/// Bits of an argument that the kernel looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// The lower half: what the kernel takes as an `int`.
    Word,
    /// All.
    Double,
}

/// How an argument is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// The argument, under a mask, equals the operand.
    Equal {
        /// Bits that count.
        mask: u64,
    },
    /// The argument is the operand or more.
    AtLeast,
    /// The argument is the operand or less.
    AtMost,
}

/// What an argument is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// A number.
    Value(u64),
    /// The lowest descriptor that was not given to the program.
    FirstFreeDescriptor,
    /// The last descriptor of a region's file; the first is 4. Less than that where there is none.
    LastRegionDescriptor,
    /// Where the data of a region begins in its file.
    RegionDataOffset,
    /// The descriptor of the program's file, before it runs.
    ProgramDescriptor,
    /// The program's own number, as it knows it.
    OwnProcess,
}

/// A condition on one argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    /// Which argument, 0 to 5.
    pub argument: u8,
    /// Its width.
    pub width: Width,
    /// How it is compared.
    pub comparison: Comparison,
    /// What it is compared with.
    pub operand: Operand,
}

/// A rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// The system call's number.
    pub syscall: i64,
    /// They must all hold.
    pub conditions: &'static [Condition],
    /// What happens then.
    pub action: Action,
    /// The steps in which it holds.
    pub when: RulePhase,
    /// Why it is so.
    pub reason: &'static str,
}

/// What operands stand for in one jail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given {
    /// See [`Operand::FirstFreeDescriptor`].
    pub first_free_descriptor: u32,
    /// See [`Operand::LastRegionDescriptor`].
    pub last_region_descriptor: u32,
    /// See [`Operand::RegionDataOffset`].
    pub region_data_offset: u64,
    /// See [`Operand::ProgramDescriptor`].
    pub program_descriptor: u32,
    /// See [`Operand::OwnProcess`]; [`Given::UNKNOWN_PROCESS`] where it is not known yet.
    pub own_process: u32,
}

impl Given {
    /// The number of no process: greater than any that there can be, and, taken as an `int`, none
    /// of the numbers that mean a group of processes.
    pub const UNKNOWN_PROCESS: u32 = i32::MAX as u32;
}

impl Operand {
    /// Its value in one jail.
    #[must_use]
    pub fn value(self, given: &Given) -> u64 {
        match self {
            Operand::Value(value) => value,
            Operand::FirstFreeDescriptor => given.first_free_descriptor.into(),
            Operand::LastRegionDescriptor => given.last_region_descriptor.into(),
            Operand::RegionDataOffset => given.region_data_offset,
            Operand::ProgramDescriptor => given.program_descriptor.into(),
            Operand::OwnProcess => given.own_process.into(),
        }
    }
}

impl Condition {
    /// Whether it holds for the arguments of a call.
    #[must_use]
    pub fn holds(&self, given: &Given, args: &[u64; 6]) -> bool {
        let kept = match self.width {
            Width::Word => u64::from(u32::MAX),
            Width::Double => u64::MAX,
        };
        let Some(argument) = args.get(usize::from(self.argument)) else { return false };
        let argument = argument & kept;
        let value = self.operand.value(given) & kept;
        match self.comparison {
            Comparison::Equal { mask } => argument & mask & kept == value & mask,
            Comparison::AtLeast => argument >= value,
            Comparison::AtMost => argument <= value,
        }
    }
}

const ALL_BITS: u64 = u64::MAX;

/// The flags of a mapping that say what kind it is: private or shared, of a file or not, of
/// ordinary pages.
pub(super) const MAP_TYPES: u64 =
    0xf | (libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_GROWSDOWN) as u64;

/// Of `mmap` and `mprotect`: no code.
pub(super) const NOT_EXECUTABLE: Condition = bits(2, libc::PROT_EXEC as u64, 0);
/// Of `mmap`: what is stored there reaches no file.
pub(super) const PRIVATE_FILE: Condition = bits(3, MAP_TYPES, libc::MAP_PRIVATE as u64);
/// Of `mmap`: what is stored there reaches the file.
pub(super) const SHARED_FILE: Condition = bits(3, MAP_TYPES, libc::MAP_SHARED as u64);
/// The same, and what leads to a page is durable before it is stored to.
pub(super) const SYNCHRONOUS_FILE: Condition =
    bits(3, MAP_TYPES | libc::MAP_SYNC as u64, (libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC) as u64);

/// The lower half of an argument equals a number.
pub(super) const fn is(argument: u8, value: u64) -> Condition {
    bits(argument, ALL_BITS, value)
}

/// The lower half of an argument, under a mask, equals a number.
pub(super) const fn bits(argument: u8, mask: u64, value: u64) -> Condition {
    let (width, operand) = (Width::Word, Operand::Value(value));
    Condition { argument, width, comparison: Comparison::Equal { mask }, operand }
}

/// All of an argument equals a number.
pub(super) const fn is_double(argument: u8, value: u64) -> Condition {
    let (width, operand) = (Width::Double, Operand::Value(value));
    Condition { argument, width, comparison: Comparison::Equal { mask: ALL_BITS }, operand }
}

/// The lower half of an argument is at most a number.
pub(super) const fn at_most(argument: u8, value: u64) -> Condition {
    let (width, operand) = (Width::Word, Operand::Value(value));
    Condition { argument, width, comparison: Comparison::AtMost, operand }
}

/// The lower half of an argument is at least a number.
pub(super) const fn at_least(argument: u8, value: u64) -> Condition {
    let (width, operand) = (Width::Word, Operand::Value(value));
    Condition { argument, width, comparison: Comparison::AtLeast, operand }
}

/// An argument is the program's own number.
pub(super) const fn is_itself(argument: u8) -> Condition {
    let (width, operand) = (Width::Word, Operand::OwnProcess);
    Condition { argument, width, comparison: Comparison::Equal { mask: ALL_BITS }, operand }
}

/// An argument is a descriptor that the program opened itself.
pub(super) const fn own_descriptor(argument: u8) -> Condition {
    let operand = Operand::FirstFreeDescriptor;
    Condition { argument, width: Width::Word, comparison: Comparison::AtLeast, operand }
}

/// A rule for a call whatever its arguments, always.
pub(super) const fn plain(syscall: i64, action: Action, reason: &'static str) -> Rule {
    Rule { syscall, conditions: &[], action, when: RulePhase::Both, reason }
}

/// A rule with conditions, always.
pub(super) const fn rule(
    syscall: i64,
    conditions: &'static [Condition],
    action: Action,
    reason: &'static str,
) -> Rule {
    Rule { syscall, conditions, action, when: RulePhase::Both, reason }
}

/// A rule with conditions, in one step.
pub(super) const fn during(
    when: RulePhase,
    syscall: i64,
    conditions: &'static [Condition],
    action: Action,
    reason: &'static str,
) -> Rule {
    Rule { syscall, conditions, action, when, reason }
}
