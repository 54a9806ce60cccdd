//! The end of a jailed program, and what it used.

#![forbid(unsafe_code)]

use std::fmt;
use std::time::Duration;

use crate::policy::Step;
use holdfast_sys::counted::counted;

/// How a jailed program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// It ended by itself.
    Exited {
        /// Its exit status, 0 to 255.
        status: i32,
    },
    /// A signal ended it: it crashed.
    Signal {
        /// The signal's number.
        signal: i32,
        /// The signal's name, such as `SIGSEGV`.
        name: &'static str,
    },
    /// It made a system call that its policy forbids. The call was not carried out.
    Violation(Violation),
    /// It used up what it was given.
    Limit(LimitHit),
    /// The host ended it.
    Killed(KillReason),
    /// It is gone, and other code in this process took its exit status (`waitpid(-1)`, or
    /// ignored `SIGCHLD`).
    Unknown,
}

/// A system call that the policy forbids.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The number, as the program gave it.
    pub syscall: i64,
    /// The call's name, or `unknown`.
    pub name: String,
    /// The arguments, as the program gave them; none was followed as a pointer.
    pub args: [u64; 6],
    /// The instruction after the call.
    pub instruction_pointer: u64,
    /// `x86-64`, `x32` or `i386`.
    pub arch: &'static str,
    /// How far the program was.
    pub step: Step,
    /// What is forbidden about it.
    pub reason: &'static str,
}

/// A limit that was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitHit {
    /// [`cpu_time`](crate::JailLimits::cpu_time).
    CpuTime {
        /// What was allowed.
        limit: Duration,
    },
    /// [`wall_time`](crate::JailLimits::wall_time).
    WallTime {
        /// What was allowed.
        limit: Duration,
    },
    /// [`threads`](crate::JailLimits::threads).
    Threads {
        /// What was allowed.
        limit: u32,
    },
    /// [`address_space_bytes`](crate::JailLimits::address_space_bytes), or the
    /// [`private_bytes`](crate::JailLimits::private_bytes) among them: it ended by `abort` or by a
    /// crash when less than an eighth of its address space was left.
    AddressSpace {
        /// What was allowed.
        limit_bytes: u64,
    },
    /// [`memory_bytes`](crate::JailLimits::memory_bytes).
    Memory {
        /// What was allowed.
        limit_bytes: u64,
    },
    /// [`file_size_bytes`](crate::JailLimits::file_size_bytes).
    FileSize {
        /// What was allowed.
        limit_bytes: u64,
    },
    /// [`output_bytes`](crate::JailLimits::output_bytes).
    Output {
        /// What was allowed.
        limit_bytes: u64,
    },
    /// [`questions`](crate::JailLimits::questions).
    Questions {
        /// What was allowed.
        limit: u64,
    },
}

/// Why the host ended a program.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KillReason {
    /// A call took longer than it was allowed to.
    Deadline {
        /// What was allowed.
        limit: Duration,
    },
    /// The caller wants no answer any more.
    Cancelled,
    /// The handle was dropped.
    Dropped,
    /// The program broke the protocol of its channel.
    Protocol {
        /// What was wrong.
        what: String,
    },
    /// The host has nothing more for it to do.
    Finished,
    /// Something else, in the host's words.
    Other {
        /// The host's words.
        what: String,
    },
}

/// What a program used; final once it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Usage {
    /// CPU time of all its threads.
    pub cpu_time: Duration,
    /// The most memory that it had at once, shared mappings included: bytes. Once it has ended, no
    /// less than this process had when it started it: the kernel counts that in.
    pub peak_memory_bytes: u64,
    /// Time since the start.
    pub wall_time: Duration,
}

impl fmt::Display for End {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Exited { status } => write!(formatter, "it ended with status {status}"),
            End::Signal { signal, name } => {
                write!(formatter, "it crashed: {name} (signal {signal})")
            }
            End::Violation(violation) => write!(formatter, "{violation}"),
            End::Limit(hit) => write!(formatter, "{hit}"),
            End::Killed(reason) => write!(formatter, "it was ended: {reason}"),
            End::Unknown => write!(
                formatter,
                "it is gone; its exit status was taken by another wait in this process (do not wait for all \
                 children, do not ignore SIGCHLD)"
            ),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "forbidden system call {} (number {}, {})(",
            self.name, self.syscall, self.arch
        )?;
        for (index, argument) in self.args.iter().enumerate() {
            write!(formatter, "{}{argument:#x}", if index == 0 { "" } else { ", " })?;
        }
        let Violation { instruction_pointer, step, reason, .. } = self;
        write!(formatter, ") at {instruction_pointer:#x}")?;
        // A program that is never sealed is in its first step to its end, so that one says nothing.
        if *step == Step::Final {
            write!(formatter, ", {step}")?;
        }
        write!(formatter, ": {reason}")
    }
}

