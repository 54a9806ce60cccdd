//! One suite for both consistency modes: every case runs over `direct` and `atomic`, and what
//! differs between them is said in [`session::Session`] and nowhere else.
//!
//! - `session`: a heap that is open in one of the modes, and a workload whose every byte follows
//!   from one number.
//! - `cases`: roots, transactions, allocation, growth, rollback.
//! - `faults`: full disks, lost images.
//! - `kills`: SIGKILL at random moments.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod cases;
mod faults;
mod kills;
#[allow(unsafe_code, reason = "objects of a heap are reached by their pointers")]
mod session;
