//! The code that the programs of the command line share: `holdfast` itself and the products beside
//! it (`holdfast-sqlite`, `holdfast-page`, `holdfast-trace`, `holdfast-keeper`, `holdfast-model`).
//!
//! - [`program`] runs one program from its arguments to its exit code.
//! - [`exit`] has the exit codes and [`Failure`](exit::Failure), the end of a command that failed.
//! - [`output`] prints tables, JSON and messages.
//! - [`size`] and [`time`] read and write sizes and times.
//! - [`keys`] opens the name space of the user and the keys in it.
//! - [`finding`] is a line of `holdfast doctor`; each product answers for itself.
//!
//! Invariants: results go to standard output, everything else to standard error; what other people
//! named reaches no terminal unescaped; every failure is one message and one documented exit code.
//!
//! It must not know what a command does.

#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]
#![allow(
    missing_docs,
    reason = "items that only our own programs use; each says so where it is not plain"
)]

pub mod exit;
pub mod finding;
pub mod keys;
pub mod output;
pub mod program;
pub mod size;
pub mod time;
