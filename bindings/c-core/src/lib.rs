//! The code that the two C libraries share, so that `holdfast.h` means the same to an applet and to
//! a native program: the error codes and their texts (`codes`, `call_error`), the calls on a heap
//! (`calls`), and the functions that C sees (`exports`). A library adds where its heap comes from
//! and where its last error is kept: [`Library`].
//!
//! Invariants: `no_std`, no allocation of its own, no panic. Every failure has a code and a text.
//!
//! What it must not do: know whether it runs in a sandbox.

#![no_std]
#![deny(unsafe_code)]

#[cfg(test)]
extern crate std;

mod call_error;
mod calls;
mod codes;
#[allow(unsafe_code)]
mod exports;
mod known_roots;

pub use call_error::HeapCallError;
pub use calls::{Calls, Content, PAGE_BYTES};
pub use codes::{Code, text_of};
pub use exports::*;
pub use holdfast_types::Durability;
