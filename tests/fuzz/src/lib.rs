//! The kit of the fuzz targets: memory with nothing around it, and heaps to start from.
//!
//! Invariant: a byte outside of a [`Guarded`] range cannot be touched without ending the process.
//!
//! What it must not do: judge. What counts as a failure is in the targets.

mod guarded;
mod seeds;

pub use guarded::Guarded;
pub use seeds::{POINTERS, seeds};
