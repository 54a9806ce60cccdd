//! Writing to standard output and standard error: /dev/null, or a pipe that the host reads and
//! bounds.

#![forbid(unsafe_code)]

use super::rule::Action::Allow;
use super::rule::{Rule, is, rule};

pub(super) const RULES: &[Rule] = &[
    rule(libc::SYS_write, &[is(0, 1)], Allow, "standard output; the supervisor bounds it"),
    rule(libc::SYS_write, &[is(0, 2)], Allow, "standard error; the supervisor bounds it"),
    rule(libc::SYS_writev, &[is(0, 1)], Allow, "standard output; musl and Rust write so"),
    rule(libc::SYS_writev, &[is(0, 2)], Allow, "standard error; musl and Rust write so"),
];
