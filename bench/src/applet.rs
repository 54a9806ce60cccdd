//! The suite `applet`: what it costs to talk to an untrusted program. `bench/README.md` says what
//! each key means.
//!
//! Invariants: the other side is another process, this program again in a role ([`play`]), and ends
//! with its measurement; peers of the comparison work in the same rounds as our side.

pub(crate) mod call;
pub(crate) mod channel;
mod compile;
#[allow(unsafe_code, reason = "a word in shared memory is what is slept on")]
mod futex;
mod heap_access;
mod heaps;
mod host_functions;
#[allow(unsafe_code, reason = "calls functions of C libraries that it loads")]
pub(crate) mod libraries;
pub(crate) mod md5;
#[allow(unsafe_code, reason = "copies into and out of memory that another process has")]
mod memcpy;
mod other_side;
pub(crate) mod processors;
mod sizes;
mod socket;
#[allow(unsafe_code, reason = "a start by fork takes a closure for the child")]
pub(crate) mod spawn;
pub(crate) mod started;

use std::io;

use crate::cuba::starts;
use crate::heap::growth;
use crate::report::Outcome;
use crate::section;

/// The first argument of the other side.
pub const PEER: &str = "other-side";

/// A part of the suite.
type Section = (&'static str, fn(usize, &mut Outcome) -> io::Result<()>);

const SECTIONS: [Section; 9] = [
    ("channel", channel::run),
    ("call", call::run),
    ("sizes", sizes::run),
    ("spawn", spawn::run),
    ("compile", compile::run),
    ("md5", md5::run),
    ("heap_access", heap_access::run),
    ("heaps", heaps::run),
    ("host_functions", host_functions::run),
];

/// Runs the suite, or the section with the name `only`; `progress` gets the name of each step.
///
/// # Errors
/// When there is no such section, or a side fails.
pub fn run(runs: usize, only: Option<&str>, progress: &mut dyn FnMut(&str)) -> io::Result<Outcome> {
    let chosen = section::chosen(&SECTIONS, only)?;
    section::run(chosen, progress, |section, outcome| section(runs, outcome))
}

/// Plays the other side of a measurement, until that ends.
///
/// # Errors
/// When there is no such role, or the measuring side breaks off.
pub fn play(role: &str) -> io::Result<()> {
    match role {
        channel::ROLE => channel::serve(true),
        channel::ROLE_SLEEP => channel::serve(false),
        memcpy::ROLE => memcpy::serve(),
        futex::ROLE_SPIN => futex::serve(true),
        futex::ROLE_SLEEP => futex::serve(false),
        socket::ROLE => socket::serve(),
        heap_access::ROLE => heap_access::serve(),
        growth::ROLE => growth::grow(),
        heaps::ROLE_PLAIN => heaps::grow(false),
        heaps::ROLE_HINT => heaps::grow(true),
        starts::ROLE => starts::host(),
        starts::ROLE_PLAIN => starts::plain_host(),
        other => Err(io::Error::other(format!("there is no role {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error for a missing section lists the sections that exist.
    #[test]
    fn missing_section_error_lists_the_sections() {
        let complaint = run(1, Some("calls"), &mut |_| {}).unwrap_err().to_string();
        assert!(
            complaint.contains(
                "channel, call, sizes, spawn, compile, md5, heap_access, heaps, host_functions"
            ),
            "{complaint}"
        );
    }
}
