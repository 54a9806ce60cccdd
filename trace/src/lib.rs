//! Measures where the system-call time of a program goes.
//!
//! Four steps, each usable without the next:
//!
//! 1. **Measure.** A [`Backend`] starts a program or attaches to running processes ([`Settings`],
//!    [`Target`]) and passes an [`Event`] for every system call to its caller. The time of a
//!    [`Call`] is split in five: on the CPU, asleep, waiting, waiting for a device, and ready but
//!    not on a CPU ([`Split`]). [`PtraceBackend`] needs no rights; [`BpfBackend`] costs less.
//! 2. **Record.** A [`Recorder`] keeps events in a file, a [`Recording`] reads them back; what a
//!    crash damaged is reported as [`Damage`]. [`import`] reads logs of strace instead.
//! 3. **Sum up.** A [`Summary`] takes events in one pass and gives a
//!    [`Report`](report::Report): sums by class, call, thread and process.
//! 4. **Show and compare.** [`report`] prints a report in each of its forms, [`diff`] compares two
//!    groups of runs, [`matrix`] runs one program on several platforms.
//!
//! ```
//! use holdfast_trace::report::document::Source;
//! use holdfast_trace::report::{self, Look};
//! use holdfast_trace::{Scheme, Summary, SummaryOptions};
//!
//! let summary = Summary::new(SummaryOptions { scheme: Scheme::Paper, ..Default::default() });
//! // The sink of a backend, or the reader of a recording, calls `summary.add(&event)`.
//! let report = summary.into_report(Source::default());
//! assert!(report::terminal(&report, &Look::default()).contains("No event was lost."));
//! ```
//!
//! Invariants:
//! - The traced program is not disturbed: a sink that cannot keep events does not stop the run, and
//!   a tracer that dies leaves its program running.
//! - No loss is silent: what a backend cannot see, lost or only estimates is in
//!   [`TraceDescription`] or in an event.
//! - Reports and comparisons do not depend on how the events were measured.

#![forbid(unsafe_code)]

mod about;
mod backend;
mod bpf;
mod classes;
mod crossings;
mod devices;
mod error;
mod histogram;
mod machine;
mod model;
mod names;
mod program;
mod ptrace;
mod recording;
mod statistics;
mod status;
mod summary;
mod sysno;

pub mod diff;
pub mod import;
pub mod matrix;
pub mod report;

pub use about::{BackendKind, Cache, Cost, FileSystem, TraceDescription};
pub use backend::{Backend, Outcome, Program, Settings, StopFlag, Target};
pub use bpf::{BUFFER_BYTES, BpfBackend};
pub use classes::Scheme;
pub use crossings::{CallsInMemory, Crossings};
pub use error::{Result, TraceError};
pub use model::{Abi, Call, End, Event, Object, Split};
pub use program::Waiting;
pub use ptrace::PtraceBackend;
pub use recording::{Damage, Ending, Recorder, Recording, RecordingError, Written};
pub use summary::{Options as SummaryOptions, Summary};
pub use sysno::{call_name, call_number, descriptor_argument};
