//! The promises of a jail, tried with programs that break each promise on purpose.

#![deny(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod basics;
mod calls;
mod escapes;
mod forks;
mod host_death;
mod limits;
mod machine;
mod modes;
mod programs;
mod set_up;
mod victims;
