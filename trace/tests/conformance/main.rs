//! The measurements that every backend must make, by workloads whose answer is known by
//! construction (`workload/`).
//!
//! A test runs over all backends; one that cannot trace on this machine is named, with the reason.
//! What a workload measured of itself while it was traced bounds what the backend may say from
//! above, and what it asked for (a sleep of a second) from below: both hold on a loaded machine,
//! too. Backends that are exact are held to 5 % beside that.

#![allow(clippy::unwrap_used, reason = "tests")]

mod ends;
mod group;
mod kernel;
mod life;
mod measured;
mod slow_disk;
mod structure;
mod subject;
mod trace;
