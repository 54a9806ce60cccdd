//! What an applet written in Rust (or the C library beside this crate) links: it attaches to the heap that
//! the host granted with `--heap`, and hands it out as a [`Heap`].
//!
//! ```no_run
//! # #[cfg(target_family = "wasm")] {
//! let mut heap = holdfast_guest::attach()?;
//! let counter = match heap.root("counter") {
//!     Some(root) => root.pointer,
//!     None => heap.create_root("counter", 8)?,
//! };
//! // SAFETY: the root has 8 bytes, is aligned to 16, and nothing else refers to it.
//! unsafe { *counter.cast::<u64>().as_ptr() += 1 };
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Pointers into the heap are ordinary addresses and stay valid from run to run: the heap always lies at
//! [`HEAP_BASE`]. The program's stack, statics and `malloc` memory do not persist.
//!
//! Invariants: one [`Heap`] per program; no host call except to attach, to grow and to commit. Built for
//! WebAssembly only; elsewhere this crate is empty but for its documentation.

#![no_std]

#[cfg(target_family = "wasm")]
mod imports;
#[cfg(target_family = "wasm")]
mod region;

#[cfg(target_family = "wasm")]
pub use region::{AttachError, CommitError, Durability, Heap, HostRegion, attach, commit};

pub use holdfast_heap::{GrowError, HeapError, OpenError, Opened, Root, Transaction};

/// Where the heap lies in the applet's linear memory: 2 GiB.
pub const HEAP_BASE: u64 = 0x8000_0000;
