//! The module of WebAssembly behind `PersistentHeap` of the npm package: it attaches a portable
//! heap as an applet does, and gives TypeScript roots, objects, transactions, maps, arrays and
//! documents in it by synchronous functions. TypeScript reads and writes typed values in linear
//! memory itself.
//!
//! The modules, bottom up:
//! - `fault`: why something was not done, with the number by which TypeScript knows it.
//! - `bytes`: loads and stores inside the heap, checked, and logged in a transaction.
//! - `map`, `array`: containers with a [documented layout](../../docs/format.md).
//! - `kept`: HTML documents, by `holdfast-dom`.
//! - `exports`: the functions that TypeScript calls; only in WebAssembly.
//!
//! Invariants: no byte of the heap is believed: each offset and length is checked where it is used,
//! and each loop is bounded by what the heap has. What a damaged heap can do is to answer wrongly
//! or with [`Code::Corrupt`]. An operation that fails for want of room changes nothing.
//!
//! What it must not do: keep the address of an object from one call to the next, or store what a
//! page commits while a transaction is open.

#![deny(unsafe_code)]

pub mod array;
#[allow(unsafe_code, reason = "follows offsets in the heap, which are checked")]
mod bytes;
#[cfg(target_family = "wasm")]
#[allow(unsafe_code, reason = "names of exported functions, and memory that TypeScript fills")]
mod exports;
mod fault;
pub mod kept;
pub mod map;
#[cfg(test)]
#[allow(unsafe_code, reason = "plays a backing")]
mod testing;

pub use fault::{Code, Fault};
