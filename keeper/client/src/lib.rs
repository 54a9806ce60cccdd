//! The client of a keeper: questions about a home ([`Client`]), and heaps on regions that a keeper
//! lends ([`Borrower`], [`open_served_heap`]). The keeper itself is in `holdfast-keeper`.
//!
//! Invariants:
//! - Nothing needs a keeper: without one, [`KeeperError::NoKeeper`] is the answer.
//! - A keeper is believed about nothing that memory safety rests on: what it lends cannot shrink,
//!   which is checked.
//!
//! It must not link the keeper, nor SQLite's VFS.

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "a backing is a promise about memory")]
mod backing;
mod borrower;
mod client;
mod error;
#[allow(unsafe_code, reason = "maps what a keeper lends")]
mod heap;
mod metrics;
mod report;
mod room;
#[doc(hidden)]
pub mod served_wire;
mod stream;
#[doc(hidden)]
pub mod wire;

pub use backing::NativeBacking;
pub use borrower::{Borrowed, Borrower};
pub use client::Client;
pub use error::{KeeperError, Result};
pub use heap::{OpenServedError, ServedBacking, ServedRegion, open_served_heap};
pub use report::{
    Budget, Cause, Counters, DatabaseStatus, EvictReport, FlushReport, HeapStatus, Saved,
    SavedKind, ServedStatus, Status, TendReport, Unsaved, UnsavedReason, UserStatus,
};
pub use room::{DatabaseRoom, use_for_room};
pub use served_wire::{OwnRegion, RefusedKind, Usage};
