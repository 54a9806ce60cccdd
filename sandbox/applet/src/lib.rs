//! One API to run untrusted applets, native and WebAssembly, against persistent heaps.
//!
//! - [`Command`]: what runs, what it may use, which regions are its heaps. [`Command::run`] runs it
//!   to its end and returns an [`Outcome`] (with the heaps, still open) or an [`AppletError`];
//!   after a failure each heap was rolled back to its last consistent state and closed.
//! - [`Applet`]: a command that was started to be called. [`Applet::call`] returns bytes or a
//!   [`CallError`]; an applet that dies takes nothing with it, and [`Applet::respawn`] goes on with
//!   the heap as of its last commit.
//! - [`Pool`]: applets that are started before they are needed.
//!
//! ```no_run
//! use holdfast_applet::{Applet, Grants, Limits};
//!
//! let applet = Applet::spawn("target/applets/md5", Limits::default(), Grants::none())?;
//! let digest = applet.call("digest", b"message digest")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With a heap, limits, and a start anew after a death:
//!
//! ```no_run
//! use std::time::Duration;
//! use holdfast_applet::{Applet, Call, CallError, Grants, Limits, NameSpace, OwnerKey, Places, RegionName};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let places = Places::from_env()?;
//! let key = OwnerKey::load_or_create(&places, "default")?;
//! let region = NameSpace::new(places).open_or_create(&RegionName::parse("tally")?, &key, 64 << 20)?;
//! let mut limits = Limits::default();
//! limits.call_timeout = Some(Duration::from_secs(2));
//! let applet = Applet::spawn("./tally", limits, Grants::none().heap(region))?;
//! match applet.call("count", b"hello") {
//!     Ok(bytes) => print!("{}", String::from_utf8_lossy(&bytes)),
//!     Err(CallError::Died(why)) => {
//!         eprintln!("{why}");
//!         applet.respawn()?; // the heap is as of its last commit or store
//!     }
//!     Err(other) => eprintln!("{other}"),
//! }
//! for part in applet.stream(Call::new("count", b"you").time_limit(Duration::from_millis(100)))? {
//!     print!("{}", String::from_utf8_lossy(&part?.bytes));
//! }
//! applet.close()?; // makes the checkpoint
//! # Ok(())
//! # }
//! ```
//!
//! Invariants:
//! - However a run ends, the files of its heaps are consistent and their locks are held by only
//!   the caller.
//! - Nothing is granted that was not asked for, and no limit is dropped in silence.
//! - Nothing that an applet sends is believed before it was checked, in a copy of its own.
#![deny(unsafe_code)]
#![allow(
    clippy::result_large_err,
    reason = "an error here is the end of an applet, once; what it costs to move is nothing"
)]

mod applet;
mod buffer;
mod call;
mod command;
mod control;
mod error;
mod grants;
mod heap_places;
#[allow(unsafe_code, reason = "maps the region for the recovery of the heap in it")]
mod heap_recovery;
mod input;
mod kind;
mod limits;
mod metrics;
mod native;
mod plan;
mod pool;
mod sandbox;
mod session;
mod state;
mod stream;
mod wasm;

pub use applet::{Applet, Closed};
pub use buffer::{Part, SharedBuffer};
pub use call::{Call, Response};
pub use command::Command;
pub use error::{AppletError, CallError, CloseError, Failure, FailureKind, HeapAfterFailure};
pub use grants::{Grants, thread_name};
pub use heap_recovery::{Recovery, RecoveryError, recover};
pub use kind::SandboxKind;
pub use limits::Limits;
pub use metrics::{CallMetrics, Metrics};
pub use plan::Outcome;
pub use pool::{Pool, Pooled};
pub use stream::{Chunk, Stream};

pub use holdfast_identity::{AppletFile, AppletKey, Identity, OwnershipError, key_for};
pub use holdfast_jail::{End, Jail, JailError, KillReason, Layers, LimitHit, Violation, Weakness};
pub use holdfast_region::{Consistency, NameSpace, OwnerKey, Places, Region, RegionName};
pub use holdfast_wasm::{
    CompileIn, CompilerCommand, DirGrant, Frame, GrantError, GrantedHeap, HeapRequest,
    HeapRequestError, Heaps, HeapsError, HostCall, HostFunction, HostFunctionError,
    HostFunctionsError, Input, MAX_HEAP_LIMIT_BYTES, MemoryLimitHit, Output, PathAccess, Stdio,
    TrapCause, TrapReport, WasmError, run_compiler, set_compiler_command, try_compiler,
};
