//! The sandbox view: what applets' calls cross, guest to host and host to kernel.
//!
//! The host counts what crosses into it, exactly, in a record of its own (`holdfast-crossings`);
//! the backends see all system calls. Both have threads and times of one clock, so each system call
//! of the host has one place: in a crossing, in a call of an applet, or outside of any. Those of a
//! native applet's process are crossings themselves.
//!
//! Invariants:
//! - Each system call of hosts and their applets is counted once, in one place; the record's own
//!   are told apart from all.
//! - The record is another process's word: what is missing or does not fit is said in the notes,
//!   and nothing of it is a reason to fail.
//! - Calls that are kept for the join are bounded (`calls::CALLS_MAX`); what came after is counted.

mod calls;
mod change;
mod document;
mod host;
mod join;
mod show;
mod spans;
mod sums;
#[cfg(test)]
pub(crate) mod tests;

pub use calls::CallsInMemory;
pub use document::Crossings;

pub(crate) use change::{CrossingChanges, change_terminal};
pub(crate) use show::terminal;
