//! Measurements of the built programs, each against a named peer in the same run: runs are
//! interleaved, and what counts is the median of the ratios of neighbours, so that a machine that
//! is busy for a while slows both sides.
//!
//! `holdfast-bench SUITE` (`cargo xtask bench SUITE`) prints a table and, on request, JSON. It
//! works in a scratch home that it removes.
//!
//! What it must not do: judge. A missed goal is shown, and is no failure of the program.

#![deny(unsafe_code)]

pub mod applet;
pub mod cuba;
#[cfg_attr(
    not(all(feature = "pages", feature = "sqlite")),
    allow(dead_code, reason = "each suite needs a part of it")
)]
mod device;
#[allow(unsafe_code, reason = "maps memory to store to it")]
mod free_memory;
pub mod heap;
mod large_pages;
#[cfg(feature = "pages")]
pub mod pages;
pub mod persistency;
pub mod pool;
pub mod posix;
pub mod programs;
mod race;
pub mod report;
mod section;
pub mod slice;
#[cfg(feature = "slow-memory")]
pub mod slow;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod trace;
#[allow(unsafe_code, reason = "lays a heap over a mapped region, as a host does")]
mod warm_open;
pub mod web;

pub use holdfast_testkit::measure::{TEXT, require_text, stats, timing};
