//! Why a program could not be jailed. After any of these it has not run a single instruction, but
//! for [`JailError::Host`] about a thread for its output: that one ends a program that has just
//! begun.

#![forbid(unsafe_code)]

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use holdfast_sys::shortage;
use holdfast_types::Remedy;

use crate::layers::Weakness;

/// Why a program could not be jailed, or not be sealed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JailError {
    /// The program's file cannot be opened.
    #[error("{}: {source}; {}", path.display(), advice(source, "check the path and its permissions"))]
    Program {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The program's file is not a native program for this machine.
    #[error("{}: {what}; build it as an x86-64 Linux program", path.display())]
    NotNative {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        what: &'static str,
    },
    /// The file is not the one that the host examined.
    #[error("{} was replaced or changed after it was examined; start it again", path.display())]
    Replaced {
        /// The file.
        path: PathBuf,
    },
    /// Strict confinement was asked for, and the machine lacks a layer.
    #[error("{0}; or allow weaker confinement by not asking for `strict`")]
    Weaker(Weakness),
    /// Directories were granted, and nothing on this machine can keep the program to them.
    #[error(
        "directories cannot be granted here: neither Landlock nor mount name spaces can be used ({0}); grant none"
    )]
    Unconfined(Weakness),
    /// A descriptor was asked for at a number that it cannot have.
    #[error(
        "no descriptor can be installed at {number}; numbers from 3 to 63 can be chosen, each once"
    )]
    Descriptor {
        /// The number.
        number: i32,
    },
    /// Standard input is a directory, from which paths would lead to others.
    #[error("standard input is a directory; give a file, a pipe or nothing")]
    Input,
    /// A descriptor was to be lent that is a directory, from which paths would lead to others.
    #[error(
        "the descriptor for {number} is a directory; lend files, and grant directories by path"
    )]
    Directory {
        /// The number.
        number: i32,
    },
    /// A path, an argument or a variable cannot be passed on.
    #[error("{what} {value:?} cannot be passed to a program; {advice}")]
    Text {
        /// What it is: an argument, a variable, a granted path.
        what: &'static str,
        /// The text.
        value: String,
        /// What to do.
        advice: &'static str,
    },
    /// A step of the set-up failed.
    #[error(
        "the jail's step {step:?} failed: {source}; {}",
        advice(source, &Remedy::ExamineMachine.to_string())
    )]
    Step {
        /// The step.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The child ended during the set-up without saying why: a process killed it.
    #[error(
        "the child was killed during the jail's step {step:?}; look for memory shortage, and try again"
    )]
    Died {
        /// The step that it was at.
        step: &'static str,
    },
    /// The set-up did not come to its end in time.
    #[error(
        "the jail's step {step:?} did not end within {limit:?}; the machine is overloaded, try again"
    )]
    Stuck {
        /// The step that the child was at.
        step: &'static str,
        /// How long it was waited for.
        limit: Duration,
    },
    /// The host itself could not do something.
    #[error(
        "{what}: {source}; {}",
        advice(source, "free some resources (descriptors, memory, processes) and try again")
    )]
    Host {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// This process may have less of something than the program is to get.
    #[error(
        "the applet needs {needed} {what}, and this process may have {may_have} (`{command}`); raise that limit where the host \
         is started, or {instead}"
    )]
    ResourceLimit {
        /// What there is too little of, with its unit.
        what: &'static str,
        /// The command of shells that sets the limit.
        command: &'static str,
        /// The limit of this process.
        may_have: u64,
        /// What the program cannot do without.
        needed: u64,
        /// What to do instead of raising it.
        instead: &'static str,
    },
    /// The program has ended already.
    #[error("the program has ended; ask `end` how")]
    Ended,
}

/// What to do about an error of the kernel that is about a limit of this process; else something of
/// general use.
fn advice(error: &io::Error, otherwise: &str) -> String {
    shortage::remedy(error).unwrap_or(otherwise).to_owned()
}
