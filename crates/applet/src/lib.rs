//! One API to run an untrusted applet against a persistent heap.
//!
//! [`Applet`] is a builder: what runs, what it may use, which region is its heap. [`Applet::run`] returns an
//! [`Outcome`] (with the region, still open) or an [`AppletError`]; after a failure the heap was rolled back
//! to its last consistent state and closed.
//!
//! Invariants:
//! - However a run ends, the region's file is consistent and its lock is held by nobody but the caller.
//! - Nothing is granted that the builder was not told.
#![deny(unsafe_code)]

mod applet;
mod error;
#[allow(unsafe_code, reason = "maps the region for the recovery of the heap in it")]
mod heap_recovery;

pub use applet::{Applet, Outcome};
pub use error::{AppletError, Failure, FailureKind, HeapAfterFailure};
pub use heap_recovery::{Recovery, RecoveryError, recover};
pub use holdfast_wasm::{
    Access, DirGrant, Frame, GrantError, Input, Limits, MAX_HEAP_LIMIT_BYTES, MemoryLimitHit, Metrics,
    Output, Stdio, TrapCause, TrapReport, WasmError,
};
