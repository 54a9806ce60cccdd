//! The library of applets in Rust (and of the C library beside this crate): it attaches to the heap
//! that the host granted with `--heap`, hands it out as a [`Heap`], and serves the host's calls.
//! The same source makes an applet for WebAssembly (`wasm32-wasip1`) and a native one (Linux on
//! x86-64).
//!
//! A program that runs to its end:
//!
//! ```no_run
//! let mut heap = holdfast_guest::attach()?;
//! let counter = match heap.root("counter") {
//!     Some(root) => root.pointer,
//!     None => heap.create_root("counter", 8)?,
//! };
//! // SAFETY: the root has 8 bytes, is aligned to 16, and nothing else refers to it.
//! unsafe { *counter.cast::<u64>().as_ptr() += 1 };
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! One that serves:
//!
//! ```no_run
//! use holdfast_guest::{Call, Failure, attach, export, serve_heap};
//!
//! fn length(call: &mut Call) -> Result<(), Failure> {
//!     let bytes = call.input().len() as u64;
//!     call.reply(&bytes.to_le_bytes())?;
//!     Ok(())
//! }
//!
//! fn keep(call: &mut Call) -> Result<(), Failure> {
//!     let input = call.input();
//!     let root = call.heap()?.create_root("kept", input.len() as u64)?;
//!     // SAFETY: the root has that many bytes, and nothing else refers to it.
//!     unsafe { root.as_ptr().copy_from_nonoverlapping(input.as_ptr(), input.len()) };
//!     Ok(())
//! }
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     export("length", length)?;
//!     export("keep", keep)?;
//!     serve_heap(attach()?)?;
//!     Ok(())
//! }
//! ```
//!
//! A heap for programs of every kind, native and WebAssembly, holds no pointers but [`Ref`]s, in
//! types that [`portable!`] declares: [`attach_portable`].
//!
//! A host may grant several heaps: [`attach_named`] opens one by its name in the program, and
//! [`attach`] the first.
//!
//! A thread may have a heap for itself: [`Compartment`].
//!
//! Pointers into a heap are ordinary addresses and stay valid from run to run: the heap lies at the
//! same address in every run (in WebAssembly from [`HEAP_BASE`] on). The program's stack, statics
//! and `malloc` memory do not persist.
//!
//! A tour:
//! - `region`: the granted heaps. `exports`, `call`, `failure`: what the host may call. `serve`:
//!   the loop. `keeper`: who has the heap meanwhile. `transport`: messages, as a trait.
//! - `compartment`: heaps that one thread has for itself.
//! - `host`: what the host lets the program call.
//! - `native` and `wasm`: one of them is the `platform`, with the same functions; all that differs
//!   is there.
//! - `buffer`: memory of the library's own, so that it needs no allocator.
//!
//! Invariants: one [`Heap`] for each granted heap at a time; `no_std`, no allocation of the
//! program's, no `errno`, so that it can be linked into programs of any language; no message and no
//! system call but to attach, to grow, to commit, to serve and to wait.

#![no_std]
#![deny(unsafe_code)]

#[cfg(any(test, doctest))]
extern crate std;

#[allow(unsafe_code, reason = "owns memory that no allocator has given")]
mod buffer;
#[allow(unsafe_code, reason = "copies from and to memory that the host shares")]
mod call;
mod compartment;
#[allow(unsafe_code, reason = "keeps closures without an allocator")]
mod exports;
mod failure;
#[allow(unsafe_code, reason = "takes memory back from code in C")]
mod host;
mod keeper;
#[allow(unsafe_code, reason = "the region is memory at an address that the host names")]
mod region;
#[allow(unsafe_code, reason = "hands out the memory that the transport vouches for")]
mod serve;
mod transport;

#[cfg(not(target_family = "wasm"))]
#[allow(unsafe_code, reason = "system calls, mappings, a lock")]
#[path = "native/mod.rs"]
mod platform;
#[cfg(target_family = "wasm")]
#[allow(unsafe_code, reason = "imports, and a lock for one thread")]
#[path = "wasm/mod.rs"]
mod platform;

pub use buffer::keep;
pub use call::{Call, CallBuffer, ReplyError};
pub use compartment::{Compartment, CompartmentHold};
pub use exports::{ExportError, export};
pub use failure::Failure;
pub use holdfast_channel::heaps::HEAPS_MAX;
pub use holdfast_types::Durability;
pub use host::{HostCallError, HostFunction, HostResult, HostResultParts, Words};
pub use keeper::HeapKeeper;
pub use platform::Lock;
pub use region::{
    AttachError, CommitError, Heap, HostRegion, attach, attach_named, attach_portable,
    attach_portable_named, attach_with, commit, forget, index_of, reopen,
};
pub use serve::{CODE_NOT_RUN, ServeError, seal, serve, serve_heap, serve_heaps, serve_keeping};
pub use transport::TransportError;

pub use holdfast_heap::{
    GrowError, HeapBase, HeapError, OpenError, Opened, Portable, Ref, Root, Transaction, portable,
};

/// From where on heaps lie in the linear memory of an applet in WebAssembly: 2 GiB.
pub const HEAP_BASE: u64 = 0x8000_0000;