impl fmt::Display for LimitHit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimitHit::CpuTime { limit } => write!(
                formatter,
                "it used up its CPU time of {limit:?}; raise the limit (cpu_time) if it needs more"
            ),
            LimitHit::WallTime { limit } => write!(
                formatter,
                "it ran longer than its {limit:?}; raise the limit (timeout) if it needs longer"
            ),
            LimitHit::Threads { limit } => write!(
                formatter,
                "it wanted more than its {}; raise the limit (threads) if it needs more",
                counted(*limit, "thread")
            ),
            LimitHit::AddressSpace { limit_bytes } => {
                write!(
                    formatter,
                    "it used up its address space of {limit_bytes} bytes; raise the limit (memory) if it needs more"
                )
            }
            LimitHit::Memory { limit_bytes } => {
                write!(formatter, "it used up its memory of {limit_bytes} bytes")
            }
            LimitHit::FileSize { limit_bytes } => {
                write!(formatter, "it wanted a file of more than its {limit_bytes} bytes")
            }
            LimitHit::Output { limit_bytes } => {
                write!(formatter, "it wrote more than its {limit_bytes} bytes of output")
            }
            LimitHit::Questions { limit } => {
                write!(
                    formatter,
                    "it made more than {limit} system calls that have to be decided on"
                )
            }
        }
    }
}

impl fmt::Display for KillReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KillReason::Deadline { limit } => {
                write!(formatter, "the call took longer than {limit:?}")
            }
            KillReason::Cancelled => formatter.write_str("the call was cancelled"),
            KillReason::Dropped => formatter.write_str("its handle was dropped"),
            KillReason::Protocol { what } => write!(formatter, "it broke the protocol: {what}"),
            KillReason::Finished => formatter.write_str("there was nothing more for it to do"),
            KillReason::Other { what } => formatter.write_str(what),
        }
    }
}

/// The name of a signal.
#[must_use]
pub fn signal_name(signal: i32) -> &'static str {
    const NAMES: [&str; 32] = [
        "none",
        "SIGHUP",
        "SIGINT",
        "SIGQUIT",
        "SIGILL",
        "SIGTRAP",
        "SIGABRT",
        "SIGBUS",
        "SIGFPE",
        "SIGKILL",
        "SIGUSR1",
        "SIGSEGV",
        "SIGUSR2",
        "SIGPIPE",
        "SIGALRM",
        "SIGTERM",
        "SIGSTKFLT",
        "SIGCHLD",
        "SIGCONT",
        "SIGSTOP",
        "SIGTSTP",
        "SIGTTIN",
        "SIGTTOU",
        "SIGURG",
        "SIGXCPU",
        "SIGXFSZ",
        "SIGVTALRM",
        "SIGPROF",
        "SIGWINCH",
        "SIGIO",
        "SIGPWR",
        "SIGSYS",
    ];
    usize::try_from(signal)
        .ok()
        .and_then(|signal| NAMES.get(signal).copied())
        .unwrap_or("a real-time signal")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_the_names_of_the_manual() {
        assert_eq!(signal_name(libc::SIGSYS), "SIGSYS");
        assert_eq!(signal_name(libc::SIGSEGV), "SIGSEGV");
        assert_eq!(signal_name(-1), "a real-time signal");
    }

    #[test]
    fn a_violation_reads_as_a_call() {
        let violation = Violation {
            syscall: 57,
            name: "fork".to_owned(),
            args: [1, 2, 3, 4, 5, 6],
            instruction_pointer: 0x1000,
            arch: "x86-64",
            step: Step::Final,
            reason: "not in the policy",
        };
        let text = violation.to_string();
        assert!(
            text.contains("fork (number 57, x86-64)(0x1, 0x2, 0x3, 0x4, 0x5, 0x6) at 0x1000"),
            "{text}"
        );
        assert!(text.ends_with(", sealed: not in the policy"), "{text}");
        // Of a program that is never sealed it is not said that it was loading.
        let text = Violation { step: Step::Loader, ..violation }.to_string();
        assert!(text.ends_with(" at 0x1000: not in the policy"), "{text}");
    }
}
