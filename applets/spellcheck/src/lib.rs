//! A spell checker whose dictionaries live in a persistent heap: the benchmark application of
//! Kannan et al., "NVM Heaps for Accelerating Browser-based Applications", where it loads
//! dictionaries into hash tables that later runs find as they were left.
//!
//! A tour, bottom up:
//! - [`arena`]: where tables live, the heap or (for comparison) ordinary memory.
//! - `layout`: the bytes of a table. [`dictionary`]: reading one. [`table`]: making, filling,
//!   doubling one.
//! - [`summary`]: what spares readers most looks at the tables.
//! - [`source`]: the words of a dictionary file. [`builder`]: files into tables, in batches that
//!   survive a kill.
//! - [`text`]: the words of a text. [`speller`]: which of them are right. [`suggest`]: what was
//!   meant.
//! - [`command`]: a run, from options to exit status; `main.rs` only attaches the heap.
//!
//! Invariant: a run that finds finished tables and a summary of this version parses nothing, loads
//! nothing and writes nothing to the heap.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
pub mod arena;
pub mod builder;
pub mod checker;
pub mod command;
mod descent;
#[allow(unsafe_code)]
pub mod dictionary;
mod distance;
pub mod error;
mod layout;
pub mod options;
pub mod report;
pub mod source;
pub mod speller;
pub mod suggest;
#[allow(unsafe_code)]
pub mod summary;
#[allow(unsafe_code)]
pub mod table;
pub mod text;
pub mod trials;
