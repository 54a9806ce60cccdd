//! The experiments of the five papers: what they published, which measurements of the suites stand
//! beside it, and one report of both.
//!
//! - [`command`] makes a report from a request.
//! - [`papers`] reads `papers.toml`: papers, their tables and figures, and the steps of a run.
//!   [`prose`] fills the numbers of a run into its sentences.
//! - [`session`] runs the steps, each in a process of its own; a stopped run goes on where it was.
//!   [`account`] says how much of the machine others used meanwhile.
//! - [`results`] keeps what came of each step, in a file of its own.
//! - [`report`] joins both; [`html`] and [`markdown`] write it.
//!
//! Invariants: no figure is made here: what is published is in the data, what is measured comes
//! from a suite. What was not measured is shown as such, with the reason. A result is called firm
//! only when it has enough values that are not far apart, and the machine did little else.
//!
//! It must not know how anything is measured.

#![forbid(unsafe_code)]

pub mod account;
mod chart;
pub mod command;
mod error;
pub mod html;
pub mod machine;
pub mod markdown;
pub mod number;
pub mod papers;
pub mod prose;
pub mod report;
pub mod results;
mod scale;
pub mod session;
mod source;

pub use error::ReportError;
