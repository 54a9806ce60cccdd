//! `LD_PRELOAD=libholdfast-malloc.so PROGRAM` runs an unmodified program with its whole `malloc`
//! heap in a region, so that the allocator of `holdfast-heap` can be measured with other people's
//! programs.
//!
//! - `exports`: what the program calls instead of its C library.
//! - `own`: what each thread has of the heap for itself.
//! - `preloaded`: the heap, from the library's constructor on.
//! - `opening`: which region that is. `fork`: why a forked child gets a copy.
//! - `aligned`: alignments above 16.
//! - `arena`: memory that is not in the region: what is allocated before the constructor has run,
//!   and what this library itself needs.
//!
//! `HOLDFAST_MALLOC_HEAP=NAME` names the heap; it stays in the pool when the program ends, for
//! `holdfast heap check NAME`, and a second program that finds it in use gets a scratch heap.
//! Without the name it is always a scratch heap, whose file has no name and is gone with the
//! process, however that ends. `HOLDFAST_MALLOC_SIZE` is its limit.
//!
//! Invariants: this library never allocates through what it exports; a pointer that it does not
//! know is left alone; where there is no region, the program ends with a message instead of being
//! measured with something else.
//!
//! What it must not do: promise persistence. The program finds nothing of an earlier run.

mod aligned;
mod arena;
mod exports;
mod fork;
mod lock;
mod opening;
mod own;
mod preloaded;

/// What this library itself allocates, in Rust.
#[global_allocator]
static OWN: arena::Arena = arena::Arena::new();
