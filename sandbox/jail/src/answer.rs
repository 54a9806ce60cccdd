//! The answer to one notification of a filter: what the policy says of the call, and what is told
//! of one that it forbids.
//!
//! Invariants:
//! - Decisions are made from the numbers in the notification, under the lock of the step that they
//!   are for; only what is the same in every step (how many threads there are, how full the memory
//!   is) is looked at without. Of one question ([`crate::null`]) the host carries the call out
//!   itself, and needs a copy of a path for that.
//! - A violation is never answered: its process is killed while the call waits.

#![forbid(unsafe_code)]

use std::io;
use std::os::fd::AsFd;

use holdfast_crossings::Answer;
use holdfast_sys::seccomp::{self, Notification};

use crate::end::{End, LimitHit, Violation, signal_name};
use crate::filter::{ARCH_I386, ARCH_X86_64, X32};
use crate::inmate::Inmate;
use crate::null;
use crate::policy::{self, Action, Question};
use crate::supervisor::Charge;

/// Receives one notification and decides on it.
pub(crate) fn answer(charge: &Charge) -> io::Result<()> {
    let listener = charge.listener.as_fd();
    let inmate = &charge.inmate;
    // Marked until it is answered.
    let mut question = inmate.crossings.question();
    let asked = seccomp::receive(listener)?;
    // The lock is held until an answer that depends on the step is given: a call is decided on
    // before the jail is sealed, or after.
    let mut book = inmate.book();
    book.questions += 1;
    let step = book.step;
    let number = i64::from(asked.number);
    let is_native = asked.arch == ARCH_X86_64 && asked.number as u32 & X32 == 0;
    let rule = is_native
        .then(|| inmate.policy.rule(&inmate.given, step, number, &asked.arguments))
        .flatten();
    let action = rule.map(|rule| rule.action);
    let limit = inmate.limits.questions;
    if action == Some(Action::Ask(Question::Null)) && book.questions <= limit {
        drop(book);
        // Marked where it is answered.
        return null::answer(charge, &asked);
    }
    question.asks(asked.number, asked.pid);
    question.answered(Answer::Ended);
    if book.questions > limit {
        drop(book);
        inmate.finish(End::Limit(LimitHit::Questions { limit }));
        return Ok(());
    }
    let reason = match action {
        Some(Action::Allow) => {
            question.answered(Answer::Allowed);
            return seccomp::carry_out(listener, asked.id);
        }
        Some(Action::Errno(errno)) => {
            question.answered(Answer::Refused);
            return seccomp::refuse(listener, asked.id, errno);
        }
        Some(Action::Ask(Question::Thread)) => {
            drop(book);
            let limit = inmate.limits.threads;
            match inmate.threads() {
                Ok(threads) if threads < u64::from(limit) => {
                    question.answered(Answer::Allowed);
                    return seccomp::carry_out(listener, asked.id);
                }
                Ok(_) => inmate.finish(End::Limit(LimitHit::Threads { limit })),
                // The host cannot count now, perhaps for want of descriptors; or it has ended
                // meanwhile.
                Err(_) => {
                    question.answered(Answer::Refused);
                    return seccomp::refuse(listener, asked.id, libc::EAGAIN);
                }
            }
            return Ok(());
        }
        Some(Action::Ask(Question::Abort)) => {
            drop(book);
            inmate.finish(match inmate.full_bytes() {
                Some(limit_bytes) => End::Limit(LimitHit::AddressSpace { limit_bytes }),
                None => End::Signal { signal: libc::SIGABRT, name: signal_name(libc::SIGABRT) },
            });
            return Ok(());
        }
        Some(Action::Ask(Question::Network)) => {
            book.network_refusals += 1;
            question.answered(Answer::Refused);
            return seccomp::refuse(listener, asked.id, libc::EACCES);
        }
        // Beyond the limit, which is looked at above.
        Some(Action::Ask(Question::Null)) => return Ok(()),
        Some(Action::Ask(Question::Program)) => "a program is started once, by the host",
        None if !is_native => "calls of other architectures are not allowed",
        None => reason(inmate, number, &asked),
    };
    drop(book);
    inmate.finish(End::Violation(Violation {
        syscall: number,
        name: name(&asked).to_owned(),
        args: asked.arguments,
        instruction_pointer: asked.instruction_pointer,
        arch: arch(&asked),
        step,
        reason,
    }));
    Ok(())
}

/// Why no rule covers a call of x86-64.
fn reason(inmate: &Inmate, number: i64, asked: &Notification) -> &'static str {
    const BOTH: u64 = (libc::PROT_WRITE | libc::PROT_EXEC) as u64;
    match number {
        libc::SYS_clone
        | libc::SYS_fork
        | libc::SYS_vfork
        | libc::SYS_execve
        | libc::SYS_execveat => {
            return "the jail is for one program: no process is started in it, and no other program";
        }
        libc::SYS_mmap | libc::SYS_mprotect if asked.arguments[2] & BOTH == BOTH => {
            return "memory is written or executed, never both: turn the program's just-in-time compiler off \
                    (as `node --jitless` does)";
        }
        _ => {}
    }
    let of_call = || inmate.policy.rules().filter(move |rule| rule.syscall == number);
    let holds = |rule: &&policy::Rule| {
        rule.conditions.iter().all(|condition| condition.holds(&inmate.given, &asked.arguments))
    };
    if of_call().any(|rule| holds(&rule)) {
        "it is allowed while the program is loading only"
    } else if of_call().next().is_some() {
        "it is not allowed with these arguments"
    } else {
        "it is not in the policy"
    }
}

fn arch(asked: &Notification) -> &'static str {
    match asked.arch {
        ARCH_X86_64 if asked.number as u32 & X32 != 0 => "x32",
        ARCH_X86_64 => "x86-64",
        ARCH_I386 => "i386",
        _ => "unknown",
    }
}

fn name(asked: &Notification) -> &'static str {
    let number = i64::from(asked.number);
    match asked.arch {
        ARCH_X86_64 => policy::name(number & !i64::from(X32)),
        // Its numbers mean other calls.
        _ => "unknown",
    }
}
