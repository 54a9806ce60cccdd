//! Allocator, named roots and transactions inside a region of persistent memory: the untrusted side
//! of Holdfast. `no_std`, no allocation of its own, the same code on the host and inside an applet.
//!
//! A tour, bottom up:
//! - [`layout`]: every offset and word of the format. [`classes`]: the size classes.
//! - `memory`: checked loads and stores by offset; the only place that touches the bytes.
//! - `chunks`: segments, chunks and runs of chunks; one 8-byte store publishes or releases each.
//! - `slabs`: small objects; one bit of one word per object. `recent`: the short way of most of
//!   them, over what was freed last.
//! - `log`: the undo log of a transaction. `recovery`: what becomes of it. `order`: what memory
//!   that survives a reset needs on top.
//! - [`Heap`]: open, allocate, free. [`Transaction`]: several changes, all or none.
//! - [`Owned`]: what roots hold as bytes, for safe code.
//! - `roots`: names for objects, the paper's `nvmalloc(name, size)` and `nvread(name)` (Kannan et
//!   al., "NVM Heaps for Accelerating Browser-based Applications").
//! - [`Ref`] and [`Portable`]: references and types that mean the same to every program: what a
//!   portable heap holds in the place of pointers.
//! - `ThreadSlabs` (feature `std`): what one thread allocates from without a lock; `SharedHeap`: the
//!   heap for several threads of a host.
//! - `survey` (feature `std`): size classes, a map of chunks, objects and leaks, for tools.
//! - `mend` (feature `std`): mends damaged tables in a copy, for tools.
//! - [`check`](mod@check): verifies the bytes of a heap from outside, in safe code.
//!
//! The invariant that all of it serves: **kill the process between any two instructions, and the
//! next [`Heap::open`] finds a state in which every completed operation and committed transaction
//! is there, and no part of an uncommitted one is.** What may be lost is memory, not data: an
//! object that was allocated outside a transaction and not yet linked from anywhere stays
//! allocated.
//!
//! What it must not do: call the host on an allocation (except to grow), hold an address in its
//! metadata, write on the opening of a heap that is in order, trust a loaded offset without
//! checking it.

#![no_std]
#![deny(unsafe_code)]

#[cfg(any(test, feature = "crash-points", feature = "std"))]
extern crate std;

#[allow(unsafe_code)]
mod backing;
pub mod check;
pub mod classes;
#[cfg(feature = "crash-points")]
pub mod crash_points;
mod error;
#[cfg(feature = "std")]
mod evidence;
mod exclusion;
#[allow(unsafe_code)]
mod heap;
#[allow(unsafe_code)]
mod inspect;
pub mod layout;
#[allow(unsafe_code)]
mod memory;
#[cfg(feature = "std")]
pub mod mend;
#[allow(unsafe_code)]
mod owned;
#[allow(unsafe_code)]
mod pointer_map;
#[allow(unsafe_code)]
pub mod portable;
#[cfg(feature = "crash-points")]
pub mod recorder;
#[allow(unsafe_code)]
mod reference;
#[cfg(feature = "std")]
#[allow(unsafe_code)]
mod relocate;
#[cfg(feature = "std")]
pub mod survey;
#[allow(unsafe_code)]
pub mod types;
pub mod wide;

pub use backing::{Backing, Fixed};
pub use check::{CheckReport, Finding, check};
pub use error::{GrowError, HeapError, OpenError};
pub use exclusion::OpenTransactions;
#[cfg(feature = "std")]
pub use heap::{Handle, SharedHeap, ThreadBarrier, ThreadSlabs};
pub use heap::{Heap, OpenOptions, Opened, Pointers, Root, Roots, Transaction, Usage};
pub use inspect::{HEAD_BYTES, Inspection, bytes_of, inspect, pointers_of};
#[cfg(feature = "std")]
pub use mend::mend;
pub use owned::{Changes, Object, Owned};
pub use pointer_map::{Described, Link, PointerMap, Run};
pub use portable::Portable;
pub use reference::{HeapBase, REF_REACH_BYTES, REF_UNIT_BYTES, Ref};
#[cfg(feature = "std")]
pub use relocate::{Relocated, RelocationError, relocate};
#[cfg(feature = "std")]
pub use survey::Survey;
pub use types::{RootType, Typed};
