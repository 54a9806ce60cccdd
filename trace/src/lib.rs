//! Where a program's system-call time really goes.
//!
//! A [`Backend`] runs a program, or attaches to one that runs, and gives an [`Event`] for every system call, with the call's
//! time split in five: on the CPU, asleep, waiting, waiting for a device, and ready but not on a CPU. What is made
//! of the events (tables, reports, comparisons) knows nothing of how they were measured, and [`About`] says how.
//!
//! Invariants:
//! - The traced program must not suffer: a sink that cannot keep events does not stop the run, and a tracer that dies leaves its
//!   program running.
//! - Nothing is lost silently: what a backend cannot see, lost or can only estimate is in [`About`] or an event.

#![forbid(unsafe_code)]

mod about;
mod backend;
mod bpf;
mod devices;
mod error;
mod machine;
mod model;
mod program;
mod ptrace;
mod recording;
mod sysno;

// What is made of events.
pub mod classes;
pub mod crossings;
pub mod diff;
pub mod histogram;
pub mod import;
pub mod matrix;
mod names;
pub mod report;
pub mod statistics;
pub mod summary;

pub use about::{About, BackendKind, Cache, Cost, FileSystem};
pub use backend::{Backend, Outcome, Program, Settings, StopFlag, Target};
pub use bpf::{BUFFER_BYTES, BpfBackend};
pub use error::{Result, TraceError};
pub use model::{Abi, Call, End, Event, Object, Split};
pub use program::Waiting;
pub use ptrace::PtraceBackend;
pub use recording::{Damage, Ending, Recorder, Recording, RecordingError, Written};
pub use sysno::{call_name, call_number, descriptor_argument};
