//! The C interface of the heap for native programs: the functions of
//! `bindings/c/include/holdfast.h` over a region that is mapped at its own address. `cargo xtask
//! c-library` builds and installs it.
//!
//! - `session`: which heap, opening and closing it, one caller at a time. `quick`: small objects
//!   without waiting for that.
//! - `failure`: why a call failed, and the last failure of each thread.
//! - `ending`: the end of the process, and what a forked child may not do.
//! - `types`: where the pointers of types in C are.
//! - `exports`: what C sees. `documents`: HTML documents in the heap (`holdfast_document.h`);
//!   `document_reads` and `document_edits`: what C sees of them.
//!
//! Invariants: no panic crosses the boundary, it becomes `NV_FAILED`, and the heap's handle is not
//! used again; a forked child changes nothing.

mod document_edits;
mod document_reads;
mod documents;
mod ending;
mod exports;
mod failure;
mod ground;
mod quick;
mod session;
mod types;
