//! The system calls that a jailed program may make: tables of rules, and their evaluation.
//!
//! A rule is data: a system call, conditions on its arguments, what happens, and when. For a call,
//! the first rule in order whose conditions hold and whose step is the current one decides; a call
//! that no rule covers is a *violation*. [`crate::filter`] compiles the same rules for the kernel,
//! which decides alone wherever the answer depends on neither the step nor a count; everything else
//! reaches the supervisor, which evaluates the rules here.
//!
//! Conditions look at numbers only, never at memory that an argument points to: that could change
//! between look and use.

#![forbid(unsafe_code)]

mod attributes;
mod base;
mod descriptors;
mod directories;
mod loader;
pub mod modes;
mod output;
mod own_root;
mod refusals;
mod rule;
mod threads;

pub(crate) use base::FIRST_REGION;
pub use rule::{
    Action, Comparison, Condition, Given, Operand, Question, Rule, RulePhase, Step, Width,
};
use syscalls::Sysno;

/// Rules that belong together and that can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Group {
    /// Memory, time, signals, synchronisation, and the end: what every program does.
    Base,
    /// What the dynamic loader and the C library do before the program's own work.
    Loader,
    /// Writing to standard output and standard error.
    Output,
    /// Starting threads.
    Threads,
    /// Files in granted directories. Added when a directory is granted.
    Directories,
    /// Questions about paths. Added when the program has a root of its own.
    OwnRoot,
    /// Times and lengths of files in granted directories. Added when a directory is granted to a
    /// program that has a root of its own, without processes in it.
    Attributes,
    /// Modes of files in granted directories. Added with the group before, where no directory has
    /// special bits to lose.
    Modes,
    /// Memory that children would share. Added where no region is lent, whose limit of memory does
    /// not count it.
    SharedMemory,
    /// Descriptors that the program made itself.
    Descriptors,
    /// What is answered by an error rather than by the program's end.
    Refusals,
}

impl Group {
    /// All of them, in the order in which their rules are tried.
    pub const ALL: [Group; 11] = [
        Group::Base,
        Group::Output,
        Group::Threads,
        Group::Directories,
        Group::OwnRoot,
        Group::Attributes,
        Group::Modes,
        Group::SharedMemory,
        Group::Descriptors,
        Group::Loader,
        Group::Refusals,
    ];

    /// Its rules, in order.
    #[must_use]
    pub fn rules(self) -> &'static [Rule] {
        match self {
            Group::Base => base::RULES,
            Group::Loader => loader::RULES,
            Group::Output => output::RULES,
            Group::Threads => threads::RULES,
            Group::Directories => directories::RULES,
            Group::OwnRoot => own_root::RULES,
            Group::Attributes => attributes::RULES,
            Group::Modes => attributes::MODES,
            Group::SharedMemory => base::SHARED,
            Group::Descriptors => descriptors::RULES,
            Group::Refusals => refusals::RULES,
        }
    }

    fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// The rules that a program runs under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    groups: u16,
    open: bool,
}

impl Default for Policy {
    /// Every group but those that are added where they are needed.
    fn default() -> Policy {
        let all = Group::ALL.into_iter().fold(0, |groups, group| groups | group.bit());
        let added = [
            Group::Directories,
            Group::OwnRoot,
            Group::Attributes,
            Group::Modes,
            Group::SharedMemory,
        ];
        added.into_iter().fold(Policy { groups: all, open: false }, Policy::without)
    }
}

impl Policy {
    /// The same with one more group of rules.
    #[must_use]
    pub fn with(self, group: Group) -> Policy {
        Policy { groups: self.groups | group.bit(), ..self }
    }

    /// The same with one less group of rules.
    #[must_use]
    pub fn without(self, group: Group) -> Policy {
        Policy { groups: self.groups & !group.bit(), ..self }
    }

    /// Whether a group is part of it.
    #[must_use]
    pub fn has(self, group: Group) -> bool {
        self.groups & group.bit() != 0
    }

    /// A policy that allows every call of x86-64, for tests of the other layers.
    #[doc(hidden)]
    #[must_use]
    pub fn open() -> Policy {
        Policy { open: true, ..Policy::default() }
    }

    pub(crate) fn is_open(self) -> bool {
        self.open
    }

    /// All its rules, in the order in which they are tried.
    pub fn rules(self) -> impl Iterator<Item = &'static Rule> {
        Group::ALL.into_iter().filter(move |group| self.has(*group)).flat_map(Group::rules)
    }

    /// The first rule that covers a call.
    #[must_use]
    pub fn rule(
        self,
        given: &Given,
        step: Step,
        syscall: i64,
        args: &[u64; 6],
    ) -> Option<&'static Rule> {
        self.rules().find(|rule| {
            rule.syscall == syscall
                && rule.when.covers(step)
                && rule.conditions.iter().all(|condition| condition.holds(given, args))
        })
    }
}

/// The name of a system call of x86-64; `unknown` when there is none.
#[must_use]
pub fn name(syscall: i64) -> &'static str {
    usize::try_from(syscall).ok().and_then(Sysno::new).map_or("unknown", |known| known.name())
}

#[cfg(test)]
mod tests;
