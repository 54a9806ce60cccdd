//! From the processor's caches to memory: what makes a store survive the reset of a machine whose
//! memory keeps its bytes.
//!
//! A store to mapped memory (DAX) is in a cache first. A reset discards caches, and until then the
//! processor writes lines back in any order. [`write_back`] starts the way of a range's lines to
//! memory, [`drain`] waits until all that were started have arrived; [`persist`] is both. The terms
//! are those of PMDK's `pmem_flush`, `pmem_drain` and `pmem_persist`; the instructions are
//! described in the Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2 (CLWB,
//! CLFLUSHOPT, CLFLUSH, SFENCE).
//!
//! Invariants:
//! - What [`write_back`] touches it does not change, whichever instruction does it.
//! - Nothing here knows what lies in the memory, or whether that survives anything: the caller
//!   does.
//! - No system call, no allocation: it is compiled into applets, too. The feature `slow-memory`,
//!   for experiments on the host, has both.

#![no_std]
#![deny(unsafe_code)]

#[cfg(feature = "slow-memory")]
extern crate std;

#[cfg_attr(
    feature = "slow-memory",
    allow(unreachable_pub, dead_code, reason = "the functions of `slow` stand in front of them")
)]
mod line;
#[cfg(feature = "slow-memory")]
mod slow;

pub use line::{Instruction, instruction};
#[cfg(not(feature = "slow-memory"))]
pub use line::{drain, persist, write_back};
#[cfg(feature = "slow-memory")]
pub use slow::{ReadCache, SlowMemory, drain, persist, write_back};

/// Bytes of a cache line, the unit in which memory is written back. Every x86-64 has lines of this
/// size, and larger ones elsewhere are multiples of it.
pub const LINE_BYTES: usize = 64;
