//! The keeper: one process for each home that looks after its heaps, and the SQLite databases in
//! its pool. It saves them when the machine is about to go, brings to the store what lies in memory
//! only, and keeps the pool below its limit. Everything works without it. It can serve regions to
//! other users' programs, too.
//!
//! ```no_run
//! use holdfast_keeper::{Cause, Config, Keeper};
//! use holdfast_region::Places;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut keeper = Keeper::new(Places::from_env()?, Config::default())?;
//! let report = keeper.flush(Cause::Asked);
//! println!("{} heaps saved, {} left", report.saved.len(), report.left.len());
//! # Ok(())
//! # }
//! ```
//!
//! Invariants of the whole:
//! - One keeper for a home; a second one is refused.
//! - It changes no heap's data. What it writes to the store are checkpoints of heaps that no
//!   process has, and rescue copies of those that a process has; what it removes from the pool is
//!   in the store, and was read back.
//! - To a database file it writes only where no process has that open, by a checkpoint; other
//!   databases are copied.
//! - A process that it stops goes on again: when the work is done, when the keeper fails, and when
//!   it is killed.
//! - It needs no owner's key: who may read and write the files may keep them. Users that it serves
//!   have keys in its home.
//! - Times are those of the monotonic clock; the calendar decides nothing but which heap goes
//!   first.
//!
//! It must not know what is in a heap, or who runs an applet.

#![forbid(unsafe_code)]

mod allowance;
mod bandwidth;
mod closer;
mod config;
mod error;
mod freeze;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod keeper;
mod plan;
mod procfs;
mod serve;
mod served;
mod systemd;
mod triggers;

pub use config::{Config, PoolLimit, Profile};
pub use error::{DaemonError, Result};
pub use freeze::Guard;
pub use holdfast_keeper_client::{
    Cause, FlushReport, Saved, SavedKind, Status, Unsaved, UnsavedReason,
};
pub use keeper::{Keeper, status_of_files, thaw_after_killed_keeper};
pub use served::{Phase, PhaseHook, Quota, SERVED_NAME_BYTES_MAX, ServePolicy, Served};
pub use triggers::Sources;
